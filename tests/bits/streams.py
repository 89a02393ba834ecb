"""Streams of steps in small worlds: most as they should be, some as a network or a bad agent makes them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import (
    AlarmSpec,
    BandSettings,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    Sampling,
    StreamSettings,
    TrustSettings,
)
from tests.bits.worlds import Policy, learned, random_model

__all__ = ["START", "Fleet", "random_fleet"]

TEXTS: Final = (
    'P>=0.6 [ G<=4 !"a" ]',
    'P>=0.3 [ "b" R<=3 !"a" ]',
    'regret(other@2, P>=0.7 [ F<=5 "b" ])',
    "regret(other[2]@3, R>=1 [ C<=3 ])",
    'other@3.P=? [ G<=3 !"a" ]',
    'other@4.P>=0.5 [ G<=3 !"a" ]',
    'delta(other,nominal)@1.P<=0.1 [ F<=3 "b" ]',
    'regret(best@1, P>=0.8 [ G<=3 !"a" ])',
    'regret(optimal@2, P>=0.7 [ F<=3 "b" ])',
    'other@-2.P>=0.4 [ F<=4 "b" ]',
    "R>=1 [ C<=4 ]",
    'handover(other, P>=0.8 [ F<=4 "b" ], 2)',
    'P>=0.5 [ G<=2 !"a" ] & other@1.P>=0.5 [ F<=3 "b" ]',
    'P>=0.5 [ F<=3 other@0.P>=0.5 [ F<=2 "b" ] ]',
)
DECIDING: Final = "best", "optimal"
NESTED: Final = "handover", "other@0"
NOMINAL, OTHER, FOREIGN = "ab" * 32, "cd" * 32, "ef" * 32
"""Digests of policies: of nominal, of the other one, of one that is not configured."""
START: Final = 1000.0
"""Seconds since the epoch at tick 0."""

Kind = Literal["given", "learned", "sampled"]


class Sent(NamedTuple):
    """What an agent sends, and when it arrives."""

    now: Instant
    observation: Observation


@dataclass
class Fleet:
    """Agents in one small model, and what monitors them.

    `wild`: how often a step is unusual. `wrong`: agents do not follow the model. `together`: a message is observed and
    evaluated in one call.
    """

    chance: random.Random
    model: MDP
    policies: dict[str, Any]
    formulas: list[FormulaSpec]
    stream: StreamSettings
    trust: TrustSettings
    wild: float
    wrong: bool
    together: bool
    agents: list[str]

    def monitor(self) -> Monitor:
        """Return a monitor that has seen nothing."""
        sampling, bands = Sampling(seed=5, limit=300, error=0.2), BandSettings(draws=40, seed=7)
        return Monitor(
            self.model, self.policies, self.formulas, self.stream, sampling=sampling, trust=self.trust, bands=bands
        )

    def sent(self, count: int) -> Iterator[Sent]:
        """Yield about `count` messages, in the order in which they arrive."""
        ticks, chance = 0.0, self.chance
        agents = [_Agent(self, name) for name in self.agents]
        for _ in range(count // len(agents)):
            silent = chance.random() < self.wild / 5
            ticks += chance.choice((5.0, 50.0)) if silent else chance.choice((0.125, 0.125, 0.75))
            now = Instant(START + ticks, ticks)
            for agent in agents:
                for observation in agent.sends(now.wall):
                    yield Sent(now, observation)

    def played(self, count: int, made: Monitor) -> Iterator[Notice]:
        """Yield what a monitor says about `count` messages, and then about silence."""
        chance, now = self.chance, Instant(START, 0.0)
        for now, observation in self.sent(count):
            if self.together:
                yield from (*made.observe(observation, now), *made.evaluate(now))
                continue
            yield from made.observe(observation, now)
            match chance.randrange(20):
                case 0 | 1 | 2:
                    continue
                case 3:
                    yield from made.evaluate(now, steps=2)
                case 4:
                    yield from made.evaluate(now, latest_only=True)
                case _:
                    yield from made.evaluate(now)
            if chance.random() < self.wild / 10:
                yield from made.connected(up=False, now=now)
                yield from made.connected(up=True, now=now)
            if chance.random() < self.wild / 10:
                yield from made.lost(observation.agent, now)
        for later in (3.0, 5.0, 7.0, 100.0):
            yield from made.evaluate(Instant(now.wall + later, now.ticks + later))
        yield from made.current_state()


def random_fleet(seed: int, kind: Kind = "given") -> Fleet:
    """Return the fleet of a seed; `sampled`: its formulas are sampled."""
    chance = random.Random(seed)
    if kind == "learned":
        world = learned(chance)
        model, policies = world.model, {"nominal": world.policies["nominal"], "other": world.policies["alt"]}
    else:
        states = chance.choice((4, 5, 7, 20))
        labels = {"a": [0], "b": [states - 1]}
        model = random_model(chance, states, 2, 3, rewards=chance.random() < 0.7, labels=labels)
        policies = {name: _policy(chance, model, stochastic=name == "nominal") for name in ("nominal", "other")}
    texts = chance.sample(TEXTS, chance.choice((1, 2, 4)))
    stream = StreamSettings(
        window=chance.choice((6, 6, 64)),
        reorder_steps=3,
        reorder_wait=0.5,
        stale_after=4.0,
        idle_after=6.0,
        forget_after=40.0,
        max_lag=2.0,
        pending=30,
        policies={NOMINAL: "nominal", OTHER: "other"},
    )
    return Fleet(
        chance,
        model,
        policies,
        [_spec(chance, f"f{n}", text, kind) for n, text in enumerate(texts)],
        stream,
        TrustSettings(alpha=0.05, acknowledged={"ada": "known"} if chance.random() < 0.1 else {}),
        chance.choice((0.0, 0.0, 0.02, 0.2)),
        chance.random() < 0.25,
        chance.random() < 0.3,
        ["ada", "bob", "cy"][: chance.choice((1, 2, 2, 3))],
    )


def _policy(chance: random.Random, model: MDP, *, stochastic: bool) -> Policy:
    """Return a policy whose probabilities are parts of eight: squares of them are exact, on each processor."""
    available = model.availability
    if stochastic and chance.random() < 0.5:
        first = [chance.choice((1, 4, 7, 8)) / 8 if each.all() else 1.0 for each in available]
        return np.array([[p, 1.0 - p] for p in first])
    return [chance.choice(np.flatnonzero(each).tolist()) for each in available]


def _spec(chance: random.Random, name: str, text: str, kind: Kind) -> FormulaSpec:
    decides = any(word in text for word in DECIDING)
    bounded = kind != "sampled" and not decides and chance.random() < 0.4
    nested = any(word in text for word in NESTED)
    wanted = bounded and chance.random() < 0.3 and not (kind == "learned" and nested)
    robust: Literal["robust"] | None = "robust" if wanted else None
    return FormulaSpec(
        name,
        text,
        every=chance.choice((1, 1, 1, 1, 2, 1.0)),
        causal_model=chance.choice(("any", "stable")) if bounded else "gumbel",
        alarm=AlarmSpec(for_=chance.choice((1, 2, 3)), keep=chance.choice((1, 2)), only_if=robust),
        engine="sampled" if kind == "sampled" and not decides else "auto",
        bands=chance.choice(("auto", "always", "off")),
        recourse=chance.choice(("auto", "auto", "off", "always")),
    )


@dataclass
class _Agent:
    """One agent: what it does, and what arrives of it."""

    fleet: Fleet
    name: str
    episode: int = 0
    seq: int = 0
    state: int = 0
    action: int = 0
    policy: str = "nominal"
    past: list[Observation] = field(default_factory=list)

    def sends(self, wall: float) -> list[Observation]:
        """Return what arrives next."""
        chance, reward = self.fleet.chance, None
        if self.seq:
            before = self.state, self.action
            self.state = self._follows()
            if chance.random() < 0.3:
                reward = self.fleet.model.reward(*before, self.state)
        if chance.random() < 0.05:
            self.policy = chance.choice(("nominal", "other"))
        self.action = self._acts()
        digest = OTHER if self.policy == "other" else chance.choice((NOMINAL, None))
        late = chance.choice((0.0, 0.125))
        made = Observation(
            self.name, self.episode, self.seq, self.state, self.action, time=wall - late, reward=reward, policy=digest
        )
        self.seq += 1
        found = [made] if chance.random() >= self.fleet.wild else self._unusual(made)
        if self.seq > 60 and chance.random() < 0.05:
            found[-1:] = [replace(each, terminated=True) for each in found[-1:]]
            self._begin()
        self.past = [*self.past[-20:], *found]
        return found

    def _follows(self) -> int:
        chance, fleet = self.fleet.chance, self.fleet
        successors, probabilities = fleet.model.row(self.state, self.action)
        if fleet.wrong and chance.random() < 0.5:
            return int(chance.choice(successors.tolist()))
        return int(chance.choices(successors.tolist(), probabilities.tolist())[0])

    def _acts(self) -> int:
        chance, policy = self.fleet.chance, self.fleet.policies[self.policy]
        if chance.random() < 0.05:
            return int(chance.choice(np.flatnonzero(self.fleet.model.available(self.state)).tolist()))
        return policy[self.state] if isinstance(policy, list) else int(chance.random() > policy[self.state, 0])

    def _unusual(self, made: Observation) -> list[Observation]:
        chance, states = self.fleet.chance, self.fleet.model.states
        match chance.randrange(12):
            case 0:
                return []  # lost
            case 1:
                return [made, made]
            case 2 | 3 if self.past:
                return [made, chance.choice(self.past)]
            case 4:
                self._begin()
                return [replace(made, terminated=True)]
            case 5:
                self._begin()
                return [replace(made, action=None, truncated=True)]
            case 6:
                return [replace(made, state=chance.choice((0, states - 1, states, -1)))]
            case 7:
                return [replace(made, action=chance.choice((0, 1, None, 5)))]
            case 8:
                return [replace(made, reward=chance.choice((7.0, math.nan)))]
            case 9:
                return [replace(made, policy=chance.choice((OTHER, FOREIGN, None)))]
            case 10:
                return [replace(made, seq=chance.choice((made.seq + 1, made.seq + 7, max(0, made.seq - 2))))]
        return [*self.past[-1:], made]

    def _begin(self) -> None:
        self.episode += 1
        self.seq, self.state = 0, self.fleet.chance.randrange(self.fleet.model.states)
