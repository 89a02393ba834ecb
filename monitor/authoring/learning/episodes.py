"""Turn rows into transitions and visits. Episodes may be interleaved, and a batch may end inside any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.authoring.learning.batch import (
    EXACT,
    RowBatch,
    as_numbers,
    beside,
    concatenated,
    flags,
    is_missing,
    moments,
    odd_value,
)
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition
from monitor.authoring.learning.left_out import LeftOut
from monitor.authoring.learning.linked_rows import LinkedRows, without_lost
from monitor.authoring.learning.recorded_steps import Steps, no_steps, steps_of
from monitor.errors import RecordingError

LONGEST_TEXT: Final = 1024
"""Largest number of characters of a text with a role.

Memory for the last rows of `MAX_OPEN` episodes grows with it.
"""


class Encoder(Protocol):
    """Maps rows to numbers of states or of actions."""

    def encode(self, batch: RowBatch, names: tuple[str, ...]) -> Ints:
        """Return the number of each row, [n]; -1 if a value is missing. `names`: the columns to read."""
        ...


@dataclass
class Episodes:
    """Reader of one file's rows in batches. It keeps the last row of each open episode.

    A row that lacks a necessary value is left out and listed in `left_out`. Such a row is a gap in its episode: no
    transition leads to the row, from the row, or across the row. If the row's episode cannot be read either, the row is
    a gap in every open episode, unless a step counter shows that no step of the episode is missing. Without a column of
    episodes, no counter can show this.

    Attributes:
        roles, states, actions, conditions: the meaning of the rows.
        signals: numbers of observations; None if states are seen.
        rows: number of rows read so far, also from earlier files, so that paths of all files have different numbers.
        counts_up: see `counts_steps`; None: not known yet.
        step: usual rise of the order from one row to the next; 0: there is none, or it is not known.
        left_out: gets the rows that are left out.
        day_first: see `moments`.
        unplaced: number of rows so far that were left out and whose episode could not be read.
        open: last row of each open episode, by column.
        newest: order of the row that was read last; NaN: no row was read.
        held: the last row, by column, if it ends an episode and the next row may be its final state.
    """

    roles: Roles
    states: Encoder
    actions: Encoder
    conditions: Sequence[Condition]
    rows: int = 0
    counts_up: bool | None = None
    step: float = 0.0
    left_out: LeftOut = field(default_factory=LeftOut)
    day_first: bool | None = None
    unplaced: int = 0
    open: Mapping[str, AnyArray] = field(default_factory=dict)
    newest: float = float("nan")
    held: Mapping[str, AnyArray] = field(default_factory=dict)
    signals: Encoder | None = None
    source: str = "the recording"

    def read(self, batch: RowBatch) -> Steps:
        """Return the transitions and visits of the next rows.

        Raises RecordingError if the rows as a whole do not fit the roles. If the last row of the batch ends an episode,
        this row waits for the next row, which may be the final state of the episode.
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
        """Return the rest at the end of the file: the steps of the last row, if this row was waiting for a next row."""
        held, self.held = self.held, {}
        return self._read(held)

    def goes_on(self, batch: RowBatch) -> bool:
        """Return whether another file, which begins with this batch, continues an episode of this file.

        An episode continues if the first row of `batch` belongs to an open episode and is one step later in the order.
        One step is 1 for a counter, and the usual step for times.
        """
        roles, batch = self.roles, batch.whole()
        if roles.episode is None or roles.order is None or not self.step or not len(batch):
            return False
        rows = concatenated(self.open, self.held) if self.held else self.open
        pairs = [(rows[name], values) for name, values in batch.columns.items() if name in rows]
        if any((beside(a, b).dtype.kind == "U") != (beside(b, a).dtype.kind == "U") for a, b in pairs):
            return False
        first = batch.picked(slice(1))
        values, _ = moments(first, roles.order, day_first=self.day_first)
        same = rows[roles.episode] == first.column(roles.episode)
        rise = values - rows["@order"][same]
        return bool((np.abs(rise - self.step) <= (0 if self.counts_up else self.step / 10)).any())

    def _read(self, fresh: Mapping[str, AnyArray]) -> Steps:
        """Return the transitions and visits of rows."""
        if not len(fresh.get("@row", ())):
            return no_steps(self.roles, self.conditions)
        carried = len(self.open.get("@row", ()))
        columns = without_lost(concatenated(self.open, fresh), self.roles)
        rows = self._linked(columns, carried)
        while rows.unordered.any():
            for reason, bad in rows.reasons():
                self.left_out.add(reason, self.source, columns["@number"][bad])
            columns = without_lost(columns | {"@lost": rows.unordered}, self.roles)
            rows = self._linked(columns, carried)
        if rows.count == carried:
            self.open = columns
            return no_steps(self.roles, self.conditions)
        self.counts_up, self.step, self.newest = rows.counts_up, rows.step, rows.newest
        for reason, numbers in rows.unknown:
            self.left_out.add(reason, self.source, numbers)
        steps = steps_of(rows, self.conditions)
        columns |= {"@segment": rows.segment, "@episode": rows.episode, "@start": rows.start, "@taken": rows.taken}
        keep = rows.open_rows()
        self.open = {name: values[keep] for name, values in columns.items()}
        return steps

    def _linked(self, columns: Mapping[str, AnyArray], carried: int) -> LinkedRows:
        return LinkedRows(columns, carried, self.roles, self.source, (self.counts_up, self.step, self.newest))

    def _encoded(self, batch: RowBatch) -> dict[str, AnyArray]:
        """Return the rows with a known episode, with their encoded values. `@lost`: True for rows that are left out."""
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
            for reason, (column, coded) in batch.coded.items():
                if column == name:
                    why.add(reason, coded & unknown[:, place])
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
            "@episode": np.zeros(len(batch), np.int64),
            "@start": np.zeros(len(batch), np.bool_),
            "@taken": np.zeros(len(batch), np.int64),
            "@reward": np.zeros(len(batch)) if roles.reward is None else as_numbers(batch, roles.reward),
            "@terminated": terminated,
            "@truncated": truncated,
            "@lost": why.lost,
            "@torn": np.zeros(len(batch), np.int64),
            "@pending": np.zeros(len(batch), np.int64),
            "@cuts": np.full(len(batch), self.unplaced),
            "@after_gone": np.zeros(len(batch), np.bool_),
        }
        if self.signals is not None:
            found["@signal"] = np.full(len(batch), -1)
            found["@signal"][~why.lost] = self.signals.encode(kept, (str(roles.signal),))
        gone = np.concatenate([*batch.torn.values(), batch.places[unplaced]]).astype(np.int64)
        if gone.size:
            found["@cuts"] = self.unplaced + np.searchsorted(np.sort(gone), batch.places)
            found["@after_gone"] = np.isin(batch.places - 1, gone)
            self.unplaced += len(gone)
            found = {name: values[~unplaced] for name, values in found.items()}
        return found

    def _states(self, batch: RowBatch) -> Ints:
        """Return states [n, 1], or states and next states [n, 2], numbered in the order of the rows."""
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
    """Reasons for leaving out rows of a batch.

    Only the first reason of a row counts. `lost`: [n] rows with a reason.
    """

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
    """Return a column with its texts cut to `LONGEST_TEXT` characters. Rows with longer texts are left out."""
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
