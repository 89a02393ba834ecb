"""Effects, responsibility and fewest changes: two definitions of each, and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from tests.oracle.evaluate import Evaluator
from tests.oracle.race import ONE, ZERO
from tests.oracle.recourse import Recourse, equal
from tests.oracle.recourse_cases import SETTINGS, Question, questions
from tests.oracle.responsibility import (
    avoidable,
    avoidable_is_robust,
    best_of,
    contingent,
    effects,
    few_changes,
    responsibility,
    subsets,
)
from tests.oracle.setting import Setting
from tests.oracle.test_recourse import lottery
from tests.tiers import first

GROUPS = 6
THIRD, HALF = Fraction(1, 3), Fraction(1, 2)


def missed(number: int) -> Iterator[tuple[Question, Recourse]]:
    """Yield the questions of a group whose goal is missed."""
    for seed in range(number, SETTINGS, GROUPS):
        for asked in questions(seed):
            recourse = asked.recourse
            if not recourse.meets(recourse.value("nominal")):
                yield asked, recourse


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_two_definitions_give_the_same_responsibility(number: int) -> None:
    degrees: set[Fraction] = set()
    for asked, recourse in missed(number):
        mine = responsibility(recourse)
        assert mine == contingent(recourse), asked
        degrees |= set(mine.values())
    assert {ZERO, HALF, ONE} <= degrees


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_one_change_that_meets_the_goal_is_one_decision_fully_responsible(number: int) -> None:
    """A set of m decisions that meets it also bounds the number of changes, which may depend on what happens."""
    single = 0
    for asked, recourse in missed(number):
        degrees, change = responsibility(recourse, within=5), few_changes(recourse)
        assert (change is None) == (not any(degrees.values())), asked
        if change is None:
            continue
        assert change.changes <= 1 / max(degrees.values())
        assert (change.changes == 1) == (max(degrees.values()) == 1)
        if change.changes == 1:
            single += 1
            assert {at for at, _ in change.ties} <= {at for at, degree in degrees.items() if degree == 1}
    assert single >= 3


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_the_first_of_few_changes_is_one_that_the_induction_chooses(number: int) -> None:
    """Along the observed path, with all changes left: it is worth the value, and staying is worth it until then."""
    found = 0
    for asked, recourse in missed(number):
        change = few_changes(recourse)
        if change is None:
            continue
        assert recourse.meets(change.value)
        assert not recourse.meets(recourse.value(f"best[<={change.changes - 1}]"))
        assert change.taken != change.proposed
        window, induction = recourse.window, recourse.induction(recourse.few)
        memory, earned = recourse.goal.begin(), ZERO
        for offset, (state, taken) in enumerate(window.path[: change.offset + 1]):
            memory = recourse.goal.read(memory, offset, state)
            chosen = {
                next(iter(option.actions))
                for option, value in induction.options(offset, state, memory, change.changes)
                if option.left < change.changes and equal(earned + value, change.value)
            }
            assert chosen == {action for at, action in change.ties if at == offset}, asked
            if offset < window.d:
                assert taken is not None
                earned += recourse.goal.earned(offset, state, taken, window.path[offset + 1][0])
        assert change.proposed == min(chosen)
        found += 1
    assert found >= 5


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_the_best_change_of_one_decision_has_the_largest_effect(number: int) -> None:
    """Unless none helps. Sets of decisions do no better than as many changes wherever they are needed."""
    helped = 0
    for asked, recourse in missed(number):
        happened, found = recourse.value("nominal"), effects(recourse)
        best = {}
        for offset in range(recourse.window.d + 1):
            options = [effect for (at, _), effect in found.items() if at == offset]
            best[offset] = best_of(recourse, [offset])
            assert best[offset] == happened + recourse.pick([ZERO, *options]), asked
            helped += best[offset] != happened
        assert recourse.pick(list(best.values())) == recourse.value("best[<=1]")
        for each in subsets(recourse, 3):
            few = recourse.value(f"best[<={len(each)}]")
            assert recourse.pick([few, best_of(recourse, each)]) == few
    assert helped >= 10


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_an_effect_at_the_intervention_state_is_that_of_an_action_held_for_one_step(number: int) -> None:
    """At later offsets only if what was read until then settled nothing: the goal is read from offset 0."""
    compared = 0
    for asked, recourse in missed(number):
        setting = asked.setting
        names = setting.action_names or tuple(map(str, range(setting.actions)))
        evaluator, found = Evaluator(setting), effects(recourse)
        for (offset, action), effect in found.items():
            if offset or any((state, action) not in setting.rows for state in range(setting.states)):
                continue
            answer = evaluator.answer(f"do({names[action]})[1]@{recourse.window.d}.{asked.goal}")
            assert answer.parts[0].value - recourse.value("nominal") == effect, asked
            compared += effect != 0
    assert compared >= 5


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_what_was_avoidable_beforehand_was_avoidable_in_hindsight(number: int) -> None:
    robust = 0
    for asked, recourse in missed(number):
        found = avoidable(recourse)
        assert recourse.meets(recourse.value("best")) == (found != "no"), asked
        if few_changes(recourse) is not None:
            assert found != "no"
        for kind in ("any", "stable"):
            if avoidable_is_robust(recourse, kind):
                robust += recourse.window.d > 0
                low, high = recourse.bounds("best", kind)
                assert recourse.meets(low) == recourse.meets(high) == (found != "no")
    assert robust >= 5


def test_avoidable_by_hand() -> None:
    """The ticket that lost was the best beforehand. Ticket 1 has .55, but what lost may decide on it too."""
    goals = {bound: Recourse(lottery(), f'P>={bound} [ F<=1 "won" ]', 1) for bound in ("0.5", "0.6")}
    assert {bound: avoidable(goal) for bound, goal in goals.items()} == {"0.5": "hindsight", "0.6": "no"}
    assert not any(avoidable_is_robust(goal, "any") for goal in goals.values())
    before = Recourse(lottery(((0, 2),), nominal=2), 'P>=0.5 [ F<=1 "won" ]')
    assert avoidable(before) == "foresight"
    assert avoidable_is_robust(before, "any")


def test_avoidable_in_hindsight_is_robust_only_if_no_causal_model_makes_foresight_enough() -> None:
    """Under `any` the other way may have been sure to win. The way taken was good, and only its second step bad."""
    half, sure = Fraction(1, 2), ONE
    ways = {
        (0, 0): {1: Fraction("0.6"), 2: Fraction("0.4")},
        (0, 1): {3: half, 4: half},
        (3, 0): {1: sure},
        (3, 1): {4: sure},
    }
    ends = {(state, action): {state: sure} for state in (1, 2, 4) for action in range(2)}
    setting = Setting(5, 2, ways | ends, {"nominal": ({1: ONE},) * 5}, ((0, 1), (3, 1)), {"won": frozenset({1})})
    recourse = Recourse(setting, 'P>=0.7 [ F<=2 "won" ]', 1)
    assert avoidable(recourse) == "hindsight"
    assert recourse.bounds("best", "any") == (ONE, ONE)
    assert recourse.bounds("optimal", "any") == (Fraction("0.2"), ONE)
    assert not avoidable_is_robust(recourse, "any")


def ladder() -> Setting:
    """Return four rungs: action 1 climbs for sure, action 0 stays; from the top there is no way down."""
    rows = {(s, a): {min(s + a, 3): ONE} for s in range(4) for a in range(2)}
    path = ((0, 1), (1, 0), (1, 0), (1, 0))
    return Setting(4, 2, rows, {"nominal": ({0: ONE},) * 4}, path, {"top": frozenset({3}), "up": frozenset({2, 3})})


def test_responsibility_by_hand() -> None:
    """One climb was made. One more of the other three leads up, two of them to the top, before offset 4."""
    up, top = (Recourse(ladder(), f'P>=1 [ F<=4 "{label}" ]', 3) for label in ("up", "top"))
    assert responsibility(up) == {0: ZERO, 1: ONE, 2: ONE, 3: ONE}
    assert responsibility(top) == {0: ZERO, 1: HALF, 2: HALF, 3: HALF}
    assert responsibility(top, within=1) == dict.fromkeys(range(4), ZERO)
    assert effects(up) == {(at, a): ONE if at and a else ZERO for at in range(4) for a in range(2)}


def test_the_last_chance_is_proposed_first() -> None:
    top = Recourse(ladder(), 'P>=1 [ F<=4 "top" ]', 3)
    change = few_changes(top)
    assert change is not None
    assert (change.changes, change.offset, change.taken, change.proposed, change.value) == (2, 2, 0, 1, ONE)
    assert change.ties == {(1, 1), (2, 1)}
    assert few_changes(top, most=1) is None


def test_a_goal_that_is_met_has_nobody_responsible() -> None:
    met = Recourse(ladder(), 'P>=1 [ G<=4 !"top" ]', 3)
    for question in (responsibility, contingent, few_changes, avoidable):
        with pytest.raises(ValueError, match="the goal is met"):
            question(met)


def test_three_of_three_decisions_share_the_responsibility() -> None:
    """From the bottom to the top takes three climbs, and none was made."""
    slow = Setting(4, 2, ladder().rows, {"nominal": ({0: ONE},) * 4}, ((0, 0),) * 3, ladder().labels)
    assert responsibility(Recourse(slow, 'P>=1 [ F<=3 "top" ]', 2)) == dict.fromkeys(range(3), THIRD)
