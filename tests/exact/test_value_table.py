"""What lies ahead: when a table is made, what it holds, and that every way to a value gives the same."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.causal import Intervention, Law
from monitor.errors import LimitError
from monitor.exact import tables
from monitor.exact import value_table as tail_module
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


def tail_of(text: str, law: Law | None = None) -> ValueTable:
    goal = parse(text)
    assert isinstance(goal, Goal)
    made = Evaluators(MODEL, WORLDS.policies)
    return made.tail(law or takeover(made), goal.measure)


def takeover(of: Evaluators = WORLDS, steps: int = 2) -> Law:
    return of.nominal(None, 0).under(Intervention(of.policies["alt"], steps))


def test_a_table_holds_what_was_asked_for_and_what_that_needs() -> None:
    tail = tail_of('P=? [ F<=3 "b" ]')
    start = tail.program.start
    assert not tail.tabled(0, start)
    assert tail.tabled(0, FALSE)
    assert tail.tabled(0, TRUE)
    row = tail.value(0, start)
    assert tail.tabled(0, start)
    assert not tail.tabled(1, start)
    assert len(tail.rows) == len(tail.table) == 4
    assert not row.flags.writeable
    assert not tail.table.flags.writeable
    assert not tail._layers  # they are as large as the model
    before = tail.table
    np.testing.assert_array_equal(tail.value(0, start), row)
    assert tail.table is before


def test_offsets_after_the_last_change_are_one() -> None:
    tail = tail_of('P=? [ F<=3 "b" ]')
    tail.value(2, tail.program.start)
    count = len(tail.rows)
    assert tail.tabled(9, tail.program.start)
    np.testing.assert_array_equal(tail.value(9, tail.program.start), tail.value(2, tail.program.start))
    assert len(tail.rows) == count
    tail.value(1, tail.program.start)
    assert len(tail.rows) == len(tail.table) == count + 1  # the rest is there already


def test_what_is_decided_has_its_value_everywhere() -> None:
    tail = tail_of('P=? [ F<=3 "b" ]')
    for owed, value in ((FALSE, 0.0), (TRUE, 1.0)):
        assert tail.value(0, owed).tolist() == [value] * STATES
        assert tail.once(owed).tolist() == [value] * STATES
        assert tail.at(0, owed, EVERYWHERE[:2]).tolist() == [value] * 2
        assert tail.after(0, owed, EVERYWHERE[:2], EVERYWHERE[:2]).tolist() == [value] * 2
    assert not tail.rows


@pytest.mark.parametrize("text", ['P=? [ "a" U<=3 "b" ]', "R=? [ C[1,4] ]", 'P=? [ F<=2 alt@0.P>0.4 [ X "b" ] ]'])
def test_every_way_to_a_value_gives_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = tail_of(text)
    expected = tail.value(0, tail.program.start)
    once = tail_of(text)
    np.testing.assert_array_equal(once.once(once.program.start), expected)
    assert not once.rows  # nothing is kept
    again = tail.once(tail.program.start)
    np.testing.assert_array_equal(again, expected)
    assert not np.shares_memory(again, tail.table)
    assert again.flags.writeable
    for limit, value in (("SMALL", 0), ("MAX_GATHERED", 0), ("MANY", 1)):
        monkeypatch.setattr(tail_module, limit, value)
        other = tail_of(text)
        np.testing.assert_array_equal(other.at(0, other.program.start, EVERYWHERE), expected)
    chosen = np.where(EVERYWHERE % 2 == 0, 0, 1)
    asked = np.array([4, 1, 4, 0])
    fresh = tail_of(text)
    np.testing.assert_array_equal(
        fresh.after(0, fresh.program.start, asked, chosen[asked]),
        tail.after(0, tail.program.start, EVERYWHERE, chosen)[asked],
    )


def test_a_large_model_is_one_of_more_states_than_small(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = np.array([3])
    for small, large in ((STATES, False), (STATES - 1, True)):
        monkeypatch.setattr(tail_module, "SMALL", small)
        assert is_large(MODEL) is large
        tail = tail_of('P=? [ F<=3 "b" ]')
        tail.at(0, tail.program.start, asked)
        assert bool(tail.rows) is not large
        assert tail.prepare()
        assert tail.tabled(0, tail.program.start)
        held = len(tail.rows)
        tail.at(0, tail.program.start, asked)  # a table that is there is read
        assert len(tail.rows) == held


def test_rows_are_laid_out_next_to_each_other_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = len(MODEL.successors)
    for most, gathered in ((entries, True), (entries - 1, False)):
        monkeypatch.setattr(tail_module, "MAX_GATHERED", most)
        (read,) = tail_of('P=? [ F<=3 "b" ]')._reads(0)
        assert (read.entries is not None) is gathered
        assert read.kinds == (0, 1)


def test_a_table_has_room_for_twice_the_models_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    total = MODEL.indptr.size + MODEL.successors.size + MODEL.probabilities.size + MODEL.rewards.size
    assert numbers(MODEL) == total
    monkeypatch.setattr(tail_module, "MAX_CELLS", 0)
    rows = 2 * total // STATES
    assert tail_of(f'P=? [ F<={rows - 1} "b" ]').prepare()
    refused = tail_of(f'P=? [ F<={rows} "b" ]')
    monkeypatch.setattr(tail_module, "SMALL", STATES)
    with pytest.raises(LimitError, match=f"outgrows {2 * total} numbers .*at least {rows + 1} obligations"):
        refused.prepare()
    assert not refused._layers
    monkeypatch.setattr(tail_module, "SMALL", 0)
    large = tail_of(f'P=? [ F<={rows} "b" ]')
    assert large.prepare() is False
    assert not large.rows
    monkeypatch.setattr(tail_module, "MAX_CELLS", (rows + 1) * STATES)
    assert tail_of(f'P=? [ F<={rows} "b" ]').prepare() is True


def test_a_value_taken_once_needs_room_for_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "MAX_CELLS", 2 * STATES)
    monkeypatch.setattr(tail_module, "numbers", lambda _: 0)
    tail = tail_of('P=? [ F<=50 "b" ]')
    assert tail.once(tail.program.start).shape == (STATES,)  # one and the one before it
    monkeypatch.setattr(tail_module, "MAX_CELLS", 2 * STATES - 1)
    tail = tail_of('P=? [ F<=50 "b" ]')
    with pytest.raises(LimitError, match="at least 2 obligations"):
        tail.once(tail.program.start)
    assert not tail._layers


def test_many_pairs_are_worth_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "SMALL", 0)
    for many, tabled in ((STATES, False), (STATES - 1, True)):
        monkeypatch.setattr(tail_module, "MANY", many)
        tail = tail_of('P=? [ F<=3 "b" ]')
        actions = np.zeros(STATES, dtype=np.int64)
        found = tail.after(0, tail.program.start, EVERYWHERE, actions)
        assert bool(tail.rows) is tabled
        whole = tail_of('P=? [ F<=3 "b" ]')
        monkeypatch.setattr(tail_module, "MANY", STATES)
        np.testing.assert_array_equal(found, whole.after(0, whole.program.start, EVERYWHERE, actions))


def test_every_row_counts_towards_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'P=? [ (F[1,3] ("a" & F<=2 "b")) | G<=4 ("a" | X "b") ]'
    tail = tail_of(text)
    tail.value(0, tail.program.start)
    rows = len(tail.rows)
    monkeypatch.setattr(tail_module, "numbers", lambda _: 0)
    monkeypatch.setattr(tail_module, "MAX_CELLS", rows * STATES)
    tail = tail_of(text)
    assert len(tail.value(0, tail.program.start)) == STATES
    monkeypatch.setattr(tail_module, "MAX_CELLS", rows * STATES - 1)
    tail = tail_of(text)
    with pytest.raises(LimitError, match=f"at least {rows} obligations"):
        tail.value(0, tail.program.start)


@pytest.mark.parametrize("bound", [0.05, 0.2, 0.4, 0.6, 0.8])
def test_what_is_nested_changes_with_the_offset_as_the_law_does(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'P=? [ F<=3 @0.P>{bound} [ F<=2 "b" ] ]'
    tabled = tail_of(text)
    expected = tabled.value(0, tabled.program.start)
    monkeypatch.setattr(tail_module, "SMALL", 0)
    around = tail_of(text)
    np.testing.assert_allclose(around.at(0, around.program.start, EVERYWHERE), expected, atol=1e-12)
