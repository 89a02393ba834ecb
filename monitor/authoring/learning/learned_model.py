"""Make a model from counts: posterior means, labels by majority, names, and the state `elsewhere`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.state_codes import ENDS, MAX_LABELS, is_end
from monitor.authoring.learning.states import ELSEWHERE, States
from monitor.authoring.learning.tally import ACTION_BITS, CODE_BITS, LAST, Tally
from monitor.errors import ModelError
from monitor.model.annotations import Valuation, is_name
from monitor.model.counts import Counts, EmissionCounts, posterior_mean
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP

NAMED: Final = 20_000
"""Largest number of states of a model with names of states."""

ONE_HOT: Final = 1 << 22
"""Largest number of entries of one-hot observations."""

FREE_ROWS: Final = 1 << 20
ROWS_A_PAIR: Final = 100
"""A model has at most `FREE_ROWS` rows (state, action), plus this number for each recorded row.

Without this limit, one large index in a small file would take memory for all smaller indices.
"""

RESERVED: Final = ("elsewhere", "terminal", "unseen_end")


@dataclass(frozen=True)
class LabelSpec:
    """A label. An `unsafe` label also holds where it is unknown.

    A label is unknown in `elsewhere`, in states that were never visited, and at ends of episodes whose state was not
    recorded. It is also unknown in a state if all visits lack a value that the condition uses.
    """

    name: str
    unsafe: bool


def built(
    tally: Tally,
    numberings: tuple[Numbering, Numbering],
    where: States,
    labels: Sequence[LabelSpec],
    *,
    prior: float,
    source: str,
    late: bool,
    signals: Numbering | None = None,
) -> MDP:
    """Return the model of these counts. Raises ModelError if nothing was counted.

    `numberings`: numberings of states and of actions. `where`: the states of the model. `prior`: pseudo-count of a row,
    spread evenly over the observed successors. `late`: episodes whose beginning may be missing also count as starts.
    `signals`: numbering of observations if states are hidden.
    """
    states, actions = numberings
    if not tally.draws:
        gaps = f" ({tally.gaps:,} of them have a gap in the column of --order)" if tally.gaps else ""
        raise ModelError(
            f"{source}: there is no step from one state to a next one{gaps}; check the columns of the episode and of "
            "its order (--episode, --order)"
        )
    shape = where.count, max(actions.size, 1)
    if shape[0] * shape[1] > FREE_ROWS + ROWS_A_PAIR * len(tally.rows):
        raise ModelError(
            f"{source}: {shape[0]:,} states and {shape[1]:,} actions make {shape[0] * shape[1]:,} pairs, of which "
            f"{len(tally.rows):,} were recorded; a model has at most {FREE_ROWS:,}, and {ROWS_A_PAIR} more for each "
            "recorded one. Use fewer bins; number states that are large numbers as they come (--abstraction values); "
            "add a column that numbers actions"
        )
    rows = _rows(tally, where, shape[1])
    visits, since = rows.visits, rows.since
    mean = posterior_mean(np.maximum(visits, rows.given), rows.indptr, prior)
    order = np.zeros(shape[0] * shape[1], np.int64)
    order[_row_numbers(tally.rows.keys, where, shape[1])] = tally.rows["rank"]
    valuations = _valuations(states, where)
    known = _known(tally, where, labels)
    unknown = {label.name: times == 0 for label, times in zip(labels, known, strict=True) if not times.all()}
    samples, sample_states = _samples(tally, where)
    rewards, extra, spread = _rewards(tally, rows, shape)
    return MDP.from_rows(
        states=shape[0],
        actions=shape[1],
        indptr=rows.indptr,
        successors=rows.successors,
        probabilities=np.where(rows.given, 1.0, mean),
        rewards=rewards,
        transition_rewards=extra,
        reward_spread=spread,
        labels=_labels(tally, where, labels, known),
        initial=_initial(tally, where, late=late),
        emissions=None if signals is None else _emissions(tally, where, signals, prior, source),
        observations=_observations(tally, where, states),
        samples=samples,
        sample_states=sample_states,
        state_names=_state_names(states, where, labels),
        action_names=actions.action_names,
        bin_edges=states.edges,
        bin_names=states.names,
        ranges=states.ranges,
        dimension_names=states.columns if all(map(is_name, states.columns)) else (),
        centres=None if states.centres is None else states.centres.points,
        scales=None if states.centres is None else states.centres.scales,
        valuations=valuations,
        ended_as=_ended_as(where),
        source=source,
        counts=Counts(visits, since, order, where.elsewhere, prior, unknown),
    )


@dataclass(frozen=True)
class _CountedRows:
    """Sparse rows with N entries and their counts.

    `given`: True for entries that are not estimated. `places`: index of each other entry in the table of transitions.
    """

    indptr: Ints
    successors: Ints
    visits: Ints
    since: Ints
    given: Bools
    places: Ints


def _row_numbers(keys: Ints, where: States, actions: int) -> Ints:
    numbers: Ints = where.of_base(keys >> ACTION_BITS) * actions + where.of_action(keys & ((1 << ACTION_BITS) - 1))
    return numbers


def _rows(tally: Tally, where: States, actions: int) -> _CountedRows:
    """Return the counted rows. A row without data leads to `elsewhere`, and ends are absorbing."""
    keys = tally.transitions.keys
    at = _row_numbers(keys >> CODE_BITS, where, actions)
    draws = tally.rows["draws"][tally.rows.find(keys >> CODE_BITS)]
    every = np.arange(where.count * actions)
    without = np.setdiff1d(every, at)
    stays = without // actions
    target = np.where(where.live[stays], where.elsewhere, stays)
    zeros = np.zeros(len(without), np.int64)
    row = np.concatenate([at, without])
    successors = np.concatenate([where.of(keys & ((1 << CODE_BITS) - 1)), target])
    order = np.lexsort((successors, row))
    return _CountedRows(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(every)))]).astype(np.int64),
        successors=successors[order],
        visits=np.concatenate([tally.transitions["visits"], zeros])[order],
        since=np.concatenate([draws - tally.transitions["first"], zeros])[order],
        given=(order >= len(keys)),
        places=order,
    )


def _rewards(tally: Tally, rows: _CountedRows, shape: tuple[int, int]) -> tuple[Floats, Floats | None, Floats | None]:
    """Return the reward as r(s, a) plus R(s, a, s'), and its spread; None for a part that is 0 everywhere.

    r(s, a) is 0 unless all successors of the row have the same reward.
    """
    table = tally.transitions
    zeros = np.zeros(int(rows.given.sum()))
    mean = np.where(table["least"] == table["most"], table["least"], table["sum"] / np.maximum(table["visits"], 1))
    width = np.maximum(table["most"] - mean, mean - table["least"])
    mean, width = (np.concatenate([values, zeros])[rows.places] for values in (mean, width))
    low = np.minimum.reduceat(mean, rows.indptr[:-1])
    high = np.maximum.reduceat(mean, rows.indptr[:-1])
    constant = np.where(low == high, low, 0.0)
    extra = mean - np.repeat(constant, np.diff(rows.indptr))
    return constant.reshape(shape), extra if extra.any() else None, width if width.any() else None


def _labels(tally: Tally, where: States, labels: Sequence[LabelSpec], known: Ints) -> dict[str, Bools]:
    table = tally.visited
    at = where.of(table.keys)
    found = {}
    for i, label in enumerate(labels):
        if label.name in RESERVED:
            raise ModelError(f"label {label.name!r}: the name is taken; every learned model has this label")
        true = np.zeros(where.count, np.int64)
        np.add.at(true, at, table["true"][:, i])
        found[label.name] = (2 * true > known[i]) | ((known[i] == 0) & label.unsafe)
    lost, unseen = np.arange(where.count) == where.elsewhere, where.ended & (where.codes < ENDS)
    ends = {"terminal": where.ended, "unseen_end": unseen}
    return found | {"elsewhere": lost} | {name: states for name, states in ends.items() if states.any()}


def _known(tally: Tally, where: States, labels: Sequence[LabelSpec]) -> Ints:
    """Return the number of visits of each state in which each label is known, [L, S]."""
    known = np.zeros((where.count, len(labels)), np.int64)
    np.add.at(known, where.of(tally.visited.keys), tally.visited["known"])
    return known.T


def _initial(tally: Tally, where: States, *, late: bool) -> Floats | None:
    """Return the distribution of first states. Episodes that ended in their first state do not count."""
    table = tally.visited
    counts = table["starts"] + (table["late"] if late else 0)
    starts = np.zeros(where.count)
    np.add.at(starts, where.of(table.keys), np.where(is_end(table.keys), 0, counts))
    return starts / starts.sum() if starts.sum() else None


def _emissions(tally: Tally, where: States, signals: Numbering, prior: float, source: str) -> Emissions:
    """Return the distribution of observations in each state, with its counts.

    In a state without records, all recorded observations are equally likely. An end of an episode shows its own
    observation, `ended`. Agents never send it, so the belief excludes ends while an episode goes on.
    """
    keys, table = tally.emissions.keys, tally.emissions
    if not len(keys):
        raise ModelError(f"{source}: no observation was recorded; check the column of the observation (--signal)")
    bases, shown = keys >> CODE_BITS, keys & ((1 << CODE_BITS) - 1)
    recorded = np.unique(shown)
    bare = np.flatnonzero(~where.ended & ~np.isin(where.names, bases))
    ends = np.flatnonzero(where.ended)
    state = np.concatenate([where.of_base(bases), np.repeat(bare, len(recorded)), ends])
    observed = np.concatenate([shown, np.tile(recorded, len(bare)), np.full(len(ends), signals.size)])
    zeros = np.zeros(len(state) - len(keys), np.int64)
    order = np.lexsort((observed, state))
    visits = np.concatenate([table["visits"], zeros])[order]
    since = np.concatenate([tally.shown_in(bases) - table["first"], zeros])[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(state, minlength=where.count))])
    mean = posterior_mean(visits, indptr, prior)
    found = Emissions.from_rows(where.count, signals.size + bool(len(ends)), indptr, observed[order], mean)
    names = _different([*signals.action_names, *["ended"] * bool(len(ends))]) if signals.kind == "name" else ()
    return found.named(names).learned(EmissionCounts(visits, since, prior))


def _ended_as(where: States) -> Ints | None:
    """Return for each state the state of an episode that has terminated in it.

    An end that was not recorded belongs to no state. If there is only one such end, every state without a copy ends in
    the state of this end.
    """
    if not where.ended.any():
        return None
    ended = np.arange(where.count)
    own = where.ended & (where.codes >= ENDS)
    other = np.flatnonzero(where.ended & ~own)
    if len(other) == 1:
        ended[where.live] = other[0]
    ended[where.of_base(where.names[own])] = np.flatnonzero(own)
    return ended


def _observations(tally: Tally, where: States, states: Numbering) -> AnyArray | None:
    """Return a policy's input for each state: a recorded input or, if states are indices, a one-hot vector; or None."""
    table = tally.visited
    width = table["sample"].shape[1]
    if not width:
        if states.kind != "index" or where.base * where.count > ONE_HOT:
            return None
        hot = np.zeros((where.count, where.base), np.float32)
        known = np.flatnonzero(where.names >= 0)
        hot[known, where.names[known]] = 1.0
        return hot
    overall = table["sum"].sum(axis=0) / max(int(table["seen"].sum()), 1)
    inputs = np.tile(overall, (where.count, 1))
    inputs[where.of(table.keys)] = table["sample"]
    return inputs


def _samples(tally: Tally, where: States) -> tuple[AnyArray | None, Ints | None]:
    """Return a uniform sample of each state's recorded inputs, and the inputs' states; None if no state has several."""
    table = tally.visited
    width = table["sample"].shape[1]
    live = np.flatnonzero(~is_end(table.keys)) if width else np.zeros(0, np.int64)
    place, column = np.nonzero(table["priority"][live] < LAST)
    inputs = table["kept"][live].reshape(len(live), -1, width)[place, column] if width else np.zeros((0, 0))
    states = where.of(table.keys[live])[place]
    order = np.argsort(states, kind="stable")
    inputs, states = inputs[order], states[order]
    same = states[1:] == states[:-1]
    if not bool((inputs[1:][same] != inputs[:-1][same]).any()):
        return None, None
    return inputs, states


def _state_names(states: Numbering, where: States, labels: Sequence[LabelSpec]) -> list[str]:
    """Return names such as `36`, `36, ended`, `ended: goal` and `elsewhere`; none if there are too many states."""
    if where.count > NAMED:
        return []
    match states.kind:
        case "index":
            names = [str(i) for i in range(where.base)]
        case "bins":
            names = _bin_names(states)
        case "nearest":
            names = _centre_names(states)
        case "name":
            names = [str(known[0])[:200] for known in states.known]
        case _:
            names = [", ".join(_value_names(states, known))[:200] for known in states.known]
    every = zip(where.codes.tolist(), where.names.tolist(), where.ended.tolist(), strict=True)
    return _different(
        [_name_of(code, names[base] if base >= 0 else "", labels, ended=ended) for code, base, ended in every]
    )


def _name_of(code: int, base: str, labels: Sequence[LabelSpec], *, ended: bool) -> str:
    if not ended:
        return base or "elsewhere"
    return f"{base}, ended" if code >= ENDS else _end_name(code, labels)


def _end_name(code: int, labels: Sequence[LabelSpec]) -> str:
    held = [label.name for i, label in enumerate(labels) if code >> i & 1]
    held += [f"{label.name} unknown" for i, label in enumerate(labels) if code >> (MAX_LABELS + i) & 1]
    return f"unseen_end: {', '.join(held)}" if held else "unseen_end"


def _value_names(states: Numbering, known: Valuation) -> list[str]:
    shown = (f"{value:g}" if isinstance(value, float) else str(value) for value in known)
    return [f"{column}={value}" for column, value in zip(states.columns, shown, strict=True)]


def _bin_names(states: Numbering) -> list[str]:
    texts = states.names or ((),) * len(states.edges)
    parts = [
        [f"{name} = {text}" for text in known] or [_bin_name(name, lo, hi) for lo, hi in pairwise(edges)]
        for name, edges, known in zip(states.columns, states.edges, texts, strict=True)
    ]
    return [", ".join(each)[:200] for each in product(*parts)]


def _centre_names(states: Numbering) -> list[str]:
    assert states.centres is not None
    pairs = [list(zip(states.columns, point.tolist(), strict=True)) for point in states.centres.points]
    return ["near " + ", ".join(f"{column}={value:.4g}" for column, value in each)[:190] for each in pairs]


def _bin_name(name: str, lo: float, hi: float) -> str:
    match bool(np.isfinite(lo)), bool(np.isfinite(hi)):
        case False, False:
            return f"any {name}"
        case False, True:
            return f"{name} {_below(hi)}"
        case True, False:
            return f"{name} {_above(lo)}"
        case _ if _just_above(lo) is None and _just_above(hi) is None:
            return f"{lo:.4g} <= {name} < {hi:.4g}"
        case _ if hi == np.nextafter(lo, np.inf):
            return f"{name} = {lo:.4g}"
        case _:
            return f"{name} {_above(lo)} and {_below(hi)}"


def _just_above(edge: float) -> float | None:
    """Return the short number directly below an edge, such as 3 for the edge of `x > 3`; None if there is none."""
    limit = float(np.nextafter(edge, -np.inf))
    short, other = (float(f"{value:.12g}") == value for value in (limit, edge))
    return limit if limit == 0.0 or (short and not other) else None


def _below(edge: float) -> str:
    limit = _just_above(edge)
    return f"< {edge:.4g}" if limit is None else f"<= {limit:.4g}"


def _above(edge: float) -> str:
    limit = _just_above(edge)
    return f">= {edge:.4g}" if limit is None else f"> {limit:.4g}"


def _different(names: list[str]) -> list[str]:
    """Return printable names. Equal names get numbers."""
    taken: set[str] = set()
    given: list[str] = []
    for i, name in enumerate(names):
        shown = "".join(c if c.isprintable() else "?" for c in name) or "(empty)"
        shown = shown if shown not in taken else f"{shown} ({i})"
        taken.add(shown)
        given.append(shown)
    return given


def _valuations(states: Numbering, where: States) -> list[tuple[Any, ...]]:
    """Return the tuples of states for the `valuation` encoder. Ends and `elsewhere` get tuples that no agent sends."""
    if states.kind != "values":
        return []
    known, rest = list(states.known), [""] * (len(states.columns) - 1)
    shown = [("elsewhere", *rest) if code == ELSEWHERE else (f"ended {code}", *rest) for code in where.codes.tolist()]
    pairs = zip(shown, where.names.tolist(), where.live.tolist(), strict=True)
    return [known[base] if live else other for other, base, live in pairs]
