"""Split recordings for the report: hold out some episodes, and also count the other episodes by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from monitor.arrays import Bools, Ints
from monitor.authoring.learning.recorded_steps import Steps
from monitor.authoring.learning.tally import Table, Tally, mixed

HELD_FRACTION: Final = 0.2
"""Fraction of the episodes that are held out."""
HELD: Final = 200_000
"""Largest number of held-out steps that are kept. Further steps are left out."""

MAX_CONTEXTS: Final = 2_000_000
"""Largest number of different pairs of a history and an outcome. The report says if there are more."""

HISTORIES: Final = ("the previous action", "the previous state", "the previous state and action")


@dataclass(frozen=True)
class HeldOut:
    """Held-out transitions [n], one path after another, each in order.

    `earlier`: [n, 2] state and action one step earlier; -1: not known. `path`: number of the path.
    `episode`: number of the episode, which gaps divide into paths.
    """

    state: Ints
    action: Ints
    code: Ints
    earlier: Ints
    path: Ints
    episode: Ints

    @classmethod
    def of(cls, steps: Steps, rows: Bools | slice) -> HeldOut:
        """Return the transitions in some of the rows of a batch."""
        return cls(
            steps.state[rows], steps.action[rows], steps.code[rows], steps.earlier[rows], steps.segment[rows],
            steps.episode[rows],
        )  # fmt: skip


def in_order(parts: Sequence[HeldOut]) -> HeldOut:
    """Return the transitions of all parts, one path after another."""
    joined = {name: np.concatenate([getattr(part, name) for part in (NOTHING, *parts)]) for name in FIELDS}
    order = np.argsort(joined["path"], kind="stable")
    return HeldOut(**{name: values[order] for name, values in joined.items()})


FIELDS: Final = ("state", "action", "code", "earlier", "path", "episode")
NOTHING: Final = HeldOut(*(np.zeros((0, 2) if name == "earlier" else 0, np.int64) for name in FIELDS))


@dataclass
class Holdout:
    """The data that the report needs from the recordings, in bounded memory.

    Attributes:
        seed: seed of the split.
        fraction: fraction of the episodes that are held out.
        begin: where the held-out part begins, as a fraction of all episodes.
        train: counts of the episodes after the held-out part; episodes before `begin` are in neither.
        histories: for each of `HISTORIES`, counts by (history, state, action), and counts by (history, state, action,
            successor).
        full: True if a table of histories has reached its limit.
    """

    seed: int
    fraction: float = HELD_FRACTION
    begin: float = 0.0
    train: Tally = field(default_factory=lambda: Tally.empty(0, 0))
    histories: tuple[tuple[Table, Table], ...] = field(
        default_factory=lambda: tuple((Table({"n": 0}), Table({"n": 0})) for _ in HISTORIES)
    )
    full: bool = False
    _parts: list[HeldOut] = field(default_factory=list)
    _kept: int = 0

    def add(self, steps: Steps) -> None:
        """Add the transitions of a batch. A whole episode is held out or not, even if gaps divide it into paths."""
        out = held_out(steps.episode, self.seed, self.fraction, self.begin)
        used = ~held_out(steps.episode, self.seed, self.begin + self.fraction)
        self.train.count(steps.state[used], steps.action[used], steps.code[used], steps.reward[used])
        contexts = mixed_histories(steps.earlier[used], steps.state[used], steps.action[used])
        for (rows, outcomes), context in zip(self.histories, contexts, strict=True):
            self._count(rows, outcomes, context, steps.code[used])
        if self._kept < HELD:
            self._parts.append(HeldOut.of(steps, out))
            self._kept += int(out.sum())

    def _count(self, rows: Table, outcomes: Table, context: Ints, codes: Ints) -> None:
        known = (context >= 0) if len(outcomes) < MAX_CONTEXTS else np.zeros(len(context), np.bool_)
        self.full |= len(outcomes) >= MAX_CONTEXTS
        for table, keys in ((rows, context[known]), (outcomes, mixed(context[known], codes[known]))):
            different, counts = np.unique(keys, return_counts=True)
            at = table.places(different)
            table["n"][at] += counts

    def held(self) -> HeldOut:
        """Return the held-out transitions."""
        return in_order(self._parts)


def held_out(episodes: Ints, seed: int, fraction: float, begin: float = 0.0) -> Bools:
    """Return which episodes are held out, by a hash of their number and the seed.

    Two parts are disjoint if one has a `begin` of at least `begin` + `fraction` of the other.
    """
    place = mixed(episodes, np.full(len(episodes), seed)) % 1_000_003
    return np.asarray((place >= begin * 1_000_003) & (place < (begin + fraction) * 1_000_003))


def mixed_histories(earlier: Ints, states: Ints, actions: Ints) -> tuple[Ints, ...]:
    """Return for each of `HISTORIES` a hash of history, state and action, [n]; -1 if the history is not known."""
    known = earlier[:, 0] >= 0
    before, taken = earlier[:, 0], earlier[:, 1]
    nothing = np.full(len(states), -1)
    every = (mixed(nothing, taken, states, actions), mixed(before, nothing, states, actions),
             mixed(before, taken, states, actions))  # fmt: skip
    return tuple(np.where(known, each, -1) for each in every)
