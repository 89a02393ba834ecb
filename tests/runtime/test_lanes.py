"""Lanes: with them a monitor says and keeps to the bit what it does without, whatever arrives."""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.alarm.machine import Alarm
from monitor.errors import InputError
from monitor.jit import compiled, ints_at
from monitor.model import MDP
from monitor.runtime.lanes import obligations
from monitor.runtime.lanes.layout import BLOCK, LENGTH, PAIRS, PUSHED, RING, WORDS
from monitor.runtime.lanes.tables import address
from monitor.runtime.lanes.verdicts import VerdictTable, find_verdict
from monitor.runtime.monitor import Monitor
from monitor.stream.decode import decode
from monitor.types import (
    AlarmSpec,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    StreamSettings,
    TrustSettings,
)
from tests.exact.learned import learned_model
from tests.tiers import examples, scaled

LAW = settings(max_examples=examples(8, 25))
NOMINAL, OTHER, FOREIGN = "ab" * 32, "cd" * 32, "ef" * 32
TEXTS = [
    'P>=0.6 [ G<=4 !"bad" ]',
    'regret(other@2, P>=0.7 [ F<=5 "good" ])',
    'other@3.P=? [ G<=3 !"bad" ]',
    'other@4.P>=0.5 [ G<=3 !"bad" ]',
    'delta(other,nominal)@1.P<=0.1 [ F<=3 "good" ]',
    'regret(best@1, P>=0.8 [ G<=3 !"bad" ])',
    'other@-2.P>=0.4 [ F<=4 "good" ]',
    'P>=0.5 [ G<=2 !"bad" ] & other@1.P>=0.5 [ F<=3 "good" ]',
]


@dataclass
class World:
    """A small model with policies and formulas, all drawn at random. `wrong`: steps that do not follow the model."""

    rng: random.Random
    states: int = 5
    actions: int = 2
    wrong: float = 0.0
    model: MDP = field(init=False)
    policies: dict[str, Any] = field(init=False)
    formulas: list[FormulaSpec] = field(init=False)
    pending: int = field(init=False)
    copied: bool = field(init=False)
    stale_after: float = 4.0
    forget_after: float = 40.0

    def __post_init__(self) -> None:
        rng = self.rng
        rows = [(s, a) for s in range(self.states) for a in range(self.actions)]
        transitions = []
        for s, a in rows:
            reached = rng.sample(range(self.states), rng.choice([1, 2, 2, 3]))
            weights = [rng.choice([1, 1, 2, 5]) for _ in reached]
            transitions += [(s, a, y, w / sum(weights)) for y, w in zip(reached, weights, strict=True)]
        rewards = [(s, a, rng.choice([0.0, 1.0, -0.5])) for s, a in rows] if rng.random() < 0.5 else []
        self.model = MDP.from_transitions(
            states=self.states,
            actions=self.actions,
            transitions=transitions,
            labels={"bad": [0], "good": [self.states - 1]},
            rewards=rewards,
        )
        certain = [rng.randrange(self.actions) for _ in range(self.states)]
        chances = np.array([[p, 1 - p] for p in (rng.choice([0.1, 0.5, 0.9, 1.0]) for _ in range(self.states))])
        self.policies = {
            "nominal": certain if rng.random() < 0.5 else chances,
            "other": [rng.randrange(self.actions) for _ in range(self.states)],
        }
        self.pending = rng.choice([2, 30, 100])
        self.copied = rng.random() < 0.2
        every = rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 2, 1.0])  # 1.0: each second, for which there are no lanes
        texts = rng.sample(TEXTS, rng.choice([1, 1, 2, 3]))
        self.formulas = [self._spec(f"f{n}", text, every if n == 0 else 1) for n, text in enumerate(texts)]

    def _spec(self, name: str, text: str, every: float) -> FormulaSpec:
        rng = self.rng
        causal_model: Literal["gumbel", "any"] = rng.choice(["gumbel", "any"]) if "best" not in text else "gumbel"
        return FormulaSpec(
            name,
            text,
            every=every,
            causal_model=causal_model,
            alarm=AlarmSpec(
                for_=rng.choice([1, 2, 3]),
                keep=rng.choice([1, 2]),
                only_if="robust" if causal_model == "any" and rng.random() < 0.3 else None,
            ),
            recourse=rng.choice(["auto", "auto", "off", "always"]),
        )

    def monitor(self) -> Monitor:
        stream = StreamSettings(
            window=6,
            reorder_steps=3,
            reorder_wait=0.5,
            stale_after=self.stale_after,
            idle_after=6.0,
            forget_after=self.forget_after,
            max_lag=2.0,
            pending=self.pending,
            policies={NOMINAL: "nominal", OTHER: "other"},
        )
        made = Monitor(self.model, self.policies, self.formulas, stream, trust=TrustSettings(alpha=0.05))
        return made.anew() if self.copied else made

    def follows(self, state: int, action: int) -> int:
        row = state * self.actions + action
        entries = slice(self.model.indptr[row], self.model.indptr[row + 1])
        successors, chances = self.model.successors[entries].tolist(), self.model.probabilities[entries].tolist()
        wrong = self.rng.random() < self.wrong
        return int(self.rng.choice(successors) if wrong else self.rng.choices(successors, chances)[0])

    def acts(self, state: int) -> int:
        nominal = self.policies["nominal"]
        return nominal[state] if isinstance(nominal, list) else int(self.rng.random() > nominal[state, 0])


