"""What piled up while something was down is answered in full; answers are passed over in lasting overload only."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.model import MDP
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Event, Message
from monitor.sidecar.overload import OverloadDetector, Rate
from monitor.sidecar.worker import RECONNECT_GRACE
from monitor.types import Blind, Judged, Skipped
from tests.sidecar.by_hand import WALL, ByHand, Time, by_hand, stopped_time
from tests.sidecar.project import CONFIG, write_project
from tests.tiers import examples, scaled

COST = 0.002
"""Seconds an answer takes here: 500 steps a second are answered."""
TAKEN = 0.0002
"""Seconds it takes to take a step over where that counts."""
WINDOW = 100
"""Messages that the broker sends ahead of our acknowledgements."""


class Played:
    """A service whose answers take `COST` seconds of a time that the test makes, and a broker that has a queue."""

    def __init__(self, there: ByHand, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.time = there, time
        self.pipeline = there.worker.pipeline
        self.queue: deque[tuple[str, bytes]] = deque()
        self.seqs: Counter[str] = Counter()
        self.sent: dict[tuple[str, int], float] = {}
        self.delays: dict[str, list[float]] = {}
        self.skipped: Counter[str] = Counter()
        self.blind: set[str] = set()
        self.taken = 0.0
        self._step = self.pipeline.step
        monkeypatch.setattr(self.pipeline, "step", self.step)

    @property
    def now(self) -> float:
        return self.time.now

    def step(self, event: Event) -> Effects:
        effects = self._step(event)
        if isinstance(event, Message):
            self.time.now += self.taken
        if isinstance(event, Evaluate):
            self.time.now += COST * sum(isinstance(n, Judged) and n.formula == "watch" for n in effects.notices)
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
        inbox = self.there.service.inbox
        while self.queue and len(inbox) < min(WINDOW, inbox.limit // 2):
            agent, payload = self.queue.popleft()
            self.there.put(payload, agent=agent)
        before = self.now
        self.there.worker.turn()
        if self.now == before:
            self.time.now += 0.001

    def live(self, seconds: float, rate: float, agents: int, *, timed: bool = True) -> None:
        """So many steps a second of so many agents, as they happen; then until nothing waits."""
        began, published = self.now, 0
        while self.now < began + seconds or self.queue or self.pipeline.waiting.steps:
            while published < rate * (min(self.now, began + seconds) - began):
                self.publish(f"live-{published % agents}", at=began + published / rate, timed=timed)
                published += 1
            self.turn()
            assert self.now < began + 50 * seconds, "it is never done"


@pytest.fixture
def config(tmp_path: Path, corridor: MDP) -> Path:
    return write_project(tmp_path / "project", corridor, CONFIG.replace("path: var/cfmon.sqlite", "path: null"))


@pytest.fixture
def played(config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    with stopped_time() as time, by_hand(config) as there:
        there.worker.connected(True)  # noqa: FBT003 - as the link calls it
        time.advance(RECONNECT_GRACE)
        yield Played(there, time, monkeypatch)


@scaled
@pytest.mark.parametrize("timed", [True, False])
def test_a_backlog_is_answered_step_for_step_and_live_agents_do_not_wait_behind_it(
    played: Played, *, timed: bool
) -> None:
    seconds = examples(5, 20)
    for n in range(250 * seconds):  # of some minutes, and half that many seconds' work
        played.publish(f"late-{n % 4}", at=played.now - 120.0 + n / 50, timed=timed)
    played.live(seconds, 100.0, 5, timed=timed)
    assert sum(played.seqs.values()) == 350 * seconds
    assert {agent: len(delays) for agent, delays in played.delays.items()} == dict(played.seqs)
    assert played.skipped == {}
    assert "overload" not in played.blind
    waited = [delay for agent, delays in played.delays.items() if agent.startswith("live") for delay in delays]
    assert sorted(waited)[int(0.99 * len(waited))] < 0.5
    assert max(waited) < 1.0


@scaled
def test_that_a_backlog_is_fetched_first_is_no_overload(played: Played) -> None:
    """Meanwhile fewer steps are answered than live ones come, for so it is meant to be."""
    played.taken = TAKEN
    for n in range(examples(8_000, 20_000)):
        played.publish(f"late-{n % 4}", at=played.now - 120.0 + n / 200)
    played.live(examples(12, 30), 150.0, 5)
    assert played.skipped == {}
    assert {agent: len(delays) for agent, delays in played.delays.items()} == dict(played.seqs)


@scaled
@pytest.mark.parametrize("timed", [True, False])
def test_in_overload_answers_are_passed_over_and_that_is_reported(played: Played, *, timed: bool) -> None:
    played.live(1.0, 100.0, 5, timed=timed)
    assert played.skipped == {}
    seconds = examples(10, 30)
    played.live(seconds, 1_000.0, 5, timed=timed)  # twice what can be answered
    assert set(played.skipped) == {f"live-{n}" for n in range(5)}
    assert "overload" in played.blind
    answered = sum(len(delays) for delays in played.delays.values())
    assert 0.3 < answered / (1_000 * seconds + 100) < 0.7
    late = [delay for delays in played.delays.values() for delay in delays]
    assert max(late) < 8.0  # it takes some seconds to know that it lasts
    assert sorted(late)[len(late) // 2] < 2.0


@scaled
def test_a_stall_is_no_overload(played: Played) -> None:
    played.live(2.0, 400.0, 5)
    played.time.now += 10.0  # the process was stopped; what comes next waited in the network
    for n in range(4_000):
        played.publish(f"live-{n % 5}", at=played.now - 10.0 + n / 400)
    played.live(examples(8, 30), 400.0, 5)
    assert played.skipped == {}


def test_what_is_passed_over_is_logged_with_formula_agent_and_topic(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.live(1.0, 100.0, 2)
    played.live(10.0, 2_000.0, 2)
    said = {record.getMessage() for record in caplog.records if record.getMessage().startswith("overload")}
    says = "overload: answers of {0} for {1} are skipped; alarms on cfmon/alerts/{1}/{0} may be missing"
    assert said == {says.format(name, f"live-{n}") for name in ("watch", "chance") for n in range(2)}


@pytest.fixture
def few_may_wait(config: Path) -> None:
    config.write_text(config.read_text() + "limits: {queue: 50}\n")


@pytest.mark.usefixtures("few_may_wait")
def test_no_more_is_taken_over_than_may_wait(played: Played) -> None:
    for n in range(1_000):
        played.publish(f"late-{n % 2}", at=played.now - 60.0)
    most = 0
    while played.queue or len(played.there.service.inbox) or played.pipeline.waiting.steps:
        played.turn()
        most = max(most, played.pipeline.waiting.steps)
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


def test_a_batch_in_which_the_process_stood_still_says_nothing_of_its_speed() -> None:
    pressure = OverloadDetector(1.0)
    for n in range(100):
        pressure.record_batch(n / 10, live=9, answered=10, left=True)
    pressure.record_batch(20.0, live=9, answered=10, left=True)
    pressure.record_batch(20.1, live=900, answered=10, left=True)  # which came meanwhile
    assert not pressure.overloaded(5.0)
