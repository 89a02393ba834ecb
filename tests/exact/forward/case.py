"""Random small queries, for the twin in fractions and for the compiled evaluation; and what its arrays hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from monitor.causal import Law
from monitor.exact import tables
from monitor.exact.evaluators import Evaluators, pair_arrays
from monitor.exact.forward.buffers import ForwardBuffers, Workspace
from monitor.exact.forward.counterfactual_rows import Dynamics
from monitor.exact.forward.evaluator import Evaluator, dynamics, labelled_automaton
from monitor.exact.forward.row_table import RowBudget, RowTables
from monitor.exact.value_table import is_large
from monitor.logic import parse, print_formula
from monitor.logic.syntax import Goal
from tests.exact.forward.twin import Node, Twin
from tests.exact.small import path_formula, small_world
from tests.oracle.evaluate import Evaluator as Oracle
from tests.oracle.setting import Setting
from tests.oracle.syntax import Ask
from tests.truth.engine_side import model_of

__all__ = [
    "CLOSE",
    "Case",
    "Own",
    "a_case",
    "accumulated",
    "assert_close",
    "bounded",
    "evaluator_of",
    "law_of",
    "own",
    "pending",
]

CLOSE = 1e-12
"""How far the compiled numbers, all of them sums of a few products, may be from the fractions."""
CHANGES = ("nominal", "alt", "alt[1]", "alt[2]", "do(1)", "model:icy")
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """A goal on an observed path: `oracle` in fractions, `evaluators` for the monitor."""

    oracle: Oracle
    evaluators: Evaluators
    goal: Goal

    @property
    def path(self) -> list[tuple[int, int]]:
        """The observed pairs; -1 for an action not yet taken."""
        return [(state, -1 if action is None else action) for state, action in self.oracle.setting.path]

    @property
    def states(self) -> int:
        """States of the model."""
        return self.oracle.setting.states

    @property
    def nominal(self) -> Law:
        """The law without the intervention."""
        return self.evaluators.nominal()

    @property
    def law(self) -> Law:
        """The law after the intervention."""
        return law_of(self.evaluators, self.goal)

    def evaluator(self) -> Evaluator:
        """Return the compiled evaluator of the goal."""
        return evaluator_of(self.evaluators, self.goal)

    def twin(self, start: int, length: int | None = None) -> Twin:
        """Return the twin from one start point, after some pairs of the path (all of them if not given)."""
        query = self.oracle.parser.parse(print_formula(self.goal))
        assert isinstance(query, Ask)
        automaton = self.evaluator().value_table.automaton
        return Twin(self.oracle, query.quantity.world.change, automaton, start, length or len(self.path))

    def buffers(self, max_starts: int | None = None, queried_start: int = -1) -> ForwardBuffers:
        """Return empty buffers for so many start points; for all of the path's if not given."""
        max_starts = len(self.path) if max_starts is None else max_starts
        return ForwardBuffers(max_starts, queried_start, self.evaluator().unrolled.horizon)

    def arrays(self) -> tuple[Ints, Ints]:
        """Return the states and actions of the path."""
        return pair_arrays(self.oracle.setting.path)

    def without_last_action(self) -> Case:
        """Return the same with a last action that is not yet taken."""
        path = (*self.oracle.setting.path[:-1], (self.path[-1][0], None))
        return replace(self, oracle=Oracle(replace(self.oracle.setting, path=path)))


