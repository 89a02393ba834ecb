"""e-BH against another implementation, and the inequality that its false discovery rate rests on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_fdr.e_values import e_bh
from scipy.integrate import quad

from monitor.statistics.e_bh import LEVEL, adjusted, discoveries

EVALUES = st.lists(st.floats(0.0, 1e6, allow_subnormal=False), max_size=12)


@given(EVALUES, st.sampled_from([0.01, LEVEL, 0.3]))
def test_with_equal_weights_it_rejects_what_another_implementation_does(values: list[float], level: float) -> None:
    rejected = discoveries([value / len(values) for value in values], level)
    expected = {place for place, named in enumerate(e_bh(values, level)) if named}
    for place in expected.symmetric_difference(rejected):  # only where a comparison is one of equals, but for rounding
        rank = len(expected | set(rejected))
        assert values[place] * level * rank == pytest.approx(len(values), rel=1e-12)


@given(EVALUES, st.integers(0, 2**32))
def test_weights_are_as_if_each_e_value_were_that_much_larger(values: list[float], seed: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(values) + 1))[:-1]
    weighted = [float(w * e) for w, e in zip(weights, values, strict=True)]
    expected = e_bh([each * len(values) for each in weighted], LEVEL) if values else []
    assert set(discoveries(weighted)) == {place for place, named in enumerate(expected) if named}


@given(EVALUES, st.sets(st.integers(0, 11)))
def test_the_fraction_rejected_wrongly_is_at_most_the_level_times_the_evidence_there(
    weighted: list[float], right: set[int]
) -> None:
    rejected = discoveries(weighted)
    wrongly = sum(place in right for place in rejected) / max(1, len(rejected))
    evidence = sum(value for place, value in enumerate(weighted) if place in right)
    assert wrongly <= LEVEL * evidence * (1.0 + 1e-12)


def test_those_with_the_strongest_evidence_come_first() -> None:
    assert discoveries([30.0, 0.1, 50.0, 40.0]) == [2, 3, 0]
    assert discoveries([]) == []


def test_the_highest_value_of_an_e_process_is_adjusted_to_an_e_value() -> None:
    """P(the highest value is x or more) is 1/x at most; with that tail the mean of the adjusted value is 1."""
    mean, _ = quad(lambda u: adjusted(math.exp(u)) * math.exp(-u), 0.0, 400.0, limit=500)
    assert mean == pytest.approx(1.0, abs=1e-6)
    values = [adjusted(value) for value in (0.0, 0.5, 1.0, 10.0, 1e6)]
    assert values == sorted(values)
    assert values[:2] == [0.0, 0.0]
