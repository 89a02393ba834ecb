"""All states at once, and large models: the same numbers as one state at a time, and as a table over all states."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings

import monitor
import monitor.exact.lazy_values as reach_module
import monitor.exact.value_table as table_module
from monitor.errors import FormulaError, LimitError
from monitor.evaluation import check
from monitor.exact import Checker, tables, values
from monitor.exact.evaluators import Evaluators
from monitor.exact.labelling import _passes
from monitor.exact.value_table import ValueTable
from monitor.logic import parse
from monitor.logic.syntax import Goal, Test
from monitor.model import MDP
from tests.exact.small import LAW, chances, path_formula, question, small_world
from tests.tiers import heavy

WORLDS = ("nominal@0", "alt@0", "alt[1]@0", "do(1)@0", "model:icy@0", "delta(alt,nominal)@0", "delta(third,alt)@0")


def line(states: int) -> MDP:
    """A walk that goes up, or with .25 down; `end` at the last state."""
    up = [(s, 0, min(s + 1, states - 1), 0.75) for s in range(states)]
    down = [(s, 0, max(s - 1, 0), 0.25) for s in range(states)]
    return MDP.from_transitions(states=states, actions=1, transitions=up + down, labels={"end": [states - 1]})


def value_table_of(checker: Checker, text: str) -> ValueTable:
    """Return the values beyond the path that answers to a query of the nominal world share."""
    goal = parse(text)
    assert isinstance(goal, Goal)
    return checker.evaluators.value_table(checker.evaluators.nominal(), goal.measure)


@settings(LAW)
@given(chances)
def test_every_state_has_the_value_of_a_path_that_begins_there(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.5)
    text = question(chance, chance.choice(WORLDS))
    found = values(text, model=small.model, policies=small.policies, models=small.models)
    assert found.dtype == np.float64
    assert found.shape == (small.model.states,)
    for state in range(small.model.states):
        expected = small.ask(text, path=[(state, None)], terminated=False).value
        assert found[state] == pytest.approx(expected, abs=1e-12)


@settings(LAW)
@given(chances)
def test_every_state_has_the_best_value_of_a_path_that_begins_there(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.5)
    world = chance.choice(
        ("max", "min", "max[0]", "min[1]", "max[2]", "max[<=0]", "min[<=1]", "max[<=3]", "delta(max,alt)")
    )
    measure = chance.choice((f"P=? [ {path_formula(chance)} ]", "R=? [ C<=3 ]", "P=? [ true ]"))
    found = values(f"{world}@0.{measure}", model=small.model, policies=small.policies, models=small.models)
    for state in range(small.model.states):
        expected = small.ask(f"{world}@0.{measure}", path=[(state, None)], terminated=False).value
        assert found[state] == pytest.approx(expected, abs=1e-12)


@heavy
@settings(LAW)
@given(chances)
def test_values_around_queried_states_equal_those_of_a_table(chance: Random) -> None:
    """Bit for bit: sums run along a row in its order either way."""
    small = small_world(chance, stochastic=chance.random() < 0.5, terminated=chance.random() < 0.3)
    text = question(chance, f"alt@{chance.randint(0, 3)}")
    nested = f'alt@0.P=? [ F<=2 (P>{chance.choice([0.2, 0.5])} [ F<=1 "a" ]) ]'
    for asked in (text, nested):
        whole = small.number(asked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_module, "SMALL", 0)
            assert small.number(asked) == whole
            patch.setattr(reach_module, "MAX_KEPT", 1)
            assert small.number(asked) == whole


@settings(LAW)
@given(chances)
def test_indexed_rows_equal_copied_rows(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.5)
    text = question(chance, chance.choice(WORLDS))
    asked: dict[str, Any] = {"model": small.model, "policies": small.policies, "models": small.models}
    laid_out = values(text, **asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "MAX_GATHERED", 0)
        assert values(text, **asked).tobytes() == laid_out.tobytes()


def test_one_query_in_one_state_of_a_large_model_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    model = line(10_000)
    checker = Checker(model, tables({"nominal": np.zeros(10_000, dtype=int)}, model))
    text = 'P=? [ F<=12 "end" ]'
    value_table = value_table_of(checker, text)
    monkeypatch.setattr(reach_module, "MAX_REACHED", 3 * 12 * 25)  # a value and two entries for all that 12 steps reach
    found = checker.check(parse(text), [(9_990, 0)]).value
    assert not value_table.rows
    checker.prepare(parse(text))
    assert len(value_table.rows) == 13
    assert checker.check(parse(text), [(9_990, 0)]).value == found
    assert found == values(text, model=model, policies={"nominal": np.zeros(10_000, dtype=int)})[9_990]


def test_a_watched_formula_has_a_table_where_it_fits_and_an_answer_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model = line(5_000)
    text, path = 'P=? [ F<=20 "end" ]', [(4_990, 0)]
    policies = tables({"nominal": np.zeros(5_000, dtype=int)}, model)
    expected = check(text, model=model, path=path, policies=policies).value
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", 60_000)  # room for 12; twice the model's numbers: for 8
    checker = Checker(model, policies)
    checker.prepare(parse(text))
    assert not value_table_of(checker, text).rows
    assert checker.check(parse(text), path).value == expected
    assert values(text, model=model, policies=policies)[4_990] == expected  # two rows at a time
    monkeypatch.setattr(reach_module, "MAX_REACHED", 50)
    with pytest.raises(LimitError, match=r"need more than 50 numbers \(limit MAX_REACHED\); shorten"):
        check(text, model=model, path=path, policies=policies, engine="exact")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('nominal@1.P=? [ X "end" ]', "@1 has no past; use @0"),
        ('nominal@-1.P=? [ X "end" ]', "@-1 has no past; use @0"),
        ('P>=0.5 [ X "end" ]', "=?"),
        ('"end"', "=?"),
        ('regret(other@0, P>=0.5 [ X "end" ])', "regret is evaluated along a path"),
        ('P=? [ F<=2 (nominal@1.P>0.5 [ X "end" ]) ]', "looks back"),
        ('P=? [ X "ends" ]', "did you mean 'end'"),
    ],
)
def test_what_has_no_value_in_a_state(text: str, problem: str) -> None:
    with pytest.raises(FormulaError) as caught:
        monitor.values(text, model=line(3), policies={"nominal": [0, 0, 0], "other": [0, 0, 0]})
    assert problem in str(caught.value)


def test_a_refusal_points_at_the_first_word() -> None:
    with pytest.raises(FormulaError) as caught:
        values('\n  P>=0.5 [ X "end" ]', model=line(3), policies={"nominal": [0, 0, 0]})
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_an_effect_is_what_the_change_adds_in_each_state() -> None:
    stay = [(s, 1, s, 1.0) for s in range(3)]
    model = MDP.from_transitions(
        states=3, actions=2, transitions=[*[(s, 0, min(s + 1, 2), 1.0) for s in range(3)], *stay], labels={"end": [2]}
    )
    asked: dict[str, Any] = {"model": model, "policies": {"nominal": [1] * 3, "go": [0] * 3}}
    assert values('delta(go,nominal)@0.P=? [ X "end" ]', **asked).tolist() == [0.0, 1.0, 0.0]
    assert values('delta(nominal,go)@0.P=? [ X "end" ]', **asked).tolist() == [0.0, -1.0, 0.0]


def test_values_are_the_callers_own() -> None:
    found = monitor.values('P=? [ X "end" ]', model=line(3), policies={"nominal": [0, 0, 0]})
    found[0] = 2.0
    assert found.tolist() == [2.0, 0.75, 0.75]


@settings(LAW)
@given(chances)
def test_values_taken_once_are_those_of_the_table(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.5)
    worlds = Evaluators(small.model, tables(small.policies, small.model), small.models)
    goal = parse(question(chance, "alt@0"))
    assert isinstance(goal, Goal)
    law = worlds.nominal(None, 0).under(worlds.intervention(goal.world.change, None))
    value_table = worlds.value_table(law, goal.measure)
    once = value_table.compute_once(value_table.automaton.start)
    assert not value_table.rows
    assert once.tobytes() == np.ascontiguousarray(value_table.all_values(0, value_table.automaton.start)).tobytes()
    assert once.tobytes() == value_table.compute_once(value_table.automaton.start).tobytes()  # the table is there now


def test_a_long_horizon_needs_no_more_memory_than_a_short_one() -> None:
    model = line(200_000)
    asked: dict[str, Any] = {"model": model, "policies": {"nominal": np.zeros(model.states, dtype=int)}}
    values('P=? [ F<=2 "end" ]', **asked)  # what is imported and compiled is not counted

    def peak(steps: int) -> int:
        tracemalloc.start()
        try:
            values(f'P=? [ F<={steps} "end" ]', **asked)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(60) < peak(6) + 8 * model.states


@pytest.mark.parametrize("limit", ["MAX_PLANNED", "MAX_TABLE_NUMBERS"])
def test_values_that_would_take_too_much_are_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, limit, 5)
    monkeypatch.setattr(table_module, "numbers", lambda _: 0)
    with pytest.raises(LimitError, match=f"{limit}.*shorten"):
        values('P=? [ F<=20 "end" ]', model=line(3), policies={"nominal": [0, 0, 0]})


def test_many_pairs_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested quantity is asked for in every pair of the model, with the same answer however they are taken."""
    model = line(5_000)
    asked: dict[str, Any] = {"model": model, "policies": {"nominal": np.zeros(5_000, dtype=int)}}
    text = 'P=? [ F<=3 (P>0.5 [ F<=4 "end" ]) ]'
    whole = values(text, **asked)
    assert 0.0 < whole[4_994] < whole[4_995] < 1.0
    monkeypatch.setattr(table_module, "MANY", 700)
    assert values(text, **asked).tobytes() == whole.tobytes()
    assert check(text, path=[(4_994, 0)], **asked).value == whole[4_994]


@pytest.mark.parametrize("comparison", ["<", "<=", ">", ">="])
def test_many_values_are_compared_as_one_is(comparison: Literal["<", "<=", ">", ">="]) -> None:
    test = Test(comparison, 0.3)
    away = np.array([0.0, 1e-16, 1e-13, 0.9e-12, 1.1e-12, 1e-10, 1e-8, 0.1])
    found = np.concatenate([0.3 - away, 0.3 + away, [-1.0, 2.0]])
    assert _passes(test, found).tolist() == [test.holds(value) for value in found.tolist()]
    assert _passes(test, found[:0]).tolist() == []
