"""Samplers of the Gumbel-Max causal model: exact rows are compared with them in time and value.

All draw worlds that agree with the observed path and follow the alternative policy from its first pair on, and return
the fraction of them in which `unsafe` is avoided for `horizon` steps (Kazemi & Paoletti, Sections 2.3 and 4). They are
fast: worlds are exchangeable, so only their number in each state is kept; a step draws for all worlds in a state at
once, for the successors alone and not for every state; decided worlds are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model import MDP

__all__ = ["Counting", "Rejection", "TopDown", "sample_size"]


Z95 = 1.959963984540054
MAX_DRAWN = 4_000_000
"""Numbers drawn at once; more would exceed the cache, and memory on rare transitions."""


def sample_size(error: float, p: float = 0.5) -> int:
    """Return the number of worlds for an estimate within `error` at 95 % (normal bound); p = .5 is the worst case."""
    return max(1, math.ceil(Z95**2 * p * (1.0 - p) / error**2 - 1e-9))


class TopDown:
    """Top-down sampler of the posterior noise, as a race of exponential clocks.

    The winner i of the observed row p has time W ~ Exp(1); clock j rings Exp(p_j) later, if p_j > 0.
    Under the counterfactual row q the times are (W p_j + E_j) / q_j with E_j ~ Exp(1), and E_i = 0.
    """

    def __init__(self, model: MDP, actions: Ints, horizon: int, rng: np.random.Generator) -> None:
        self.model, self.actions, self.horizon, self.rng = model, actions, horizon, rng
        self.clear = ~model.labels["unsafe" if "unsafe" in model.labels else "death"]
        self.dense = np.zeros(model.states)

    def estimate(self, pairs: Sequence[tuple[int, int]], count: int) -> float:
        """Return the fraction of `count` worlds safe from `pairs[0]` on; the last pair's outcome is unknown."""
        counts = np.zeros(self.model.states, dtype=np.int64)
        counts[pairs[0][0]] = count
        for offset in range(self.horizon):
            counts *= self.clear
            observed = (pairs[offset], pairs[offset + 1][0]) if offset + 1 < len(pairs) else None
            counts = self.advanced(counts, observed)
        return int(counts[self.clear].sum()) / count

    def advanced(self, counts: Ints, observed: tuple[tuple[int, int], int] | None) -> Ints:
        """Advance all worlds by one step."""
        after = np.zeros_like(counts)
        states, p = np.zeros(0, dtype=np.int64), np.zeros(0)
        if observed is not None:
            states, p = self.model.row(*observed[0])
            self.dense[states] = p
        for state in np.flatnonzero(counts).tolist():
            action = int(self.actions[state])
            successors, q = self.model.row(state, action)
            p_here = self.dense[successors]
            if len(successors) == 1:
                after[successors[0]] += counts[state]
            elif observed is not None and (state, action) == observed[0]:
                after[observed[1]] += counts[state]
            elif observed is None or not p_here.any():
                after[successors] += self.plain(q, int(counts[state]))
            else:
                won = self.drawn((states, p), observed[1], (successors, q, p_here), int(counts[state]))
                after[successors] += np.bincount(won, minlength=len(successors))
        self.dense[states] = 0.0
        return after

    def plain(self, q: Floats, count: int) -> Ints:
        """Return the number of `count` worlds that move to each successor under prior noise."""
        times = self.rng.standard_exponential((len(q), count)) / q[:, None]
        return np.bincount(times.argmin(axis=0), minlength=len(q))

    def drawn(self, _observed: tuple[Ints, Floats], outcome: int, row: tuple[Ints, Floats, Floats], count: int) -> Ints:
        """Return the index of the next state in the row, for each of `count` worlds."""
        successors, q, p = row
        times = self.rng.standard_exponential((len(q), count))
        times[successors == outcome] = 0.0
        near = np.flatnonzero(p)
        times[near] += np.multiply.outer(p[near], self.rng.standard_exponential(count))
        times /= q[:, None]
        won: Ints = times.argmin(axis=0)
        return won


class Counting(TopDown):
    """Sampler with one multinomial draw for all worlds in a state where the observation is irrelevant.

    It is irrelevant beyond the path, and for rows that have no successor in common with the observed one. This is the
    best sampler known to us for goals that depend on the current state only.
    """

    def plain(self, q: Floats, count: int) -> Ints:
        """Return the number of `count` worlds that move to each successor."""
        return self.rng.multinomial(count, q / q.sum())


class Rejection(Counting):
    """Rejection sampler, as in the paper: draw prior noise, discard what contradicts the observed transition."""

    def drawn(self, observed: tuple[Ints, Floats], outcome: int, row: tuple[Ints, Floats, Floats], count: int) -> Ints:
        """Return the index of the next state in the row, for each of `count` worlds."""
        (states, p), (successors, q, _) = observed, row
        union = np.union1d(states, successors)
        log_p, log_q = np.full(len(union), -np.inf), np.full(len(union), -np.inf)
        log_p[np.searchsorted(union, states)] = np.log(p)
        places = np.searchsorted(union, successors)
        log_q[places] = np.log(q)
        wanted = int(np.searchsorted(union, outcome))
        chance = float(p[states == outcome][0])
        kept: list[Ints] = []
        missing = count
        while missing > 0:
            tries = min(math.ceil(missing / chance * 1.02) + 16, max(1, MAX_DRAWN // len(union)))
            noise = self.rng.gumbel(size=(len(union), tries))
            right = (noise + log_p[:, None]).argmax(axis=0) == wanted
            winners = (noise[:, right] + log_q[:, None]).argmax(axis=0)[:missing]
            kept.append(np.searchsorted(places, winners))
            missing -= len(winners)
        return np.concatenate(kept)
