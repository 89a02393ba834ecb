"""`monitor.recourse` against the oracle, which imports nothing of it: values, effects, responsibility, changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import monitor
from monitor.exact.recourse import RecourseReport, Unchanged
from tests.oracle.recourse import Recourse
from tests.oracle.recourse_cases import SETTINGS, Question, questions
from tests.oracle.responsibility import avoidable, effects, few_changes, responsibility
from tests.tiers import first
from tests.truth.engine_side import Engine

GROUPS = 6
EXACT = 1e-12
MOST = 3


def asked_of(number: int) -> Iterator[tuple[Question, dict[str, Any]]]:
    for seed in range(number, SETTINGS, GROUPS):
        about = Engine(questions(seed)[0].setting).about
        for asked in questions(seed):
            yield asked, about


def report_on(asked: Question, about: dict[str, Any], unchanged: Unchanged = "nominal") -> RecourseReport:
    goal = f"nominal@{asked.offset}.{asked.goal}"
    return monitor.recourse(goal, most=MOST, unchanged=unchanged, **about)


def agrees(report: RecourseReport, oracle: Recourse) -> bool:
    """Compare all numbers; return whether the goal is missed."""
    last = oracle.window.d
    few = [float(oracle.value(f"best[<={k}]")) for k in range(MOST + 1)]
    assert [plan.value for plan in report.plans] == pytest.approx(few, abs=EXACT)
    assert (report.unchanged, report.best) == pytest.approx((few[0], float(oracle.value("best"))), abs=EXACT)
    assert report.optimal == pytest.approx(float(oracle.value("optimal")), abs=EXACT)
    assert [decision.offset for decision in report.decisions] == list(range(last, -1, -1))
    assert [(decision.state, decision.taken) for decision in report.decisions] == list(oracle.window.path)
    found = {
        (last - decision.offset, effect.action): effect.difference
        for decision in report.decisions
        for effect in decision.effects
    }
    expected = effects(oracle)
    assert list(found) == list(expected)
    assert list(found.values()) == pytest.approx([float(effect) for effect in expected.values()], abs=EXACT)
    degrees = [decision.responsibility for decision in report.decisions]
    if oracle.meets(oracle.value("nominal")):
        assert (report.avoidable, degrees) == (None, [None] * (last + 1))
        return False
    assert report.avoidable == avoidable(oracle)
    assert degrees == pytest.approx([float(degree) for degree in responsibility(oracle).values()], abs=EXACT)
    return True


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_a_report_agrees_with_brute_force(number: int) -> None:
    missed, changed = 0, 0
    for asked, about in asked_of(number):
        report, oracle = report_on(asked, about), asked.recourse
        if not agrees(report, oracle):
            continue
        missed += 1
        change = few_changes(oracle, MOST)
        if change is None:
            assert not any(plan.holds for plan in report.plans)
            continue
        plan = next(plan for plan in report.plans if plan.holds)
        assert plan.changes == change.changes
        assert plan.first is not None
        first = oracle.window.d - plan.first.offset, plan.first.proposed, plan.first.taken
        assert first == (change.offset, change.proposed, oracle.window.path[change.offset][1])
        changed += 1
    assert missed >= 20
    assert changed >= 5


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_a_report_agrees_if_unchanged_is_the_observed_action(number: int) -> None:
    differing = 0
    for asked, about in asked_of(number):
        report = report_on(asked, about, "observed")
        agrees(report, Recourse(asked.setting, asked.goal, asked.offset, unchanged="observed"))
        differing += report.plans != report_on(asked, about).plans
    assert differing >= 3
