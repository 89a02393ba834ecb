"""Which missed goals are examined on a stream, on which path, and what an alert says about them later."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from monitor.alarm.refresh import refreshed
from monitor.errors import PathError
from monitor.evaluation import check, recourse
from monitor.evaluation.engines import TableEngines
from monitor.exact import Checker
from monitor.exact.best.values import BestValues
from monitor.exact.inputs import tables
from monitor.model import MDP
from monitor.referee import derive
from monitor.runtime.query import SpecError, read_query
from monitor.types import (
    UNKNOWN_POLICY,
    AlarmSpec,
    Alert,
    FormulaSpec,
    Judged,
    Recourse,
    RecourseWhen,
    Refreshed,
    Sampling,
    Verdict,
)
from tests.exact.calls import note_calls
from tests.runtime.test_takeovers import CRAWL, DITCH, HOME, POLICIES, ROAD, RUSH, Stream, road

HOME_AT_LAST = 'regret(careful@1, P>=0.2 [ F<=3 "home" ])'
FATED = 'regret(careful@1, P>=0.9 [ F<=3 "home" ])'


def spec(text: str = HOME_AT_LAST, **more: Any) -> FormulaSpec:  # noqa: ANN401 - other settings of a formula
    return FormulaSpec("watch", text, **more)


def verdicts(stream: Stream) -> list[Verdict]:
    return [notice.verdict for notice in stream.notices if isinstance(notice, Judged)]


def last_alert(stream: Stream) -> Alert:
    return [notice for notice in stream.notices if isinstance(notice, Alert)][-1]


def outcomes(stream: Stream) -> list[tuple[str | None, str | None]]:
    return [
        (verdict.outcome, None if verdict.recourse is None else verdict.recourse.avoidable)
        for verdict in verdicts(stream)
    ]


@pytest.mark.parametrize(
    ("when", "text", "examined"),
    [
        ("auto", FATED, False),  # unavoidable: no alarm
        ("always", FATED, True),
        ("off", FATED, False),
        ("auto", HOME_AT_LAST.replace("0.2", "0.05"), True),  # regret: it fires
        ("off", HOME_AT_LAST.replace("0.2", "0.05"), False),
    ],
)
def test_by_default_a_missed_goal_is_examined_only_while_there_is_an_alarm(
    when: RecourseWhen, text: str, *, examined: bool
) -> None:
    stream = Stream(road(), [spec(text, recourse=when)])
    stream.send("nominal", ROAD, ROAD)
    missed = [verdict for verdict in verdicts(stream) if verdict.outcome != "safe"]
    assert len(missed) == 2
    assert [verdict.recourse is not None for verdict in missed] == [examined] * 2


def test_a_pending_alarm_counts_and_an_unavoidable_verdict_then_too() -> None:
    """First regret: the alarm is pending. Then the fall, which nobody can undo: still pending."""
    text = 'regret(careful@0, P>=0.05 [ F<=3 "home" ])'
    stream = Stream(road(), [spec(text, alarm=AlarmSpec(for_=3))])
    stream.send("nominal", DITCH, ROAD, DITCH)
    assert outcomes(stream) == [("unavoidable", None), ("regret", "foresight"), ("unavoidable", "no")]


def test_what_is_no_missed_goal_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'regret(careful@1, P>=0.05 [ F<=3 "home" ])'
    home, lost = (Stream(road(), [spec(text, recourse="always")]) for _ in range(2))
    calls = []
    plan_values = BestValues.plan_values

    def counted(self: BestValues, *given: Any) -> Any:  # noqa: ANN401 - as it is
        calls.append(given)
        return plan_values(self, *given)

    monkeypatch.setattr(BestValues, "plan_values", counted)
    home.send("careful", HOME, HOME, HOME)
    assert ([verdict.outcome for verdict in verdicts(home)], calls) == (["safe"] * 3, [])
    lost.send("nominal", DITCH)
    assert len(calls) == 1


ACTING = ("nominal", "careful", "careful", "nominal", "nominal")


@pytest.mark.parametrize(
    "text", [HOME_AT_LAST, FATED, "regret(careful@-1, R>=30 [ C<=12 ])", "regret(careful@9, R>20 [ C<=10 ])"]
)
def test_the_answer_on_a_stream_is_that_of_monitor_check_on_the_held_path(text: str) -> None:
    """Through a takeover, with a window that has dropped the first steps, and after the end of the episode."""
    stream = Stream(road(), [spec(text, recourse="always", causal_model="any")], window=10)
    path: list[tuple[int, int]] = []
    acted: list[str] = []
    examined = 0
    for n, policy in enumerate(ACTING * 3):
        ends = n == 3 * len(ACTING) - 1
        state = DITCH if ends else ROAD
        stream.send(policy, state, terminated=ends)
        path.append((state, POLICIES[policy][state]))
        acted.append(policy)
        assert len(verdicts(stream)) == n + 1
        verdict = verdicts(stream)[-1]
        about: dict[str, Any] = {
            "model": road(),
            "policies": POLICIES,
            "path": path[-10:],
            "acted": acted[-10:],
            "causal_model": "any",
            "terminated": ends,
            "start_observed": len(path) <= 10,
        }
        assert verdict.recourse == check(text, **about).recourse
        second = derive(text, **about).recourse
        assert (second and second.avoidable) == (verdict.recourse and verdict.recourse.avoidable)
        examined += verdict.recourse is not None
    assert examined >= 5


def test_an_alert_names_a_step_that_stays_true_as_the_path_grows() -> None:
    """Rushing at step 1 was the decision; two steps later it is still step 1, and two steps farther back."""
    text = 'regret(careful@-1, P>=0.5 [ G<=2 !"ditch" ])'
    stream = Stream(road(), [spec(text, alarm=AlarmSpec(when="unavoidable"))])
    stream.send("careful", ROAD)
    stream.send("nominal", ROAD, DITCH)
    alert = last_alert(stream)
    said = "action 1 instead of action 0 at step 1 ({} ago), with no other decision changed"
    assert said.format("1 step") in " ".join(alert.details)
    assert alert.verdict.recourse is not None
    assert alert.verdict.recourse.changes is not None
    offset = alert.verdict.recourse.changes.offset
    stream.send("nominal", DITCH, DITCH)
    news = [notice for notice in stream.notices if isinstance(notice, Refreshed)][-1]
    shown = refreshed(alert, news)
    assert said.format("3 steps") in " ".join(shown.details)
    assert shown.verdict.recourse is not None
    assert shown.verdict.recourse.changes is not None
    assert shown.verdict.recourse.changes.offset == offset + 2


def test_an_alarm_whose_goal_is_met_again_says_nothing_of_it() -> None:
    text = 'regret(careful@0, P>=0.5 [ G<=2 !"ditch" ])'
    stream = Stream(road(), [spec(text, alarm=AlarmSpec(keep=3))])
    stream.send("nominal", ROAD)
    assert "would have met the goal" in " ".join(last_alert(stream).details)
    stream.send("careful", ROAD)
    stream.send("nominal", HOME)
    assert outcomes(stream)[-1] == ("safe", None)
    assert "would have met the goal" not in " ".join(last_alert(stream).details)


def test_where_an_unknown_policy_acted_the_answer_has_a_reason() -> None:
    about: dict[str, Any] = {
        "model": road(),
        "policies": POLICIES,
        "path": [(ROAD, RUSH), (ROAD, CRAWL), (DITCH, RUSH)],
    }
    acted = ["nominal", UNKNOWN_POLICY, "nominal"]
    for answer in (check, derive):
        found = answer(FATED.replace("@1", "@2"), **about, acted=acted).recourse
        assert found is not None
        assert (found.avoidable, found.best, found.changes) == (None, None, None)
        assert found.reason.startswith("a policy that is not configured acted at 1 of the steps")
        known = answer(FATED.replace("@1", "@0"), **about, acted=acted).recourse
        assert known == Recourse("no", None, 0.0, 0.0)
    with pytest.raises(PathError, match="not configured acted at 1 of the steps"):
        recourse('@2.P>=0.9 [ F<=3 "home" ]', **about, acted=acted)


def test_a_sampled_verdict_has_a_reason_and_no_numbers() -> None:
    stream = Stream(road(), [spec(FATED, recourse="always", engine="sampled")])
    stream.send("nominal", ROAD, DITCH)
    found = [verdict.recourse for verdict in verdicts(stream) if verdict.outcome == "unavoidable"]
    assert found
    for each in found:
        assert each == Recourse(reason="decisions are made by exact values, which samples do not have")


def test_what_is_too_large_does_not_prevent_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.exact.best.prior.MAX_NUMBERS", 1)
    stream = Stream(road(), [spec(FATED, recourse="always")])
    stream.send("nominal", ROAD, ROAD)
    found = verdicts(stream)[-1].recourse
    assert found is not None
    assert (found.avoidable, "limit MAX_NUMBERS" in found.reason) == (None, True)


def test_the_tables_are_made_before_the_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    note_calls(monkeypatch, BestValues, "__init__", made, lambda *_: None)
    checker = Checker(road(), tables(POLICIES, road()))
    engines = TableEngines(checker, Sampling())
    for when, count in (("off", 0), ("auto", 1)):
        formula = spec(recourse=cast("RecourseWhen", when))
        engines.prepare(read_query(formula, None, window=8).formula, formula, window=8)
        assert len(made) == count


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SpecError, match="'never' does not exist; use auto, always, off"):
        read_query(spec(recourse="never"), None, window=8)


def test_the_setting_is_no_other_formula() -> None:
    assert spec() == replace(spec(), recourse="off")


def test_a_model_with_names_of_actions_gives_them() -> None:
    plain = road()
    named = replace_names(plain)
    text = 'regret(careful@1, P>=0.5 [ G<=2 !"ditch" ])'
    for answer in (check, derive):
        verdict = answer(text, model=named, path=[(ROAD, RUSH), (DITCH, RUSH)], policies=POLICIES)
        assert verdict.recourse is not None
        assert verdict.recourse.changes is not None
        assert (verdict.recourse.changes.taken_name, verdict.recourse.changes.proposed_name) == ("rush", "crawl")


def replace_names(model: MDP) -> MDP:
    """The same model, whose actions have names."""
    rows = [
        (s, a, int(t), float(p))
        for s in range(model.states)
        for a in range(model.actions)
        for t, p in zip(*model.row(s, a), strict=True)
    ]
    labels = {name: [int(s) for s in range(model.states) if states[s]] for name, states in model.labels.items()}
    return MDP.from_transitions(
        states=model.states, actions=model.actions, transitions=rows, labels=labels, action_names=["rush", "crawl"]
    )
