"""From rows to transitions and visits. Episodes may be interleaved; a batch may end within any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.errors import RecordingError
from monitor.learning.abstraction import Numbering
from monitor.learning.batch import EXACT, Batch, as_flags, as_moments, as_numbers, concatenated, is_missing
from monitor.learning.columns import Roles
from monitor.learning.conditions import Condition

__all__ = [
    "ENDS",
    "MAX_OPEN",
    "TIMES",
    "Episodes",
    "Steps",
    "base_of",
    "code_of",
    "counts_steps",
    "is_end",
    "unordered",
]

ENDS: Final = 4096
"""Codes below this: ends in a state that was not recorded, by the labels that hold there (a bit for each label).
Then two for each state: the state itself, and its absorbing copy for episodes that terminate there."""

MAX_OPEN: Final = 4096
"""Number of interleaved episodes: older ones are taken for finished."""


def code_of(states: Ints, ended: Bools | bool) -> Ints:  # noqa: FBT001 - a mask beside its array
    """Return the codes of states, or of their absorbing copies."""
    return ENDS + 2 * states + ended


def base_of(codes: Ints) -> Ints:
    """Return the state of a code; negative for an end that was not recorded."""
    return np.asarray(np.where(codes < ENDS, -1, (codes - ENDS) // 2), np.int64)


def is_end(codes: Ints) -> Bools:
    """Return which codes are ends of episodes."""
    return np.asarray((codes < ENDS) | ((codes - ENDS) % 2 == 1))


FEW_PAIRS: Final = 100
"""So many differences show a step counter if most of them are 1; fewer, if more of them are 1 than 0."""

LONGEST_TEXT: Final = 1024
"""Most characters of a text that has a role: the last rows of `MAX_OPEN` episodes are kept, as wide as the widest."""

TIMES: Final = ("time", "timestamp", "wall")
"""Columns that hold a time, if a number in them repeats."""


def counts_steps(name: str, order: AnyArray, rise: AnyArray) -> bool:
    """Return whether the column `name` counts steps, so that a missing one is noticed; else it holds times.

    `order`: its values. `rise`: its differences from row to row of a path, without those that begin a path.
    """
    ones, level = int((rise == 1).sum()), int((rise == 0).sum())
    usual = 2 * ones > len(rise) or (len(rise) < FEW_PAIRS and (ones > level or (len(rise) < 3 and not level)))
    return bool(usual and (order == np.floor(order)).all() and not (level and name.lower() in TIMES))


def unordered(where: str, name: str, values: tuple[float, float], episode: str | None) -> RecordingError:
    """Return the error of a row whose order is not above that of the row before: `values` of the row before, and its.

    `episode`: its name, if there is a column of it.
    """
    before, after = values
    inside = "" if episode is None else f" in episode {episode!r:.80}"
    sort = "sort the file by " + (name if episode is None else f"episode and {name}")
    way = f"leave out rows that were written twice, or {sort}" if before == after else sort
    return RecordingError(
        f"{where}: {name} is {after:.15g} after {before:.15g}{inside}; {way}, or give the right columns "
        "(--episode, --order). If the rows are in order as they are: --order ''"
    )


@dataclass(frozen=True)
class Steps:
    """Transitions [n], in the order of their rows, and visits [m] of one batch.

    Attributes:
        state, action, code, reward: a transition; `code` is that of the successor.
        segment: number of the path of a transition; a path is an episode, or a part of one between gaps.
        earlier: [n, 2] state and action one step earlier on the same path; -1: not known.
        arrived: [n, L] the labels' conditions after the transition, whatever its state.
        visited: codes of visited states. holds: [m, L] the labels. features: [m, D] a policy's input there.
        starts: codes of first states of episodes.
        late: likewise, of those that begin later than at step 1, so that their beginning may be missing.
        continued: how many of them go on in the count of the row before, which is of another episode.
        alone: number of episodes that begin here, less those from whose first row there is a transition.
        gaps: how often a step was missing.
        mismatches: how often the recorded next state is not that of the next row.
    """

    state: Ints
    action: Ints
    code: Ints
    reward: Floats
    segment: Ints
    earlier: Ints
    arrived: Bools
    visited: Ints
    holds: Bools
    features: Floats
    starts: Ints
    late: Ints
    continued: int
    alone: int
    gaps: int
    mismatches: int


@dataclass
class Episodes:
    """Reader of one file's rows in batches: keeps the last row of each open episode.

    Attributes:
        roles, states, actions, conditions: what rows mean.
        rows: rows before this file, so that paths of all files have different numbers.
        counts_up: see `counts_steps`; None: not known yet.
        open: last row of each open episode, by column.
        newest: order of the row that was read last; NaN: there is none.
    """

    roles: Roles
    states: Numbering
    actions: Numbering
    conditions: Sequence[Condition]
    rows: int = 0
    counts_up: bool | None = None
    open: Mapping[str, AnyArray] = field(default_factory=dict)
    newest: float = float("nan")

    def read(self, batch: Batch) -> Steps:
        """Return the transitions and visits of the next rows. RecordingError names a row that makes no sense."""
        _refuse_long(batch)
        fresh = dict(batch.columns) | self._encoded(batch)
        carried = len(self.open.get("@row", ()))
        columns = concatenated(self.open, fresh)
        rows = _Rows(self, columns, carried, batch)
        self.counts_up, self.newest = rows.counts_up, rows.newest
        self.rows += len(batch)
        steps = _steps(rows, self.conditions)
        columns |= {"@segment": rows.segment, "@start": rows.start}
        keep = rows.open_rows()
        self.open = {name: values[keep] for name, values in columns.items()}
        return steps

    def _encoded(self, batch: Batch) -> dict[str, AnyArray]:
        roles = self.roles
        states = self._states(batch)
        unknown = np.flatnonzero((states < 0).any(axis=1))
        if unknown.size:
            row = int(unknown[0])
            names = (*roles.state, *roles.next_state)
            bad = next(n for n in names if str(batch.column(n)[row]).lower() in ("", "nan", "inf", "-inf"))
            raise RecordingError(f"{batch.where(row)}: column {bad!r} is empty or not finite; fill it in")
        return {
            "@state": states[:, 0],
            "@next": states[:, -1],
            "@action": self.actions.encode(batch, (roles.action,)),
            "@row": np.arange(self.rows, self.rows + len(batch)),
            "@segment": np.zeros(len(batch), np.int64),
            "@start": np.zeros(len(batch), np.bool_),
            "@reward": np.zeros(len(batch)) if roles.reward is None else as_numbers(batch, roles.reward),
            "@terminated": as_flags(batch, roles.terminated),
            "@truncated": as_flags(batch, roles.truncated),
        }

    def _states(self, batch: Batch) -> Ints:
        """Return states [n, 1], or states and next states [n, 2], numbered in the order of rows."""
        roles = self.roles
        if not roles.next_state:
            return self.states.encode(batch, roles.state)[:, None]
        both = {
            name: np.ravel(np.column_stack([batch.column(name), batch.column(after)]))
            for name, after in zip(roles.state, roles.next_state, strict=True)
        }
        pairs = Batch(both, batch.first, batch.source)
        return self.states.encode(pairs, roles.state).reshape(-1, 2)


class _Rows:
    """Rows of a batch behind those carried over, and how they are linked.

    Attributes ([n] each): `before`: the row before on the same path, or -1. `start`: first row of an episode. `late`:
    those of them whose beginning may be missing.
    """

    def __init__(self, episodes: Episodes, columns: Mapping[str, AnyArray], carried: int, batch: Batch) -> None:
        self.roles, self.columns, self.carried, self.batch = episodes.roles, columns, carried, batch
        self.count = len(columns["@row"])
        self.fresh = np.arange(self.count) >= carried
        self.state, self.action, self.next = columns["@state"], columns["@action"], columns["@next"]
        self.reward = columns["@reward"]
        self.terminated, self.truncated = columns["@terminated"], columns["@truncated"]
        self.last = self.terminated | self.truncated
        order = self._order()
        self._link(order, episodes.counts_up)
        self.newest = float(order[-1])
        previous = np.concatenate([order[:carried], [episodes.newest], order[carried:-1]])
        self.late = self.start & (order > 1) if self.counts_up else np.zeros(self.count, np.bool_)
        self.continued = int((self.late & (order == previous + 1)).sum())
        self.segment = self._segments()

    def _link(self, values: AnyArray, counts_up: bool | None) -> None:  # noqa: FBT001
        key = self._episode()
        self.sorted = np.argsort(key, kind="stable")
        same = np.concatenate([[False], key[self.sorted][1:] == key[self.sorted][:-1]])
        order = values[self.sorted]
        rise = np.concatenate([[0], np.diff(order)])
        after_end = np.concatenate([[False], self.last[self.sorted][:-1]])
        pairs = same & ~after_end
        back = pairs & (rise < 0)
        again = pairs & (rise == 0) & self._repeats_start(~pairs | back, order)
        if self.roles.episode is not None:
            again[:] = False
        usual = pairs & ~back & ~again
        if counts_up is None and self.roles.order is not None and usual.any():
            text = self.columns[self.roles.order].dtype.kind == "U"
            counts_up = not text and counts_steps(self.roles.order, order, rise[usual])
        self.counts_up = counts_up
        begins = back | again if counts_up else back
        wrong = pairs & (rise == 0) & ~again if counts_up else np.zeros(self.count, np.bool_)
        if self.roles.episode is not None or (back.sum() > 2 and 2 * back.sum() > pairs.sum()):
            wrong |= back
        if wrong.any():
            raise self._unordered(int(np.flatnonzero(wrong)[0]), order)
        linked = pairs & ~begins
        gap = linked & (rise != 1) if counts_up else np.zeros(self.count, np.bool_)
        self.gaps = int(gap.sum())
        linked &= ~gap
        self.before = np.full(self.count, -1)
        self.before[self.sorted[linked]] = self.sorted[np.flatnonzero(linked) - 1]
        self.start = np.zeros(self.count, np.bool_)
        self.start[self.sorted] = ~linked & ~gap
        self.start &= self.fresh
        self.final = np.ones(self.count, np.bool_)
        self.final[self.sorted[np.flatnonzero(same) - 1]] = False

    def _repeats_start(self, begins: Bools, order: AnyArray) -> Bools:
        """Return which rows have the order of the first row of their episode, where that is known."""
        first = np.maximum.accumulate(np.where(begins, np.arange(self.count), 0))
        known = (self.fresh | self.columns["@start"])[self.sorted][first]
        return np.asarray(known & (order == order[first]))

    def _episode(self) -> Ints:
        """Return a number for the episode of each row. RecordingError: an episode is missing, or not exact."""
        name = self.roles.episode
        if name is None:
            return np.zeros(self.count, np.int64)
        values = self.columns[name]
        lost = is_missing(values)
        if values.dtype.kind == "f":
            lost |= np.abs(values) > EXACT
        if lost.any():
            row = int(np.flatnonzero(lost)[0])
            problem = "is empty; fill it in, or give --episode '' for a file of one episode"
            if not is_missing(values[row : row + 1]).any():
                problem = f"is {values[row]:.0f}: numbers beyond 2^53 are not exact; write them as text"
            raise RecordingError(f"{self.batch.where(row - self.carried)}: column {name!r} {problem}")
        return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)

    def _order(self) -> AnyArray:
        if self.roles.order is None:
            return np.arange(self.count, dtype=np.float64)
        return as_moments(Batch(self.columns, self.batch.first - self.carried, self.batch.source), self.roles.order)

    def _unordered(self, place: int, order: AnyArray) -> RecordingError:
        row = int(self.sorted[place])
        episode = None if self.roles.episode is None else str(self.columns[self.roles.episode][row])
        where = self.batch.where(row - self.carried)
        return unordered(where, str(self.roles.order), (order[place - 1], order[place]), episode)

    def _segments(self) -> Ints:
        """Return the path of each row: the number of its first row."""
        head = (self.before < 0)[self.sorted]
        own = np.where(self.fresh, self.columns["@row"], self.columns["@segment"])[self.sorted]
        segment = np.zeros(self.count, np.int64)
        segment[self.sorted] = own[head][np.cumsum(head) - 1]
        return segment

    def open_rows(self) -> Ints:
        """Return the last row of each open episode, the newest `MAX_OPEN`."""
        return np.flatnonzero(self.final & ~self.last)[-MAX_OPEN:]


def _steps(rows: _Rows, conditions: Sequence[Condition]) -> Steps:
    if rows.roles.timing == "state":
        return _of_arrivals(rows, conditions)
    return _of_steps(rows, conditions)


def _of_arrivals(rows: _Rows, conditions: Sequence[Condition]) -> Steps:
    """Rows whose reward and end markers belong to the arrival in their state."""
    codes = code_of(rows.state, rows.terminated)
    fresh = np.flatnonzero(rows.fresh)
    holds = _holds(rows, conditions, fresh, {})
    at = fresh[rows.before[fresh] >= 0]
    at = at[rows.action[rows.before[at]] >= 0]
    taken = rows.before[at]
    draws = taken, codes[at], rows.reward[at], 2 * at
    return _made(rows, draws, holds[at - rows.carried], (codes[fresh], holds, fresh))


def _of_steps(rows: _Rows, conditions: Sequence[Condition]) -> Steps:
    """Rows whose reward and end markers belong to the step from their state."""
    fresh = np.flatnonzero(rows.fresh)
    before = rows.before[fresh]
    arrival = {
        "@reward": np.where(before >= 0, rows.reward[before], 0.0),
        "@terminated": np.zeros(len(fresh), np.bool_),
        "@truncated": np.zeros(len(fresh), np.bool_),
    }
    holds = _holds(rows, conditions, fresh, arrival)
    acted = rows.action >= 0
    recorded = bool(rows.roles.next_state)
    ends = np.flatnonzero(rows.fresh & acted & (rows.last if recorded else rows.terminated))
    at_end = _holds(rows, conditions, ends, _next_columns(rows, ends) if recorded else {})
    if recorded:
        end_codes = code_of(rows.next[ends], rows.terminated[ends])
        own = np.flatnonzero(rows.fresh & acted)
        draws = own, code_of(rows.next[own], rows.terminated[own]), rows.reward[own], 2 * own
        arrived = _holds(rows, conditions, own, _next_columns(rows, own))
    else:
        end_codes = at_end @ (1 << np.arange(len(conditions), dtype=np.int64))
        at = fresh[before >= 0]
        at = at[acted[rows.before[at]]]
        draws = (
            np.concatenate([rows.before[at], ends]),
            np.concatenate([code_of(rows.state[at], ended=False), end_codes]),
            rows.reward[np.concatenate([rows.before[at], ends])],
            np.concatenate([2 * at, 2 * ends + 1]),
        )
        arrived = np.concatenate([holds[at - rows.carried], at_end])
    codes = code_of(rows.state, ended=False)
    visits = np.concatenate([codes[fresh], end_codes]), np.concatenate([holds, at_end]), np.concatenate([fresh, ends])
    return _made(rows, draws, arrived, visits)


def _made(
    rows: _Rows, draws: tuple[Ints, Ints, Floats, Ints], arrived: Bools, visits: tuple[Ints, Bools, Ints]
) -> Steps:
    """Return the steps.

    `draws`: row of the action, code of the successor, reward, time. `arrived`: labels after each. `visits`: codes,
    labels, rows.
    """
    taken, codes, rewards, times = draws
    order = np.argsort(times, kind="stable")
    taken, codes, rewards = taken[order], codes[order], rewards[order]
    unpaid = np.flatnonzero(~np.isfinite(rewards))
    if unpaid.size:
        at = taken if rows.roles.timing == "step" else times[order] // 2
        row = int(at[unpaid[0]]) - rows.carried
        raise RecordingError(
            f"{rows.batch.where(max(row, 0))}: column {rows.roles.reward!r} is empty; without rewards: --reward ''"
        )
    linked = np.flatnonzero(rows.before >= 0)
    begins = code_of(rows.state, rows.terminated if rows.roles.timing == "state" else False)
    differs = rows.next[rows.before[linked]] != rows.state[linked] if rows.roles.next_state else np.zeros(0, np.bool_)
    return Steps(
        state=rows.state[taken],
        action=rows.action[taken],
        code=np.asarray(codes, np.int64),
        reward=rewards,
        segment=rows.segment[taken],
        earlier=_earlier(rows, taken),
        arrived=arrived[order],
        visited=np.asarray(visits[0], np.int64),
        holds=visits[1],
        features=_features(rows, visits[2]),
        starts=begins[rows.start & ~rows.late],
        late=begins[rows.late],
        continued=rows.continued,
        alone=int(rows.start.sum() - (rows.start | rows.columns["@start"])[taken].sum()),
        gaps=rows.gaps,
        mismatches=int(differs.sum()),
    )


def _earlier(rows: _Rows, taken: Ints) -> Ints:
    before = rows.before[taken]
    known = (before >= 0) & (rows.action[before] >= 0)
    return np.where(known[:, None], np.column_stack([rows.state[before], rows.action[before]]), -1)


def _features(rows: _Rows, at: Ints) -> Floats:
    names = rows.roles.observation
    if not names:
        return np.zeros((len(at), 0))
    whole = Batch(rows.columns, rows.batch.first - rows.carried, rows.batch.source)
    found = np.column_stack([as_numbers(whole, name)[at] for name in names])
    bad = np.argwhere(~np.isfinite(found))
    if bad.size:
        row, column = bad[0].tolist()
        raise RecordingError(
            f"{whole.where(int(at[row]))}: column {names[column]!r} of --observation is empty or not finite; fill it "
            "in, or leave this row out"
        )
    return found


def _refuse_long(batch: Batch) -> None:
    for name, values in batch.columns.items():
        if values.dtype.kind == "U" and values.dtype.itemsize > 4 * LONGEST_TEXT:
            row = int(np.argmax(np.strings.str_len(values)))
            raise RecordingError(
                f"{batch.where(row)}: column {name!r} holds a text of {len(values[row]):,} characters; a state, an "
                f"action or another role has at most {LONGEST_TEXT:,}. Name other columns"
            )


def _next_columns(rows: _Rows, at: Ints) -> dict[str, AnyArray]:
    pairs = zip(rows.roles.state, rows.roles.next_state, strict=True)
    return {name: rows.columns[after][at] for name, after in pairs}


def _holds(rows: _Rows, conditions: Sequence[Condition], at: Ints, instead: Mapping[str, AnyArray]) -> Bools:
    """Return where the labels hold in the rows `at`, [n, L]; `instead`: columns in place of the recorded ones."""
    if not conditions:
        return np.zeros((len(at), 0), np.bool_)
    roles = rows.roles
    columns = {name: values[at] for name, values in rows.columns.items()} | dict(instead)
    columns["@reward"] = np.nan_to_num(columns["@reward"], nan=0.0)
    named = {"@reward": ("reward", roles.reward), "@terminated": ("terminated", "done", roles.terminated),
             "@truncated": ("truncated", roles.truncated)}  # fmt: skip
    shown = {name: values for name, values in columns.items() if not name.startswith("@")}
    for own, names in named.items():
        shown |= {name: columns[own] for name in names if name is not None and (name not in shown or name == names[-1])}
    return np.column_stack([condition.holds(shown, len(at)) for condition in conditions])
