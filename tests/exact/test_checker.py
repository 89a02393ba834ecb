"""What a `Checker` keeps and prepares, and how its ways to the same answer agree."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.exact import Checker, tables
from monitor.exact import evaluators as worlds_module
from monitor.exact import value_table as table_module
from monitor.exact.forward import evaluator as evaluator_module
from monitor.exact.inputs import check_path
from monitor.logic import parse
from monitor.logic.syntax import Formula, Goal
from monitor.model import MDP
from tests.exact.forward.case import evaluator_of
from tests.mutation.test_questions import call_every_model_large, leave_no_room

MODEL = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[
        *[(s, 0, t, 0.5) for s in range(3) for t in (s, s + 1)],
        *[(s, 1, t, p) for s in range(3) for t, p in ((s, 0.75), (3, 0.25))],
        *[(3, a, t, 0.5) for a in range(2) for t in (0, 3)],
    ],
    labels={"bad": [3], "mid": [1]},
    rewards=[(s, 1, 1.0) for s in range(4)],
)
POLICIES = {"nominal": [0] * 4, "alt": [1] * 4, "mix": [[0.5, 0.5]] * 4}
PATH = ((0, 0), (1, 0), (1, 1), (3, 0), (0, 0), (0, 1))
QUESTIONS = (
    'alt@3.P=? [ F<=6 "bad" ]',
    'mix@3.P=? [ "mid" U<=4 "bad" ]',
    "alt[2]@3.R=? [ C[1,5] ]",
    'mix@3.P=? [ F<=2 alt@0.P>0.4 [ X "bad" ] ]',
)


def checker() -> Checker:
    return Checker(MODEL, tables(POLICIES, MODEL))


def goal(text: str) -> Goal:
    formula = parse(text)
    assert isinstance(formula, Goal)
    return formula


@pytest.mark.parametrize("size", ["small", "large", "large without room"])
@pytest.mark.parametrize("text", QUESTIONS)
def test_a_recording_in_one_call_equals_pair_by_pair_and_fresh_checks(
    text: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size != "small":
        call_every_model_large(monkeypatch)
    if size == "large without room":
        leave_no_room(monkeypatch)
    at_once = checker().along(goal(text), PATH)
    stepper = checker().stepper(goal(text))
    assert at_once.shape == (len(PATH), 4)
    for n, (state, action) in enumerate(PATH):
        stepped = stepper.push(state, action).copy()
        np.testing.assert_array_equal(at_once[n], stepped)
        known = min(n + 1, 4)
        assert np.isnan(stepped[known:]).all()
        for offset in range(known):
            asked = parse(text.replace("@3", f"@{offset}"))
            assert stepped[offset] == pytest.approx(checker().check(asked, PATH[: n + 1]).value, abs=1e-12)


def test_rows_are_computed_once_for_all_queries() -> None:
    one = checker()
    stepper = one.stepper(goal(QUESTIONS[0]))
    assert stepper.rows_computed == 0
    stepper.push_all(PATH)
    computed = stepper.rows_computed
    assert computed > 0
    again = one.stepper(goal('alt@2.P=? [ G<=5 !"mid" ]'))
    again.push_all(PATH)
    assert again.rows_computed == computed


def test_the_warm_up_path_is_possible() -> None:
    chain = MDP.from_transitions(states=3, actions=2, transitions=[(s, 1, (s + 1) % 3, 1.0) for s in range(3)])
    path = Checker(chain, tables({"nominal": [1, 1, 1]}, chain)).some_path()
    assert path == [(0, 1), (1, 1), (2, 1)]
    check_path(MODEL, checker().some_path())


def test_prepare_builds_everything_before_any_path() -> None:
    one = checker()
    assert one.table_bytes == 0
    one.prepare(parse(QUESTIONS[0]))
    held = one.table_bytes
    assert held == 8 * MODEL.states * 7  # F<=6 to F<=0
    one.check(parse(QUESTIONS[0]), PATH)
    assert one.table_bytes == held
    one.prepare(parse(QUESTIONS[0].replace("=?", ">0.5")), "any", window=3)
    assert one.table_bytes == held


def test_after_prepare_the_first_message_allocates_nothing() -> None:
    text = 'alt@9.P=? [ F<=30 "bad" ]'
    one = checker()
    one.prepare(parse(text), "any")
    evaluator = evaluator_of(one.evaluators, goal(text))
    transitions = evaluator.unrolled.transitions
    assert evaluator.computed > 0
    budget = one.evaluators._budget  # noqa: SLF001 - it counts what tables of rows take
    allocated = budget.allocated
    incremental = one.incremental_check(parse(text), "any", window=20)
    for end in range(1, 13):
        assert incremental.verdict([(0, 0)] * end, 1).bounds is not None
    assert evaluator.unrolled.transitions is transitions
    assert budget.allocated == allocated


def refused(text: str, kind: str, window: int | None) -> bool:
    try:
        checker().prepare(parse(text), kind, window=window)  # type: ignore[arg-type] # a causal model
    except LimitError:
        return True
    return False


def test_bounds_are_sized_by_the_steps_a_formula_looks_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_LEVELS", 4 * MODEL.states)  # three observed steps and where they end
    answers = {
        (text, kind, window): refused(f'{text}.P>0.5 [ F<=30 "bad" ]', kind, window)
        for text, kind, window in [
            ("alt@0", "any", 9),
            ("alt@3", "any", 9),
            ("alt@4", "any", 9),
            ("alt@4", "stable", 9),
            ("alt@4", "gumbel", 9),
            ("alt@-1", "any", 4),
            ("alt@-1", "any", 5),
            ("alt@-4", "any", None),
            ("alt@-5", "any", None),
            ("nominal@9", "any", 9),
            ("mix@2", "any", 9),
            ("mix@3", "any", 9),
        ]
    }
    assert [key for key, answer in answers.items() if answer] == [
        ("alt@4", "any", 9),
        ("alt@4", "stable", 9),
        ("alt@-1", "any", 5),
        ("alt@-5", "any", None),
        ("mix@3", "any", 9),
    ]


def test_bounds_count_each_action_that_may_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_LEVELS", 4 * MODEL.states)
    one = Checker(MODEL, tables({"nominal": POLICIES["mix"], "alt": POLICIES["alt"]}, MODEL))
    one.prepare(parse('alt@3.P>0.5 [ F<=30 "bad" ]'), "any")
    with pytest.raises(LimitError, match=r"as many as 24 rows"):  # at three offsets, two actions in each of four states
        one.prepare(parse('alt[1]@3.P>0.5 [ F<=30 "bad" ]'), "any")


def test_constants_and_short_formulas_are_never_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_LEVELS", 0)
    assert not refused("alt@3.P>0.5 [ true ]", "any", 9)
    assert not refused('alt@3.P>0.5 [ F<=3 (alt@1.P>0.5 [ X "bad" ]) ]', "any", 9)  # looks back: one by one
    assert refused('alt@3.P>0.5 [ F<=3 "bad" ]', "any", 9)
    call_every_model_large(monkeypatch)
    assert not refused('alt@3.P>0.5 [ F<=3 "bad" ]', "any", 9)  # found out when a path reaches too far


def test_a_table_over_the_limit_is_refused_at_start_unless_the_model_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", 0)
    monkeypatch.setattr(table_module, "numbers", lambda _: 6)
    text = 'alt@3.P>0.5 [ F<=30 "bad" ]'
    assert refused(text, "gumbel", 9)
    monkeypatch.setattr(table_module, "SMALL", 0)
    monkeypatch.setattr(evaluator_module, "SMALL", 0)
    assert not refused(text, "gumbel", 9)


def test_a_verdict_has_the_text_it_was_given() -> None:
    formula: Formula = parse('alt@1.P>0.5[F<=2 "bad"]')
    one = checker()
    assert one.check(formula, PATH).formula == 'alt@1.P>0.5 [ F<=2 "bad" ]'
    assert one.check(formula, PATH, text="mine").formula == "mine"
    assert one.incremental_check(formula, window=3).text == 'alt@1.P>0.5 [ F<=2 "bad" ]'
    assert one.incremental_check(formula, text="mine", window=3).text == "mine"


def test_a_path_is_complete_and_not_terminated_by_default() -> None:
    one, formula = checker(), parse('alt@-1.P=? [ F<=2 "bad" ]')
    plain = one.check(formula, PATH)
    assert not plain.start_dropped
    assert one.check(formula, PATH, start_observed=False).start_dropped
    assert not one.check(parse('alt@1.P=? [ F<=2 "bad" ]'), PATH, start_observed=False).start_dropped
    last = parse('alt@0.P=? [ F<=2 "bad" ]')
    assert one.check(last, PATH).value == pytest.approx(1 - 0.75**2)
    assert one.check(last, PATH, terminated=True).value == 0.0


def test_a_checker_shows_what_it_was_given() -> None:
    policies = tables(POLICIES, MODEL)
    one = Checker(MODEL, policies, {"same": MODEL})
    assert one.model is MODEL
    assert one.policies == policies
    assert list(one.models) == ["same"]
    assert one.evaluators.policies.keys() >= policies.keys()
