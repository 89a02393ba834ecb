"""Blindness that marks and does not stop: steps that wait too long, and a model that the steps do not follow."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import pytest
from msgspec.structs import replace

from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import (
    Alert,
    Blind,
    Forgotten,
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

    def round(self, states: Sequence[int], *, steps: int = 0) -> list[Notice]:
        """One step of as many agents, and an evaluation."""
        self.ticks += 1.0
        for name, state in zip(("ada", "bob", "cyd"), states, strict=False):
            self.step(state, name)
        return self.monitor.evaluate(self.now, steps=steps)


def walk(draw: random.Random, steps: int) -> Iterator[int]:
    """States of the road as its model has them, after 0."""
    state = 0
    for _ in range(steps):
        state = state if draw.random() < 0.1 else 1 - state
        yield state


# ---- deadline ----


def test_steps_that_wait_too_long_for_an_answer_blind_and_are_answered_all_the_same(road: MDP) -> None:
    stream = Stream(road)
    stream.round([0, 0])
    for n in range(6):
        stream.ticks += 1.0
        stream.step((n + 1) % 2, "ada")
        stream.step((n + 1) % 2, "bob")
    told = stream.monitor.evaluate(stream.now, steps=6)
    assert [(judged.agent, judged.seq) for judged in of(Judged, told)] == [("ada", seq) for seq in range(1, 7)]
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("bob", "deadline")]
    told = stream.monitor.evaluate(stream.now, steps=6)
    assert [(judged.agent, judged.seq) for judged in of(Judged, told)] == [("bob", seq) for seq in range(1, 7)]
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("bob", None)]


def test_agents_that_take_turns_in_time_are_not_blind(road: MDP) -> None:
    stream = Stream(road)
    told = [notice for n in range(12) for notice in stream.round([n % 2, n % 2], steps=2)]
    assert [judged.agent for judged in of(Judged, told)][:4] == ["ada", "bob", "ada", "bob"]
    assert of(Blind, told) == []


def test_an_agent_with_a_backlog_does_not_keep_others_from_their_turn(road: MDP) -> None:
    stream = Stream(road, PATIENT)
    for n in range(100):
        stream.step(n % 2, "ada")
    stream.step(0, "bob")
    stream.step(0, "cyd")
    told = stream.monitor.evaluate(stream.now, steps=40)
    answered = [judged.agent for judged in of(Judged, told)]
    assert answered == ["ada"] * 16 + ["bob", "cyd"] + ["ada"] * 22
    assert stream.monitor.waiting.steps == 62
    rest = stream.monitor.evaluate(stream.now)
    assert [judged.seq for judged in of(Judged, rest)] == [*range(38, 100)]
    assert stream.monitor.waiting.since is None


def test_waiting_goes_on_over_a_restart(road: MDP) -> None:
    stream, after = Stream(road), Stream(road)
    stream.round([0, 0])
    stream.ticks += 1.0
    stream.step(1, "ada")
    stream.step(1, "bob")
    after.monitor.load(stream.monitor.save(everything=True))
    stream.ticks += 5.0
    told = [monitor.evaluate(stream.now, steps=1) for monitor in (stream.monitor, after.monitor)]
    assert ("bob", "deadline") in [(blind.agent, blind.reason) for blind in of(Blind, told[0])]
    assert told[0] == told[1]


# ---- the model ----


def test_an_agent_whose_steps_do_not_follow_the_model_is_marked_and_no_other(road: MDP) -> None:
    stream = Stream(road, PATIENT)
    stream.round([0, 0, 0])
    draw = random.Random(1)
    walks = list(zip(*(walk(draw, 40) for _ in range(2)), strict=True))
    told = [notice for bob, cyd in walks for notice in stream.round([0, bob, cyd])]  # staying has a chance of .1
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("ada", "model_doubt")]
    alone = [trust for trust in of(Trust, told) if trust.agent]
    assert [(trust.agent, trust.doubted) for trust in alone] == [("ada", True)]
    assert alone[0].log10_e >= 3.0
    assert not together(told)[-1].doubted
    assert max(trust.log10_e for trust in together(told)) < 1.5  # however long it goes on
    assert len([judged for judged in of(Judged, told) if judged.agent == "ada"]) == 40


def test_a_model_that_several_agents_contradict_marks_every_agent_and_stops_no_answer(road: MDP) -> None:
    stream = Stream(road, PATIENT)
    stream.round([0, 0, 1])
    told = [notice for _ in range(20) for notice in stream.round([0, 0])]
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [
        ("ada", "model_doubt"),
        ("bob", "model_doubt"),
        ("cyd", "model_doubt"),
    ]
    details = {blind.agent: blind.detail for blind in of(Blind, told)}
    assert details["cyd"] == "for all agents"
    assert together(told)[-1].doubted
    assert together(told)[-1].log10_e >= 3.0
    assert len([judged for judged in of(Judged, told) if judged.agent == "ada"]) == 20


def test_an_agent_that_was_forgotten_cannot_count_twice(road: MDP) -> None:
    settings = StreamSettings(window=8, forget_after=100.0, max_lag=1e9)
    stream = Stream(road, settings)
    for _ in range(5):
        told = [notice for _ in range(40) for notice in stream.round([0])]
        assert [trust.agent for trust in of(Trust, told) if trust.doubted] == ["ada"]
        stream.ticks += 200.0
        stream.monitor.evaluate(stream.now)
        assert stream.monitor.agents() == ()
        stream.seq = {}
    assert not of(Trust, stream.monitor.current_state())[-1].doubted


# ---- silence that is no silence ----


@pytest.mark.parametrize("again", ["the same", "others"])
def test_an_agent_that_starts_over_under_old_episodes_is_reported_as_not_watched(road: MDP, again: str) -> None:
    stream = Stream(road)
    told: list[Notice] = []

    def send(episode: int, seq: int, state: int) -> None:
        observation = Observation("ada", episode, seq, state, WALK, terminated=seq == 3, time=stream.now.wall)
        stream.ticks += 1.0
        told.extend(stream.monitor.observe(observation, stream.now))
        told.extend(stream.monitor.evaluate(stream.now))

    for episode in range(3):
        for seq in range(4):
            send(episode, seq, seq % 2)
    assert of(Blind, told) == []
    stream.ticks = 0.0  # so that even the times are the same
    for seq in range(4):
        stream.ticks = float(seq)
        send(0, seq, seq % 2 if again == "the same" else 1 - seq % 2)
    stream.ticks = 20.0
    told.clear()
    for seq in range(4):
        send(1, seq, seq % 2 if again == "the same" else 1 - seq % 2)
    assert {received.result for received in of(Received, told)} <= {"duplicate", "stale"}
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("ada", "old_episode")]
    told.clear()
    send(3, 0, 0)
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("ada", None)]


def test_episodes_that_are_delivered_twice_are_taken_once(road: MDP) -> None:
    """Seventy of them, more than are remembered step by step: no alarm fires anew, and the model is not doubted."""
    stream, draw = Stream(road, PATIENT), random.Random(2)
    first = [
        Observation("ada", episode, seq, state, WALK, terminated=seq == 12)
        for episode in range(70)
        for seq, state in enumerate([0, *walk(draw, 12)])
    ]
    told: list[list[Notice]] = [[], []]
    for again in told:
        for observation in first:
            stream.ticks += 0.005
            again.extend(stream.monitor.observe(observation, stream.now))
            again.extend(stream.monitor.evaluate(stream.now))
    assert len(of(Judged, told[0])) == len(first) == 910
    assert {received.result for received in of(Received, told[1])} == {"duplicate"}
    assert not {Judged, Alert, Blind} & {type(notice) for notice in told[1]}
    assert doubted([*told[0], *told[1]]) == []


def test_an_agent_silent_between_episodes_is_idle_then_forgotten(road: MDP) -> None:
    stream = Stream(road, StreamSettings(window=8, idle_after=60.0, forget_after=600.0))
    stream.monitor.observe(Observation("ada", 0, 0, 0, WALK, terminated=True), stream.now)
    stream.monitor.evaluate(stream.now)
    stream.ticks += 50.0
    assert of(Blind, stream.monitor.evaluate(stream.now)) == []
    stream.ticks += 20.0
    assert [blind.reason for blind in of(Blind, stream.monitor.evaluate(stream.now))] == ["idle"]
    stream.ticks += 600.0
    assert of(Forgotten, stream.monitor.evaluate(stream.now)) == [Forgotten("ada", silent=670.0, open=False)]


def test_an_alarm_of_a_doubted_model_fires_and_says_so(road: MDP) -> None:
    stream = Stream(road)
    quiet = [notice for _ in range(20) for notice in stream.round([1])]
    assert of(Alert, quiet) == []
    fired = of(Alert, stream.round([0]))
    assert [(alert.state, alert.blind) for alert in fired] == [("firing", "model_doubt")]
    assert fired[0].summary.startswith("ada: MODEL CONTRADICTED: ")


def test_impossible_steps_count_too(road: MDP) -> None:
    stream = Stream(road)
    told: list[Notice] = []
    for state in (0, LOST, 0, LOST, 0, LOST):
        told += stream.round([state])
    assert [trust.agent for trust in of(Trust, told) if trust.doubted] == ["ada"]


def test_one_wrong_reading_is_no_proof_although_it_makes_two_impossible_steps(road: MDP) -> None:
    stream = Stream(road)
    states = [0, 1, LOST, 1, 0, 1, 0, 1]
    tested = []
    for state in states:
        carried(stream, after := Stream(road))  # a restart between any two steps changes nothing
        stream = after
        stream.round([state])
        doubt = stream.monitor.save().common.trust
        assert doubt is not None
        tested.append(doubt.fleet.transitions)
    assert tested == [0, 1, 2, 2, 3, 4, 5, 6]
    assert not of(Trust, stream.monitor.current_state())[-1].doubted


def test_what_follows_an_impossible_step_is_passed_over_wherever_it_leads(road: MDP) -> None:
    stream = Stream(road)
    for state in (0, LOST, LOST, LOST):  # possible steps, of which the first starts where an impossible one led
        stream.round([state])
    doubt = stream.monitor.save().common.trust
    assert doubt is not None
    assert doubt.fleet.transitions == 2


def test_a_break_is_no_transition_and_neither_is_a_new_episode(road: MDP) -> None:
    stream = Stream(road)
    for episode in range(50):  # from 0 to 0 fifty times, and never as a step of the model
        stream.ticks += 1.0
        stream.monitor.observe(Observation("ada", episode, 0, 0, WALK), stream.now)
        stream.monitor.observe(Observation("ada", episode, 2, 0, WALK), stream.now)  # seq 1 is lost
        stream.monitor.evaluate(stream.now)
    stream.ticks += 10.0
    told = [*stream.monitor.evaluate(stream.now), *stream.monitor.current_state()]
    assert together(told) == [UNTESTED]


def test_a_model_that_is_not_tested_is_not_doubted(road: MDP) -> None:
    stream = Stream(road, trust=TrustSettings(enabled=False))
    told = [notice for _ in range(30) for notice in stream.round([0])]
    assert of(Trust, told) == []
    assert [blind.reason for blind in of(Blind, told)] == []


def together(told: Iterable[Notice]) -> list[Trust]:
    return [trust for trust in of(Trust, told) if not trust.agent]


def doubted(told: Iterable[Notice]) -> list[str]:
    return [trust.agent for trust in of(Trust, told) if trust.doubted]


def carried(before: Stream, after: Stream) -> list[Notice]:
    after.monitor.load(before.monitor.save(everything=True))
    after.ticks, after.seq = before.ticks, before.seq
    return [*after.monitor.current_state()]


def test_doubt_stays_over_a_restart_and_the_test_goes_on_where_it_stood(road: MDP) -> None:
    killed, never = Stream(road), Stream(road)
    for _ in range(20):
        carried(killed, replacement := Stream(road))
        killed = replacement
        told = killed.round([0])
        assert of(Blind, told) == of(Blind, never.round([0]))
        assert killed.monitor.save().common.trust == never.monitor.save().common.trust
    assert doubted(carried(killed, Stream(road))) == ["ada"]


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
    before, other = Stream(road), Stream(road, settings, trust)
    for _ in range(20):
        before.round([0])
    assert doubted(before.monitor.current_state()) == ["ada"]
    told = carried(before, other)
    assert of(Trust, told) == [replace(UNTESTED, agent="ada"), UNTESTED]  # which takes back what was shown
    told = other.monitor.evaluate(other.now)
    assert [(blind.agent, blind.reason) for blind in of(Blind, told)] == [("ada", None)]


@pytest.mark.parametrize("agent", ["ada", "*", "bob"])
def test_doubt_ends_where_it_is_acknowledged(road: MDP, agent: str) -> None:
    before = Stream(road)
    for _ in range(20):
        before.round([0, 0])
    assert doubted(before.monitor.current_state()) == ["ada", "bob", ""]
    other = Stream(road, trust=TrustSettings(acknowledged={agent: "2026-11-22: wheel replaced"}))
    stands = carried(before, other)
    left = {"ada": ["bob", ""], "bob": ["ada", ""], "*": []}[agent]
    assert doubted(stands) == left
    again = Stream(road, trust=TrustSettings(acknowledged={agent: "2026-11-22: wheel replaced"}))
    for _ in range(20):
        other.round([0, 0])
    assert doubted(carried(other, again)) == ["ada", "bob", ""]  # what was acknowledged once is not settled for good


def test_doubt_says_which_transitions(road: MDP) -> None:
    stream = Stream(road, PATIENT)
    told = [notice for _ in range(20) for notice in stream.round([0])]
    [trust] = [trust for trust in of(Trust, told) if trust.doubted]
    [departing] = trust.departing
    assert (departing.state, departing.action, departing.successor) == (0, WALK, 0)
    assert departing.seen == departing.of == trust.transitions
    assert departing.expected == pytest.approx(0.1 * departing.of)


def test_doubt_ends_with_the_model(road: MDP) -> None:
    lazy = MDP.from_transitions(
        states=3,
        actions=1,
        transitions=[(0, WALK, 1, 0.1), (0, WALK, 0, 0.9), (1, WALK, 1, 1.0), (LOST, WALK, LOST, 1.0)],
        labels={"there": [1]},
    )
    before, other = Stream(road), Stream(lazy)
    for _ in range(20):
        before.round([0])
    assert of(Trust, carried(before, other)) == [replace(UNTESTED, agent="ada"), UNTESTED]
    told = [notice for _ in range(40) for notice in other.round([0])]
    assert doubted(told) == []
    assert "model_doubt" not in [blind.reason for blind in of(Blind, told)]
