"""A law and a measure made ready for the loops: what these are told of the law, and the room that they work in."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from monitor.causal import Intervention, Law
from monitor.exact import Checker, tables
from monitor.exact import value_table as value_table_module
from monitor.exact.evaluators import pair_arrays
from monitor.exact.forward import evaluator as evaluator_module
from monitor.exact.forward import row_table
from monitor.exact.forward.evaluator import Evaluator, dynamics
from monitor.exact.forward.row_table import ANY, EXACT
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from tests.exact.small import Small, as_policies, exact, telling_world
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
def test_what_acts_by_regimes_of_the_law(  # noqa: PLR0917 - columns of the table
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
    assert made.regime_begin.tolist() == first
    assert made.is_nominal.tolist() == default
    assert made.stochastic.tolist() == stochastic
    for n, row in enumerate(actions or ()):
        assert row is None or made.policy_actions[n].tolist() == row
    assert made.policy_probabilities.tolist() == chances
    assert made.nominal_probabilities.tolist() == observed
    assert made.policy_probabilities.shape[1:] == made.nominal_probabilities.shape[1:] == (4, 2)
    assert (made.same_model, made.merge_actions, made.share_prior_rows) == (True, True, False)


def test_rows_and_rewards_are_those_of_the_world_asked_about() -> None:
    law = plain("nominal").under(Intervention(dynamics=OTHER))
    made = dynamics(plain("nominal"), law, merge_actions=False)
    assert (made.same_model, made.merge_actions) == (False, False)
    assert made.counterfactual_successors.tolist() == OTHER.successors.tolist()
    assert made.observed_successors.tolist() == MODEL.successors.tolist()
    assert made.rewards.tolist() == OTHER.rewards.tolist()
    assert OTHER.transition_rewards is not None
    assert made.transition_rewards.tolist() == OTHER.transition_rewards.tolist()
    assert dynamics(plain("nominal"), plain("nominal"), merge_actions=True).transition_rewards.tolist() == []
    arrays = [each for each in made if isinstance(each, np.ndarray)]
    assert not any(each.flags.writeable for each in arrays if each.dtype == np.float64)  # else compiled anew


def test_one_table_of_a_policy_is_not_copied() -> None:
    made = dynamics(plain("nominal"), taken_over("nominal", "mix"), merge_actions=True)
    assert TABLES["mix"].probabilities is not None
    assert np.shares_memory(made.policy_probabilities, TABLES["mix"].probabilities)
    made = dynamics(plain("nominal"), taken_over("nominal", "alt"), merge_actions=True)
    assert TABLES["alt"].actions is not None
    assert np.shares_memory(made.policy_actions, TABLES["alt"].actions)


@pytest.mark.parametrize(
    ("nominal", "local"),
    [(plain("nominal"), True), (plain("mix"), False), (taken_over("nominal", "mix", 1).after(0), False)],
)
def test_rows_are_kept_for_all_transitions_where_no_choice_was_observed(
    nominal: Law,
    local: bool,  # noqa: FBT001 - a column of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(value_table_module, "SMALL", 3)
    assert dynamics(nominal, nominal, merge_actions=True).share_prior_rows is local
    monkeypatch.setattr(value_table_module, "SMALL", 4)
    assert dynamics(nominal, nominal, merge_actions=True).share_prior_rows is False


def test_walks_of_different_width_take_turns() -> None:
    """One arm serves many walks, and arms share their room: whoever comes next finds enough of it."""
    one = checker()
    same, many = 'alt@{}.P=? [ F<=8 "bad" ]', 'alt@{}.P=? [ F<=5 ("mid" & G[2,3] !"bad") ]'
    texts = [text.format(t) for text, t in ((same, 1), (same, 5), (many, 2), (same, 3), (many, 5))]
    steppers = [one.stepper(goal(text)) for text in texts]
    alone = [checker().along(goal(text), PATH) for text in texts]
    for n, pair in enumerate(PATH):
        for stepper, expected in zip(steppers, alone, strict=True):
            np.testing.assert_array_equal(stepper.push(*pair), expected[n])
    assert len(steppers[2]._line.arm.unrolled.obligations) > 4  # more than there is room for at first


@pytest.mark.parametrize("before", ["nothing", "a wider one of another arm"])
def test_a_wider_walk_of_the_same_arm_finds_room(before: str) -> None:
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
    policy = [{next(iter(row)): Fraction(1)} for row in small.setting.policies[name]]
    setting = replace(small.setting, policies={**small.setting.policies, name: policy})
    return replace(small, setting=setting, policies=as_policies(setting))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("world", ["alt[1]@2", "alt[2]@1", "nominal@2"])
def test_what_was_done_by_chance_for_a_while_is_met_by_what_looks_back_on_it(seed: int, world: str) -> None:
    """The nested quantity's nominal is chance for some steps and none for the others."""
    small = with_certain(telling_world(seed, stochastic=True, length=3, support=2), "nominal")
    text = f'{world}.P=? [ F<=2 third@1.P>0.5 [ F<=1 "b" ] ]'
    assert small.number(text) == pytest.approx(float(exact(small, text)), abs=1e-12)


