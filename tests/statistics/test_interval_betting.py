"""The test of rows that are known only up to bounds: no environment within the bounds makes the bets profitable."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

from monitor.model import MDP
from monitor.model.allowed_rows import allowed_rows
from monitor.statistics import betting_odds
from monitor.statistics.fleet import FleetTest
from monitor.statistics.interval_betting import IntervalModelTest
from monitor.statistics.interval_odds import GIVEN, NO_DATA, UNRECORDED_CELL
from monitor.statistics.model_betting import ModelTest
from tests.exact.learned import learned_model
from tests.statistics.intervals import BoundedRow, SlowWealth, arguments, greatest_mean
from tests.statistics.test_fleet import copied
from tests.statistics.test_model_betting import grid, walk
from tests.tiers import examples, first, heavy, scaled

NEW = 9
SMALL = [
    BoundedRow({0: (0.6, 0.5, 0.8), 1: (0.3, 0.05, 0.4), NEW: (0.1, 0.0, 0.2)}, NEW),
    BoundedRow({0: (0.9, 0.1, 0.95), NEW: (0.1, 0.0, 0.05)}, NEW),
    BoundedRow({0: (0.5, 0.5, 0.5), 1: (0.5, 0.5, 0.5)}, GIVEN),
    BoundedRow({NEW: (1.0, 1.0, 1.0)}, NO_DATA),
]


def join(rows: list[BoundedRow], *, alpha: float = 0.001, impossible: float = 0.0001) -> ModelTest:
    return maker(rows, alpha=alpha, impossible=impossible)().join()


def maker(rows: list[BoundedRow], *, alpha: float, impossible: float) -> Callable[[], FleetTest]:
    """What makes a fleet that tests these rows as they are now."""
    starts, successors, expected, bounds = arguments(rows)
    return lambda: FleetTest(starts, successors, expected, alpha=alpha, impossible=impossible, bounds=bounds)


@cache
def model(steps: int, seed: int) -> MDP:
    """A grid whose moves slip in one of ten, learned from so many steps."""
    draws = [(row // 4, row % 4, to) for row, to in walk(grid(0.1), np.random.default_rng([seed, 1]), steps)]
    return learned_model(17, 4, draws, {})[0]


def learned(steps: int, seed: int, *, alpha: float = 0.001) -> FleetTest:
    """The test of a learned grid, as the monitor makes it."""
    grown = model(steps, seed)
    assert grown.counts is not None
    allowed = allowed_rows(grown, grown.counts, alpha / 2, 0.0001)
    return FleetTest(*allowed[:3], alpha=alpha / 2, bounds=allowed.bounds)


def worst(
    make: Callable[[], FleetTest], depth: int, fleet: FleetTest | None = None, test: ModelTest | None = None
) -> float:
    """The greatest mean of the wealth after so many steps, over all environments within the bounds.

    At each step, knowing everything before, the environment chooses the row and any distribution within its bounds.
    """
    if fleet is None or test is None:
        fleet = make()
        test = fleet.join()
    if depth == 0:
        return test.wealth
    means = []
    for row, bounded in enumerate(SMALL[:3]):
        values = []
        for successor in bounded.entries:
            other, (after,) = copied(make, fleet, [test])
            after.step(row, successor)
            values.append(worst(make, depth - 1, other, after))
        _, lower, upper = bounded.columns
        means.append(greatest_mean(np.array(values), lower, upper))
    return max(means)


@pytest.mark.parametrize("memory", first(1, [2, 256]))
def test_no_environment_within_the_bounds_makes_the_bets_profitable(
    memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(betting_odds, "MEMORY", memory)
    monkeypatch.setattr(betting_odds, "PRIOR", 1.0)  # so that four steps are enough to learn
    assert worst(maker(SMALL, alpha=1e-30, impossible=1e-15), 4) == pytest.approx(1.0, abs=1e-10)


def test_an_environment_beyond_the_bounds_does(monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker(SMALL, alpha=1e-30, impossible=1e-15)
    monkeypatch.setitem(SMALL[1].entries, NEW, (0.1, 0.0, 0.4))
    assert worst(make, 4) > 1.1


def mixed(rng: np.random.Generator, steps: int) -> Iterator[tuple[int, int]]:
    for row, chance in zip(rng.integers(4, size=steps).tolist(), rng.random(steps).tolist(), strict=True):
        yield row, 0 if chance < 0.55 else 1 if chance < 0.85 else NEW if chance < 0.95 else 4


@pytest.mark.parametrize("seed", first(2, range(5)))
def test_the_wealth_is_that_of_the_slow_counterpart(seed: int) -> None:
    test, slow = join(SMALL, alpha=1e-300, impossible=0.001), SlowWealth(SMALL, 0.001)
    for row, successor in mixed(np.random.default_rng(seed), 250):
        test.step(row, successor)
        if SMALL[row].new != NO_DATA:
            slow.step(row, successor)
    assert test.transitions == len(slow.pays)
    assert test.log10_e == pytest.approx(math.log10(slow.wealth(part)), rel=1e-9)
    assert abs(test.log10_e) > 1.0


def part(step: int) -> float:
    k = math.floor(math.log2(step))
    return 1.0 / float(2**k * (k + 1) * (k + 2))


def test_with_given_rows_only_it_is_the_test_of_a_model_that_is_not_learned() -> None:
    rows = [BoundedRow({to: (p, p, p) for to, p in row.items()}, GIVEN) for row in grid(0.1)]
    starts, successors, expected, _ = arguments(rows)
    plain, other = FleetTest(starts, successors, expected).join(), join(rows)
    assert isinstance(other, IntervalModelTest)
    for n, (row, successor) in enumerate(walk(grid(0.2), np.random.default_rng(3), 200)):
        for test in (plain, other):
            test.step(row, 15 - successor if n % 50 == 0 else successor)
        assert plain.dump() == other.dump()
    assert plain.log10_e == other.log10_e != 0.0


def test_a_row_without_data_is_not_tested() -> None:
    test = join(SMALL)
    before = test.dump()
    for successor in (0, NEW, 4, UNRECORDED_CELL):
        test.step(3, successor)
    assert test.dump() == before


def test_an_impossible_step_from_a_given_row_still_counts_as_one() -> None:
    test, told = join(SMALL), join(SMALL)
    test.step(0, 0)
    told.step(0, 0)
    test.step(2, 5)
    told.contradict()
    assert test.dump() == told.dump()
    assert test.log10_e > 0.5


@heavy
@scaled
@pytest.mark.parametrize("steps", [200, 2_000, 20_000])
def test_an_environment_that_did_not_change_is_not_rejected_however_few_the_data(steps: int) -> None:
    for seed in range(examples(1, 3)):
        fleet = learned(steps, seed)
        test = fleet.join()
        for row, successor in walk(grid(0.1), np.random.default_rng([seed, 2]), 10_000):
            test.step(row, successor)
        fleet.combine([test])
        assert not test.rejected
        assert not fleet.rejected
        assert test.log10_e < 1.0


@heavy
@pytest.mark.parametrize(
    ("recorded", "before", "slip", "within"),
    [
        (2_000, 0, 0.8, 6_000),
        (20_000, 0, 0.5, 300),
        (20_000, 3_000, 0.5, 400),
        (200_000, 0, 0.3, 500),
        (200_000, 3_000, 0.3, 700),
        (200_000, 3_000, 0.8, 100),
    ],
)
def test_a_change_beyond_what_the_data_leave_open_is_found(
    recorded: int, before: int, slip: float, within: int
) -> None:
    test = learned(recorded, 1).join()
    for row, successor in walk(grid(0.1), np.random.default_rng(2), before):
        test.step(row, successor)
    for row, successor in walk(grid(slip), np.random.default_rng(3), within):
        test.step(row, successor)
    assert test.rejected
    assert test.transitions > before


def test_new_successors_here_and_there_are_found_together() -> None:
    """Every fifth step leads where none led before, from 64 rows, of which none sees enough of them by itself."""
    together, alone = learned(20_000, 1).join(), learned(20_000, 1).join()
    rng = np.random.default_rng(4)
    for n, (row, successor) in enumerate(itertools.islice(walk(grid(0.1), rng, 1_000), 400)):
        together.step(row, UNRECORDED_CELL if n % 5 == 0 else successor)
        alone.step(row, successor)
    assert together.rejected
    assert together.transitions < 200
    assert not alone.rejected
    new = [each for each in together.departures(100) if each.successor == 16]  # elsewhere
    assert len(new) > 10
    assert all(each.expected < 0.1 < each.seen < 5 for each in new)


def test_one_wrong_reading_is_no_proof_in_a_row_that_was_seen_a_million_times() -> None:
    row = BoundedRow({0: (1.0 - 1e-6, 0.9998, 1.0), NEW: (1e-6, 0.0, 1e-5 + 1e-4)}, NEW)
    test = join([row])
    for n in range(3_000):
        test.step(0, UNRECORDED_CELL if n == 1_000 else 0)
    assert not test.rejected
    for _ in range(10):
        test.step(0, UNRECORDED_CELL)
    assert test.rejected


def test_several_agents_together_reject_a_learned_model_and_one_alone_does_not() -> None:
    for agents, rejected in ((1, False), (2, True)):
        fleet = learned(200_000, 1)
        tests = [fleet.join() for _ in range(3)]
        for n, test in enumerate(tests):
            for row, successor in walk(grid(0.5 if n < agents else 0.1), np.random.default_rng([n, 7]), 300):
                test.step(row, successor)
        fleet.combine(tests)
        assert [test.rejected for test in tests] == [n < agents for n in range(3)]
        assert fleet.rejected == rejected
        assert fleet.transitions == sum(test.transitions for test in tests)


@pytest.mark.parametrize("memory", [256, 16])
def test_a_test_goes_on_from_its_plain_data(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(betting_odds, "MEMORY", memory)
    fleets = [learned(5_000, 1), learned(5_000, 1)]
    tests = [fleet.join() for fleet in fleets]
    steps = [
        (row, UNRECORDED_CELL if n % 40 == 0 else successor)
        for n, (row, successor) in enumerate(walk(grid(0.1), np.random.default_rng(6), 2_000))
    ]
    for row, successor in steps[:1_003]:
        tests[0].step(row, successor)
    tests[1].load(tests[0].dump())
    fleets[1].load(fleets[0].dump())
    for row, successor in steps[1_003:]:
        for test in tests:
            test.step(row, successor)
    assert tests[0].dump() == tests[1].dump()
    assert tests[0].log10_e == tests[1].log10_e
    assert sum(tests[0].dump().unrecorded) > 0


def test_a_rejection_stays_and_the_test_has_ended() -> None:
    test = join(SMALL)
    for _ in range(100):
        test.step(1, NEW)
    assert test.rejected
    before = test.dump()
    for _ in range(10):
        test.step(1, 0)
        test.step(0, UNRECORDED_CELL)
    assert test.dump() == before
