"""From rows to transitions and visits. Episodes may be interleaved; a batch may end within any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.learning.batch import (
    EXACT,
    RowBatch,
    as_numbers,
    concatenated,
    flags,
    is_missing,
    moments,
    odd_value,
)
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition
from monitor.authoring.learning.left_out import LeftOut
from monitor.errors import RecordingError

MAX_LABELS: Final = 12
"""An end whose state was not recorded has a code for each set of labels that hold there, and of unknown ones."""

ENDS: Final = 1 << (2 * MAX_LABELS)
"""Codes below this: ends whose state was not recorded. A bit for each label that holds there, then one for each of
which that is unknown. Then two codes for each state: itself, and its absorbing copy for episodes that terminate
there."""

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


def unknown_at(codes: Ints, labels: int) -> Bools:
    """Return at which codes it is unknown whether each label holds, [n, labels]."""
    bits = np.asarray(codes)[:, None] >> (MAX_LABELS + np.arange(labels))
    return np.asarray((bits & 1 == 1) & (np.asarray(codes)[:, None] < ENDS) & (np.asarray(codes)[:, None] >= 0))


MARKERS: Final = ("@terminated", "@truncated")

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
        unmeasured: [n, L] where those are unknown for lack of a value, in a state that was recorded.
        visited: codes of visited states. holds: [m, L] the labels. known: [m, L] where they are known.
        features: [m, D] a policy's input there.
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
    unmeasured: Bools
    visited: Ints
    holds: Bools
    known: Bools
    features: Floats
    starts: Ints
    late: Ints
    continued: int
    alone: int
    gaps: int
    mismatches: int


class Encoder(Protocol):
    """Whatever gives the states, or the actions, of rows numbers."""

    def encode(self, batch: RowBatch, names: tuple[str, ...]) -> Ints:
        """Return the number of each row, [n]; -1 where a value is missing. `names`: the columns to read."""
        ...


@dataclass
class Episodes:
    """Reader of one file's rows in batches: keeps the last row of each open episode.

    A row that lacks what it needs is left out and named in `left_out`. It is a gap in its episode: no transition leads
    to it, from it, or across it. If its episode cannot be read either, it is one in every open episode in which no
    step counter shows that nothing is missing; without a column of episodes no counter shows that.

    Attributes:
        roles, states, actions, conditions: what rows mean.
        rows: rows before this file, so that paths of all files have different numbers.
        counts_up: see `counts_steps`; None: not known yet.
        left_out: takes the rows that are left out.
        day_first: see `moments`.
        unplaced: rows so far that were left out and whose episode could not be read.
        open: last row of each open episode, by column.
        newest: order of the row that was read last; NaN: there is none.
        held: the last row, if it ends an episode and the next one may be its final state, by column.
    """

    roles: Roles
    states: Encoder
    actions: Encoder
    conditions: Sequence[Condition]
    rows: int = 0
    counts_up: bool | None = None
    left_out: LeftOut = field(default_factory=LeftOut)
    day_first: bool | None = None
    unplaced: int = 0
    open: Mapping[str, AnyArray] = field(default_factory=dict)
    newest: float = float("nan")
    held: Mapping[str, AnyArray] = field(default_factory=dict)
    source: str = "the recording"

    def read(self, batch: RowBatch) -> Steps:
        """Return the transitions and visits of the next rows. RecordingError: rows that make no sense as a whole.

        A row at the end of the batch that ends an episode waits for the next row, which may be its final state.
        """
        self.source = batch.source
        fresh = concatenated(self.held, self._encoded(batch))
        self.rows += batch.rows
        self.left_out.rows += batch.rows
        count = len(fresh["@row"])
        if count and self.roles.has_final_rows:
            ends = fresh["@terminated"][-1] | fresh["@truncated"][-1]
            count -= bool(ends & (fresh["@action"][-1] >= 0))
        waits = count < len(fresh["@row"])
        self.held = {name: values[count:] for name, values in fresh.items()} if waits else {}
        return self._read({name: values[:count] for name, values in fresh.items()})

    def finish(self) -> Steps:
        """Return what is left at the end of the file: the last row, if it has waited for a next one."""
        held, self.held = self.held, {}
        return self._read(held)

    def _read(self, fresh: Mapping[str, AnyArray]) -> Steps:
        """Return the transitions and visits of rows."""
        if not len(fresh.get("@row", ())):
            return no_steps(self.roles, self.conditions)
        carried = len(self.open.get("@row", ()))
        columns = _without_lost(concatenated(self.open, fresh), self.roles)
        rows = _LinkedRows(self, columns, carried)
        while rows.unordered.any():
            for reason, bad in rows.reasons():
                self.left_out.add(reason, self.source, columns["@number"][bad])
            columns = _without_lost(columns | {"@lost": rows.unordered}, self.roles)
            rows = _LinkedRows(self, columns, carried)
        if rows.count == carried:
            self.open = columns
            return no_steps(self.roles, self.conditions)
        self.counts_up, self.newest = rows.counts_up, rows.newest
        for reason, numbers in rows.unknown:
            self.left_out.add(reason, self.source, numbers)
        steps = _steps(rows, self.conditions)
        columns |= {"@segment": rows.segment, "@start": rows.start}
        keep = rows.open_rows()
        self.open = {name: values[keep] for name, values in columns.items()}
        return steps

    def _encoded(self, batch: RowBatch) -> dict[str, AnyArray]:
        """Return the rows whose episode is known, with what is read of them; `@lost`: it is left out."""
        roles, why = self.roles, _Reasons(batch, self.left_out)
        columns = {name: _short(name, values, why) for name, values in batch.columns.items()}
        batch = replace(batch, columns=columns)
        terminated, truncated = why.flags(roles.terminated), why.flags(roles.truncated)
        episode = columns.get(str(roles.episode))
        unplaced = np.zeros(len(batch), np.bool_)
        if episode is not None:
            why.add(f"{roles.episode!r} is empty", is_missing(episode))
            unplaced = is_missing(episode)
            unplaced[batch.odd.get(str(roles.episode), [])] = True
            _refuse_inexact(batch, str(roles.episode))
        rows = self.rows + batch.places - batch.first
        order: AnyArray = rows
        if roles.order is not None:
            order, self.day_first = moments(batch, roles.order, day_first=self.day_first)
            why.add(f"{roles.order!r} is empty", is_missing(columns[roles.order]))
            why.add(f"{roles.order!r} is no time", is_missing(order))
        for name in roles.observation:
            why.add(f"{name!r} is empty or not finite", ~np.isfinite(as_numbers(batch, name)))
        states = np.full((len(batch), 2 if roles.next_state else 1), -1)
        states[~why.lost] = self._states(batch if not why.lost.any() else batch.picked(~why.lost))
        unknown = states < 0
        if roles.next_state:
            unknown[:, 1] &= ~(terminated | truncated)  # the final state was not recorded
        for name, place in (*((name, 0) for name in roles.state), *((name, 1) for name in roles.next_state)):
            why.add(f"{name!r} is empty or not finite", is_missing(columns[name]) & unknown[:, place])
        actions = np.full(len(batch), -1)
        kept = batch if not why.lost.any() else batch.picked(~why.lost)
        actions[~why.lost] = self.actions.encode(kept, (roles.action,))
        why.tell()
        found = columns | {
            "@state": states[:, 0],
            "@next": states[:, -1] if roles.next_state else np.full(len(batch), -1),
            "@action": actions,
            "@row": rows,
            "@number": batch.places,
            "@order": order,
            "@segment": np.zeros(len(batch), np.int64),
            "@start": np.zeros(len(batch), np.bool_),
            "@reward": np.zeros(len(batch)) if roles.reward is None else as_numbers(batch, roles.reward),
            "@terminated": terminated,
            "@truncated": truncated,
            "@lost": why.lost,
            "@torn": np.zeros(len(batch), np.bool_),
            "@pending": np.zeros(len(batch), np.bool_),
            "@cuts": np.full(len(batch), self.unplaced),
            "@after_gone": np.zeros(len(batch), np.bool_),
        }
        gone = np.concatenate([*batch.torn.values(), batch.places[unplaced]]).astype(np.int64)
        if gone.size:
            found["@cuts"] = self.unplaced + np.searchsorted(np.sort(gone), batch.places)
            found["@after_gone"] = np.isin(batch.places - 1, gone)
            self.unplaced += len(gone)
            found = {name: values[~unplaced] for name, values in found.items()}
        return found

    def _states(self, batch: RowBatch) -> Ints:
        """Return states [n, 1], or states and next states [n, 2], numbered in the order of rows."""
        roles = self.roles
        if not roles.next_state:
            return self.states.encode(batch, roles.state)[:, None]
        both = {
            name: np.ravel(np.column_stack([batch.column(name), batch.column(after)]))
            for name, after in zip(roles.state, roles.next_state, strict=True)
        }
        pairs = RowBatch(both, batch.first, batch.source, numbers=np.repeat(batch.places, 2))
        return self.states.encode(pairs, roles.state).reshape(-1, 2)


class _Reasons:
    """Reasons to leave out rows of a batch; the first one of a row counts. `lost`: [n] rows that have one."""

    def __init__(self, batch: RowBatch, left_out: LeftOut) -> None:
        self._batch, self._left_out = batch, left_out
        self._found: list[tuple[str, Ints]] = list(batch.torn.items())
        self.lost = np.zeros(len(batch), np.bool_)
        for name, rows in batch.odd.items():
            bad = np.zeros(len(batch), np.bool_)
            bad[rows] = True
            self.add(odd_value(name, batch.columns[name]), bad)

    def add(self, reason: str, bad: Bools) -> None:
        new = bad & ~self.lost
        if new.any():
            self._found.append((reason, self._batch.places[new]))
            self.lost |= new

    def flags(self, name: str | None) -> Bools:
        found, bad = flags(self._batch, name)
        self.add(f"{name!r} is no end marker", bad)
        return found

    def tell(self) -> None:
        for reason, numbers in self._found:
            self._left_out.add(reason, self._batch.source, numbers)


def _short(name: str, values: AnyArray, why: _Reasons) -> AnyArray:
    """Return a column without texts of more than `LONGEST_TEXT` characters, whose rows are left out."""
    if values.dtype.kind != "U" or values.dtype.itemsize <= 4 * LONGEST_TEXT:
        return values
    why.add(f"{name!r} has over {LONGEST_TEXT:,} characters", np.strings.str_len(values) > LONGEST_TEXT)
    return values.astype(f"<U{LONGEST_TEXT}")


def _refuse_inexact(batch: RowBatch, name: str) -> None:
    values = batch.column(name)
    bad = np.abs(values) > EXACT if values.dtype.kind == "f" else np.zeros(len(batch), np.bool_)
    bad &= ~is_missing(values)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise RecordingError(
            f"{batch.where(row)}: column {name!r} is {values[row]:.0f}: numbers beyond 2^53 are not exact; write them "
            "as text"
        )


def _episode(columns: Mapping[str, AnyArray], roles: Roles) -> Ints:
    """Return a number for the episode of each row."""
    if roles.episode is None:
        return np.zeros(len(columns["@row"]), np.int64)
    return np.asarray(np.unique(columns[roles.episode], return_inverse=True)[1], np.int64)


def _without_lost(columns: Mapping[str, AnyArray], roles: Roles) -> dict[str, AnyArray]:
    """Return the rows without lost ones. `@torn`: one is directly before, in the same episode; `@pending`: after."""
    lost = columns["@lost"]
    if not lost.any():
        return dict(columns)
    key = _episode(columns, roles)
    order = np.argsort(key, kind="stable")
    count = np.cumsum(lost[order])
    kept = order[~lost[order]]
    before = count[~lost[order]]
    first = np.concatenate([[True], key[kept][1:] != key[kept][:-1]])[: len(kept)]
    begin = np.searchsorted(key[order], key[kept])
    earlier = np.where(first, np.concatenate([[0], count])[begin], np.concatenate([[0], before[:-1]])[: len(kept)])
    last = np.concatenate([first[1:], [True]])[: len(kept)]
    end = np.searchsorted(key[order], key[kept], side="right")
    torn, pending = columns["@torn"].copy(), columns["@pending"].copy()
    torn[kept] |= before != earlier
    pending[kept] |= last & (count[end - 1] != before)
    found = {**columns, "@torn": torn, "@pending": pending}
    return {name: values[~lost] for name, values in found.items()}


class _LinkedRows:
    """Rows of a batch behind those carried over, and how they are linked.

    Attributes ([n] each): `before`: the row before on the same path, or -1. `start`: first row of an episode. `late`:
    those of them whose beginning may be missing. `recorded`: the row holds the state after its step. `final_state`: the
    row has no step; directly after the last step of an episode it is the final state. `has_final_state`: such a row
    follows. `unordered`: the row's order does not fit; then nothing else is set. `unknown`: reasons and numbers of rows
    from which no step is known.
    """

    def __init__(self, episodes: Episodes, columns: Mapping[str, AnyArray], carried: int) -> None:
        self.roles, self.columns, self.carried, self.source = episodes.roles, columns, carried, episodes.source
        self.count = len(columns["@row"])
        self.fresh = np.arange(self.count) >= carried
        self.state, self.action, self.next = columns["@state"], columns["@action"], columns["@next"]
        self.reward = columns["@reward"]
        self.terminated, self.truncated = columns["@terminated"], columns["@truncated"]
        self.last = self.terminated | self.truncated
        self.recorded = self.next >= 0
        self.final_state = (self.action < 0) if self.roles.has_final_rows else np.zeros(self.count, np.bool_)
        self.unordered, self._again = np.zeros((2, self.count), np.bool_)
        if self.count == carried:
            return
        order = columns["@order"]
        self._link(order, episodes.counts_up)
        if self.unordered.any():
            return
        self.has_final_state = np.zeros(self.count, np.bool_)
        self.has_final_state[self.before[self.final_state & (self.before >= 0)]] = True
        self.unknown = [*self._without_action(), *self._without_reward()]
        self.newest = float(order[-1])
        previous = np.concatenate([order[:carried], [episodes.newest], order[carried:-1]])
        self.late = self.start & (order > 1) if self.counts_up else np.zeros(self.count, np.bool_)
        self.continued = int((self.late & (order == previous + 1)).sum())
        self.segment = self._segments()

    def _link(self, values: AnyArray, counts_up: bool | None) -> None:  # noqa: FBT001
        key = _episode(self.columns, self.roles)
        self.sorted = np.argsort(key, kind="stable")
        same = np.concatenate([[False], key[self.sorted][1:] == key[self.sorted][:-1]])
        order = values[self.sorted]
        rise = np.concatenate([[0], np.diff(order)])
        after_end = np.concatenate([[False], self.last[self.sorted][:-1]])
        after_end &= ~(self.final_state[self.sorted] & (np.diff(self.sorted, prepend=-2) == 1))
        pairs = same & ~after_end
        back = pairs & (rise < 0)
        again = pairs & (rise == 0) & self._repeats_start(~pairs | back, order)
        if self.roles.episode is not None:
            again[:] = False
        usual = pairs & ~back & ~again
        lost = self.columns["@torn"][self.sorted]
        lost[1:] |= same[1:] & self.columns["@pending"][self.sorted][:-1]
        torn = lost & pairs
        unsure = np.diff(self.columns["@cuts"][self.sorted], prepend=0) != 0
        if counts_up is None and self.roles.order is not None and (usual & ~torn).any():
            text = self.columns[self.roles.order].dtype.kind == "U"
            counts_up = not text and counts_steps(self.roles.order, order, rise[usual & ~torn])
        self.counts_up = counts_up
        begins = back | again if counts_up else back
        wrong = pairs & (rise == 0) & ~again if counts_up else np.zeros(self.count, np.bool_)
        broken = (torn | unsure) & (self.roles.episode is None)  # another episode may have begun there
        wrong &= ~broken
        if self.roles.episode is None and back.sum() > 2 and 2 * back.sum() > pairs.sum():
            raise self._unordered(int(np.flatnonzero(back)[0]), order)
        if self.roles.episode is not None:
            wrong |= back
        if wrong.any():
            self._leave_out(order, ~pairs | broken | begins & (self.roles.episode is None))
            return
        linked = pairs & ~begins
        proven = (rise == 1) & bool(counts_up and self.roles.episode is not None)
        cut = linked & (torn | (unsure & ~proven))
        gap = linked & (rise != 1) & ~cut if counts_up else np.zeros(self.count, np.bool_)
        self.gaps = int(gap.sum())
        gone = self.columns["@after_gone"][self.sorted] & ((order != 0) | (not counts_up))
        missed = ~linked & (lost | gone)  # the row left out may have been the first of the episode
        linked &= ~gap & ~cut
        self.before = np.full(self.count, -1)
        self.before[self.sorted[linked]] = self.sorted[np.flatnonzero(linked) - 1]
        self.start = np.zeros(self.count, np.bool_)
        self.start[self.sorted] = ~linked & ~gap & ~cut & ~missed
        self.start &= self.fresh & ~self.final_state
        self.final = np.ones(self.count, np.bool_)
        self.final[self.sorted[np.flatnonzero(same) - 1]] = False

    def _leave_out(self, order: AnyArray, begins: Bools) -> None:
        """Note the rows whose order is not above that of an earlier row of the same path."""
        places, top = self.sorted.tolist(), 0.0
        for place, value, begin in zip(places, order.tolist(), begins.tolist(), strict=True):
            if not begin and (value < top or (value == top and self.counts_up)):
                self.unordered[place] = True
                self._again[place] = value == top
            else:
                top = value

    def reasons(self) -> Iterator[tuple[str, Bools]]:
        """Yield why rows are not in order, and which."""
        yield f"{self.roles.order!r} is there twice", self.unordered & self._again
        yield f"{self.roles.order!r} falls", self.unordered & ~self._again

    def _without_action(self) -> Iterator[tuple[str, Ints]]:
        """Yield the numbers of rows that have no action, and are not the last ones of their path."""
        before = self.before[self.before >= 0]
        yield f"{self.roles.action!r} is empty", self.columns["@number"][before[self.action[before] < 0]]

    def _without_reward(self) -> Iterator[tuple[str, Ints]]:
        """Yield the numbers of rows that lack the reward of a step, and take these steps out of the paths."""
        unpaid = ~np.isfinite(self.reward)
        if not unpaid.any():
            return
        linked = np.flatnonzero(self.before >= 0)
        linked = linked[self.action[self.before[linked]] >= 0]
        lacking, own = linked[unpaid[linked]], np.zeros(0, np.int64)
        named = lacking
        if self.roles.timing == "step":
            before = self.before[linked]
            lacking = linked[unpaid[before] & ~self.recorded[before]]
            alone = self.recorded | (self.terminated & ~self.has_final_state)
            own = np.flatnonzero(self.fresh & (self.action >= 0) & alone & unpaid)
            named = np.unique(np.concatenate([self.before[lacking], own]))
        self.before[lacking] = -1
        self.action = self.action.copy()
        self.action[own] = -1
        yield f"no reward in {self.roles.reward!r}", self.columns["@number"][named]

    def _repeats_start(self, begins: Bools, order: AnyArray) -> Bools:
        """Return which rows have the order of the first row of their episode, where that is known."""
        first = np.maximum.accumulate(np.where(begins, np.arange(self.count), 0))
        known = (self.fresh | self.columns["@start"])[self.sorted][first]
        return np.asarray(known & (order == order[first]))

    def _unordered(self, place: int, order: AnyArray) -> RecordingError:
        where = f"{self.source}, row {self.columns['@number'][self.sorted[place]]}"
        return unordered(where, str(self.roles.order), (order[place - 1], order[place]), None)

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


def no_steps(roles: Roles, conditions: Sequence[Condition]) -> Steps:
    """Return no steps."""
    none = np.zeros(0, np.int64)
    marks, features = np.zeros((0, len(conditions)), np.bool_), np.zeros((0, len(roles.observation)))
    return Steps(
        state=none, action=none, code=none, reward=np.zeros(0), segment=none, earlier=np.zeros((0, 2), np.int64),
        arrived=marks, unmeasured=marks, visited=none, holds=marks, known=marks, features=features, starts=none,
        late=none, continued=0, alone=0, gaps=0, mismatches=0,
    )  # fmt: skip


def _steps(rows: _LinkedRows, conditions: Sequence[Condition]) -> Steps:
    if rows.roles.timing == "state":
        return _of_arrivals(rows, conditions)
    return _of_steps(rows, conditions)


def _of_arrivals(rows: _LinkedRows, conditions: Sequence[Condition]) -> Steps:
    """Rows whose reward and end markers belong to the arrival in their state."""
    codes = code_of(rows.state, rows.terminated)
    fresh = np.flatnonzero(rows.fresh)
    holds, unknown = _holds(rows, conditions, fresh, {})
    at = fresh[rows.before[fresh] >= 0]
    at = at[rows.action[rows.before[at]] >= 0]
    taken = rows.before[at]
    draws = taken, codes[at], rows.reward[at], 2 * at
    arrived = holds[at - rows.carried], unknown[at - rows.carried]
    return _made(rows, draws, arrived, (codes[fresh], holds, ~unknown, fresh))


def _of_steps(rows: _LinkedRows, conditions: Sequence[Condition]) -> Steps:
    """Rows whose reward and end markers belong to the step from their state.

    A final row, without an action, is the end of the step before it. An end without its state is known by what was
    recorded of the step alone.
    """
    fresh = np.flatnonzero(rows.fresh)
    before = rows.before[fresh]
    after_end = (before >= 0) & rows.final_state[fresh]
    marked = {name: after_end & (rows.columns[name][fresh] | rows.columns[name][before]) for name in MARKERS}
    arrival = {"@reward": np.where(before >= 0, rows.reward[before], 0.0)} | marked
    holds, unknown = _holds(rows, conditions, fresh, arrival)
    codes = code_of(rows.state[fresh], marked["@terminated"])
    acted = rows.action >= 0
    own = np.flatnonzero(rows.fresh & acted & rows.recorded)
    unseen = np.flatnonzero(rows.fresh & acted & rows.terminated & ~rows.recorded & ~rows.has_final_state)
    at_unseen, open_there = _holds(rows, conditions, unseen, None)
    bits = 1 << np.arange(len(conditions), dtype=np.int64)
    unseen_codes = at_unseen @ bits + (open_there @ bits << MAX_LABELS)
    own_codes = code_of(rows.next[own], rows.terminated[own])
    at_own, open_own = _holds(rows, conditions, own, _next_columns(rows, own))
    at = np.flatnonzero((before >= 0) & acted[before] & ~rows.recorded[before])
    draws = (
        np.concatenate([before[at], own, unseen]),
        np.concatenate([codes[at], own_codes, unseen_codes]),
        rows.reward[np.concatenate([before[at], own, unseen])],
        np.concatenate([2 * fresh[at], 2 * own + 1, 2 * unseen + 1]),
    )
    arrived = (
        np.concatenate([holds[at], at_own, at_unseen]),
        np.concatenate([unknown[at], open_own, np.zeros_like(open_there)]),
    )
    last = rows.last[own] & ~rows.has_final_state[own]  # the successor of any other step is visited in its own row
    visits = (
        np.concatenate([codes, own_codes[last], unseen_codes]),
        np.concatenate([holds, at_own[last], at_unseen]),
        ~np.concatenate([unknown, open_own[last], open_there]),
        np.concatenate([fresh, own[last], unseen]),
    )
    return _made(rows, draws, arrived, visits)


def _made(
    rows: _LinkedRows,
    draws: tuple[Ints, Ints, Floats, Ints],
    arrived: tuple[Bools, Bools],
    visits: tuple[Ints, Bools, Bools, Ints],
) -> Steps:
    """Return the steps.

    `draws`: row of the action, code of the successor, reward, time. `arrived`: labels after each, and where a value for
    them is missing. `visits`: codes, labels, where those are known, rows.
    """
    taken, codes, rewards, times = draws
    order = np.argsort(times, kind="stable")
    taken, codes, rewards = taken[order], codes[order], rewards[order]
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
        arrived=arrived[0][order],
        unmeasured=arrived[1][order],
        visited=np.asarray(visits[0], np.int64),
        holds=visits[1],
        known=visits[2],
        features=_features(rows, visits[3]),
        starts=begins[rows.start & ~rows.late],
        late=begins[rows.late],
        continued=rows.continued,
        alone=int(rows.start.sum() - (rows.start | rows.columns["@start"])[taken].sum()),
        gaps=rows.gaps,
        mismatches=int(differs.sum()),
    )


def _earlier(rows: _LinkedRows, taken: Ints) -> Ints:
    before = rows.before[taken]
    known = (before >= 0) & (rows.action[before] >= 0)
    return np.where(known[:, None], np.column_stack([rows.state[before], rows.action[before]]), -1)


def _features(rows: _LinkedRows, at: Ints) -> Floats:
    names = rows.roles.observation
    if not names:
        return np.zeros((len(at), 0))
    batch = RowBatch(rows.columns, 1, rows.source)
    return np.column_stack([as_numbers(batch, name)[at] for name in names])


def _next_columns(rows: _LinkedRows, at: Ints) -> dict[str, AnyArray]:
    pairs = zip(rows.roles.state, rows.roles.next_state, strict=True) if rows.roles.next_state else ()
    return {name: rows.columns[after][at] for name, after in pairs}


def _holds(
    rows: _LinkedRows, conditions: Sequence[Condition], at: Ints, instead: Mapping[str, AnyArray] | None
) -> tuple[Bools, Bools]:
    """Return where the labels surely hold in the rows `at`, [n, L], and where it is unknown whether they do.

    `instead`: columns in place of the recorded ones; None: at the ends of the steps that begin there, whose states are
    unknown. Of these are known the reward and the markers and, to a condition that uses one of them, columns of the row
    that are not of the state.
    """
    if not conditions:
        return np.zeros((len(at), 0), np.bool_), np.zeros((len(at), 0), np.bool_)
    roles = rows.roles
    columns = {name: values[at] for name, values in rows.columns.items()} | dict(instead or {})
    columns["@reward"] = np.nan_to_num(columns["@reward"], nan=0.0)
    named = {"@reward": ("reward", roles.reward), "@terminated": ("terminated", "done", roles.terminated),
             "@truncated": ("truncated", roles.truncated)}  # fmt: skip
    shown = {name: values for name, values in columns.items() if not name.startswith("@")}
    of_step: dict[str, AnyArray] = {}
    for own, names in named.items():
        of_step |= {n: columns[own] for n in names if n is not None and (n not in shown or n == names[-1])}
    shown |= of_step
    found = []
    for condition in conditions:
        given: Mapping[str, AnyArray] = shown
        if instead is None:
            hidden = {*shown} - {*of_step} if of_step.keys().isdisjoint(condition.columns) else roles.of_state
            given = {name: values for name, values in shown.items() if name not in hidden}
        found.append([condition.holds(given, len(at), otherwise=otherwise) for otherwise in (False, True)])
    surely, maybe = (np.column_stack(each) for each in zip(*found, strict=True))
    return surely, maybe & ~surely
