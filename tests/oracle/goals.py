"""What a goal needs to remember of a history, and what it is worth: the probability of a path formula, or rewards."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Protocol, Union

from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator, horizon
from tests.oracle.obligations import Obligations, Rest, read
from tests.oracle.race import ONE, ZERO
from tests.oracle.rejection import History, SinglePaths
from tests.oracle.window import Window
from tests.oracle.worlds import DEPLOYED

Memory = Union[Rest, None]  # noqa: UP007 (Rest has a name that is declared late)


class Goal(Protocol):
    """A quantity whose mean is the value. States at offsets beyond `last` do not matter."""

    last: int

    def begin(self) -> Memory:
        """Return what remains before anything was read."""

    def read(self, memory: Memory, offset: int, state: int) -> Memory:
        """Return what remains after a state was read."""

    def settled(self, memory: Memory, offset: int) -> Fraction | None:
        """Return the value from an offset on, its state read, if no decision can change it any more."""

    def earned(self, offset: int, state: int, action: int, successor: int) -> Fraction:
        """Return what a transition adds to the value."""

    def literal(self, history: History) -> Fraction:
        """Return the value of a complete history (x_0, a_0) .. (x_last, a_last), by the definition."""


class PathGoal:
    """The probability of a path formula of labels."""

    def __init__(self, window: Window, body: ast.Node) -> None:
        self._body = body
        self._obligations = Obligations()  # keeps its diagrams alive: they are compared by identity
        self._start = self._obligations.of(body, 0)
        labels = window.setting.labels
        self._labels = [
            frozenset(name for name, where in labels.items() if state in where)
            for state in range(window.setting.states)
        ]
        self._single = SinglePaths(Evaluator(window.setting), DEPLOYED, 0)
        self.last = horizon(body)

    def begin(self) -> Memory:
        return self._start

    def read(self, memory: Memory, offset: int, state: int) -> Memory:
        assert memory is not None
        return read(memory, offset, self._labels[state])

    def settled(self, memory: Memory, offset: int) -> Fraction | None:  # noqa: ARG002 (that of Goal)
        return (ONE if memory else ZERO) if isinstance(memory, bool) else None

    def earned(self, offset: int, state: int, action: int, successor: int) -> Fraction:  # noqa: ARG002 (that of Goal)
        return ZERO

    def literal(self, history: History) -> Fraction:
        return ONE if self._single.satisfies(history, self._body, 0) else ZERO


class RewardGoal:
    """The sum of the rewards of some offsets."""

    def __init__(self, window: Window, quantity: ast.Reward) -> None:
        self._window = window
        self._first = quantity.first
        self.last = quantity.last + 1

    def begin(self) -> Memory:
        return None

    def read(self, memory: Memory, offset: int, state: int) -> Memory:  # noqa: ARG002 (that of Goal)
        return memory

    def settled(self, memory: Memory, offset: int) -> Fraction | None:  # noqa: ARG002 (that of Goal)
        return ZERO if offset >= self.last else None

    def earned(self, offset: int, state: int, action: int, successor: int) -> Fraction:
        return self._window.reward(offset, state, action, successor) if offset >= self._first else ZERO

    def literal(self, history: History) -> Fraction:
        steps = pairwise(history)
        return sum((self.earned(k, *pair, after[0]) for k, (pair, after) in enumerate(steps)), ZERO)


def goal_of(quantity: ast.Quantity, window: Window) -> Goal:
    """Return the goal of a quantity."""
    if isinstance(quantity, ast.Reward):
        return RewardGoal(window, quantity)
    return PathGoal(window, quantity.body)
