"""Bounds over causal models if states are hidden: the true and the counterfactual path together, evaluated backwards.

1. A node is that of `hidden_values`. Its bound is the largest sum of probability times value, where the probability
   includes that of all later observations, and each coupling is chosen separately at each node.
2. A causal model couples the observations of the true and the counterfactual state, and the successors of their rows.
   The same state shows the same observation, and the same row of the same model has the same successor.
3. The noise of actions is Gumbel noise, so the counterfactual action is that of `hidden_values`.
4. Beyond the last pair the noise is not observed, and values are those of `hidden_values`.
5. The lower bound is minus the largest sum of the negative values.

Because the couplings of different nodes may exclude each other, the bounds may be wider than necessary. They are never
too narrow.

Definition: docs/semantics/hidden.md, section 16.10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from monitor.logic.syntax import Const, Goal, InterventionRef
from monitor.referee.hidden_path import Happening, Place
from monitor.referee.hidden_values import Chances, Depending, Edges, HiddenUnroll, Node, Other, Present, Step, Then
from monitor.referee.transition import Aim
from monitor.referee.transport import largest_gain
from monitor.referee.world import MAIN, Frame

Move = tuple[int | None, tuple[int, ...], int, int]
"""The true action and the memories after it, the counterfactual action and the memory after it."""
ONE: Chances = [(0, 1.0)]
SIGNS: Mapping[Aim, float] = {"value": 0.0, "least": -1.0, "most": 1.0}


class Coupling(NamedTuple):
    """Two distributions whose outcomes a causal model couples.

    `sign`: 1 for the largest mean, -1 for the least. `same`: whether the outcomes are the same.
    """

    true: Chances
    other: Chances
    sign: float
    same: bool

    @property
    def cells(self) -> Iterator[tuple[int, int]]:
        """The pairs of outcomes, by number, that are possible together."""
        for i in range(len(self.true)):
            yield from ((i, i),) if self.same else ((i, j) for j in range(len(self.other)))

    def mean(self, gain: Callable[[tuple[int, int]], float]) -> float:
        """Return the bound of the mean of `gain`, a function of a cell."""
        if self.same:
            return sum(chance * gain((n, n)) for n, (_, chance) in enumerate(self.true))
        gains = [[self.sign * gain((i, j)) for j in range(len(self.other))] for i in range(len(self.true))]
        return self.sign * largest_gain([p for _, p in self.true], [q for _, q in self.other], gains)


class Coupled(NamedTuple):
    """What the bound of a node depends on, in place of `Edges`.

    `shown`: the two observations. `moves`: the weights of the moves after each pair of observations that happened.
    `after`: for each move the two successors, and for each pair of these what the value there depends on.
    """

    shown: Coupling
    moves: Mapping[tuple[int, int], Sequence[tuple[Move, float]]]
    after: Mapping[Move, tuple[Coupling, Mapping[tuple[int, int], Edges]]]

    @property
    def to(self) -> Iterator[Node]:
        """The nodes on which the bound depends."""
        return (node for _, cells in self.after.values() for edges in cells.values() for node in edges.to)

    def value(self, known: Mapping[Node, float]) -> float:
        """Return the bound; `known`: the bounds of the nodes on which it depends."""
        moved = dict[Move, float]()
        for move, (coupling, cells) in self.after.items():
            values = {cell: edges.value(known) for cell, edges in cells.items()}
            moved[move] = coupling.mean(values.__getitem__)
        return self.shown.mean(lambda cell: sum(weight * moved[move] for move, weight in self.moves.get(cell, ())))


class HiddenBounds(HiddenUnroll):
    """Evaluator of the measures in one query on hidden states, with bounds; arguments are those of `HiddenUnroll`."""

    _sign = 0.0
    """1 for the largest value, -1 for the least, 0 if no bounds are wanted."""

    def _measure(self, goal: Goal, change: InterventionRef, frame: Frame, aim: Aim) -> float:
        self._sign = SIGNS[aim]
        return super()._measure(goal, change, frame, aim)

    def _edges(self, now: Present, node: Node) -> Depending:
        place, state, then = node.true, node.other.state, self._read(node)
        if not (self._sign and isinstance(place, Place)) or (isinstance(then[0], Const) and not then[1]):
            return super()._edges(now, node)
        happened: defaultdict[int, list[Happening]] = defaultdict(list)
        for each in self._watched.happenings(now.k, place):
            happened[each.observation].append(each)
        true, other = self._minds.model.shown(place.state), self._minds.model.shown(state)
        shown, moves = Coupling(true, other, self._sign, same=state == place.state), {}
        for i, j in shown.cells:
            (seen, chance), (read, _) = true[i], other[j]
            if seen in happened:
                self._spend(1)
                chance *= self._watched.chances[now.k]
                moves[i, j] = [
                    ((each.action, each.memories, action, memory), each.chance / chance * likely)
                    for each in happened[seen]
                    for action, memory, likely in self._acts(now, place, each, node.other, read)
                ]
        different = dict.fromkeys(move for each in moves.values() for move, _ in each)
        return Coupled(shown, moves, {move: self._after(now, node, then, move) for move in different})

    def _after(
        self, now: Present, node: Node, then: Then, move: Move
    ) -> tuple[Coupling, Mapping[tuple[int, int], Edges]]:
        """Return an entry of `Coupled.after`.

        `then`: the residual after the labels were read, and whether the reward of this step counts.
        """
        taken, memories, action, memory = move
        state, model, place = node.other.state, now.world.now.model, node.true
        assert isinstance(place, Place)
        targets = self._row(model, state, action)
        if now.k == self._last:  # from here on, the noise is not observed
            end = place.state if self._terminated else None
            steps: list[Step] = [(end, Other(each, memory), action, chance) for each, chance in targets]
            steps = [(end, node.other, None, 1.0)] if end == state else steps
            return Coupling(ONE, ONE, self._sign, same=True), {(0, 0): self._gathered(now.k, state, then, steps)}
        assert taken is not None
        row = self._watched.successors(place.state, taken)
        same = (place.state, taken, MAIN) == (state, action, model)
        coupling, cells = Coupling(row, targets, self._sign, same=same), dict[tuple[int, int], Edges]()
        self._spend(len(row) * len(targets) * (len(row) + len(targets)) // 20)  # about as long as that many steps
        for i, j in coupling.cells:
            true, reached = Place(row[i][0], memories), Other(targets[j][0], memory)
            possible = self._ahead(now.k + 1, true) > 0.0
            cells[i, j] = self._gathered(now.k, state, then, [(true, reached, action, 1.0)] if possible else [])
        return coupling, cells
