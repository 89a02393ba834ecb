"""The confidence set of learned rows holds as often as it says, with a look after every draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from tests.oracle.confidence import Floats, interval, log_evidence, row_box, share, unseen
from tests.tiers import examples, scaled

Ints = npt.NDArray[np.int64]
FALSE_ALARM = 1e-6  # of each simulation, if the rate of failures is exactly delta
MODELS = examples(200, 1500)
DRAWS = 400
ROWS = {
    "even": [0.25] * 4,
    "rare": [0.9] + [0.1 / 39] * 39,
    "all rare": [1 / 60] * 60,
    "steep": [0.5**k for k in range(1, 12)] + [0.5**11],
    "certain": [1.0],
    "nearly": [0.995, 0.005],
}


def test_the_shares_sum_to_less_than_one() -> None:
    """The rest beyond n is below the integral of 1 / (x ln(x)^2) from n + 1 on, which is 1 / ln(n + 1)."""
    n = np.arange(1, 2_000_000)
    total = share(n).sum() + 1 / (2.11 * np.log(n[-1] + 1))
    assert 0.999 < total < 1


@pytest.mark.parametrize(("successes", "draws"), [(0, 1), (1, 1), (0, 50), (50, 50), (3, 10), (1, 4000), (3999, 4000)])
@pytest.mark.parametrize("alpha", [0.5, 0.01, 1e-9])
def test_the_interval_is_where_the_evidence_is_small(successes: int, draws: int, alpha: float) -> None:
    low, high = interval(successes, draws, alpha)
    for p in np.linspace(0, 1, 2001)[1:-1]:
        if min(abs(p - low), abs(p - high)) > 1e-12:
            assert (low < p < high) == (log_evidence(p, successes, draws) < -np.log(alpha))
    assert (low == 0) == (successes == 0)
    assert (high == 1) == (successes == draws)


def test_no_draws_say_nothing() -> None:
    assert interval(0, 0, 0.01) == (0.0, 1.0)
    assert row_box({4: (1, 0)}, 1, 9, 0.05) == {4: (0.0, 1.0), 9: (0.0, 1.0)}


def test_a_row_by_hand() -> None:
    """Draws 3 5 5 3 3: after the first 3 two of four draws gave 3, after the first 5 one of three gave 5."""
    box = row_box({5: (2, 3), 3: (3, 4)}, 2, 7, 0.05)
    part = 0.05 * share(2) / 2
    assert box[3] == interval(2, 4, part * share(1))
    assert box[5] == interval(1, 3, part * share(2))
    assert box[7] == pytest.approx((0.0, 1 - (part * share(2)) ** (1 / 3)))


@pytest.mark.parametrize("alpha", [0.2, 0.02])
@pytest.mark.parametrize("p", [0.003, 0.05, 0.3, 0.5])
def test_one_interval_fails_within_many_draws_as_rarely_as_it_says(p: float, alpha: float) -> None:
    """Exactly: the probability of every count so far while no look has failed, draw by draw."""
    draws = 1500
    alive, failed = np.array([1.0]), 0.0
    for n in range(1, draws + 1):
        alive = np.concatenate([alive * (1 - p), [0.0]]) + np.concatenate([[0.0], alive * p])
        out = log_evidence(p, np.arange(n + 1), n) > -np.log(alpha)
        failed += alive[out].sum()
        alive[out] = 0.0
    assert alpha / 20 < failed <= alpha  # the bound is not idle either


def test_the_bound_on_unseen_mass_fails_as_rarely_as_it_says() -> None:
    """It fails at the first number of draws whose bound is below the mass, if all of them stayed out of it."""
    for mass in np.linspace(0.001, 0.999, 400):
        for alpha in (0.3, 0.01):
            draws = np.arange(0, 8000)
            first = int(np.argmax(unseen(draws, alpha) < mass))
            assert (1 - mass) ** first <= alpha * (1 + 1e-9)
            assert (1 - mass) ** (first - 1) >= alpha * (1 - 1e-9)


@scaled
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("delta", [0.5, 0.05])
def test_no_look_at_any_row_fails_more_often_than_delta(name: str, delta: float) -> None:
    """Models of three equal rows, drawn from at random: after each draw every bound of every row is compared."""
    failures = simulated(np.array(ROWS[name]), 3, delta, random=np.random.default_rng(len(name)))
    assert failures <= binom.ppf(1 - FALSE_ALARM, MODELS, delta)


@scaled
def test_the_simulation_notices_intervals_that_are_too_short() -> None:
    """Every interval with all of delta, instead of its part of it."""
    random = np.random.default_rng(3)
    failures = simulated(np.array(ROWS["rare"]), 3, 0.05, random=random, part=lambda n: np.ones(np.shape(n)))
    assert failures > binom.ppf(1 - FALSE_ALARM, MODELS, 0.05)


def simulated(
    p: Floats, rows: int, delta: float, *, random: np.random.Generator, part: Callable[[Any], Any] = share
) -> int:
    """Return in how many of MODELS models any bound of any row is wrong after any draw.

    Arrays are [model, row, successor]; a model draws one of its rows at a time.
    """
    shape = MODELS, rows, len(p)
    visits, since, place = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    ranks = np.zeros(shape[:2], dtype=np.int64)
    wrong = np.zeros(MODELS, dtype=np.bool_)
    each = np.arange(MODELS)
    for _ in range(DRAWS):
        row = random.integers(rows, size=MODELS)
        drawn = random.choice(len(p), size=MODELS, p=p)
        first = ranks[each, row] == 0
        ranks[each[first], row[first]] = ranks.max(axis=1)[first] + 1
        since[each, row] += visits[each, row] > 0
        new = visits[each, row, drawn] == 0
        place[each[new], row[new], drawn[new]] = (place[each, row] > 0).sum(axis=1)[new] + 1
        visits[each, row, drawn] += 1
        counts = visits[each, row], since[each, row], place[each, row]
        wrong |= failed(p, counts, delta * part(ranks[each, row]), part)
    return int(wrong.sum())


def failed(
    p: Floats, counts: tuple[Ints, Ints, Ints], delta: Floats, part: Callable[[Any], Any]
) -> npt.NDArray[np.bool_]:
    """Return in which models the row just drawn from has a wrong bound, [model]; the other rows are as before."""
    visits, since, place = counts
    seen = place > 0
    alpha = delta[:, None] * part(np.maximum(place, 1)) / 2
    too_far = seen & (log_evidence(p, np.maximum(visits - 1, 0), since) > -np.log(alpha))
    known = seen.sum(axis=1)
    fresh = np.where(place == known[:, None], since, 0).max(axis=1)
    missing = np.where(seen, 0.0, p).sum(axis=1)
    bound = unseen(fresh, delta * part(known) / 2)
    wrong: npt.NDArray[np.bool_] = too_far.any(axis=1) | (missing > bound)
    return wrong
