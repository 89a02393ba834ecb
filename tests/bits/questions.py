"""Digests of answers on one path: values, bounds, bands, decisions, recourse."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import monitor
from monitor.exact import tables
from monitor.logic.syntax import Goal
from monitor.model import MDP
from monitor.types import BandSettings, CausalModel, Sampling
from tests.bits.digest import Bits
from tests.bits.kernels import words
from tests.bits.worlds import (
    World,
    goal_of,
    learned,
    path_formula,
    question,
    random_model,
    random_path,
    random_policy,
    random_world,
)

__all__ = [
    "bands",
    "bounds",
    "bounds_of_wide_rows",
    "decisions",
    "extremes",
    "guaranteed",
    "large",
    "long",
    "recourse",
    "sampled",
    "values",
    "values_of_dense_rows",
    "verdicts",
]


def _answer(ask: Callable[..., object], *given: object, **more: object) -> object:
    """Return an answer, or which error there is instead."""
    try:
        return ask(*given, **more)
    except monitor.MonitorError as error:
        return type(error).__name__


def _checker(world: World) -> monitor.Checker:
    return monitor.Checker(world.model, tables(world.policies, world.model), world.models)


def _ask(checker: monitor.Checker, world: World, text: str, causal_model: CausalModel = "gumbel") -> object:
    more = {"terminated": world.terminated, "acted": world.acted, "causal_model": causal_model, "text": text}
    return _answer(checker.check, monitor.parse(text), world.path, **more)


def verdicts(number: int) -> str:
    """Answers in small worlds, over the whole language; with one checker for a world, and from nothing."""
    chance, bits = random.Random(10_000 + number), Bits()
    for _ in range(8):
        states, actions, length = chance.choice((2, 3, 5, 9)), chance.choice((1, 2, 2, 3)), chance.choice((1, 3, 6, 12))
        world = random_world(chance, states=states, actions=actions, length=length)
        checker = _checker(world)
        for n in range(20):
            text = question(chance, world)
            bits.value(_ask(checker, world, text))
            if n % 10 == 0:
                bits.value(_answer(monitor.check, text, engine="exact", **world.about))
    return bits.digest


def bounds(number: int) -> str:
    """Bounds over classes of causal models, in small worlds."""
    chance, bits = random.Random(11_000 + number), Bits()
    for _ in range(6):
        states, actions, length = chance.choice((2, 3, 5, 9)), chance.choice((1, 2, 2, 3)), chance.choice((2, 4, 8))
        world = random_world(chance, states=states, actions=actions, length=length)
        checker = _checker(world)
        for _ in range(12):
            bits.value(_ask(checker, world, question(chance, world, nesting=0), chance.choice(("any", "stable"))))
    return bits.digest


def bounds_of_wide_rows(number: int) -> str:
    """Values and bounds where rows have up to 90 successors, and more than 64 states are reached at once."""
    chance, bits = random.Random(12_000 + number), Bits()
    world = random_world(chance, states=90, actions=2, most=90, length=7)
    checker = _checker(world)
    for kind in ("gumbel", "any", "stable", "any", "stable"):
        for _ in range(4):
            text = question(chance, world, nesting=0)
            bits.value(_ask(checker, world, text, kind))
    return bits.digest


def long(number: int) -> str:
    """Values along recordings of 300 pairs, at every offset up to the goal's; and verdicts pair by pair."""
    chance, bits = random.Random(13_000 + number), Bits()
    model = random_model(chance, 12, 2, 4)
    names = ("nominal", "alt", "third")
    policies = {name: random_policy(chance, model, stochastic=chance.random() < 0.4) for name in names}
    pairs = random_path(chance, model, [policies["nominal"]] * 300, open_end=False)
    checker = monitor.Checker(model, tables(policies, model))
    for offset in (0, 1, 5, 40):
        change = chance.choice(("alt", "third", "alt[3]", "nominal"))
        inner = path_formula(chance, 2, depth=1)
        for text in (f"{change}@{offset}.P=? [ F<=20 ({inner}) ]", f"{change}@{offset}.R=? [ C<=10 ]"):
            goal = monitor.parse(text)
            assert isinstance(goal, Goal)
            bits.numbers(checker.along(goal, pairs))
    for kind in ("gumbel", "any"):
        text = f"regret(alt@{chance.choice((2, 6))}, {goal_of(chance, '', 8)})"
        check = checker.incremental_check(monitor.parse(text), kind, text, window=16)
        for end in range(1, 121):
            bits.value(_answer(check.verdict, tuple(pairs[max(0, end - 16) : end])))
    return bits.digest


