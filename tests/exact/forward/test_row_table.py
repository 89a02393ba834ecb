"""The memory of counterfactual rows: what it holds as it grows, when it starts anew, what it counts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.causal import Law
from monitor.exact.forward import row_table
from monitor.exact.forward.evaluator import dynamics
from monitor.exact.forward.row_table import (
    ANY,
    COMPUTED,
    ENTRIES,
    EXACT,
    MOVES,
    NUMBERS,
    STABLE,
    TRANSITIONS,
    Allowance,
    RowTable,
    RowTables,
)
from monitor.exact.forward.rows import NO_ROOM, moves, seen_before
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
WORLD = dynamics(PLAIN, PLAIN, merged=True)
NAMES = ("action", "share", "gain", "states", "low")


def entry(kept: RowTable, seen: int, outcome: int, state: int) -> int:
    """Return the entry of a state after an observed transition; the memo grows where it has to."""
    while True:
        transition = seen_before(WORLD, kept.arrays, 0, seen, 0, outcome)
        if transition != NO_ROOM:
            found = moves(WORLD, kept.arrays, kept.kind, 0, transition, seen, 0, outcome, state)
            if found != NO_ROOM:
                return int(found)
        kept.make_room(forget=True)


def row(kept: RowTable, number: int) -> dict[int, float]:
    """Return what an entry of one move holds."""
    arrays = kept.arrays
    move = arrays.entry_begin[number]
    assert arrays.entry_begin[number + 1] == move + 1
    places = slice(arrays.row_begin[move], arrays.row_begin[move + 1])
    return dict(zip(arrays.states[places].tolist(), arrays.low[places].tolist(), strict=True))


def pairs() -> list[tuple[int, int, int]]:
    return [(seen, (seen + k) % STATES, state) for seen in range(STATES) for k in (0, 5) for state in range(STATES)]


def test_what_is_remembered_outlives_growth() -> None:
    kept = RowTable(EXACT)
    first = {asked: (entry(kept, *asked), row(kept, entry(kept, *asked))) for asked in pairs()[:400]}
    used = kept.arrays.used.copy()
    assert {asked: (entry(kept, *asked), row(kept, entry(kept, *asked))) for asked in first} == first
    assert kept.arrays.used.tolist() == used.tolist()  # nothing was computed again
    assert used[ENTRIES] == 400
    assert used[TRANSITIONS] == len({asked[:2] for asked in first})
    assert used[MOVES] == 400
    assert used[NUMBERS] == sum(len(held) for _, held in first.values())


def test_the_allowance_knows_what_its_memos_hold() -> None:
    allowance = Allowance()
    assert allowance.held == 0
    some = [RowTable(EXACT, allowance), RowTable(ANY, allowance)]
    for asked in pairs()[:900]:
        entry(some[0], *asked)
    assert len(some[0].arrays.states) > len(some[1].arrays.states)
    assert allowance.held == sum(len(each.arrays.states) for each in some)
    some[0].close()
    assert allowance.held == len(some[1].arrays.states)
    some[0].make_room(forget=False)  # whoever still asks it has it for himself
    assert allowance.held == len(some[1].arrays.states)


def test_beyond_the_limit_it_starts_anew_and_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    allowance = Allowance()
    kept = RowTable(EXACT, allowance)
    for asked in pairs()[:100]:
        entry(kept, *asked)
    computed, sizes, held = kept.computed, [len(array) for array in kept.arrays], allowance.held
    assert computed > 0
    monkeypatch.setattr(row_table, "MAX_NUMBERS", 2 * len(kept.arrays.states) - 1)
    kept.make_room(forget=True)
    assert [len(array) for array in kept.arrays] == sizes
    assert kept.arrays.used[:COMPUTED].tolist() == [0, 0, 0, 0]
    assert (kept.arrays.entry_keys == -1).all()
    assert (kept.computed, allowance.held) == (computed, held)
    entry(kept, *pairs()[0])
    kept.make_room(forget=True)
    assert (kept.arrays.used[ENTRIES], len(kept.arrays.states)) == (0, sizes[row_table.Memory._fields.index("states")])
    entry(kept, *pairs()[0])
    kept.make_room(forget=False)  # one question that needs more is given more
    assert len(kept.arrays.states) == 2 * sizes[row_table.Memory._fields.index("states")]


def test_at_the_limit_it_still_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = RowTable(EXACT)
    entry(kept, *pairs()[0])
    monkeypatch.setattr(row_table, "MAX_NUMBERS", 2 * len(kept.arrays.states))
    size = len(kept.arrays.states)
    kept.make_room(forget=True)
    assert len(kept.arrays.states) == 2 * size
    assert kept.arrays.used[ENTRIES] == 1


def test_one_that_holds_nothing_grows_whatever_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_table, "MAX_NUMBERS", 0)
    kept = RowTable(EXACT)
    size = len(kept.arrays.states)
    kept.make_room(forget=True)
    assert len(kept.arrays.states) == 2 * size


def test_tables_grow_where_they_are_half_full_and_are_never_more_than_half_full() -> None:
    kept = RowTable(EXACT)
    before = [len(array) for array in kept.arrays]
    kept.make_room(forget=False)
    after = [len(array) for array in kept.arrays]
    fields = dict(zip(row_table.Memory._fields, zip(before, after, strict=True), strict=True))
    for name in ("transition_keys", "transition_values", "entry_keys", "entry_values", "entry_begin"):
        assert fields[name][0] == fields[name][1], name
    for asked in pairs()[: STATES * STATES]:
        entry(kept, *asked)
        assert 2 * kept.arrays.used[TRANSITIONS] <= len(kept.arrays.transition_keys)
        assert 2 * kept.arrays.used[ENTRIES] <= len(kept.arrays.entry_keys)
    assert len(kept.arrays.entry_begin) < 4 * kept.arrays.used[ENTRIES]
    assert len(kept.arrays.transition_keys) <= 8 * kept.arrays.used[TRANSITIONS]


@pytest.mark.parametrize(("transitions", "grown"), [(31, 1), (32, 2)])
@pytest.mark.parametrize(("entries", "longer"), [(127, 1), (128, 2)])
def test_a_table_doubles_once_half_of_its_room_is_used(
    transitions: int, grown: int, entries: int, longer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_table, "FIRST_ROOM", (64, 256, 16, 32))
    kept = RowTable(EXACT)
    kept.arrays.used[[TRANSITIONS, ENTRIES]] = transitions, entries
    kept.make_room(forget=False)
    arrays = kept.arrays
    assert len(arrays.transition_keys) == len(arrays.transition_values) == 128 * grown
    assert len(arrays.entry_keys) == len(arrays.entry_values) == 512 * longer
    assert len(arrays.entry_begin) - 1 == 256 * longer
    assert [len(each) for each in (arrays.action, arrays.share, arrays.gain)] == [32] * 3
    assert len(arrays.row_begin) - 1 == 32
    assert len(arrays.states) == len(arrays.low) == 64


@pytest.mark.parametrize(("entries", "places"), [(1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (256, 512), (257, 1024)])
def test_a_table_has_a_power_of_two_places_for_twice_its_entries(
    entries: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_table, "FIRST_ROOM", (64, entries, 16, 32))
    assert len(RowTable(EXACT).arrays.entry_keys) == places


@pytest.mark.parametrize("kind", [ANY, STABLE])
def test_only_bounds_have_an_upper_end_and_a_part_for_each_successor(kind: int) -> None:
    assert len(RowTable(EXACT).arrays.high) == len(RowTable(EXACT).arrays.extra) == 0
    arrays = RowTable(kind).arrays
    assert len(arrays.high) == len(arrays.extra) == len(arrays.states) == len(arrays.low)


def test_a_world_has_one_memo_for_each_kind_and_gives_all_back() -> None:
    allowance = Allowance()
    some = RowTables(allowance)
    assert some(EXACT) is some(EXACT)
    assert (some(EXACT).kind, some(ANY).kind, some(STABLE).kind) == (EXACT, ANY, STABLE)
    assert allowance.held == sum(len(some(kind).arrays.states) for kind in (EXACT, ANY, STABLE)) > 0
    some.close()
    assert allowance.held == 0


def test_every_key_is_found_again_in_a_larger_table() -> None:
    keys = np.full(64, -1)
    values = np.zeros(64, dtype=np.int64)
    for n, key in enumerate(range(0, 3200, 100)):
        at = key // 100 % 64
        keys[at], values[at] = key, n
    new_keys, new_values = np.full(128, -1), np.zeros(128, dtype=np.int64)
    row_table.rehash(keys, values, new_keys, new_values)
    assert dict(zip(new_keys[new_keys >= 0].tolist(), new_values[new_keys >= 0].tolist(), strict=True)) == {
        key: n for n, key in enumerate(range(0, 3200, 100))
    }


@given(st.lists(st.integers(0, 2**62), max_size=32, unique=True), st.sets(st.integers(0, 2**62), max_size=8))
def test_a_key_has_its_place_and_no_other(keys: list[int], others: set[int]) -> None:
    """As in a dictionary, also where many keys fall on one place."""
    held = np.full(64, -1)
    with np.errstate(over="ignore"):
        for key in keys:
            at = row_table.place(held, key)
            assert held[at] == -1
            held[at] = key
        assert [held[row_table.place(held, key)] for key in keys] == keys
        assert all(held[row_table.place(held, key)] == -1 for key in others - {*keys})


@LAW
@given(st.lists(st.tuples(st.integers(0, STATES - 1), st.sampled_from((0, 1, 5, 9)), st.integers(0, STATES - 1))))
def test_rows_are_right_however_often_they_are_forgotten(asked: list[tuple[int, int, int]]) -> None:
    """With room for a few rows, over and over again: never the row of another transition or state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_table, "FIRST_ROOM", (2, 4, 4, 16))
        patch.setattr(row_table, "MAX_NUMBERS", 32)
        kept = RowTable(EXACT)
        for seen, by, state in asked:
            outcome = (seen + by) % STATES
            p, q = ({(s + k) % STATES: Fraction(1, 4) for k in (0, 1, 5, 9)} for s in (seen, state))
            expected = {successor: float(chance) for successor, chance in counterfactual_row(p, q, outcome).items()}
            assert row(kept, entry(kept, seen, outcome, state)) == pytest.approx(expected, abs=1e-15)
            assert len(kept.arrays.states) <= 32
