"""`monitor.recourse` by hand: plans that depend on what happens, unchanged decisions, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.errors import ConfigError, FormulaError, LimitError, PathError
from monitor.exact.recourse import PlannedChange

STAY, CLIMB = 0, 1
STAIRS = monitor.MDP.from_transitions(
    states=3,
    actions=2,
    labels={"top": [2]},
    transitions=[
        *[(s, STAY, s, 1) for s in range(3)],
        *[(0, CLIMB, 0, 0.5), (0, CLIMB, 1, 0.5), (1, CLIMB, 1, 0.5), (1, CLIMB, 2, 0.5), (2, CLIMB, 2, 1)],
    ],
    rewards=[(1, CLIMB, 2.0), (2, STAY, 1.0)],
)
"""A climb succeeds with probability 1/2; that somebody stayed says nothing about it."""
WAITED = [(0, STAY), (0, STAY), (0, STAY)]
ABOUT: dict[str, Any] = {"model": STAIRS, "policies": {"nominal": [STAY] * 3, "up": [CLIMB] * 3}, "path": WAITED}
TOP = 'nominal@2.P>=0.4 [ F<=3 "top" ]'


def test_a_plan_is_certain_up_to_its_first_change_and_likely_afterwards() -> None:
    report = monitor.recourse(TOP, **ABOUT)
    assert [plan.value for plan in report.plans] == [0.0, 0.0, 0.25, 0.5]
    assert [plan.holds for plan in report.plans] == [False, False, False, True]
    assert [plan.first for plan in report.plans[:2]] == [None, None]
    last = PlannedChange(0, 1, STAY, CLIMB, 0.5)
    assert report.plans[2].first == PlannedChange(1, 0, STAY, CLIMB, 1.0, 0.5, (last,))
    first = report.plans[3].first
    assert first is not None
    assert (first.offset, first.further) == (2, 1.0)
    again = {change.state: change for change in first.then}
    assert again[1] == PlannedChange(1, 1, STAY, CLIMB, 0.5, 0.25, (PlannedChange(0, 1, STAY, CLIMB, 0.25),))
    assert again[0] == PlannedChange(1, 0, STAY, CLIMB, 0.5, 0.25, (PlannedChange(0, 1, STAY, CLIMB, 0.25),))


def test_only_likely_changes_are_listed_and_all_are_counted() -> None:
    """After the first change there are 60 places to go, each with a small probability."""
    places = range(2, 62)
    spread = monitor.MDP.from_transitions(
        states=63,
        actions=2,
        labels={"home": [62]},
        transitions=[
            *[(0, CLIMB, place, 1 / 60) for place in places],
            *[(0, STAY, 1, 1), *[(1, action, 1, 1) for action in (STAY, CLIMB)]],
            *[(place, STAY, 1, 1) for place in places],
            *[(place, CLIMB, 62, 1) for place in places],
            *[(62, action, 62, 1) for action in (STAY, CLIMB)],
        ],
    )
    policies = {"nominal": [STAY] * 63}
    path = [(0, STAY), (1, STAY)]
    report = monitor.recourse('max@1.P=? [ F<=2 "home" ]', model=spread, policies=policies, path=path)
    first = report.plans[2].first
    assert first is not None
    assert [change.probability for change in first.then] == pytest.approx([1 / 60] * 3)
    assert first.further == pytest.approx(1.0)


def test_a_last_action_that_was_not_taken_is_replaced_by_none() -> None:
    report = monitor.recourse('max@0.P=? [ F<=1 "top" ]', **ABOUT | {"path": [(0, CLIMB), (1, None)]})
    first = report.plans[1].first
    assert first is not None
    assert (first.offset, first.state, first.taken, first.proposed) == (0, 1, None, CLIMB)
    assert report.decisions[0].taken is None
    assert [effect.value for effect in report.decisions[0].effects] == [0.0, 0.5]
    assert (report.holds, report.avoidable, report.plans[1].holds) == (None, None, None)


def test_what_is_earned_before_a_decision_counts() -> None:
    report = monitor.recourse("max@1.R=? [ C<=2 ]", **ABOUT | {"path": [(1, CLIMB), (2, STAY)]})
    assert report.unchanged == 2 + 1 + 1
    assert [[effect.value for effect in decision.effects] for decision in report.decisions] == [[0.0, 4.0], [4.0, 3.0]]


def test_effects_end_with_the_goal() -> None:
    report = monitor.recourse('nominal@2.P>=0.4 [ F<=1 "top" ]', **ABOUT | {"path": [(1, STAY), (1, STAY), (1, CLIMB)]})
    assert [effect.difference for effect in report.decisions[2].effects] == [0.0, 0.0]
    assert [decision.responsibility for decision in report.decisions] == [1.0, 0.0, 0.0]


def test_the_offset_of_the_query_may_be_replaced() -> None:
    report = monitor.recourse(TOP, offset=1, **ABOUT)
    assert (report.offset, report.goal, len(report.decisions)) == (1, TOP.replace("@2", "@1"), 2)
    clipped = monitor.recourse(TOP, offset=-7, **ABOUT)
    assert (clipped.offset, clipped.clipped, len(clipped.decisions)) == (-2, True, 2)


def test_the_alternative_of_regret_does_not_matter_and_may_be_another_model() -> None:
    goal = 'P>=0.4 [ F<=3 "top" ]'
    reports = [
        monitor.recourse(f"regret({name}@2, {goal})", models={"icy": STAIRS}, **ABOUT) for name in ("up", "model:icy")
    ]
    assert reports[0] == reports[1] == monitor.recourse(TOP, **ABOUT)


def test_the_last_of_a_terminated_path_decides_nothing() -> None:
    report = monitor.recourse(TOP, terminated=True, **ABOUT | {"path": [(0, STAY), (0, CLIMB), (1, None)]})
    assert [effect.difference for effect in report.decisions[2].effects] == [0.0, 0.0]
    assert report.decisions[1].effects[0].difference == 0.0
    assert report.plans[1].first is None


def test_fewer_changes_and_smaller_sets_may_be_enough() -> None:
    report = monitor.recourse(TOP, most=0, within=1, **ABOUT)
    assert (len(report.plans), report.within) == (1, 1)
    assert [decision.responsibility for decision in report.decisions] == [0.0] * 3
    many = monitor.recourse(TOP, most=1, within=3, **ABOUT)
    assert [decision.responsibility for decision in many.decisions] == [1 / 3] * 3


@pytest.mark.parametrize(
    ("changed", "error", "problem"),
    [
        ({"most": -1}, ConfigError, "most is -1; it must be at least 0"),
        ({"within": 0}, ConfigError, "within is 0; it must be at least 1"),
        ({"unchanged": "same"}, ConfigError, "unchanged is 'same'; use 'nominal' or 'observed'"),
        ({"model": object()}, ConfigError, "need an MDP, not object <object object at .*>; monitor.load_model reads"),
        ({"path": []}, PathError, "the path is empty"),
        ({"acted": ["nominal"]}, PathError, "acted names 1 policies for 3 pairs"),
    ],
)
def test_bad_arguments_are_refused(changed: dict[str, Any], error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        monitor.recourse(TOP, **ABOUT | changed)


def test_a_goal_that_cannot_be_explained_is_shown() -> None:
    with pytest.raises(
        FormulaError, match=r"the decisions of the world up\[1\] are not those that were made"
    ) as refused:
        monitor.recourse('up[1]@2.P>=0.4 [ F<=3 "top" ]', **ABOUT)
    assert "^" in str(refused.value)


def test_a_path_with_too_many_decisions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.exact.best.values.MAX_NUMBERS", 130)
    assert monitor.recourse(TOP, within=2, most=1, **ABOUT).avoidable is not None
    with pytest.raises(LimitError, match="limit MAX_NUMBERS"):
        monitor.recourse(TOP, **ABOUT)
