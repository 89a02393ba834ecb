"""The pipeline: what goes out for what comes in, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from monitor.alarm.message import rfc3339
from monitor.evidence.document import read_evidence
from monitor.sidecar.effects import Effects, Publication
from monitor.sidecar.events import Connected, Evaluate, Heartbeat, Lost, Message
from monitor.sidecar.pipeline import Pipeline
from monitor.types import Blind, Received, Trust
from tests.sidecar.conftest import CAREFUL, HOME, LOST, Driver

ALERT = "cfmon/alerts/ada/watch"


def received(effects: Effects) -> list[tuple[str, str, str]]:
    return [(n.agent, n.result, n.reason) for n in effects.notices if isinstance(n, Received)]


def alerts(*many: Effects) -> list[dict[str, Any]]:
    publications = [p for effects in many for p in effects.publications if p.topic.startswith("cfmon/alerts/")]
    return [json.loads(publication.payload) for publication in publications if publication.payload]


def status(effects: Effects) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(effects.publications[0].payload)
    assert effects.publications[0].topic == "cfmon/status/test"
    return found


@pytest.mark.parametrize(
    ("topic", "payload", "expected"),
    [
        ("agents/ada/steps", b"\xff\x00\x01random", ("ada", "rejected", "malformed")),
        ("agents/ada/steps", b"\x85\xa1v", ("ada", "rejected", "malformed")),
        ("agents/ada/steps", b'{"v":1,"episode":0,"seq":0}', ("ada", "rejected", "missing_key")),
        ("agents/ada/steps", b" " * 1001, ("ada", "rejected", "too_large")),
        ("agents/a$da/steps", b"{}", ("", "rejected", "bad_agent")),
        ("elsewhere", b"{}", ("", "rejected", "bad_topic")),
    ],
)
def test_a_bad_message_is_counted_and_the_stream_goes_on(
    driver: Driver, topic: str, payload: bytes, expected: tuple[str, str, str]
) -> None:
    assert received(driver.feed(Message(driver.now, topic, payload))) == [expected]
    driver.send(0, 0)
    assert received(driver.effects[-2]) == [("ada", "accepted", "")]


def test_the_longest_message_is_accepted_and_one_that_is_longer_is_not(driver: Driver) -> None:
    step = json.dumps({"v": 1, "episode": 0, "seq": 0, "state": HOME, "action": 0}).encode()
    for length, expected in [(1001, ("ada", "rejected", "too_large")), (1000, ("ada", "accepted", ""))]:
        longer = step[:-1] + b" " * (length - len(step)) + step[-1:]
        assert received(driver.feed(Message(driver.now, "agents/ada/steps", longer))) == [expected]


def test_an_alarm_fires_once_and_resolves_with_the_same_evidence(driver: Driver) -> None:
    first = driver.send(0, 0)
    assert driver.pipeline.proofs() == {first.evidence[0].id}  # while it fires
    rest = [driver.send(1, 1, CAREFUL), driver.send(2, HOME), driver.send(3, HOME), driver.send(4, HOME)]
    assert driver.pipeline.proofs() == set()
    told = alerts(first, *rest)
    assert [(alert["state"], alert["revision"]) for alert in told] == [("firing", 1), ("firing", 2), ("resolved", 3)]
    assert {alert["id"] for alert in told} == {told[0]["id"]}
    assert {alert["evidence"]["id"] for alert in told} == {first.evidence[0].id}
    assert all(publication.retain and publication.qos == 1 for publication in first.publications)
    assert not any(effects.evidence for effects in rest)
    evidence = read_evidence(first.evidence[0].content)
    assert (evidence.agent, evidence.alert) == ("ada", told[0]["id"])


def test_the_heartbeat_repeats_what_fires_under_the_same_id_and_revision(driver: Driver) -> None:
    fired = alerts(driver.send(0, 0))[0]
    driver.ticks += 1.0
    beat = driver.feed(Heartbeat(driver.now))
    assert alerts(beat) == [fired | {"sent": rfc3339(driver.now.wall), "sent_unix": driver.now.wall}]
    assert all(publication.repeats for publication in beat.publications)
    assert status(beat) | {"policies": [], "model": {}} == {
        "v": 1,
        "state": "online",
        "client_id": "test",
        "version": "0.1.0",
        "model": {},
        "policies": [],
        "agents": 1,
        "firing": 1,
        "blind": 0,
        "blind_formulas": {},
        "sent": "1970-01-01T00:16:42.000Z",
        "sent_unix": driver.now.wall,
        "shard": None,
    }
    for seq in range(1, 5):
        driver.send(seq, HOME if seq > 1 else 1, CAREFUL)
    assert alerts(driver.feed(Heartbeat(driver.now))) == []


def test_alerts_of_a_doubted_model_say_so_and_a_restart_does_not_forget_it(
    driver: Driver, make_pipeline: Callable[[], Pipeline]
) -> None:
    told = alerts(*[driver.send(seq, 3) for seq in range(40)])  # half of the rash would be lost by then
    assert [(alert["state"], alert["revision"]) for alert in told] == [("firing", n + 1) for n in range(len(told))]
    assert [alert["blind"] for alert in told] == [None] * (len(told) - 1) + ["model_doubt"]
    assert "ada: MODEL CONTRADICTED: P(" in told[-1]["summary"]
    assert told[-1]["details"][-1] == "Do not rely on this: observed transitions contradict the model."
    state = driver.pipeline.snapshot(everything=True)
    driver.pipeline = make_pipeline()
    driver.pipeline.restore(state.common, state.agents)
    stands = [notice for notice in driver.pipeline.standing().notices if isinstance(notice, Trust)]
    assert [(notice.agent, notice.doubted) for notice in stands] == [("ada", True), ("", False)]
    ended = alerts(driver.send(40, LOST, terminated=True))
    assert [(alert["state"], alert["blind"]) for alert in ended] == [("ended", "model_doubt")]


def test_an_agent_that_starts_over_gets_evidence_of_its_own(driver: Driver) -> None:
    first = driver.send(0, 0)
    driver.send(1, HOME, terminated=True)
    again = driver.send(0, 0, episode=1)
    assert [alert["state"] for alert in alerts(again)] == ["firing"]
    assert again.evidence[0].id != first.evidence[0].id


def test_a_forgotten_agents_topics_are_cleared(driver: Driver) -> None:
    driver.send(0, 0)
    driver.ticks += 61.0
    effects = driver.feed(Evaluate(driver.now))
    assert effects.publications[-1] == Publication(ALERT, b"")
    assert alerts(driver.feed(Heartbeat(driver.now))) == []
    assert status(driver.effects[-1])["agents"] == 0
    assert status(driver.effects[-1])["blind"] == 0


def test_after_a_reconnection_everything_retained_is_said_again(driver: Driver) -> None:
    fired = driver.send(0, 0).publications[-1]
    down = driver.feed(Connected(driver.now, up=False))
    assert {n.reason for n in down.notices if isinstance(n, Blind)} == {"disconnected"}
    blind = alerts(down)
    assert [(alert["state"], alert["blind"]) for alert in blind] == [("firing", "disconnected")]
    told = status(driver.feed(Heartbeat(driver.now)))
    assert (told["blind"], told["blind_formulas"]) == (2, {"ada": {"chance": "disconnected", "watch": "disconnected"}})
    up = driver.feed(Connected(driver.now, up=True))
    assert status(up)["state"] == "online"
    assert up.publications[-1].topic == fired.topic
    assert alerts(up)[-1]["blind"] is None
    assert [publication.repeats for publication in up.publications] == [True, False], "that it sees again is news"


def test_dropped_messages_make_the_formula_blind(driver: Driver) -> None:
    driver.send(0, 0)
    effects = driver.feed(Lost(driver.now, "agents/ada/steps", 3))
    assert received(effects) == [("ada", "dropped", "")] * 3
    effects = driver.feed(Evaluate(driver.now))
    assert {n.reason for n in effects.notices if isinstance(n, Blind)} == {"dropped"}


@pytest.mark.parametrize(("topic", "agent"), [("agents/new/steps", "new"), ("agents/$/steps", ""), ("", "")])
def test_drops_of_unknown_agents_are_counted_too(driver: Driver, topic: str, agent: str) -> None:
    assert received(driver.feed(Lost(driver.now, topic, 2))) == [(agent, "dropped", "")] * 2


def test_the_same_events_give_the_same_bytes(driver: Driver, make_pipeline: Callable[[], Pipeline]) -> None:
    for seq, state in enumerate([0, 1, 2, HOME, HOME, HOME]):
        driver.send(seq, state, CAREFUL if state == 2 else 0, agent="ada" if seq % 2 else "ida")
    driver.feed(Connected(driver.now, up=False))
    driver.feed(Connected(driver.now, up=True))
    driver.feed(Heartbeat(driver.now))
    again = make_pipeline()
    assert [again.step(event) for event in driver.events] == driver.effects
