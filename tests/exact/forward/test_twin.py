"""The twin by hand, and what must agree with it beside the compiled evaluation: see docs/evaluators.md."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Literal

import numpy as np
import pytest
from hypothesis import given

from monitor.causal import CounterfactualWorld
from monitor.exact.history import HistoryChain
from monitor.exact.lazy_values import LazyValues
from monitor.logic import FALSE, TRUE, Automaton, PathAutomaton, RewardAutomaton, parse
from monitor.logic.syntax import Goal, Probability
from tests.exact.forward.case import CLOSE, a_case
from tests.exact.forward.twin import Twin
from tests.exact.small import LAW, chances
from tests.oracle.evaluate import Evaluator as Oracle
from tests.oracle.setting import Setting
from tests.oracle.syntax import Change

START, LEDGE, HOME, FALLEN = range(4)
WALK, CRAWL = range(2)
F = Fraction
WALKER = Setting(
    states=4,
    actions=2,
    rows={
        (START, WALK): {LEDGE: F(4, 5), FALLEN: F(1, 5)},
        (START, CRAWL): {START: F(1, 2), LEDGE: F(9, 20), FALLEN: F(1, 20)},
        (LEDGE, WALK): {HOME: F(4, 5), FALLEN: F(1, 5)},
        (LEDGE, CRAWL): {LEDGE: F(1, 2), HOME: F(9, 20), FALLEN: F(1, 20)},
        **{(state, action): {state: F(1)} for state in (HOME, FALLEN) for action in (WALK, CRAWL)},
    },
    policies={"nominal": ({WALK: F(1)},) * 4, "careful": ({CRAWL: F(1)},) * 4},
    path=((START, WALK), (LEDGE, WALK)),
    labels={"home": frozenset({HOME}), "safe": frozenset({START, LEDGE, HOME})},
    rewards={(state, action): F(-1 - action) for state in (START, LEDGE) for action in (WALK, CRAWL)},
)
"""The walker of docs/semantics/worlds.md, section 1.1: it walked to the ledge."""


def automaton_of(path: str) -> PathAutomaton:
    goal = parse(f"P=? [ {path} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return PathAutomaton(goal.measure.path)


def careful(automaton: Automaton, steps: int | None = None) -> Twin:
    return Twin(Oracle(WALKER), Change("policy", "careful", steps), automaton, 0, 2)


def test_the_walker_by_hand() -> None:
    """Had it crawled: the ledge with 9/17, else it has not moved; and then .45 to get home."""
    automaton = automaton_of('F<=2 "home"')
    twin = careful(automaton)
    first = automaton.start
    second = automaton.step(first, 0)
    third = automaton.step(second, 0)
    before, after = twin.levels()
    assert (before.weights, before.accumulated) == ({(START, first): F(1)}, F(0))
    assert (after.weights, after.accumulated) == ({(START, second): F(8, 17), (LEDGE, second): F(9, 17)}, F(0))
    assert [twin.value(2, state, third) for state in range(4)] == [0, 0, 1, 0]
    assert [twin.value(1, state, second) for state in range(4)] == [0, F(9, 20), 1, 0]
    assert twin.value(0, START, first) == F(9, 17) * F(9, 20)
    assert twin.bounds(0, START, first, "any") == (F(5, 16) * F(9, 20), F(9, 16) * F(9, 20))


def test_what_is_collected_and_decided_by_hand() -> None:
    assert [level.accumulated for level in careful(RewardAutomaton(0, 1)).levels()] == [0, -2]
    assert careful(RewardAutomaton(0, 1)).value(0, START, RewardAutomaton.start) == -4
    assert careful(RewardAutomaton(0, 1), 1).value(0, START, RewardAutomaton.start) == -2 - F(9, 17) - F(8, 17)
    twin = careful(automaton_of('"safe" U[0,1] "home"'))
    assert [sum(level.weights.values()) for level in twin.levels()] == [1, 1]
    assert [level.accumulated for level in careful(automaton_of('"safe"')).levels()] == [0, 1]


@LAW
@given(chances)
def test_weights_times_values_are_the_same_number_at_every_level(chance: Random) -> None:
    twin = a_case(chance).twin(0)
    levels = twin.levels()
    values = [
        level.accumulated + sum(weight * twin.value(k, *node) for node, weight in level.weights.items())
        for k, level in enumerate(levels)
    ]
    assert set(values) == {twin.value(0, *twin.first)}
    for before, after in pairwise(levels):  # what leaves the nodes is decided
        assert sum(after.weights.values()) <= sum(before.weights.values())


@pytest.mark.parametrize("kind", ["any", "stable"])
@LAW
@given(chance=chances)
def test_the_plain_evaluator_agrees(chance: Random, kind: Literal["any", "stable"]) -> None:
    case = a_case(chance, nested=chance.random() < 0.2)
    value_table, twin = case.evaluator().value_table, case.twin(0)
    world = CounterfactualWorld(case.oracle.setting.path, case.nominal, case.law, {})
    expected = float(twin.value(0, *twin.first))
    assert HistoryChain(world, value_table.automaton, value_table.labelling, {}).value() == pytest.approx(
        expected, abs=CLOSE
    )
    bounds = [float(end) for end in twin.bounds(0, *twin.first, kind)]
    found = HistoryChain(world, value_table.automaton, value_table.labelling, {}, kind).interval()
    assert found == pytest.approx(bounds, abs=CLOSE)


@LAW
@given(chances)
def test_both_ways_beyond_the_path_agree(chance: Random) -> None:
    """With nothing observed: the table of all states, and the values around those that are queried."""
    case = a_case(chance, nested=chance.random() < 0.2, length=1).without_last_action()
    value_table, twin = case.evaluator().value_table, case.twin(0)
    lazy, everywhere = LazyValues(value_table.law, value_table.automaton, value_table.labelling), np.arange(case.states)
    pending = {twin.automaton.start}
    for k in range(twin.automaton.horizon(twin.automaton.start)):
        for obligation in pending:
            expected = [float(twin.value(k, state, obligation)) for state in range(case.states)]
            np.testing.assert_allclose(value_table.all_values(k, obligation), expected, rtol=0, atol=CLOSE)
            np.testing.assert_allclose(lazy.values(k, obligation, everywhere), expected, rtol=0, atol=CLOSE)
        pairs = [(state, action) for state in range(case.states) for action in range(2)]
        pending = {twin.automaton.step(o, twin.label_set(k, *pair)) for o in pending for pair in pairs} - {FALSE, TRUE}
