"""Random settings and questions where states are hidden or policies remember, drawn from a seed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np

from monitor.model import MDP
from monitor.policy.controller import Controller, Policy, Reader, as_reader
from tests.referee.questions import LABELS, Writer

Pair = tuple[Any, ...]


@dataclass(frozen=True)
class HiddenSetting:
    """Arguments of `check` but the question and the path, which is possible; `held`: the actions available everywhere.

    `remembers`: some policy may.
    """

    about: dict[str, Any]
    path: list[Pair]
    remembers: bool
    held: list[int]


def setting(seed: int) -> HiddenSetting:
    rng = Random(seed)
    states, actions = rng.randint(2, 3), rng.randint(1, 3)
    available = [(s, a) for s in range(states) for a in range(actions) if a == 0 or rng.random() < 0.9]
    shown = rng.randint(1, 3) if rng.random() < 0.8 else None
    rows = _rows(rng, states, available)
    about: dict[str, Any] = {"states": states, "actions": actions}
    if shown is not None:
        about |= {"signals": shown, "initial": _some(rng, states)}
        about["emissions"] = [(s, o, e) for s in range(states) for o, e in _some(rng, shown).items()]
    model = MDP.from_transitions(
        transitions=rows,
        rewards=[
            *((s, a, rng.randint(-8, 8) / 4) for s, a in available),
            *((s, a, t, rng.randint(-4, 4) / 2) for s, a, t, _ in rows if rng.random() < 0.4),
        ],
        labels={name: [s for s in range(states) if rng.random() < 0.4] for name in LABELS},
        **about,
    )
    other = MDP.from_transitions(states=states, actions=actions, transitions=_rows(rng, states, available))
    memories = rng.choice([1, 1, 2])
    policies = {name: _policy(rng, model, memories) for name in ("nominal", "alt", "third")}
    readers = {name: as_reader(policy, model) for name, policy in policies.items()}
    held = [a for a in range(actions) if model.availability[:, a].all()]
    acting = ["nominal", "alt"] if all(each.memories == 1 for each in readers.values()) else ["nominal"]
    path, acted = _path(rng, model, readers, acting)
    if rng.random() < 0.3:
        path[0] = (*path[0], _belief(rng, model, readers, path[0][0]))
    found: dict[str, Any] = {"model": model, "policies": policies, "models": {"other": other}}
    found |= {"terminated": path[-1][1] is not None and rng.random() < 0.25, "start_observed": rng.random() < 0.7}
    found["acted"] = acted if len(acting) > 1 else ()
    return HiddenSetting(found, path, memories > 1, held)


def _belief(rng: Random, model: MDP, readers: dict[str, Reader], first: int | None) -> tuple[float, ...]:
    """Return any belief before the first pair; the path stays possible, as all places are."""
    kinds = {reader.content(): reader.memories for reader in readers.values()}
    memories = prod(kinds.values())
    states = range(model.states) if model.emissions is not None else [first or 0]
    weights = {s * memories + m: rng.choice([0.1, 1, 2]) for s in states for m in range(memories)}
    total = sum(weights.values())
    return tuple(float(part) for place, weight in weights.items() for part in (place, weight / total))


def _rows(rng: Random, states: int, available: list[tuple[int, int]]) -> list[tuple[int, int, int, float]]:
    return [(s, a, t, chance) for s, a in available for t, chance in _some(rng, states).items()]


def _some(rng: Random, size: int) -> dict[int, float]:
    """Return a distribution with few different weights, so that some ratios are equal."""
    there = rng.sample(range(size), rng.randint(1, size))
    weights = [rng.choice([0.1, 1, 1, 2, 3, 5]) for _ in there]
    return {each: weight / sum(weights) for each, weight in zip(there, weights, strict=True)}


def _policy(rng: Random, model: MDP, memories: int) -> object:
    sees = "observation" if model.emissions is not None and rng.random() < 0.6 else "state"
    signals = model.states if sees == "state" or model.emissions is None else model.emissions.signals
    memories = rng.choice([1, memories, memories])
    choice = np.zeros((memories, signals, model.actions))
    for seen in range(signals):
        where = [s for s in range(model.states) if seen in dict(model.shown(s))] if sees == "observation" else [seen]
        allowed = np.flatnonzero(model.availability[where].all(axis=0)).tolist()  # of none all are
        for memory in range(memories):
            if rng.random() < 0.3:
                choice[memory, seen, rng.choice(allowed)] = 1.0
                continue
            choice[memory, seen, allowed] = [rng.choice([0, 1, 2, 3]) for _ in allowed]
            choice[memory, seen, allowed[0]] += not choice[memory, seen].any()
    choice /= choice.sum(axis=-1, keepdims=True)
    if memories == 1:
        return Policy(choice[0], sees=sees)  # type: ignore[arg-type]
    following = [[rng.randrange(memories) for _ in range(signals)] for _ in range(memories)]
    return Controller(choice, following, rng.choice(["shadow", "reset"]), sees)  # type: ignore[arg-type]


def _path(rng: Random, model: MDP, readers: dict[str, Reader], acting: list[str]) -> tuple[list[Pair], list[str]]:
    """At most four pairs, some off-policy, with some parts missing."""
    hidden = model.emissions is not None
    state = rng.choices(range(model.states), model.initial.tolist() if model.initial is not None else None)[0]
    memory, path, acted = dict.fromkeys(readers, 0), list[Pair](), list[str]()
    for _ in range(rng.randint(1, 4)):
        observation = rng.choices(*zip(*model.shown(state), strict=True))[0]
        name, choices = rng.choice(acting), dict[str, Any]()
        for each, reader in readers.items():
            memory[each], choices[each] = reader.read(memory[each], state if reader.sees_state else observation)
        chosen = choices[name]
        anything = model.available(state).nonzero()[0].tolist()
        action = rng.choice(anything) if rng.random() < 0.2 else rng.choices(range(model.actions), chosen)[0]
        missing = hidden and rng.random() < 0.2
        path.append((None if missing else observation, None if rng.random() < 0.15 else action))
        acted.append(name)
        successors, row = model.row(state, action)
        state = rng.choices(successors.tolist(), row.tolist())[0]
    return path, acted


def question(rng: Random, held: list[int], *, remembers: bool) -> str:
    """Return a question of what hidden states have of the language; none hands back if a policy `remembers`."""
    writer = Writer(rng, held)
    text = _some_question(writer)
    while remembers and re.search(r"(alt|third|do\(\d\))\[", text):
        text = _some_question(writer)
    return text


def _some_question(writer: Writer) -> str:
    rng, kind = writer.rng, writer.rng.random()
    if kind < 0.4:
        return f"{writer.world()}.{writer.measure(0, asks=True)}"
    if kind < 0.7:
        changes = [change for change in (writer.change() for _ in range(50)) if change != "nominal"]
        return f"regret({changes[0]}@{rng.choice([0, 1, 2, 3, 5, -1, -2])}, {writer.measure(0)})"
    one, two = (f"{writer.world()}.{writer.measure(0)}" for _ in range(2))
    return f"{one} {rng.choice('&|')} !({two} | false)"
