"""Formulas asked every so many seconds: on the newest path, when they are due, also where no further step comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest

from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.stream import TimerQueue
from monitor.types import (
    AlarmSpec,
    Alert,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    Skipped,
    StreamSettings,
    TrustSettings,
)

N = TypeVar("N")
STAY, GO = 0, 1
SPEC = FormulaSpec("watch", 'P>=0.5 [ F<=1 "there" ]', every=0.5, alarm=AlarmSpec(for_=2))
SETTINGS = StreamSettings(window=8, stale_after=10.0, forget_after=60.0, max_lag=1e9)


@pytest.fixture
def road() -> MDP:
    """Going leads from 0 to 1 and back for certain; staying does not."""
    transitions = [(0, GO, 1, 1.0), (1, GO, 0, 1.0), (0, STAY, 0, 1.0), (1, STAY, 1, 1.0)]
    return MDP.from_transitions(states=2, actions=2, transitions=transitions, labels={"there": [1]})


def of(kind: type[N], notices: Iterable[Notice]) -> list[N]:
    return [notice for notice in notices if isinstance(notice, kind)]


class Stream:
    """A monitor whose clock stands still until it is told what time it is."""

    def __init__(self, model: MDP, *specs: FormulaSpec) -> None:
        self._model, self._specs = model, specs or (SPEC,)
        self.monitor = self.new()
        self.ticks = 0.0

    def new(self) -> Monitor:
        return Monitor(self._model, {"nominal": [STAY] * 2}, self._specs, SETTINGS, trust=TrustSettings(enabled=False))

    @property
    def now(self) -> Instant:
        return Instant(1000.0 + self.ticks, self.ticks)

    def step(self, seq: int, state: int, action: int = STAY, *, agent: str = "ada", truncated: bool = False) -> None:
        observation = Observation(agent, "e", seq, state, action, time=self.now.wall, truncated=truncated)
        self.monitor.observe(observation, self.now)

    def at(self, ticks: float, *, latest_only: bool = False) -> list[Notice]:
        self.ticks = ticks
        return self.monitor.evaluate(self.now, latest_only=latest_only)

    def seqs_at(self, ticks: float, *, latest_only: bool = False) -> list[int]:
        return [judged.seq for judged in of(Judged, self.at(ticks, latest_only=latest_only))]


def test_nothing_is_due_on_a_path_that_has_begun_anew_until_a_step_comes(road: MDP) -> None:
    """Otherwise whoever waits for the time when something is due, and calls, would do so without end."""
    stream = Stream(road)
    stream.step(0, 0)
    stream.at(0.0)
    stream.step(1, 0)
    stream.at(0.3)
    assert stream.monitor.due == 0.5
    stream.step(2, 1)  # where staying does not lead
    assert stream.seqs_at(0.4) == []
    stream.monitor.lost("ada", stream.now)
    assert stream.seqs_at(0.5) == []
    assert stream.monitor.due is not None
    assert stream.monitor.due > 0.5
    stream.step(3, 1)
    assert stream.seqs_at(0.6) == [3]


def test_it_is_answered_when_due_although_no_step_comes_and_not_again_until_one_has(road: MDP) -> None:
    stream = Stream(road)
    stream.step(0, 0)
    assert stream.seqs_at(0.0) == [0]
    stream.step(1, 0)
    assert stream.seqs_at(0.3) == []
    assert stream.seqs_at(0.49) == []
    assert stream.seqs_at(0.5) == [1]
    assert stream.seqs_at(5.0) == []
    stream.step(2, 0)
    assert stream.seqs_at(5.0) == [2]  # long due


def test_of_many_steps_at_once_the_newest_is_answered_and_none_counts_as_skipped(road: MDP) -> None:
    stream = Stream(road, SPEC, FormulaSpec("each", SPEC.text))
    for seq in range(4):
        stream.step(seq, 0)
    told = stream.at(0.0, latest_only=True)
    assert [(judged.formula, judged.seq) for judged in of(Judged, told)] == [("each", 3), ("watch", 3)]
    assert {skipped.formula for skipped in of(Skipped, told)} == {"each"}
    for seq in range(4, 8):
        stream.step(seq, 0)
    stream.at(0.1)
    assert stream.seqs_at(0.6) == [7]


def test_under_lasting_overload_it_is_still_answered(road: MDP) -> None:
    stream, answered = Stream(road), []
    for n in range(20):
        stream.step(2 * n, 0)
        stream.step(2 * n + 1, 0)
        answered += stream.seqs_at(0.25 * n, latest_only=True)
    assert answered == [4 * n + 1 for n in range(10)]


def test_an_alarm_fires_by_time_alone(road: MDP) -> None:
    """Verdicts count towards `for`, each on a path of its own."""
    stream = Stream(road)
    stream.step(0, 0)
    assert not of(Alert, stream.at(0.0))
    assert not of(Alert, stream.at(9.0)), "the same path twice is one verdict"
    stream.step(1, 0)
    assert [alert.seq for alert in of(Alert, stream.at(9.0))] == [1]


def test_the_end_of_an_episode_answers_what_was_not_due_and_leaves_nothing_to_wait_for(road: MDP) -> None:
    stream = Stream(road)
    stream.step(0, 0)
    stream.at(0.0)
    stream.step(1, 0)
    stream.step(2, 0, truncated=True)
    assert stream.seqs_at(0.1) == [2]
    assert stream.seqs_at(5.0) == []


def test_a_restored_monitor_answers_at_the_same_time(road: MDP) -> None:
    stream = Stream(road)
    for agent in ("bob", "ada"):
        stream.step(0, 0, agent=agent)
    stream.at(0.0)
    stream.step(1, 0, agent="ada")
    stream.at(0.2)
    saved = stream.monitor.save(everything=True)
    stream.monitor = stream.new()
    stream.monitor.load(saved)
    assert stream.seqs_at(0.4) == []
    assert stream.seqs_at(0.5) == [1]


def test_a_forgotten_agent_is_not_looked_for(road: MDP) -> None:
    stream = Stream(road, FormulaSpec("watch", SPEC.text, every=100.0))
    stream.step(0, 0)
    stream.at(0.0)
    stream.step(1, 0)
    stream.at(1.0)
    stream.at(70.0)
    assert stream.monitor.agents() == ()
    assert stream.seqs_at(101.0) == []


def test_the_agenda_forgets_what_is_void() -> None:
    agenda = TimerQueue()
    for n in range(10_000):
        agenda.put("ada", 1e6 + n)
        agenda.put("bob", None)
    assert len(agenda) < 100
    assert list(agenda.due(2e6)) == ["ada"]
    assert list(agenda.due(2e6)) == []
