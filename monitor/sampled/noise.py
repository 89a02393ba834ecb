"""Noise is a pure function of (seed, step, particle, next state). It selects the successors of particles.

A counter-based generator (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) converts a
counter to noise. So no noise is stored, and the order of calls does not matter. Two worlds that are
compared share their noise, because they use the same counters. The noise of a step does not depend on the length of the
path.

The Gumbel-Max mechanism `argmax_j (log q_j + G_j)` is computed as a race of clocks: `e_j = exp(-G_j)` is exponential,
and the smallest `e_j / q_j` wins. Each next state j has one raw exponential x_j. Let i be the observed winner under the
row p. In the top-down posterior, M ~ Gumbel(0), G_i = M - log p_i, and all other values are below M
(docs/semantics/worlds.md, section 4). In terms of clocks this is

    e_i = x_i p_i,     e_j = x_j + x_i p_j  (which is x_j if p_j = 0),

because M = -log x_i is the winner's value, and the clocks of the others continue after the winner's time.

The functions at the end are compiled.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints

STATE, ACTION, POSTERIOR, INPUTS = 0, 1, 2, 3
"""Kinds of noise: for the next state, for the choice of a stochastic policy, for draws from a world's `posterior`, and
for the choice of inputs after the recorded inputs.
"""

LOW = 0xFFFFFFFF
CELL = 2.0**-52
"""Width of the cells into which (0, 1) is divided; a uniform number is the middle of a cell. 52 of 64 bits are used, so
that each middle is a float64 other than 0 and 1."""
INFINITY = float("inf")


class ParticleRows(NamedTuple):
    """The rows of n particles: distinct outcomes `keys[begin:end]`, in any order, with their probabilities."""

    begin: Ints
    end: Ints
    keys: Ints
    probabilities: Floats


class ObservedRow(NamedTuple):
    """The observed row and outcome of a step. If the probability of the outcome is 0, nothing was observed."""

    keys: Ints
    probabilities: Floats
    outcome: int
    probability: float


NOTHING = ObservedRow(np.zeros(0, dtype=np.int64), np.zeros(0), -1, 0.0)


def race(
    seed: int, kind: int, step: int, particles: Ints, entries: ParticleRows, evidence: ObservedRow = NOTHING
) -> Ints:
    """Return the outcome [n] of each particle's row, with the noise of a step, given what was observed at this step.

    Args:
        seed: 0 to 2**64 - 1.
        kind: STATE or ACTION.
        step: number of the step in the episode; used modulo 2**30.
        particles: numbers [n] of the particles, below 2**32.
        entries: the rows of the particles; none is empty.
        evidence: the observed row of the step and its outcome.
    """
    if evidence.probability <= 0.0:
        evidence = NOTHING  # an action of probability 0 gives no information about the noise
    won = np.empty(len(particles), dtype=np.int64)
    begin, end, keys, probabilities = entries
    seen, weights, outcome, p_outcome = evidence
    _race(seed, 4 * step + kind, particles, begin, end, keys, probabilities, seen, weights, outcome, p_outcome, won)
    return won


def uniforms(seed: int, kind: int, step: int, particles: Ints, keys: Ints) -> Floats:
    """Return uniform numbers v [n, k] in (0, 1) for particles [n] and outcomes [k]. Exponentials are -log(1 - v)."""
    drawn = np.empty((len(particles), len(keys)))
    _uniforms(seed, 4 * step + kind, particles, keys, drawn)
    return drawn


def gumbels(seed: int, kind: int, step: int, particles: Ints, keys: Ints) -> Floats:
    """Return prior noise G [n, k] of a step."""
    noise: Floats = -np.log(-np.log1p(-uniforms(seed, kind, step, particles, keys)))
    return noise


def posterior_gumbels(seed: int, kind: int, step: int, particles: Ints, keys: Ints, evidence: ObservedRow) -> Floats:
    """Return noise G [n, k] of a step given its observed row and outcome, for pictures and tests."""
    clocks: Floats = -np.log1p(-uniforms(seed, kind, step, particles, keys))
    if evidence.probability > 0.0:
        outcome = np.array([evidence.outcome])
        first = -np.log1p(-uniforms(seed, kind, step, particles, outcome))
        p = np.array([evidence.probabilities[evidence.keys == key].sum() for key in keys])
        clocks = np.where(keys == evidence.outcome, first * p, clocks + first * p)
    noise: Floats = -np.log(clocks)
    return noise


# ---- compiled ----


def philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Return four 32-bit words of Philox4x32-10, from a counter of four words and a key of two words."""
    low, m0, m1, w0, w1 = 0xFFFFFFFF, 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85  # constants in C too
    for _ in range(10):
        zero, two = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (two >> 32) ^ c1 ^ k0, two & low, (zero >> 32) ^ c3 ^ k1, zero & low
        k0, k1 = (k0 + w0) & low, (k1 + w1) & low
    return c0, c1, c2, c3


