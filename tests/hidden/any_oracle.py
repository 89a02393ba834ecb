"""Oracle: the probability to reach a bad state in a counterfactual world with hidden states, over causal models.

It computes the outer bounds over every causal model, by linear programs, and the exact value under one causal model
that is given by the joint distributions of its rows. It is plain recursion over tiny models, for policies without
memory; nothing of the engine is in it.

`k` counts the pairs from the one at which the intervention begins; `d` is the last pair. Arrays: `rows` [H, A, H],
`emissions` [H, O], `initial` [H].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations, pairwise, product
from typing import Any, Literal

import numpy as np
from scipy.optimize import linprog

import monitor

Array = Any
Pair = tuple[int | None, int | None]


@dataclass(frozen=True)
class Acting:
    """A policy: `choice` [z, A], where z is the observation, or the state if `sees_state`."""

    choice: Array
    sees_state: bool = False

    def at(self, state: int, shown: int) -> Array:
        return self.choice[state if self.sees_state else shown]


@dataclass(frozen=True)
class Question:
    """`new@offset.P=? [ F<=horizon "bad" ]` on a path; `steps`: of the takeover, None: for good."""

    rows: Array
    emissions: Array
    initial: Array
    bad: int
    path: tuple[Pair, ...]
    offset: int
    horizon: int
    acted: Acting
    new: Acting
    steps: int | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        return (*self.rows.shape[:2], self.emissions.shape[1])

    def pair(self, k: int) -> Pair:
        return self.path[len(self.path) - 1 - self.offset + k]

    def shows(self, pair: Pair) -> Sequence[int]:
        return range(self.sizes[2]) if pair[0] is None else [pair[0]]

    def acts(self, pair: Pair) -> Sequence[int]:
        return range(self.sizes[1]) if pair[1] is None else [pair[1]]

    @cached_property
    def filtered(self) -> tuple[list[Array], list[bool]]:
        """The unnormalised belief before each pair, and whether the agent deviates at it."""
        before, deviated = [self.initial], list[bool]()
        for pair in self.path:
            weights, after = before[-1], np.zeros(len(self.initial))
            each = [*product(range(len(weights)), self.shows(pair), self.acts(pair))]
            deviated.append(not sum(weights[h] * self.emissions[h, o] * self.acted.at(h, o)[a] for h, o, a in each))
            for h, o, a in each:
                factor = 1.0 if deviated[-1] else self.acted.at(h, o)[a]
                after = after + weights[h] * self.emissions[h, o] * factor * self.rows[h, a]
            before.append(after)
        return before, deviated

    @property
    def before(self) -> Array:
        return self.filtered[0][len(self.path) - 1 - self.offset]

    def factor(self, k: int, h: int, o: int, a: int) -> float:
        """Return the probability with which the policy that acted takes `a`; 1 if the agent deviates."""
        return 1.0 if self.filtered[1][len(self.path) - 1 - self.offset + k] else float(self.acted.at(h, o)[a])

    @cached_property
    def likelihood(self) -> Array:
        """[d + 2, H]: the probability of all pairs from k on."""
        found = np.ones((self.offset + 2, len(self.initial)))
        for k in range(self.offset, -1, -1):
            for h in range(len(self.initial)):
                found[k, h] = sum(
                    self.emissions[h, o] * self.factor(k, h, o, a) * (self.rows[h, a] @ found[k + 1])
                    for o, a in product(self.shows(self.pair(k)), self.acts(self.pair(k)))
                )
        return found

    def law(self, k: int) -> Acting:
        return self.new if self.steps is None or k < self.steps else self.acted

    def decisions(self, k: int, true: tuple[int, int, int], x: int, seen: int) -> Array:
        """Return the distribution [A] of the counterfactual action, given the true state, observation and action."""
        h, o, a = true
        if self.law(k) is self.acted and x == h:
            return np.eye(self.sizes[1])[a]
        q = self.law(k).at(x, seen)
        return q if self.filtered[1][len(self.path) - 1 - self.offset + k] else same_noise(self.acted.at(h, o), a, q)

    def decided(self, k: int, x: int) -> bool | None:
        if k <= self.horizon and x == self.bad:
            return True
        return False if k >= self.horizon else None

    @cached_property
    def later(self) -> list[Array]:
        """[k][H]: the value beyond the path, with fresh noise."""
        states, actions, shown = self.sizes
        found = [np.zeros(states)]
        for k in range(max(self.horizon, self.offset) + 1, -1, -1):
            found.append(np.zeros(states))
            for x in range(states):
                truth = self.decided(k, x)
                each = product(range(shown), range(actions))
                found[-1][x] = (
                    truth
                    if truth is not None
                    else sum(
                        self.emissions[x, o] * self.law(k).at(x, o)[a] * (self.rows[x, a] @ found[-2]) for o, a in each
                    )
                )
        return found[::-1]


def same_noise(p: Array, i: int, q: Array) -> Array:
    """Return the distribution under q with the Gumbel noise with which p gave i; docs/semantics/worlds.md, 3.1."""
    limit = p[i] / q[i] if q[i] > 0 else np.inf

    def total(u: float) -> float:
        return float(np.maximum(p, u * q).sum())

    found = np.zeros(len(q))
    if q[i] > 0:
        found[i] = 1 / total(limit)
    for y in np.flatnonzero(q):
        begin = p[y] / q[y]
        if y == i or begin >= limit:
            continue
        cuts = sorted({begin, limit} | {p[z] / q[z] for z in np.flatnonzero(q) if begin < p[z] / q[z] < limit})
        for low, high in pairwise(cuts):
            part = 1 / (q.sum() * total(low)) if np.isinf(high) else (high - low) / (total(low) * total(high))
            found[y] += q[y] * part
    return found


def transport(p: Array, q: Array, gain: Array, *, largest: bool) -> float:
    """Return the least or the largest sum of J * gain over the couplings J of p and q, by a linear program."""
    scale = float(np.abs(gain).max())
    if scale == 0.0:
        return 0.0
    sign, (m, n) = (-1.0 if largest else 1.0), gain.shape
    margins = np.vstack([np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))])
    found = linprog(sign * gain.ravel() / scale, A_eq=margins[:-1], b_eq=np.concatenate([p, q])[:-1], method="highs")
    assert found.status == 0, found.message
    return sign * float(found.fun) * scale


def with_rare(rng: np.random.Generator, size: int, rare: float) -> Array:
    """Return a distribution some of whose outcomes have a probability of about `rare`."""
    found = rng.dirichlet(np.ones(size))
    found[: rng.integers(size)] *= rare
    return rng.permutation(found / found.sum())


def cheapest_vertex(p: Array, q: Array, cost: Array) -> float:
    """Return the least sum of J * cost over the couplings J of p and q, in rational numbers: over all vertices."""
    supply, demand = ([Fraction(each) for each in part.tolist()] for part in (p, q))
    supply[int(np.argmax(p))] += 1 - sum(supply)
    demand[int(np.argmax(q))] += 1 - sum(demand)
    found = []
    for cells in combinations(np.ndindex(cost.shape), len(p) + len(q) - 1):
        left, remaining, total = {0: [*supply], 1: [*demand]}, {*cells}, Fraction(0)
        while remaining:  # a cell that is alone in its row or column has all that is left there
            alone = [(c, side) for c in remaining for side in (0, 1) if sum(c[side] == d[side] for d in remaining) == 1]
            if not alone or left[alone[0][1]][alone[0][0][alone[0][1]]] < 0:
                break  # a cycle, or not a coupling
            cell, side = alone[0]
            amount = left[side][cell[side]]
            for each in (0, 1):
                left[each][cell[each]] -= amount
            total += amount * Fraction(float(cost[cell]))
            remaining.remove(cell)
        if not remaining and not any(left[0]) and not any(left[1]):
            found.append(total)
    return float(min(found))


Couple = Callable[[Literal["move", "show"], int, tuple[int, ...], tuple[int, ...], Array], float]
"""Mean of a gain [K, K] over the outcomes of two different rows at step k."""


def evaluated(question: Question, couple: Couple) -> float:
    """Return the value, if `couple` returns the mean of the gain of two rows at a step."""
    states, _, shown = question.sizes
    rows, emissions, d = question.rows, question.emissions, question.offset

    @cache
    def arrive(k: int, h: int, x: int) -> float:
        truth = question.decided(k, x)
        if truth is not None:
            return float(question.likelihood[k, h]) * truth
        gain = np.zeros((shown, shown))
        for o, seen in product(question.shows(question.pair(k)), range(shown)):
            gain[o, seen] = act(k, h, x, o, seen)
        return float(emissions[h] @ np.diag(gain)) if h == x else couple("show", k, (h,), (x,), gain)

    def act(k: int, h: int, x: int, o: int, seen: int) -> float:
        return sum(
            factor * float(chance) * move(k, h, a, x, b)
            for a in question.acts(question.pair(k))
            if (factor := question.factor(k, h, o, a)) > 0
            for b, chance in enumerate(question.decisions(k, (h, o, a), x, seen))
            if chance > 0
        )

    @cache
    def move(k: int, h: int, a: int, x: int, b: int) -> float:
        if k == d:
            return float(rows[x, b] @ question.later[d + 1])
        if (h, a) == (x, b):
            return sum(float(rows[h, a, y]) * arrive(k + 1, y, y) for y in range(states) if rows[h, a, y] > 0)
        gain = np.array([[arrive(k + 1, y, z) for z in range(states)] for y in range(states)])
        return couple("move", k, (h, a), (x, b), gain)

    before, evidence = question.before, float(question.before @ question.likelihood[0])
    return sum(float(before[h]) * arrive(0, h, h) for h in np.flatnonzero(before)) / evidence


def row_of(question: Question, kind: str, which: tuple[int, ...]) -> Array:
    return question.rows[which] if kind == "move" else question.emissions[which]


def bounds(question: Question) -> tuple[float, float]:
    """Return the outer bounds over every causal model."""

    def over(*, largest: bool) -> float:
        def couple(kind: str, _: int, one: tuple[int, ...], other: tuple[int, ...], gain: Array) -> float:
            return transport(row_of(question, kind, one), row_of(question, kind, other), gain, largest=largest)

        return evaluated(question, couple)

    return over(largest=False), over(largest=True)


def value(question: Question, causal: Causal) -> float:
    """Return the value under one causal model."""

    def couple(kind: str, k: int, one: tuple[int, ...], other: tuple[int, ...], gain: Array) -> float:
        return float((causal.joint(kind, k, one, other) * gain).sum())

    return evaluated(question, couple)


class Gumbel:
    """The Gumbel-Max causal model."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def joint(self, kind: str, k: int, one: tuple[int, ...], other: tuple[int, ...]) -> Array:
        del k
        p, q = row_of(self._question, kind, one), row_of(self._question, kind, other)
        return np.array([p[i] * same_noise(p, i, q) if p[i] > 0 else np.zeros(len(q)) for i in range(len(p))])


