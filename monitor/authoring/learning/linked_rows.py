"""Link rows that follow each other in an episode, and find missing, repeated and unordered rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.authoring.learning.columns import Roles
from monitor.errors import RecordingError

FEW_PAIRS: Final = 100
"""In a column that counts steps, most differences are 1. With fewer differences than `FEW_PAIRS`, a column counts steps
if more differences are 1 than 0."""

STEADY: Final = 0.95
"""Times have a usual step, their median, if this fraction of the differences is within a tenth of it."""

FEW_STEPS: Final = 10
"""Smallest number of differences for a usual step. One difference may always deviate."""

LONGER: Final = 1.5
"""A difference of more than this number of usual steps is a gap."""

MAX_OPEN: Final = 4096
"""Largest number of interleaved episodes. If there are more, the oldest count as finished."""


TIMES: Final = ("time", "timestamp", "wall")
"""Names of columns that have times rather than counts if a number in them repeats."""


def counts_steps(name: str, order: AnyArray, rise: AnyArray) -> bool:
    """Return whether the column `name` counts steps, so that a missing step is noticed. Otherwise it has times.

    `order`: values of the column. `rise`: differences from row to row of a path, without the first rows of paths.
    """
    ones, level = int((rise == 1).sum()), int((rise == 0).sum())
    usual = 2 * ones > len(rise) or (len(rise) < FEW_PAIRS and (ones > level or (len(rise) < 3 and not level)))
    return bool(usual and (order == np.floor(order)).all() and not (level and name.lower() in TIMES))


def usual_step(rise: AnyArray) -> float:
    """Return the usual time from one row of a path to the next; 0 if the times are irregular. `rise`: differences."""
    step = float(np.median(rise)) if len(rise) >= FEW_STEPS else 0.0
    others = len(rise) - int((np.abs(rise - step) <= step / 10).sum())
    return step if step > 0 and others <= max(1.0, (1 - STEADY) * len(rise)) else 0.0


def unordered(where: str, name: str, values: tuple[float, float], episode: str | None) -> RecordingError:
    """Return the error for a row whose value in the column `name` is not above that of the previous row.

    `values`: the previous row's value, and the row's own. `episode`: name of the episode, if a column has it.
    """
    before, after = values
    inside = "" if episode is None else f" in episode {episode!r:.80}"
    sort = "sort the file by " + (name if episode is None else f"episode and {name}")
    way = f"leave out rows that were written twice, or {sort}" if before == after else sort
    return RecordingError(
        f"{where}: {name} is {after:.15g} after {before:.15g}{inside}; {way}, or give the right columns "
        "(--episode, --order). If the rows are in order as they are: --order ''"
    )


def _episode(columns: Mapping[str, AnyArray], roles: Roles) -> Ints:
    """Return a number for the episode of each row."""
    if roles.episode is None:
        return np.zeros(len(columns["@row"]), np.int64)
    return np.asarray(np.unique(columns[roles.episode], return_inverse=True)[1], np.int64)


def without_lost(columns: Mapping[str, AnyArray], roles: Roles) -> dict[str, AnyArray]:
    """Return the rows that are not lost, and mark their neighbours.

    `@torn`: number of lost rows of the same episode directly before the row. `@pending`: number of lost rows directly
    after the row, if no other row of the episode follows yet. Lost rows before an episode's first row count only within
    a batch.
    """
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
    torn[kept] += before - earlier
    pending[kept] += np.where(last, count[end - 1] - before, 0)
    found = {**columns, "@torn": torn, "@pending": pending}
    return {name: values[~lost] for name, values in found.items()}


class LinkedRows:
    """Rows of a batch, after the rows carried over from earlier batches, with the links between them.

    `carried`: number of rows carried over. `known`: values from earlier rows: `counts_up` and `step` as in `Episodes`,
    and the order of the last row.

    Attributes ([n] each): `before`: index of the previous row of the same path, or -1. `start`: True for the first row
    of an episode. `late`: True for a first row if the beginning of its episode may be missing. `recorded`: True if the
    row has the state after the row's step. `final_state`: True if the row has no action; directly after the last step
    of an episode, such a row is the final state. `has_final_state`: True if a final state follows. `taken`: number of
    earlier steps of the episode. `unordered`: True if the row's order does not fit; if any row is unordered, the other
    attributes are not set. `segment`: number of the first row of the path. `episode`: number of the first row of the
    episode, which gaps divide into paths. If no column tells episodes apart, it is the same as `segment`. `unknown`:
    reasons, each with the rows whose step is unknown for this reason.
    """

    def __init__(
        self,
        columns: Mapping[str, AnyArray],
        carried: int,
        roles: Roles,
        source: str,
        known: tuple[bool | None, float, float],
    ) -> None:
        self.roles, self.columns, self.carried, self.source = roles, columns, carried, source
        counts_up, self.step, newest = known
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
        self._link(order, counts_up)
        if self.unordered.any():
            return
        self.has_final_state = np.zeros(self.count, np.bool_)
        self.has_final_state[self.before[self.final_state & (self.before >= 0)]] = True
        self._pay_last_steps()
        self._cut_off()
        self.unknown = [*self._without_action(), *self._without_reward()]
        self.newest = float(order[-1])
        previous = np.concatenate([order[:carried], [newest], order[carried:-1]])
        self.late = self.start & (order > 1) if self.counts_up else np.zeros(self.count, np.bool_)
        self.continued = int((self.late & (order == previous + 1)).sum())
        self.segment = self._numbers((self.before < 0)[self.sorted], "@segment")
        dividing = (self.roles.episode, self.roles.terminated, self.roles.truncated)
        # If no column tells episodes apart, gaps divide the recording into the parts that are learned and held out.
        self.episode = self.segment if dividing == (None, None, None) else self._numbers(self._heads, "@episode")

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
        lost = self.columns["@torn"][self.sorted]  # number of rows of the episode that were left out directly before
        lost[1:] += np.where(same[1:], self.columns["@pending"][self.sorted][:-1], 0)
        torn = (lost > 0) & pairs
        unsure = np.diff(self.columns["@cuts"][self.sorted], prepend=0) != 0
        if counts_up is None and self.roles.order is not None and (usual & ~torn).any():
            text = self.columns[self.roles.order].dtype.kind == "U"
            counts_up = not text and counts_steps(self.roles.order, order, rise[usual & ~torn])
            self.step = 1.0 if counts_up else usual_step(rise[usual & ~torn])
        self.counts_up = counts_up
        begins = back | again if counts_up else back
        wrong = pairs & (rise == 0) & ~again if counts_up else np.zeros(self.count, np.bool_)
        broken = (torn | unsure) & (self.roles.episode is None)  # another episode may begin there
        wrong &= ~broken
        if self.roles.episode is None and back.sum() > 2 and 2 * back.sum() > pairs.sum():
            raise self._unordered(int(np.flatnonzero(back)[0]), order)
        if self.roles.episode is not None:
            wrong |= back
        if wrong.any():
            self._leave_out(order, ~pairs | broken | begins & (self.roles.episode is None))
            return
        linked = pairs & ~begins
        one = np.abs(rise - self.step) <= (0 if counts_up else self.step / 10)
        proven = one & bool(self.step and self.roles.episode is not None)
        cut = linked & (torn | (unsure & ~proven))
        more = (rise != 1) if counts_up else rise > LONGER * self.step
        gap = linked & more & ~cut & bool(self.step)
        self.gaps = int(gap.sum())
        gone = self.columns["@after_gone"][self.sorted] & ((order != 0) | (not counts_up))
        missed = ~linked & ((lost > 0) | gone)  # a row that was left out may have been the first row of the episode
        self._count_steps(linked, rise, np.where(linked, lost, lost + gone))
        self._heads = ~linked
        linked &= ~gap & ~cut
        self.before = np.full(self.count, -1)
        self.before[self.sorted[linked]] = self.sorted[np.flatnonzero(linked) - 1]
        self.start = np.zeros(self.count, np.bool_)
        self.start[self.sorted] = self._heads & ~missed & (self.fresh & ~self.final_state)[self.sorted]
        self.final = np.ones(self.count, np.bool_)
        self.final[self.sorted[np.flatnonzero(same) - 1]] = False

    def _pay_last_steps(self) -> None:
        """Add the reward in the row of a final state to the reward of the last step, because no step begins there."""
        final = np.flatnonzero(self.final_state & (self.before >= 0))
        step = self.before[final]
        ends = (self.last[final] | self.last[step]) & ~self.recorded[step]
        final, step = final[ends], step[ends]
        self.reward = self.reward.copy()
        self.reward[step] += np.where(np.isnan(self.reward[final]), 0.0, self.reward[final])

    def _cut_off(self) -> None:
        """Treat an end as a cut if it comes after as many steps as the time limit. It is unknown what follows a cut."""
        if not self.roles.time_limit:
            return
        own = (self.action >= 0) & (self.roles.timing == "step")  # otherwise the row's marker is about its state
        cut = self.terminated & (self.taken + own >= self.roles.time_limit)
        self.terminated, self.truncated = self.terminated & ~cut, self.truncated | cut
        self.columns = {**self.columns, "@terminated": self.terminated, "@truncated": self.truncated}

    def _count_steps(self, linked: Bools, rise: AnyArray, lost: Ints) -> None:
        """Set for each row the number of earlier steps in the row's episode, including missing steps.

        `linked`: whether a row continues the episode of the previous row, perhaps after a gap. `rise`: rise of the
        order since the previous row. `lost`: number of rows left out directly before the row. All are in the sorted
        order.
        """
        more = np.maximum(np.round(rise / self.step), 1) if self.step else 1 + lost
        earlier = np.where(self.fresh[self.sorted], lost, self.columns["@taken"][self.sorted])
        more = np.cumsum(np.where(linked, more, earlier).astype(np.int64))
        begin = np.maximum.accumulate(np.where(linked, 0, np.arange(self.count)))
        self.taken = np.zeros(self.count, np.int64)
        self.taken[self.sorted] = more - np.concatenate([[0], more])[begin]

    def _leave_out(self, order: AnyArray, begins: Bools) -> None:
        """Mark rows whose order is below that of an earlier row of the same path.

        If steps are counted, an equal order is marked too.
        """
        places, top = self.sorted.tolist(), 0.0
        for place, value, begin in zip(places, order.tolist(), begins.tolist(), strict=True):
            if not begin and (value < top or (value == top and self.counts_up)):
                self.unordered[place] = True
                self._again[place] = value == top
            else:
                top = value

    def reasons(self) -> Iterator[tuple[str, Bools]]:
        """Yield each reason why rows are unordered, with the rows."""
        yield f"{self.roles.order!r} is there twice", self.unordered & self._again
        yield f"{self.roles.order!r} falls", self.unordered & ~self._again

    def _without_action(self) -> Iterator[tuple[str, Ints]]:
        """Yield the numbers of rows that have no action and are not the last row of their path."""
        before = self.before[self.before >= 0]
        yield f"{self.roles.action!r} is empty", self.columns["@number"][before[self.action[before] < 0]]

    def _without_reward(self) -> Iterator[tuple[str, Ints]]:
        """Yield the numbers of rows that lack the reward of a step, and remove these steps from the paths."""
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
        """Return which rows have the same order as the first row of their episode, if that row is known."""
        first = np.maximum.accumulate(np.where(begins, np.arange(self.count), 0))
        known = (self.fresh | self.columns["@start"])[self.sorted][first]
        return np.asarray(known & (order == order[first]))

    def _unordered(self, place: int, order: AnyArray) -> RecordingError:
        where = f"{self.source}, row {self.columns['@number'][self.sorted[place]]}"
        return unordered(where, str(self.roles.order), (order[place - 1], order[place]), None)

    def _numbers(self, heads: Bools, name: str) -> Ints:
        """Return for each row the number of the first row of its path or of its episode.

        `heads`: whether a row is the first of its path or episode, in the sorted order. `name`: column of the numbers
        of carried rows.
        """
        own = np.where(self.fresh, self.columns["@row"], self.columns[name])[self.sorted]
        found = np.zeros(self.count, np.int64)
        found[self.sorted] = own[heads][np.cumsum(heads) - 1]
        return found

    def open_rows(self) -> Ints:
        """Return the last row of each open episode, for the newest `MAX_OPEN` episodes."""
        return np.flatnonzero(self.final & ~self.last)[-MAX_OPEN:]
