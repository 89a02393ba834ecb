"""The test of each row: its wealth is that of its bets, nobody gets rich on a right row, a wrong one is named soon."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.stats import binom

from monitor.model.allowed_rows import allowed_rows
from monitor.statistics import row_tests
from monitor.statistics.betting_odds import MAX_TRANSITIONS, PRIOR, Odds
from monitor.statistics.e_bh import LEVEL
from monitor.statistics.fleet import FleetTest
from monitor.statistics.interval_odds import NO_DATA, Bounds
from monitor.statistics.row_tests import RowTests, joined_rows
from tests.statistics.rates_of_model_tests import learned_from, steps_of
from tests.statistics.test_model_betting import SMALL, Rows, grid, walk
from tests.tiers import examples, scaled, slow

IMPOSSIBLE = 0.004


class Visited(RowTests):
    """The tests of some rows, which are told of steps by row and successor."""

    def __init__(self, rows: Rows, *, tested: int = 64, impossible: float = 0.0001) -> None:
        starts = [0, *itertools.accumulate(map(len, rows))]
        self.odds = Odds(starts, [to for row in rows for to in row], [p for row in rows for p in row.values()])
        super().__init__(self.odds, tested, impossible)
        self._again: Callable[[], Visited] = lambda: Visited(rows, tested=tested, impossible=impossible)

    def take(self, row: int, successor: int) -> None:
        found = self.odds.find(row, successor)
        assert found is not None
        self.step(found)

    def copied(self) -> Visited:
        """Tests that go on where these are."""
        made = self._again()
        made.load(self.dump())
        return made


def slow_wealth(row: dict[int, float], seen: Sequence[int | None], impossible: float) -> float:
    """Every bet by itself, from each visit on; None is an impossible step. Counts are never halved."""
    idle, paid = 1.0, 0.0
    for begin in range(1, len(seen) + 1):
        k = math.floor(math.log2(begin))
        stake = 1.0 / (2**k * (k + 1) * (k + 2))
        idle -= stake
        learned = missing = stake
        for n in range(begin - 1, len(seen)):
            before, now = [s for s in seen[:n] if s is not None], seen[n]
            missing *= 100.0 if now is None else (1 - 100 * impossible) / (1 - impossible)
            if now is not None:
                chance = (PRIOR * row[now] + before.count(now)) / (PRIOR + len(before))
                learned *= chance / row[now]
        paid += (learned + missing) / 2.0
    return idle + paid


def test_the_wealth_is_that_of_all_bets_taken_one_by_one() -> None:
    tests, seen = Visited(SMALL, impossible=IMPOSSIBLE), [0, 2, None, 1, 2, 2, 0, None, 1]
    for successor in seen:
        if successor is None:
            tests.contradict(1)
        else:
            tests.take(1, successor)
        tests.take(0, 0)
    assert tests.wealth(1) == pytest.approx(slow_wealth(SMALL[1], seen, IMPOSSIBLE), rel=1e-12)
    assert tests.wealth(0) == pytest.approx(slow_wealth(SMALL[0], [0] * 9, IMPOSSIBLE), rel=1e-12)


@pytest.mark.parametrize("memory", [1024, 2])
def test_nobody_gets_rich_on_a_right_row_wherever_agents_go(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the next step begins depends on what was found; the mean is over all that can happen."""
    monkeypatch.setattr(row_tests, "ROW_MEMORY", memory)

    def means(tests: Visited, depth: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        now = np.array([tests.wealth(row) for row in (0, 1)])
        if depth == 0:
            return now
        row = int(now[0] > 1.02) ^ (depth % 2)
        total = np.zeros(2)
        for successor, chance in SMALL[row].items():
            after = tests.copied()
            after.take(row, successor)
            total += chance * means(after, depth - 1)
        return total

    assert means(Visited(SMALL, impossible=1e-15), 7) == pytest.approx([1.0, 1.0], abs=1e-10)


@pytest.mark.parametrize(("rate", "fair"), [(IMPOSSIBLE, True), (0.001, False)])
def test_impossible_steps_pay_only_where_there_are_too_many(rate: float, fair: bool) -> None:  # noqa: FBT001 - a table
    def mean(tests: Visited, depth: int) -> float:
        if depth == 0:
            return tests.wealth(2)
        possible, impossible = tests.copied(), tests.copied()
        possible.take(2, 2)
        impossible.contradict(2)
        return (1 - rate) * mean(possible, depth - 1) + rate * mean(impossible, depth - 1)

    found = mean(Visited(SMALL, impossible=IMPOSSIBLE), 6)
    assert math.isclose(found, 1.0, abs_tol=1e-12) if fair else found < 1.0 - 1e-3


def visits_until_named(model: Sequence[float], true: Sequence[float], seed: int) -> int:
    rows: Rows = [dict(enumerate(model))]
    tests, rng = Visited(rows), np.random.default_rng(seed)
    for n in itertools.count(1):
        tests.take(0, int(rng.choice(len(true), p=true)))
        if tests.wrong():
            return n
    raise AssertionError


def fixed_size(p: float, q: float, level: float, power: float) -> int:
    """Visits that the most powerful test of p against q > p needs, which knows q and looks once (Neyman-Pearson)."""
    return next(n for n in itertools.count(1) if binom.sf(binom.isf(level, n, p), n, q) >= power)


@pytest.mark.parametrize(
    ("model", "true", "median", "least"),
    [
        ((0.9, 0.1), (0.6, 0.4), 44, 19),
        ((0.9, 0.05, 0.05), (0.6, 0.2, 0.2), 46, 19),
        ((0.5, 0.5), (0.2, 0.8), 64, 27),
        pytest.param((0.9, 0.1), (0.87, 0.13), 2170, 1090, marks=slow),
    ],
)
def test_a_wrong_row_of_64_is_named_after_the_visits_that_the_documentation_states(
    model: Sequence[float], true: Sequence[float], median: int, least: int
) -> None:
    """The median of 60 runs. The best test of fixed size knows how the row is wrong, and decides as often by then."""
    found = float(np.median([visits_until_named(model, true, seed) for seed in range(60)]))
    assert found == pytest.approx(median, rel=0.05)
    assert fixed_size(1 - model[0], 1 - true[0], LEVEL / 64, 0.5) == least
    assert 1.0 < found / least < 2.5


def test_rows_that_are_right_are_not_named() -> None:
    tests = Visited(grid(0.1))
    for row, successor in walk(grid(0.1), np.random.default_rng(1), 20_000):
        tests.take(row, successor)
    assert tests.wrong() == []


def test_what_is_reported_is_the_entry_that_is_furthest_off() -> None:
    tests = Visited([{0: 0.5, 1: 0.5}, {0: 0.1, 1: 0.8, 2: 0.1}])
    for n in range(100):
        tests.take(0, n % 2)
        tests.take(1, (0, 2, 2, 1)[n % 4])
    (wrong,) = tests.wrong()
    assert (wrong.row, wrong.successor, wrong.seen, wrong.visits, wrong.probability) == (1, 1, 25, 100, 0.8)
    assert wrong.evidence == tests.wealth(1)


def test_wealth_is_bounded_so_that_a_repaired_row_is_soon_named_no_more() -> None:
    tests = Visited([{0: 0.5, 1: 0.5}])
    for _ in range(2_000):
        tests.take(0, 0)
        tests.contradict(0)
    assert len(tests.wrong()) == 1
    assert tests.wealth(0) <= 1e12 + 1.0
    impossible = tests.wrong()[0].impossible
    assert 0 < impossible <= row_tests.ROW_MEMORY
    for n in range(20_000):
        tests.take(0, n % 2)
        if not tests.wrong():
            break
    assert n < 10_000


def test_only_so_many_rows_are_tested_and_the_others_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tests, "MOST_ROWS", 2)
    tests = Visited(SMALL)
    for _ in range(5):
        for row in (0, 1, 2):
            tests.take(row, next(iter(SMALL[row])))
            tests.contradict(row)
    assert set(tests.dump()) == {0, 1}
    assert {wrong.row for wrong in tests.wrong()} == {0, 1}


