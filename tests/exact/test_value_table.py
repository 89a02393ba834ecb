"""What lies ahead: when a table is made, what it holds, and that every way to a value gives the same."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.causal import Intervention, Law
from monitor.errors import LimitError
from monitor.exact import tables
from monitor.exact import value_table as table_module
from monitor.exact.evaluators import Evaluators
from monitor.exact.value_table import ValueTable, is_large, numbers
from monitor.logic import FALSE, TRUE, parse
from monitor.logic.syntax import Goal
from monitor.model import MDP

STATES = 6
MODEL = MDP.from_transitions(
    states=STATES,
    actions=2,
    transitions=[
        *[(s, 0, t, 0.5) for s in range(STATES) for t in (s, (s + 1) % STATES)],
        *[(s, 1, t, p) for s in range(STATES) for t, p in ((s, 0.25), ((s + 2) % STATES, 0.75))],
    ],
    labels={"a": [0, 1], "b": [5]},
    rewards=[(s, 0, float(s)) for s in range(STATES)],
)
WORLDS = Evaluators(MODEL, tables({"nominal": [0] * STATES, "alt": [1] * STATES, "mix": [[0.5, 0.5]] * STATES}, MODEL))
EVERYWHERE = np.arange(STATES)


def value_table_of(text: str, law: Law | None = None) -> ValueTable:
    goal = parse(text)
    assert isinstance(goal, Goal)
    made = Evaluators(MODEL, WORLDS.policies)
    return made.value_table(law or takeover(made), goal.measure)


def takeover(of: Evaluators = WORLDS, steps: int = 2) -> Law:
    return of.nominal(None, 0).under(Intervention(of.policies["alt"], steps))


def test_a_table_holds_the_queried_values_and_their_prerequisites() -> None:
    value_table = value_table_of('P=? [ F<=3 "b" ]')
    start = value_table.automaton.start
    assert not value_table.tabled(0, start)
    assert value_table.tabled(0, FALSE)
    assert value_table.tabled(0, TRUE)
    row = value_table.all_values(0, start)
    assert value_table.tabled(0, start)
    assert not value_table.tabled(1, start)
    assert len(value_table.rows) == len(value_table.table) == 4
    assert not row.flags.writeable
    assert not value_table.table.flags.writeable
    assert not value_table._layer_cache  # noqa: SLF001 - memory as large as the model, which no answer shows
    before = value_table.table
    np.testing.assert_array_equal(value_table.all_values(0, start), row)
    assert value_table.table is before


def test_offsets_after_the_last_change_are_one() -> None:
    value_table = value_table_of('P=? [ F<=3 "b" ]')
    value_table.all_values(2, value_table.automaton.start)
    count = len(value_table.rows)
    assert value_table.tabled(9, value_table.automaton.start)
    np.testing.assert_array_equal(
        value_table.all_values(9, value_table.automaton.start), value_table.all_values(2, value_table.automaton.start)
    )
    assert len(value_table.rows) == count
    value_table.all_values(1, value_table.automaton.start)
    assert len(value_table.rows) == len(value_table.table) == count + 1  # the rest is there already


def test_what_is_decided_has_its_value_everywhere() -> None:
    value_table = value_table_of('P=? [ F<=3 "b" ]')
    for owed, value in ((FALSE, 0.0), (TRUE, 1.0)):
        assert value_table.all_values(0, owed).tolist() == [value] * STATES
        assert value_table.compute_once(owed).tolist() == [value] * STATES
        assert value_table.values(0, owed, EVERYWHERE[:2]).tolist() == [value] * 2
        assert value_table.action_values(0, owed, EVERYWHERE[:2], EVERYWHERE[:2]).tolist() == [value] * 2
    assert not value_table.rows


@pytest.mark.parametrize("text", ['P=? [ "a" U<=3 "b" ]', "R=? [ C[1,4] ]", 'P=? [ F<=2 alt@0.P>0.4 [ X "b" ] ]'])
def test_every_way_to_a_value_gives_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value_table = value_table_of(text)
    expected = value_table.all_values(0, value_table.automaton.start)
    once = value_table_of(text)
    np.testing.assert_array_equal(once.compute_once(once.automaton.start), expected)
    assert not once.rows  # nothing is kept
    again = value_table.compute_once(value_table.automaton.start)
    np.testing.assert_array_equal(again, expected)
    assert not np.shares_memory(again, value_table.table)
    assert again.flags.writeable
    for limit, value in (("SMALL", 0), ("MAX_GATHERED", 0), ("MANY", 1)):
        monkeypatch.setattr(table_module, limit, value)
        other = value_table_of(text)
        np.testing.assert_array_equal(other.values(0, other.automaton.start, EVERYWHERE), expected)
    chosen = np.where(EVERYWHERE % 2 == 0, 0, 1)
    asked = np.array([4, 1, 4, 0])
    fresh = value_table_of(text)
    np.testing.assert_array_equal(
        fresh.action_values(0, fresh.automaton.start, asked, chosen[asked]),
        value_table.action_values(0, value_table.automaton.start, EVERYWHERE, chosen)[asked],
    )


def test_a_large_model_is_one_of_more_states_than_small(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = np.array([3])
    for small, large in ((STATES, False), (STATES - 1, True)):
        monkeypatch.setattr(table_module, "SMALL", small)
        assert is_large(MODEL) is large
        value_table = value_table_of('P=? [ F<=3 "b" ]')
        value_table.values(0, value_table.automaton.start, asked)
        assert bool(value_table.rows) is not large
        assert value_table.prepare()
        assert value_table.tabled(0, value_table.automaton.start)
        held = len(value_table.rows)
        value_table.values(0, value_table.automaton.start, asked)  # a table that is there is read
        assert len(value_table.rows) == held


def test_few_rows_are_copied_contiguously(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = len(MODEL.successors)
    for most, gathered in ((entries, True), (entries - 1, False)):
        monkeypatch.setattr(table_module, "MAX_GATHERED", most)
        (labelled,) = value_table_of('P=? [ F<=3 "b" ]')._layers(0)  # noqa: SLF001 - either way has the same values
        assert (labelled.entries is not None) is gathered
        assert labelled.different == (0, 1)


def test_a_table_may_be_twice_the_size_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    total = MODEL.indptr.size + MODEL.successors.size + MODEL.probabilities.size + MODEL.rewards.size
    assert numbers(MODEL) == total
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", 0)
    rows = 2 * total // STATES
    assert value_table_of(f'P=? [ F<={rows - 1} "b" ]').prepare()
    refused = value_table_of(f'P=? [ F<={rows} "b" ]')
    monkeypatch.setattr(table_module, "SMALL", STATES)
    with pytest.raises(LimitError, match=f"more than {2 * total} numbers .*at least {rows + 1} obligations"):
        refused.prepare()
    assert not refused._layer_cache  # noqa: SLF001 - memory as large as the model, which no answer shows
    monkeypatch.setattr(table_module, "SMALL", 0)
    large = value_table_of(f'P=? [ F<={rows} "b" ]')
    assert large.prepare() is False
    assert not large.rows
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", (rows + 1) * STATES)
    assert value_table_of(f'P=? [ F<={rows} "b" ]').prepare() is True


def test_a_value_used_once_needs_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", 2 * STATES)
    monkeypatch.setattr(table_module, "numbers", lambda _: 0)
    value_table = value_table_of('P=? [ F<=50 "b" ]')
    assert value_table.compute_once(value_table.automaton.start).shape == (STATES,)  # one and the one before it
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", 2 * STATES - 1)
    value_table = value_table_of('P=? [ F<=50 "b" ]')
    with pytest.raises(LimitError, match="at least 2 obligations"):
        value_table.compute_once(value_table.automaton.start)
    assert not value_table._layer_cache  # noqa: SLF001 - memory as large as the model, which no answer shows


def test_many_pairs_are_worth_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "SMALL", 0)
    for many, tabled in ((STATES, False), (STATES - 1, True)):
        monkeypatch.setattr(table_module, "MANY", many)
        value_table = value_table_of('P=? [ F<=3 "b" ]')
        actions = np.zeros(STATES, dtype=np.int64)
        found = value_table.action_values(0, value_table.automaton.start, EVERYWHERE, actions)
        assert bool(value_table.rows) is tabled
        whole = value_table_of('P=? [ F<=3 "b" ]')
        monkeypatch.setattr(table_module, "MANY", STATES)
        np.testing.assert_array_equal(found, whole.action_values(0, whole.automaton.start, EVERYWHERE, actions))


def test_every_row_counts_towards_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'P=? [ (F[1,3] ("a" & F<=2 "b")) | G<=4 ("a" | X "b") ]'
    value_table = value_table_of(text)
    value_table.all_values(0, value_table.automaton.start)
    rows = len(value_table.rows)
    monkeypatch.setattr(table_module, "numbers", lambda _: 0)
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", rows * STATES)
    value_table = value_table_of(text)
    assert len(value_table.all_values(0, value_table.automaton.start)) == STATES
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", rows * STATES - 1)
    value_table = value_table_of(text)
    with pytest.raises(LimitError, match=f"at least {rows} obligations"):
        value_table.all_values(0, value_table.automaton.start)


@pytest.mark.parametrize("bound", [0.05, 0.2, 0.4, 0.6, 0.8])
def test_what_is_nested_changes_with_the_offset_as_the_law_does(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'P=? [ F<=3 @0.P>{bound} [ F<=2 "b" ] ]'
    tabled = value_table_of(text)
    expected = tabled.all_values(0, tabled.automaton.start)
    monkeypatch.setattr(table_module, "SMALL", 0)
    around = value_table_of(text)
    np.testing.assert_allclose(around.values(0, around.automaton.start, EVERYWHERE), expected, atol=1e-12)
