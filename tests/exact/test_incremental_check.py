"""On a stream nothing is done again, and nothing comes out differently for it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from monitor.errors import FormulaError, LimitError
from monitor.exact import Checker, evaluators, value_table
from monitor.exact.forward import evaluator as evaluator_module
from monitor.exact.forward import row_table
from monitor.logic import automaton, parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from monitor.policy import as_table
from monitor.types import CausalModel
from tests.tiers import heavy

STATES = 5
FORMULAS = [
    'regret(alt@4, P>=0.5 [ G<=6 !"bad" ])',
    'alt@3.P=? [ "good" U[1,7] "bad" ]',
    'mix@5.P=? [ F<=2 ("good" & F<=4 "bad") ]',
    "delta(alt[2],mix)@4.R=? [ C[1,8] ]",
    'mix@-2.P=? [ G<=5 ("good" | alt@0.P>0.4 [ F<=2 "bad" ]) ]',
    'alt@2.P>=0.5 [ F<=4 "bad" ] & alt@-1.P<0.9 [ G<=4 "good" ] | "bad"',
    'model:other@3.P=? [ F<=3 (alt@1.P>0.4 [ F<=2 "bad" ]) ]',
]


def world() -> tuple[MDP, dict[str, Any], dict[str, MDP]]:
    rng = np.random.default_rng(4)
    models = []
    for _ in range(2):
        rows = rng.dirichlet(np.ones(STATES), size=(STATES, 2)) * (rng.random((STATES, 2, STATES)) < 0.6)
        rows[..., 0] += 0.05
        rows /= rows.sum(axis=-1, keepdims=True)
        models.append(
            MDP.from_transitions(
                states=STATES,
                actions=2,
                transitions=[(s, a, t, float(rows[s, a, t])) for s, a, t in np.argwhere(rows).tolist()],
                rewards=[(s, a, float(s - a)) for s in range(STATES) for a in range(2)],
                labels={"good": [1, 2], "bad": [3]},
            )
        )
    mixed = rng.dirichlet(np.ones(2), size=STATES)
    policies = {"nominal": [0, 1, 0, 1, 0], "alt": [1, 1, 0, 0, 1], "mix": mixed}
    return models[0], {name: as_table(policy, models[0]) for name, policy in policies.items()}, {"other": models[1]}


def random_path(model: MDP, length: int, seed: int = 9) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    state, pairs = 0, []
    for _ in range(length):
        pairs.append((state, int(rng.integers(2))))
        successors, row = model.row(*pairs[-1])
        state = int(rng.choice(successors, p=row))
    return pairs


def goal(text: str) -> Goal:
    formula = parse(text)
    assert isinstance(formula, Goal)
    return formula


def influenced(model: MDP, pairs: list[tuple[int, int]]) -> int:
    """Rows that some observed step says something about: those that share a successor with its row."""
    found = set()
    for (s, a), (outcome, _) in pairwise(pairs):
        for state in range(model.states):
            for action in range(model.actions):
                if (state, action) != (s, a) and np.intersect1d(model.row(s, a)[0], model.row(state, action)[0]).size:
                    found.add((s, a, outcome, state, action))
    return len(found)


@heavy
@pytest.mark.parametrize("causal_model", ["gumbel", "any", "stable"])
@pytest.mark.parametrize("text", FORMULAS)
def test_every_answer_on_a_stream_equals_a_fresh_start_bit_for_bit(text: str, causal_model: CausalModel) -> None:
    model, policies, models = world()
    window, formula = 8, parse(text)
    incremental = Checker(model, policies, models).incremental_check(formula, causal_model, text, window=window)
    pairs = random_path(model, 25)
    for n in range(1, len(pairs) + 1):
        path = tuple(pairs[max(0, n - window) : n])
        terminated = n % 11 == 0  # an answer in between, as if it had ended there; the path goes on all the same
        anew = Checker(model, policies, models)
        expected = anew.check(formula, path, causal_model=causal_model, terminated=terminated, text=text)
        assert incremental.verdict(path, 1, terminated=terminated) == expected
        assert incremental.verdict(path, 0, terminated=terminated) == expected


@pytest.mark.parametrize("causal_model", ["any", "stable"])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_on_a_stream_do_not_depend_on_how_the_path_came(seed: int, causal_model: CausalModel) -> None:
    """By one pair, several or none, the newest action known only later, begun anew: over many windows."""
    model, policies, models = world()
    rng, window, text = np.random.default_rng(seed), 5, FORMULAS[5]
    formula, anew = parse(text), Checker(model, policies, models)
    incremental = Checker(model, policies, models).incremental_check(formula, causal_model, text, window=window)
    pairs, n, fresh = random_path(model, 120, seed), 0, True
    while n < len(pairs):
        if not fresh and rng.random() < 0.03:
            pairs, n, fresh = random_path(model, 120, seed + 100 + n)[: len(pairs) - n], 0, True
        added = min(int(rng.choice([0, 1, 1, 1, 1, 1, 1, 2, 7])) or int(fresh), len(pairs) - n)
        n += added
        path = tuple(pairs[max(0, n - window) : n])
        expected = anew.check(formula, path, causal_model=causal_model, text=text)
        if added and rng.random() < 0.1:
            open_path = (*path[:-1], (path[-1][0], None))
            first = incremental.verdict(open_path, None if fresh else added)
            assert first == anew.check(formula, open_path, causal_model=causal_model, text=text)
            added = 0
        assert incremental.verdict(path, None if fresh and added else added) == expected
        fresh = False


def test_an_action_that_becomes_known_makes_another_path() -> None:
    model, policies, models = world()
    asked, pairs = parse(FORMULAS[2]), random_path(model, 6)
    incremental = Checker(model, policies, models).incremental_check(asked, window=8)
    for n in range(1, len(pairs) + 1):
        path = [*pairs[: n - 1], (pairs[n - 1][0], None)]
        assert incremental.verdict(path, 1) == Checker(model, policies, models).check(asked, path)
        assert incremental.verdict(path, 0) == Checker(model, policies, models).check(asked, path)


def test_evaluators_evicted_while_a_nested_query_is_prepared_are_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies, models = world()
    asked, pairs = parse('alt@2.P=? [ F<=3 (model:other@0.P>=0.3 [ F<=2 "bad" ]) ]'), random_path(model, 6)
    expected = [Checker(model, policies, models).check(asked, pairs[:n], terminated=True) for n in range(1, 7)]
    monkeypatch.setattr(evaluators, "MAX_ENDED", 1)
    checker = Checker(model, policies, models)
    assert [checker.check(asked, pairs[:n], terminated=True) for n in range(1, 7)] == expected


def test_several_pairs_at_once_and_a_path_begun_anew_are_the_same() -> None:
    model, policies, models = world()
    formula = parse(FORMULAS[0])
    incremental = Checker(model, policies, models).incremental_check(formula, window=8)
    for seed, moved in [(1, 3), (2, 8), (3, 1)]:
        pairs = tuple(random_path(model, 8, seed))
        incremental.verdict(pairs[: 8 - moved] or pairs[:1], None)
        again = incremental.verdict(pairs, moved if moved < 8 else None)
        assert again == Checker(model, policies, models).check(formula, pairs, text=again.formula)


def test_a_recording_in_one_call_is_its_steps_one_by_one() -> None:
    model, policies, models = world()
    checker = Checker(model, policies, models)
    asked, pairs = goal('alt@3.P>=0.5 [ G<=6 !"bad" ]'), random_path(model, 30)
    values = checker.along(asked, pairs)
    stepper = checker.stepper(asked)
    assert np.array_equal(values[-1], [stepper.push(*pair).copy() for pair in pairs][-1])
    for n in range(len(pairs)):
        for offset in range(4):
            if offset > n:
                assert np.isnan(values[n, offset])
                continue
            text = f'alt@{offset}.P=? [ G<=6 !"bad" ]'
            assert values[n, offset] == checker.check(parse(text), pairs[: n + 1]).value


def test_no_row_is_computed_twice_nor_without_need() -> None:
    model, policies, models = world()
    stepper = Checker(model, policies, models).stepper(goal('alt@4.P>=0.5 [ G<=6 !"bad" ]'))
    pairs = random_path(model, 40)
    for pair in pairs:
        before = stepper.rows_computed
        stepper.push(*pair)
        assert stepper.rows_computed - before <= STATES
    assert 0 < stepper.rows_computed <= influenced(model, pairs)
    for pair in pairs:
        stepper.push(*pair)
    computed = stepper.rows_computed
    for pair in pairs:
        stepper.push(*pair)
    assert stepper.rows_computed == computed


def test_clearing_a_row_table_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies, models = world()
    asked, pairs = goal('mix@4.P>=0.5 [ G<=6 !"bad" ]'), random_path(model, 60)
    expected = Checker(model, policies, models).along(asked, pairs)
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 0)
    checker = Checker(model, policies, models)
    assert np.array_equal(checker.along(asked, pairs), expected, equal_nan=True)


@pytest.mark.parametrize("causal_model", ["gumbel", "stable"])
def test_a_step_that_needs_more_rows_than_the_tables_may_hold_is_answered(
    causal_model: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    states = 300  # more than a row table holds at first
    model = MDP.from_transitions(
        states=states,
        actions=2,
        transitions=[
            (s, a, int(t), 0.1) for s in range(states) for a in range(2) for t in rng.choice(states, 10, replace=False)
        ],
        labels={"bad": [1]},
    )
    policies = {name: as_table(rng.integers(0, 2, states).tolist(), model) for name in ("nominal", "alt")}
    asked, pairs = parse('alt@5.P=? [ G<=9 !"bad" ]'), random_path(model, 6)
    expected = Checker(model, policies).check(asked, pairs, causal_model=causal_model)
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 0)
    assert Checker(model, policies).check(asked, pairs, causal_model=causal_model) == expected


def test_a_state_may_have_more_actions_than_a_row_table_holds_at_first() -> None:
    actions = 600
    transitions = [(s, a, (s + a) % 3, 1.0) for s in range(3) for a in range(actions)]
    model = MDP.from_transitions(states=3, actions=actions, transitions=transitions, labels={"bad": [2]})
    policies = {
        "nominal": as_table([0, 0, 0], model),
        "alt": as_table(np.full((3, actions), 1 / actions), model),
    }
    assert Checker(model, policies).check(parse('alt@2.P=? [ X "bad" ]'), [(0, 0)] * 3).value == pytest.approx(1 / 3)


def test_a_formula_refused_for_its_size_is_refused_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies, models = world()
    asked, pairs = parse('alt@4.P=? [ F<=4 ("good" & F<=3 "bad") ]'), random_path(model, 6)
    expected = Checker(model, policies, models).check(asked, pairs)
    checker = Checker(model, policies, models)
    with monkeypatch.context() as little:
        little.setattr(automaton, "MAX_OBLIGATIONS", 6)
        for _ in range(3):
            with pytest.raises(LimitError, match="MAX_OBLIGATIONS"):
                checker.check(asked, pairs)
    assert checker.check(asked, pairs) == expected


@pytest.mark.parametrize("text", [FORMULAS[0], FORMULAS[3]])
def test_after_an_answer_that_was_refused_the_next_is_that_of_a_new_start(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, policies, models = world()
    asked, pairs = parse(text), random_path(model, 9)
    with monkeypatch.context() as little:
        little.setattr(value_table, "MAX_TABLE_NUMBERS", 0)
        little.setattr(value_table, "numbers", lambda _: STATES)
        checker = Checker(model, policies, models)
        incremental = checker.incremental_check(asked, window=8)
        for n in range(1, 4):
            with pytest.raises(LimitError, match="MAX_TABLE_NUMBERS"):
                incremental.verdict(pairs[:n], 1)
    for n in range(4, 8):
        assert incremental.verdict(pairs[:n], 1) == Checker(model, policies, models).check(asked, pairs[:n])


def test_a_step_whose_answer_was_refused_is_still_added_to_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies, models = world()
    asked, pairs = goal('mix@4.P>=0.5 [ G<=6 !"bad" ]'), random_path(model, 8)
    expected = Checker(model, policies, models).along(asked, pairs)
    checker = Checker(model, policies, models)
    with monkeypatch.context() as little:
        little.setattr(value_table, "MAX_TABLE_NUMBERS", 0)
        little.setattr(value_table, "numbers", lambda _: STATES)
        stepper = checker.stepper(asked)
        for pair in pairs[:4]:
            with pytest.raises(LimitError, match="MAX_TABLE_NUMBERS"):
                stepper.push(*pair)
    for n in range(4, len(pairs)):
        assert np.array_equal(stepper.push(*pairs[n]), expected[n])


def test_on_a_path_shorter_than_the_offset_the_oldest_pair_is_used() -> None:
    model, policies, models = world()
    pairs, text = random_path(model, 12), 'alt@7.P=? [ G<=9 !"bad" ]'
    incremental = Checker(model, policies, models).incremental_check(parse(text), window=3)
    for n in range(1, len(pairs)):
        path = pairs[max(0, n - 3) : n]
        assert incremental.verdict(path, 1) == Checker(model, policies, models).check(parse(text), path)


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("text", FORMULAS)
def test_a_model_too_large_for_tables_is_evaluated_around_reached_states_bit_for_bit(
    text: str, *, terminated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, policies, models = world()
    paths = [tuple(random_path(model, n, seed)) for n, seed in [(1, 3), (5, 4), (12, 9)]]
    asked = parse(text)
    expected = [Checker(model, policies, models).check(asked, path, terminated=terminated) for path in paths]
    monkeypatch.setattr(value_table, "SMALL", 0)
    monkeypatch.setattr(evaluator_module, "SMALL", 0)
    for path, verdict in zip(paths, expected, strict=True):
        assert Checker(model, policies, models).check(asked, path, terminated=terminated) == verdict


@pytest.mark.parametrize("causal_model", ["any", "stable"])
def test_bounds_in_a_model_too_large_for_tables_are_those_of_a_small_one(
    causal_model: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, policies, models = world()
    pairs = tuple(random_path(model, 8))
    expected = [Checker(model, policies, models).check(parse(t), pairs, causal_model=causal_model) for t in FORMULAS]
    monkeypatch.setattr(value_table, "SMALL", 0)
    monkeypatch.setattr(evaluator_module, "SMALL", 0)
    for text, verdict in zip(FORMULAS, expected, strict=True):
        around = Checker(model, policies, models).check(parse(text), pairs, causal_model=causal_model)
        for one, other in zip(around.quantities, verdict.quantities, strict=True):
            assert one.bounds == pytest.approx(other.bounds, abs=1e-12)


@pytest.mark.parametrize("text", ["delta(alt,mix)@1.R=? [ C<=1 ]", 'alt@-1.P=? [ F<=1 "bad" ]'])
def test_a_formula_without_profile_cannot_be_checked_incrementally(text: str) -> None:
    model, policies, models = world()
    with pytest.raises(FormulaError, match="one world at @t"):
        Checker(model, policies, models).stepper(goal(text))