class InverseCdf:
    """A causal model in which all rows read one uniform number per step through inverse distribution functions.

    The order of the outcomes is random for each row and step; `mixed` such models, with random weights.
    """

    def __init__(self, question: Question, rng: np.random.Generator, mixed: int) -> None:
        self._question, self._rng, self._weights = question, rng, rng.dirichlet(np.ones(mixed))
        self._orders: dict[tuple[object, ...], Array] = {}

    def joint(self, kind: str, k: int, one: tuple[int, ...], other: tuple[int, ...]) -> Array:
        total: Array = 0.0
        for n, weight in enumerate(self._weights):
            (p, first), (q, second) = (self._inverse(kind, k, n, which) for which in (one, other))
            cuts = np.unique(np.concatenate([[0.0], p, q]))
            joint, middles = np.zeros((len(p), len(q))), (cuts[1:] + cuts[:-1]) / 2
            places = first[np.searchsorted(p, middles)], second[np.searchsorted(q, middles)]
            np.add.at(joint, places, np.diff(cuts))
            total = total + weight * joint
        return total

    def _inverse(self, kind: str, k: int, n: int, which: tuple[int, ...]) -> tuple[Array, Array]:
        """Return the distribution function, and the order of the outcomes."""
        row, key = row_of(self._question, kind, which), (kind, k, n, which)
        if key not in self._orders:
            self._orders[key] = self._rng.permutation(len(row))
        ends = np.cumsum(row[self._orders[key]])
        ends[-1] = 1.0
        return ends, self._orders[key]


