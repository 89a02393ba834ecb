"""Random small questions, for the twin in fractions and for the compiled evaluation, and what that has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from monitor.causal import Law
from monitor.exact import tables
from monitor.exact.evaluators import Evaluators, pair_arrays
from monitor.exact.forward import step
from monitor.exact.forward.buffers import ForwardBuffers
from monitor.exact.forward.evaluator import Evaluator
from monitor.logic import parse, print_formula
from monitor.logic.syntax import Goal, Probability, Reward
from tests.exact.forward.twin import Node, Twin
from tests.exact.small import path_formula, small_world
from tests.oracle.evaluate import Evaluator as Oracle
from tests.oracle.setting import Setting
from tests.oracle.syntax import Ask
from tests.truth.engine_side import model_of

__all__ = ["CLOSE", "Case", "a_case", "assert_same_weights", "pending", "settled"]

CLOSE = 1e-12
"""How far the compiled numbers, all of them sums of a few products, may be from the fractions."""
CHANGES = ("nominal", "alt", "alt[1]", "alt[2]", "do(1)", "model:icy")
Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A goal on an observed path, all of whose actions are known: `oracle` in fractions, `worlds` for the monitor."""

    oracle: Oracle
    worlds: Evaluators
    goal: Goal

    @property
    def path(self) -> list[Pair]:
        """The observed pairs."""
        return [(state, 0 if action is None else action) for state, action in self.oracle.setting.path]

    @property
    def nominal(self) -> Law:
        """The law without the intervention."""
        return self.worlds.nominal()

    @property
    def law(self) -> Law:
        """The law after the intervention."""
        return self.nominal.under(self.worlds.intervention(self.goal.world.change, None))

    @property
    def measure(self) -> Probability | Reward:
        """The measure asked for."""
        return self.goal.measure

    def evaluator(self) -> Evaluator:
        """Return the compiled evaluator of the goal."""
        return self.worlds.arm(self.nominal, self.law, self.measure)

    def twin(self, start: int, length: int | None = None) -> Twin:
        """Return the twin from one start point, after some pairs of the path (all of them if not given)."""
        asked = self.oracle.parser.parse(print_formula(self.goal))
        assert isinstance(asked, Ask)
        automaton = self.evaluator().value_table.program
        length = len(self.path) if length is None else length
        return Twin(self.oracle, asked.quantity.world.change, automaton, start, length)

    def buffers(self, max_starts: int | None = None, queried_start: int = -1) -> ForwardBuffers:
        """Return empty buffers for so many start points; for all of the path's if not given."""
        max_starts = len(self.path) if max_starts is None else max_starts
        return ForwardBuffers(max_starts, queried_start, self.evaluator().unrolled.horizon)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the states and actions of the path."""
        return pair_arrays(self.path)


def a_case(chance: Random, *, nested: bool = False, length: int | None = None, text: str | None = None) -> Case:
    """Return a random question on a random world of 2 to 4 states and a path of up to four pairs."""
    small = small_world(chance, stochastic=chance.random() < 0.5, length=length)
    old = small.setting
    extra = {
        (*key, t): Fraction(chance.randint(-3, 3))
        for key, row in old.rows.items()
        for t in row
        if chance.random() < 0.3
    }
    setting = Setting(
        states=old.states,
        actions=old.actions,
        rows={key: dict(row) for key, row in old.rows.items()},
        policies={name: tuple(dict(row) for row in policy) for name, policy in old.policies.items()},
        path=old.path,
        labels=old.labels,
        rewards=old.rewards,
        transition_rewards={key: reward for key, reward in extra.items() if reward},
        models={name: {key: dict(row) for key, row in rows.items()} for name, rows in old.models.items()},
    )
    if text is None:
        text = f"{chance.choice(CHANGES)}.{a_measure(chance, nested=nested)}"
    goal = parse(text)
    assert isinstance(goal, Goal)
    model = model_of(setting, setting.rows, rewards=True)
    others = {name: model_of(setting, rows, rewards=False) for name, rows in setting.models.items()}
    return Case(Oracle(setting), Evaluators(model, tables(small.policies, model), others), goal)


def a_measure(chance: Random, *, nested: bool) -> str:
    """Return a random probability or reward."""
    if nested:
        inner = f'{chance.choice(("@0", "alt@0", "third[1]@0"))}.P>0.{chance.randint(1, 9)} [ X "a" ]'
        return f'P=? [ F<=2 (({inner}) {chance.choice("&|")} ("b" | X "a")) ]'
    if chance.random() < 0.4:
        high = chance.randint(0, 4)
        return f"R=? [ C[{chance.randint(0, high)},{high}] ]"
    return f"P=? [ {path_formula(chance)} ]"


def pending(evaluator: Evaluator, buffers: ForwardBuffers, start: int) -> dict[Node, float]:
    """Return the weights of the nodes (state, obligation) of a start point, 0 for the newest."""
    offset = int(buffers.scalars[step.BASE_OFFSET]) + start
    return {
        (state, evaluator.unrolled.obligations[column][offset]): weight
        for column, states, weights in buffers.of_start(start)
        for state, weight in zip(states.tolist(), weights.tolist(), strict=True)
    }


def settled(buffers: ForwardBuffers, start: int) -> float:
    """Return what is decided or collected from a start point on, 0 for the newest."""
    return float(buffers.arrays.accumulated[start])


def assert_same_weights(found: Mapping[Node, float], expected: Mapping[Node, Fraction]) -> None:
    """Check weights node by node: the same nodes, and weights equal up to rounding."""
    assert found.keys() == expected.keys()
    for node, weight in expected.items():
        assert abs(found[node] - weight) <= CLOSE, node
