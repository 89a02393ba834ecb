"""The parts of a row's formulas on drawn numbers, beside the same written down plainly."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from monitor.causal.row import align, bound, choose, extreme, greedy, reweigh, row_memory, sort_pairs

Floats = npt.NDArray[Any]
FEW = 24
"""Up to so many, insertion sort is used."""
SIZES = (1, 2, 3, 7, FEW - 1, FEW, FEW + 1, 2 * FEW)


def drawn(seed: int, size: int) -> Floats:
    """Return a distribution with ties."""
    weights = np.random.default_rng(seed).integers(1, 4, size).astype(float)
    shares: Floats = weights / weights.sum()
    return shares


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("largest", [False, True])
def test_the_best_mean_gives_the_remaining_weight_to_the_best(size: int, largest: bool) -> None:  # noqa: FBT001 - a case
    for seed in range(6):
        random = np.random.default_rng(seed)
        lower, extra = drawn(seed, size) * random.choice([0.0, 0.5, 0.9]), random.uniform(0, 3 / size, size)
        upper = np.minimum(lower + extra + (1 - lower.sum()) / size, 1.0)
        values = random.integers(-2, 3, size).astype(float)
        left, expected = 1.0 - lower.sum(), float(lower @ values)
        for k in sorted(range(size), key=lambda k: -values[k] if largest else values[k]):
            given = min(left, upper[k] - lower[k])
            expected += given * values[k]
            left -= given
        assert extreme(lower, upper, values, largest=largest) == pytest.approx(expected, abs=1e-12)
        longer = np.append(values, 99.0 if largest else -99.0)  # what stands behind the row is not of it
        assert greedy(lower, upper, longer, largest, np.empty(size), np.empty(size, dtype=np.int64)) == pytest.approx(
            expected, abs=1e-12
        )


@pytest.mark.parametrize("largest", [False, True])
def test_more_than_a_few_successors_take_the_remaining_weight(largest: bool) -> None:  # noqa: FBT001 - a case
    """All share one half; of the other half each may take an n-th, so the n best do. Values are 0 to size - 1."""
    size, n = 2 * FEW, FEW + 4
    values = np.random.default_rng(0).permutation(size).astype(float)
    lower = np.full(size, 0.5 / size)
    of_all, of_the_least, of_the_most = (size - 1) / 2, (n - 1) / 2, size - 1 - (n - 1) / 2
    expected = 0.5 * of_all + 0.5 * (of_the_most if largest else of_the_least)
    assert extreme(lower, lower + 0.5 / n, values, largest=largest) == pytest.approx(expected)


@pytest.mark.parametrize("size", [3, FEW, FEW + 6])
def test_weight_that_no_successor_may_take_remains(size: int) -> None:
    """Upper bounds that add up to less than 1 by rounding: nothing behind the row is read."""
    upper = np.full(size, (1.0 - 2.0**-30) / size)
    assert extreme(np.zeros(size), upper, np.full(size, 8.0), largest=True) == pytest.approx(8.0)


def test_a_row_that_is_certain_has_its_mean() -> None:
    row = np.array([0.25, 0.0, 0.75])
    assert extreme(row, row, np.array([4.0, 9.0, -8.0]), largest=True) == pytest.approx(-5.0)


@pytest.mark.parametrize("size", [*SIZES, 400])
def test_equal_breaks_stay_in_order(size: int) -> None:
    values = np.random.default_rng(size).integers(0, 5, size).astype(float)
    keys, order = values.copy(), np.arange(size)
    sort_pairs(keys, order, size)
    assert order.tolist() == sorted(range(size), key=lambda n: (values[n], n))
    assert keys.tolist() == sorted(values)


def reweighed(p: Floats, q: Floats, p_outcome: float, at: int) -> Floats:
    result = np.full(len(q), 9.0)
    reweigh(p, q, p_outcome, at, result)
    return result


def by_quadrature(p: Floats, q: Floats, p_outcome: float, at: int) -> Floats:
    """Return the closed form's integrals by the midpoint rule between all breaks."""
    limit = p_outcome / q[at] if at >= 0 else 4000.0
    kept_elsewhere = max(0.0, 1.0 - p.sum())

    def total(u: Floats) -> Floats:
        sums: Floats = kept_elsewhere + np.maximum(p[:, None], u[None, :] * q[:, None]).sum(axis=0)
        return sums

    result = np.zeros(len(q))
    for k in range(len(q)):
        begin = p[k] / q[k]
        if k == at or begin >= limit:
            continue
        ends = sorted({begin, limit, *(x for x in p / q if begin < x < limit)})
        for low, high in pairwise(ends):
            grid = np.geomspace(max(low, 1e-9), high, 4001) if high > 50 else np.linspace(low, high, 4001)
            middle = (grid[1:] + grid[:-1]) / 2
            result[k] += q[k] * float((np.diff(grid) / total(middle) ** 2).sum())
    if at >= 0:
        result[at] = 1.0 / float(total(np.array([limit]))[0])
    return result


