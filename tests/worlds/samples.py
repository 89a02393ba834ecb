"""Worlds for tests: a number line, a tank, a basin with fits, linear systems, tables with two mechanisms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from monitor.arrays import Bools, Floats, Ints
from monitor.worlds import Feature
from tests.exact.small import Small

__all__ = [
    "Basin",
    "GumbelTable",
    "InverseTable",
    "Linear",
    "NumberLine",
    "ResampledTank",
    "Tank",
    "number_rule",
    "state_rule",
]


class NumberLine:
    """x' = base + keep x + push[a] + s z, z normal; of the family `whole` rounded half up and clipped to 0..N."""

    actions = ("hold", "push")
    labels = ("hot",)
    noise = 1
    version = "number line"

    def __init__(self, case: dict[str, Any]) -> None:
        self.case, self.whole = case, case["family"] == "whole"
        self.push = np.array(case["push"])
        self.features = (Feature("x", low=0, high=case["N"], whole=True) if self.whole else "x",)

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        moved = self._mean(x, self.push[a][:, np.newaxis]) + self.case["s"] * ndtri(u)
        return np.asarray(np.clip(np.floor(moved + 0.5), 0, self.case["N"]) if self.whole else moved)

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Any:
        mean, s = self._mean(x, self.push[a]), self.case["s"]
        if not self.whole:
            return ndtr((x_next - mean) / s)
        low = np.where(x_next == 0, -np.inf, x_next - 0.5)
        high = np.where(x_next == self.case["N"], np.inf, x_next + 0.5)
        return ndtr((low - mean) / s), ndtr((high - mean) / s)

    def holds(self, label: str, x: Floats) -> Bools:
        return np.asarray(x[:, 0] >= self.case["hot"])

    def _mean(self, x: Floats, push: Floats) -> Floats:
        return np.asarray(self.case["base"] + self.case["keep"] * x + push)


def number_rule(case: dict[str, Any], name: str) -> Callable[[Floats], Ints]:
    """The policy of a number line: a table of the states, or action 1 below a cut."""
    if case["family"] == "whole":
        table = np.array(case[name])
        return lambda x: table[x[:, 0].astype(np.int64)]
    return lambda x: (x[:, 0] < case[f"cut_{name}"]).astype(np.int64)


class Tank:
    """A tank that fills, by as much as it rains, unless the valve is open; the rain is recorded, a leak is noise."""

    features = (Feature("level", unit="m", low=0.0, high=10.0),)
    actions = ("shut", "open")
    labels = ("overflow",)
    inputs = (Feature("rain", low=0.0),)
    noise = 1
    version = "tank 1"

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        return np.clip(x + w - np.where(a == 1, 1.5, 0.0)[:, np.newaxis] - 0.2 * u, 0.0, 10.0)

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Any:
        leak = (x + w - 1.5 * a - x_next) / 0.2
        if x_next[0] == 0.0:
            return np.clip(leak, 0.0, 1.0), np.ones(1)
        if x_next[0] == 10.0:
            return np.zeros(1), np.clip(leak, 0.0, 1.0)
        return leak

    def forecast(self, w: Floats) -> Floats:
        return w

    def holds(self, label: str, x: Floats) -> Bools:
        return x[:, 0] >= 9.0

    def reward(self, x: Floats, a: Ints, x_next: Floats) -> Floats:
        return x_next[:, 0] - x[:, 0]


class ResampledTank(Tank):
    """A tank whose later rain is one of four series that were recorded: it rains every step as much, or in showers."""

    recorded_steps = 40
    series = np.array([[0.1] * 10, [0.8] * 10, [0.0, 1.6] * 5, [2.0, 0.0] * 5])

    def resample(self, w: Floats, ahead: int, u: Floats) -> Floats:
        return np.asarray(self.series[(u * 4).astype(np.int64), (ahead - 1) % 10][:, np.newaxis])


class Linear:
    """x' = A x + b[a] + diag(s) z, z normal; no noise where s is 0 for all. The label is c.x >= h."""

    actions = ("zero", "one")
    labels = ("far",)
    version = "linear"

    def __init__(self, matrix: Floats, push: Floats, scale: Floats, normal: Floats, bound: float) -> None:
        self.matrix, self.push, self.scale, self.normal, self.bound = matrix, push, scale, normal, bound
        self.features = tuple(f"x{n}" for n in range(len(matrix)))
        self.noise = len(matrix) if scale.any() else 0

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        moved = x @ self.matrix.T + self.push[a]
        return moved + self.scale * ndtri(u) if self.noise else moved

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Floats:
        return np.asarray(ndtr((x_next - self.matrix @ x - self.push[a]) / self.scale))

    def holds(self, label: str, x: Floats) -> Bools:
        return np.asarray(x @ self.normal >= self.bound)

    def reward(self, x: Floats, a: Ints, x_next: Floats) -> Floats:
        return x_next @ self.normal


