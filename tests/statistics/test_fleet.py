"""The tests of several agents together: a true model is seldom doubted, a wrong one soon, and never by one agent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from monitor.statistics.fleet import FRACTIONS, FleetTest, joined_number, wrong_agents
from monitor.statistics.late_bets import idle_after, part_of
from monitor.statistics.model_betting import ModelTest
from tests.statistics.test_model_betting import SMALL, Rows, grid, walk
from tests.tiers import examples, heavy, scaled, slow


def the_fleet(rows: Rows, *, alpha: float = 0.001, impossible: float = 0.0001) -> FleetTest:
    starts = [0, *itertools.accumulate(map(len, rows))]
    successors = [successor for row in rows for successor in row]
    chances = [chance for row in rows for chance in row.values()]
    return FleetTest(starts, successors, chances, alpha=alpha, impossible=impossible)


def copied(
    make: Callable[[], FleetTest], fleet: FleetTest, tests: Sequence[ModelTest]
) -> tuple[FleetTest, list[ModelTest]]:
    """A fleet that is made anew, and its tests, which go on where these are."""
    other = make()
    other.load(fleet.dump())
    others = [other.join() for _ in tests]
    for test, again in zip(tests, others, strict=True):
        again.load(test.dump())
    return other, others


def wealth(fleet: FleetTest, tests: Sequence[ModelTest]) -> float:
    fleet.combine(tests)
    return float(10.0**fleet.log10_e)


@pytest.mark.parametrize(("alpha", "exact"), [(0.001, True), (0.2, False), pytest.param(0.7, False, marks=slow)])
def test_a_true_model_gives_no_wealth_on_average(alpha: float, *, exact: bool) -> None:
    """Whoever's turn it is, also where that depends on what was found; no more than on average where it is cut off."""

    def make() -> FleetTest:
        return the_fleet(SMALL, alpha=alpha, impossible=1e-12)  # bets on impossible steps lose next to nothing

    def mean(fleet: FleetTest, tests: list[ModelTest], depth: int) -> float:
        now = wealth(*copied(make, fleet, tests))
        if depth == 0:
            return now
        whose = 0 if now > 1.05 else depth % len(tests)
        total = 0.0
        row = depth % 2
        for successor, chance in SMALL[row].items():
            other, others = copied(make, fleet, tests)
            others[whose].step(row, successor)
            total += chance * mean(other, others, depth - 1)
        return total

    fleet = make()
    found = mean(fleet, [fleet.join() for _ in range(3)], 7)
    if exact:
        assert found == pytest.approx(1.0, abs=1e-9)
    else:
        assert 0.5 < found < 1.0 - 1e-9


def test_it_is_the_mean_of_products_as_written() -> None:
    fleet = the_fleet(grid(0.1))
    rng = np.random.default_rng(3)
    tests = [fleet.join() for _ in range(5)]
    for test in tests:
        for row, successor in walk(grid(0.4), rng, 30):
            test.step(row, successor)
    wealths = [min(10.0**test.log10_e, fleet.cap) for test in tests]
    expected = np.mean([math.prod(1 - f + f * own for own in wealths) for f in FRACTIONS])
    assert wealth(fleet, tests) == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=60), st.integers(0, 2**32))
def test_one_agent_alone_brings_no_doubt_whatever_it_says(said: list[int], seed: int) -> None:
    rows = grid(0.1)
    fleet = the_fleet(rows)
    liar, other = fleet.join(), fleet.join()
    for row, successor in walk(rows, np.random.default_rng(seed), 20):
        other.step(row, successor)
    for n, direction in enumerate(said * 5):
        if direction < 0:
            liar.contradict()
        else:
            liar.step(n % 64, sorted(rows[n % 64])[direction % len(rows[n % 64])])
    fleet.combine([liar, other])
    assert 10.0**fleet.log10_e <= fleet.cap * max(1.0, 10.0**other.log10_e)
    alone = the_fleet(rows)
    alone.combine([liar])
    assert 10.0**alone.log10_e < 0.03 / 0.001