@pytest.mark.parametrize("size", [2, 3, 5, FEW + 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_closed_form_is_its_integral(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    p, q = drawn(seed, size), drawn(seed + 50, size)
    p[random.random(size) < 0.3] = 0.0
    p[0] = max(p[0], 0.1)
    p /= p.sum() * random.choice([1.0, 1.25])  # some of it may lie elsewhere
    for at in {-1, 0, int(np.argmax(p))}:
        outcome = p[at] if at >= 0 else 0.2
        found = reweighed(p, q, outcome, at)
        assert found == pytest.approx(by_quadrature(p, q, outcome, at), abs=2e-3)
        assert found.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("at", [-1, 0])
def test_only_the_odds_of_the_counterfactual_row_matter(at: int) -> None:
    for seed in range(4):
        p, q = drawn(seed, 5), drawn(seed + 50, 5)
        p[2] = 0.0
        outcome = p[at] if at >= 0 else 1.0 - p.sum() + 0.1
        assert reweighed(p, 4.0 * q, outcome, at) == pytest.approx(reweighed(p, q, outcome, at), abs=1e-12)


def test_no_overlap_and_nothing_likelier() -> None:
    q = np.array([0.25, 0.75])
    assert reweighed(np.zeros(2), q, 0.5, -1).tolist() == q.tolist()
    tenths = np.full(10, 0.1)  # whose sum is not quite 1
    assert reweighed(np.zeros(10), tenths, 0.5, -1).tolist() == tenths.tolist()
    assert reweighed(np.array([0.5, 0.5]), np.array([0.5, 0.5]), 0.5, 1).tolist() == [0.0, 1.0]


def bounds(p: list[float], q: list[float], p_outcome: float, at: int, stable: bool) -> tuple[list[float], list[float]]:  # noqa: FBT001 - as `bound` has it
    lower, upper = np.full(len(q), 9.0), np.full(len(q), 9.0)
    bound(np.array(p), np.array(q), p_outcome, at, stable, lower, upper)
    return lower.tolist(), upper.tolist()


def test_bounds_by_hand() -> None:
    p, q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
    lower, upper = bounds(p, q, 0.5, 0, stable=False)
    assert upper == pytest.approx([0.5, 1.0, 0.5])
    assert lower == pytest.approx([0.0, 0.0, 0.0])
    lower, upper = bounds(p, q, 0.25, 1, stable=True)  # both others became less likely relative to the outcome
    assert (lower, upper) == ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    lower, upper = bounds(p, q, 0.25, 2, stable=True)  # the first became less likely, the second likelier
    assert upper == pytest.approx([0.0, 1.0, 1.0])
    lower, upper = bounds([0.5, 0.5, 0.0], [0.25, 0.25, 0.5], 0.5, 0, stable=True)  # as likely as before: it stays out
    assert upper == pytest.approx([0.5, 0.0, 1.0])
    assert lower == pytest.approx([0.0, 0.0, 0.5])
    lower, upper = bounds([0.0, 0.0], [0.5, 0.5], 0.5, -1, stable=True)  # nothing shared: nothing is known
    assert (lower, upper) == ([0.0, 0.0], [1.0, 1.0])


def test_a_certain_choice_is_no_evidence() -> None:
    for share in (0.25, 0.1, 0.9):  # the formula would give .9 but for the last bit
        asked = np.array([share, 1.0 - share])
        for observed in ([1.0, 0.0], [0.0, 1.0]):
            result = np.zeros(2)
            choose(np.array(observed), 0, asked, result, row_memory(len(asked)))
            assert result.tolist() == asked.tolist()
    asked = np.array([0.25, 0.75])
    result = np.zeros(2)
    choose(np.array([0.25, 0.75]), 0, asked, result, row_memory(len(asked)))
    assert result.tolist() == [1.0, 0.0]
    sure = np.zeros(2)
    choose(np.array([0.25, 0.75]), 0, np.array([0.0, 1.0]), sure, row_memory(2))
    assert sure.tolist() == [0.0, 1.0]


def test_rows_are_aligned_by_their_states() -> None:
    aligned = np.full(4, 9.0)
    states, p = np.array([1, 3, 6]), np.array([0.25, 0.5, 0.25])
    assert align(states, p, 3, np.array([0, 3, 5, 6]), aligned) == (0.5, 1)
    assert aligned.tolist() == [0.0, 0.5, 0.0, 0.25]
    assert align(states, p, 1, np.array([0, 3, 5, 7]), aligned) == (0.25, -1)
    assert aligned.tolist() == [0.0, 0.5, 0.0, 0.0]
    assert align(states, p, 5, np.array([3]), np.empty(1)) == (0.0, -1)  # no successor of the row


@pytest.mark.parametrize("shared", [1, 3, FEW - 1, FEW, FEW + 1, 40])
@pytest.mark.parametrize("known", [False, True])
def test_a_long_row_in_rational_arithmetic(shared: int, known: bool) -> None:  # noqa: FBT001 - a case
    """Of 60 successors the observed row has some; the sum over pieces of (b - a) / (D(a) D(b)) is exact here."""
    chance = Random(shared)
    q = [Fraction(chance.randint(1, 9)) for _ in range(60)]
    p = [Fraction(0)] * 60
    for k in chance.sample(range(60), shared):
        p[k] = Fraction(chance.randint(1, 9))
    scale = sum(p) * (1 if known else 2)  # half of the observed row lies elsewhere
    p, q = [x / scale for x in p], [x / sum(q) for x in q]
    at = chance.choice([k for k in range(60) if p[k]]) if known else -1
    limit = p[at] / q[at] if known else Fraction(10) ** 30

    def total(u: Fraction) -> Fraction:
        return sum((max(mine, u * other) for mine, other in zip(p, q, strict=True)), 1 - sum(p, Fraction()))

    ends = sorted({limit, *(mine / other for mine, other in zip(p, q, strict=True) if mine / other < limit)})
    of = {end: total(end) for end in ends}
    expected = []
    for k in range(60):
        pieces = [(low, high) for low, high in pairwise(ends) if low >= p[k] / q[k]]
        expected.append(q[k] * sum((high - low) / of[low] / of[high] for low, high in pieces))
    if known:
        expected[at] = 1 / of[limit]
    asked = np.array([float(x) for x in p]), np.array([float(x) for x in q])
    found = reweighed(*asked, float(p[at]) if known else 0.5, at)
    np.testing.assert_allclose(found, [float(x) for x in expected], rtol=1e-11, atol=1e-27)
