"""From rows to transitions and visits. Episodes may be interleaved; a batch may end within any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.learning.batch import EXACT, RowBatch, as_flags, as_moments, as_numbers, concatenated, is_missing
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition
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

    Attributes:
        roles, states, actions, conditions: what rows mean.
        rows: rows before this file, so that paths of all files have different numbers.
        counts_up: see `counts_steps`; None: not known yet.
        open: last row of each open episode, by column.
        newest: order of the row that was read last; NaN: there is none.
        held: the last row, if it ends an episode and the next one may be its final state, by column.
        end: where the rows read so far end, for messages.
    """

    roles: Roles
    states: Encoder
    actions: Encoder
    conditions: Sequence[Condition]
    rows: int = 0
    counts_up: bool | None = None
    open: Mapping[str, AnyArray] = field(default_factory=dict)
    newest: float = float("nan")
    held: Mapping[str, AnyArray] = field(default_factory=dict)
    end: RowBatch = field(default_factory=lambda: RowBatch({}, 1, "the recording"))

    def read(self, batch: RowBatch) -> Steps:
        """Return the transitions and visits of the next rows. RecordingError names a row that makes no sense.

        A row at the end of the batch that ends an episode waits for the next row, which may be its final state.
        """
        _refuse_long(batch)
        fresh = concatenated(self.held, dict(batch.columns) | self._encoded(batch))
        before = len(self.held.get("@row", ()))
        self.rows += len(batch)
        self.end = RowBatch({}, batch.first + len(batch), batch.source)
        ends = fresh["@terminated"][-1] | fresh["@truncated"][-1]
        waits = self.roles.has_final_rows and bool(ends & (fresh["@action"][-1] >= 0))
        count = len(fresh["@row"]) - waits
        self.held = {name: values[count:] for name, values in fresh.items()} if waits else {}
        return self._read({name: values[:count] for name, values in fresh.items()}, batch, before)

    def finish(self) -> Steps:
        """Return what is left at the end of the file: the last row, if it has waited for a next one."""
        held, self.held = self.held, {}
        return self._read(held, self.end, len(held.get("@row", ())))

    def _read(self, fresh: Mapping[str, AnyArray], batch: RowBatch, waited: int) -> Steps:
        """Return the transitions and visits of rows; `waited`: how many of them are from before `batch`."""
        if not len(fresh.get("@row", ())):
            return _nothing(self.roles, self.conditions)
        carried = len(self.open.get("@row", ()))
        columns = concatenated(self.open, fresh)
        rows = _LinkedRows(self, columns, carried, (batch, waited))
        self.counts_up, self.newest = rows.counts_up, rows.newest
        steps = _steps(rows, self.conditions)
        columns |= {"@segment": rows.segment, "@start": rows.start}
        keep = rows.open_rows()
        self.open = {name: values[keep] for name, values in columns.items()}
        return steps

    def _encoded(self, batch: RowBatch) -> dict[str, AnyArray]:
        roles = self.roles
        states = self._states(batch)
        terminated, truncated = as_flags(batch, roles.terminated), as_flags(batch, roles.truncated)
        unknown = states < 0
        if roles.next_state:
            unknown[:, 1] &= ~(terminated | truncated)  # the final state was not recorded
        if unknown.any():
            raise _missing(batch, roles, int(np.flatnonzero(unknown.any(axis=1))[0]))
        return {
            "@state": states[:, 0],
            "@next": states[:, -1] if roles.next_state else np.full(len(batch), -1),
            "@action": self.actions.encode(batch, (roles.action,)),
            "@row": np.arange(self.rows, self.rows + len(batch)),
            "@segment": np.zeros(len(batch), np.int64),
            "@start": np.zeros(len(batch), np.bool_),
            "@reward": np.zeros(len(batch)) if roles.reward is None else as_numbers(batch, roles.reward),
            "@terminated": terminated,
            "@truncated": truncated,
        }

    def _states(self, batch: RowBatch) -> Ints:
        """Return states [n, 1], or states and next states [n, 2], numbered in the order of rows."""
        roles = self.roles
        if not roles.next_state:
            return self.states.encode(batch, roles.state)[:, None]
        both = {
            name: np.ravel(np.column_stack([batch.column(name), batch.column(after)]))
            for name, after in zip(roles.state, roles.next_state, strict=True)
        }
        pairs = RowBatch(both, batch.first, batch.source)
        return self.states.encode(pairs, roles.state).reshape(-1, 2)


