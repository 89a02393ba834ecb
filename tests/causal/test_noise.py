"""The closed form against real Gumbel noise: draw, keep the draws that explain the observation, look what they do.

Every count is compared by an exact binomial test. All comparisons of this file together raise a false alarm with
probability at most 1e-6 (Bonferroni over the number of comparisons made); the seed is fixed.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
from scipy.stats import binomtest

from monitor.causal import counterfactual_row
from tests.causal.rows import as_row

PAIRS, DRAWS, STATES = 40, 40_000, 4
FALSE_ALARM = 1e-6


def random_distribution(chance: Random) -> dict[int, Fraction]:
    support = sorted(chance.sample(range(STATES), chance.randint(1, STATES)))
    weights = [chance.randint(1, 5) for _ in support]
    return {state: Fraction(weight, sum(weights)) for state, weight in zip(support, weights, strict=True)}


def scores(row: dict[int, Fraction]) -> np.ndarray:
    """log P, minus infinity where a state is no successor."""
    return np.array([np.log(float(row[s])) if s in row else -np.inf for s in range(STATES)])


def test_closed_form_is_what_the_noise_does() -> None:
    chance, rng = Random(7), np.random.default_rng(7)
    p_values = []
    for _ in range(PAIRS):
        p, q = random_distribution(chance), random_distribution(chance)
        noise = rng.gumbel(size=(DRAWS, STATES))
        factual, counterfactual = (scores(p) + noise).argmax(axis=1), (scores(q) + noise).argmax(axis=1)
        for outcome in p:
            kept = counterfactual[factual == outcome]
            row = dict(zip(sorted(q), counterfactual_row(as_row(p), outcome, as_row(q)).tolist(), strict=True))
            for state in range(STATES):
                expected = min(row.get(state, 0.0), 1.0)
                seen = int((kept == state).sum())
                if expected < 1e-14 or expected > 1 - 1e-14:
                    assert seen == round(expected) * len(kept)
                else:
                    p_values.append(binomtest(seen, len(kept), expected).pvalue)
    assert len(p_values) > 150
    assert min(p_values) >= FALSE_ALARM / len(p_values)
