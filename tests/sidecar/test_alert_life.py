"""The life of an alert: what its messages say while it fires, and that page, metrics and evidence say the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from msgspec.structs import replace

from monitor.alarm.message import Identity
from monitor.evidence.document import read_evidence
from monitor.model import MDP
from monitor.policy import PolicyTable
from monitor.runtime.monitor import Monitor
from monitor.sidecar.alert_publisher import AlertPublisher
from monitor.sidecar.effects import Effects, EvidenceFile
from monitor.sidecar.events import Evaluate, Heartbeat, Lost, Message
from monitor.sidecar.pipeline import Pipeline, StoredAgent, Topics
from monitor.sidecar.sinks.status_view import StatusView
from monitor.stream.snapshot import seal, unseal
from monitor.types import AlarmSpec, Alert, Blind, FormulaSpec, Instant, StreamSettings, TakenOver, TrustSettings
from tests.evidence.rederived import make_evidence, rederive
from tests.sidecar.conftest import CAREFUL, HOME, LOST, RASH, REGRET, Driver
from tests.sidecar.watched import show, watched

WATCH = FormulaSpec("watch", REGRET, alarm=AlarmSpec(keep=2, severity="critical"))


def alerts(*many: Effects, repeats: bool | None = None) -> list[dict[str, Any]]:
    return [
        json.loads(publication.payload)
        for effects in many
        for publication in effects.publications
        if publication.topic.startswith("cfmon/alerts/") and publication.payload
        if repeats in (None, publication.repeats)
    ]


@pytest.fixture
def make(corridor: MDP, tables: dict[str, PolicyTable], identity: Identity) -> Callable[..., Pipeline]:
    def evidence_of(alert: Alert | TakenOver) -> EvidenceFile:
        content = make_evidence(alert, identity, tables, {})
        return EvidenceFile(read_evidence(content).id, content)

    def make(spec: FormulaSpec = WATCH) -> Pipeline:
        settings, trust = StreamSettings(forget_after=60.0, stale_after=30.0), TrustSettings(enabled=False)
        return Pipeline(
            Monitor(corridor, tables, [spec], settings, identity=identity, trust=trust),
            identity,
            topics=Topics("agents/+/steps", "cfmon/alerts", "cfmon/status"),
            client_id="test",
            message_bytes=1000,
            evidence_of=evidence_of,
        )

    return make


def stance(alert: dict[str, Any]) -> tuple[Any, ...]:
    return alert["state"], alert["outcome"], (alert["handover"] or {}).get("helps_now"), alert["seq"]


def test_a_heartbeat_says_what_the_newest_verdict_says(make: Callable[..., Pipeline]) -> None:
    """Lost and out of reach of the fallback, then found at home: the alert follows, step by step."""
    driver = Driver(make())
    lived = [(0, RASH), (1, RASH), (LOST, RASH), (LOST, RASH), (LOST, RASH)]
    told, beaten = [], []
    for seq, (state, action) in enumerate(lived):
        told += alerts(driver.send(seq, state, action))
        beaten += alerts(driver.feed(Heartbeat(driver.now)))
    assert [stance(alert) for alert in beaten] == [
        ("firing", "regret", True, 0),
        ("firing", "regret", True, 1),
        ("firing", "regret", False, 2),
        ("firing", "regret", False, 3),
        ("firing", "unavoidable", False, 4),
    ]
    assert [alert["handover"]["latest_useful"] for alert in beaten] == [0, 0, 1, 2, None]
    assert "Hand over to 'careful' now" in beaten[0]["summary"]
    for alert in beaten[2:]:
        assert "Hand over" not in alert["summary"]
        assert "Stop the agent safely" in alert["summary"]
    assert {json.dumps(alert["fired"]) for alert in beaten} == {json.dumps(told[0]["fired"])}
    assert (told[0]["fired"]["value"], told[0]["fired"]["outcome"]) == (told[0]["value"], "regret")
    assert [alert["revision"] for alert in told] == sorted({alert["revision"] for alert in told})
    newest = {alert["revision"]: alert for alert in told}
    for alert in beaten:  # what a heartbeat says beyond its revision is no news
        assert stance(alert)[:3] == stance(newest[alert["revision"]])[:3]
        assert abs(alert["value"] - newest[alert["revision"]]["value"]) <= WATCH.alarm.step


def test_a_firing_alarm_whose_goal_is_met_again_says_so_before_it_resolves(make: Callable[..., Pipeline]) -> None:
    driver = Driver(make(replace(WATCH, alarm=AlarmSpec(keep=2))))
    driver.send(0, 0)
    driver.send(1, 1, CAREFUL)
    [again] = alerts(driver.send(2, HOME))
    [beat] = alerts(driver.feed(Heartbeat(driver.now)))
    assert stance(again)[:3] == stance(beat)[:3] == ("firing", "safe", False)
    assert "met again. No need to act" in again["summary"]
    [resolved] = alerts(driver.send(3, HOME))
    assert (resolved["state"], resolved["handover"]) == ("resolved", None)
    assert alerts(driver.feed(Heartbeat(driver.now))) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_an_alarm_that_is_over_says_how_bad_it_was(make: Callable[..., Pipeline], *, restarted: bool) -> None:
    """The worst value is that of a verdict between two messages, so only a heartbeat has said it."""
    spec = replace(WATCH, alarm=AlarmSpec(keep=2, step=1.0))
    driver = Driver(make(spec))
    told = alerts(driver.send(0, 0))
    beats = alerts(driver.feed(Heartbeat(driver.now)))
    for seq, (state, action) in enumerate([(1, RASH), (LOST, RASH)], start=1):
        told += alerts(driver.send(seq, state, action))
        beats += alerts(driver.feed(Heartbeat(driver.now)))
    values = [told[0]["value"], *(beat["value"] for beat in beats[1:])]
    assert min(values) < values[0]
    assert [beat["worst"] for beat in beats] == [min(values[: n + 1]) for n in range(3)]
    if restarted:
        snapshot = driver.pipeline.snapshot(everything=True)
        driver.pipeline = make(spec)
        driver.pipeline.restore(snapshot.common, snapshot.agents)
    ends = alerts(*(driver.send(seq, HOME) for seq in range(3, 12)))
    resolved = next(alert for alert in ends if alert["state"] == "resolved")
    assert resolved["worst"] == min(values)
    assert resolved["value"] > resolved["threshold"]["bound"] > resolved["worst"]
    assert f"While firing it fell to {resolved['worst']:.2f}" in resolved["summary"]


def test_a_worst_value_that_was_not_kept_stays_unknown(make: Callable[..., Pipeline]) -> None:
    """An alarm of an earlier version: what its values were before the update is not known."""
    driver = Driver(make())
    driver.send(0, 0)
    snapshot = driver.pipeline.snapshot(everything=True)
    stored = unseal(snapshot.agents["ada"] or b"", StoredAgent)
    formula = stored.watch.formulas["watch"]
    assert formula.published is not None
    assert formula.published.worst is not None
    formula = replace(formula, published=replace(formula.published, worst=None))
    earlier = replace(stored, watch=replace(stored.watch, formulas={"watch": formula}))
    driver.pipeline = make()
    driver.pipeline.restore(snapshot.common, {"ada": seal(earlier)})
    told = alerts(*(driver.send(seq, HOME) for seq in range(1, 12)))
    (resolved,) = [alert for alert in told if alert["state"] == "resolved"]
    assert not any("worst" in alert for alert in told)
    assert "While firing" not in resolved["summary"]


def test_an_alert_that_ended_gives_no_advice(make: Callable[..., Pipeline]) -> None:
    driver = Driver(make())
    driver.send(0, 0)
    [ended] = alerts(driver.send(1, 1, None, truncated=True))
    assert (ended["state"], ended["handover"]) == ("ended", None)
    assert not {"Hand over", "anding over", "Stop", "No need"} & set(ended["summary"].split(". "))
    assert "and over" not in ended["summary"]
    assert ended["fired"]["outcome"] == "regret"


def test_an_alarm_before_it_is_too_late_says_how_long_handing_over_helps(make: Callable[..., Pipeline]) -> None:
    """Rash is lost with probability 1/2 in each step; careful never, but it does not find the way back."""
    text = 'handover(careful, P>=0.9 [ G<=4 !"lost" ], 2) >= 0.7'
    driver = Driver(make(FormulaSpec("late", text, alarm=AlarmSpec(for_=1, keep=1, when="holds"))))
    [fired] = alerts(driver.send(0, 0))
    assert (fired["value"], fired["state"], fired["outcome"]) == (0.75, "firing", None)
    assert fired["handover"] == {"policy": "careful", "helps_now": True, "latest_useful": 0}
    assert fired["profile"] == [{"offset": 0, "nominal": 0.0625, "alternative": 1.0}]
    [a_minute_later] = alerts(driver.feed(Heartbeat(driver.now)))
    assert a_minute_later["handover"] == fired["handover"]
    [lost] = alerts(driver.send(1, LOST))
    assert (lost["revision"], lost["value"], lost["state"]) == (2, 1.0, "firing")
    assert lost["handover"] == {"policy": "careful", "helps_now": False, "latest_useful": None}
    [ended] = alerts(driver.send(2, LOST, None, terminated=True))
    assert (ended["state"], ended["handover"]) == ("ended", None)
    driver = Driver(make(FormulaSpec("late", text, alarm=AlarmSpec(for_=1, keep=1, when="holds"))))
    driver.send(0, 0)
    [resolved] = alerts(driver.send(1, 1, CAREFUL))
    assert (resolved["state"], resolved["value"], resolved["handover"]) == ("resolved", 0.45, None)


class Fast:
    """Steps of one agent, each at a time that is given, and an evaluation."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.seq = -1

    def step(self, ticks: float, state: int, action: int = RASH) -> list[dict[str, Any]]:
        self.seq += 1
        now = Instant(1000.0 + ticks, ticks)
        fields = {"v": 1, "episode": 0, "seq": self.seq, "state": state, "action": action, "time": now.wall}
        self.pipeline.step(Message(now, "agents/ada/steps", msgpack.packb(fields)))
        return alerts(self.pipeline.step(Evaluate(now)))

    def wait(self, ticks: float) -> list[dict[str, Any]]:
        return alerts(self.pipeline.step(Evaluate(Instant(1000.0 + ticks, ticks))))

    def beat(self, ticks: float) -> list[dict[str, Any]]:
        return alerts(self.pipeline.step(Heartbeat(Instant(1000.0 + ticks, ticks))))