def _missing(batch: RowBatch, roles: Roles, row: int) -> RecordingError:
    names = (*roles.state, *roles.next_state)
    bad = next(n for n in names if str(batch.column(n)[row]).lower() in ("", "nan", "inf", "-inf"))
    return RecordingError(
        f"{batch.where(row)}: column {bad!r} is empty or not finite; fill it in. If this row only says that the "
        "episode ended, leave it out, and mark the end in the row before"
    )


class _LinkedRows:
    """Rows of a batch behind those carried over, and how they are linked.

    Attributes ([n] each): `before`: the row before on the same path, or -1. `start`: first row of an episode. `late`:
    those of them whose beginning may be missing. `recorded`: the row holds the state after its step. `final_state`: the
    row has no step; directly after the last step of an episode it is the final state. `has_final_state`: such a row
    follows. `shift`: rows before those of the batch.
    """

    def __init__(
        self, episodes: Episodes, columns: Mapping[str, AnyArray], carried: int, source: tuple[RowBatch, int]
    ) -> None:
        self.roles, self.columns, self.carried = episodes.roles, columns, carried
        self.batch, waited = source
        self.shift = carried + waited
        self.count = len(columns["@row"])
        self.fresh = np.arange(self.count) >= carried
        self.state, self.action, self.next = columns["@state"], columns["@action"], columns["@next"]
        self.reward = columns["@reward"]
        self.terminated, self.truncated = columns["@terminated"], columns["@truncated"]
        self.last = self.terminated | self.truncated
        self.recorded = self.next >= 0
        self.final_state = (self.action < 0) if self.roles.has_final_rows else np.zeros(self.count, np.bool_)
        order = self._order()
        self._link(order, episodes.counts_up)
        self.has_final_state = np.zeros(self.count, np.bool_)
        self.has_final_state[self.before[self.final_state & (self.before >= 0)]] = True
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
        after_end &= ~(self.final_state[self.sorted] & (np.diff(self.sorted, prepend=-2) == 1))
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
        self.start &= self.fresh & ~self.final_state
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
            raise RecordingError(f"{self.batch.where(row - self.shift)}: column {name!r} {problem}")
        return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)

    def _order(self) -> AnyArray:
        if self.roles.order is None:
            return np.arange(self.count, dtype=np.float64)
        return as_moments(RowBatch(self.columns, self.batch.first - self.shift, self.batch.source), self.roles.order)

    def _unordered(self, place: int, order: AnyArray) -> RecordingError:
        row = int(self.sorted[place])
        episode = None if self.roles.episode is None else str(self.columns[self.roles.episode][row])
        where = self.batch.where(row - self.shift)
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


def _nothing(roles: Roles, conditions: Sequence[Condition]) -> Steps:
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
    unpaid = np.flatnonzero(~np.isfinite(rewards))
    if unpaid.size:
        at = taken if rows.roles.timing == "step" else times[order] // 2
        row = max(int(at[unpaid[0]]) - rows.shift, rows.carried - rows.shift)
        raise RecordingError(
            f"{rows.batch.where(row)}: column {rows.roles.reward!r} is empty; without rewards: --reward ''"
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
    whole = RowBatch(rows.columns, rows.batch.first - rows.shift, rows.batch.source)
    found = np.column_stack([as_numbers(whole, name)[at] for name in names])
    bad = np.argwhere(~np.isfinite(found))
    if bad.size:
        row, column = bad[0].tolist()
        raise RecordingError(
            f"{whole.where(int(at[row]))}: column {names[column]!r} of --observation is empty or not finite; fill it "
            "in, or leave this row out"
        )
    return found


def _refuse_long(batch: RowBatch) -> None:
    for name, values in batch.columns.items():
        if values.dtype.kind == "U" and values.dtype.itemsize > 4 * LONGEST_TEXT:
            row = int(np.argmax(np.strings.str_len(values)))
            raise RecordingError(
                f"{batch.where(row)}: column {name!r} holds a text of {len(values[row]):,} characters; a state, an "
                f"action or another role has at most {LONGEST_TEXT:,}. Name other columns"
            )


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
