"""Messages of many agents, each with a monitor of its own, in one call: they lead to what they lead to one by one."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.runtime import shared
from monitor.runtime.lanes.batch import EVALUATION, FINISHED, LATEST_TICK, MESSAGE, Batch, Passed, _next_tick, next_tick
from monitor.runtime.monitor import Monitor
from monitor.runtime.step import AgentState, AgentStep
from monitor.stream.encoding import MAX_BYTES
from monitor.types import AlarmMoved, Instant, Judged, Notice, Received, Trust
from tests.runtime.test_lane_runs import NAMES, START, Message
from tests.runtime.test_lanes import Agent, World, payload, without_lanes
from tests.tiers import examples

LAW = settings(max_examples=examples(8, 40))


def lived(world: World, wild: float) -> list[list[Message]]:
    """Return what three agents send, in batches."""
    rng, ticks, pace = world.rng, 0.0, world.rng.choice([1.0, 0.1])  # looking for silent agents combines their tests
    names_policy = rng.random() < 0.5
    agents = [Agent(world, name, names_policy=names_policy, rewards=rng.random() < 0.3) for name in NAMES]
    batches: list[list[Message]] = [[]]
    for n in range(200):
        ticks += pace * rng.choice([0.1, 0.1, 0.3]) if rng.random() > wild / 5 else rng.choice([3.0, 5.0, 50.0, -1.0])
        seconds = round((START + ticks) * 1000) / 1000  # as `next_tick` has it
        now = Instant(seconds, seconds)
        for agent in agents if rng.random() < 0.7 else agents[: 1 + n % 2]:
            found = agent.step(now.wall, wild if n > 20 else 0.0)
            batches[-1] += [Message(0, agent.name, payload(each), now) for each in found]
        if rng.random() < 0.1:
            batches.append([])
    return batches


@dataclass
class OneByOne:
    """Agents, and how they process messages in the ordinary way."""

    monitor: Monitor
    agents: dict[str, AgentStep] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    ordinary: int = 0

    def process(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.process_one(message)

    def process_one(self, message: Message) -> None:
        """Process a message, and before it what is due. Time does not go back."""
        self.ordinary += 1
        agent = self.agents.setdefault(message.agent, AgentStep(self.monitor, message.agent))
        before = self.now.get(message.agent, 0.0)
        ticks = self.now[message.agent] = max(message.now.ticks, before)
        while agent.due is not None and (at := next_tick(agent.due, before) / 1000.0) <= ticks:
            self.say(agent.step(None, Instant(at, at)))
        self.say(agent.step(message.payload, Instant(ticks, ticks)))

    def say(self, notices: Iterable[Notice]) -> None:
        """Keep what somebody reads."""
        for notice in notices:
            match notice:
                case Received() | Judged() | AlarmMoved() | Trust(doubted=False):
                    pass
                case _:
                    self.notices.append(notice)

    def checkpoints(self) -> dict[str, AgentState]:
        return {name: agent.checkpoint() for name, agent in self.agents.items()}

    def silence(self, name: str) -> None:
        """Let time pass until an agent is forgotten."""
        agent = self.agents[name]
        while (due := agent.due) is not None:
            assert due > self.now[name], "what was due is done"
            self.now[name] = next_tick(due, self.now[name]) / 1000.0
            self.say(agent.step(None, Instant(self.now[name], self.now[name])))


@dataclass
class Together(OneByOne):
    """The same, with those messages passed on in batches that can be."""

    batch: Batch = field(init=False)
    passed: int = 0

    def __post_init__(self) -> None:
        self.batch = Batch(self.monitor, MAX_BYTES)

    def process(self, messages: Sequence[Message]) -> None:
        offsets = np.cumsum([0, *(len(message.payload) for message in messages)]).astype(np.int64)
        self.batch.set_messages(
            np.array([self.batch.numbers.get(message.agent, -1) for message in messages], np.int64),
            b"".join(message.payload for message in messages),
            offsets,
            np.array([message.now.ticks for message in messages]),
        )
        while (stopped := self.batch.go()) != (FINISHED, len(messages)):
            reason, count = stopped
            message = messages[count - 1]
            self.leave(message.agent)
            if reason == EVALUATION:
                ticks = self.now[message.agent]
                self.say(self.agents[message.agent].evaluate(Instant(ticks, ticks)))
            else:
                assert reason == MESSAGE
                self.process_one(message)
            self.join(message.agent)

    def leave(self, name: str) -> None:
        if (passed := self.batch.settle(name)) is not None:
            self.now[name], self.passed = passed.now, self.passed + passed.messages
            assert self.batch.settle(name) is None

    def join(self, name: str) -> None:
        if (due := self.agents[name].due) is None:
            self.batch.drop(name)
        else:
            self.agents[name].join(self.batch, self.now[name], next_tick(due, self.now[name]) / 1000.0)

    def checkpoints(self) -> dict[str, AgentState]:
        for name in self.agents:
            self.leave(name)
        found = super().checkpoints()
        for name in self.agents:
            self.join(name)
        return found

    def silence(self, name: str) -> None:
        self.leave(name)
        super().silence(name)
        self.join(name)


def both(world: World) -> tuple[OneByOne, Together]:
    return OneByOne(without_lanes(world.monitor())), Together(world.monitor())


@LAW
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.0, 0.02, 0.2]), st.sampled_from([3, 40, 1000]))
def test_messages_in_batches_are_messages_one_by_one(seed: int, wild: float, entries: int) -> None:
    """Also where agents are forgotten, and shared verdicts that are the last answers of agents."""
    rng = random.Random(seed)
    world = World(rng, wrong=rng.choice([0.0, 0.0, 0.0, 1.0]))
    if wild:  # else hours may pass, with a look at each millisecond
        world.stale_after = rng.choice([4.0, 4.0, 1.7])
        world.forget_after = rng.choice([40.0, world.stale_after, 0.9 * world.stale_after])
    else:
        world.stale_after = rng.choice([4.0, 4.0, 4.0, 0.3, 0.3, 0.037, 0.008, 0.001, 1e-9, math.inf])
        world.forget_after = rng.choice([40.0, 40.0, math.inf, world.stale_after, 0.9 * world.stale_after])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "WORTHWHILE", 0.0)
        one, many = both(world)
        for monitor in (one.monitor, many.monitor):
            for query in monitor.queries:
                patch.setattr(query.shared, "_most", entries)
        batches = lived(world, wild)
        few = batches[:3] if world.stale_after < 0.03 else batches  # some hundred looks between two messages
        for messages in few:
            one.process(messages)
            many.process(messages)
            if rng.random() < wild:
                name = rng.choice([*one.agents])
                one.silence(name)
                many.silence(name)
            assert many.notices == one.notices
            if rng.random() < 0.5:
                assert many.checkpoints() == one.checkpoints()
        assert many.checkpoints() == one.checkpoints()


def test_most_messages_of_ordinary_agents_pass() -> None:
    world = World(random.Random(7))
    one, many = both(world)
    for messages in lived(world, 0.0):
        one.process(messages)
        many.process(messages)
    assert many.checkpoints() == one.checkpoints()
    assert many.passed + many.ordinary >= one.ordinary == sum(map(len, lived(World(random.Random(7)), 0.0)))
    assert many.passed > 0.6 * one.ordinary


def test_looks_for_a_silent_agent_are_done_while_its_messages_pass() -> None:
    """A message in ten is after such a look, which finds the agent where it was just heard."""
    world = World(random.Random(7))
    monitor, agent = world.monitor(), Agent(world, "ada", names_policy=False, rewards=False)
    seconds = [START + n / 10.0 for n in range(1000)]
    messages = [Message(0, "ada", payload(each), Instant(at, at)) for at in seconds for each in agent.step(at, 0.0)]
    one, many = OneByOne(without_lanes(world.monitor())), Together(monitor)
    for each in (one, many):
        each.process(messages[:100])
        each.process(messages[100:])
    assert many.checkpoints() == one.checkpoints()
    assert many.ordinary == 100, "the first batch: its agent was not known. Of the second, all passed"
    with_quiet_times = [Message(0, "ada", b"nonsense", Instant(START + at, START + at)) for at in (103.9, 120.0)]
    for each in (one, many):
        each.process(with_quiet_times)
    assert many.notices == one.notices, "a look that finds the agent silent goes the ordinary way"
    assert many.checkpoints() == one.checkpoints()


@given(st.floats(0.0, 2.0e9), st.integers(0, 2 * 10**12), st.sampled_from([0.0, 1e-9, 1e-3, 0.9, 1.0, 1e300]))
def test_a_tick_is_after_the_last_message_and_not_before_it_is_due(due: float, now: int, more: float) -> None:
    for at in (due, now / 1000.0 + more, -math.inf, math.inf):
        found = next_tick(at, now / 1000.0)
        assert found == _next_tick(at, now / 1000.0), "compiled code has the same"
        assert found > now
        assert found / 1000.0 >= at or found == LATEST_TICK
        assert (found - 2) / 1000.0 < at or found - 1 <= now, "not later than needed, but for rounding"


def test_a_message_longer_than_is_read_does_not_pass() -> None:
    world = World(random.Random(7))
    monitor = world.monitor()
    *before, message = [each for batch in lived(world, 0.0) for each in batch if each.agent == "ada"][:31]
    size, ticks = len(message.payload), before[-1].now.ticks
    for longest, passed in ((size - 1, None), (size, Passed(1, ticks))):
        batch, agent = Batch(monitor, longest), AgentStep(monitor, "ada")
        for each in before:
            agent.step(each.payload, each.now)
        agent.join(batch, before[-1].now.ticks, due=1e9)
        batch.set_messages(np.array([0]), message.payload, np.array([0, size]), np.array([ticks]))
        reason, count = batch.go()
        assert (reason == MESSAGE, count) == (passed is None, 1)
        assert batch.settle("ada") == passed
