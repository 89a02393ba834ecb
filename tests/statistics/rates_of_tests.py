"""How often each sequential test errs, alone and in Boolean combinations, and how many samples it takes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict
from itertools import product

import numpy as np
from numpy.typing import NDArray

from monitor.statistics.combine import Conjunction, Disjunction, Leaf, Negation, Tree, evaluate, strengths
from monitor.statistics.equal import EqualOutcome
from monitor.statistics.region import RegionBets
from monitor.statistics.sprt import Sprt
from monitor.statistics.strength import Strength
from monitor.statistics.threshold import ThresholdBets
from monitor.statistics.tsprt import TSprt
from tests.statistics.measured import Row, bounded_laws, coin, edge, play
from tests.statistics.random_walk import fate
from tests.statistics.wald import expected_samples

REGION = 0.02
"""Half-width of the betting test's region: of 1, the range of one probability."""
DEVIATION = 0.1
"""Half-width of the t-test's region, in standard deviations: its default."""
World = Mapping[Hashable, bool]
"""Leaf -> its truth."""
A, B, C, D = (Leaf(key) for key in "abcd")
TREES: Mapping[str, Tree] = {
    "a & b & c": Conjunction((A, B, C)),
    "a | b | c": Disjunction((A, B, C)),
    "!(a & (b | !c))": Negation(Conjunction((A, Disjunction((B, Negation(C)))))),
    "(a => b) & !(c | d)": Conjunction((Disjunction((Negation(A), B)), Negation(Disjunction((C, D))))),
    "a <=> b": Conjunction((Disjunction((Negation(A), B)), Disjunction((Negation(B), A)))),
}


def sprt_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Both edges, beside Wald's expected sample size."""
    for theta, delta, alpha, beta in [(0.5, 0.1, 0.05, 0.05), (0.9, 0.05, 0.05, 0.05), (0.9, 0.05, 0.01, 0.1)]:
        test = Sprt(theta, delta, Strength(alpha, beta))
        for p, true, limit in [(test.sides[1], True, alpha), (test.sides[0], False, beta)]:
            what = f"SPRT theta={theta} delta={delta} <{alpha},{beta}>"
            row = edge(what, test, coin(p, rng), true=true, limit=limit, runs=runs)
            walk = fate(test, p)
            exact = walk.false if true else walk.true
            yield Row(**asdict(row) | {"expected": expected_samples(test, p), "exact": exact})


def tsprt_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Both edges, on normal samples, where the strength is proven."""
    for delta, alpha, beta in [(0.2, 0.05, 0.05), (0.5, 0.05, 0.05), (0.2, 0.01, 0.1)]:
        strength = Strength(alpha, beta)
        test = TSprt(3.0, delta, strength)
        for sign, true, limit in [(1, True, alpha), (-1, False, beta)]:
            mean = 3.0 + sign * delta * 2.0

            def normal(n: int, m: int, mean: float = mean) -> NDArray[np.float64]:
                return rng.normal(mean, 2.0, (n, m))

            yield edge(f"t-SPRT normal delta={delta} <{alpha},{beta}>", test, normal, true=true, limit=limit, runs=runs)


def effect_rows(runs: int, rng: np.random.Generator, alphas: tuple[float, ...] = (0.05, 0.01)) -> Iterator[Row]:
    """Both tests of an effect, each at the edges of its own region, on laws that are not normal."""
    for law in bounded_laws(rng):
        for alpha in alphas:
            strength = Strength(alpha, alpha)
            for true in (True, False):
                sign = -1.0 if true else 1.0
                bets = RegionBets(law.mean + sign * REGION, REGION, strength, -1.0, 1.0)
                yield edge(f"betting, {law.name} <{alpha},{alpha}>", bets, law.draw, true=true, limit=alpha, runs=runs)
                theta = law.mean + sign * DEVIATION * law.deviation
                paper = TSprt(theta, DEVIATION, strength, EqualOutcome(0.01, strength))
                yield edge(f"t-SPRT, {law.name} <{alpha},{alpha}>", paper, law.draw, true=true, limit=None, runs=runs)


def threshold_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """The betting test of a stream, where the mean is the bound itself: then each answer is an error."""
    for law in bounded_laws(rng):
        test = ThresholdBets(law.mean, Strength(0.05, 0.05), -1.0, 1.0)
        samples, sides = play(test, law.draw, runs, block=128, limit=2048)
        for side, where in ((-1, "at: says false"), (1, "at: says true")):
            errors, left = int((sides == side).sum()), int((sides == 0).sum())
            what = f"betting, no region, {law.name} <0.05,0.05>"
            yield Row(what, where, runs, errors, errors / runs, 0.05, left, float(samples.mean()))


def equal_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """All equal though no value has more than 1 - delta: the most such a value may have."""
    for delta, alpha, beta in [(0.01, 0.05, 0.05), (0.02, 0.01, 0.1)]:
        needed = EqualOutcome(delta, Strength(alpha, beta)).needed
        lasted = rng.geometric(delta, runs) > needed - 1  # the first names the value; then come so many equal ones
        errors, exact = int(lasted.sum()), (1 - delta) ** (needed - 1)
        what = f"equal outcomes delta={delta} <{alpha},{beta}>"
        yield Row(what, "not equal", runs, errors, errors / runs, beta / (1 - alpha), 0, float(needed), exact=exact)


def combination_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Combinations of Wald's tests, each leaf at the edge of its region, in the world where errors are likeliest."""
    whole = Strength(0.05, 0.05)
    for name, tree in TREES.items():
        for true in (True, False):
            world = _worst(tree, whole, true=true)
            errors, undecided, samples = _combined(tree, whole, world, runs, rng)
            held = ", ".join(f"{key} {'true' if holds else 'false'}" for key, holds in world.items())
            yield Row(f"combination {name}", held, runs, errors, errors / runs, 0.05, undecided, samples)


def _combined(tree: Tree, whole: Strength, world: World, runs: int, rng: np.random.Generator) -> tuple[int, int, float]:
    """Errors, undecided ones and the mean number of samples of all leaves together."""
    needed, sides, samples = strengths(tree, whole), {}, 0.0
    for key, holds in world.items():
        test = Sprt(0.8, 0.05, needed[key].guarded)
        taken, sides[key] = play(test, coin(test.sides[1 if holds else 0], rng), runs, block=128, limit=1 << 14)
        samples += float(taken.mean())
    truth = {1: True, -1: False, 0: None}
    told = [evaluate(tree, {key: truth[int(sides[key][run])] for key in world}) for run in range(runs)]
    right = evaluate(tree, world)
    return sum(answer is not None and answer is not right for answer in told), told.count(None), samples


def _worst(tree: Tree, whole: Strength, *, true: bool) -> World:
    """Return the truth of the leaves at which the whole errs most often, if each leaf errs as its strength allows."""
    needed = strengths(tree, whole)
    worlds = [dict(zip(needed, each, strict=True)) for each in product([True, False], repeat=len(needed))]
    return max((world for world in worlds if evaluate(tree, world) is true), key=lambda w: _risk(tree, needed, w))


def _risk(tree: Tree, needed: Mapping[Hashable, Strength], world: World) -> float:
    risk, right = 0.0, evaluate(tree, world)
    for wrong in product([False, True], repeat=len(world)):
        weight = 1.0
        said: dict[Hashable, bool | None] = {}
        for (key, holds), errs in zip(world.items(), wrong, strict=True):
            rate = needed[key].alpha if holds else needed[key].beta
            weight *= rate if errs else 1.0 - rate
            said[key] = holds != errs
        risk += weight * (evaluate(tree, said) is not right)
    return risk
