"""Small random worlds, twice: for the oracle in rational numbers, and for the monitor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, islice
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from monitor.evaluation import check
from monitor.model import MDP
from monitor.types import Verdict
from tests.oracle.evaluate import Evaluator
from tests.oracle.setting import Dist, Pair, Setting
from tests.tiers import examples

__all__ = ["LAW", "Small", "chances", "exact", "path_formula", "question", "small_world", "telling_world"]

LAW = settings(
    max_examples=examples(15, 60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

chances = st.randoms(use_true_random=False)
"""A source of choices hypothesis can shrink; each test builds its world from one."""


@dataclass(frozen=True)
class Small:
    """A setting of the oracle, and the same for the monitor."""

    setting: Setting
    model: MDP
    policies: dict[str, Any]
    models: dict[str, MDP]

    def ask(self, text: str, **more: Any) -> Verdict:  # noqa: ANN401 - arguments of check
        given: dict[str, Any] = {
            "model": self.model,
            "path": self.setting.path,
            "policies": self.policies,
            "models": self.models,
            "terminated": self.setting.terminated,
            "engine": "exact",
        }
        return check(text, **(given | more))

    def number(self, text: str) -> float:
        value = self.ask(text).value
        assert value is not None
        return value


def exact(small: Small, text: str) -> Fraction:
    """The oracle's answer to a `=?` question."""
    value = Evaluator(small.setting).answer(text).value
    assert value is not None
    return value


def distribution(chance: Random, outcomes: int, largest: int) -> dict[int, Fraction]:
    """On at most `largest` outcomes, with weights that often coincide."""
    support = chance.sample(range(outcomes), chance.randint(1, min(largest, outcomes)))
    weights = [chance.randint(1, 5) for _ in support]
    return {j: Fraction(w, sum(weights)) for j, w in sorted(zip(support, weights, strict=True))}


def small_world(
    chance: Random,
    *,
    stochastic: bool = False,
    on_policy: bool = False,
    length: int | None = None,
    open_end: bool = False,
    terminated: bool = False,
    support: int = 3,
) -> Small:
    """2-4 states, 2 actions, labels a and b, policies nominal, alt and third, another model `icy`, a possible path.

    `stochastic`: all policies are; `on_policy`: the path's actions have positive probability under nominal (the last
    too); `open_end`: the last action is not known yet.
    """
    states, actions = chance.randint(2, 4), 2
    keys = [(s, a) for s in range(states) for a in range(actions)]
    rows, icy = ({key: distribution(chance, states, support) for key in keys} for _ in range(2))
    rewards = {key: Fraction(chance.randint(-4, 4), 2) for key in keys}
    labels = {name: frozenset(s for s in range(states) if chance.random() < 0.4) for name in ("a", "b")}
    policies = {
        name: tuple(distribution(chance, actions, actions if stochastic else 1) for _ in range(states))
        for name in ("nominal", "alt", "third")
    }
    state, path = chance.randrange(states), []
    for _ in range(length or chance.randint(1, 4)):
        usual = sorted(policies["nominal"][state])
        action = chance.choice(usual) if on_policy or chance.random() < 0.6 else chance.randrange(actions)
        path.append((state, action))
        state = chance.choice(sorted(rows[state, action]))
    trail: tuple[Pair, ...] = tuple(path) if not open_end else (*path[:-1], (path[-1][0], None))
    setting = Setting(
        states, actions, rows, policies, trail, labels, rewards, models={"icy": icy}, terminated=terminated
    )
    return Small(setting, as_model(setting, rows), as_policies(setting), {"icy": as_model(setting, icy)})


def telling_world(number: int, **how: Any) -> Small:  # noqa: ANN401 - arguments of small_world
    """Return one of a row of worlds in which both labels hold in some states and not in all."""

    def tells(small: Small) -> bool:
        return all(0 < len(where) < small.setting.states for where in small.setting.labels.values())

    return next(islice(filter(tells, (small_world(Random(seed), **how) for seed in count())), number, None))


def as_model(setting: Setting, rows: Mapping[tuple[int, int], Dist]) -> MDP:
    return MDP.from_transitions(
        states=setting.states,
        actions=setting.actions,
        transitions=[(s, a, t, float(p)) for (s, a), row in rows.items() for t, p in row.items()],
        rewards=[(s, a, float(r)) for (s, a), r in setting.rewards.items()],
        labels={name: sorted(where) for name, where in setting.labels.items()},
    )


def as_policies(setting: Setting) -> dict[str, Any]:
    """Action lists where a policy is deterministic, matrices elsewhere."""
    tables: dict[str, Any] = {}
    for name, policy in setting.policies.items():
        if all(len(row) == 1 for row in policy):
            tables[name] = [next(iter(row)) for row in policy]
        else:
            tables[name] = np.array([[float(row.get(a, 0)) for a in range(setting.actions)] for row in policy])
    return tables


def path_formula(chance: Random, depth: int = 2, *, reach: int = 4) -> str:
    """A path formula over a and b that looks at most `reach` offsets ahead."""
    if depth == 0 or reach == 0:
        return chance.choice(['"a"', '"b"', '!"a"', '("a" | "b")'])
    high = chance.randint(0, min(2, reach))
    span = f"[{chance.randint(0, high)},{high}]"
    one = path_formula(chance, depth - 1, reach=reach - high)
    other = path_formula(chance, depth - 1, reach=reach - high)
    return chance.choice(
        [
            f"F{span} {one}",
            f"G{span} {one}",
            f"(({one}) U{span} ({other}))",
            f"(({one}) W{span} ({other}))",
            f"(({one}) R{span} ({other}))",
            f"({one} & {other})",
            f"({one} | {other})",
        ]
    )


def question(chance: Random, world: str, *, reach: int = 4) -> str:
    """A `=?` question in a world: a probability or, sometimes, a reward."""
    if chance.random() < 0.3:
        high = chance.randint(0, reach)
        return f"{world}.R=? [ C[{chance.randint(0, high)},{high}] ]"
    return f"{world}.P=? [ {path_formula(chance, reach=reach)} ]"