def test_what_is_wrong_for_all_is_found_as_soon_as_by_one_test_of_all_steps() -> None:
    rows, true = grid(0.1), grid(0.2)
    needed: dict[str, list[int]] = {"together": [], "one": []}
    for seed in range(10):
        fleet, one = the_fleet(rows), the_fleet(rows).join()
        tests = [fleet.join() for _ in range(20)]
        walks = [walk(true, np.random.default_rng((seed, n)), 2_000) for n in range(20)]
        steps = (step for turn in zip(*walks, strict=True) for step in enumerate(turn))
        found: dict[str, int] = {}
        for n, (agent, (row, successor)) in enumerate(steps):
            tests[agent].step(row, successor)
            one.step(row, successor)
            if n % 20 == 19:
                fleet.combine(tests)
            found |= {
                name: n
                for name, doubted in (("together", fleet.rejected), ("one", one.rejected))
                if doubted and name not in found
            }
            if len(found) == 2:
                break
        for name, n in found.items():
            needed[name].append(n)
    assert len(needed["together"]) == len(needed["one"]) == 10
    assert np.median(needed["together"]) <= 2.0 * np.median(needed["one"])


@heavy
@scaled
@pytest.mark.parametrize("agents", [1, 3, 30])
def test_a_true_model_is_seldom_doubted(agents: int) -> None:
    rows, alpha, runs = grid(0.2), 0.05, examples(20, 200)
    doubted = {"model": 0, "agents": 0}
    for seed in range(runs):
        fleet = the_fleet(rows, alpha=alpha)
        tests = [fleet.join() for _ in range(agents)]
        for agent, test in enumerate(tests):
            for row, successor in walk(rows, np.random.default_rng((seed, agent)), 600 // agents):
                test.step(row, successor)
            fleet.combine(tests)
        doubted["model"] += fleet.rejected
        doubted["agents"] += sum(test.rejected for test in tests)
    assert doubted["model"] <= binom.ppf(1 - 1e-6, runs, alpha)
    assert doubted["agents"] <= binom.ppf(1 - 1e-6, runs * agents, alpha)


def test_a_forgotten_agent_leaves_what_it_lost_and_takes_what_it_won() -> None:
    rows = grid(0.1)
    fleet = the_fleet(rows)
    loser, winner = fleet.join(), fleet.join()
    for row, successor in walk(rows, np.random.default_rng(8), 300):
        loser.step(row, successor)
    for _ in range(3):
        winner.contradict()
    assert loser.capped_wealth < 1.0 < winner.capped_wealth
    both, alone = wealth(fleet, [loser, winner]), wealth(fleet, [loser])
    fleet.forget(winner)
    assert wealth(fleet, [loser]) == pytest.approx(alone, rel=1e-12)
    fleet.forget(loser)
    assert wealth(fleet, []) == pytest.approx(alone, rel=1e-12)
    assert alone < both


def test_a_fleet_goes_on_where_it_stood() -> None:
    rows = grid(0.1)
    fleet, again = the_fleet(rows), the_fleet(rows)
    tests = [fleet.join() for _ in range(3)]
    for n, (row, successor) in enumerate(walk(grid(0.3), np.random.default_rng(2), 300)):
        tests[n % 3].step(row, successor)
    fleet.forget(tests.pop())
    fleet.combine(tests)
    others = [again.join() for _ in tests]
    again.load(fleet.dump())
    for test, other in zip(tests, others, strict=True):
        other.load(test.dump())
    for n, (row, successor) in enumerate(walk(grid(0.3), np.random.default_rng(9), 100)):
        tests[n % 2].step(row, successor)
        others[n % 2].step(row, successor)
    fleet.combine(tests)
    again.combine(others)
    assert fleet.dump() == again.dump()
    assert [test.dump() for test in tests] == [other.dump() for other in others]


def test_doubt_is_for_good_and_a_capped_agent_stays_capped() -> None:
    fleet = the_fleet(SMALL)
    tests = [fleet.join() for _ in range(2)]
    for test in tests:
        for _ in range(3):
            test.contradict()
        assert test.capped_wealth == fleet.cap
    fleet.combine(tests)
    assert fleet.rejected
    told = fleet.log10_e
    fleet.combine([])
    assert (fleet.rejected, fleet.log10_e) == (True, told)


def test_what_departs_is_named_the_loudest_first() -> None:
    rows: Rows = [{0: 0.5, 1: 0.5}, {0: 0.1, 1: 0.8, 2: 0.1}]
    test = the_fleet(rows).join()
    for row, successor in [*[(0, 0), (0, 1)] * 4, *[(1, 2)] * 3, (1, 1), *[(0, 1)] * 2]:
        test.step(row, successor)
    found = [(d.row, d.successor, d.seen, d.of, round(d.expected, 6)) for d in test.departures()]
    assert found == [(1, 2, 3, 4, 0.4), (0, 1, 6, 10, 5.0)]
    assert test.departures(1) == test.departures()[:1]


# ---- agents ----


def test_the_evidence_of_an_agent_is_never_more_for_what_others_do() -> None:
    """Also where they repeat what it does, which the shared counts learn: so it is rejected earlier."""
    steps = list(walk(grid(0.3), np.random.default_rng(1), 200))
    alone, crowd = the_fleet(grid(0.1)), the_fleet(grid(0.1))
    one, many = alone.join(), [crowd.join() for _ in range(4)]
    highest = []
    for row, successor in steps:
        one.step(row, successor)
        for test in many:
            test.step(row, successor)
        highest.append(one.highest)
        assert all(test.highest == one.highest if not test.rejected else test.highest <= one.highest for test in many)
    assert highest == sorted(highest)


def test_the_own_bets_of_an_agent_give_no_wealth_on_average() -> None:
    def join() -> ModelTest:
        return the_fleet(SMALL, alpha=1e-30, impossible=1e-12).join()

    def mean(test: ModelTest, depth: int) -> float:
        if depth == 0:
            own = test.dump().wealths
            return idle_after(test.transitions) + (sum(own) - own[1]) / 5.0
        total = 0.0
        for successor, chance in SMALL[depth % 2].items():
            after = join()
            after.load(test.dump())
            after.step(depth % 2, successor)
            total += chance * mean(after, depth - 1)
        return total

    assert mean(join(), 7) == pytest.approx(1.0, abs=1e-9)


def test_agents_are_numbered_by_their_first_transition_and_weigh_less_the_later_they_come() -> None:
    fleet = the_fleet(SMALL)
    tests = [fleet.join() for _ in range(3)]
    assert [test.number for test in tests] == [0, 0, 0]
    for place in (2, 0, 2):
        tests[place].step(0, 0)
    assert [test.number for test in tests] == [2, 0, 1]
    assert wrong_agents(tests) == []
    assert sum(part_of(n) for n in range(1, 100_000)) < 1.0


def test_who_lives_elsewhere_is_named_also_after_the_rejection_and_the_test_ends_some_day() -> None:
    fleet = the_fleet(grid(0.1))
    crowd = [fleet.join() for _ in range(300)]
    for test in crowd:
        for row, successor in walk(grid(0.1), np.random.default_rng(0), 1):
            test.step(row, successor)
    stray = fleet.join()
    tests = [*crowd, stray]
    named, doubted = 0, 0
    for n, (row, successor) in enumerate(walk(grid(0.5), np.random.default_rng(5), 2_000)):
        stray.step(row, successor)
        if stray.rejected and not doubted:
            doubted, told = n, (stray.transitions, stray.log10_e)
        if wrong_agents(tests) and not named:
            named = n
    assert 0 < doubted < named < 4 * doubted
    assert [place for place, _ in wrong_agents(tests)] == [300]
    assert (stray.transitions, stray.log10_e) == told
    assert stray.highest >= 1e12
    before = stray.dump()
    stray.step(0, 0)
    stray.contradict(0)
    assert stray.dump() == before
    assert fleet.observed == 300 + 2_002


def test_agents_of_several_fleets_get_numbers_of_their_own() -> None:
    numbers = [joined_number(number, fleet, 3) for fleet in range(3) for number in range(1, 6)]
    assert sorted(numbers) == list(range(1, 16))
