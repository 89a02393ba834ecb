"""Worlds with numbers: a verdict of a step by 1,000 draws, against the same draws in plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from benchmarks.loading import Missing
from benchmarks.rows import Bench, Row, absolute, agree, benchmark, compare
from benchmarks.timing import Timing, Work, in_turns
from monitor.arrays import Bools, Floats, Ints
from monitor.evaluation.seeding import alone
from monitor.evaluation.worlds import WorldChecker
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.sampled import Sampler
from monitor.types import Sampling
from monitor.worlds import Moment

__all__ = ["LinearWorld"]

DRAWS, HORIZON, OFFSET, FEATURES = 1_000, 20, 5, 4
Singles = npt.NDArray[np.float32]
FAR = 2.2


class LinearWorld:
    """x' = A x + b[a] + s z with four numbers, z normal; or a network of 2x64 in place of A x."""

    features = tuple(f"x{n}" for n in range(FEATURES))
    actions = ("0", "1")
    labels = ("far",)
    noise = FEATURES
    version = "benchmark"

    def __init__(self, rng: np.random.Generator, *, hidden: int = 0) -> None:
        self.matrix = np.eye(FEATURES) * 0.9 + rng.normal(size=(FEATURES, FEATURES)) * 0.02
        self.push = np.array([0.15, -0.1])[:, np.newaxis] * np.ones(FEATURES)
        self.layers = [weights(rng, a, b) for a, b in ((FEATURES, hidden), (hidden, hidden), (hidden, FEATURES))]
        self.scale, self.far, self._hidden = 0.3, FAR, hidden

    def _mean(self, x: Floats, a: Ints) -> Floats:
        moved = x @ self.matrix.T + self.push[a]
        if self._hidden:
            moved = moved + 0.1 * through(self.layers, x)
        return np.asarray(moved)

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        """Return the next states."""
        del w
        return np.asarray(self._mean(x, a) + self.scale * ndtri(u))

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Floats:
        """Return the noise of a step."""
        del w
        return np.asarray(ndtr((x_next - self._mean(x[np.newaxis], np.array([a]))[0]) / self.scale))

    def holds(self, label: str, x: Floats) -> Bools:
        """Return where the first number is far."""
        del label
        return np.asarray(x[:, 0] >= self.far)

    def reward(self, x: Floats, a: Ints, x_next: Floats) -> Floats:
        """Return minus the distance of the first number from 0."""
        del x, a
        return np.asarray(-np.abs(x_next[:, 0]))


def weights(rng: np.random.Generator, into: int, out: int) -> Singles:
    """Return the weights of a layer, in single precision, as networks have them."""
    drawn: Singles = (rng.normal(size=(into, out)) / np.sqrt(max(into, 1))).astype(np.float32)
    return drawn


def through(layers: list[Singles], x: Floats) -> Floats:
    """Return the output of a network with tanh between its layers."""
    given = x.astype(np.float32)
    for layer in layers[:-1]:
        given = np.tanh(given @ layer)
    return np.asarray(given @ layers[-1], dtype=np.float64)


def policies(rng: np.random.Generator, hidden: int) -> dict[str, Callable[[Floats], Ints]]:
    """Return the deployed policy, which pushes up, and one that pushes back; by networks if `hidden`."""
    layers = [weights(rng, a, b) for a, b in ((FEATURES, hidden), (hidden, hidden), (hidden, 1))]

    def careful(x: Floats) -> Ints:
        leans = 0.1 * through(layers, x)[:, 0] if hidden else 0.0
        return np.asarray((x[:, 0] + leans > 0.5).astype(np.int64))

    return {"nominal": lambda x: np.zeros(len(x), dtype=np.int64), "careful": careful}


def walked(world: LinearWorld, rng: np.random.Generator, steps: int) -> list[Moment]:
    """Return a path under nominal."""
    state, moments = np.zeros((1, FEATURES)), []
    for _ in range(steps):
        moments.append(Moment(tuple(state[0].tolist()), 0))
        state = world.step(state, np.zeros(1, dtype=np.int64), rng.uniform(size=(1, FEATURES)), np.zeros((1, 0)))
    return moments


def held(world: LinearWorld, careful: Callable[[Floats], Ints], path: list[Moment]) -> tuple[Floats, bool]:
    """Return the state [1, f] to which the other policy has led by now, and whether it was far before."""
    state, none, lost = np.array([path[-1 - OFFSET].state]), np.zeros((1, 0)), False
    for k in range(len(path) - 1 - OFFSET, len(path) - 1):
        lost |= bool(world.holds("far", state)[0])
        noise = world.invert(np.array(path[k].state), 0, np.array(path[k + 1].state), none)
        state = world.step(state, careful(state), noise[np.newaxis], none)
    return state, lost


def plain(world: LinearWorld, careful: Callable[[Floats], Ints], path: list[Moment], rng: np.random.Generator) -> float:
    """Return the same probability by a loop in numpy: one path to now, then `DRAWS` paths beyond."""
    state, before = held(world, careful, path)
    states, none, lost = np.repeat(state, DRAWS, axis=0), np.zeros((1, 0)), np.full(DRAWS, before)
    for _ in range(HORIZON - OFFSET):
        lost |= world.holds("far", states)
        states = world.step(states, careful(states), rng.uniform(size=(DRAWS, FEATURES)), none)
    return float(1.0 - (lost | world.holds("far", states)).mean())


