"""From rows to transitions and visits. Episodes may be interleaved; a batch may end within any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.errors import RecordingError
from monitor.learning.abstraction import Numbering
from monitor.learning.batch import Batch, as_flags, as_numbers, concatenated
from monitor.learning.columns import Roles
from monitor.learning.conditions import Condition

__all__ = ["ENDS", "Episodes", "Steps", "base_of", "code_of", "is_end"]

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
"""Whole numbers that order rows count steps, unless most of so many differences are not 1 (a time in seconds, say)."""


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
    gaps: int
    mismatches: int


@dataclass
class Episodes:
    """Reader of one file's rows in batches: keeps the last row of each open episode.

    Attributes:
        roles, states, actions, conditions: what rows mean.
        rows: rows before this file, so that paths of all files have different numbers.
        counts_up: `order` is a step counter, so that a missing step is noticed; None: not known yet.
        open: last row of each open episode, by column.
    """

    roles: Roles
    states: Numbering
    actions: Numbering
    conditions: Sequence[Condition]
    rows: int = 0
    counts_up: bool | None = None
    open: Mapping[str, AnyArray] = field(default_factory=dict)

    def read(self, batch: Batch) -> Steps:
        """Return the transitions and visits of the next rows. RecordingError names a row that makes no sense."""
        fresh = dict(batch.columns) | self._encoded(batch)
        carried = len(self.open.get("@row", ()))
        columns = concatenated(self.open, fresh)
        rows = _Rows(self.roles, columns, carried, batch, self.counts_up)
        self.counts_up = rows.counts_up
        self.rows += len(batch)
        steps = _steps(rows, self.conditions)
        columns["@segment"] = rows.segment
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

    Attributes ([n] each): `before`: the row before on the same path, or -1. `start`: first row of an episode.
    """

    def __init__(
        self,
        roles: Roles,
        columns: Mapping[str, AnyArray],
        carried: int,
        batch: Batch,
        counts_up: bool | None,  # noqa: FBT001
    ) -> None:
        self.roles, self.columns, self.carried, self.batch = roles, columns, carried, batch
        self.count = len(columns["@row"])
        self.fresh = np.arange(self.count) >= carried
        self.state, self.action, self.next = columns["@state"], columns["@action"], columns["@next"]
        self.reward = columns["@reward"]
        self.terminated, self.truncated = columns["@terminated"], columns["@truncated"]
        self.last = self.terminated | self.truncated
        self._link(counts_up)
        self.segment = self._segments()

    def _link(self, counts_up: bool | None) -> None:  # noqa: FBT001
        key = np.zeros(self.count, np.int64)
        if self.roles.episode is not None:
            key = np.unique(self.columns[self.roles.episode], return_inverse=True)[1]
        self.sorted = np.argsort(key, kind="stable")
        same = np.concatenate([[False], key[self.sorted][1:] == key[self.sorted][:-1]])
        order = self._order()[self.sorted]
        rise = np.concatenate([[0.0], np.diff(order)])
        after_end = np.concatenate([[False], self.last[self.sorted][:-1]])
        pairs = same & ~after_end
        if counts_up is None and self.roles.order is not None and pairs.any():
            usual = pairs.sum() < FEW_PAIRS or np.mean(rise[pairs] == 1) > 0.5
            counts_up = bool(usual and (order == np.floor(order)).all())
        self.counts_up = counts_up
        back = pairs & (rise <= 0)
        if self.roles.episode is not None and back.any():
            raise self._unordered(int(self.sorted[np.flatnonzero(back)[0]]), order, int(np.flatnonzero(back)[0]))
        linked = pairs & ~back
        gap = linked & (rise != 1) if counts_up else np.zeros(self.count, np.bool_)
        late = (order > 1) if counts_up and self.roles.episode is not None else np.zeros(self.count, np.bool_)
        self.gaps = int(gap.sum())
        linked &= ~gap
        self.before = np.full(self.count, -1)
        self.before[self.sorted[linked]] = self.sorted[np.flatnonzero(linked) - 1]
        self.start = np.zeros(self.count, np.bool_)
        self.start[self.sorted] = ~linked & ~gap & ~late
        self.start &= self.fresh
        self.final = np.ones(self.count, np.bool_)
        self.final[self.sorted[np.flatnonzero(same) - 1]] = False

    def _order(self) -> Floats:
        if self.roles.order is None:
            return np.arange(self.count, dtype=np.float64)
        values = self.columns[self.roles.order]
        if values.dtype.kind == "U":
            name = self.roles.order
            raise RecordingError(f"{self.batch.source}: column {name!r} is text; --order needs numbers")
        numbers = values.astype(np.float64)
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers))[0]) - self.carried
            raise RecordingError(f"{self.batch.where(row)}: column {self.roles.order!r} is empty")
        return numbers

    def _unordered(self, row: int, order: Floats, place: int) -> RecordingError:
        name, episode = self.roles.order, str(self.columns[str(self.roles.episode)][row])
        return RecordingError(
            f"{self.batch.where(row - self.carried)}: {name} is {order[place]:g} after {order[place - 1]:g} in episode "
            f"{episode!r:.80}; sort the file by episode and {name}, or give the right columns (--episode, --order)"
        )

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
        starts=code_of(rows.state[rows.start], ended=False),
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
    return np.column_stack([as_numbers(Batch(rows.columns, 1, rows.batch.source), name)[at] for name in names])


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
