"""Every history of a world up to a horizon as an explicit tree, and sets of its complete paths as bits.

A complete path is (x_0, a_0) .. (x_h, a_h). Paths are numbered depth first, so the paths through a node are a run of
numbers, and a set of paths is an integer with one bit for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import lcm

from tests.oracle.race import ONE, ZERO
from tests.oracle.syntax import Compare
from tests.oracle.worlds import Laws, Range, World, best_row

Truths = Mapping[Compare, bool]
# Where nested comparisons may have either truth: the assignments to choose from at a history.
Choices = Callable[[int, tuple[tuple[int, int], ...]], list[Truths]]
NO_CHOICE: list[Truths] = [{}]


class Node:
    """A history that ends in (state, action), with the truths chosen on the way."""

    __slots__ = ("action", "branches", "count", "first", "history", "offset", "state", "truths", "weight")

    def __init__(self, history: tuple[tuple[int, int], ...], weight: Fraction, truths: Truths) -> None:
        self.history = history
        self.state, self.action = history[-1]
        self.offset = len(history) - 1
        self.weight = weight
        self.truths = truths
        self.first = self.count = 0
        self.branches: list[tuple[Range, Fork]] = []

    @property
    def bits(self) -> int:
        """Return the set of complete paths through this node."""
        return ((1 << self.count) - 1) << self.first


# In a state: the probability of each action, and the node of that action for each choice of truths.
Fork = list[tuple[Fraction, list[Node]]]


class Tree:
    """The histories of a world.

    Args:
        laws: of the setting.
        world: whose histories.
        horizon: offset of the last pair.
        kind: `gumbel`: successors with their probabilities; `any`, `stable`: with limits of them.
        choices: for bounds of formulas with nested comparisons whose truth is open.
    """

    def __init__(self, laws: Laws, world: World, horizon: int, kind: str, choices: Choices | None = None) -> None:
        self.laws = laws
        self.world = world
        self.horizon = horizon
        self._kind = kind
        self._choices = choices
        self.levels: list[list[Node]] = [[] for _ in range(horizon + 1)]
        self.leaves = 0
        self.root = self._fork(world.path[0][0], (), ONE)
        self.everything = (1 << self.leaves) - 1
        self._weights: tuple[list[int], int] | None = None

    def _fork(self, state: int, before: tuple[tuple[int, int], ...], weight: Fraction) -> Fork:
        time = self.world.start + len(before)
        fork: Fork = []
        for action, chance in self.laws.actions(self.world, time, state).items():
            history = (*before, (state, action))
            choices = self._choices(len(before), history) if self._choices else NO_CHOICE
            fork.append((chance, [self._node(history, weight * chance, truths) for truths in choices]))
        return fork

    def _node(self, history: tuple[tuple[int, int], ...], weight: Fraction, truths: Truths) -> Node:
        node = Node(history, weight, truths)
        node.first = self.leaves
        self.levels[node.offset].append(node)
        if node.offset == self.horizon:
            self.leaves += 1
        else:
            for item in self._row(node):
                node.branches.append((item, self._fork(item[0], history, weight * item[2])))
        node.count = self.leaves - node.first
        return node

    def _row(self, node: Node) -> list[Range]:
        time = self.world.start + node.offset
        if self._kind == "gumbel":
            return [(k, w, w) for k, w in self.laws.successors(self.world, time, node.state, node.action).items()]
        return self.laws.ranges(self.world, time, node.state, node.action, self._kind)

    def probability(self, paths: int) -> Fraction:
        """Return the probability of a set of complete paths; of a `gumbel` tree only."""
        if self._weights is None:
            leaves = self.levels[-1]
            common = lcm(*(leaf.weight.denominator for leaf in leaves))
            self._weights = [leaf.weight.numerator * (common // leaf.weight.denominator) for leaf in leaves], common
        weights, common = self._weights
        total = 0
        while paths:
            low = paths & -paths
            total += weights[low.bit_length() - 1]
            paths ^= low
        return Fraction(total, common)

    def expected_reward(self, first: int, last: int) -> Fraction:
        """Return the expected sum of rewards at offsets first..last < horizon; of a `gumbel` tree only."""
        total = ZERO
        for offset in range(first, last + 1):
            for node in self.levels[offset]:
                for (successor, _, chance), _ in node.branches:
                    total += node.weight * chance * self._reward(node, successor)
        return total

    def extreme_probability(self, paths: int, sign: int) -> Fraction:
        """Return the largest (1) or smallest (-1) probability of a set of paths over all rows and choices."""

        def of(node: Node) -> Fraction:
            mine = node.bits
            inside = paths & mine
            if not inside:
                return ZERO
            if inside == mine:
                return ONE
            values = [self._best(fork, of, sign) for _, fork in node.branches]
            return best_row([item for item, _ in node.branches], values, sign)

        return self._best(self.root, of, sign)

    def extreme_reward(self, first: int, last: int, sign: int) -> Fraction:
        """Return the largest (1) or smallest (-1) expected sum of rewards at offsets first..last over all rows."""

        def of(node: Node) -> Fraction:
            if node.offset > last:
                return ZERO
            values = [self._best(fork, of, sign) for _, fork in node.branches]
            if node.offset >= first:
                values = [
                    value + self._reward(node, item[0]) for value, (item, _) in zip(values, node.branches, strict=True)
                ]
            return best_row([item for item, _ in node.branches], values, sign)

        return self._best(self.root, of, sign)

    def _reward(self, node: Node, successor: int) -> Fraction:
        return self.laws.reward(self.world.start + node.offset, node.state, node.action, successor)

    @staticmethod
    def _best(fork: Fork, of: Callable[[Node], Fraction], sign: int) -> Fraction:
        pick = max if sign > 0 else min
        return sum((chance * pick(of(node) for node in nodes) for chance, nodes in fork), ZERO)
