"""A law and a measure made ready for the compiled loops: what these read, and the workspace they share."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.causal import Intervention, Law
from monitor.exact import Checker, tables
from monitor.exact import value_table as table_module
from monitor.exact.evaluators import pair_arrays
from monitor.exact.forward import evaluator as evaluator_module
from monitor.exact.forward import row_table
from monitor.exact.forward.buffers import ForwardBuffers
from monitor.exact.forward.evaluator import Evaluator, dynamics
from monitor.exact.forward.row_table import ANY, EXACT
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.logic import FALSE, TRUE, parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from tests.exact.forward.case import CLOSE, a_case, evaluator_of, own
from tests.exact.small import LAW, Small, as_policies, chances, exact, telling_world
from tests.exact.test_checker import MODEL, PATH, POLICIES, checker, goal
from tests.mutation.test_questions import call_every_model_large

TABLES = tables(POLICIES, MODEL)
OTHER = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[(s, a, t, 0.25) for s in range(4) for a in range(2) for t in range(4)],
    rewards=[(1, 1, 5.0), (0, 0, 2, 3.0)],
)
HALF, FIRST, SECOND = [[0.5, 0.5]] * 4, [[1.0, 0.0]] * 4, [[0.0, 1.0]] * 4


def plain(name: str) -> Law:
    return Law.stationary(TABLES[name], MODEL)


def taken_over(name: str, by: str, steps: int | None = None) -> Law:
    return plain(name).under(Intervention(TABLES[by], steps))


@pytest.mark.parametrize(
    ("nominal", "law", "first", "default", "stochastic", "actions", "chances", "observed"),
    [
        (plain("nominal"), plain("nominal"), [0], [True], [False], [[0] * 4], [], []),
        (plain("nominal"), taken_over("nominal", "alt"), [0], [False], [False], [[1] * 4], [], []),
        (plain("nominal"), taken_over("nominal", "mix"), [0], [False], [True], None, [HALF], []),
        (plain("mix"), taken_over("mix", "alt"), [0], [False], [False], [[1] * 4], [], [HALF]),
        (
            plain("mix"),
            taken_over("mix", "alt", 2),
            [0, 2],
            [False, True],
            [False, True],
            None,
            [SECOND, HALF],
            [HALF] * 2,
        ),
        (
            taken_over("nominal", "mix", 3).after(0),  # what a nested quantity meets: the outer law is its nominal
            taken_over("nominal", "mix", 3).after(0).under(Intervention(TABLES["alt"], 1)),
            [0, 1, 3],
            [False, True, True],
            [False, True, False],
            [[1] * 4, None, [0] * 4],
            [SECOND, HALF, FIRST],
            [HALF, HALF, FIRST],
        ),
    ],
)  # fmt: skip
def test_the_acting_policy_in_each_phase_of_the_law(  # noqa: PLR0917 - columns of the table
    nominal: Law,
    law: Law,
    first: list[int],
    default: list[bool],
    stochastic: list[bool],
    actions: list[list[int] | None] | None,
    chances: list[list[list[float]]],
    observed: list[list[list[float]]],
) -> None:
    made = dynamics(nominal, law, merge_actions=True)
    assert (list(made.phase_begin), list(made.is_nominal), list(made.stochastic)) == (first, default, stochastic)
    for n, row in enumerate(actions or ()):
        assert row is None or list(made.policy_actions[n]) == row
    assert np.asarray(made.policy_probabilities).tolist() == chances
    assert np.asarray(made.nominal_policy_probabilities).tolist() == observed
    assert made.policy_probabilities.shape[1:] == made.nominal_policy_probabilities.shape[1:] == (4, 2)
    assert (made.same_model, made.merge_actions, made.share_prior_rows) == (True, True, False)


def test_rows_and_rewards_are_those_of_the_queried_world() -> None:
    law = plain("nominal").under(Intervention(dynamics=OTHER))
    made = dynamics(plain("nominal"), law, merge_actions=False)
    assert (made.same_model, made.merge_actions) == (False, False)
    assert list(made.counterfactual_row_successors) == OTHER.successors.tolist()
    assert list(made.observed_row_successors) == MODEL.successors.tolist()
    assert np.asarray(made.rewards).tolist() == OTHER.rewards.tolist()
    assert OTHER.transition_rewards is not None
    assert list(made.transition_rewards) == OTHER.transition_rewards.tolist()
    assert len(dynamics(plain("nominal"), plain("nominal"), merge_actions=True).transition_rewards) == 0


def test_one_table_of_a_policy_is_not_copied() -> None:
    made = dynamics(plain("nominal"), taken_over("nominal", "mix"), merge_actions=True)
    assert TABLES["mix"].probabilities is not None
    assert np.shares_memory(np.asarray(made.policy_probabilities), TABLES["mix"].probabilities)
    made = dynamics(plain("nominal"), taken_over("nominal", "alt"), merge_actions=True)
    assert TABLES["alt"].actions is not None
    assert np.shares_memory(np.asarray(made.policy_actions), TABLES["alt"].actions)


@pytest.mark.parametrize(
    ("nominal", "local"),
    [(plain("nominal"), True), (plain("mix"), False), (taken_over("nominal", "mix", 1).after(0), False)],
)
def test_rows_are_kept_for_all_transitions_where_no_choice_was_observed(
    nominal: Law,
    local: bool,  # noqa: FBT001 - a column of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module, "SMALL", 3)
    assert dynamics(nominal, nominal, merge_actions=True).share_prior_rows is local
    monkeypatch.setattr(table_module, "SMALL", 4)
    assert dynamics(nominal, nominal, merge_actions=True).share_prior_rows is False


def test_weights_of_different_width_take_turns() -> None:
    """One evaluator serves many paths, and evaluators share a workspace: whichever comes next finds space."""
    one = checker()
    same, many = 'alt@{}.P=? [ F<=8 "bad" ]', 'alt@{}.P=? [ F<=5 ("mid" & G[2,3] !"bad") ]'
    texts = [text.format(t) for text, t in ((same, 1), (same, 5), (many, 2), (same, 3), (many, 5))]
    steppers = [one.stepper(goal(text)) for text in texts]
    alone = [checker().along(goal(text), PATH) for text in texts]
    for n, pair in enumerate(PATH):
        for stepper, expected in zip(steppers, alone, strict=True):
            np.testing.assert_array_equal(stepper.push(*pair), expected[n])
    assert len(evaluator_of(one.evaluators, goal(texts[2])).unrolled.obligations) > 4  # more than fit at first


def test_what_was_unrolled_for_another_evaluator_has_values() -> None:
    """Evaluators of one measure share its automaton; here the second unrolls it before the first has any values."""
    one, text = checker(), '{}.P=? [ F<=40 "bad" ]'
    near, weights = evaluator_of(one.evaluators, goal(text.format("nominal@1"))), ForwardBuffers(2, -1, 40)
    near.push(weights, *PATH[0], answered=False)
    one.stepper(goal(text.format("alt@12"))).push_all(PATH)
    near.push(weights, *PATH[1], answered=True)
    np.testing.assert_array_equal(weights.values, checker().along(goal(text.format("nominal@1")), PATH)[1])


@pytest.mark.parametrize("before", ["nothing", "a wider one of another evaluator"])
def test_wider_weights_of_the_same_evaluator_find_space(before: str) -> None:
    one, text = checker(), 'alt@{}.P=? [ F<=8 "bad" ]'
    if before != "nothing":
        one.stepper(goal('alt@6.P=? [ F<=7 "mid" ]')).push_all(PATH)
    narrow, wide = (one.stepper(goal(text.format(t))) for t in (1, 5))
    alone = [checker().along(goal(text.format(t)), PATH) for t in (1, 5)]
    for n, pair in enumerate(PATH):
        np.testing.assert_array_equal(narrow.push(*pair), alone[0][n])
        np.testing.assert_array_equal(wide.push(*pair), alone[1][n])


@pytest.mark.parametrize("seed", range(6))
def test_an_obligation_of_many_parts_is_what_enumeration_gives(seed: int) -> None:
    small = telling_world(seed, length=3)
    text = 'alt@2.P=? [ F<=2 ("a" & G[1,2] ("b" | X "a")) ]'
    assert small.number(text) == pytest.approx(float(exact(small, text)), abs=1e-12)


def with_certain(small: Small, name: str) -> Small:
    """Return the same with a policy that leaves nothing to chance."""
    policy = tuple({next(iter(row)): Fraction(1)} for row in small.setting.policies[name])
    setting = replace(small.setting, policies={**small.setting.policies, name: policy})
    return replace(small, setting=setting, policies=as_policies(setting))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("world", ["alt[1]@2", "alt[2]@1", "nominal@2"])
def test_a_stochastic_takeover_is_seen_by_a_nested_look_back(seed: int, world: str) -> None:
    """The nested quantity's nominal is chance for some steps and none for the others."""
    small = with_certain(telling_world(seed, stochastic=True, length=3, support=2), "nominal")
    text = f'{world}.P=? [ F<=2 third@1.P>0.5 [ F<=1 "b" ] ]'
    assert small.number(text) == pytest.approx(float(exact(small, text)), abs=1e-12)


