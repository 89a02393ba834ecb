"""Counts of transitions, visits, labels and rewards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Ints, Words
from monitor.authoring.learning.abstraction import MAX_STATES
from monitor.authoring.learning.recorded_steps import Steps
from monitor.errors import ModelError

CODE_BITS: Final = 25
ACTION_BITS: Final = 14
"""A transition is stored as one number, from state, action and the code of the successor. `MAX_STATES` is 2^22."""


KEPT: Final = 32
"""Largest number of observations kept for each state. They give a policy's choice in the state to within 1/32."""

KEPT_NUMBERS: Final = 1 << 22
"""Largest number of values in all kept observations: 32 MB. With more states, fewer are kept for each."""

LAST: Final = 2**63 - 1
"""Priority of a free place for an observation."""


class Table:
    """Rows of numbers with ascending keys.

    Args:
        fills: column -> value of a new row; a tuple (value, width) for a column of vectors.
    """

    def __init__(self, fills: Mapping[str, float | int | tuple[float | int, int]]) -> None:
        self.fills = dict(fills)
        self.keys: Ints = np.zeros(0, np.int64)
        self.columns: dict[str, AnyArray] = {name: self._filled(name, 0) for name in fills}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)

    def __getitem__(self, name: str) -> AnyArray:
        """Return a column."""
        return self.columns[name]

    def places(self, keys: Ints) -> Ints:
        """Return the indices of different, ascending keys. Rows for new keys are inserted."""
        at = np.searchsorted(self.keys, keys)
        new = np.ones(len(keys), np.bool_)
        inside = at < len(self.keys)
        new[inside] = self.keys[at[inside]] != keys[inside]
        if new.any():
            self.keys = np.insert(self.keys, at[new], keys[new])
            for name, values in self.columns.items():
                self.columns[name] = np.insert(values, at[new], self._filled(name, int(new.sum())), axis=0)
        found: Ints = np.searchsorted(self.keys, keys)
        return found

    def find(self, keys: Ints) -> Ints:
        """Return the indices of keys; -1 for a key that is not in the table."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[at] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        return np.asarray(np.where(known, at, -1), np.int64)

    def _filled(self, name: str, rows: int) -> AnyArray:
        fill = self.fills[name]
        value, shape = (fill[0], (rows, fill[1])) if isinstance(fill, tuple) else (fill, (rows,))
        return np.full(shape, value, np.int64 if isinstance(value, int) else np.float64)


@dataclass
class Tally:
    """All counts of a model that is being learned.

    Attributes:
        transitions: for each transition: `visits`; `first`, the draw of its row (from 1) in which it first occurred;
            `sum`, `least` and `most` of its rewards.
        rows: for each row of state and action: `draws`, and `rank` in the order of first visits.
        visited: for each code: `seen`, number of visits; `true` [L], number of visits in which each label held; `known`
            [L], number of visits in which it is known whether each label held; `starts`, number of episodes that began
            there; `late`, number of these episodes whose beginning may be missing. For a policy's inputs: the `sum`
            [D], a `sample` [D] near the mean, and `kept` [K D], a uniform sample. The sample has the inputs with the K
            smallest `priority` [K], ascending.
        emissions: for each state and observation: `visits`; `first`, the record of its state (from 1) in which it first
            occurred.
        gaps, mismatches, alone, continued: see `Steps`.
    """

    transitions: Table
    rows: Table
    visited: Table
    emissions: Table
    gaps: int = 0
    mismatches: int = 0
    alone: int = 0
    continued: int = 0

    @classmethod
    def empty(cls, labels: int, features: int) -> Tally:
        """Return empty counts, for L labels and D features."""
        return cls(
            Table({"visits": 0, "first": 0, "sum": 0.0, "least": np.inf, "most": -np.inf}),
            Table({"draws": 0, "rank": 0}),
            Table(
                {
                    "seen": 0,
                    "true": (0, labels),
                    "known": (0, labels),
                    "starts": 0,
                    "late": 0,
                    "sum": (0.0, features),
                    "sample": (np.nan, features),
                    "kept": (np.nan, KEPT * features),
                    "priority": (LAST, KEPT if features else 0),
                }
            ),
            Table({"visits": 0, "first": 0}),
        )

    @property
    def draws(self) -> int:
        """Number of transitions counted."""
        return int(self.transitions["visits"].sum())

    def add(self, steps: Steps) -> None:
        """Count the steps of a batch."""
        self.count(steps.state, steps.action, steps.code, steps.reward)
        self._add_visits(steps)
        self._add_emissions(*steps.shown.T)
        for name, begun in (("starts", steps.starts), ("late", steps.late)):
            codes, counts = np.unique(begun, return_counts=True)
            at = self.visited.places(codes)  # call this first, because it may insert rows
            self.visited[name][at] += counts
        self.alone += steps.alone
        self.continued += steps.continued
        self.gaps += steps.gaps
        self.mismatches += steps.mismatches

    def count(self, states: Ints, actions: Ints, codes: Ints, rewards: AnyArray) -> None:
        """Count transitions in their order."""
        if not len(states):
            return
        if int(states.max()) >= MAX_STATES or int(actions.max()) >= 1 << ACTION_BITS:
            raise ModelError(f"at most {MAX_STATES:,} states and {1 << ACTION_BITS:,} actions can be learned")
        row_keys = (states << ACTION_BITS) + actions
        numbers = self._draw_numbers(row_keys)
        at, places = _count(self.transitions, (row_keys << CODE_BITS) + codes, numbers)
        table = self.transitions.columns
        table["sum"][at] += np.bincount(places, rewards, len(at))
        np.minimum.at(table["least"], at[places], rewards)
        np.maximum.at(table["most"], at[places], rewards)

    def _draw_numbers(self, row_keys: Ints) -> Ints:
        """Return the number of each draw within its row, from 1, and count the draw."""
        keys, first, places = np.unique(row_keys, return_index=True, return_inverse=True)
        at = self.rows.places(keys)
        draws, rank = self.rows["draws"], self.rows["rank"]
        fresh = np.flatnonzero(rank[at] == 0)
        in_order = fresh[np.argsort(first[fresh])]
        rank[at[in_order]] = int(rank.max(initial=0)) + 1 + np.arange(len(in_order))
        numbers: Ints = draws[at][places] + 1 + ranks_within(places)
        draws[at] += np.bincount(places, minlength=len(keys))
        return numbers

    def shown_in(self, states: Ints) -> Ints:
        """Return the number of recorded observations in each of [n] states."""
        ends = np.concatenate([[0], np.cumsum(self.emissions["visits"])])
        low, high = (np.searchsorted(self.emissions.keys, each << CODE_BITS) for each in (states, states + 1))
        return np.asarray(ends[high] - ends[low], np.int64)

    def _add_emissions(self, states: Ints, signals: Ints) -> None:
        """Count observations in their order."""
        numbers = self.shown_in(states) + 1 + ranks_within(states)
        _count(self.emissions, (states << CODE_BITS) + signals, numbers)

    def _add_visits(self, steps: Steps) -> None:
        if not len(steps.visited):
            return
        codes, places = np.unique(steps.visited, return_inverse=True)
        at = self.visited.places(codes)
        table = self.visited.columns
        numbers = table["seen"][at][places] + ranks_within(places)
        table["seen"][at] += np.bincount(places, minlength=len(codes))
        np.add.at(table["true"], at[places], steps.holds)
        np.add.at(table["known"], at[places], steps.known)
        if steps.features.shape[1]:
            np.add.at(table["sum"], at[places], steps.features)
            self._sample(steps.features, at[places])
            self._keep(steps.features, at[places], mixed(steps.visited, numbers))

    def _sample(self, features: AnyArray, at: Ints) -> None:
        """Replace samples by inputs that are nearer to the mean of their state so far.

        Distances are in standard deviations of the batch.
        """
        table = self.visited.columns
        scale = np.maximum(features.std(axis=0), 1e-12)
        means = table["sum"] / np.maximum(table["seen"], 1)[:, None]
        distance = (((features - means[at]) / scale) ** 2).sum(axis=1)
        order = np.lexsort((distance, at))
        best = order[np.concatenate([[True], np.diff(at[order]) > 0])]
        held = (((table["sample"][at[best]] - means[at[best]]) / scale) ** 2).sum(axis=1)
        nearer = best[~(held <= distance[best])]  # NaN means that there is no sample yet
        table["sample"][at[nearer]] = features[nearer]

    def _keep(self, features: AnyArray, at: Ints, priority: Ints) -> None:
        """Keep the inputs with the smallest priorities of each state.

        Priorities are hashes, so the result does not depend on the division into batches.
        """
        table, width = self.visited.columns, features.shape[1]
        most = max(min(KEPT, KEPT_NUMBERS // (len(self.visited) * (width + 1))), 1)
        if most < table["priority"].shape[1]:
            table["priority"], table["kept"] = table["priority"][:, :most], table["kept"][:, : most * width]
            self.visited.fills |= {"priority": (LAST, most), "kept": (np.nan, most * width)}
        new = np.flatnonzero(priority < table["priority"][at, -1])
        places, group = np.unique(at[new], return_inverse=True)
        groups = np.concatenate([np.repeat(np.arange(len(places)), most), group])
        every = np.concatenate([table["priority"][places].reshape(-1), priority[new]])
        inputs = np.concatenate([table["kept"][places].reshape(-1, width), features[new]])
        order = np.lexsort((every, groups))
        least = order[ranks_within(groups[order]) < most]
        table["priority"][places] = every[least].reshape(-1, most)
        table["kept"][places] = inputs[least].reshape(-1, most * width)


def _count(table: Table, entries: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """Count entries [n] in their order; `numbers` [n]: number of each record within its row, from 1.

    Returns the places of the different entries in the table [k], and for each entry the index of its place [n].
    """
    keys, first, places = np.unique(entries, return_index=True, return_inverse=True)
    at, columns = table.places(keys), table.columns
    fresh = columns["visits"][at] == 0
    columns["first"][at[fresh]] = numbers[first[fresh]]
    columns["visits"][at] += np.bincount(places, minlength=len(keys))
    return at, places


def mixed(*parts: Ints) -> Ints:
    """Return a hash of each row of numbers, [n] int64, not negative (SplitMix64, Steele, Lea and Flood 2014)."""
    state: Words = np.zeros(len(parts[0]), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            state = (state ^ part.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
    hashed: Ints = (state >> np.uint64(1)).astype(np.int64)
    return hashed


def ranks_within(groups: Ints) -> Ints:
    """Return for each entry the number of earlier entries of the same group.

    >>> ranks_within(np.array([5, 3, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    begins = np.flatnonzero(np.concatenate([[True], np.diff(ordered) != 0])[: len(ordered)])
    sizes = np.diff(np.append(begins, len(ordered)))
    ranks = np.zeros(len(groups), np.int64)
    ranks[order] = np.arange(len(ordered)) - np.repeat(begins, sizes)
    return ranks