def test_news_comes_once_a_second_and_then_the_newest_also_where_no_step_follows(make: Callable[..., Pipeline]) -> None:
    fast = Fast(make())
    [fired] = fast.step(0.0, 0)
    assert fast.step(0.25, 1) == []
    assert fast.step(0.5, LOST) == []
    [beat] = fast.beat(0.5)
    assert (beat["revision"], beat["seq"], beat["handover"]["helps_now"]) == (1, 2, False), "a heartbeat waits for none"
    assert fast.wait(0.75) == []
    [news] = fast.wait(1.0)
    assert (news["revision"], news["seq"], news["handover"]["helps_now"]) == (2, 2, False)
    assert news["fired"] == fired["fired"]
    assert fast.wait(5.0) == []
    assert fast.step(5.25, LOST) == [], "no news"
    [out_of_reach] = fast.step(5.5, LOST)  # after a pause news goes out at once
    assert (out_of_reach["revision"], out_of_reach["outcome"]) == (3, "unavoidable")


def test_what_is_no_news_any_more_when_its_second_is_over_is_not_told(make: Callable[..., Pipeline]) -> None:
    spec = FormulaSpec("watch", 'P>=0.9 [ F<=3 "home" ]', alarm=AlarmSpec(keep=9))
    fast = Fast(make(spec))
    [fired] = fast.step(0.0, 0, CAREFUL)
    assert fast.step(0.25, HOME) == []  # met
    assert fast.step(0.5, HOME) == []
    assert [alert["seq"] for alert in fast.wait(1.5)] == [2]
    back = Fast(make(spec))
    back.step(0.0, 0)
    back.step(0.25, 1)
    assert back.wait(1.5) == [], "the same answer, the same value"
    assert back.beat(1.5)[0]["seq"] == 1
    assert fired["handover"] is None