def test_a_small_model_is_evaluated_by_the_compiled_loops_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_write_answers", "_push_each", "_bound_last_level"):
        monkeypatch.setattr(Evaluator, name, None)
    one = checker()
    followed = one.along(goal('alt@2.P=? [ F<=3 "bad" ]'), PATH)
    assert one.check(parse('alt@2.P=? [ F<=3 "bad" ]'), PATH, causal_model="any").value == followed[-1, 2]
    assert one.stepper(goal('alt@0.P=? [ F<=1 "bad" ]')).push(0, 0)[0] == 0.25


def test_a_table_is_made_for_a_model_of_few_states_or_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'alt@1.P=? [ F<=3 "bad" ]'
    answers = set()
    for small, prepared, lazy in ((4, False, False), (3, False, True), (3, True, False)):
        for module in (evaluator_module, table_module):
            monkeypatch.setattr(module, "SMALL", small)
        one = checker()
        if prepared:
            one.prepare(parse(text))
        answers.add(one.check(parse(text), PATH).value)
        evaluator = evaluator_of(one.evaluators, goal(text))
        assert evaluator.lazy is lazy
        assert (len(evaluator.value_table.table) == 0) is lazy
    assert len(answers) == 1


@pytest.mark.parametrize("text", ['alt[1]@2.P=? [ F<=5 "mid" ]', "mix[1]@3.R=? [ C<=5 ]", 'mix@2.P=? [ F<=5 "mid" ]'])
@pytest.mark.parametrize("end", range(2, 7))
def test_bounds_of_a_large_model_know_the_action_taken_last(
    text: str, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = checker().check(parse(text), PATH[:end], causal_model="any").bounds
    call_every_model_large(monkeypatch)
    assert checker().check(parse(text), PATH[:end], causal_model="any").bounds == pytest.approx(expected, abs=1e-12)


def test_recordings_of_a_large_model_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    query = goal('mix@3.P=? [ "mid" U<=4 "bad" ]')
    expected = checker().along(query, PATH)
    call_every_model_large(monkeypatch)
    stepper = checker().stepper(query)
    for begin, end in ((0, 2), (2, 5), (5, 6)):  # from the second on it is known that there is no table
        np.testing.assert_allclose(stepper.push_all(PATH[begin:end]), expected[begin:end], atol=1e-12)


def test_an_end_builds_no_table_for_the_model_without_end() -> None:
    one, query, end = checker(), goal('alt@1.P=? [ F<=6 "bad" ]'), PATH[-1][0]
    one.check(query, PATH, terminated=True)
    alt = one.evaluators.intervention(query.world.change, end)
    ended = one.evaluators.value_table(one.evaluators.nominal(end, 0).under(alt), query.measure)
    assert len(ended.rows) > 0
    assert not evaluator_of(one.evaluators, query).value_table.rows


SPREAD = (0.5, 0.25, 0.25)
RING = MDP.from_transitions(
    states=8,
    actions=2,
    transitions=[
        (s, a, (s + k) % 8, p) for s in range(8) for a in range(2) for k, p in zip((a, 3, 5), SPREAD, strict=True)
    ],
    labels={"bad": [0]},
)
ONE_STEP = 8 * 3
"""Numbers of the rows that one observed step of the ring may need: one row of three successors for each state."""


def ring_checker() -> tuple[Checker, Goal]:
    one = Checker(RING, tables({"nominal": [0] * 8, "alt": [1] * 8}, RING))
    return one, goal('alt@4.P=? [ F<=9 "bad" ]')


def ring_path(length: int, seed: int = 0) -> list[tuple[int, int]]:
    chance, state, path = Random(seed), 0, []
    for _ in range(length):
        path.append((state, 0))
        state = (state + chance.choice([0, 3, 5])) % 8
    return path


@pytest.mark.parametrize("way", ["pair by pair", "one at once", "all at once", "without answers", "bounds"])
@pytest.mark.parametrize("wandering", [True, False])
def test_without_a_row_budget_rows_take_what_one_query_needs(
    way: str,
    wandering: bool,  # noqa: FBT001 - a column of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row table may be cleared once in each query."""
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (1, 1, 1, 1))
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 0)
    one, query = ring_checker()
    mine = own(one.evaluators, query)
    evaluator, buffers = mine.evaluator, ForwardBuffers(5, -1, mine.evaluator.unrolled.horizon)
    path = ring_path(60) if wandering else [(3 * n % 8, 0) for n in range(60)]  # eight transitions, in turn
    if way == "pair by pair":
        for pair in path:
            evaluator.push(buffers, *pair, answered=True)
    elif way == "one at once":
        for pair in path:
            evaluator.push_all(buffers, pair_arrays([pair]), np.zeros((1, 5)))
    elif way == "all at once":
        evaluator.push_all(buffers, pair_arrays(path), np.zeros((len(path), 5)))
    elif way == "without answers":
        evaluator.push_all(buffers, pair_arrays(path))
    else:
        for begin in range(56):
            evaluator.interval(pair_arrays(path[begin : begin + 4]), ANY)
    table = mine.rows(ANY if way == "bounds" else EXACT)
    assert 3 * table.computed > 8 * ONE_STEP
    assert len(table.successors) <= 2 * ONE_STEP


