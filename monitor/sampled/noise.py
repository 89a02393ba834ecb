"""Noise as a pure function of (seed, step, particle, next state), and the successors it selects.

A counter-based generator (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a
counter into noise, so that nothing is stored or enumerated and no order of calls matters: two worlds that are compared
share their noise because they use the same counters, and a step's noise does not depend on the length of the path.

The Gumbel-Max mechanism `argmax_j (log q_j + G_j)` is kept as a race of clocks: `e_j = exp(-G_j)` is exponential, and
the first of `e_j / q_j` wins. With raw exponentials x_j, one for each next state, the top-down posterior given that i
won under the row p (docs/semantics.md, section 4: M ~ Gumbel(0), G_i = M - log p_i, the others below M) reads

    e_i = x_i p_i,     e_j = x_j + x_i p_j  (which is x_j where p_j = 0),

since M = -log x_i is the winner's value, and the others are raced from then on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Array, Floats, Ints, Words
from monitor.jit import compiled

__all__ = [
    "ACTION",
    "NOTHING",
    "STATE",
    "Entries",
    "Evidence",
    "gumbels",
    "philox",
    "posterior_gumbels",
    "race",
    "uniforms",
]


STATE, ACTION = 0, 1
"""Kinds of noise: for the next state, for the choice of a stochastic policy."""

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW, WORD, ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)
SPARE = np.uint64(12)
"""52 of 64 bits are used: then the middle of each cell, never 0 nor 1, is a float64."""
CELL = 2.0**-52


class Entries(NamedTuple):
    """The rows of n particles: outcomes `keys[begin:end]`, in any order and each once, with their probabilities."""

    begin: Ints
    end: Ints
    keys: Ints
    probabilities: Floats


class Evidence(NamedTuple):
    """The observed row and outcome of a step. Probability 0: no observation."""

    keys: Ints
    probabilities: Floats
    outcome: int
    probability: float


NOTHING = Evidence(np.zeros(0, dtype=np.int64), np.zeros(0), -1, 0.0)


def race(seed: int, kind: int, step: int, particles: Ints, entries: Entries, evidence: Evidence = NOTHING) -> Ints:
    """Return the outcome [n] of each particle's row, by the noise of a step given what was observed there.

    Args:
        seed: 0 to 2**64 - 1.
        kind: STATE or ACTION.
        step: its number in the episode; counted modulo 2**30.
        particles: [n], below 2**32.
        entries: their rows, none of them empty.
        evidence: the observed row of the step and its outcome.
    """
    if evidence.probability <= 0.0:
        evidence = NOTHING  # an action off-policy says nothing about the noise
    won = np.empty(len(particles), dtype=np.int64)
    _race(
        (np.uint64(seed), np.uint64(4 * step + kind)),
        particles,
        (entries.begin, entries.end, _read_only(entries.keys), _read_only(entries.probabilities)),
        (_read_only(evidence.keys), _read_only(evidence.probabilities)),
        (evidence.outcome, evidence.probability),
        won,
    )
    return won


def uniforms(seed: int, kind: int, step: int, particles: Ints, keys: Ints) -> Floats:
    """Return the raw uniforms v [n, k] in (0, 1) of particles [n] and outcomes [k]; exponentials are -log(1 - v)."""
    drawn = np.empty((len(particles), len(keys)))
    _uniforms((np.uint64(seed), np.uint64(4 * step + kind)), particles, keys, drawn)
    return drawn


def gumbels(seed: int, kind: int, step: int, particles: Ints, keys: Ints) -> Floats:
    """Return prior noise G [n, k] of a step."""
    noise: Floats = -np.log(-np.log1p(-uniforms(seed, kind, step, particles, keys)))
    return noise


def posterior_gumbels(seed: int, kind: int, step: int, particles: Ints, keys: Ints, evidence: Evidence) -> Floats:
    """Return noise G [n, k] of a step given its observed row and outcome, for pictures and tests."""
    clocks: Floats = -np.log1p(-uniforms(seed, kind, step, particles, keys))
    if evidence.probability > 0.0:
        outcome = np.array([evidence.outcome])
        first = -np.log1p(-uniforms(seed, kind, step, particles, outcome))
        p = np.array([evidence.probabilities[evidence.keys == key].sum() for key in keys])
        clocks = np.where(keys == evidence.outcome, first * p, clocks + first * p)
    noise: Floats = -np.log(clocks)
    return noise


def _read_only(array: Array) -> Array:
    """A view that cannot be written through: one kind of argument, so that one function is compiled."""
    view = array.view()
    view.flags.writeable = False
    return view


# ---- compiled ----


@compiled
def philox(counter: Words, key: Words) -> Words:
    """Philox4x32-10: four words of 32 bits from a counter of four and a key of two."""
    return np.array(_philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1]))


@compiled
def _philox(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    for _ in range(10):
        one, other = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (other >> WORD) ^ c1 ^ k0, other & LOW, (one >> WORD) ^ c3 ^ k1, one & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


@compiled
def _pair(stream: tuple[np.uint64, np.uint64], particle: int, block: np.uint64) -> tuple[float, float]:
    """The uniforms of two neighbouring outcomes, 2 * block and 2 * block + 1, which one counter gives."""
    seed, step = stream
    a, b, c, d = _philox(block & LOW, block >> WORD, step & LOW, np.uint64(particle) & LOW, seed & LOW, seed >> WORD)
    even, odd = ((a << WORD) | b) >> SPARE, ((c << WORD) | d) >> SPARE
    return (np.float64(even) + 0.5) * CELL, (np.float64(odd) + 0.5) * CELL


@compiled
def _uniforms(stream: tuple[np.uint64, np.uint64], particles: Ints, keys: Ints, drawn: Floats) -> None:
    for n in range(len(particles)):
        for k in range(len(keys)):
            even, odd = _pair(stream, particles[n], np.uint64(keys[k]) >> ONE)
            drawn[n, k] = odd if keys[k] & 1 else even


@compiled
def _race(
    stream: tuple[np.uint64, np.uint64],
    particles: Ints,
    entries: tuple[Ints, Ints, Ints, Floats],
    observed: tuple[Ints, Floats],
    known: tuple[int, float],
    won: Ints,
) -> None:
    begin, end, keys, probabilities = entries
    seen, weights = observed
    outcome, p_outcome = known
    held, even, odd = np.uint64(0), 0.0, 0.0
    for n in range(len(particles)):
        fresh = True
        q_outcome, first, best, winner = 0.0, 0.0, np.inf, -1
        if p_outcome > 0.0:
            for k in range(begin[n], end[n]):
                if keys[k] == outcome:
                    q_outcome = probabilities[k]
            even, odd = _pair(stream, particles[n], np.uint64(outcome) >> ONE)
            held, fresh = np.uint64(outcome) >> ONE, False
            first = -np.log(1.0 - (odd if outcome & 1 else even))
            if q_outcome > 0.0:
                best, winner = first * p_outcome / q_outcome, outcome
        here = 0
        for k in range(begin[n], end[n]):
            key, q = keys[k], probabilities[k]
            if q <= 0.0 or (key == outcome and p_outcome > 0.0):
                continue
            if here and seen[here - 1] >= key:
                here = 0  # outcomes that do not ascend
            while here < len(seen) and seen[here] < key:
                here += 1
            p = weights[here] if here < len(seen) and seen[here] == key else 0.0
            if p > 0.0 and q_outcome * p >= q * p_outcome:
                continue  # counterfactual stability; said here, rounding cannot break it
            block = np.uint64(key) >> ONE
            if fresh or block != held:
                even, odd = _pair(stream, particles[n], block)
                held, fresh = block, False
            v = odd if key & 1 else even
            if winner >= 0 and v >= best * q - first * p:
                continue  # since -log(1 - v) >= v, without the logarithm
            time = (first * p - np.log(1.0 - v)) / q
            if winner < 0 or time < best:
                best, winner = time, key
        won[n] = winner
