"""Estimate how many visits of which pairs would narrow a guaranteed band, to plan recordings.

A band depends on the counts of the rows. So the counts of some rows are raised to n with unchanged fractions, and the
band is computed again exactly. Bisection finds the smallest n, and the fewest rows, for which the band is narrow
enough. The result is an estimate, because further recordings will not show exactly the same fractions. For a pair that
was never recorded, no fractions are known. Such a pair is assumed to behave like the action that was recorded most
often in the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ConfigError, LimitError
from monitor.evaluation.bands import LearnedBands
from monitor.evaluation.credible import LearnedTable
from monitor.exact import Checker
from monitor.logic import Formula
from monitor.model import MDP
from monitor.model.sparse_rows import frozen
from monitor.model.unknown import never_recorded
from monitor.types.specs import BandSettings
from monitor.types.stream_events import PathPairs

MOST: Final = 1 << 40
"""Number of visits of a row after which more visits make no difference. The width that remains then comes from the
class of causal models.
"""


@dataclass(frozen=True)
class Needed:
    """Visits that would bring the guaranteed bands of a formula below a width.

    Attributes:
        width: requested width. now: width of the widest band. limit: width that remains with any number of recordings.
        visits: number of visits of each pair in `pairs`; None if no number suffices.
        pairs: (state, action, visits recorded so far), the pairs that matter most first.
    """

    width: float
    now: float
    limit: float
    visits: int | None
    pairs: tuple[tuple[int, int, int], ...]


def visits_needed(
    checker: Checker, formula: Formula, path: PathPairs, width: float, *, terminated: bool = False
) -> Needed:
    """Estimate the visits after which no quantity of `formula` on `path` has a guaranteed band wider than `width`.

    Raises:
        ConfigError: `width` is not positive, or the model is not learned.
        LimitError: the formula has no guaranteed band.
    """
    model, counts = checker.model, checker.model.counts
    if not width > 0.0:
        raise ConfigError(f"a width must be above 0, not {width:g}")
    if counts is None:
        raise ConfigError("the model was not learned from recordings, so no visits would change an answer on it")

    def width_of(candidate: MDP) -> float:
        delta = checker.evaluators.delta
        verdict = Checker(candidate, checker.policies, checker.models, delta=delta).check(
            formula, path, causal_model="any", terminated=terminated
        )
        bands = [quantity.guaranteed for quantity in verdict.quantities]
        if not bands or None in bands:
            reason = (
                verdict.bands.reason if verdict.bands is not None and verdict.bands.reason else "it has no quantity"
            )
            raise LimitError(f"no visits can be estimated: {reason}")
        return max(band[1] - band[0] for band in bands if band is not None)

    draws, order = counts.draws(model.indptr), _by_weight(checker, formula, path, terminated=terminated)
    now, limit = width_of(model), width_of(raised(model, order, MOST))
    if now <= width:
        return Needed(width, now, limit, 0, ())
    if limit > width:
        return Needed(width, now, limit, None, ())
    power = _least(lambda power: width_of(raised(model, order, 1 << power)) <= width, 0, MOST.bit_length() - 1)
    visits = 1 << power
    rows = _least(lambda count: width_of(raised(model, order[:count], visits)) <= width, 1, len(order))
    chosen = [int(row) for row in order[:rows] if draws[row] < visits]
    pairs = tuple((row // model.actions, row % model.actions, int(draws[row])) for row in chosen)
    return Needed(width, now, limit, visits, pairs)


def _least(enough: Callable[[int], bool], low: int, high: int) -> int:
    """Return the smallest number from `low` to `high` for which `enough` is true.

    `enough` must be monotone, and true for `high`.
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def _by_weight(checker: Checker, formula: Formula, path: PathPairs, *, terminated: bool) -> Ints:
    """Return the rows that more data could narrow, rows with the most expected uses first."""
    model, counts = checker.model, checker.model.counts
    assert counts is not None
    weights = np.zeros(model.states * model.actions)
    for part in LearnedBands(LearnedTable(checker.evaluators), BandSettings()).uses(
        formula, path, terminated=terminated
    ):
        if part.model is model:
            weights += part.weights
    rows = np.flatnonzero((counts.order > 0) | _never(model))
    ordered: Ints = rows[np.lexsort((rows, -weights[rows]))]
    return ordered


def _never(model: MDP) -> Bools:
    """Return which pairs [S*A] were never recorded although another action was recorded in their state."""
    counts = model.counts
    assert counts is not None
    recorded = (counts.draws(model.indptr).reshape(model.states, model.actions) > 0).any(axis=1)
    return np.asarray(never_recorded(model) & np.repeat(recorded, model.actions))


def raised(model: MDP, rows: Sequence[int] | Ints, visits: int) -> MDP:
    """Return a learned model in which each of `rows` has at least `visits` records, with unchanged fractions."""
    counts = model.counts
    assert counts is not None
    draws, never = counts.draws(model.indptr), _never(model)
    given = np.asarray(rows, np.int64)
    source = np.arange(len(draws))
    most = draws.reshape(model.states, model.actions).argmax(axis=1)
    new = given[never[given]]
    source[new] = new // model.actions * model.actions + most[new // model.actions]
    order = counts.order.copy()
    order[new] = order.max(initial=0) + 1 + np.arange(len(new))
    sizes = np.diff(model.indptr)[source]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    entries = np.repeat(model.indptr[source] - indptr[:-1], sizes) + np.arange(indptr[-1])
    factor = np.ones(len(draws))
    factor[given] = np.maximum(1.0, visits / np.maximum(draws[source[given]], 1))
    factor[order == 0] = 1.0
    of = np.repeat(np.arange(len(draws)), sizes)
    scaled = np.ceil(counts.visits[entries] * factor[of]).astype(np.int64)
    added = np.bincount(of, scaled - counts.visits[entries], len(draws)).astype(np.int64)  # after the recorded visits
    since = np.where(scaled > 0, counts.since[entries] + added[of], 0)
    extra: Floats | None = None if model.transition_rewards is None else frozen(model.transition_rewards[entries])
    return replace(
        model,
        indptr=frozen(indptr),
        successors=frozen(model.successors[entries]),
        probabilities=frozen(model.probabilities[entries]),
        transition_rewards=extra,
        reward_spread=None if model.reward_spread is None else frozen(model.reward_spread[entries]),
        counts=replace(counts, visits=frozen(scaled), since=frozen(since), order=frozen(order)),
    )
