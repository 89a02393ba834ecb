"""How an answer uses the rows of the model: expected unobserved uses of each row, and effect of the row on the value.

Both are computed by a forward pass over the nodes (state, obligation) of one world, from the intervention state to the
last offset at which an obligation remains. Unlike the compiled evaluation, this pass keeps the nodes that it visits.
Definitions: docs/semantics/learned-models.md, section 13.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal import CounterfactualWorld
from monitor.errors import LimitError
from monitor.exact.bellman import Entries, layers
from monitor.exact.forward.evaluator import closing_values
from monitor.exact.value_table import ValueTable
from monitor.logic import FALSE, TRUE
from monitor.logic.syntax import Measure, Probability, Reward
from monitor.model import MDP

MAX_USES = 20_000
"""Largest number of pairs (node, action) visited along the observed path. Visiting them takes about half a second."""

Node = tuple[int, int]
"""A state, and the obligation pending in it before its labels are read."""


@dataclass(frozen=True, eq=False)
class RowUses:
    """Uses of the rows of one model in one world.

    `weights` [S*A]: for each row, the expected number of uses with an outcome that matters but is not observed. `moves`
    [N], aligned with the model's successors: the sum, over these uses, of weight times the difference between the
    successor's value and the mean over the row. `spread` [S*A]: the sum of weight times the length of the interval that
    contains all possible values ahead.
    """

    model: MDP
    weights: Floats
    moves: Floats
    spread: Floats

    @classmethod
    def none_of(cls, model: MDP) -> RowUses:
        """Return an object without any uses."""
        rows = model.states * model.actions
        return cls(model, np.zeros(rows), np.zeros(model.successors.size), np.zeros(rows))

    def add(self, other: RowUses, sign: float = 1.0) -> None:
        """Add the uses of another world; `sign`: -1 if the value of the other world is subtracted."""
        self.weights[:] += other.weights
        self.moves[:] += sign * other.moves
        self.spread[:] += other.spread


def row_uses(
    world: CounterfactualWorld, value_table: ValueTable, measure: Measure, starts: Floats | None = None
) -> RowUses:
    """Return the uses of the rows of `world.law.dynamics` by a measure without nested quantities.

    `value_table`: the value table of the world's law and the measure. `starts` [S]: distribution of the first state, if
    the world's path is empty because nothing was observed yet.

    Raises LimitError if more than `MAX_USES` nodes lie along the observed path.
    """
    return _Pass(world, value_table, measure).uses(starts)


@dataclass(frozen=True)
class _Edge:
    """One action in one node along the observed path.

    `chance`: probability of the action. `rest`: the obligation that remains. `replayed`: whether the pair is the
    observed pair.
    """

    node: Node
    action: int
    chance: float
    rest: int
    successors: Ints
    probabilities: Floats
    rewards: Floats
    replayed: bool


class _Pass:
    """The forward pass that the module docstring describes."""

    def __init__(self, world: CounterfactualWorld, value_table: ValueTable, measure: Measure) -> None:
        self._world, self._law, self._table = world, world.law, value_table
        self._automaton, self._labelling = value_table.automaton, value_table.labelling
        model = world.law.dynamics
        self._uses = RowUses.none_of(model)
        lowest, highest = model.reward_range
        self._scale = 1.0 if isinstance(measure, Probability) else highest - lowest
        self._by_horizon = isinstance(measure, Reward)

    def uses(self, starts: Floats | None) -> RowUses:
        offset = max(self._world.observed, 0)
        ahead = self._observed() if starts is None else self._started(starts)
        while ahead:
            ahead = self._beyond(offset, ahead)
            offset += 1
        return self._uses

    def _started(self, starts: Floats) -> dict[int, tuple[Ints, Floats]]:
        """Return states and weights of the start obligation, for a distribution [S] of the first state."""
        start, states = self._automaton.start, np.flatnonzero(starts)
        return {} if start in (FALSE, TRUE) else {start: (states, starts[states])}

    def _observed(self) -> dict[int, tuple[Ints, Floats]]:
        """Add the uses along the observed path; return states and weights of each obligation at the last pair."""
        levels, last = self._observed_levels()
        self._count_observed(levels)
        pending: dict[int, dict[int, float]] = defaultdict(dict)
        for (state, obligation), weight in last.items():
            pending[obligation][state] = weight
        return {o: (np.array(list(part)), np.array(list(part.values()))) for o, part in pending.items()}

    # ---- along the observed path, node by node ----

    def _observed_levels(self) -> tuple[list[tuple[dict[Node, float], list[_Edge]]], dict[Node, float]]:
        """Return node weights and edges at each observed transition, and the node weights at the last pair."""
        level: dict[Node, float] = {}
        start = self._automaton.start
        if start not in (FALSE, TRUE):
            level[self._world.path[0][0], start] = 1.0
        levels, visited = [], 0
        for offset in range(self._world.observed):
            edges = [edge for node in level for edge in self._edges(offset, node)]
            visited += len(edges)
            if visited > MAX_USES:
                raise LimitError(f"the support needs more than {MAX_USES} nodes along the path (limit MAX_USES)")
            levels.append((level, edges))
            level = self._advanced(level, edges)
        return levels, level

    def _edges(self, offset: int, node: Node) -> Iterator[_Edge]:
        state, obligation = node
        world = self._world
        same = self._law.model_at(offset) is world.nominal.model_at(offset)
        for action, chance in world.choices(offset, state):
            rest = self._automaton.step(obligation, self._labelling.one(offset, state, action))
            successors, probabilities = world.row(offset, state, action)
            rewards = np.zeros(len(successors))
            if self._automaton.rewards(obligation):
                rewards = world.rewards(offset, state, action, successors)
            replayed = same and (state, action) == world.path[offset]
            yield _Edge(node, action, chance, rest, successors, probabilities, rewards, replayed)

    @staticmethod
    def _advanced(level: dict[Node, float], edges: list[_Edge]) -> dict[Node, float]:
        ahead: dict[Node, float] = defaultdict(float)
        for edge in edges:
            if edge.rest in (FALSE, TRUE):
                continue
            weight = level[edge.node] * edge.chance
            for successor, probability in zip(edge.successors.tolist(), edge.probabilities.tolist(), strict=True):
                if probability > 0.0:
                    ahead[successor, edge.rest] += weight * probability
        return dict(ahead)

    def _count_observed(self, levels: list[tuple[dict[Node, float], list[_Edge]]]) -> None:
        """Add the uses along the observed path, backward, because each step needs the values ahead."""
        values: dict[Node, float] | None = None
        for offset in range(len(levels) - 1, -1, -1):
            level, edges = levels[offset]
            here: dict[Node, float] = defaultdict(float)
            for edge in edges:
                ahead = self._ahead(offset, edge, values)
                mean = float(edge.probabilities @ ahead)
                here[edge.node] += edge.chance * mean
                if not edge.replayed and self._matters(edge.node[1], edge.rest):
                    weight = level[edge.node] * edge.chance
                    self._count_one(offset, edge, weight, np.where(edge.probabilities > 0.0, ahead - mean, 0.0))
            values = dict(here)

    def _ahead(self, offset: int, edge: _Edge, values: dict[Node, float] | None) -> Floats:
        """Return reward plus value [K] of each successor of an edge; the value of an unreachable successor is 0."""
        if edge.rest in (FALSE, TRUE):
            ahead = np.full(len(edge.successors), float(edge.rest == TRUE))
        elif values is not None:
            ahead = np.array([values.get((successor, edge.rest), 0.0) for successor in edge.successors.tolist()])
        else:
            state, action = self._world.path[-1]
            last = state, -1 if action is None else action
            ahead = closing_values(self._world.nominal, self._table, offset + 1, edge.rest, edge.successors, last)
        return ahead + edge.rewards

    def _count_one(self, offset: int, edge: _Edge, weight: float, moved: Floats) -> None:
        state, obligation = edge.node
        if state == self._law.ended(offset):
            return
        row = state * self._uses.model.actions + edge.action
        begin, end = self._uses.model.indptr[row : row + 2]
        at = begin + np.searchsorted(self._uses.model.successors[begin:end], edge.successors)
        self._uses.weights[row] += weight
        self._uses.moves[at] += weight * moved
        self._uses.spread[row] += weight * self._range(obligation)

    # ---- beyond the observed path, all states of an obligation at once ----

    def _beyond(self, offset: int, pending: dict[int, tuple[Ints, Floats]]) -> dict[int, tuple[Ints, Floats]]:
        """Add the uses at an offset without an observed transition; return states and weights at the next offset."""
        found: dict[int, list[tuple[Ints, Floats]]] = defaultdict(list)
        for obligation, (states, weights) in pending.items():
            for pairs in self._pairs(offset, states, weights):
                for rest, successors, moved in self._parts(offset, obligation, *pairs):
                    found[rest].append((successors, moved))
        ahead: dict[int, tuple[Ints, Floats]] = {}
        for rest, parts in found.items():
            states, inverse = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
            total = np.bincount(inverse, np.concatenate([part[1] for part in parts]))
            ahead[rest] = states, total.astype(np.float64, copy=False)
        return ahead

    def _pairs(self, offset: int, states: Ints, weights: Floats) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield states, actions and weights [n] of the pairs that may be taken."""
        if offset == self._world.observed:  # the last action was observed
            chosen = [
                (state, action, weight * chance)
                for state, weight in zip(states.tolist(), weights.tolist(), strict=True)
                for action, chance in self._world.choices(offset, state)
            ]
            yield (
                np.array([state for state, _, _ in chosen]),
                np.array([action for _, action, _ in chosen]),
                np.array([weight for _, _, weight in chosen]),
            )
            return
        for layer in layers(self._law, offset, states):
            held = weights if layer.places is None else weights[layer.places]
            yield layer.states, layer.actions, held if layer.weights is None else held * layer.weights

    def _parts(
        self, offset: int, obligation: int, states: Ints, actions: Ints, weights: Floats
    ) -> Iterator[tuple[int, Ints, Floats]]:
        """Add the uses of some pairs; yield each obligation that remains, with successors and their weights."""
        masks = self._labelling.many(offset, states, actions)
        for mask in np.unique(masks).tolist():
            rest = self._automaton.step(obligation, mask)
            if not self._matters(obligation, rest):
                continue
            here = masks == mask
            entries = Entries.gather(self._law, offset, states[here], actions[here])
            self._count(offset, obligation, rest, entries, (states[here], actions[here], weights[here]))
            if rest not in (FALSE, TRUE):
                yield rest, entries.successors, weights[here][entries.of] * entries.probabilities

    def _count(
        self, offset: int, obligation: int, rest: int, entries: Entries, pairs: tuple[Ints, Ints, Floats]
    ) -> None:
        states, actions, weights = pairs
        model = self._uses.model
        rows = states * model.actions + actions
        ahead = self._table.values(offset + 1, rest, entries.successors)
        kept = states != self._law.ended(offset)
        entry_kept = kept[entries.of]
        places = np.arange(len(entries.of)) - np.searchsorted(entries.of, entries.of)
        at = (model.indptr[rows][entries.of] + places)[entry_kept]
        if self._automaton.rewards(obligation) and model.transition_rewards is not None:
            ahead = ahead.copy()
            ahead[entry_kept] += model.transition_rewards[at]
        moved = weights[entries.of] * (ahead - entries.means(ahead)[entries.of])
        np.add.at(self._uses.moves, at, moved[entry_kept])
        np.add.at(self._uses.weights, rows[kept], weights[kept])
        np.add.at(self._uses.spread, rows[kept], weights[kept] * self._range(obligation))

    def _matters(self, obligation: int, rest: int) -> bool:
        """Return whether the outcome of a row may change the value.

        The outcome matters if an obligation remains, or if the reward depends on the outcome.
        """
        if rest not in (FALSE, TRUE):
            return True
        return self._automaton.rewards(obligation) and self._law.dynamics.transition_rewards is not None

    def _range(self, obligation: int) -> float:
        """Return the length of the interval that contains all possible values of an obligation."""
        return self._scale * (self._automaton.horizon(obligation) if self._by_horizon else 1)
