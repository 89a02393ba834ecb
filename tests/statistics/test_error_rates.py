"""The short form of `error_rates`: each test here fails of itself with probability 1e-6 at most."""

from __future__ import annotations

import numpy as np
import pytest

from tests.statistics import error_rates


def test_sequential_tests_keep_their_strength_and_walds_size() -> None:
    rows = list(error_rates.sprt_rows(2_000, np.random.default_rng(1)))
    assert [row for row in rows if not row.within(len(rows))] == []
    assert all(row.undecided == 0 for row in rows)
    assert all(0.95 * row.expected < row.samples < 1.25 * row.expected for row in rows if row.expected)


def test_sequential_t_tests_keep_their_strength() -> None:
    rows = list(error_rates.tsprt_rows(1_000, np.random.default_rng(2)))
    assert [row for row in rows if not row.within(len(rows))] == []
    assert all(row.undecided == 0 for row in rows)


@pytest.mark.parametrize("kind", ["SPRT", "betting"])
def test_a_stream_raises_a_false_alarm_as_seldom_as_it_says(kind: str) -> None:
    row = error_rates.stream_row(kind, 300, 100, np.random.default_rng(3))
    assert row.within(2)


def test_without_the_rule_nearly_every_stream_raises_one() -> None:
    row = error_rates.stream_row("SPRT", 100, 200, np.random.default_rng(4), ruled=False)
    assert row.rate > 0.9
