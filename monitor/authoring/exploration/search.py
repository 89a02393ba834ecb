"""Breadth-first search over the states of a simulator.

Each state is expanded once, so only waiting states need snapshots. If different situations may share a key, the search
also takes the steps from a second situation with this key, and compares them with the steps from the first. If any step
differs, the search fails, because the model would be wrong. `walks.py` finds differences that appear only later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from monitor.authoring.exploration.explorable import Arrival, Explorable, SimulatorSnapshot
from monitor.authoring.exploration.identity import Flat, shown
from monitor.errors import ModelError
from monitor.model.annotations import Valuation

ALTERNATES: Final = 1
"""Number of further situations with the key of a state that are compared with the first."""

Progress = Callable[[int, int], None]
"""Called with the numbers of states expanded and found."""


@dataclass(slots=True)
class Successor:
    """One successor of a row. `low` and `high`: smallest and largest observed reward."""

    target: int
    probability: float
    low: float
    high: float


@dataclass(slots=True)
class ExploredState:
    """A state.

    Attributes:
        key: key of the state.
        terminated: True if an episode ended in this state. The state is then absorbing.
        observation: flattened observation, or None.
        labels: labels that the user's function returned.
        parent, action: state and action by which this state was first reached; -1 at the start.
        rewards: rewards of the steps into this state.
        snapshot: snapshot to continue from; None after the state was expanded.
        alternates: snapshots of further situations with the same key, to compare.
        compared: number of alternates so far, both those waiting and those compared.
    """

    key: Valuation
    terminated: bool
    observation: Flat | None
    labels: frozenset[str]
    parent: int
    action: int
    rewards: set[float] = field(default_factory=set)
    snapshot: SimulatorSnapshot = None
    alternates: list[SimulatorSnapshot] = field(default_factory=list)
    compared: int = 0


@dataclass
class SearchResult:
    """Result of a search: `rows[s][a]` lists the entries of a row, and is empty for a terminated state."""

    nodes: list[ExploredState] = field(default_factory=list)
    rows: list[list[list[Successor]]] = field(default_factory=list)
    initial: dict[int, float] = field(default_factory=dict)
    numbers: dict[tuple[Valuation, bool], int] = field(default_factory=dict)

    def actions_to(self, number: int) -> list[int]:
        """Return the actions that first led to a state."""
        taken: list[int] = []
        while self.nodes[number].parent >= 0:
            taken.append(self.nodes[number].action)
            number = self.nodes[number].parent
        return taken[::-1]


def search(simulator: Explorable, max_states: int, report: Progress = lambda _, __: None) -> SearchResult:
    """Return all reachable states in breadth-first order.

    Raises ModelError if there are more than `max_states` states, if different situations share a key, or if the
    simulator raises it.
    """
    found = SearchResult()
    for arrival in simulator.starts():
        number = _number(simulator, found, arrival, (-1, -1), max_states)
        found.initial[number] = found.initial.get(number, 0.0) + arrival.probability
    number = 0
    while number < len(found.nodes):
        found.rows.append([])
        if not found.nodes[number].terminated:
            _expand(simulator, found, number, max_states)
        number += 1
        report(number, len(found.nodes))
    return found


def _expand(simulator: Explorable, found: SearchResult, number: int, max_states: int) -> None:
    node = found.nodes[number]
    for action in range(simulator.actions):
        row = [
            Successor(
                _number(simulator, found, arrival, (number, action), max_states), arrival.probability, *arrival.rewards
            )
            for arrival in simulator.step(node.snapshot, action)
        ]
        found.rows[number].append(row)
    if not any(found.rows[number]):
        raise ModelError(
            f"state {shown(node.key)}: no action is available there; if an episode ends in it, return it as terminated"
        )
    node.snapshot = None
    for alternate in node.alternates:
        _compare(simulator, found, number, alternate)
    node.alternates = []


def _number(
    simulator: Explorable, found: SearchResult, arrival: Arrival, before: tuple[int, int], max_states: int
) -> int:
    """Return the number of the reached state. If the state's key is new, the state gets a new number."""
    number = found.numbers.get((arrival.key, arrival.terminated))
    if number is None:
        return _new(simulator, found, arrival, before, max_states)
    node = found.nodes[number]
    node.rewards.update(arrival.rewards if before[0] >= 0 else ())
    if not _same(node.observation, arrival.observation):
        raise ModelError(
            f"state {shown(node.key)}: it was observed in two ways, so the observation depends on more than the state "
            f"({simulator.identified}); give a --key that includes this, or --key observation"
        )
    if simulator.aliasing and not node.terminated and node.compared < ALTERNATES and before[0] != node.parent:
        node.compared += 1
        if len(found.rows) > number and found.rows[number] and node.snapshot is None:
            _compare(simulator, found, number, arrival.snapshot)
        else:
            node.alternates.append(arrival.snapshot)
    return number


def _new(simulator: Explorable, found: SearchResult, arrival: Arrival, before: tuple[int, int], max_states: int) -> int:
    number = len(found.nodes)
    if number >= max_states:
        raise ModelError(
            f"more than {max_states:,} states were found; raise --max-states if the environment is larger, or merge "
            "states by --key module.py:function. A step counter or a continuous number in the key never repeats"
        )
    labels = frozenset(simulator.labels(arrival.snapshot))
    node = ExploredState(arrival.key, arrival.terminated, arrival.observation, labels, *before)
    if before[0] >= 0:
        node.rewards.update(arrival.rewards)
    node.snapshot = None if arrival.terminated else arrival.snapshot
    found.nodes.append(node)
    found.numbers[arrival.key, arrival.terminated] = number
    return number


def _compare(simulator: Explorable, found: SearchResult, number: int, snapshot: SimulatorSnapshot) -> None:
    """Compare a second situation with the row of the first, and widen the rewards. Raises ModelError if they differ."""
    for action, row in enumerate(found.rows[number]):
        # A simulator with aliasing is deterministic: an action has one successor, or none if it is unavailable.
        arrivals, node = simulator.step(snapshot, action), found.nodes[number]
        once = shown(found.nodes[row[0].target].key) if row else "nothing (unavailable)"
        again = shown(arrivals[0].key) if arrivals else "nothing (unavailable)"
        targets = [found.numbers.get((arrival.key, arrival.terminated)) for arrival in arrivals]
        if targets != [entry.target for entry in row]:
            raise ModelError(
                f"{simulator.identified} does not identify a state: in {shown(node.key)}, action {action} led to "
                f"{once} once (after actions {found.actions_to(number)}) and to {again} "
                "another time; give --key module.py:function that returns everything a step depends on"
            )
        for entry, arrival in zip(row, arrivals, strict=True):
            entry.low, entry.high = min(entry.low, arrival.rewards[0]), max(entry.high, arrival.rewards[1])
            found.nodes[entry.target].rewards.update(arrival.rewards)


def _same(one: Flat | None, other: Flat | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
