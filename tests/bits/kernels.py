"""Digests of the smallest parts: counterfactual rows, bounds of rows, means within bounds, choices, noise.

Rows are drawn many at once, as whole numbers that are divided once: the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from monitor.arrays import Floats, Ints
from monitor.causal import Row, conditional_choices, counterfactual_row, extreme, row_bounds
from monitor.sampled import noise
from tests.bits.digest import Bits

__all__ = ["choices", "clocks", "means", "row_bounds_of_both_classes", "rows", "uniforms", "words"]

SIZES: Final = ((1, 1200), (2, 4000), (3, 4000), (4, 3500), (6, 2500), (8, 2000), (12, 1000), (16, 700), (23, 300),
                (24, 300), (25, 200), (26, 100), (40, 100), (60, 50), (100, 40), (300, 10))  # fmt: skip
"""Lengths of the 20,000 rows of a batch, and how many have each; from 25 entries on they are sorted in another way."""
LARGEST: Final = (1, 2, 9, 1000, 1 << 40)
"""Largest weights of an entry: with small ones, many ratios are equal."""


class Drawn(NamedTuple):
    """Many observed rows, their outcomes, and rows of the counterfactual world; [n, K]."""

    states: Ints
    p: Floats
    outcomes: Ints
    others: Ints
    q: Floats

    def each(self) -> Iterator[tuple[Row, int, Row]]:
        """Yield the rows one by one."""
        for n, outcome in enumerate(self.outcomes.tolist()):
            yield (self.states[n], self.p[n]), outcome, (self.others[n], self.q[n])


def words(chance: random.Random, *shape: int) -> npt.NDArray[np.uint64]:
    """Return random words of 63 bits."""
    count = int(np.prod(shape))
    return np.frombuffer(chance.randbytes(8 * count), "<u8").astype(np.uint64).reshape(shape) >> np.uint64(1)


def _ints(chance: random.Random, below: int, *shape: int) -> Ints:
    return (words(chance, *shape) % np.uint64(below)).astype(np.int64)


def _drawn(seed: int) -> Iterator[Drawn]:
    """Yield 20,000 rows, those of one length together; some with probabilities down to 1e-320."""
    chance = random.Random(seed)
    for size, count in SIZES:
        states, others = _states(chance, count, size), _states(chance, count, size)
        alike = _ints(chance, 3, count, 1) == 0
        others = np.where(alike, states, others)
        weights, other_weights = _weights(chance, count, size), _weights(chance, count, size)
        doubled = weights * (1 + _ints(chance, 2, count, size))  # many ratios are equal
        other_weights = np.where(_ints(chance, 5, count, 1) == 0, doubled, other_weights)
        p, q = _shares(chance, weights), _shares(chance, other_weights)
        outcomes = states[np.arange(count), _ints(chance, size, count)]
        yield Drawn(states, p, outcomes, others, q)


def _states(chance: random.Random, count: int, size: int) -> Ints:
    """Return `size` of 2 * size states, ascending."""
    chosen = np.argsort(words(chance, count, 2 * size), axis=1, kind="stable")[:, :size]
    return np.ascontiguousarray(np.sort(chosen, axis=1), np.int64)


def _weights(chance: random.Random, count: int, size: int) -> Ints:
    largest = np.array(LARGEST, np.uint64)[_ints(chance, len(LARGEST), count, 1)]
    return (words(chance, count, size) % largest).astype(np.int64) + 1


def _shares(chance: random.Random, weights: Ints) -> Floats:
    """Return weights as probabilities; in some rows one of them becomes tiny."""
    count, size = weights.shape
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    scale = np.where(_ints(chance, 20, count) == 0, -_ints(chance, 1063, count), 0)
    at = np.arange(count), _ints(chance, size, count)
    shares[at] = np.maximum(np.ldexp(shares[at], scale if size > 1 else 0), 5e-324)
    return shares


def rows(number: int) -> str:
    """Counterfactual rows in closed form."""
    bits = Bits()
    for drawn in _drawn(1_000 + number):
        bits.numbers([counterfactual_row(*each) for each in drawn.each()])
    return bits.digest


def row_bounds_of_both_classes(number: int) -> str:
    """Bounds of such rows, over all causal models and over the stable ones."""
    bits = Bits()
    for drawn in _drawn(1_000 + number):
        bits.numbers([row_bounds(*each, kind) for each in drawn.each() for kind in ("any", "stable")])
    return bits.digest


def means(number: int) -> str:
    """Least and greatest means of values, some of them equal, over rows within bounds."""
    chance, bits = random.Random(2_000 + number), Bits()
    for drawn in _drawn(1_000 + number):
        count, size = drawn.p.shape
        below = np.where(_ints(chance, 2, count, 1) == 0, 5, 1 << 30)
        values = (words(chance, count, size).astype(np.int64) % below) / below
        parts = np.ldexp(1.0, -_ints(chance, 4, count, 1))
        lower, upper = drawn.p * (1.0 - parts), np.minimum(drawn.p * (1.0 + parts), 1.0)
        within = zip(lower, upper, values, strict=True)
        bits.numbers([extreme(*each, largest=largest) for each in within for largest in (False, True)])
    return bits.digest


def choices(number: int) -> str:
    """Choices of stochastic policies given an observed one."""
    chance, bits = random.Random(3_000 + number), Bits()
    for size in (2, 3, 4, 5, 8, 30):
        weights = _ints(chance, 4, 2, 2_000, size) * (words(chance, 2, 2_000, size) % np.uint64(1000)).astype(np.int64)
        weights[:, :, 0] += 1
        policies = weights / weights.sum(axis=2, keepdims=True)
        actions = _ints(chance, size, 2_000).tolist()
        given = zip(policies[0], actions, policies[1], strict=True)
        bits.numbers([conditional_choices(observed, action, target) for observed, action, target in given])
    return bits.digest


def uniforms(number: int) -> str:
    """Raw noise: whole numbers of 52 bits."""
    chance, bits = random.Random(4_000 + number), Bits()
    keys = np.array([0, 1, 2, 3, 10**12, 2**62, *words(chance, 20).tolist()], np.int64)
    particles = np.arange(500, dtype=np.int64)
    for kind in (noise.STATE, noise.ACTION):
        for step in (0, 1, 2**29):
            bits.numbers(noise.uniforms(chance.getrandbits(64), kind, step, particles, keys))
    return bits.digest


def clocks(number: int) -> str:
    """Noise before and after an observation, and the successors that it selects."""
    chance, bits = random.Random(5_000 + number), Bits()
    for drawn in _drawn(6_000 + number):
        count, size = drawn.p.shape
        states, p, outcome = drawn.states[0], drawn.p[0], int(drawn.outcomes[0])
        evidence = noise.ObservedRow(states, p, outcome, float(p[states == outcome][0]))
        begins, particles = np.arange(0, count * size, size), np.arange(count, dtype=np.int64)
        entries = noise.ParticleRows(begins, begins + size, drawn.others.ravel(), drawn.q.ravel())
        seed, step = chance.getrandbits(64), chance.randrange(1000)
        for kind in (noise.STATE, noise.ACTION):
            bits.numbers(noise.race(seed, kind, step, particles, entries))
            bits.numbers(noise.race(seed, kind, step, particles, entries, evidence))
            bits.numbers(noise.gumbels(seed, kind, step, particles[:20], states))
            bits.numbers(noise.posterior_gumbels(seed, kind, step, particles[:20], states, evidence))
    return bits.digest
