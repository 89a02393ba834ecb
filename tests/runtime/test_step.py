"""One agent's monitor as a pure step: from bytes, in memory, and live among others, the notices are the same."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import msgpack
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.errors import InputError
from monitor.model import MDP
from monitor.policy import as_table
from monitor.runtime.monitor import Monitor
from monitor.runtime.step import AgentEvent, AgentState, AgentStep, Link, Loss, step
from monitor.sidecar.events import Connected, Event, Lost, Message
from monitor.stream import decode
from monitor.types import (
    AlarmMoved,
    AlarmSpec,
    Forgotten,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    Received,
    Refreshed,
    Sampling,
    StreamSettings,
    TakenOver,
    TrustSettings,
)
from tests.sidecar.chaos import DEEDS, Life
from tests.tiers import examples, heavy

RASH, CAREFUL, LOST, HOME = 0, 1, 4, 5
POLICIES = {"a" * 64: "nominal", "b" * 64: "careful"}
SETTINGS = StreamSettings(window=8, reorder_steps=3, forget_after=60.0, max_lag=2.0, policies=POLICIES)
GOAL = 'P>=0.8 [ G<=3 !"lost" ]'
FORMULAS = [
    FormulaSpec("watch", f"regret(careful@2, {GOAL})", causal_model="any", alarm=AlarmSpec(keep=2)),
    FormulaSpec("future", GOAL, alarm=AlarmSpec(for_=2)),
    FormulaSpec("chance", 'careful@1.P=? [ F<=3 "home" ]'),
    FormulaSpec("seldom", f"regret(careful@-1, {GOAL})", every=3),
    FormulaSpec("timed", f"careful@0.{GOAL}", every=0.5),
    FormulaSpec("drawn", f"regret(careful@1, {GOAL})", engine="sampled"),
]
KIB = 1024


def corridor() -> MDP:
    """States 0..3 in a row, 4 lost, 5 home. Rash moves on fast and may be lost; careful waits or gets home."""
    transitions = [(s, RASH, min(s + 1, 3), 0.5) for s in range(4)] + [(s, RASH, LOST, 0.5) for s in range(4)]
    transitions += [(s, CAREFUL, s, 0.9) for s in range(4)] + [(s, CAREFUL, HOME, 0.1) for s in range(4)]
    transitions += [(s, a, s, 1.0) for s in (LOST, HOME) for a in (RASH, CAREFUL)]
    return MDP.from_transitions(states=6, actions=2, transitions=transitions, labels={"lost": [LOST], "home": [HOME]})


MODEL = corridor()


def monitor_of(formulas: Sequence[FormulaSpec] = tuple(FORMULAS), *, tested: bool = True) -> Monitor:
    tables = {"nominal": as_table([RASH] * 6, MODEL), "careful": as_table([CAREFUL] * 6, MODEL)}
    sampling, trust = Sampling(limit=200, delta=0.1), TrustSettings(enabled=tested)
    return Monitor(MODEL, tables, formulas, SETTINGS, sampling=sampling, trust=trust)


SHARED = {tested: monitor_of(tested=tested) for tested in (False, True)}


def as_bytes(notices: Sequence[Notice]) -> list[bytes]:
    """Return the notices to the bit, also where a number is NaN."""
    return [type(notice).__name__.encode() + msgspec.msgpack.encode(notice) for notice in notices]


def stream(seed: int, agents: int, count: int) -> list[Event]:
    """Return a random life, in which some messages report a policy that took over, or one that nobody knows."""
    rng = random.Random(seed)
    return [reporting(event) for event in Life(MODEL, rng, agents=agents).events(rng.choices(DEEDS, k=count))]


def reporting(event: Event) -> Event:
    if not isinstance(event, Message) or event.payload[:1] == b"\xff":
        return event
    fields, draw = msgpack.unpackb(event.payload), zlib.crc32(event.payload) % 20
    policy = {0: "a" * 64, 1: "b" * 64, 2: "b" * 64, 3: "c" * 64}.get(draw)
    return event if policy is None else Message(event.now, event.topic, msgpack.packb({**fields, "policy": policy}))


def agent_of(notice: Notice) -> object:
    return notice.judged.agent if isinstance(notice, Refreshed) else getattr(notice, "agent", None)


def event_of(event: Event, agent: str) -> AgentEvent:
    """Return what an event of the sidecar is to one agent."""
    match event:
        case Message(topic=topic, payload=payload) if topic == f"agents/{agent}/steps":
            return payload
        case Lost(topic=topic, why=why) if topic == f"agents/{agent}/steps":
            return Loss(why)
        case Connected(up=up):
            return Link(up)
        case _:
            return None


def live(monitor: Monitor, event: Event) -> list[Notice]:
    """Return what the monitor of all agents says to an event."""
    notices: list[Notice] = []
    agent = event.topic.split("/")[1] if isinstance(event, Message | Lost) else ""
    match event:
        case Message(payload=payload):
            try:
                notices += monitor.observe(decode(agent, payload), event.now)
            except InputError as error:
                notices.append(Received(agent, "rejected", error.reason, error.detail))
        case Lost(why=why):
            notices += monitor.lost(agent, event.now, why)
        case Connected(up=up):
            notices += monitor.connected(up, event.now)
        case _:
            pass
    return [*notices, *monitor.evaluate(event.now)]


@heavy
@settings(max_examples=examples(6, 25))
@given(st.integers(0, 2**32))
@example(648)  # a withheld revision is published with the blindness that a silent agent's check finds
def test_from_bytes_in_memory_and_live_the_notices_are_the_same_to_the_bit(seed: int) -> None:
    shared, alone = SHARED[True], SHARED[True].alone()
    hydrated, state = AgentStep(shared, "a0"), None
    for event in stream(seed, 1, 150):
        said = live(alone, event)
        given_event = event_of(event, "a0")
        stepped = step(shared, "a0", state, given_event, event.now)
        state = stepped.state
        assert as_bytes(stepped.notices) == as_bytes(said) == as_bytes(hydrated.step(given_event, event.now))
        assert stepped.due == hydrated.due
    assert hydrated.checkpoint() == state


@settings(max_examples=examples(5, 15))
@given(st.integers(0, 2**32))
def test_an_agent_among_others_is_told_what_its_own_steps_say(seed: int) -> None:
    """Without the test of the model, in which agents share what they have learned."""
    shared, together = SHARED[False], SHARED[False].alone()
    steps = {name: AgentStep(shared, name) for name in ("a0", "a1", "a2")}
    for event in stream(seed, 3, 150):
        said = live(together, event)
        for name, own in steps.items():
            mine = [notice for notice in said if agent_of(notice) == name]
            assert as_bytes(own.step(event_of(event, name), event.now)) == as_bytes(mine)


def test_the_random_lives_have_what_they_are_for() -> None:
    seen: set[object] = set()
    for seed in range(12):
        monitor = SHARED[True].alone()
        for event in stream(seed, 1, 150):
            for notice in live(monitor, event):
                match notice:
                    case Received():
                        seen.add(notice.result)
                    case AlarmMoved():
                        seen.add(notice.state)
                    case _:
                        seen.add(type(notice))
    assert seen >= {"accepted", "duplicate", "gap", "conflict", "dropped", "rejected", "firing", Forgotten, TakenOver}


def test_an_observation_is_taken_as_its_message_is() -> None:
    message = msgpack.packb({"v": 1, "episode": 0, "seq": 0, "state": 0, "action": RASH})
    one, other = (AgentStep(SHARED[True], "a0") for _ in range(2))
    now = Instant(1000.0, 0.0)
    assert as_bytes(one.step(message, now)) == as_bytes(other.step(decode("a0", message), now))
    assert one.checkpoint() == other.checkpoint()
    with pytest.raises(ValueError, match="an observation of 'ada' was given to the step of 'a0'"):
        one.step(Observation(agent="ada", episode=0, seq=0, state=0, action=RASH), now)


def lived(formulas: Sequence[FormulaSpec] = tuple(FORMULAS)) -> AgentState:
    agent = AgentStep(monitor_of(formulas), "a0")
    for event in stream(5, 1, 60):
        agent.step(event_of(event, "a0"), event.now)
    return agent.checkpoint()


def test_time_is_due_while_an_agent_is_known() -> None:
    assert AgentStep(SHARED[True], "a0").due is None
    agent, now = AgentStep(SHARED[True], "a0"), Instant(1000.0, 0.0)
    said = agent.step(msgpack.packb({"v": 1, "episode": 0, "seq": 0, "state": 0, "action": RASH}), now)
    while (due := agent.due) is not None:  # it ends: a silent agent is forgotten
        said = agent.step(None, now := Instant(1000.0 + due, due))
    assert any(isinstance(notice, Forgotten) for notice in said)
    assert now.ticks > SETTINGS.forget_after


@pytest.mark.parametrize("number", range(40))
def test_at_the_time_when_something_is_due_it_is_done(number: int) -> None:
    """Otherwise whoever waits for that time, and calls, would do so without end."""
    rng = random.Random(number)
    times = replace(SETTINGS, stale_after=rng.uniform(1.0, 9.0), forget_after=60.0, reorder_wait=rng.uniform(0.1, 9.0))
    tables = {"nominal": [RASH] * 6, "careful": [CAREFUL] * 6}
    agent = AgentStep(Monitor(MODEL, tables, FORMULAS[1:2], times, trust=TrustSettings()), "a0")
    begin, seq = rng.uniform(0.0, 1e9), rng.choice([0, 1])
    agent.step(msgpack.packb({"v": 1, "episode": 0, "seq": 0, "state": 0, "action": RASH}), Instant(begin, begin))
    agent.step(msgpack.packb({"v": 1, "episode": 0, "seq": 2 + seq, "state": 1}), Instant(begin, begin))
    before = begin
    while (due := agent.due) is not None:
        assert due > before
        agent.step(None, Instant(due, due))
        before = due


def test_a_state_that_is_of_another_version_damaged_or_another_agents_is_refused() -> None:
    state = lived()
    another = state.content[:4] + bytes([state.content[4] + 1]) + state.content[5:]
    flipped = state.content[:-1] + bytes([state.content[-1] ^ 1])
    for content, agent, words in (
        (another, "a0", "is not of version"),
        (flipped, "a0", "its checksum differs"),
        (b"", "a0", "are no snapshot"),
        (state.content, "ada", "the state is that of a0, not of ada"),
    ):
        with pytest.raises(InputError, match=words):
            AgentStep(SHARED[True], agent, AgentState(content, state.pages))


def test_a_changed_formula_is_closed_when_the_state_is_read() -> None:
    state = lived(FORMULAS[:2])
    changed = [FORMULAS[0], FormulaSpec("future", GOAL, alarm=AlarmSpec(for_=3))]
    agent = AgentStep(monitor_of(changed), "a0", state)
    before = AgentStep(monitor_of(FORMULAS[:2]), "a0", state)
    assert before.restored == []
    assert {notice.formula for notice in agent.restored if hasattr(notice, "formula")} <= {"future"}
    now = Instant(5000.0, 5000.0)
    assert step(monitor_of(changed), "a0", state, None, now).notices[: len(agent.restored)] == agent.restored


@pytest.mark.parametrize(("digits", "most"), [(6, 16 * KIB), (64, 20 * KIB)])
def test_the_state_of_an_agent_with_all_it_can_remember_is_small(digits: int, most: int) -> None:
    """Window 64, one formula, episodes with names of so many digits.

    4 KiB each of digests of the open and of ended episodes, and of names of older ones.
    """
    states = 600
    ring = [(s, 0, (s + k) % states, 0.5) for s in range(states) for k in (1, 2)]
    model = MDP.from_transitions(states=states, actions=1, transitions=ring, labels={"bad": [7]})
    formula = FormulaSpec("watch", 'regret(do(0)@5, P>=0.9 [ G<=20 !"bad" ])')
    shared = Monitor(model, {"nominal": [0] * states}, [formula], StreamSettings(window=64))
    agent, draw, ticks = AgentStep(shared, "a" * 64), random.Random(1), 0.0
    largest = 0
    lengths = [1] * 1080 + [8] * 70 + [700]
    for episode, length in enumerate(lengths):
        state = 0
        for seq in range(length):
            ticks += 1.0
            fields = {"v": 1, "episode": f"{episode:0{digits}}", "seq": seq, "state": state, "action": 0}
            ends = {"terminated": True} if seq == length - 1 else {}
            agent.step(msgpack.packb({**fields, **ends}), Instant(1000.0 + ticks, ticks))
            state = (state + draw.choice((1, 2))) % states
            if episode == len(lengths) - 1 and seq % 50 == 0:
                largest = max(largest, len(agent.checkpoint().content))
    found = agent.checkpoint()
    assert all(len(page) == 4 * KIB for page in found.pages.values())
    assert len(found.pages) == 2
    assert 12 * KIB < largest <= most