class Agent:
    """An agent that mostly walks on, and sometimes does what a network or a bad agent does."""

    def __init__(self, world: World, name: str, *, names_policy: bool, rewards: bool) -> None:
        self.world, self.name, self.names_policy, self.rewards = world, name, names_policy, rewards
        self.episode, self.seq, self.state, self.action = 0, 0, world.rng.randrange(world.states), 0
        self.sent: list[Observation] = []

    def step(self, wall: float, wild: float) -> list[Observation]:
        """Return what arrives next; `wild`: probability of something unusual."""
        rng, world = self.world.rng, self.world
        reward = None
        if self.seq:
            before, self.state = self.state, world.follows(self.state, self.action)
            if self.rewards:
                reward = float(world.model.rewards[before, self.action])
        self.action = world.acts(self.state)
        made = Observation(
            self.name,
            self.episode,
            self.seq,
            self.state,
            self.action,
            time=None if rng.random() < 0.2 else wall - rng.choice([0.0, 0.1]),
            reward=reward,
            policy=NOMINAL if self.names_policy else None,
        )
        self.seq += 1
        found = [made] if rng.random() >= wild else self._unusual(made)
        self.sent = [*self.sent[-20:], *found]
        return found

    def _unusual(self, made: Observation) -> list[Observation]:
        rng = self.world.rng
        kind = rng.randrange(14)
        if kind == 0:
            return []  # lost
        if kind == 1:
            return [made, made]
        if kind == 2 and self.sent:
            return [made, rng.choice(self.sent)]
        if kind == 3 and self.sent:
            return [made, replace(rng.choice(self.sent), time=1.0)]
        if kind in (4, 5):
            self._begin()
            return [replace(made, action=rng.choice([None, made.action]), terminated=kind == 4, truncated=kind == 5)]
        if kind == 6:
            self._begin()
            return [made]
        changes: dict[int, dict[str, Any]] = {
            7: {"state": rng.randrange(self.world.states)},
            8: {"state": rng.choice([self.world.states, 1.0, "3", True, -1, 2**70])},
            9: {"action": rng.choice([0, 1, None, 5, "x"])},
            10: {"reward": rng.choice([7.0, 1, math.nan])},
            11: {"time": rng.choice([0.0, 3.0, -1.0, 1e300, 5])},
            12: {"policy": rng.choice([OTHER, FOREIGN, NOMINAL.upper(), None, "x"])},
            13: {"seq": rng.choice([made.seq + 1, made.seq + 7, max(0, made.seq - 2), float(made.seq), -1, 2**62 - 3])},
        }
        if kind == 13 and rng.random() < 0.1:
            self.seq = 2**62 - rng.randrange(9)  # goes on from there, to numbers that need more than 63 bits
        return [replace(made, **changes.get(kind, {}))]

    def _begin(self) -> None:
        self.episode += 1
        self.seq, self.state = 0, self.world.rng.randrange(self.world.states)


def payload(o: Observation) -> bytes:
    """Return what an agent sends, in msgpack; nonsense if it cannot be written."""
    said = {"v": 1, "episode": o.episode, "seq": o.seq, "state": o.state}
    said |= {key: getattr(o, key) for key in ("action", "time", "reward", "policy") if getattr(o, key) is not None}
    said |= {key: True for key in ("terminated", "truncated") if getattr(o, key)}
    try:
        return msgspec.msgpack.encode(said)
    except (OverflowError, TypeError):
        return b"nonsense"