@benchmark("numbers")
def numbers(bench: Bench) -> list[Row]:
    """Measure one formula at offset 5, horizon 20, with 1,000 draws; a step that needs none; draws to decide."""
    rows = []
    for kind, hidden, at_most in (("linear", 0, 0.003), ("networks", 64, 0.012)):
        world, rules = LinearWorld(bench.rng(), hidden=hidden), policies(bench.rng(1), hidden)
        checker, path = WorldChecker(world, rules, {}), walked(world, bench.rng(2), 40)
        goal = parse(f'careful@{OFFSET}.P=? [ G<={HORIZON} !"far" ]')
        assert isinstance(goal, Goal)
        ours = _drawn(checker, goal, path)
        given = np.mean([ours(n) for n in range(20)])
        again = np.mean([plain(world, rules["careful"], path, bench.rng(3 + n)) for n in range(20)])
        agree("value", float(given), float(again), 0.02)
        works = [_repeated(partial(ours, 0)), _repeated(partial(plain, world, rules["careful"], path, bench.rng(9)))]
        mine, theirs = in_turns(works, bench.rounds)
        title = f"value by 1,000 draws after a step, {kind}, 4 features, offset {OFFSET}, horizon {HORIZON}"
        rows.append(absolute(f"numbers/{kind}", title, mine, at_most=at_most, target=f"<= {at_most * 1e3:g} ms"))
        rows.append(compare(f"numbers/{kind}-numpy", title, mine, theirs, peer="plain numpy"))
    return [*rows, _rollouts(bench), *_points(bench), _common(bench)]


def _rollouts(bench: Bench) -> Row:
    """Measure the linear value beside rollouts from now on in a vector environment, which is given the state."""
    world, rules = LinearWorld(bench.rng()), policies(bench.rng(1), 0)
    checker, path = WorldChecker(world, rules, {}), walked(world, bench.rng(2), 40)
    goal = parse(f'careful@{OFFSET}.P=? [ G<={HORIZON} !"far" ]')
    assert isinstance(goal, Goal)
    ours, (state, before) = _drawn(checker, goal, path), held(world, rules["careful"], path)
    assert not before
    theirs = bench.peers.make("peers.vector_env", "VectorRollouts", world, DRAWS, bench.seed)
    works = [_repeated(partial(ours, 0))]
    if not isinstance(theirs, Missing):
        roll = partial(theirs.safe, state[0], rules["careful"], HORIZON - OFFSET)
        agree("value", float(np.mean([ours(n) for n in range(20)])), float(np.mean([roll() for _ in range(5)])), 0.03)
        works.append(Work(lambda: len([roll()])))
    mine, *others = in_turns(works, bench.rounds)
    title = f"the same, linear; the environment starts now, {HORIZON - OFFSET} steps in 1,000 environments"
    peer = "Gymnasium SyncVectorEnv"
    return compare("numbers/linear-gymnasium", title, mine, others[0] if others else theirs, peer=peer)


def _repeated(compute: Callable[[], object]) -> Work:
    def block() -> int:
        for _ in range(4):
            compute()
        return 4

    return Work(block)


def _drawn(checker: WorldChecker, goal: Goal, path: list[Moment]) -> Callable[[int], float]:
    sampler = Sampler(checker.scene, 0)

    def value(first: int) -> float:
        question = sampler.question(goal, path)
        return float(question.outcomes(range(first * DRAWS, (first + 1) * DRAWS)).mean())

    return value


def _points(bench: Bench) -> list[Row]:
    """A formula that is decided inside the window, from scratch at each step."""
    world = LinearWorld(bench.rng())
    world.far = 100.0  # both meet the goal, so no profile is drawn
    checker, path = WorldChecker(world, policies(bench.rng(1), 0), {}), walked(world, bench.rng(2), 60)
    text = f'regret(careful@{OFFSET}, P>=0.9 [ G<={OFFSET - 1} !"far" ])'
    formula, drawn = parse(text), alone(Sampling())

    def block() -> int:
        for n in range(OFFSET + 1, len(path)):
            verdict: Any = checker.verdict(formula, text, path[: n + 1], drawn, engine="auto")
            assert verdict.method == "exact"
        return len(path) - OFFSET - 1

    (mine,) = in_turns([Work(block)], bench.rounds)
    title = f"verdict decided by points alone, two worlds of {OFFSET} steps from scratch"
    return [absolute("numbers/points", title, mine, at_most=30e-6, target="<= 30 us")]


def _common(bench: Bench) -> Row:
    """How many fewer draws an effect takes because both worlds share their noise: a ratio of variances."""
    world = LinearWorld(bench.rng())
    checker, path = WorldChecker(world, policies(bench.rng(1), 0), {}), walked(world, bench.rng(2), 40)
    sampler, goals = Sampler(checker.scene, 0), []
    for who in ("careful", "nominal"):
        goal = parse(f"{who}@{OFFSET}.R=? [ C<={HORIZON} ]")
        assert isinstance(goal, Goal)
        goals.append(sampler.question(goal, path).outcomes(range(100 * DRAWS // (10 if bench.quick else 1))))
    shared, apart = float((goals[0] - goals[1]).var()), float(goals[0].var() + goals[1].var())

    title = "draws for an effect on a reward: independent noise / noise in common"
    ratio = apart / shared if shared else float("inf")
    return Row("numbers/common", title, "aim: >= 5x", 5.0, "at_least", "x", Timing(ratio, ratio, 1), met=ratio >= 5.0)