def test_a_test_goes_on_from_its_plain_data() -> None:
    tests, again = Visited(grid(0.1)), Visited(grid(0.1))
    steps = list(walk(grid(0.5), np.random.default_rng(3), 3_000))
    for row, successor in steps[:1_500]:
        tests.take(row, successor)
    tests.contradict(5)
    again.load(tests.dump())
    assert again.dump() == tests.dump()
    assert again.wrong() == tests.wrong() != []
    for row, successor in steps[1_500:]:
        tests.take(row, successor)
        again.take(row, successor)
    assert again.dump() == tests.dump()
    assert again.wrong() == tests.wrong()


def test_of_several_monitors_a_row_has_the_mean_wealth_and_the_counts_of_one() -> None:
    """A monitor that did not visit a row has wealth 1 in it; the join counts it for no more."""
    two = [Visited(grid(0.1)) for _ in range(2)]
    for place, tests in enumerate(two):
        for row, successor in walk(grid(0.4), np.random.default_rng(place), 400 + 400 * place):
            if row != 7 or place == 0:
                tests.take(row, successor)
    joined = Visited(grid(0.1))
    joined.load(joined_rows([tests.dump() for tests in two]))
    states = [tests.dump() for tests in two]
    for row in range(64):
        mean = sum(tests.wealth(row) for tests in two) / 2
        assert joined.wealth(row) <= mean + 1e-12
        assert joined.wealth(row) == pytest.approx(mean, abs=1.0)
        if row in joined.dump():
            assert joined.dump()[row].counts in [state[row].counts for state in states if row in state]
    once = Visited(grid(0.1))
    once.load(joined_rows([states[1], states[1]]))
    assert once.dump() == two[1].dump()