def without_lanes(monitor: Monitor) -> Monitor:
    """Return a new monitor, which does everything the ordinary way from now on."""
    monitor._tables = None  # noqa: SLF001 - lanes cannot be switched off: nobody needs to
    return monitor


def may_have_lanes(monitor: Monitor) -> bool:
    return monitor._tables is not None  # noqa: SLF001 - notices do not say which way they came


def in_lanes(monitor: Monitor) -> Collection[str]:
    """Return the agents that have a lane now."""
    return monitor._lanes.keys()  # noqa: SLF001 - likewise


@dataclass
class Both:
    """A monitor with lanes and one without, fed alike."""

    world: World
    taken: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.lanes, self.plain = self.world.monitor(), without_lanes(self.world.monitor())
        assert may_have_lanes(self.lanes) == all(repr(each.every) == "1" for each in self.world.formulas)

    def observe(self, observation: Observation, now: Instant) -> None:
        self._same(self.lanes.observe(observation, now), self.plain.observe(observation, now))

    def step(self, observation: Observation, now: Instant) -> None:
        self._same(self.lanes.step(observation, now), self.plain.observe(observation, now) + self.plain.evaluate(now))

    def receive(self, observation: Observation, now: Instant) -> None:
        """Let both receive what the agent sends, as a sidecar does."""
        agent, sent = observation.agent, payload(observation)
        found = self.lanes.receive(agent, sent, now)
        self.taken["received in lanes"] += found is not None
        try:
            said = decode(agent, sent)
        except InputError as error:
            assert found is None
            self._same(self.lanes.reject(agent, error), self.plain.reject(agent, error))
            return
        self._same(self.lanes.observe(said, now) if found is None else found, self.plain.observe(said, now))

    def evaluate(
        self, now: Instant, *, latest_only: bool = False, steps: int = 0, live_since: float = -math.inf
    ) -> None:
        one, two = (
            each.evaluate(now, latest_only=latest_only, steps=steps, live_since=live_since)
            for each in (self.lanes, self.plain)
        )
        self._same(one, two)

    def connected(self, now: Instant, *, up: bool) -> None:
        self._same(self.lanes.connected(up, now), self.plain.connected(up, now))

    def lost(self, agent: str, now: Instant) -> None:
        self._same(self.lanes.lost(agent, now), self.plain.lost(agent, now))

    def current_state(self) -> None:
        self._same(self.lanes.current_state(), self.plain.current_state())

    def _same(self, one: Iterable[Notice], two: Iterable[Notice]) -> None:
        assert list(one) == list(two)
        assert self.lanes.spent == self.plain.spent
        assert self.lanes.waiting == self.plain.waiting
        assert self.lanes.timing == self.plain.timing
        assert self.lanes.due == self.plain.due
        self.taken["in lanes"] += len(in_lanes(self.lanes))

    def watched(self, agent: str) -> tuple[Alarm, float | None]:
        """Return the alarm of the first formula where there are lanes, and when a withheld revision is due."""
        formula = self.lanes._agents[agent].formulas[0]  # noqa: SLF001 - what a lane may leave out of date
        return formula.alarm, formula.revises

    def same_states(self) -> None:
        assert self.lanes.changed() == self.plain.changed()
        assert self.lanes.dump() == self.plain.dump()

    def restored(self) -> None:
        """Both go on from their states in new monitors."""
        before, after = (self.lanes, self.plain), (self.world.monitor(), without_lanes(self.world.monitor()))
        for one, two in zip(before, after, strict=True):
            pages = {agent: _pages(found) for agent, found in one.pages(everything=True).items()}
            agents = {name: state for name, state in one.changed(everything=True).items() if state is not None}
            assert two.load(one.dump(), agents, pages) == []
        self.lanes, self.plain = after


def _pages(found: dict[int, bytes | None]) -> dict[int, bytes]:
    return {number: page for number, page in found.items() if page is not None}


