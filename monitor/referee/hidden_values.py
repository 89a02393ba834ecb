"""Values of goals if states are hidden: factual and counterfactual paths together, evaluated backwards.

1. A node of an observed pair is a place (`hidden_path`), the counterfactual state with the memory of the policy in
   force, and the residual of the formula. A node beyond the last pair has no place. If the episode has ended, the node
   has the end state instead of a place. The end state is absorbing there.
2. The value of a node is a sum over the possible observations and actions at the pair, and over the next true state.
   Each term is a probability times a mean. The probability is that of the observation, the action and the next true
   state. The mean is over the counterfactual observation, action and next state with the same noise. Each of these
   three has the closed form of `row.py`.
3. The value of a residual that is true is the probability of the later observations (`HiddenPath.ahead`), because these
   still influence the probability of a place. A reward is weighted in the same way.
4. If no other policy is in force, the observed action is taken in the true state, even if the policy would not take
   it. This requires that the policy's counterfactual memory equals its true memory.

Nodes are found forwards and evaluated backwards.

Definition: docs/semantics/hidden.md, section 16.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError
from monitor.logic.syntax import Const, Goal, InterventionRef, Label, Probability, Reward
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader
from monitor.referee.hidden_path import Happening, HiddenPath, Place
from monitor.referee.residual import TRUE, Residual, collect, expand
from monitor.referee.row import counterfactual
from monitor.referee.transition import Aim
from monitor.referee.unroll import OPPOSITE
from monitor.referee.world import MAIN, CounterfactualWorld, Frame, intervene, position

LIMIT = 500_000
"""Largest number of nodes and edges of one query."""

Chances = list[tuple[int, float]]
Decision = tuple[int, int, float]
"""An action, the memory after it, and the probability."""


class Other(NamedTuple):
    """The counterfactual state, and the memory of the policy in force there."""

    state: int
    memory: int


class Node(NamedTuple):
    """A node. `true`: the true place; beyond the last pair, the state in which the episode ended, or None."""

    true: Place | int | None
    other: Other
    residual: Residual


Step = tuple[Place | int | None, Other, int | None, float]
"""The next true place, the next counterfactual state, the action (None if the episode has ended), and the weight."""
Then = tuple[Residual, bool]
"""The residual after labels are read, and whether the reward of this step counts."""


class Present(NamedTuple):
    """An offset of a world: the world from there on, the index of the pair, and the policy whose memory is kept."""

    world: CounterfactualWorld
    k: int
    carried: Reader


class Depending(Protocol):
    """What the value of a node depends on."""

    @property
    def to(self) -> Iterable[Node]:
        """The nodes on which the value depends."""

    def value(self, known: Mapping[Node, float]) -> float:
        """Return the value of the node; `known`: the values of the nodes on which it depends."""


class Edges(NamedTuple):
    """Edges of a node: the decided part of its value, and the weight of each node on which its value depends."""

    settled: float
    to: Mapping[Node, float]

    def value(self, known: Mapping[Node, float]) -> float:
        """Return the value; `known`: the values of the nodes on which it depends."""
        return self.settled + sum(weight * known[after] for after, weight in self.to.items())


class HiddenUnroll:
    """Evaluator of the measures in one query on hidden states.

    Args:
        watched: the path.
        models: name -> model; the main model has the name `MAIN`.
        actions: the index of each action that a `do(..)` names.
        terminated: whether the episode has ended at the last pair.
    """

    def __init__(
        self, watched: HiddenPath, models: Mapping[str, MDP], actions: Mapping[str, int], *, terminated: bool
    ) -> None:
        self._watched, self._minds, self._models, self._actions = watched, watched.minds, models, actions
        self._terminated, self._last = terminated, len(watched.pairs) - 1
        self._rows: dict[tuple[object, ...], Chances] = {}
        self._decided: dict[tuple[object, ...], list[Decision]] = {}
        self._count = 0

    def quantity(self, goal: Goal, frame: Frame, aim: Aim = "value") -> float:
        """Return the value of a goal's measure; `frame`: the path, with the policies that acted.

        Raises:
            LimitError: more than `LIMIT` edges are needed.
        """
        value = self._measure(goal, goal.world.change, frame, aim)
        if goal.world.baseline is not None:
            value -= self._measure(goal, goal.world.baseline, frame, OPPOSITE[aim])
        if isinstance(goal.measure, Probability):  # rounding may exceed the range
            value = min(max(value, 0.0 if goal.world.baseline is None else -1.0), 1.0)
        return value

    def _measure(self, goal: Goal, change: InterventionRef, frame: Frame, aim: Aim) -> float:
        """Return the value under one change; `hidden_bounds` returns a bound, as `aim` says."""
        del aim
        _, start = position(goal.world.offset, len(frame.steps))
        world = intervene(frame, start, change, self._actions[change.name] if change.kind == "action" else None)
        takes_over = change.kind == "policy"
        carried = self._minds.readers[change.name if takes_over else "nominal"]
        first: Residual = goal.measure.path if isinstance(goal.measure, Probability) else goal.measure
        roots = {
            place: Node(place, Other(place.state, self._begins(carried, place, takes_over=takes_over)), first)
            for place in self._watched.prior(start)
        }
        layers: list[dict[Node, Depending]] = []
        wanted, k = set(roots.values()), start
        while wanted:
            layer = {node: self._edges(Present(world, k, carried), node) for node in wanted}
            layers.append(layer)
            wanted = {after for edges in layer.values() for after in edges.to}
            world, k = world.later(), k + 1
        known: dict[Node, float] = {}
        for layer in reversed(layers):
            known = {node: edges.value(known) for node, edges in layer.items()}
        return sum(weight * known[roots[place]] for place, weight in self._watched.prior(start).items())

    def _begins(self, carried: Reader, place: Place, *, takes_over: bool) -> int:
        """Return the memory of the policy in force at the intervention."""
        fresh = takes_over and not carried.shadows
        return 0 if fresh else self._minds.remembered(carried, place.memories)

    def _edges(self, now: Present, node: Node) -> Depending:
        """Return the edges of a node at pair `k`, or beyond the last one."""
        after, earns = then = self._read(node)
        self._spend(1)
        if isinstance(after, Const) and not earns:
            return Edges(self._ahead(now.k, node.true) if after == TRUE else 0.0, {})
        return self._gathered(now.k, node.other.state, then, self._steps(now, node))

    def _read(self, node: Node) -> Then:
        residual = node.residual
        if isinstance(residual, Reward):
            return collect(residual), residual.low == 0
        return expand(residual, self._truth(node.other.state)), False

    def _gathered(self, k: int, state: int, then: Then, steps: Iterable[Step]) -> Edges:
        """Return the edges of a node at pair `k` with these steps; `state`: its counterfactual state."""
        after, earns = then
        to: defaultdict[Node, float] = defaultdict(float)
        settled = 0.0
        for true, other, action, weight in steps:
            self._spend(1)
            if earns and action is not None:
                reward = self._models[MAIN].reward(state, action, other.state)
                settled += weight * reward * self._ahead(k + 1, true)
            if after == TRUE:
                settled += weight * self._ahead(k + 1, true)
            elif not isinstance(after, Const):
                to[Node(true, other, after)] += weight
        return Edges(settled, to)

    def _spend(self, steps: int) -> None:
        """Count steps of the evaluation. Raises LimitError beyond `LIMIT`."""
        self._count += steps
        if self._count > LIMIT:
            raise LimitError(
                f"the referee follows at most {LIMIT:,} steps of what happened and what would have happened in one "
                "query, and this one needs more; only the exact engine can answer it"
            )

    def _truth(self, state: int) -> Callable[[Label | Goal], bool]:
        labels = self._models[MAIN].labels

        def truth(atom: Label | Goal) -> bool:
            assert isinstance(atom, Label)
            return bool(labels[atom.name][state])

        return truth

    def _ahead(self, k: int, true: Place | int | None) -> float:
        """Return the relative probability of the observations from pair `k` on, given the place; 1 beyond the path."""
        return self._watched.ahead[k].get(true, 0.0) if isinstance(true, Place) else 1.0

    def _steps(self, now: Present, node: Node) -> Iterator[Step]:
        """Yield the possible next true places and counterfactual states, each with the action and the weight.

        The action is None if the episode has ended.
        """
        if not isinstance(node.true, Place):
            yield from self._free(now, node.true, node.other)
            return
        place, chance_of_pair = node.true, self._watched.chances[now.k]
        for each in self._watched.happenings(now.k, place):
            weight = each.chance / chance_of_pair
            if now.k == self._last:
                end = place.state if self._terminated else None
                if end == node.other.state:
                    yield end, node.other, None, weight
                    continue
                for action, memory, chance in self._decisions(now, place, each, node.other):
                    for successor, part in self._row(now.world.now.model, node.other.state, action):
                        yield end, Other(successor, memory), action, weight * chance * part
                continue
            assert each.action is not None
            reached = self._watched.successors(place.state, each.action)
            for action, memory, chance in self._decisions(now, place, each, node.other):
                for outcome, part in reached:
                    true = Place(outcome, each.memories)
                    if self._ahead(now.k + 1, true) == 0.0:
                        continue
                    at = place.state, each.action, outcome
                    for successor, same in self._same_noise(at, now.world.now.model, node.other.state, action):
                        yield true, Other(successor, memory), action, weight * chance * part * same

    def _free(
        self, now: Present, end: int | None, other: Other
    ) -> Iterator[tuple[int | None, Other, int | None, float]]:
        """Yield the possible next states beyond the last pair, like `_steps`."""
        if end is not None and end == other.state:
            yield end, other, None, 1.0
            return
        key = now.world.now.policy, now.carried, other
        if key not in self._decided:
            self._decided[key] = [
                (action, memory, shown * float(chosen[action]))
                for read, shown in self._minds.model.shown(other.state)
                for chosen, memory in [self._chosen(now, other, read)]
                for action in np.flatnonzero(chosen).tolist()
            ]
        for action, memory, chance in self._decided[key]:
            for successor, part in self._row(now.world.now.model, other.state, action):
                yield end, Other(successor, memory), action, chance * part

    def _decisions(self, now: Present, place: Place, each: Happening, other: Other) -> list[Decision]:
        """Return the counterfactual decisions at a pair."""
        key = now.k, now.world.now.policy, now.world.changed == 0, now.carried, place, each, other
        if key not in self._decided:
            self._decided[key] = list(self._decide(now, place, each, other))
        return self._decided[key]

    def _decide(self, now: Present, place: Place, each: Happening, other: Other) -> Iterator[Decision]:
        for read, shown in self._same_sight(place.state, each.observation, other.state):
            for action, memory, chance in self._acts(now, place, each, other, read):
                yield action, memory, shown * chance

    def _acts(self, now: Present, place: Place, each: Happening, other: Other, read: int) -> Iterator[Decision]:
        """Yield the counterfactual decisions at a pair after the observation `read`."""
        here = Other(place.state, self._minds.remembered(now.carried, place.memories))
        chosen, memory = self._chosen(now, other, read)
        if each.action is not None and now.world.changed == 0 and other == here:
            yield each.action, memory, 1.0
            return
        if each.action is not None:
            reader = self._minds.readers[self._watched.acted[now.k]]
            took = np.array(self._minds.choice(reader, place.memories, place.state, each.observation))
            if took[each.action] > 0.0:
                chosen = counterfactual(took, chosen, each.action)
        for action in np.flatnonzero(chosen).tolist():
            yield action, memory, float(chosen[action])

    def _chosen(self, now: Present, other: Other, read: int) -> tuple[Floats, int]:
        """Return the distribution [A] of the action with prior noise, and the memory after it."""
        policy = now.world.now.policy
        if not isinstance(policy, str):
            always: Floats = np.eye(1, self._minds.model.actions, policy)[0]
            return always, 0
        reader = self._minds.readers[policy]
        memory = other.memory if reader is now.carried else 0
        seen = other.state if reader.sees_state else read
        after, chosen = reader.read(memory, seen)
        return chosen, after

    def _row(self, model: str, state: int, action: int) -> Chances:
        key = model, state, action
        if key not in self._rows:
            successors, chances = self._models[model].row(state, action)
            self._rows[key] = list(zip(successors.tolist(), chances.tolist(), strict=True))
        return self._rows[key]

    def _same_noise(self, at: tuple[int, int, int], model: str, state: int, action: int) -> Chances:
        """Return successors of another pair, given the transition `at` (state, action, successor) of the main model."""
        key = at, model, state, action
        if key not in self._rows:
            row = self._row(MAIN, *at[:2])
            self._rows[key] = _with_same_noise(row, at[2], self._row(model, state, action))
        return self._rows[key]

    def _same_sight(self, state: int, observation: int, other: int) -> Chances:
        """Return the observations in another state, given the actual observation in `state`."""
        key = "sight", state, observation, other
        if key not in self._rows:
            shown = self._minds.model.shown
            self._rows[key] = _with_same_noise(shown(state), observation, shown(other))
        return self._rows[key]


def _with_same_noise(observed: Chances, outcome: int, asked: Chances) -> Chances:
    """Return the outcomes of the distribution `asked`, given that `observed` gave `outcome` with the same noise."""
    if observed == asked:
        return [(outcome, 1.0)]
    both = sorted({each for each, _ in observed} | {each for each, _ in asked})
    p, q = (np.array([dict(given).get(each, 0.0) for each in both]) for given in (observed, asked))
    found = counterfactual(p, q, both.index(outcome))
    return [(each, chance) for each, chance in zip(both, found.tolist(), strict=True) if chance > 0.0]
