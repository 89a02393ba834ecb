"""Bets against rows with bounds: no row within the bounds makes them profitable, and none could pay more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from monitor.statistics.betting_odds import AdaptiveBet
from monitor.statistics.interval_odds import (
    GIVEN,
    NO_DATA,
    UNRECORDED_CELL,
    Bounds,
    IntervalLearner,
    IntervalOdds,
    against,
)
from tests.statistics.intervals import BoundedRow, arguments, drawn_row, slow_pays


def random_cases() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    cases = []
    for size in (1, 2, 3, 5, 9) * 40:
        _, lower, upper = drawn_row(rng, size).columns
        cases.append((rng.dirichlet(np.ones(size)) * rng.choice([1.0, 7.0, 300.0]), lower, upper))
    return cases


def pays(bet: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    lower, upper, turns = lower.copy(), upper.copy(), np.zeros((2, 2 * len(bet)))
    return np.array([against(bet, lower, upper, place, turns) for place in range(len(bet))])


def test_no_distribution_within_the_bounds_makes_a_bet_profitable() -> None:
    outside = 0
    for bet, lower, upper in random_cases():
        paid = pays(bet, lower, upper)
        best = linprog(-paid, A_eq=[np.ones(len(bet))], b_eq=[1.0], bounds=list(zip(lower, upper, strict=True)))
        assert -best.fun == pytest.approx(1.0, abs=1e-9)  # attained: by the nearest row
        outside += bool((paid != 1.0).any())
    assert outside > 100


def test_the_opponent_is_the_nearest_distribution_within_the_bounds() -> None:
    for bet, lower, upper in random_cases()[:60]:
        q = bet / bet.sum()
        start = lower + (upper - lower) * (1 - lower.sum()) / max((upper - lower).sum(), 1e-300)
        nearest = minimize(
            lambda p, q=q: float(q @ np.log(q / np.maximum(p, 1e-12))),
            start,
            bounds=list(zip(lower, upper, strict=True)),
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        growth = float(q @ np.log(pays(bet, lower, upper)))
        assert growth == pytest.approx(nearest.fun, abs=1e-5)


def test_pays_are_those_of_the_slow_counterpart() -> None:
    for bet, lower, upper in random_cases():
        np.testing.assert_allclose(pays(bet, lower, upper), slow_pays(bet, lower, upper), rtol=1e-9)


def test_a_bet_within_the_bounds_neither_wins_nor_loses() -> None:
    lower, upper = np.array([0.4, 0.4]), np.array([0.6, 0.6])
    for bet in ([4.0, 6.0], [50.0, 50.0], [6.0, 4.0]):
        assert pays(np.array(bet), lower, upper).tolist() == [1.0, 1.0]


def test_bounds_that_leave_one_distribution_give_the_odds_of_that_row() -> None:
    p, bet = np.array([0.2, 0.3, 0.5]), np.array([1.0, 1.0, 2.0])
    assert pays(bet, p, p) == pytest.approx([0.25 / 0.2, 0.25 / 0.3, 0.5 / 0.5])


ROWS = [
    BoundedRow({0: (0.6, 0.5, 0.7), 4: (0.3, 0.25, 0.4), 9: (0.1, 0.0, 0.2)}, 9),
    BoundedRow({1: (0.25, 0.25, 0.25), 2: (0.75, 0.75, 0.75)}, GIVEN),
    BoundedRow({9: (1.0, 1.0, 1.0)}, NO_DATA),
]


def test_every_successor_that_was_never_recorded_has_the_same_entry() -> None:
    odds = IntervalOdds(*arguments(ROWS))
    found = [odds.find(0, successor) for successor in (0, 4, 9, 1, 7, 12, UNRECORDED_CELL)]
    assert [transition and transition.index for transition in found] == [0, 1, 2, 2, 2, 2, 2]
    again = odds.find(0, 7)
    assert again is odds.find(0, 7)
    assert odds.find(1, 0) is None
    assert odds.find(1, UNRECORDED_CELL) is None


def test_of_two_entries_of_the_same_state_the_recorded_one_is_found() -> None:
    odds = IntervalOdds([0, 3], [0, 9, 9], [0.5, 0.1, 0.4], Bounds([0.2, 0.0, 0.2], [0.8, 0.2, 0.6], [1]))
    assert [odds.find(0, successor).index for successor in (0, 9, 3)] == [0, 2, 1]  # type: ignore[union-attr]


def test_the_bets_without_counts_are_powers_of_what_is_expected() -> None:
    odds = IntervalOdds(*arguments(ROWS))
    expected, lower, upper = ROWS[0].columns
    for successor, place in ((0, 0), (4, 1), (5, 2)):
        found = odds.find(0, successor)
        assert found is not None
        assert found.flatter == pytest.approx(slow_pays(np.sqrt(expected), lower, upper)[place])
        assert found.sharper == pytest.approx(slow_pays(expected**2, lower, upper)[place])
    assert odds.find(0, 4).flatter != 1.0  # type: ignore[union-attr]
    assert odds.find(0, 4).sharper != 1.0  # type: ignore[union-attr]


def test_given_rows_have_the_odds_of_a_model_that_is_not_learned() -> None:
    starts, successors, expected, bounds = arguments(ROWS)
    odds = IntervalOdds(starts, successors, expected, bounds)
    found = odds.find(1, 2)
    assert found is not None
    assert (found.odds, found.flatter) == (1 / 0.75, 1 / (0.75**0.5 * (0.25**0.5 + 0.75**0.5)))
    learner, plain = odds.learner(10), AdaptiveBet(odds, 10)
    assert isinstance(learner, IntervalLearner)
    for each in (learner, plain):
        each.load({found.index: 1})
    assert learner.ratio(found) == plain.ratio(found) != 1.0


def test_what_is_known_only_up_to_bounds_is_cut_off_from_above_by_the_bounds_of_the_others() -> None:
    odds = IntervalOdds(*arguments(ROWS))
    assert odds.most(0) == 0.2
    tight = [BoundedRow({0: (0.6, 0.5, 0.8), 4: (0.3, 0.4, 0.5), 9: (0.1, 0.0, 0.2)}, 9)]
    assert IntervalOdds(*arguments(tight)).most(0) == pytest.approx(0.1)


def test_the_odds_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.statistics.betting_odds.MAX_TRANSITIONS", 2)
    odds = IntervalOdds(*arguments([ROWS[0]] * 5))
    made = [odds.find(row, 4) for row in range(5)]
    assert odds.find(4, 4) is made[4]
    assert all(odds.find(row, 4) is not made[row] for row in range(3))
    again = odds.find(0, 4)
    assert again is not None
    assert [each and (each.odds, each.flatter, each.sharper) for each in made] == [
        (again.odds, again.flatter, again.sharper)
    ] * 5
