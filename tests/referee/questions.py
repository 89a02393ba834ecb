"""Random settings and questions over the whole language, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from monitor.model import MDP
from monitor.policy import PolicyTable, as_table

LABELS = "abc"
PROBABILITIES = ("0", "0.25", "0.4", "0.5", "0.75", "1")
SUMS = ("-1", "0", "1", "2")


@dataclass(frozen=True)
class Setting:
    """A model, another one over the same states, three policies, and a path that is possible."""

    model: MDP
    other: MDP
    policies: dict[str, PolicyTable]
    path: list[tuple[int, int | None]]
    held: list[int]  # actions available everywhere


def setting(seed: int) -> Setting:
    rng = Random(seed)
    states, actions = rng.randint(2, 5), rng.randint(2, 3)
    available = [(s, a) for s in range(states) for a in range(actions) if a == 0 or rng.random() < 0.85]
    rows = _rows(rng, states, available)
    model = MDP.from_transitions(
        states=states,
        actions=actions,
        transitions=rows,
        rewards=[
            *((s, a, rng.randint(-8, 8) / 4) for s, a in available),
            *((s, a, t, rng.randint(-4, 4) / 2) for s, a, t, _ in rows if rng.random() < 0.4),
        ],
        labels={name: [s for s in range(states) if rng.random() < 0.4] for name in LABELS},
    )
    other = MDP.from_transitions(states=states, actions=actions, transitions=_rows(rng, states, available))
    policies = {name: as_table(_policy(rng, model), model) for name in ("nominal", "alt", "third")}
    held = [a for a in range(actions) if model.availability[:, a].all()]
    return Setting(model, other, policies, _path(rng, model, policies["nominal"]), held)


def _rows(rng: Random, states: int, available: list[tuple[int, int]]) -> list[tuple[int, int, int, float]]:
    rows: list[tuple[int, int, int, float]] = []
    for s, a in available:
        successors = rng.sample(range(states), rng.randint(1, min(states, 4)))
        weights = [rng.choice([0.1, 1, 1, 2, 3, 5]) for _ in successors]
        rows += [(s, a, t, w / sum(weights)) for t, w in zip(successors, weights, strict=True)]
    return rows


def _policy(rng: Random, model: MDP) -> object:
    choices = [np.flatnonzero(model.available(s)).tolist() for s in range(model.states)]
    if rng.random() < 0.5:
        return [rng.choice(some) for some in choices]
    table = np.zeros((model.states, model.actions))
    for state, some in enumerate(choices):
        table[state, some] = [rng.choice([0, 1, 2, 3]) for _ in some]
        table[state, some[0]] += not table[state].any()
    return table / table.sum(axis=1, keepdims=True)


def _path(rng: Random, model: MDP, nominal: PolicyTable) -> list[tuple[int, int | None]]:
    """At most five pairs, one action in four off-policy, the last one missing now and then."""
    state, path = rng.randrange(model.states), list[tuple[int, int | None]]()
    for _ in range(rng.randint(1, 5)):
        actions, weights = zip(*nominal.choices(state), strict=True)
        anything = np.flatnonzero(model.available(state)).tolist()
        action = rng.choice(anything) if rng.random() < 0.25 else rng.choices(actions, weights)[0]
        path.append((state, action))
        successors, row = model.row(state, action)
        state = rng.choices(successors.tolist(), row.tolist())[0]
    return path if rng.random() < 0.8 else [*path[:-1], (path[-1][0], None)]


@dataclass(frozen=True)
class Writer:
    """Writes formulas; `held`: the actions that `do(..)` may name."""

    rng: Random
    held: list[int]

    def question(self) -> str:
        kind, depth = self.rng.random(), self.rng.choice([0, 0, 1, 1, 2])
        if kind < 0.35:
            return f"{self.world()}.{self.measure(depth, asks=True)}"
        if kind < 0.6:
            changes = [change for change in (self.change() for _ in range(50)) if change != "nominal"]
            return f"regret({changes[0]}@{self.rng.choice([0, 1, 2, 3, 5, -1, -2])}, {self.measure(depth)})"
        if kind < 0.85:
            return f"{self.world()}.{self.measure(depth)}"
        return f'{self.world()}.{self.measure(0)} {self.rng.choice("&|")} !({self.world()}.{self.measure(depth)} | "a")'

    def change(self) -> str:
        policy, choice = self.rng.choice(["alt", "third"]), self.rng.random()
        if choice < 0.5:
            return policy
        if choice < 0.65:
            return "nominal"
        if choice < 0.8:
            return f"{policy}[{self.rng.randint(0, 4)}]"
        if choice < 0.9:
            return f"do({self.rng.choice(self.held)}){self.rng.choice(['', '[1]', '[2]'])}"
        return "model:other"

    def world(self) -> str:
        offset = self.rng.choice([0, 0, 1, 1, 2, 3, 4, -1, -2, -3, 9, -9])
        change = self.change()
        return f"delta({change},{self.change()})@{offset}" if self.rng.random() < 0.15 else f"{change}@{offset}"

    def measure(self, depth: int, *, asks: bool = False, levels: int = 2) -> str:
        sums = self.rng.random() < 0.2
        test = (
            "=?" if asks else self.rng.choice(["<", "<=", ">", ">="]) + self.rng.choice(SUMS if sums else PROBABILITIES)
        )
        return f"R{test} [ C{self.interval(4)} ]" if sums else f"P{test} [ {self.path(levels, depth)} ]"

    def interval(self, highest: int) -> str:
        return "[{},{}]".format(*sorted(self.rng.randint(0, highest) for _ in range(2)))

    def path(self, levels: int, depth: int) -> str:
        choice = self.rng.random()
        if levels == 0 or choice < 0.15:
            if depth > 0 and self.rng.random() < 0.5:
                return f"{self.world()}.{self.measure(depth - 1, levels=1)}"
            return self.rng.choice(['"a"', '"b"', '"c"', "true"])
        one, two = (f"({self.path(levels - 1, depth)})" for _ in range(2))
        if choice < 0.3:
            return f"!{one}"
        if choice < 0.45:
            return f"({one} {self.rng.choice(['&', '|', '=>'])} {two})"
        if choice < 0.75:
            return f"{self.rng.choice('FG')}{self.interval(3)} {one}"
        return f"({one} {self.rng.choice('UWR')}{self.interval(3)} {two})"
