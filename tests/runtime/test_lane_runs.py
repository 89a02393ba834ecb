"""Recorded events through lanes in one call: what they lead to is what they lead to one by one."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import InputError
from monitor.runtime.agent import AgentMonitorState
from monitor.runtime.lanes.run import EVALUATION, FINISHED, MESSAGE, REPEAT, TURN, Evaluations, Messages, Run
from monitor.runtime.monitor import Monitor
from monitor.stream.decode import decode
from monitor.types import AlarmMoved, Instant, Judged, Notice, Received, Trust
from tests.runtime.test_lanes import Agent, World, payload, without_lanes
from tests.tiers import examples

LAW = settings(max_examples=examples(8, 25))
NAMES = ("ada", "bob", "cid")
START = 1000.0


@dataclass(frozen=True)
class Message:
    """A payload. `before`: evaluations before it."""

    before: int
    agent: str
    payload: bytes
    now: Instant


@dataclass(frozen=True)
class Evaluation:
    now: Instant
    latest_only: bool
    steps: int


def recorded(world: World, wild: float) -> tuple[list[Message], list[Evaluation]]:
    """Return what three agents send, and when the monitor evaluates."""
    rng, ticks, pace = world.rng, 0.0, world.rng.choice([1.0, 0.1])  # looking for silent agents combines their tests
    names_policy = rng.random() < 0.5
    agents = [Agent(world, name, names_policy=names_policy, rewards=rng.random() < 0.3) for name in NAMES]
    messages: list[Message] = []
    evaluations: list[Evaluation] = []
    for n in range(200):
        ticks += pace * rng.choice([0.1, 0.1, 0.3]) if rng.random() > wild / 5 else rng.choice([3.0, 5.0, 50.0])
        now = Instant(START + ticks, ticks)
        for agent in agents if rng.random() < 0.7 else agents[: 1 + n % 2]:
            found = agent.step(now.wall, wild if n > 20 else 0.0)
            messages += [Message(len(evaluations), agent.name, payload(each), now) for each in found]
        if rng.random() < 0.8:
            evaluations.append(Evaluation(now, rng.random() < wild / 3, rng.choice([0, 0, 1, 3, 40])))
    return messages, evaluations


@dataclass
class Outcome:
    """What a monitor said, less what may repeat: verdicts and receipts are counted.

    Left out is that the tests of the model reject nothing, as is said from time to time.
    """

    monitor: Monitor
    notices: list[Notice] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    spent: list[int] = field(default_factory=list)

    def take(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, Received):
                self.counts[notice.result] += 1
            elif isinstance(notice, Judged):
                self.counts["verdicts"] += 1
            elif not isinstance(notice, AlarmMoved) and not (isinstance(notice, Trust) and not notice.doubted):
                self.notices.append(notice)

    def receive(self, message: Message) -> None:
        try:
            observation = decode(message.agent, message.payload)
        except InputError as error:
            self.take(self.monitor.reject(message.agent, error))
            return
        self.take(self.monitor.observe(observation, message.now))

    def evaluate(self, event: Evaluation, steps: int) -> None:
        self.take(self.monitor.evaluate(event.now, latest_only=event.latest_only, steps=steps))

    def states(self) -> dict[str, object]:
        """Return all that is kept, less a formula's last answer, which a run does not note."""
        agents = self.monitor.changed(everything=True)
        return {"": self.monitor.dump(), **{name: _without_answers(state) for name, state in agents.items()}}


def _without_answers(state: AgentMonitorState | None) -> AgentMonitorState | None:
    if state is None:
        return None
    formulas = {name: msgspec.structs.replace(each, last=None, asked=None) for name, each in state.formulas.items()}
    return msgspec.structs.replace(state, formulas=formulas)