Causal = Gumbel | InverseCdf


def some_question(
    rng: np.random.Generator, *, zeros: float = 0.15, sizes: tuple[int, int, int] | None = None
) -> Question:
    """Return a random question; its path was simulated, and some parts of it are missing.

    `sizes`: the numbers of states, actions and observations.
    """
    states, actions, shown = sizes or (int(n) for n in rng.integers(2, 4, size=3))

    def rows(*shape: int) -> Array:
        raw = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
        raw[(rng.random(raw.shape) < zeros) & (raw < raw.max(axis=-1, keepdims=True))] = 0.0
        return raw / raw.sum(axis=-1, keepdims=True)

    def acting() -> Acting:
        sees_state = bool(rng.random() < 0.4)
        choice = rows(states if sees_state else shown, actions)
        if rng.random() < 0.4:
            choice = np.eye(actions)[rng.integers(actions, size=len(choice))]
        return Acting(choice, sees_state)

    moves, emissions, initial = rows(states, actions, states), rows(states, shown), rows(1, states)[0]
    acted, new, offset = acting(), acting(), int(rng.integers(4))

    def walk() -> Iterator[Pair]:
        h = int(rng.choice(states, p=initial))
        for _ in range(offset + 1 + int(rng.integers(2))):
            o = int(rng.choice(shown, p=emissions[h]))
            a = int(rng.choice(actions, p=acted.at(h, o)) if rng.random() < 0.9 else rng.integers(actions))
            yield None if rng.random() < 0.2 else o, None if rng.random() < 0.2 else a
            h = int(rng.choice(states, p=moves[h, a]))

    horizon, steps = int(rng.integers(1, offset + 3)), int(rng.integers(3)) if rng.random() < 0.3 else None
    bad = int(rng.integers(states))
    return Question(moves, emissions, initial, bad, tuple(walk()), offset, horizon, acted, new, steps)


def about(question: Question) -> dict[str, Any]:
    """Return the question as arguments of `monitor.check` and of the referee."""

    def policy(acting: Acting) -> monitor.Policy:
        return monitor.Policy(acting.choice, sees="state" if acting.sees_state else "observation")

    def listed(array: Array) -> list[tuple[Any, ...]]:
        return [(*index, array[index]) for index in np.ndindex(array.shape) if array[index] > 0]

    states, actions, shown = question.sizes
    model = monitor.MDP.from_transitions(
        states=states,
        actions=actions,
        transitions=listed(question.rows),
        labels={"bad": [question.bad]},
        initial={h: chance for h, chance in enumerate(question.initial) if chance > 0},
        signals=shown,
        emissions=listed(question.emissions),
    )
    takeover = "" if question.steps is None else f"[{question.steps}]"
    return {
        "query": f'new{takeover}@{question.offset}.P=? [ F<={question.horizon} "bad" ]',
        "model": model,
        "path": question.path,
        "policies": {"nominal": policy(question.acted), "new": policy(question.new)},
    }
