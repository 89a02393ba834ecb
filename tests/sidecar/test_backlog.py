"""What piled up while something was down is answered in full; answers are passed over in lasting overload only."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Event, Message
from monitor.sidecar.mqtt.inbox import Arrived
from monitor.sidecar.overload import OverloadDetector, Rate
from monitor.sidecar.service import Service
from monitor.types import Blind, Instant, Judged, Skipped
from tests.sidecar.project import CONFIG, write_project

COST = 0.002
"""Seconds an answer takes here: 500 steps a second are answered."""
TAKEN = 0.0002
"""Seconds it takes to take a step over where that counts."""
WINDOW = 100
"""Messages that the broker sends ahead of our acknowledgements."""
WALL = 1e9


class Played:
    """A service whose answers take `COST` seconds of a time that the test makes, and a broker that has a queue."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service, self.now = service, 1000.0
        self.queue: deque[tuple[str, bytes]] = deque()
        self.seqs: Counter[str] = Counter()
        self.sent: dict[tuple[str, int], float] = {}
        self.delays: dict[str, list[float]] = {}
        self.skipped: Counter[str] = Counter()
        self.blind: set[str] = set()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: WALL + self.now)
        self.taken = 0.0
        self._step = service.worker.pipeline.step
        monkeypatch.setattr(service.worker.pipeline, "step", self.step)

    def step(self, event: Event) -> Effects:
        effects = self._step(event)
        if isinstance(event, Message):
            self.now += self.taken
        if isinstance(event, Evaluate):
            self.now += COST * sum(isinstance(n, Judged) and n.formula == "watch" for n in effects.notices)
        for notice in effects.notices:
            match notice:
                case Judged(formula="watch"):
                    self.delays.setdefault(notice.agent, []).append(self.now - self.sent[notice.agent, notice.seq])
                case Skipped():
                    self.skipped[notice.agent] += notice.count
                case Blind(reason=str(reason)):
                    self.blind.add(reason)
        return effects

    def publish(self, agent: str, *, at: float, timed: bool = True) -> None:
        seq = self.seqs[agent]
        self.seqs[agent] += 1
        self.sent[agent, seq] = at
        step = {"v": 1, "episode": "e", "seq": seq, "state": 0, "action": 1, **({"time": WALL + at} if timed else {})}
        self.queue.append((agent, json.dumps(step).encode()))

    def turn(self) -> None:
        door = self.service.inbox
        while self.queue and len(door) < WINDOW:
            agent, payload = self.queue.popleft()
            door.put(Arrived(Instant(WALL + self.now, self.now), f"agents/{agent}/steps", payload, None))
        before = self.now
        self.service.worker.turn()
        if self.now == before:
            self.now += 0.001

    def live(self, seconds: float, rate: float, agents: int, *, timed: bool = True) -> None:
        """So many steps a second of so many agents, as they happen; then until nothing waits."""
        began, published = self.now, 0
        while self.now < began + seconds or self.queue or self.service.worker.pipeline.waiting.steps:
            while published < rate * (min(self.now, began + seconds) - began):
                self.publish(f"live-{published % agents}", at=began + published / rate, timed=timed)
                published += 1
            self.turn()
            assert self.now < began + 50 * seconds, "it is never done"


