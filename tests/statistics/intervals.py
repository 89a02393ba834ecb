"""Rows with bounds for tests, and a slow counterpart of the bets against them, which shares no code with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.statistics.interval_odds import Bounds

__all__ = ["BoundedRow", "SlowWealth", "arguments", "drawn_row", "greatest_mean", "slow_pays"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BoundedRow:
    """`entries`: successor -> (expected, lower, upper). `new`: that for all others; or `GIVEN`, or `NO_DATA`."""

    entries: dict[int, tuple[float, float, float]]
    new: int

    @property
    def columns(self) -> Floats:
        """Expected, lower, upper: [3, K]."""
        return np.array(list(self.entries.values())).T


def arguments(rows: Sequence[BoundedRow]) -> tuple[list[int], list[int], list[float], Bounds]:
    """Return the rows as `FleetTest` takes them."""
    starts = [0, *itertools.accumulate(len(row.entries) for row in rows)]
    successors = [successor for row in rows for successor in row.entries]
    expected, lower, upper = np.concatenate([row.columns for row in rows], axis=1).tolist()
    new = [
        row.new if row.new < 0 else start + list(row.entries).index(row.new)
        for row, start in zip(rows, starts[:-1], strict=True)
    ]
    return starts, successors, expected, Bounds(lower, upper, new)


def drawn_row(rng: np.random.Generator, size: int) -> BoundedRow:
    """Return a row whose bounds hold some distribution, not always what is expected; the last entry is for others."""
    inside, expected = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    lower = inside * rng.choice([0.0, 0.5, 0.9], size)
    upper = inside + (1 - inside) * rng.choice([0.02, 0.3, 1.0], size)
    entries = zip(expected.tolist(), lower.tolist(), upper.tolist(), strict=True)
    return BoundedRow(dict(enumerate(entries)), size - 1)


def greatest_mean(values: Floats, lower: Floats, upper: Floats) -> float:
    """Return the greatest mean of values [K] over the distributions within the bounds."""
    chances, left = lower.copy(), 1.0 - lower.sum()
    for k in np.argsort(-values):
        more = min(upper[k] - lower[k], left)
        chances[k] += more
        left -= more
    return float(chances @ values)


def slow_pays(bet: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return what a bet pays at each entry, with the opponent by bisection."""
    q = bet / bet.sum()
    if ((lower <= q) & (q <= upper)).all():
        return np.ones(len(q))
    low, high = 0.0, float((upper / q).max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if np.clip(middle * q, lower, upper).sum() > 1.0 else (middle, high)
    pays: Floats = q / np.clip(high * q, lower, upper)
    return pays


class SlowWealth:
    """The wealth of one agent alone, by definition: each bet of each start on its own, over the whole stream at once.

    For streams in which no row is left more than 256 times.
    """

    def __init__(self, rows: Sequence[BoundedRow], impossible: float) -> None:
        self.rows, self.impossible = rows, impossible
        self.counts = [np.zeros(len(row.entries)) for row in rows]
        self.steps = self.new = 0
        self.pays: list[list[float]] = []

    def step(self, row: int, successor: int) -> None:
        bounded = self.rows[row]
        if bounded.new < 0:
            self._given(row, successor)
            return
        names = list(bounded.entries)
        place = names.index(successor if successor in bounded.entries else bounded.new)
        expected, lower, upper = bounded.columns
        bets = [32 * expected + self.counts[row], np.sqrt(expected), expected**2]
        learned, flatter, sharper = (float(slow_pays(bet, lower, upper)[place]) for bet in bets)
        unrecorded = names.index(bounded.new)
        others = np.arange(len(names)) != unrecorded
        most = min(upper[unrecorded], 1 - lower[others].sum())
        rate = max((32 * expected[unrecorded] + self.new) / (32 + self.steps), most)
        news = rate / most if place == unrecorded else 1.0 if most == 1.0 else (1 - rate) / (1 - most)
        self.steps += 1
        self.new += place == unrecorded
        self.counts[row][place] += 1
        self.pays.append([learned, learned, flatter, sharper, news, news])

    def _given(self, row: int, successor: int) -> None:
        entries = self.rows[row].entries
        if successor not in entries:
            self.pays.append([1.0, 1.0, 1.0, 1.0, 10.0, 100.0])
            return
        place, p = list(entries).index(successor), self.rows[row].columns[0]
        learned, flatter, sharper = (
            bet[place] / bet.sum() / p[place] for bet in (32 * p + self.counts[row], np.sqrt(p), p**2)
        )
        calm = [(1 - times * self.impossible) / (1 - self.impossible) for times in (10, 100)]
        self.counts[row][place] += 1
        self.pays.append([learned, learned, flatter, sharper, *calm])

    def wealth(self, part: Callable[[int], float]) -> float:
        """Return the wealth; `part`: of the bet that begins at a step, from 1."""
        pays = np.array(self.pays)
        idle = 1.0 - sum(part(t) for t in range(1, len(pays) + 1))
        after = np.cumprod(pays[::-1], axis=0)[::-1]  # of a bet that begins at step t: the product from t on
        return idle + float(sum(part(t + 1) * after[t].mean() for t in range(len(pays))))
