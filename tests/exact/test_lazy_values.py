"""Values around the states that are asked for: as those of a table, and how much is looked at and kept for them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.exact import lazy_values as reach_module
from monitor.exact import tables
from monitor.exact.evaluators import Evaluators
from monitor.exact.lazy_values import LazyValues, _Known
from monitor.exact.value_table import ValueTable
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from tests.exact.calls import note_calls
from tests.exact.small import telling_world
from tests.exact.test_all_states import line


def value_table_of(text: str, model: MDP, policies: dict[str, object] | None = None) -> ValueTable:
    goal = parse(text)
    assert isinstance(goal, Goal)
    worlds = Evaluators(model, tables(policies or {"nominal": [0] * model.states}, model))
    law = worlds.nominal(None, 0).under(worlds.intervention(goal.world.change, None))
    return worlds.value_table(law, goal.measure)


def around(value_table: ValueTable) -> LazyValues:
    return LazyValues(value_table.law, value_table.automaton, value_table.labelling)


def asked(reach: LazyValues, value_table: ValueTable, *states: int) -> list[float]:
    found: list[float] = reach.values(0, value_table.automaton.start, np.array(states)).tolist()
    return found


TWO_STEPS = 'P=? [ F<=2 "end" ]'
"""From state 2 of `line`: one value of it, two values of what is owed next, three of what is owed last."""


def test_what_is_known_is_not_missing() -> None:
    nothing = _Known(np.zeros(0, dtype=np.int64), np.zeros(0))
    assert nothing.missing(np.array([0, 4])).tolist() == [0, 4]
    some = nothing.with_more(np.array([2, 7]), np.array([0.2, 0.7]))
    assert some.missing(np.array([0, 2, 4, 7, 9])).tolist() == [0, 4, 9]
    more = some.with_more(np.array([0, 4, 9]), np.array([0.0, 0.4, 0.9]))
    assert more.states.tolist() == [0, 2, 4, 7, 9]
    assert more.read(np.array([9, 0, 7, 2, 4, 9])).tolist() == [0.9, 0.0, 0.7, 0.2, 0.4, 0.9]
    assert not len(more.missing(more.states))


def test_what_is_kept_is_counted() -> None:
    value_table = value_table_of(TWO_STEPS, line(6))
    reach = around(value_table)
    assert asked(reach, value_table, 2) == [0.0]
    assert reach.kept == 1 + 2 + 3
    assert asked(reach, value_table, 2, 3, 2) == [0.0, 0.75**2, 0.0]
    assert reach.kept == 2 + 4 + 6  # states 2 and 3, then 1 to 4, then all six


def test_beyond_the_bound_all_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    value_table = value_table_of(TWO_STEPS, line(6))
    computed: list[int] = []
    note_calls(monkeypatch, LazyValues, "_evaluate", computed, lambda *_: 1)
    for most, values in ((6, 0), (5, 3), (6, 0)):
        monkeypatch.setattr(reach_module, "MAX_KEPT", 6)
        reach = around(value_table)
        asked(reach, value_table, 2)
        computed.clear()
        monkeypatch.setattr(reach_module, "MAX_KEPT", most)
        assert asked(reach, value_table, 2) == [0.0]
        assert len(computed) == values
        assert reach.kept == 6


def test_values_and_entries_of_rows_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    value_table = value_table_of(TWO_STEPS, line(6))
    monkeypatch.setattr(reach_module, "MAX_REACHED", (1 + 2) + (2 + 4) + 3)  # of the last no row is read
    assert asked(around(value_table), value_table, 2) == [0.0]
    monkeypatch.setattr(reach_module, "MAX_REACHED", 11)
    with pytest.raises(LimitError, match="need more than 11 numbers"):
        asked(around(value_table), value_table, 2)


def test_what_is_known_does_not_hide_what_is_not() -> None:
    """From 1 or 2 to 3, where what is owed is known; from 0, labelled otherwise, to 5."""
    moved = [(0, 0, 5, 1.0), (1, 0, 3, 1.0), (2, 0, 3, 1.0), (3, 0, 4, 1.0), (4, 0, 4, 1.0), (5, 0, 4, 1.0)]
    model = MDP.from_transitions(states=6, actions=1, transitions=moved, labels={"a": [0], "b": [4, 5]})
    value_table = value_table_of('P=? [ ("a" & X "b") | (!"a" & X X "b") ]', model)
    reach = around(value_table)
    assert asked(reach, value_table, 1) == [1.0]
    assert asked(reach, value_table, 0, 2) == [1.0, 1.0]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "path",
    [
        '("a" & X "b") | (!"a" & X X "b")',  # the same is owed after one step or after two
        '(F[1,3] ("a" & F<=2 "b")) | G<=4 ("a" | X "b")',
        'G<=3 ("a" | X ("b" | X "a"))',
        'F<=2 ("a" & third@0.P>0.3 [ X "b" ])',
    ],
)
def test_states_evaluated_one_by_one_have_the_values_of_a_table(path: str, seed: int) -> None:
    chance = Random(seed)
    small = telling_world(seed, stochastic=True)
    value_table = value_table_of(
        f"{chance.choice(['alt', 'alt[1]', 'nominal'])}@0.P=? [ {path} ]", small.model, small.policies
    )
    reach, start, states = around(value_table), value_table.automaton.start, small.model.states
    expected, every = value_table.all_values(0, start), set[int]()
    for _ in range(4):
        some = np.array([chance.randrange(states) for _ in range(chance.randint(1, 3))])
        assert reach.values(0, start, some).tolist() == expected[some].tolist()
        every.update(some.tolist())
        together = around(value_table)
        together.values(0, start, np.array(sorted(every)))
        assert reach.kept == together.kept  # each value once
