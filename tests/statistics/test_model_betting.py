"""The test of the model: its wealth is a martingale, a true model is seldom doubted, a wrong one soon."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.stats import binom

from monitor.errors import ConfigError
from monitor.statistics import betting_odds
from monitor.statistics.model_betting import ModelTest
from tests.tiers import examples, scaled

Rows = list[dict[int, float]]
"""Row -> successor -> probability; the rows of a grid are 4 state + action."""
SMALL: Rows = [{0: 0.7, 1: 0.3}, {0: 0.05, 1: 0.9, 2: 0.05}, {2: 1.0}]
NEVER = {"alpha": 1e-30, "impossible": 1e-15}
"""alpha is never reached, so that no path ends early; next to nothing is lost by betting on glitches."""


def the_test(rows: Rows, *, alpha: float = 0.001, impossible: float = 0.0001) -> ModelTest:
    starts = [0, *itertools.accumulate(map(len, rows))]
    successors = [successor for row in rows for successor in row]
    chances = [chance for row in rows for chance in row.values()]
    return ModelTest(starts, successors, chances, alpha=alpha, impossible=impossible)


def grid(slip: float) -> Rows:
    """4 x 4 cells; of the four moves each slips to either side with half of `slip`; a wall stops it."""

    def cell(state: int, direction: int) -> int:
        y, x = divmod(state, 4)
        down, right = [(0, 1), (1, 0), (0, -1), (-1, 0)][direction]
        return min(max(y + down, 0), 3) * 4 + min(max(x + right, 0), 3)

    rows: Rows = []
    for state in range(16):
        for action in range(4):
            row: dict[int, float] = {}
            for turn, chance in ((0, 1 - slip), (1, slip / 2), (3, slip / 2)):
                to = cell(state, (action + turn) % 4)
                row[to] = row.get(to, 0.0) + chance
            rows.append(dict(sorted(row.items())))
    return rows


def walk(rows: Rows, rng: np.random.Generator, steps: int) -> Iterator[tuple[int, int]]:
    """Transitions (row, successor) of a grid, actions drawn evenly."""
    ends = [(list(row), np.cumsum(list(row.values()))) for row in rows]
    state = 0
    for action, chance in zip(rng.integers(4, size=steps).tolist(), rng.random(steps).tolist(), strict=True):
        row = 4 * state + action
        successors, upto = ends[row]
        state = successors[min(int(upto.searchsorted(chance)), len(successors) - 1)]
        yield row, state


def wealth(test: ModelTest) -> float:
    return float(10.0**test.log10_e)


def copied(test: ModelTest, **levels: float) -> ModelTest:
    """A test of the small model that goes on where this one is."""
    made = the_test(SMALL, **levels)
    made.load(test.dump())
    return made


def expected(test: ModelTest, depth: int, row_of: Callable[[ModelTest, int], int], state: int = 0) -> float:
    """The mean wealth after `depth` steps of the model, over everything that can happen."""
    if depth == 0:
        return wealth(test)
    row = row_of(test, state)
    total = 0.0
    for successor, chance in SMALL[row].items():
        after = copied(test, **NEVER)
        after.step(row, successor)
        total += chance * expected(after, depth - 1, row_of, successor)
    return total


@pytest.mark.parametrize(("memory", "places"), [(256, 16_384), (3, 16_384), (256, 2), (2, 1)])
@pytest.mark.parametrize(
    "row_of",
    [
        lambda _, state: state,
        lambda test, state: min(state, int(test.log10_e > -0.1)),  # a policy that looks at what we found
        lambda test, _: test.transitions % 2,  # two agents that take turns and share the counts
    ],
    ids=["one", "adaptive", "two"],
)
def test_nobody_gets_rich_against_a_true_model(
    row_of: Callable[[ModelTest, int], int], memory: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(betting_odds, "MEMORY", memory)
    monkeypatch.setattr(betting_odds, "MAX_TRANSITIONS", places)
    start = the_test(SMALL, **NEVER)
    for depth in (1, 2, 6):
        assert math.isclose(expected(start, depth, row_of), 1.0, abs_tol=1e-10)


@pytest.mark.parametrize(("rate", "fair"), [(0.004, True), (0.001, False), (0.0, False)])
def test_impossible_steps_pay_only_where_there_are_too_many(rate: float, fair: bool) -> None:  # noqa: FBT001 - a table
    def mean(test: ModelTest, depth: int) -> float:
        if depth == 0:
            return wealth(test)
        possible, impossible = (copied(test, alpha=1e-30, impossible=0.004) for _ in range(2))
        possible.step(2, 2)
        impossible.contradict()
        return (1 - rate) * mean(possible, depth - 1) + rate * mean(impossible, depth - 1)

    found = mean(the_test(SMALL, alpha=1e-30, impossible=0.004), 6)
    assert math.isclose(found, 1.0, abs_tol=1e-12) if fair else found < 1.0 - 1e-3


@scaled
def test_a_true_model_is_doubted_as_seldom_as_promised() -> None:
    """Of the streams alpha may be doubted; more than this of a test that keeps its word has probability 1e-6."""
    alpha, streams, doubted = 0.05, examples(250, 1000), 0
    rows = grid(0.1)
    for seed in range(streams):
        test = the_test(rows, alpha=alpha)
        for row, successor in walk(rows, np.random.default_rng(seed), 200):
            test.step(row, successor)
        doubted += test.rejected
    assert doubted <= binom.isf(1e-6, streams, alpha)


@pytest.mark.parametrize("before", [0, 5_000])
@pytest.mark.parametrize(("model", "world", "within"), [(0.1, 0.3, 250), (0.3, 0.1, 350)])
def test_a_world_that_slips_more_or_less_than_the_model_says_is_seen(
    model: float, world: float, before: int, within: int
) -> None:
    test = the_test(grid(model))
    rng = np.random.default_rng(1)
    for row, successor in walk(grid(model), rng, before):
        test.step(row, successor)
    for row, successor in walk(grid(world), rng, within):
        test.step(row, successor)
    assert test.rejected
    assert before < test.transitions < before + within


def test_what_only_the_counts_can_tell_is_learned() -> None:
    """Every chance of the model is one of the world too, but they stand at other successors."""
    world: Rows = [dict(zip(row, reversed(row.values()), strict=True)) for row in [{0: 0.4, 1: 0.6}]]
    test = the_test([{0: 0.4, 1: 0.6}])
    rng = np.random.default_rng(2)
    for chance in rng.random(400).tolist():
        test.step(0, int(chance > world[0][0]))
    assert test.rejected


def test_one_impossible_step_is_a_glitch_and_a_few_are_a_wrong_model() -> None:
    test = the_test(grid(0.1))
    transitions = walk(grid(0.1), np.random.default_rng(3), 3_000)
    for n, (row, successor) in enumerate(transitions):
        test.step(row, successor)
        if n == 1_000:
            test.contradict()
    trusted_after_a_glitch = not test.rejected
    for _ in range(5):
        test.contradict()
    assert trusted_after_a_glitch
    assert test.rejected


def test_a_successor_the_row_does_not_have_is_an_impossible_step() -> None:
    told, found = the_test(SMALL), the_test(SMALL)
    told.contradict()
    found.step(0, 2)
    assert told.dump() == found.dump()


def test_doubt_stays_and_the_test_has_ended() -> None:
    test = the_test(SMALL)
    for _ in range(100):
        test.step(1, 2)
    assert test.rejected
    at_the_end = test.dump()
    for _ in range(1_000):
        test.step(1, 1)
        test.contradict()
    assert test.rejected
    assert test.dump() == at_the_end


@pytest.mark.parametrize("places", [16_384, 40])
def test_a_test_goes_on_from_its_plain_data(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(betting_odds, "MAX_TRANSITIONS", places)
    rows = grid(0.1)
    transitions = list(walk(rows, np.random.default_rng(4), 20_000))
    test, restored = the_test(rows), the_test(rows)
    for row, successor in transitions[:10_007]:
        test.step(row, successor)
    restored.load(test.dump())
    for row, successor in transitions[10_007:]:
        test.step(row, successor)
        restored.step(row, successor)
    assert restored.dump() == test.dump()
    assert restored.log10_e == test.log10_e


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(betting_odds, "MAX_TRANSITIONS", 50)
    rows = grid(0.1)
    test = the_test(rows)
    for row, successor in walk(rows, np.random.default_rng(5), 5_000):
        test.step(row, successor)
        assert len(test.dump().counts) <= 50


@pytest.mark.parametrize(
    ("alpha", "impossible", "says"),
    [(0.0, 0.001, "alpha is 0.0"), (1.0, 0.001, "alpha"), (0.1, 0.0, "impossible is 0.0"), (0.1, 0.006, "impossible")],
)
def test_settings_that_make_no_sense_are_refused(alpha: float, impossible: float, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        the_test(SMALL, alpha=alpha, impossible=impossible)


def test_a_nearly_impossible_successor_is_no_nan() -> None:
    test = the_test([{0: 1.0 - 5e-324, 1: 5e-324}])
    test.step(0, 0)
    assert not math.isnan(test.log10_e)
    test.step(0, 1)
    assert test.rejected