def _pair(seed: int, step: int, particle: int, block: int) -> tuple[float, float]:
    """Return the uniform numbers of the outcomes 2 * block and 2 * block + 1, from one counter."""
    high = (block >> 32) & (LOW >> 1)  # `block` has 63 of the 64 bits of an outcome
    a, b, c, d = philox(block & LOW, high, step & LOW, particle & LOW, seed & LOW, seed >> 32)
    even, odd = ((a << 32) | b) >> 12, ((c << 32) | d) >> 12
    return (even + 0.5) * CELL, (odd + 0.5) * CELL


def _uniforms(seed: int, step: int, particles: Ints, keys: Ints, drawn: Floats) -> None:
    even, odd, held = 0.0, 0.0, 0
    for n in range(len(particles)):
        particle, fresh = int(particles[n]), True
        for k in range(len(keys)):
            key = int(keys[k])
            if fresh or key >> 1 != held:
                held, fresh = key >> 1, False
                even, odd = _pair(seed, step, particle, held)
            drawn[n, k] = odd if key & 1 else even


def _race(
    seed: int,
    step: int,
    particles: Ints,
    begin: Ints,
    end: Ints,
    keys: Ints,
    probabilities: Floats,
    seen: Ints,
    weights: Floats,
    outcome: int,
    p_outcome: float,
    won: Ints,
) -> None:
    even, odd, held = 0.0, 0.0, 0
    for n in range(len(particles)):
        particle, fresh = int(particles[n]), True
        q_outcome, first, best, winner = 0.0, 0.0, INFINITY, -1
        if p_outcome > 0.0:
            for k in range(begin[n], end[n]):
                if keys[k] == outcome:
                    q_outcome = probabilities[k]
            held, fresh = outcome >> 1, False
            even, odd = _pair(seed, step, particle, held)
            first = -math.log(1.0 - (odd if outcome & 1 else even))
            if q_outcome > 0.0:
                best, winner = first * p_outcome / q_outcome, outcome
        here = 0
        for k in range(begin[n], end[n]):
            key, q = int(keys[k]), probabilities[k]
            if q <= 0.0 or (key == outcome and p_outcome > 0.0):
                continue
            if here and seen[here - 1] >= key:
                here = 0  # needed if outcomes are not ascending
            while here < len(seen) and seen[here] < key:
                here += 1
            p = weights[here] if here < len(seen) and seen[here] == key else 0.0
            if p > 0.0 and q_outcome * p >= q * p_outcome:
                continue  # counterfactual stability; tested explicitly, so that rounding cannot break it
            if fresh or key >> 1 != held:
                held, fresh = key >> 1, False
                even, odd = _pair(seed, step, particle, held)
            v = odd if key & 1 else even
            if winner >= 0 and v >= best * q - first * p:
                continue  # -log(1 - v) >= v, so the logarithm is not needed
            time = (first * p - math.log(1.0 - v)) / q
            if winner < 0 or time < best:
                best, winner = time, key
        won[n] = winner