@LAW
@given(chances)
def test_states_show_their_label_sets(chance: Random) -> None:
    """The transitions of a label are those of the automaton for its label set: by state, or by action if goals nest."""
    case = a_case(chance, nested=chance.random() < 0.5)
    evaluator, twin = case.evaluator(), case.twin(0)
    unrolled, label_of = evaluator_module.labelled_automaton(evaluator.value_table)
    unrolled.extend(3)
    by_action, actions = evaluator.value_table.labelling.by_action, case.oracle.setting.actions
    assert len(label_of) == case.states * (actions if by_action else 1)
    for column, cells in enumerate(unrolled.obligations):
        for offset in range(min(3, unrolled.depth)):
            for state, action in product(range(case.states), range(actions)):
                if offset not in cells:
                    continue
                label = label_of[state * actions + action if by_action else state]
                transitions = unrolled.transitions[slice(*unrolled.ranges[column, label])].tolist()
                (target,) = [each[2] for each in transitions if each[0] <= offset < each[1]]
                rest = twin.automaton.step(cells[offset], twin.label_set(offset, state, action))
                if rest not in (FALSE, TRUE):
                    assert unrolled.obligations[target - FIRST_COLUMN][offset + 1] == rest
                else:
                    assert target == rest


@LAW
@given(chances)
def test_values_around_some_states_are_those_of_the_twin(chance: Random) -> None:
    """The way for large models to what lies ahead of the last pair."""
    case = a_case(chance, nested=chance.random() < 0.2)
    if chance.random() < 0.3:
        case = case.without_last_action()
    evaluator, twin = case.evaluator(), case.twin(0)
    evaluator.unrolled.extend(twin.observed + 1)
    for cells in evaluator.unrolled.obligations:
        if twin.observed in cells:
            obligation, everywhere = cells[twin.observed], np.arange(case.states)
            found = evaluator_module.closing_values(
                case.nominal, evaluator.value_table, twin.observed, obligation, everywhere, case.path[-1]
            )
            expected = [float(twin.value(twin.observed, state, obligation)) for state in range(case.states)]
            np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("text", [None, 'alt@3.P=? [ F<=5 ("a" & X X "b") ]'])
def test_a_large_model_has_the_values_and_bounds_of_the_twin(
    text: str | None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_every_model_large(monkeypatch)
    case = a_case(Random(seed), length=4, text=text)
    evaluator, buffers, values = case.evaluator(), case.buffers(), np.full((4, 4), np.nan)
    evaluator.push_all(buffers, case.arrays(), values)
    twins = [case.twin(3 - start) for start in range(4)]
    assert values[3] == pytest.approx([float(twin.value(0, *twin.first)) for twin in twins], abs=CLOSE)
    twin = twins[3]
    found = evaluator.interval(case.arrays(), ANY)
    assert found == pytest.approx([float(end) for end in twin.bounds(0, *twin.first, "any")], abs=CLOSE)
