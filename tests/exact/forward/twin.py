"""The forward evaluation of one chain, slow and readable: what the compiled evaluation must agree with, level by level.

One world after an intervention (docs/semantics/worlds.md, section 2.4) is a Markov chain X_0, X_1, ... that starts in
the intervention state. While it runs, an automaton reads its label sets: what is still pending is an *obligation*. A
*node* is a state with the obligation that is pending before its labels are read. Two ways lead to the value:

    forward:   the weight of a node after k observed transitions is P(X_k = x, obligation o pending). What is decided
               `true`, or collected as a reward, leaves the nodes and is added up in `accumulated`.
    backward:  the value of a node is what is expected from it on (docs/semantics/formulas.md, section 6.1).

They meet after every observed transition: accumulated + sum of weight * value is the same number for each k.

Everything is a Python dictionary of fractions. Actions and transition distributions are those of `tests.oracle`, which
derives them from the definitions; nothing is shared with `monitor` but the automaton and the formula it was made from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from monitor.logic import FALSE, TRUE, Automaton, print_formula
from monitor.logic.syntax import Goal, Label
from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator as Oracle
from tests.oracle.setting import Dist
from tests.oracle.syntax import Change
from tests.oracle.worlds import DEPLOYED, Range, best_row

__all__ = ["Level", "Node", "Twin"]

Node = tuple[int, int]
"""A state, and the obligation that is pending before its labels are read."""
ZERO, ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class Level:
    """Where the chain may be after some observed transitions: node weights, and what is accumulated so far."""

    weights: Mapping[Node, Fraction]
    accumulated: Fraction


class Twin:
    """One measure in one world, from one start point of an observed path.

    Args:
        oracle: the setting: model, policies, other models, the observed path, and whether its episode has ended.
        change: the intervention.
        automaton: of a path formula or of a reward; nested quantities must be at `@0`.
        start: the position of the intervention state on the path.
        length: pairs of the path that have been observed so far; the action of the last one is known.
    """

    def __init__(self, oracle: Oracle, change: Change, automaton: Automaton, start: int, length: int) -> None:
        path = oracle.setting.path[start:length]
        self.automaton = automaton
        self.observed = len(path) - 1
        self.first: Node = path[0][0], automaton.start
        self._oracle = oracle
        self._world = oracle.laws.world(DEPLOYED, start, path, change)
        self._nested = {
            bit: oracle.parser.parse(print_formula(atom))
            for bit, atom in enumerate(automaton.atoms)
            if isinstance(atom, Goal)
        }
        self.value = cache(self._value)
        self.bounds = cache(self._bounds)

    # The chain, and what the automaton reads.

    def actions(self, k: int, state: int) -> Dist:
        """Return the distribution of the action taken in a state at step k, given what was observed."""
        return self._oracle.laws.actions(self._world, self._world.start + k, state)

    def successors(self, k: int, state: int, action: int) -> Dist:
        """Return the distribution of the next state: counterfactual where a transition was observed, then plain."""
        return self._oracle.laws.successors(self._world, self._world.start + k, state, action)

    def ranges(self, k: int, state: int, action: int, kind: str) -> list[Range]:
        """Return (next state, lowest, highest probability) over the causal models of a kind: `any` or `stable`."""
        return self._oracle.laws.ranges(self._world, self._world.start + k, state, action, kind)

    def reward(self, k: int, state: int, action: int, successor: int) -> Fraction:
        """Return the reward of a transition at step k."""
        return self._oracle.laws.reward(self._world.start + k, state, action, successor)

    def label_set(self, k: int, state: int, action: int) -> int:
        """Return which atoms hold in a state in which an action is taken: bit n is that of the automaton's atom n."""
        return sum(1 << bit for bit in range(len(self.automaton.atoms)) if self._holds(bit, k, state, action))

    def _holds(self, bit: int, k: int, state: int, action: int) -> bool:
        atom = self.automaton.atoms[bit]
        if isinstance(atom, Label):
            return state in self._oracle.setting.labels[atom.name]
        goal = self._nested[bit]
        assert isinstance(goal, ast.Compare)
        return self._oracle.truth(goal, self._world.regime, self._world.start + k, ((state, action),))

    # Forward: one level after each observed transition.

    def levels(self) -> list[Level]:
        """Return the levels after 0, 1, ... observed transitions."""
        levels = [Level({self.first: ONE}, ZERO)]
        for k in range(self.observed):
            levels.append(self.advanced(k, levels[k]))
        return levels

    def advanced(self, k: int, level: Level) -> Level:
        """Read the labels of every node, take its actions, and move the weight along their transitions."""
        weights: defaultdict[Node, Fraction] = defaultdict(Fraction)
        accumulated = level.accumulated
        for (state, obligation), weight in level.weights.items():
            for action, chance in self.actions(k, state).items():
                rest = self.automaton.step(obligation, self.label_set(k, state, action))
                for successor, probability in self.successors(k, state, action).items():
                    moved = weight * chance * probability
                    if self.automaton.rewards(obligation):
                        accumulated += moved * self.reward(k, state, action, successor)
                    if rest == TRUE:
                        accumulated += moved
                    elif rest != FALSE:
                        weights[successor, rest] += moved
        return Level(dict(weights), accumulated)

    # Backward: what is expected from a node on.

    def _value(self, k: int, state: int, obligation: int) -> Fraction:
        """Return the value of a node at step k."""
        if obligation in (FALSE, TRUE):
            return ONE if obligation == TRUE else ZERO
        total = ZERO
        for action, chance in self.actions(k, state).items():
            for successor, probability in self.successors(k, state, action).items():
                total += chance * probability * self._from(k, state, obligation, action, successor)
        return total

    def _from(self, k: int, state: int, obligation: int, action: int, successor: int) -> Fraction:
        """Return the reward of one transition, if it counts, and the value of the node it leads to."""
        rest = self.automaton.step(obligation, self.label_set(k, state, action))
        earned = self.reward(k, state, action, successor) if self.automaton.rewards(obligation) else ZERO
        return earned + self.value(k + 1, successor, rest)

    # Bounds: backward too, each node choosing its distribution within the ranges of its transition.

    def _bounds(self, k: int, state: int, obligation: int, kind: str) -> tuple[Fraction, Fraction]:
        """Return the lowest and highest value of a node at step k (docs/semantics/formulas.md, section 6.3)."""
        low, high = (self._extreme(k, (state, obligation), kind, sign) for sign in (-1, 1))
        return low, high

    def _extreme(self, k: int, node: Node, kind: str, sign: int) -> Fraction:
        state, obligation = node
        if obligation in (FALSE, TRUE):
            return ONE if obligation == TRUE else ZERO
        total = ZERO
        for action, chance in self.actions(k, state).items():
            rest = self.automaton.step(obligation, self.label_set(k, state, action))
            ranges, values = self.ranges(k, state, action, kind), []
            for successor, _, _ in ranges:
                earned = self.reward(k, state, action, successor) if self.automaton.rewards(obligation) else ZERO
                values.append(earned + self.bounds(k + 1, successor, rest, kind)[sign > 0])
            total += chance * best_row(ranges, values, sign)
        return total
