"""Whether a missed goal could have been met: the engine and the referee against the oracle, and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from msgspec.structs import replace

import monitor
from monitor.exact.avoidable import MOST_CHANGES, NESTED, SAMPLED
from monitor.referee import derive
from monitor.types import UNKNOWN_POLICY, Changes, Recourse, Verdict
from tests.exact.best.test_decision_rules import CRAWL, FELL, LEDGE, POLICIES, WALK, ask
from tests.oracle.recourse_cases import SETTINGS, Question, questions
from tests.oracle.responsibility import avoidable, avoidable_is_robust, few_changes
from tests.tiers import first, heavy
from tests.truth.engine_side import Engine
from tests.truth.generate import Case, Kind

GROUPS = 6
EXACT = 1e-12


def missed(number: int, kind: Kind) -> Iterator[tuple[Question, Case]]:
    """Yield the questions of a group whose goal is missed, as formulas."""
    for seed in range(number, SETTINGS, GROUPS):
        for asked in questions(seed):
            if not asked.recourse.meets(asked.recourse.value("nominal")):
                yield asked, Case(asked.setting, f"regret(optimal@{asked.offset}, {asked.goal})", kind)


def recourse_of(verdict: Verdict) -> Recourse:
    assert verdict.recourse is not None
    return verdict.recourse


@heavy
@pytest.mark.parametrize("program", ["engine", "referee"])
@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_answers_are_those_of_the_oracle(number: int, program: Literal["engine", "referee"]) -> None:
    seen: set[str] = set()
    changed = 0
    for asked, case in missed(number, "gumbel"):
        engine, oracle = Engine(asked.setting), asked.recourse
        found = recourse_of(engine.verdict_alone(case) if program == "engine" else engine.verdict_of_referee(case))
        assert found.avoidable == avoidable(oracle), case
        assert (found.robust, found.reason) == (None, ""), case
        values = float(oracle.value("best")), float(oracle.value("optimal"))
        assert (found.best, found.optimal) == pytest.approx(values, abs=EXACT), case
        change = few_changes(oracle, MOST_CHANGES)
        assert (change is None) == (found.changes is None), case
        if change is not None and found.changes is not None:
            value, last = found.changes.value, len(oracle.window.path) - 1
            assert value == pytest.approx(float(change.value), abs=EXACT), case
            assert found.changes == Changes(
                change.changes,
                value,
                last - change.offset,
                oracle.window.path[change.offset][0],
                change.taken,
                change.proposed,
                *_names(asked, change.taken, change.proposed),
            ), case
            changed += 1
        seen.add(str(found.avoidable))
    assert seen >= {"foresight", "no"}
    assert changed >= 10


def _names(asked: Question, taken: int | None, proposed: int) -> tuple[str, str]:
    names = asked.setting.action_names
    return ("", "") if names is None else ("" if taken is None else names[taken], names[proposed])


@pytest.mark.parametrize("kind", ["any", "stable"])
@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_robust_is_that_of_the_oracle(number: int, kind: Kind) -> None:
    seen: set[bool | None] = set()
    for asked, case in missed(number, kind):
        expected = avoidable_is_robust(asked.recourse, kind)
        for verdict in (Engine(asked.setting).verdict_alone(case), Engine(asked.setting).verdict_of_referee(case)):
            assert recourse_of(verdict).robust == expected, case
        seen.add(expected)
    assert seen == {True, False}


HOME = 'P>={} [ F<=3 "home" ]'
LEDGE_THEN_HOME = 0.13235294117647056 + 0.6176470588235294 * 0.8
CHANGED = Changes(1, LEDGE_THEN_HOME, 1, 1, WALK, CRAWL)


@pytest.mark.parametrize(
    ("bound", "expected", "changes"),
    [(0.4, "foresight", CHANGED), (0.6, "hindsight", CHANGED), (0.7, "no", None)],
)
def test_the_fall_from_the_ledge(bound: float, expected: str, changes: Changes | None) -> None:
    """Crawling on the ledge would have led home; knowing of the fall makes that more probable."""
    for answer in (ask, _judged):
        found = recourse_of(answer(f"regret(careful@2, {HOME.format(bound)})", FELL))
        assert found.avoidable == expected
        rounded = found.changes and replace(found.changes, value=round(found.changes.value, 12))
        assert rounded == (changes and replace(changes, value=round(changes.value, 12)))
        assert (found.best, found.optimal) == pytest.approx((LEDGE_THEN_HOME, 0.498981161), abs=1e-9)


def _judged(text: str, path: list[tuple[int, int]]) -> Verdict:
    return derive(text, model=LEDGE, path=path, policies=POLICIES)


def test_only_missed_goals_of_regret_are_examined() -> None:
    assert ask(f"regret(careful@2, {HOME.format(0.0)})").outcome == "safe"
    for text in (f"regret(careful@2, {HOME.format(0.0)})", f"careful@2.{HOME.format(0.9)}", "false"):
        assert ask(text).recourse is None
        assert _judged(text, FELL).recourse is None
    text = f"regret(careful@2, {HOME.format(0.9)})"
    assert ask(text, recourse=False).recourse is None
    assert derive(text, model=LEDGE, path=FELL, policies=POLICIES, recourse=False).recourse is None


def test_a_goal_that_nothing_can_meet() -> None:
    for causal_model, robust in (("gumbel", None), ("any", True)):
        for answer in (monitor.check, derive):
            verdict = answer("regret(careful@2, P>0 [ false ])", **_about(causal_model=causal_model))
            assert recourse_of(verdict) == Recourse("no", robust, 0.0, 0.0)


def _about(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of check
    return {"model": LEDGE, "path": FELL, "policies": POLICIES, **more}


def test_now_nothing_is_known_in_hindsight() -> None:
    found = recourse_of(ask('regret(careful@0, P>=0.9 [ F<=2 "home" ])', [(0, WALK)]))
    assert found.best == pytest.approx(found.optimal, abs=1e-12)
    assert found.avoidable == "no"


def test_it_is_not_known_after_an_unknown_policy() -> None:
    text = f"regret(careful@{{}}, {HOME.format(0.9)})"
    for answer in (monitor.check, derive):
        found = recourse_of(answer(text.format(1), **_about(acted=["nominal", UNKNOWN_POLICY, "nominal"])))
        assert found == Recourse(reason=found.reason)
        assert found.reason.startswith("a policy that is not configured acted at 1 of the steps from the intervention")
        known, before = (
            answer(text.format(1), **_about(acted=acted)) for acted in ((), [UNKNOWN_POLICY, *["nominal"] * 2])
        )
        assert recourse_of(known) == recourse_of(before)
        assert recourse_of(known).reason == ""


def test_what_cannot_be_answered_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = 'regret(careful@1, P>=0.99 [ F<=1 P>=0.9 [ F<=1 "home" ] ])'
    for answer in (monitor.check, derive):
        assert recourse_of(answer(nested, **_about())) == Recourse(reason=NESTED)
    text = f"regret(careful@2, {HOME.format(0.9)})"
    assert recourse_of(monitor.check(text, **_about(engine="sampled"))) == Recourse(reason=SAMPLED)
    monkeypatch.setattr("monitor.exact.best.values.MAX_NUMBERS", 10)
    found = recourse_of(monitor.check(text, **_about()))
    assert (found.avoidable, found.best, found.changes) == (None, None, None)
    assert "limit MAX_NUMBERS" in found.reason