def large(number: int) -> str:
    """Answers on a model of 5,000 states, where values are computed for reachable states only."""
    chance, bits = random.Random(14_000 + number), Bits()
    model = _large_model(chance)
    policies = {name: random_policy(chance, model, stochastic=name == "third") for name in ("nominal", "alt", "third")}
    if number % 2:
        policies["nominal"] = random_policy(chance, model, stochastic=True)
    for _ in range(3):
        path = random_path(chance, model, [policies["nominal"]] * chance.choice((4, 20)))
        world = World(model, policies, {}, path, chance.random() < 0.3)
        checker = _checker(world)
        for _ in range(5):
            bits.value(_ask(checker, world, question(chance, world, reach=6, nesting=0)))
        text = f"alt@3.P=? [ {path_formula(chance, 4)} ]"
        bits.value([_ask(checker, world, text, kind) for kind in ("any", "stable")])
    return bits.digest


def _large_model(chance: random.Random) -> MDP:
    """Return a model with 5,000 states and four successors a row, some of them far away."""
    states, actions, width = 5_000, 2, 4
    rows = np.arange(states * actions)
    near = [(rows // actions + chance.choice((-2, -1, 0, 1, 3, 71))) % states for _ in range(width - 1)]
    far = np.array([chance.randrange(states) for _ in rows])
    weights = np.array([[chance.choice((1, 1, 2, 5)) for _ in range(width)] for _ in rows])
    return MDP.from_rows(
        states=states,
        actions=actions,
        indptr=np.arange(0, (states * actions + 1) * width, width),
        successors=np.stack([*near, far], axis=1).ravel(),
        probabilities=(weights / weights.sum(axis=1, keepdims=True)).ravel(),
        rewards=np.array([[float(chance.randrange(3)) for _ in range(actions)] for _ in range(states)]),
        labels={name: [s for s in range(states) if chance.random() < 0.3] for name in ("a", "b")},
    )


def values(number: int) -> str:
    """Values of all states, under policies and under the best decisions."""
    chance, bits = random.Random(15_000 + number), Bits()
    for _ in range(12):
        world = random_world(chance, states=chance.choice((3, 9, 60)), actions=3, most=chance.choice((3, 30)))
        about = {"model": world.model, "policies": world.policies, "models": world.models}
        for change in ("alt", "third[2]", "delta(alt,nominal)", "max", "min"):
            inner = path_formula(chance, 8, nesting=int(change not in {"max", "min"}))
            measure = f"P=? [ {inner} ]" if chance.random() < 0.7 else "R=? [ C[1,7] ]"
            text = f"{change}@0.{measure}".replace("@1.", "@0.").replace("@-1.", "@0.")
            bits.value(_answer(monitor.values, text, **about))
    return bits.digest


def values_of_dense_rows(number: int) -> str:
    """Values of all states of a model with 1.2 million transitions, whose rows are read in place."""
    chance, bits = random.Random(15_500 + number), Bits()
    states, actions = 1_000, 2
    rows, successors = np.nonzero(words(chance, states * actions, states) % np.uint64(5) < np.uint64(3))
    begins = np.searchsorted(rows, np.arange(states * actions + 1))
    weights = (words(chance, len(rows)) % np.uint64(7)).astype(np.int64) + 1
    model = MDP.from_rows(
        states=states,
        actions=actions,
        indptr=begins,
        successors=successors,
        probabilities=weights / np.add.reduceat(weights, begins[:-1])[rows],
        labels={name: [s for s in range(states) if chance.random() < 0.1] for name in ("a", "b")},
    )
    policies = {name: random_policy(chance, model, stochastic=name == "alt") for name in ("nominal", "alt")}
    for text in ('P=? [ F<=4 "a" ]', 'alt@0.P=? [ !"a" U<=3 "b" ]'):
        bits.numbers(monitor.values(text, model=model, policies=policies))
    return bits.digest


def _deciding(chance: random.Random, world: World, *, kinds: tuple[str, ...]) -> str:
    change = chance.choice(kinds)
    offset = chance.choice((0, 1, chance.randrange(len(world.path)), -chance.randint(1, len(world.path))))
    if chance.random() < 0.5 and offset >= 0:
        return f"regret({change}@{offset}, {goal_of(chance, '', 4)})"
    if change.startswith("optimal") or chance.random() < 0.3:
        return goal_of(chance, f"{change.replace('best', 'max')}@{offset}", 4)
    measure = f"P=? [ {path_formula(chance, 4)} ]" if chance.random() < 0.7 else "R=? [ C<=4 ]"
    return f"{change.replace('best', chance.choice(('max', 'min')))}@{offset}.{measure}"


def decisions(number: int) -> str:
    """The best decisions with hindsight, for some steps, with few changes, and without hindsight; and their bounds."""
    chance, bits = random.Random(16_000 + number), Bits()
    for _ in range(4):
        size = chance.choice(((3, 3), (6, 4), (40, 40)))
        world = random_world(chance, states=size[0], actions=3, most=size[1], length=chance.choice((1, 4, 9)))
        checker = _checker(world)
        for kind in ("gumbel", "gumbel", "gumbel", "any", "stable"):
            text = _deciding(chance, world, kinds=("best", "best", "best[2]", "best[<=1]", "best[<=3]", "optimal"))
            bits.value(_ask(checker, world, text, kind))
    return bits.digest


def recourse(number: int) -> str:
    """What other decisions would have given: plans, effects, responsibility; and as part of verdicts."""
    chance, bits = random.Random(17_000 + number), Bits()
    for n in range(6):
        size = chance.choice(((3, 3), (6, 4), (30, 30)))
        world = random_world(chance, states=size[0], actions=3, most=size[1], length=chance.choice((2, 4, 8)))
        offset = chance.randrange(len(world.path))
        goal = goal_of(chance, "", 4)
        texts = f"nominal@{offset}.{goal}", f"regret(alt@{offset}, {goal})"
        unchanged: Any = ("nominal", "observed")[n % 2]
        about = world.about | {"unchanged": unchanged}
        bits.value([_answer(monitor.recourse, text, **about) for text in texts])
        bits.value(_answer(monitor.check, texts[1], engine="exact", **world.about))
    return bits.digest


def extremes(number: int) -> str:
    """Values on learned models, with what was never recorded as bad, and as good, as can be."""
    return _learned(18_000 + number, "gumbel", None)


def guaranteed(number: int) -> str:
    """Guaranteed bands: over every causal model, and every row of a confidence set."""
    return _learned(19_000 + number, "any", None)


def bands(number: int) -> str:
    """Credible bands, what an answer rests on, and which pairs to visit."""
    return _learned(20_000 + number, "gumbel", BandSettings(draws=40, seed=number))


def _learned(seed: int, causal_model: CausalModel, settings: BandSettings | None) -> str:
    chance, bits = random.Random(seed), Bits()
    for _ in range(4):
        world = learned(chance, rewards=chance.random() < 0.3)
        about = world.about | {"engine": "exact", "causal_model": causal_model, "bands": settings}
        for _ in range(4):
            text = question(chance, world, reach=3, nesting=0)
            bits.value(_answer(monitor.check, text, **about))
    return bits.digest


def sampled(number: int) -> str:
    """Sampled answers, by both kinds of tests."""
    chance, bits = random.Random(21_000 + number), Bits()
    for _ in range(3):
        world = random_world(chance, states=chance.choice((3, 9)), length=chance.choice((1, 4, 8)))
        for test in ("betting", "paper"):
            settings = Sampling(seed=number, limit=2_000, error=0.05, test=test)
            about = world.about | {"engine": "sampled", "sampling": settings}
            for _ in range(3):
                text = question(chance, world, nesting=0)
                bits.value(_answer(monitor.check, text, **about))
    return bits.digest