class Basin:
    """x' = keep x + 1.5 - out a + s z; z is normal, but never beyond `reach`. It overflows at 8."""

    features = ("level",)
    actions = ("shut", "open")
    labels = ("overflow",)
    noise = 1
    version = "basin"
    learned = True

    def __init__(self, keep: float, out: float, s: float, reach: float = 8.0, fits: Sequence[Basin] = ()) -> None:
        self.keep, self.out, self.s, self.fits = keep, out, s, fits
        self.ends = ndtr(-reach), ndtr(reach)

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        low, high = self.ends
        return np.asarray(self.mean(x, a[:, np.newaxis]) + self.s * ndtri(low + (high - low) * u))

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Floats:
        low, high = self.ends
        return np.asarray((ndtr((x_next - self.mean(x, np.array([a]))) / self.s) - low) / (high - low))

    def mean(self, x: Floats, a: Ints) -> Floats:
        return np.asarray(self.keep * x + 1.5 - self.out * a)

    def holds(self, label: str, x: Floats) -> Bools:
        return x[:, 0] >= 8.0

    def reward(self, x: Floats, a: Ints, x_next: Floats) -> Floats:
        return x_next[:, 0]


class _Table:
    """A small MDP as a world: its state is a whole number."""

    actions = ("0", "1")
    labels = ("a", "b")

    def __init__(self, small: Small) -> None:
        states = small.setting.states
        self.small, self.states = small, states
        self.rows = np.zeros((states, 2, states))
        for (state, action), row in small.setting.rows.items():
            self.rows[state, action, list(row)] = [float(p) for p in row.values()]
        self.features = (Feature("state", low=0, high=states - 1, whole=True),)
        self.version = type(self).__name__

    def holds(self, label: str, x: Floats) -> Bools:
        return np.isin(x[:, 0], list(self.small.setting.labels[label]))

    def reward(self, x: Floats, a: Ints, x_next: Floats) -> Floats:
        rewards = self.small.setting.rewards
        return np.array([float(rewards[s, b]) for s, b in zip(x[:, 0].astype(int).tolist(), a.tolist(), strict=True)])


class GumbelTable(_Table):
    """Gumbel-Max, whose posterior is drawn: one uniform number for each next state."""

    def __init__(self, small: Small, weighted: bool = False) -> None:  # noqa: FBT001, FBT002
        super().__init__(small)
        self.noise, self.weighted = self.states, weighted

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            scores = np.log(self.rows[x[:, 0].astype(int), a]) - np.log(-np.log(u))
        return np.asarray(scores.argmax(axis=1)[:, np.newaxis], dtype=np.float64)

    def posterior(
        self, x: Floats, a: int, x_next: Floats, w: Floats, rng: np.random.Generator, n: int
    ) -> Floats | tuple[Floats, Floats]:
        row, winner = self.rows[int(x[0]), a], int(x_next[0])
        clocks = rng.exponential(size=(n, self.states))
        clocks[:, winner] *= row[winner]  # the first clock to ring, e / p, is exponential with rate 1
        first = clocks[:, winner] / row[winner]
        others = np.arange(self.states) != winner
        clocks[:, others] += first[:, np.newaxis] * row[others]
        draws = np.clip(np.exp(-clocks), 2.0**-53, 1.0 - 2.0**-53)
        return (draws, np.full(n, 3.0)) if self.weighted else draws


class InverseTable(_Table):
    """The inverse distribution function: one uniform number, and an interval of it for each next state."""

    noise = 1

    def __init__(self, small: Small) -> None:
        super().__init__(small)
        self.ends = self.rows.cumsum(axis=2)
        self.ends[..., -1] = 1.0

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        passed = u > self.ends[x[:, 0].astype(int), a]
        return np.asarray(np.minimum(passed.sum(axis=1), self.states - 1)[:, np.newaxis], dtype=np.float64)

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> tuple[Floats, Floats]:
        ends, state = self.ends[int(x[0]), a], int(x_next[0])
        return ends[state - 1 : state] if state else np.zeros(1), ends[state : state + 1]


def state_rule(policy: Any) -> Callable[[Floats], Any]:
    """A policy of a small MDP, a list of actions or a matrix, as a function of the world's states."""
    table = np.asarray(policy)
    return lambda x: table[x[:, 0].astype(np.int64)]