@LAW
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.02, 0.1, 0.5]))
def test_a_monitor_with_lanes_is_the_one_without(seed: int, wild: float) -> None:
    rng = random.Random(seed)
    world = World(rng, wrong=rng.choice([0.0, 0.0, 1.0]))
    both = Both(world)
    names, rewards = rng.random() < 0.5, rng.random() < 0.3
    at_once = rng.choice([0.0, 0.5, 1.0])  # part of the messages that are evaluated as they come
    agents = [Agent(world, name, names_policy=names, rewards=rewards) for name in ("ada", "bob")]
    ticks = 0.0
    for n in range(160):
        ticks += rng.choice([0.1, 0.1, 0.1, 0.7]) if rng.random() > wild / 5 else rng.choice([3.0, 5.0, 8.0, 50.0])
        now = Instant(1000.0 + ticks, ticks)
        for agent in agents if rng.random() < 0.7 else agents[:1]:
            for observation in agent.step(now.wall, wild if n > 30 else 0.0):
                way = both.step if rng.random() < at_once else rng.choice([both.observe, both.receive])
                way(observation, now)
        if rng.random() < wild / 4:
            kind = rng.randrange(3)
            if kind == 0:
                up = rng.random() < 0.7
                both.connected(now, up=up)
            elif kind == 1:
                who = rng.choice(["ada", "bob", "eve"])
                both.lost(who, now)
            else:
                both.restored()
        if rng.random() < 0.8:
            limited = rng.random() < 0.2
            newest, steps = rng.random() < wild / 3, rng.choice([1, 3]) if limited else 0
            both.evaluate(now, latest_only=newest, steps=steps, live_since=rng.choice([-math.inf, ticks - 0.5]))
        if n % 40 == 39:
            both.same_states()
        if n % 60 == 59:
            both.current_state()
    both.same_states()


def walk(both: Both, agent: Agent, steps: int) -> None:
    """Let an agent make ordinary steps, ten a second, each evaluated at once."""
    for n in range(steps):
        now = Instant(1000.0 + n / 10, n / 10)
        for observation in agent.step(now.wall, 0.0):
            both.observe(observation, now)
        both.evaluate(now)


def test_most_steps_of_an_ordinary_agent_go_through_its_lane() -> None:
    world = World(random.Random(7))
    world.formulas = [FormulaSpec("watch", TEXTS[3], alarm=AlarmSpec(for_=3))]
    both = Both(world)
    walk(both, Agent(world, "ada", names_policy=True, rewards=False), 300)
    assert both.taken["in lanes"] > 400, "of 600 calls"
    table = both.lanes.queries[0].shared.table
    assert table is not None
    assert table.asked[1] > 200, "of 300 verdicts, those that were there before"


def test_an_agent_keeps_its_lane_while_its_alarm_fires() -> None:
    """Also when a revision was withheld and is published by its timer, without a step."""
    published = 0
    for seed in range(20):
        world = World(random.Random(seed))
        world.formulas = [FormulaSpec("watch", TEXTS[3], alarm=AlarmSpec(for_=1, keep=4, step=0.01))]
        both = Both(world)
        agent = Agent(world, "ada", names_policy=True, rewards=False)
        ticks = 0.0
        for _ in range(60):
            ticks += 0.1
            walked = Instant(1000.0 + ticks, ticks)
            for observation in agent.step(walked.wall, 0.0):
                both.receive(observation, walked)
            both.evaluate(walked)
            firing, withheld = both.watched("ada")
            if "ada" in in_lanes(both.lanes) and firing.state == "firing" and withheld is not None:
                ticks = withheld
                assert both.lanes.timing.timer <= ticks
                both.evaluate(Instant(1000.0 + ticks, ticks))
                assert "ada" in in_lanes(both.lanes)
                published += both.watched("ada")[0].revision > firing.revision
                assert both.watched("ada")[1] is None
        both.same_states()
    assert published > 20