def test_a_value_that_moves_little_by_little_is_news_once_it_has_moved_by_more_than_the_step(
    make: Callable[..., Pipeline],
) -> None:
    """What counts is the value last published, not the one before."""
    spec = FormulaSpec("watch", 'nominal@2.P>=0.8 [ G<=3 !"lost" ]', alarm=AlarmSpec(keep=9, step=0.2))
    fast = Fast(make(spec))
    told = [alert["value"] for n, state in enumerate((0, 1, 2, 3, 3)) for alert in fast.step(2.0 * n, state)]
    assert told == [0.125, 0.5]
    every = Fast(make(replace(spec, alarm=AlarmSpec(keep=9, step=0.0))))
    told = [alert["value"] for n, state in enumerate((0, 1, 2, 3, 3)) for alert in every.step(2.0 * n, state)]
    assert told == [0.125, 0.25, 0.5]


def test_blindness_is_reported_at_once_with_the_newest_verdict_and_knows_of_no_help(
    make: Callable[..., Pipeline],
) -> None:
    fast = Fast(make())
    fast.step(0.0, 0)
    fast.step(0.25, LOST)
    fast.pipeline.step(Lost(Instant(1000.5, 0.5), "agents/ada/steps", 1))
    [blind] = fast.wait(0.5)
    assert (blind["revision"], blind["blind"], blind["seq"]) == (2, "dropped", 1)
    assert blind["handover"] == {"policy": "careful", "helps_now": None, "latest_useful": None}
    assert fast.wait(3.0) == [], "that was told with it"