def test_a_small_model_is_answered_by_the_loops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_close", "_push_each", "_close_levels"):
        monkeypatch.setattr(Evaluator, name, None)
    one = checker()
    followed = one.along(goal('alt@2.P=? [ F<=3 "bad" ]'), PATH)
    assert one.check(parse('alt@2.P=? [ F<=3 "bad" ]'), PATH, causal_model="any").value == followed[-1, 2]
    assert one.stepper(goal('alt@0.P=? [ F<=1 "bad" ]')).push(0, 0)[0] == 0.25


def test_a_table_is_made_for_a_model_of_few_states_or_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'alt@1.P=? [ F<=3 "bad" ]'
    answers = set()
    for small, prepared, lazy in ((4, False, False), (3, False, True), (3, True, False)):
        for module in (evaluator_module, value_table_module):
            monkeypatch.setattr(module, "SMALL", small)
        one = checker()
        if prepared:
            one.prepare(parse(text))
        answers.add(one.check(parse(text), PATH).value)
        (arm,) = one.worlds._arms.values()
        assert arm.lazy is lazy
        assert (len(arm.value_table.table) == 0) is lazy
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
    asked = goal('mix@3.P=? [ "mid" U<=4 "bad" ]')
    expected = checker().along(asked, PATH)
    call_every_model_large(monkeypatch)
    stepper = checker().stepper(asked)
    for begin, end in ((0, 2), (2, 5), (5, 6)):  # from the second on it is known that there is no table
        np.testing.assert_allclose(stepper.push_all(PATH[begin:end]), expected[begin:end], atol=1e-12)


def test_an_end_makes_no_table_of_the_world_that_goes_on() -> None:
    one = checker()
    one.check(parse('alt@1.P=? [ F<=6 "bad" ]'), PATH, terminated=True)
    rows = {law.end: len(tail.rows) for (law, _), tail in one.worlds._tails.items()}
    assert rows[None] == 0
    assert rows[PATH[-1][0]] > 0


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


def ring_arm() -> tuple[Checker, Goal]:
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
def test_rows_take_no_more_room_than_one_question_needs_where_there_is_none(
    way: str,
    wandering: bool,  # noqa: FBT001 - a column of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once in a question all rows are forgotten to make room, in each question anew."""
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (1, 1, 1, 1))
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 0)
    one, asked = ring_arm()
    stepper = one.stepper(asked)
    path = ring_path(60) if wandering else [(3 * n % 8, 0) for n in range(60)]  # eight transitions, in turn
    arm = stepper._line.arm
    if way == "pair by pair":
        for pair in path:
            stepper.push(*pair)
    elif way == "one at once":
        for pair in path:
            stepper.push_all([pair])
    elif way == "all at once":
        stepper.push_all(path)
    elif way == "without answers":
        arm.push_all(stepper._line.progress, pair_arrays(path))
    else:
        for begin in range(56):
            arm.interval(pair_arrays(path[begin : begin + 4]), ANY)
    table = arm._row_tables(ANY if way == "bounds" else EXACT)
    assert 3 * table.computed > 8 * ONE_STEP
    assert len(table.arrays.successors) <= 2 * ONE_STEP