@scaled
def test_more_obligations_than_a_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the lane closes, also where the first of two formulas wants a forecast to be followed."""
    watched = [
        FormulaSpec("first", 'P>=0.0 [ !"bad" U<=4 "good" ]', alarm=AlarmSpec(for_=3)),
        FormulaSpec("second", TEXTS[3], alarm=AlarmSpec(for_=9)),
    ]
    for entries in (1, 7, 9, 10, 15):
        monkeypatch.setattr(obligations, "ENTRIES", entries)
        for seed in range(examples(2, 8)):
            world = World(random.Random(seed))
            world.pending, world.formulas = 100, watched
            both = Both(world)
            walk(both, Agent(world, "ada", names_policy=False, rewards=False), 60)
            both.same_states()


def test_without_formulas_there_are_no_lanes() -> None:
    world = World(random.Random(7))
    world.formulas = []
    assert not may_have_lanes(world.monitor())


@pytest.mark.parametrize("first", [2**62 - 30, 2**63 - 40])
def test_seqs_that_need_more_than_63_bits(first: int) -> None:
    """The first lane gives up at 2^62; from there on none opens, as the next seq would have no place."""
    world = World(random.Random(3))
    world.formulas = [FormulaSpec("watch", TEXTS[3], alarm=AlarmSpec(for_=9))]
    both = Both(world)
    agent = Agent(world, "ada", names_policy=False, rewards=False)
    agent.seq = first
    opened = False
    for n in range(40):
        now = Instant(1000.0 + n / 10, n / 10)
        for observation in agent.step(now.wall, 0.0):
            assert observation.seq < 2**63
            both.step(observation, now)
        opened = opened or bool(in_lanes(both.lanes))
        assert not (in_lanes(both.lanes) and agent.seq > 2**62)
    assert opened == (first < 2**62)
    both.same_states()


def test_models_learned_from_data_and_far_horizons_have_no_lanes() -> None:
    draws = [(0, 0, 0), (0, 0, 1), (1, 0, 1), (1, 0, 0)] * 5
    learned, _ = learned_model(3, 1, draws, {"bad": frozenset([1])}, {})
    given = MDP.from_transitions(
        states=3, actions=1, transitions=[(s, 0, t, 0.5) for s in range(3) for t in (0, 1)], labels={"bad": [1]}
    )

    def has_lanes(text: str, other: MDP = given) -> bool:
        return may_have_lanes(Monitor(given, {"nominal": [0] * 3}, [text], models={"other": other}))

    assert has_lanes('P>=0.5 [ G<=1023 !"bad" ]')
    assert not has_lanes('P>=0.5 [ G<=1024 !"bad" ]')
    assert has_lanes('model:other@1.P>=0.5 [ G<=9 !"bad" ]')
    assert not has_lanes('model:other@1.P>=0.5 [ G<=9 !"bad" ]', learned)


def test_a_library_user_who_observes_bytes_gets_the_same() -> None:
    both = Both(World(random.Random(7)))
    agent = Agent(both.world, "ada", names_policy=False, rewards=True)
    for n in range(120):
        now = Instant(1000.0 + n / 10, n / 10)
        for o in agent.step(now.wall, 0.0):
            time = "null" if o.time is None else repr(o.time)
            reward = "null" if o.reward is None else repr(o.reward)
            rest = f'"state":{o.state},"action":{o.action},"time":{time},"reward":{reward}'
            sent = decode("ada", f'{{"v":1,"episode":0,"seq":{o.seq},{rest}}}'.encode())
            both.observe(sent, now)
        both.evaluate(now)
    both.same_states()


@compiled
def find(words: int, block: int, held: int) -> int:
    return find_verdict(ints_at(words, WORDS), ints_at(block, BLOCK), held)


@pytest.mark.parametrize("most", [1, 5, 64])
def test_the_table_finds_what_was_entered(most: int) -> None:
    """Wherever in the ring the newest pair is, beside the same pairs in another order, and paths with fewer of them."""
    table = VerdictTable(3, most, 2)
    held = [[2 * n + 4, 2 * n + 2, 2 * n + n % 2][-(1 + n % 3) :] for n in range(most)]
    if most > 4:
        held[3], held[4] = held[3][:1] + held[2][:2], held[2][:2] + held[3][:1]
    for rows in held:
        table.enter([(row // 2, row % 2) for row in rows], "good", examined=False)
    assert table.number == most
    words, block = array("q", bytes(8 * WORDS)), array("q", bytes(8 * BLOCK))
    for word, value in table.words().items():
        block[word] = value
    ring = array("q", bytes(8 * 5))
    words[RING], words[PAIRS] = len(ring), address(ring)

    def number(rows: list[int], newest: int) -> int:
        for back, row in enumerate(reversed(rows)):
            ring[(newest - back) % len(ring)] = row
        words[PUSHED] = newest
        return find(address(words), address(block), len(rows))

    for newest in (2, 5, 11):
        assert [number(rows, newest) for rows in held] == list(range(most))
        assert number([7, 7], newest) == -1
    block[LENGTH] = 0
    assert number(held[0], 2) == -1, "nothing is shared"
    block[LENGTH] = 3
    table.clear()
    assert table.number == 0
    assert {number(rows, 2) for rows in held} == {-1}