def test_the_same_events_tell_the_same_and_a_restart_between_any_two_changes_nothing(
    make: Callable[..., Pipeline],
) -> None:
    events: list[Any] = []
    states = (0, 1, LOST, LOST, 1, 2, 3, HOME, 0, 1)
    for seq, state in enumerate(states):
        now = Instant(1000.0 + seq / 3, seq / 3)
        fields = {"v": 1, "episode": seq // 5, "seq": seq % 5, "state": state, "action": RASH, "time": now.wall}
        events += [Message(now, "agents/ada/steps", msgpack.packb(fields)), Evaluate(now), Heartbeat(now)]
    events.append(Evaluate(Instant(1010.0, 10.0)))
    steady = make()
    calm = [steady.step(event).publications for event in events]
    assert len(alerts(*(Effects(said) for said in calm), repeats=False)) > 5
    pipeline = make()
    kept: dict[str, bytes | None] = {}
    restarted = []
    for event in events:
        restarted.append(pipeline.step(event).publications)
        snapshot = pipeline.snapshot()
        kept |= dict(snapshot.agents)
        pipeline = make()
        pipeline.restore(snapshot.common, kept)
    assert restarted == calm


def test_page_and_api_say_what_the_newest_verdict_says(make: Callable[..., Pipeline]) -> None:
    pipeline, board = make(), StatusView(watched([WATCH]))
    driver = Driver(pipeline)
    for seq, (state, action) in enumerate([(0, RASH), (1, RASH), (2, RASH), (3, RASH), (3, RASH), (LOST, RASH)]):
        driver.send(seq, state, action)
        for effects in driver.effects[-2:]:
            show(board, effects, driver.now)
        [alarm], overview = board.alarms(), board.overview("", 10, driver.now.wall)
        [row] = overview["agents"][0]["formulas"]
        assert overview["firing"]
        for told in (alarm, *overview["firing"]):
            for key in ("outcome", "value", "threshold", "alternative", "effect", "seq", "time"):
                assert told[key] == row[key], key
        [beat] = alerts(driver.feed(Heartbeat(driver.now)))
        moments = dict.fromkeys(("sent", "sent_unix"))
        assert alarm | moments == beat | moments
    driver.send(6, LOST, None, terminated=True)
    for effects in driver.effects[-2:]:
        show(board, effects, driver.now)
    [alarm] = board.alarms()
    assert (alarm["state"], alarm["handover"]) == ("ended", None)


def test_the_evidence_proves_what_was_said_when_it_fired_whatever_is_said_since(
    make: Callable[..., Pipeline], corridor: MDP, tables: dict[str, PolicyTable]
) -> None:
    driver = Driver(make())
    effects = [driver.send(seq, state) for seq, state in enumerate((0, 1, LOST, LOST, LOST))]
    [file] = [file for one in effects for file in one.evidence]
    evidence = read_evidence(file.content)
    assert rederive(evidence, corridor, tables) == []
    told = alerts(*effects)
    assert len(told) > 2
    for alert in told:
        assert alert["evidence"] == {"id": file.id, "path": f"/evidence/{file.id}"}
        fired, nominal = alert["fired"], evidence.verdict.quantities[0]
        assert (fired["seq"], fired["value"], fired["outcome"]) == (evidence.seq, nominal.value, "regret")


def test_revisions_only_grow(make: Callable[..., Pipeline]) -> None:
    driver = Driver(make(replace(WATCH, alarm=AlarmSpec(keep=1))))
    effects: Sequence[Effects] = [
        driver.send(seq, state) for seq, state in enumerate((0, HOME, HOME, HOME, 0, 1, LOST))
    ]
    revisions = [alert["revision"] for alert in alerts(*effects)]
    assert revisions
    assert all(after == before + 1 for before, after in pairwise(revisions))


def test_a_status_lists_the_blind_formulas_of_a_hundred_agents_at_most(identity: Identity) -> None:
    publisher = AlertPublisher(identity, "cfmon/alerts", lambda _: EvidenceFile("", b""))
    for number in range(150):
        for formula in ("b", "a"):
            publisher.see(Blind(f"agent-{number:03}", formula, "gap"))
    publisher.see(Blind("agent-001", "a", None))
    for formula in ("a", "b"):
        publisher.see(Blind("agent-000", formula, None))
    listed = publisher.blind_formulas(100)
    assert list(listed) == [f"agent-{number:03}" for number in range(1, 101)]
    assert (listed["agent-001"], list(listed["agent-002"])) == ({"b": "gap"}, ["a", "b"])
    assert publisher.blind == 297
