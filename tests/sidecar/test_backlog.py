"""What piled up while something was down is answered in full; answers are passed over in lasting overload only."""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.model import MDP
from monitor.sidecar import backlog as backlog_module
from monitor.sidecar.backlog import RECONNECT_GRACE
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Event, Message
from monitor.sidecar.overload import EventRate, OverloadDetector
from monitor.stream import decode
from monitor.types import Alert, Blind, Instant, Judged, Skipped
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
        self.judged: set[tuple[str, int]] = set()
        self.alerts: set[tuple[str, str, str, int]] = set()
        self.cost, self.taken = COST, 0.0
        self._step = self.pipeline.step
        monkeypatch.setattr(self.pipeline, "step", self.step)

    @property
    def now(self) -> float:
        return self.time.now

    def step(self, event: Event) -> Effects:
        effects = self._step(event)
        if isinstance(event, Message):
            self.time.work(self.taken)
        if isinstance(event, Evaluate):
            self.time.work(self.cost * sum(isinstance(n, Judged) and n.formula == "watch" for n in effects.notices))
        for notice in effects.notices:
            match notice:
                case Judged(formula="watch"):
                    self.delays.setdefault(notice.agent, []).append(self.now - self.sent[notice.agent, notice.seq])
                    self.judged.add((notice.agent, notice.seq))
                case Alert() if notice.state != "firing" or notice.revision == 1:
                    self.alerts.add((notice.agent, notice.formula, notice.state, notice.seq))
                case Skipped():
                    self.skipped[notice.agent] += notice.count
                case Blind(reason=str(reason)):
                    self.blind.add(reason)
        return effects

    def publish(self, agent: str, *, at: float, timed: bool = True, state: int = 0, action: int = 1) -> None:
        seq = self.seqs[agent]
        self.seqs[agent] += 1
        self.sent[agent, seq] = at
        time = {"time": WALL + at} if timed else {}
        step = {"v": 1, "episode": "e", "seq": seq, "state": state, "action": action, **time}
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
        self.time.advance(0.0)  # what is due later happens

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


def test_what_comes_some_time_after_connecting_is_a_backlog_although_nothing_came_before(played: Played) -> None:
    played.there.worker.connected(True)  # noqa: FBT003 - as the link calls it
    played.taken = TAKEN
    played.turn()
    played.time.advance(1.5)
    for n in range(16_000):
        played.publish(f"late-{n % 4}", at=played.now - 120.0 + n / 50, timed=False)
    played.live(4.0, 100.0, 5, timed=False)
    assert played.skipped == {}
    assert {agent: len(delays) for agent, delays in played.delays.items()} == dict(played.seqs)


@pytest.mark.parametrize("agents", [1, 2])
def test_the_own_backlog_of_agents_without_times_is_answered_step_for_step(played: Played, agents: int) -> None:
    """They were away, not the broker, so nothing but their number shows it."""
    played.live(5.0, 100.0, 5, timed=False)
    for n in range(6_000):
        played.publish(f"late-{n % agents}", at=played.now - 120.0 + n / 50, timed=False)
    played.live(4.0, 100.0, 5, timed=False)
    assert played.skipped == {}
    assert {agent: len(delays) for agent, delays in played.delays.items()} == dict(played.seqs)


def test_an_agent_without_times_that_stays_too_fast_is_an_overload(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "BACKLOG_SECONDS", 3.0)
    played.live(1.0, 10.0, 1, timed=False)
    played.live(12.0, 1_000.0, 1, timed=False)
    assert set(played.skipped) == {"live-0"}


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


class Mixed:
    """Some agents with a backlog that go on, some without; a machine that gives the process what it likes."""

    AGENTS, SECONDS = 5, 10.0

    def __init__(self, played: Played, draw: random.Random) -> None:
        self.played, self.draw = played, draw
        self.timed = {f"a{n}": draw.random() < 0.6 for n in range(self.AGENTS)}
        self.payloads: list[tuple[str, bytes]] = []
        self.backlog: dict[str, int] = {}
        self.old: set[tuple[str, int]] = set()
        """steps that were no news when the monitor could first have them"""

    def publish(self, agent: str, at: float) -> None:
        self.played.publish(agent, at=at, timed=self.timed[agent], state=3, action=self.draw.choice([0, 1, 1]))
        self.payloads.append(self.played.queue[-1])

    def go(self) -> None:
        """A backlog, then live steps of all while it is worked off; the process is starved and stopped at times."""
        played, draw = self.played, self.draw
        played.cost = 0.01  # a processor answers 100 steps a second
        began = played.now
        for name in self.timed:
            self.backlog[name] = draw.choice([0, 20, 150])
            for n in range(self.backlog[name]):
                self.publish(name, began - 100.0 + 0.1 * n)
        rate, names, sent, turns = draw.choice([20.0, 60.0, 300.0]), list(self.timed), 0, 0
        while played.now < began + self.SECONDS or played.queue or played.pipeline.waiting.steps:
            if draw.random() < 0.05:
                played.time.share = draw.choice([1.0, 0.5, 0.05])
            before = played.now
            if draw.random() < 0.002:
                played.time.now += draw.choice([1.0, 5.0, 20.0])  # nothing runs
            due = min(played.now, began + self.SECONDS) - began
            while sent < rate * due:
                name, at = names[sent % len(names)], began + sent / rate
                self.publish(name, at)
                if before + 0.1 < at < played.now - 3.0:
                    self.old.add((name, played.seqs[name] - 1))
                sent += 1
            played.turn()
            turns += 1
            assert turns < 50_000, "it is never done"

    def unloaded(self) -> set[tuple[str, str, str, int]]:
        """Return the alerts on the backlog of a monitor that has time for every step."""
        pipeline = self.played.there.service.worker.pipeline.monitor.anew()
        found: set[tuple[str, str, str, int]] = set()
        for n, (agent, payload) in enumerate(self.payloads):
            now = Instant(WALL + n, float(n))
            notices = [*pipeline.observe(decode(agent, payload), now), *pipeline.evaluate(now)]
            alerts = [e for e in notices if isinstance(e, Alert) and (e.state != "firing" or e.revision == 1)]
            found |= {(e.agent, e.formula, e.state, e.seq) for e in alerts}
        return self.of_backlog(found)

    def of_backlog(self, alerts: set[tuple[str, str, str, int]]) -> set[tuple[str, str, str, int]]:
        return {alert for alert in alerts if alert[3] < self.backlog[alert[0]]}


