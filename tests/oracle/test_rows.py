"""The closed form of counterfactual rows under both freedoms, beside linear programs over couplings."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from tests.oracle.rows import NoRowError, interval_extreme, least_chance, row_extreme, row_extreme_closed
from tests.oracle.test_race import random_row
from tests.oracle.worlds import best_row, row_ranges
from tests.tiers import examples, scaled

Row = list[float]
Case = tuple[Row, Row, int, Row, Row, Row]
CASES = examples(75, 250)
TOLERANCE = 1e-9  # of the solver


def box(random: Random, size: int) -> tuple[list[float], list[float]]:
    """Return limits around a random row: wide, narrow, exact, and often from 0 in one place."""
    weights = [random.random() ** 3 for _ in range(size)]
    row = [weight / sum(weights) for weight in weights]
    width = random.choice([0.0, 0.02, 0.1, 0.4, 1.0])
    low = [max(0.0, p - width * random.random()) for p in row]
    high = [min(1.0, p + width * random.random()) for p in row]
    if random.random() < 0.3:
        low[random.randrange(size)] = 0.0
    if random.random() < 0.2:
        nothing = random.randrange(size)
        high[nothing] = low[nothing] = 0.0
        low = [max(0.0, p - weights[nothing]) for p in low]
        high = [min(1.0, p + weights[nothing] / sum(weights)) for p in high]
    return low, high


def cases(seed: int) -> list[Case]:
    random, found = Random(seed), list[Case]()
    while len(found) < CASES:
        low, high = box(random, random.randint(1, 5))
        low_q, high_q = box(random, random.randint(1, 5))
        observed = random.randrange(len(low))
        if sum(high) >= 1 and sum(high_q) >= 1 and high[observed] > 0:
            values = [random.choice([0.0, 1.0, random.random(), random.uniform(-3, 3)]) for _ in low_q]
            found.append((low, high, observed, low_q, high_q, values))
    return found


@scaled
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_closed_form_is_the_set_of_couplings(seed: int, *, largest: bool) -> None:
    unbounded = 0
    for case in cases(seed):
        unbounded += least_chance(*case[:3]) == 0
        closed = row_extreme_closed(*case, largest=largest)
        assert row_extreme(*case, largest=largest) == pytest.approx(closed, abs=TOLERANCE), case
    assert CASES / 10 < unbounded < CASES * 9 / 10


@scaled
def test_an_outcome_that_may_have_any_chance_leaves_any_row() -> None:
    """Not only the rows in the box of q: the noise behind a rare outcome may have any effect elsewhere."""
    rare, common = ([0.0, 0.9], [0.1, 1.0]), ([0.9, 0.0], [1.0, 0.1])
    case = (*rare, 0, *common, [0.0, 1.0])
    assert interval_extreme(*common, [0.0, 1.0], largest=True) == pytest.approx(0.1)
    assert row_extreme(*case, largest=True) == pytest.approx(1.0)
    assert row_extreme(*case, largest=False) == pytest.approx(0.0)
    narrower = 0
    for each in cases(3):
        if least_chance(*each[:3]) == 0:
            plain = [interval_extreme(*each[3:], largest=largest) for largest in (False, True)]
            exact = [row_extreme(*each, largest=largest) for largest in (False, True)]
            assert exact[0] <= plain[0] + TOLERANCE
            assert exact[1] >= plain[1] - TOLERANCE
            narrower += exact[0] < plain[0] - 1e-6 or exact[1] > plain[1] + 1e-6
    assert narrower > CASES * 2 / 25


def test_outcomes_that_cannot_be_stay_impossible() -> None:
    """The second outcome of q has the upper limit 0; the third is allowed, but the others leave nothing for it."""
    rare = [0.0, 0.9], [0.1, 1.0]
    for q in (([0.2, 0.0], [1.0, 0.0]), ([1.0, 0.0], [1.0, 0.5])):
        case = (*rare, 0, *q, [0.0, 1.0])
        assert row_extreme(*case, largest=True) == pytest.approx(0.0)
        assert row_extreme_closed(*case, largest=True) == pytest.approx(0.0)


@pytest.mark.parametrize("extreme", [row_extreme, row_extreme_closed])
def test_boxes_without_a_row_are_refused(extreme: object) -> None:
    assert callable(extreme)
    with pytest.raises(NoRowError):
        extreme([0.5, 0.5], [1.0, 1.0], 0, [0.7, 0.7], [1.0, 1.0], [0.0, 1.0], largest=True)


def test_known_rows_leave_the_freedom_of_the_causal_model_alone() -> None:
    random = Random(4)
    for _ in range(100):
        p, q = random_row(random), random_row(random)
        observed = random.choice(sorted(p))
        ranges = row_ranges(p, q, observed, "any")
        values = {k: Fraction(random.randint(-4, 4), 3) for k in q}
        of_p, of_q = [float(p[j]) for j in sorted(p)], [float(q[k]) for k in sorted(q)]
        for largest in (False, True):
            known = best_row(ranges, [values[k] for k, _, _ in ranges], 1 if largest else -1)
            at = sorted(p).index(observed)
            mine = row_extreme(of_p, of_p, at, of_q, of_q, [float(values[k]) for k in sorted(q)], largest=largest)
            assert mine == pytest.approx(float(known), abs=TOLERANCE)