@pytest.fixture
def played(tmp_path: Path, corridor: MDP, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    config = CONFIG.replace("path: var/cfmon.sqlite", "path: null")
    service = Service(assemble(write_project(tmp_path / "project", corridor, config)))
    loop = asyncio.new_event_loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    played = Played(service, monkeypatch)
    service.worker.connected(True)  # noqa: FBT003 - the one thing there is to say
    service.clock.go()
    yield played
    loop.close()
    service.close()


@pytest.mark.parametrize("timed", [True, False])
def test_a_backlog_is_answered_step_for_step_and_live_agents_do_not_wait_behind_it(
    played: Played, *, timed: bool
) -> None:
    for n in range(5_000):  # of two minutes, and ten seconds' work
        played.publish(f"late-{n % 4}", at=played.now - 120.0 + n / 50, timed=timed)
    played.live(20.0, 100.0, 5, timed=timed)
    assert sum(played.seqs.values()) == 7_000
    assert {agent: len(delays) for agent, delays in played.delays.items()} == dict(played.seqs)
    assert played.skipped == {}
    assert "overload" not in played.blind
    waited = [delay for agent, delays in played.delays.items() if agent.startswith("live") for delay in delays]
    assert sorted(waited)[int(0.99 * len(waited))] < 0.5
    assert max(waited) < 1.0


def test_that_a_backlog_is_fetched_first_is_no_overload(played: Played) -> None:
    """Meanwhile fewer steps are answered than live ones come, for so it is meant to be."""
    played.taken = TAKEN
    for n in range(20_000):
        played.publish(f"late-{n % 4}", at=played.now - 120.0 + n / 200)
    played.live(30.0, 150.0, 5)
    assert played.skipped == {}
    assert {agent: len(delays) for agent, delays in played.delays.items()} == dict(played.seqs)


@pytest.mark.parametrize("timed", [True, False])
def test_in_overload_answers_are_passed_over_and_that_is_reported(played: Played, *, timed: bool) -> None:
    played.live(1.0, 100.0, 5, timed=timed)
    assert played.skipped == {}
    played.live(30.0, 1_000.0, 5, timed=timed)  # twice what can be answered
    assert set(played.skipped) == {f"live-{n}" for n in range(5)}
    assert "overload" in played.blind
    answered = sum(len(delays) for delays in played.delays.values())
    assert 0.3 * 30_100 < answered < 0.7 * 30_100
    late = [delay for delays in played.delays.values() for delay in delays]
    assert max(late) < 8.0  # it takes some seconds to know that it lasts
    assert sorted(late)[len(late) // 2] < 2.0


def test_a_stall_is_no_overload(played: Played) -> None:
    played.live(2.0, 400.0, 5)
    played.now += 10.0  # the process was stopped; what comes next waited in the network
    for n in range(4_000):
        played.publish(f"live-{n % 5}", at=played.now - 10.0 + n / 400)
    played.live(30.0, 400.0, 5)
    assert played.skipped == {}


def test_what_is_passed_over_is_logged_with_formula_agent_and_topic(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.live(1.0, 100.0, 2)
    played.live(10.0, 2_000.0, 2)
    said = {record.getMessage() for record in caplog.records if record.getMessage().startswith("overload")}
    says = "overload: answers of {0} for {1} are skipped; alarms on cfmon/alerts/{1}/{0} may be missing"
    assert said == {says.format(name, f"live-{n}") for name in ("watch", "chance") for n in range(2)}


def test_no_more_is_taken_over_than_may_wait(played: Played) -> None:
    limits = played.service.config.limits.model_copy(update={"queue": 50})
    played.service.worker._config = played.service.config.model_copy(update={"limits": limits})
    for n in range(1_000):
        played.publish(f"late-{n % 2}", at=played.now - 60.0)
    most = 0
    while played.queue or len(played.service.inbox) or played.service.worker.pipeline.waiting.steps:
        played.turn()
        most = max(most, played.service.worker.pipeline.waiting.steps)
    assert most <= 50
    assert sum(len(delays) for delays in played.delays.values()) == 1_000


def test_rates_forget() -> None:
    rate = Rate()
    rate.count(1_000, seconds=1.0)
    rate.count(0, seconds=100.0)
    assert rate.value < 1e-3


def test_pressure_needs_both_a_wait_and_more_coming_than_going() -> None:
    pressure = OverloadDetector(1.0)
    assert not pressure.overloaded(100.0)  # nothing is known yet
    for n in range(100):
        pressure.record_batch(n / 10, live=20, answered=10, left=True)
    assert pressure.overloaded(1.5)
    assert not pressure.overloaded(0.9)
    for n in range(100, 500):
        pressure.record_batch(n / 10, live=9, answered=10, left=True)
    assert not pressure.overloaded(1e9)
