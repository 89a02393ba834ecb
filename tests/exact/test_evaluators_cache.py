"""What questions on one model share is kept for those asked last, and let go with what it keeps alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from monitor.causal import Intervention, Law
from monitor.exact import evaluators as worlds_module
from monitor.exact import tables
from monitor.exact.evaluators import Evaluators, pair_arrays
from monitor.exact.forward.buffers import ForwardBuffers
from monitor.exact.forward.row_table import RowBudget
from monitor.logic import parse
from monitor.logic.syntax import Goal, InterventionRef, Probability, Reward
from monitor.model import MDP

STATES = 4
TRANSITIONS = [(s, a, t, 0.5) for s in range(STATES) for a in range(2) for t in (s, (s + 1 + a) % STATES)]
MODEL = MDP.from_transitions(states=STATES, actions=2, transitions=TRANSITIONS, labels={"a": [3]})
STAYING = MDP.from_transitions(
    states=STATES, actions=2, transitions=[(s, a, s, 1.0) for s in range(STATES) for a in range(2)]
)
POLICIES = {"nominal": [0] * STATES, "alt": [1] * STATES}


def made(budget: RowBudget | None = None) -> Evaluators:
    return Evaluators(MODEL, tables(POLICIES, MODEL), budget=budget)


def alive(*some: weakref.ref[Any]) -> list[bool]:
    """Return which of some objects are still there."""
    gc.collect()
    return [each() is not None for each in some]


def measure(text: str) -> Probability | Reward:
    goal = parse(text)
    assert isinstance(goal, Goal)
    return goal.measure


ONE, TWO, THREE = (measure(f'P=? [ F<={n} "a" ]') for n in (1, 2, 3))


def test_tables_of_recent_queries_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_VALUE_TABLES", 2)
    worlds = made()
    law = worlds.nominal(None, 0)
    one, two = worlds.value_table(law, ONE), weakref.ref(worlds.value_table(law, TWO))
    assert worlds.value_table(law, ONE) is one
    assert alive(two) == [True]
    worlds.value_table(law, THREE)  # the second was asked about longest ago
    assert worlds.value_table(law, ONE) is one
    assert alive(two) == [False]


def test_recently_used_evaluators_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_VALUE_TABLES", 2)
    worlds = made()
    law = worlds.nominal(None, 0)
    one, two = worlds.evaluator(law, law, ONE), weakref.ref(worlds.evaluator(law, law, TWO))
    assert worlds.evaluator(law, law, ONE) is one
    assert alive(two) == [True]
    worlds.evaluator(law, law, THREE)
    assert worlds.evaluator(law, law, ONE) is one
    assert alive(two) == [False]


def test_rows_of_evicted_evaluators_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_VALUE_TABLES", 2)
    budget, allocated = RowBudget(), []
    worlds = made(budget)
    nominal = worlds.nominal(None, 0)
    for steps in (1, 2, 3, 4):
        evaluator = worlds.evaluator(nominal, nominal.under(Intervention(worlds.policies["alt"], steps)), ONE)
        assert evaluator.computed == 0  # there are tables to compute into
        allocated.append(budget.allocated)
    assert allocated == [allocated[0], *[2 * allocated[0]] * 3]


def test_measures_of_an_intervention_share_its_rows() -> None:
    worlds = made()
    law = worlds.nominal(None, 0)
    one, two = worlds.evaluator(law, law, ONE), worlds.evaluator(law, law, TWO)
    one.push_all(ForwardBuffers(0, 0, 1), pair_arrays([(0, 0), (0, 0), (1, 0)]))
    assert two.computed == one.computed
    assert one.unrolled is not two.unrolled
    other = worlds.evaluator(law, law.under(Intervention(worlds.policies["alt"], 1)), ONE)
    assert other.unrolled is one.unrolled  # an unrolling under one law can be used under another
    nested = measure('P=? [ F<=2 alt@0.P>0.5 [ X "a" ] ]')
    assert (
        worlds.evaluator(law, law, nested).unrolled
        is not worlds.evaluator(law, law.under(Intervention(steps=1)), ONE).unrolled
    )


def ended(worlds: Evaluators, end: int) -> Law:
    return worlds.nominal(end, 1)


def test_evaluators_for_an_end_in_a_state_are_evicted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_ENDED", 2)
    worlds = made()
    plain = worlds.nominal(None, 0)
    kept = worlds.evaluator(plain, plain, ONE), worlds.value_table(plain, TWO)
    for end in (0, 1):
        worlds.value_table(ended(worlds, end), TWO)
    values = [weakref.ref(worlds.value_table(ended(worlds, end), TWO)) for end in (0, 1)]
    models = [weakref.ref(ended(worlds, end).future) for end in (0, 1)]
    again = ended(worlds, 0).future
    assert again is models[0]()
    del again
    ended(worlds, 2)  # the one of state 1 was asked about longest ago
    assert alive(*values) == alive(*models) == [True, False]
    assert (worlds.evaluator(plain, plain, ONE), worlds.value_table(plain, TWO)) == kept


def test_evaluators_and_rows_of_ended_episodes_are_evicted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds_module, "MAX_ENDED", 1)
    budget = RowBudget()
    worlds = made(budget)
    plain = worlds.nominal(None, 0)
    first = worlds.evaluator(plain, plain, ONE)
    assert first.computed == 0
    alone, mixed = budget.allocated, list[weakref.ref[Any]]()
    for nominal, law in ((ended(worlds, 0), plain), (plain, ended(worlds, 0)), (ended(worlds, 0), ended(worlds, 0))):
        evaluator = worlds.evaluator(nominal, law, ONE, (nominal, law))
        assert evaluator.computed == 0
        mixed.append(weakref.ref(evaluator))
    assert budget.allocated > alone
    del evaluator, nominal, law
    ended(worlds, 1)
    assert alive(*mixed) == [False] * 3
    assert worlds.evaluator(plain, plain, ONE) is first
    assert budget.allocated == alone


def test_an_end_changes_nothing_where_every_model_stays() -> None:
    halting = MDP.from_transitions(
        states=STATES,
        actions=2,
        transitions=[each for each in TRANSITIONS if each[0] != 3] + [(3, 0, 3, 1), (3, 1, 3, 1)],
    )
    worlds = Evaluators(halting, tables(POLICIES, halting), {"staying": STAYING})
    assert worlds.stays(3)
    assert not worlds.stays(2)
    assert worlds.nominal(3, 1) == Law.stationary(worlds.policies["nominal"], halting)
    moving = Evaluators(halting, tables(POLICIES, halting), {"moving": MODEL})
    assert not moving.stays(3)
    law = moving.nominal(3, 1)
    assert (law.end, law.until) == (3, 1)
    assert law.future is halting  # whose rows say so already
    assert moving.intervention(InterventionRef("model", "moving"), 3).future is not MODEL


def test_a_held_action_is_a_policy_made_once() -> None:
    worlds = made()
    one, two = (worlds.intervention(InterventionRef("action", "1", steps), None) for steps in (2, 3))
    assert one.table is two.table
    assert one.table is not None
    assert one.table.actions is not None
    assert one.table.actions.tolist() == [1] * STATES
    assert (one.steps, two.steps) == (2, 3)


def test_size_of_tables() -> None:
    worlds = made()
    assert worlds.table_bytes == 0
    for some in (ONE, TWO):
        value_table = worlds.value_table(worlds.nominal(None, 0), some)
        assert value_table.table.nbytes == 0
        value_table.all_values(0, value_table.automaton.start)
    assert worlds.table_bytes == 8 * STATES * (2 + 3)


def test_constants_and_values_in_range() -> None:
    worlds = made()
    assert worlds.constant(measure("P=? [ true ]")) == 1.0
    assert worlds.constant(measure("P=? [ false ]")) == 0.0
    assert worlds.constant(ONE) is None
    assert worlds_module.within(ONE, 1.0 + 1e-15) == 1.0
    assert worlds_module.within(ONE, -1e-15) == 0.0
    assert worlds_module.within(measure("R=? [ C<=2 ]"), 3.0) == 3.0