def a_case(
    chance: Random,
    *,
    nested: bool = False,
    stochastic: bool = False,
    length: int | None = None,
    text: str | None = None,
) -> Case:
    """Return a random query on a random world of 2 to 4 states and a path of up to four pairs."""
    small = small_world(chance, stochastic=stochastic or nested or chance.random() < 0.5, length=length)
    old = small.setting
    transitions = [(*key, successor) for key, row in old.rows.items() for successor in row]
    extra = {key: Fraction(chance.randint(1, 3)) for key in transitions if chance.random() < 0.3}
    setting = Setting(
        states=old.states,
        actions=old.actions,
        rows={key: dict(row) for key, row in old.rows.items()},
        policies={name: tuple(dict(row) for row in policy) for name, policy in old.policies.items()},
        path=old.path,
        labels=old.labels,
        rewards=old.rewards,
        transition_rewards=extra,
        models={name: {key: dict(row) for key, row in rows.items()} for name, rows in old.models.items()},
    )
    goal = parse(text or f"{chance.choice(CHANGES)}.{_measure(chance, nested=nested)}")
    assert isinstance(goal, Goal)
    model = model_of(setting, setting.rows, rewards=True)
    others = {name: model_of(setting, rows, rewards=False) for name, rows in setting.models.items()}
    return Case(Oracle(setting), Evaluators(model, tables(small.policies, model), others), goal)


def _measure(chance: Random, *, nested: bool) -> str:
    """Return a random probability or reward."""
    if nested:
        inner = f'{chance.choice(("@0", "alt@0", "third[1]@0"))}.P>0.{chance.randint(1, 9)} [ X "a" ]'
        return f'P=? [ F<=2 (({inner}) {chance.choice("&|")} ("b" | X "a")) ]'
    if chance.random() < 0.4:
        high = chance.randint(0, 4)
        return f"R=? [ C[{chance.randint(0, high)},{high}] ]"
    return f"P=? [ {path_formula(chance)} ]"


def law_of(evaluators: Evaluators, goal: Goal) -> Law:
    """Return the law after a goal's intervention."""
    return evaluators.nominal().under(evaluators.intervention(goal.world.change, None))


def evaluator_of(evaluators: Evaluators, goal: Goal) -> Evaluator:
    """Return the evaluator of a goal that all who ask for it share."""
    return evaluators.evaluator(evaluators.nominal(), law_of(evaluators, goal), goal.measure)


class Own(NamedTuple):
    """An evaluator, and what it reads and works in, made for it alone."""

    evaluator: Evaluator
    dynamics: Dynamics
    rows: RowTables
    workspace: Workspace


def own(evaluators: Evaluators, goal: Goal) -> Own:
    """Return an evaluator of a goal that shares nothing but the value table."""
    nominal, law, model = evaluators.nominal(), law_of(evaluators, goal), evaluators.model
    value_table = evaluators.value_table(law, goal.measure)
    made = dynamics(nominal, law, merge_actions=not value_table.labelling.by_action)
    rows = RowTables(model.states, model.actions, RowBudget())
    workspace = Workspace(model.states, share_prior_rows=is_large(model))
    evaluator = Evaluator(nominal, value_table, labelled_automaton(value_table), (made, rows), workspace)
    return Own(evaluator, made, rows, workspace)


def pending(evaluator: Evaluator, buffers: ForwardBuffers, start: int) -> dict[Node, float]:
    """Return the weights of the nodes (state, obligation) of a start point, 0 for the newest."""
    offset = buffers.base_offset + start
    return {
        (state, evaluator.unrolled.obligations[column][offset]): weight
        for column, states, weights in buffers.of_start(start)
        for state, weight in zip(states.tolist(), weights.tolist(), strict=True)
    }


def bounded(mine: Own, offset: int) -> dict[Node, tuple[float, float]]:
    """Return the lowest and highest value of each node that bounds have reached at an offset, as they were left."""
    levels = mine.workspace.levels
    found = {}
    for node in range(levels.first_node[offset], levels.first_node[offset + 1]):
        obligation = mine.evaluator.unrolled.obligations[levels.column[node]][offset]
        found[levels.state[node], obligation] = levels.low[node], levels.high[node]
    return found


def accumulated(buffers: ForwardBuffers, start: int) -> float:
    """Return what is decided or collected from a start point on, 0 for the newest."""
    return float(buffers.accumulated[start])


def assert_close(found: Mapping[Any, float], expected: Mapping[Any, Fraction]) -> None:
    """Check numbers key by key. One that is 0 may be missing: where fractions cancel, rounding may leave 1e-17."""
    for key in found.keys() | expected.keys():
        assert abs(found.get(key, 0.0) - expected.get(key, 0)) <= CLOSE, (key, found, expected)
