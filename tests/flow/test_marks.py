"""Blindness that marks and does not stop: steps that wait too long, and a model that the steps do not follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

from monitor.flow import Monitor
from monitor.model import MDP
from monitor.types import (
    Alert,
    Blind,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    Received,
    StreamSettings,
    Trust,
    TrustSettings,
)

N = TypeVar("N")
WALK, LOST = 0, 2
SPECS = [FormulaSpec("watch", 'P>=0.95 [ F<=1 "there" ]')]
SETTINGS = StreamSettings(window=8, stale_after=4.0, max_lag=1e9)
UNTESTED = Trust(doubted=False, log10_e=0.0, transitions=0)
PATIENT = StreamSettings(window=8, stale_after=1000.0, max_lag=1e9)


@pytest.fixture
def road() -> MDP:
    """Walking leads from 0 to 1 and back, and seldom where one was; `LOST` is never left, and never found."""
    transitions = [(0, WALK, 1, 0.9), (0, WALK, 0, 0.1), (1, WALK, 0, 0.9), (1, WALK, 1, 0.1), (LOST, WALK, LOST, 1.0)]
    return MDP.from_transitions(states=3, actions=1, transitions=transitions, labels={"there": [1]})


def of(kind: type[N], notices: Iterable[Notice]) -> list[N]:
    return [notice for notice in notices if isinstance(notice, kind)]


class Stream:
    """A monitor with any number of agents, a second between two rounds."""

    def __init__(self, model: MDP, settings: StreamSettings = SETTINGS, trust: TrustSettings | None = None) -> None:
        self.monitor = Monitor(model, {"nominal": [WALK] * 3}, SPECS, settings, trust=trust)
        self.ticks = 0.0
        self.seq: dict[str, int] = {}

    @property
    def now(self) -> Instant:
        return Instant(1000.0 + self.ticks, self.ticks)

    def step(self, state: int, agent: str) -> None:
        seq = self.seq[agent] = self.seq.get(agent, -1) + 1
        observation = Observation(agent, "e", seq, state, WALK, time=self.now.wall)
        assert of(Received, self.monitor.observe(observation, self.now))[0].result == "accepted"

    def round(self, states: Sequence[int], *, agents: int = 0) -> list[Notice]:
        """One step of as many agents, and an evaluation."""
        self.ticks += 1.0
        for name, state in zip(("ada", "bob", "cyd"), states, strict=False):
            self.step(state, name)
        return self.monitor.evaluate(self.now, agents=agents)


# ---- deadline ----


def test_steps_that_wait_too_long_for_an_answer_blind_and_are_answered_all_the_same(road: MDP) -> None:
    stream = Stream(road)
    stream.round([0, 0])
    for n in range(6):
        stream.ticks += 1.0
        stream.step((n + 1) % 2, "ada")
        stream.step((n + 1) % 2, "bob")
    told = stream.monitor.evaluate(stream.now, agents=1)
    assert [(judged.agent, judged.seq) for judged in of(Judged, told)] == [("ada", seq) for seq in range(1, 7)]
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("bob", "deadline")]
    told = stream.monitor.evaluate(stream.now, agents=1)
    assert [(judged.agent, judged.seq) for judged in of(Judged, told)] == [("bob", seq) for seq in range(1, 7)]
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("bob", None)]


def test_agents_that_take_turns_in_time_are_not_blind(road: MDP) -> None:
    stream = Stream(road)
    told = [notice for n in range(12) for notice in stream.round([n % 2, n % 2], agents=1)]
    assert [judged.agent for judged in of(Judged, told)][:5] == ["ada", "bob", "bob", "ada", "ada"]
    assert of(Blind, told) == []


def test_waiting_goes_on_over_a_restart(road: MDP) -> None:
    stream, after = Stream(road), Stream(road)
    stream.round([0, 0])
    stream.ticks += 1.0
    stream.step(1, "ada")
    stream.step(1, "bob")
    agents = stream.monitor.changed(everything=True)
    after.monitor.load(stream.monitor.dump(), {name: state for name, state in agents.items() if state is not None})
    stream.ticks += 5.0
    told = [monitor.evaluate(stream.now, agents=1) for monitor in (stream.monitor, after.monitor)]
    assert ("bob", "deadline") in [(blind.agent, blind.reason) for blind in of(Blind, told[0])]
    assert told[0] == told[1]


# ---- the model ----


def test_a_model_that_steps_do_not_follow_marks_every_agent_and_stops_no_answer(road: MDP) -> None:
    stream = Stream(road, PATIENT)
    stream.round([0, 1, 0])
    told = [notice for _ in range(20) for notice in stream.round([0])]  # staying has a chance of .1
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [
        ("ada", "model_doubt"),
        ("bob", "model_doubt"),
        ("cyd", "model_doubt"),
    ]
    stands = of(Trust, told)
    assert stands[-1].doubted
    assert stands[-1].log10_e >= 3.0
    assert len([judged for judged in of(Judged, told) if judged.agent == "ada"]) == 20


def test_an_alarm_of_a_doubted_model_fires_and_says_so(road: MDP) -> None:
    stream = Stream(road)
    quiet = [notice for _ in range(20) for notice in stream.round([1])]
    assert of(Alert, quiet) == []
    fired = of(Alert, stream.round([0]))
    assert [(alert.state, alert.blind) for alert in fired] == [("firing", "model_doubt")]
    assert "the model is in doubt" in fired[0].summary


def test_impossible_steps_count_too(road: MDP) -> None:
    stream = Stream(road)
    told: list[Notice] = []
    for state in (0, LOST, 0, LOST, 0, LOST):
        told += stream.round([state])
    assert of(Trust, [*told, *stream.monitor.standing()])[-1].doubted


def test_one_wrong_reading_is_no_proof_although_it_makes_two_impossible_steps(road: MDP) -> None:
    stream = Stream(road)
    states = [0, 1, LOST, 1, 0, 1, 0, 1]
    tested = []
    for state in states:
        carried(stream, after := Stream(road))  # a restart between any two steps changes nothing
        stream = after
        stream.round([state])
        doubt = stream.monitor.dump().doubt
        assert doubt is not None
        tested.append(doubt.test.transitions)
    assert tested == [0, 1, 2, 2, 3, 4, 5, 6]
    assert not of(Trust, stream.monitor.standing())[-1].doubted


def test_what_follows_an_impossible_step_is_passed_over_wherever_it_leads(road: MDP) -> None:
    stream = Stream(road)
    for state in (0, LOST, LOST, LOST):  # possible steps, of which the first starts where an impossible one led
        stream.round([state])
    doubt = stream.monitor.dump().doubt
    assert doubt is not None
    assert doubt.test.transitions == 2


def test_a_break_is_no_transition_and_neither_is_a_new_episode(road: MDP) -> None:
    stream = Stream(road)
    for episode in range(50):  # from 0 to 0 fifty times, and never as a step of the model
        stream.ticks += 1.0
        stream.monitor.observe(Observation("ada", episode, 0, 0, WALK), stream.now)
        stream.monitor.observe(Observation("ada", episode, 2, 0, WALK), stream.now)  # seq 1 is lost
        stream.monitor.evaluate(stream.now)
    stream.ticks += 10.0
    told = [*stream.monitor.evaluate(stream.now), *stream.monitor.standing()]
    assert of(Trust, told) == [UNTESTED]


def test_a_model_that_is_not_tested_is_not_doubted(road: MDP) -> None:
    stream = Stream(road, trust=TrustSettings(enabled=False))
    told = [notice for _ in range(30) for notice in stream.round([0])]
    assert of(Trust, told) == []
    assert [blind.reason for blind in of(Blind, told)] == []


def carried(before: Stream, after: Stream) -> list[Notice]:
    agents = before.monitor.changed(everything=True)
    after.monitor.load(before.monitor.dump(), {name: state for name, state in agents.items() if state is not None})
    after.ticks, after.seq = before.ticks, before.seq
    return [*after.monitor.standing()]


def test_doubt_stays_over_a_restart_and_the_test_goes_on_where_it_stood(road: MDP) -> None:
    killed, never = Stream(road), Stream(road)
    for _ in range(20):
        carried(killed, replacement := Stream(road))
        killed = replacement
        told = killed.round([0])
        assert of(Blind, told) == of(Blind, never.round([0]))
        assert killed.monitor.dump().doubt == never.monitor.dump().doubt
    assert of(Trust, carried(killed, Stream(road)))[0].doubted


@pytest.mark.parametrize(
    ("settings", "trust"),
    [
        (SETTINGS, TrustSettings(alpha=0.002)),
        (StreamSettings(window=8, stale_after=4.0, max_lag=1e9, encoder="name"), TrustSettings()),
        (SETTINGS, TrustSettings(enabled=False)),
    ],
    ids=["settings", "encoder", "off"],
)
def test_doubt_ends_with_what_was_tested(road: MDP, settings: StreamSettings, trust: TrustSettings) -> None:
    doubted, other = Stream(road), Stream(road, settings, trust)
    for _ in range(20):
        doubted.round([0])
    assert of(Trust, doubted.monitor.standing())[0].doubted
    assert of(Trust, carried(doubted, other)) == [UNTESTED]  # which takes back what was shown
    told = other.monitor.evaluate(other.now)
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("ada", None)]


def test_doubt_ends_with_the_model(road: MDP) -> None:
    lazy = MDP.from_transitions(
        states=3,
        actions=1,
        transitions=[(0, WALK, 1, 0.1), (0, WALK, 0, 0.9), (1, WALK, 1, 1.0), (LOST, WALK, LOST, 1.0)],
        labels={"there": [1]},
    )
    doubted, other = Stream(road), Stream(lazy)
    for _ in range(20):
        doubted.round([0])
    assert of(Trust, carried(doubted, other)) == [UNTESTED]
    told = [notice for _ in range(40) for notice in other.round([0])]
    assert not of(Trust, told)[-1].doubted
    assert "model_doubt" not in [blind.reason for blind in of(Blind, told)]
