"""The short form of `error_rates`: each test here fails of itself with probability 1e-6 at most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.statistics import (
    rates_of_discoveries,
    rates_of_intervals,
    rates_of_model_tests,
    rates_of_tests,
    rates_on_streams,
)
from tests.statistics.error_rates import read
from tests.statistics.rates_as_tables import markdown
from tests.tiers import examples, heavy, scaled, slow

KEPT = Path(__file__).parents[2] / "docs" / "experiments" / "error-rates.csv"


def test_sequential_tests_keep_their_strength_and_walds_size() -> None:
    rows = list(rates_of_tests.sprt_rows(2_000, np.random.default_rng(1)))
    assert [row for row in rows if not row.within(len(rows))] == []
    assert all(row.undecided == 0 for row in rows)
    assert all(0.95 * row.expected < row.samples < 1.25 * row.expected for row in rows if row.expected)


def test_sequential_t_tests_keep_their_strength_on_normal_samples() -> None:
    rows = list(rates_of_tests.tsprt_rows(1_000, np.random.default_rng(2)))
    assert [row for row in rows if not row.within(len(rows))] == []
    assert all(row.undecided == 0 for row in rows)


@slow
def test_betting_keeps_its_strength_on_every_law_and_the_t_test_does_not() -> None:
    """On skewed samples the t-test errs in 13 % where 5 % was asked; at that rate 7.5 % or less has chance 4e-8."""
    rows = list(rates_of_tests.effect_rows(1_000, np.random.default_rng(5), alphas=(0.05,)))
    bets = [row for row in rows if row.limit is not None]
    assert len(bets) == len(rows) / 2 == 14
    assert [row for row in bets if not row.within(len(bets))] == []
    assert max(row.rate for row in rows if row.limit is None) > 1.5 * 0.05


@scaled
def test_bets_without_a_region_keep_their_strength_at_the_bound_itself() -> None:
    rows = list(rates_of_tests.threshold_rows(examples(200, 500), np.random.default_rng(6)))
    assert [row for row in rows if not row.within(len(rows))] == []


def test_combinations_keep_their_strength() -> None:
    rows = list(rates_of_tests.combination_rows(1_000, np.random.default_rng(7)))
    assert [row for row in rows if not row.within(len(rows))] == []
    assert all(row.undecided == 0 for row in rows)


def test_nearly_equal_outcomes_are_seldom_taken_for_equal() -> None:
    rows = list(rates_of_tests.equal_rows(10_000, np.random.default_rng(8)))
    assert [row for row in rows if not row.within(len(rows))] == []


@heavy
def test_intervals_and_sizes_miss_as_seldom_as_they_say() -> None:
    rng = np.random.default_rng(9)
    rows = [
        *rates_of_intervals.size_rows(10_000, rng),
        *rates_of_intervals.interval_rows(2_000, rng),
        *rates_of_intervals.sequence_rows(500, 1_000, rng),
    ]
    assert [row for row in rows if not row.within(len(rows))] == []


@pytest.mark.parametrize("kind", ["SPRT", "betting"])
def test_a_stream_raises_a_false_alarm_as_seldom_as_it_says(kind: str) -> None:
    row = rates_on_streams.stream_row(kind, 300, 100, np.random.default_rng(3))
    assert row.within(2)


def test_without_the_rule_nearly_every_stream_raises_one() -> None:
    row = rates_on_streams.stream_row("SPRT", 100, 200, np.random.default_rng(4), ruled=False)
    assert row.rate > 0.9


@slow
def test_few_data_alone_reject_a_learned_model_as_seldom_as_promised_and_nearly_always_if_taken_as_exact() -> None:
    rows = list(rates_of_model_tests.learned_rows(40, 500, np.random.default_rng(10), sizes=(20, 200)))
    bounds = [row for row in rows if row.limit is not None]
    assert len(bounds) == len(rows) / 2 == 4
    assert [row for row in bounds if not row.within(len(bounds))] == []
    assert min(row.rate for row in rows if row.limit is None and row.where.startswith("grid")) > 0.9


@slow
def test_of_what_is_named_as_little_is_right_as_promised_and_much_more_if_agents_share_noise_in_rows() -> None:
    rows = list(rates_of_discoveries.discovery_rows(60, 200, np.random.default_rng(11)))
    promised = [row for row in rows if row.limit is not None]
    assert len(promised) == 2
    assert [row for row in promised if not row.within(len(promised))] == []
    assert all(row.samples > 1.0 for row in promised)  # what is wrong is named
    assert rows[-1].rate > 0.2


def test_the_kept_measurements_are_within_their_limits_and_those_the_page_shows() -> None:
    rows = read(KEPT)
    assert len(rows) > 100
    assert [row for row in rows if not row.within(len(rows))] == []
    tables = markdown(rows)
    assert KEPT.with_suffix(".md").read_text(encoding="utf-8") == tables
    assert tables in (KEPT.parents[1] / "experiments.md").read_text(encoding="utf-8")
