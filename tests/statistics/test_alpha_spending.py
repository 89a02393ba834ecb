from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from monitor.errors import ConfigError
from monitor.statistics.alpha_spending import fraction, share_of_stream
from monitor.statistics.equal import EqualOutcome
from monitor.statistics.sprt import Sprt
from monitor.statistics.strength import Strength
from monitor.statistics.threshold import ThresholdBets
from monitor.statistics.tsprt import TSprt
from tests.statistics.random_walk import fate
from tests.statistics.wald import expected_samples

EVEN = Strength(0.05, 0.05)


def test_the_shares_telescope() -> None:
    total = 0.0
    for n in range(1, 3001):
        assert fraction(n) == pytest.approx(1 / math.log2(n + 1) - 1 / math.log2(n + 2), rel=1e-9)
        total += fraction(n)
        assert total == pytest.approx(1 - 1 / math.log2(n + 2), rel=1e-12)
    assert 0 < fraction(10**15) < fraction(10**15 - 10**9)


def test_the_tests_of_a_stream_never_spend_more_than_its_alpha() -> None:
    spent = Fraction(0)
    for n in range(1, 500):
        each = share_of_stream(Strength(0.05, 0.1), n)
        assert each.beta == 0.1
        spent += Fraction(each.alpha / (1 - each.beta))
        assert float(spent) == pytest.approx(0.05 * (1 - 1 / math.log2(n + 2)))
        assert spent < Fraction(0.05)


def test_the_exact_false_alarm_rate_of_a_stream_of_ten_thousand_messages_is_within_its_bound() -> None:
    # Messages whose formula holds by as little as the test can tell. Between the messages computed here the rate of
    # one message only falls, so each stands for all until the next: an upper bound, without any sampling.
    marks = [1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000, 10_000]
    silence = 0.0
    for n, following in zip(marks, [*marks[1:], 10_001], strict=True):
        each = share_of_stream(EVEN, n)
        test = Sprt(0.9, 0.05, each)
        alarm = fate(test, test.sides[1])
        assert alarm.false + alarm.left <= 0.05 * fraction(n)
        # of an SPRT at alpha_n: at most alpha_n, so the rest of the stretch is bounded by its shares
        silence += alarm.false + 0.05 * sum(fraction(k) for k in range(n + 1, following))
    assert silence < 0.05


def test_the_price_is_paid_where_the_formula_fails() -> None:
    late = share_of_stream(EVEN, 10_000)
    early, test = Sprt(0.9, 0.05, Strength(0.05, 0.05)), Sprt(0.9, 0.05, late)
    true, false = early.sides[1], early.sides[0]
    assert expected_samples(test, true) < 1.2 * expected_samples(early, true)
    assert expected_samples(test, false) == pytest.approx(
        expected_samples(early, false) + (math.log(0.05 / late.alpha) * 0.95) / 0.0703, rel=0.1
    )


@pytest.mark.parametrize(
    "test",
    [Sprt(0.9, 0.05, EVEN), TSprt(0.9, 0.2, EVEN, EqualOutcome(0.1, EVEN)), ThresholdBets(0.9, EVEN)],
    ids=["SPRT", "t-SPRT", "betting"],
)
def test_samples_that_run_out_leave_it_undecided_and_a_decision_stays(test: Sprt | TSprt | ThresholdBets) -> None:
    assert np.array_equal(test.decide([1, 0, 1, 0]), (4, 0))
    samples, side = test.decide([1] * 500)
    assert samples < 500
    assert side == 1
    assert np.array_equal(test.decide([1] * int(samples) + [0] * 500), (int(samples), 1))
    none, sides = test.decide(np.empty((3, 0)))
    assert none.tolist() == sides.tolist() == [0, 0, 0]
    taken, sides = test.decide(np.ones((2, 500)))
    assert (taken.tolist(), sides.tolist()) == ([samples] * 2, [1, 1])


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 1"):
        fraction(0)