@scaled
def test_whatever_the_machine_does_each_alarm_of_a_backlog_is_raised(config: Path) -> None:
    skipped = alarms = 0
    for seed in range(examples(8, 40)):
        with pytest.MonkeyPatch.context() as patch, stopped_time() as time, by_hand(config) as there:
            there.worker.connected(True)  # noqa: FBT003 - as the link calls it
            time.advance(RECONNECT_GRACE)
            played = Played(there, time, patch)
            mixed = Mixed(played, random.Random(seed))
            mixed.go()
            backlog = {(agent, seq) for agent, count in mixed.backlog.items() for seq in range(count)}
            assert backlog | mixed.old <= played.judged, f"seed {seed}: answers of a backlog are missing"
            expected = mixed.unloaded()
            assert mixed.of_backlog(played.alerts) >= expected, f"seed {seed}: alarms of a backlog are missing"
            assert len(played.judged) + sum(played.skipped.values()) // 2 == sum(played.seqs.values()), f"seed {seed}"
            skipped, alarms = skipped + sum(played.skipped.values()), alarms + len(expected)
    assert skipped > 0, "nothing was overloaded"
    assert alarms > 0


@scaled
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_starvation_is_no_overload(played: Played, share: float, *, timed: bool) -> None:
    """The live steps take a fifth of a processor, so nothing is skipped, although they wait for a minute."""
    played.cost = 0.01
    played.live(2.0, 20.0, 4, timed=timed)
    played.time.share = share
    played.live(examples(5, 30), 20.0, 4, timed=timed)
    assert played.skipped == {}
    assert "overload" not in played.blind
    assert len(played.judged) == sum(played.seqs.values())


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
    rate = EventRate()
    rate.count(1_000, seconds=1.0)
    rate.count(0, seconds=100.0)
    assert rate.value < 1e-3


def test_pressure_needs_both_a_wait_and_more_coming_than_going() -> None:
    pressure = OverloadDetector(1.0)
    assert not pressure.overloaded(100.0)  # nothing is known yet
    for n in range(100):
        pressure.record_batch(n / 10, n / 10, live=20, answered=10, left=True)
    assert pressure.overloaded(1.5)
    assert not pressure.overloaded(0.9)
    for n in range(100, 500):
        pressure.record_batch(n / 10, n / 10, live=9, answered=10, left=True)
    assert not pressure.overloaded(1e9)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_process_that_gets_little_of_a_processor_is_late_and_not_overloaded(share: float) -> None:
    pressure = OverloadDetector(1.0)
    for n in range(1_000):
        pressure.record_batch(n / 10, share * n / 10, live=9, answered=round(10 * share), left=True)
        assert not pressure.overloaded(60.0)
    for n in range(1_000, 1_200):
        pressure.record_batch(n / 10, share * n / 10, live=20, answered=round(10 * share), left=True)
    assert pressure.overloaded(60.0)  # that is more than a whole processor could do


def test_work_for_something_else_says_nothing_of_what_a_step_takes() -> None:
    pressure = OverloadDetector(1.0)
    for n in range(100):
        pressure.record_batch(n / 10, n / 10, live=9, answered=10, left=True)
    pressure.record_batch(20.0, 20.0, live=9, answered=10, left=True)
    pressure.record_batch(20.1, 20.1, live=90, answered=10, left=True)  # which came meanwhile
    assert not pressure.overloaded(5.0)


def test_what_comes_first_is_no_high_rate() -> None:
    pressure = OverloadDetector(1.0)
    for n in range(5):
        pressure.record_batch(n / 1000, n / 1000, live=1, answered=1 if n else None, left=True)
        pressure.record_batch(1.0 + n / 1000, 0.1 + n / 1000, live=45, answered=20, left=True)
        assert not pressure.overloaded(5.0)
