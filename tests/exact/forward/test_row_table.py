"""The cache of counterfactual rows: what it holds as it grows, when it is cleared, what it counts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.causal import Law
from monitor.exact.forward import row_table
from monitor.exact.forward.counterfactual_rows import find_entry, find_observed
from monitor.exact.forward.evaluator import dynamics
from monitor.exact.forward.row_table import (
    ANY,
    EXACT,
    FULL,
    STABLE,
    RowBudget,
    RowTable,
    RowTables,
)
from monitor.model import MDP
from monitor.policy import as_table
from tests.exact.small import LAW
from tests.oracle.race import counterfactual_row

STATES = 40
MODEL = MDP.from_transitions(
    states=STATES,
    actions=1,
    transitions=[(s, 0, (s + k) % STATES, 0.25) for s in range(STATES) for k in (0, 1, 5, 9)],
)
PLAIN = Law.stationary(as_table([0] * STATES, MODEL), MODEL)
WORLD = dynamics(PLAIN, PLAIN, merge_actions=True)
HASH_TABLES = ("observed_keys", "observed_values", "entry_keys", "entry_values", "entry_begin")
ROWS = ("action", "weight", "reward", "successors", "lower")
COUNTS = ("observed_count", "entry_count", "row_count", "successor_count")


def table(kind: int, budget: RowBudget | None = None) -> RowTable:
    return RowTable(kind, STATES, 1, budget)


def sizes(kept: RowTable) -> dict[str, int]:
    return {name: len(getattr(kept, name)) for name in (*HASH_TABLES, *ROWS)}


def counts(kept: RowTable) -> list[int]:
    """Return how many observed transitions, entries, rows and successors there are."""
    return [getattr(kept, name) for name in COUNTS]


def entry(kept: RowTable, s: int, s_next: int, state: int) -> int:
    """Return the entry of a state after an observed transition; the table grows when it is full."""
    while True:
        observed = find_observed(WORLD, kept, 0, s, 0, s_next)
        if observed != FULL:
            found = find_entry(WORLD, kept, 0, observed, s, 0, s_next, state)
            if found != FULL:
                return found
        kept.grow(forget=True)


def row(kept: RowTable, number: int) -> dict[int, float]:
    """Return the only row of an entry."""
    index = kept.entry_begin[number]
    assert kept.entry_begin[number + 1] == index + 1
    places = range(kept.row_begin[index], kept.row_begin[index + 1])
    return {int(kept.successors[k]): float(kept.lower[k]) for k in places}


def pairs() -> list[tuple[int, int, int]]:
    return [(s, (s + k) % STATES, state) for s in range(STATES) for k in (0, 5) for state in range(STATES)]


def test_entries_outlive_growth() -> None:
    kept = table(EXACT)
    first = {key: (entry(kept, *key), row(kept, entry(kept, *key))) for key in pairs()[:400]}
    used, computed = counts(kept), kept.computed
    assert {key: (entry(kept, *key), row(kept, entry(kept, *key))) for key in first} == first
    assert (counts(kept), kept.computed) == (used, computed)  # nothing was computed again
    assert used == [len({key[:2] for key in first}), 400, 400, sum(len(held) for _, held in first.values())]


def test_the_budget_is_what_its_tables_have_allocated() -> None:
    budget = RowBudget()
    assert budget.allocated == 0
    some = [table(EXACT, budget), table(ANY, budget)]
    for key in pairs()[:900]:
        entry(some[0], *key)
    assert len(some[0].successors) > len(some[1].successors)
    assert budget.allocated == sum(len(each.successors) for each in some)
    some[0].close()
    assert budget.allocated == len(some[1].successors)
    some[0].grow(forget=False)  # who still uses it goes on with a budget of its own
    assert budget.allocated == len(some[1].successors)


def test_beyond_the_limit_it_is_cleared_and_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = RowBudget()
    kept = table(EXACT, budget)
    for key in pairs()[:100]:
        entry(kept, *key)
    computed, before, held = kept.computed, sizes(kept), budget.allocated
    assert computed > 0
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 2 * len(kept.successors) - 1)
    kept.grow(forget=True)
    assert sizes(kept) == before
    assert counts(kept) == [0, 0, 0, 0]
    assert set(kept.entry_keys) == set(kept.observed_keys) == {-1}
    assert (kept.computed, budget.allocated) == (computed, held)
    entry(kept, *pairs()[0])
    kept.grow(forget=True)
    assert (kept.entry_count, len(kept.successors)) == (0, before["successors"])
    entry(kept, *pairs()[0])
    kept.grow(forget=False)  # one question that needs more is given more
    assert len(kept.successors) == 2 * before["successors"]


def test_at_the_limit_it_still_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = table(EXACT)
    entry(kept, *pairs()[0])
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 2 * len(kept.successors))
    size = len(kept.successors)
    kept.grow(forget=True)
    assert len(kept.successors) == 2 * size
    assert kept.entry_count == 1


def test_one_that_holds_nothing_grows_whatever_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 0)
    kept = table(EXACT)
    size = len(kept.successors)
    kept.grow(forget=True)
    assert len(kept.successors) == 2 * size


def test_tables_grow_where_they_are_half_full_and_are_never_more_than_half_full() -> None:
    kept = table(EXACT)
    before = sizes(kept)
    kept.grow(forget=False)
    assert [sizes(kept)[name] for name in HASH_TABLES] == [before[name] for name in HASH_TABLES]
    assert [sizes(kept)[name] for name in ROWS] == [2 * before[name] for name in ROWS]
    for key in pairs()[: STATES * STATES]:
        entry(kept, *key)
        assert 2 * kept.observed_count <= len(kept.observed_keys)
        assert 2 * kept.entry_count <= len(kept.entry_keys)
    assert len(kept.entry_begin) < 4 * kept.entry_count
    assert len(kept.observed_keys) <= 8 * kept.observed_count


@pytest.mark.parametrize(("observed", "grown"), [(31, 1), (32, 2)])
@pytest.mark.parametrize(("entries", "longer"), [(127, 1), (128, 2)])
def test_a_table_doubles_once_half_of_its_space_is_used(
    observed: int, grown: int, entries: int, longer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (64, 256, 256, 2048))
    kept = table(EXACT)
    keys = [(n // 2, (n // 2 + 5 * (n % 2)) % STATES) for n in range(observed)]
    for n in range(entries):
        entry(kept, *keys[n % observed], n // observed)
    assert counts(kept)[:2] == [observed, entries]
    kept.grow(forget=False)
    assert len(kept.observed_keys) == len(kept.observed_values) == 128 * grown
    assert len(kept.entry_keys) == len(kept.entry_values) == 512 * longer
    assert len(kept.entry_begin) - 1 == 256 * longer
    assert [len(each) for each in (kept.action, kept.weight, kept.reward)] == [512] * 3
    assert len(kept.row_begin) - 1 == 512
    assert len(kept.successors) == len(kept.lower) == 4096


@pytest.mark.parametrize(("entries", "places"), [(1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (256, 512), (257, 1024)])
def test_a_table_has_a_power_of_two_places_for_twice_its_entries(
    entries: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (64, entries, 16, 32))
    assert len(table(EXACT).entry_keys) == places


@pytest.mark.parametrize("kind", [ANY, STABLE])
def test_only_bounds_have_an_upper_end_and_a_part_for_each_successor(kind: int) -> None:
    assert len(table(EXACT).upper) == len(table(EXACT).successor_reward) == 0
    kept = table(kind)
    assert len(kept.upper) == len(kept.successor_reward) == len(kept.successors) == len(kept.lower)


def test_a_world_has_one_table_for_each_kind_and_gives_all_back() -> None:
    budget = RowBudget()
    some = RowTables(STATES, 1, budget)
    assert some(EXACT) is some(EXACT)
    assert (some(EXACT).kind, some(ANY).kind, some(STABLE).kind) == (EXACT, ANY, STABLE)
    assert budget.allocated == sum(len(some(kind).successors) for kind in (EXACT, ANY, STABLE)) > 0
    some.close()
    assert budget.allocated == 0


@LAW
@given(st.lists(st.tuples(st.integers(0, STATES - 1), st.sampled_from((0, 1, 5, 9)), st.integers(0, STATES - 1))))
def test_rows_are_right_however_often_they_are_forgotten(lookups: list[tuple[int, int, int]]) -> None:
    """With space for a few rows, over and over again: never the row of another transition or state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_table, "INITIAL_SIZES", (2, 4, 4, 16))
        patch.setattr(row_table, "MAX_SUCCESSORS", 32)
        kept = table(EXACT)
        for seen, by, state in lookups:
            outcome = (seen + by) % STATES
            p, q = ({(s + k) % STATES: Fraction(1, 4) for k in (0, 1, 5, 9)} for s in (seen, state))
            expected = {successor: float(chance) for successor, chance in counterfactual_row(p, q, outcome).items()}
            assert row(kept, entry(kept, seen, outcome, state)) == pytest.approx(expected, abs=1e-15)
            assert len(kept.successors) <= 32