def test_rows_without_data_are_not_tested_and_do_not_count() -> None:
    bounds = Bounds([0.0, 0.3, 0.0], [1.0, 0.7, 0.7], [NO_DATA, 1])
    fleet = FleetTest([0, 1, 3], [9, 0, 9], [1.0, 0.5, 0.5], bounds=bounds)
    assert fleet.rows_tested == 1
    test = fleet.join()
    for _ in range(400):
        test.step(0, 3)
        test.step(1, 0)
    (wrong,) = fleet.wrong_rows()
    assert (wrong.row, wrong.successor, wrong.impossible) == (1, 0, 0)
    assert wrong.visits <= row_tests.ROW_MEMORY <= MAX_TRANSITIONS


@scaled
@pytest.mark.parametrize(("recorded", "slip", "named"), [(200, 0.1, False), (2_000, 0.1, False), (100_000, 0.4, True)])
def test_rows_of_a_learned_model_are_named_for_what_the_data_rule_out_alone(
    recorded: int,
    slip: float,
    named: bool,  # noqa: FBT001 - a table
) -> None:
    for seed in range(examples(2, 5)):
        rng = np.random.default_rng([recorded, seed])
        model = learned_from(steps_of(grid(0.1), 4, recorded, rng), 16, 4)
        assert model.counts is not None
        allowed = allowed_rows(model, model.counts, 0.0005, 0.0001)
        fleet = FleetTest(*allowed[:3], alpha=0.0005, bounds=allowed.bounds)
        test = fleet.join()
        for row, successor in steps_of(grid(slip), 4, 6_000, rng):
            test.step(row, successor)
        assert (len(fleet.rejected_rows()) > 10) == named
        assert named or fleet.rejected_rows() == []