def one_by_one(monitor: Monitor, messages: Sequence[Message], evaluations: Sequence[Evaluation]) -> Outcome:
    found = Outcome(monitor)
    end = Message(len(evaluations), "", b"", Instant(0.0, 0.0))
    for message in [*messages, end]:
        for event in evaluations[len(found.spent) : message.before]:
            found.evaluate(event, event.steps)
            found.spent.append(int(monitor.spent))
        if message is not end:
            found.receive(message)
    return found


def in_runs(
    monitor: Monitor, messages: Sequence[Message], evaluations: Sequence[Evaluation], cuts: Sequence[int]
) -> Outcome:
    """Process the events in several runs, as an audit does with the parts of a recording. `cuts`: of the messages."""
    found = Outcome(monitor)
    at = 0
    for first, last in zip([0, *cuts], [*cuts, len(messages)], strict=True):
        stop = messages[last].before if last < len(messages) else len(evaluations)
        _run(found, [*messages[first:last]], [*evaluations[at:stop]], at)
        at = stop
    return found


def _run(found: Outcome, messages: list[Message], evaluations: list[Evaluation], skipped: int) -> None:
    names = list(dict.fromkeys(message.agent for message in messages))
    offsets = np.cumsum([0, *(len(message.payload) for message in messages)]).astype(np.int64)
    columns = Messages(
        names,
        np.array([names.index(message.agent) for message in messages], np.int64),
        memoryview(b"".join(message.payload for message in messages)),
        offsets,
        np.array([message.now.wall for message in messages]),
        np.array([message.now.ticks for message in messages]),
    )
    every = Evaluations(
        np.array([message.before - skipped for message in messages], np.int64),
        np.array([event.now.ticks for event in evaluations]),
        np.array([event.latest_only for event in evaluations], np.int64),
        np.array([event.steps for event in evaluations], np.int64),
    )
    with Run(found.monitor, columns, every, 65536) as run:
        while (reason := run.go()) != FINISHED:
            if reason == MESSAGE:
                found.receive(messages[run.message])
                run.pass_message()
                continue
            if reason == TURN:
                found.take(found.monitor.turn(evaluations[run.evaluation].now))
                run.pass_turn(int(found.monitor.spent))
                continue
            at = run.evaluation - (reason == REPEAT)
            event = evaluations[at]
            found.evaluate(event, max(event.steps - int(run.spent[at]), 1) if event.steps else 0)
            if reason == EVALUATION:
                run.pass_evaluation(int(found.monitor.spent))
    found.counts["accepted"] += run.accepted
    found.counts["verdicts"] += run.verdicts
    found.counts["in lanes"] += run.accepted
    found.spent += run.spent.tolist()


@LAW
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.0, 0.02, 0.2]))
def test_events_in_runs_are_events_one_by_one(seed: int, wild: float) -> None:
    rng = random.Random(seed)
    world = World(rng, wrong=rng.choice([0.0, 0.0, 0.0, 1.0]))
    world.stale_after = rng.choice([4.0, 4.0, 4.0, 0.3, 0.037, 1e-9, math.inf])
    world.forget_after = rng.choice([40.0, 40.0, math.inf, world.stale_after, 0.9 * world.stale_after])
    messages, evaluations = recorded(world, wild)
    one = one_by_one(without_lanes(world.monitor()), messages, evaluations)
    cuts = sorted({n for cut in rng.sample(range(len(messages) - 2), rng.choice([0, 1, 3])) for n in (cut, cut + 2)})
    many = in_runs(world.monitor(), messages, evaluations, cuts)
    many.counts.pop("in lanes")
    assert many.notices == one.notices
    assert +many.counts == +one.counts
    assert many.spent == one.spent
    assert many.states() == one.states()


def test_most_messages_of_ordinary_agents_are_accepted_in_lanes() -> None:
    world = World(random.Random(7))
    messages, evaluations = recorded(world, 0.0)
    assert in_runs(world.monitor(), messages, evaluations, []).counts["in lanes"] > 0.6 * len(messages)
