"""Credible bands if states are hidden or policies remember. Every model is drawn and evaluated again.

1. A learned row has its recorded outcomes, each with its visits and an equal share of the prior, and outcomes that were
   never recorded in the row. For transitions, the only unrecorded outcome is the state `elsewhere`. For emissions, the
   unrecorded outcomes are the observations that were recorded only in other states.
2. Class j has the draws of each row with the numbers 2**j + 1 to 2**(j + 1). The fraction of draws in the classes j - 1
   and j that showed a new outcome determines the weight of the unrecorded outcomes in each row whose next draw is in
   class j.
3. A drawn model has rows from these Dirichlet distributions. Where no observation was recorded, the prior remains.
4. A value on a drawn model is derived like any other, at both extremes. The band is between quantiles of the values.

The random numbers are those of the engine: their order is a part of the definition.

Definition: docs/semantics/learned-models.md, section 13.5, and docs/semantics/hidden.md, section 16.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import floor
from typing import NamedTuple

import numpy as np

from monitor.logic.syntax import Goal
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP
from monitor.types.specs import BandSettings
from monitor.types.verdicts import Band

DrawnRow = dict[int, float]
SMALLEST = 1e-100
"""Smallest mass of an outcome, and smallest rate of discovery."""


class LearnedRow(NamedTuple):
    """A learned row: outcome -> visits, outcome -> draws since it was first recorded, and what was never recorded."""

    visits: dict[int, int]
    since: dict[int, int]
    new: Sequence[int]


def credible_bands(
    goals: Sequence[Goal],
    models: Sequence[MDP],
    ends: Callable[[Sequence[MDP], Goal], Band],
    settings: BandSettings,
    effect: tuple[int, int] | None,
) -> tuple[list[Band], Band | None]:
    """Return the band of each goal, and of the difference of two of them, the first minus the second.

    `models`: the main model first. `ends`: returns both extremes of a goal on drawn models. `effect`: the two goals.
    """
    streams = [_models(each, np.random.default_rng((settings.seed, n))) for n, each in enumerate(models)]
    shown = _emissions(models[0].emissions, np.random.default_rng((settings.seed, len(models))))
    found: list[list[Band]] = []
    for _ in range(settings.draws):
        main, *others = (next(stream) for stream in streams)
        main = replace(main, emissions=next(shown))
        found.append([ends([main, *others], goal) for goal in goals])
    bands = [_band([each[n] for each in found], settings.level) for n in range(len(goals))]
    if effect is None:
        return bands, None
    one, two = effect
    return bands, _band([(each[one][0] - each[two][1], each[one][1] - each[two][0]) for each in found], settings.level)


def _models(model: MDP, rng: np.random.Generator) -> Iterator[MDP]:
    """Yield the model with drawn transitions, without end."""
    counts = model.counts
    if counts is None:
        while True:
            yield model
    rows: list[LearnedRow | None] = []
    for number, order in enumerate(counts.order.tolist()):
        at = range(model.indptr[number], model.indptr[number + 1])
        visits = {int(model.successors[n]): int(counts.visits[n]) for n in at}
        since = {int(model.successors[n]): int(counts.since[n]) for n in at}
        rows.append(LearnedRow(visits, since, [counts.elsewhere]) if order > 0 else None)
    for drawn in _drawn([row for row in rows if row is not None], counts.prior, rng):
        following, indptr, successors, chances = iter(drawn), [0], list[int](), list[float]()
        rewards: list[float] = []
        for number, row in enumerate(rows):
            state, action = divmod(number, model.actions)
            given = dict(zip(*(part.tolist() for part in model.row(state, action)), strict=True))
            for successor, chance in (given if row is None else next(following)).items():
                successors.append(successor)
                chances.append(chance)
                rewards.append(float(model.extra_rewards(state, action, np.array([successor]))[0]))
            indptr.append(len(successors))
        yield replace(
            model,
            indptr=np.array(indptr, np.int64),
            successors=np.array(successors, np.int64),
            probabilities=np.array(chances),
            transition_rewards=None if model.transition_rewards is None else np.array(rewards),
        )


def _emissions(emissions: Emissions | None, rng: np.random.Generator) -> Iterator[Emissions | None]:
    """Yield the emissions, drawn if they were learned, without end."""
    counts = None if emissions is None else emissions.counts
    if emissions is None or counts is None:
        while True:
            yield emissions
    recorded = {int(each) for each, times in zip(emissions.observed, counts.visits, strict=True) if times > 0}
    rows = []
    for state in range(len(emissions.indptr) - 1):
        at = range(emissions.indptr[state], emissions.indptr[state + 1])
        visits = {int(emissions.observed[n]): int(counts.visits[n]) for n in at}
        since = {int(emissions.observed[n]): int(counts.since[n]) for n in at}
        rows.append(LearnedRow(visits, since, sorted(recorded - visits.keys()) if any(visits.values()) else []))
    for drawn in _drawn(rows, counts.prior, rng):
        tuples = [(state, seen, chance) for state, row in enumerate(drawn) for seen, chance in row.items()]
        yield Emissions.from_tuples(len(rows), emissions.signals, tuples)


def _drawn(rows: Sequence[LearnedRow], prior: float, rng: np.random.Generator) -> Iterator[list[DrawnRow]]:
    """Yield rows drawn from the posterior, with ascending outcomes, without end."""
    counted = [row for row in rows if any(row.visits.values())]
    draws = [sum(row.visits.values()) for row in counted]
    classes = max((each.bit_length() for each in draws), default=1)
    news, times = [0.0] * classes, [0.0] * classes
    for row, total in zip(counted, draws, strict=True):
        for outcome in row.visits:
            number = total - row.since[outcome]
            if number > 1:
                news[(number - 1).bit_length() - 1] += 1
        for j in range(classes):
            times[j] += min(max(total - 2**j, 0), 2**j)
    news = [each + (news[j - 1] if j else 0.0) for j, each in enumerate(news)]
    times = [each + (times[j - 1] if j else 0.0) for j, each in enumerate(times)]
    while True:
        rates = rng.beta([0.5 + each for each in news], [0.5 + t - n for t, n in zip(times, news, strict=True)])
        shapes = []
        for row in rows:
            shape = {outcome: each + prior / len(row.visits) for outcome, each in row.visits.items()}
            total = sum(row.visits.values())
            if total and row.new:
                rate = min(max(float(rates[total.bit_length() - 1]), SMALLEST), 1.0 - 1e-12)
                for outcome in row.new:
                    theta = (total + prior) * rate / (1.0 - rate) / len(row.new)
                    shape[outcome] = shape.get(outcome, 0.0) + theta
            shapes.append(dict(sorted(shape.items())))
        masses = iter(rng.standard_gamma([each for shape in shapes for each in shape.values()]).tolist())
        drawn = [{outcome: max(next(masses), SMALLEST) for outcome in shape} for shape in shapes]
        yield [{outcome: mass / sum(row.values()) for outcome, mass in row.items()} for row in drawn]


def _band(ends: Sequence[Band], level: float) -> Band:
    """Return the band between the values at the positions p (M + 1) of M ordered values."""
    tail = (1.0 - level) / 2.0
    return _at([low for low, _ in ends], tail), _at([high for _, high in ends], 1.0 - tail)


def _at(values: Sequence[float], part: float) -> float:
    """Return the value at a position, on a straight line between its neighbours."""
    ordered, place = sorted(values), min(max(part * (len(values) + 1), 1.0), float(len(values)))
    before = min(floor(place), len(ordered) - 1)
    return ordered[before - 1] + (place - before) * (ordered[before] - ordered[before - 1])
