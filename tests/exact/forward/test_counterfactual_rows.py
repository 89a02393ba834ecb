"""The rows of a state after an observed transition: which phase, which index, which actions and successors."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given

from monitor.causal import Intervention, Law, conditional_choices, counterfactual_row
from monitor.exact.forward import row_table
from monitor.exact.forward.counterfactual_rows import (
    Dynamics,
    find_entry,
    find_observed,
    phase_at,
    phase_end,
)
from monitor.exact.forward.evaluator import dynamics
from monitor.exact.forward.row_table import (
    ANY,
    EXACT,
    FULL,
    STABLE,
    RowTable,
)
from monitor.model import MDP
from monitor.policy import as_table
from tests.exact.forward.case import CLOSE, a_case, assert_close
from tests.exact.small import LAW, chances

# Reward of pairs and of transitions; state 3 shares no successor with the others.
MODEL = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[
        *[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (0, 1, 1, 0.25), (0, 1, 2, 0.75)],
        *[(1, 0, 0, 0.125), (1, 0, 1, 0.375), (1, 0, 2, 0.5), (1, 1, 1, 1.0)],
        *[(2, 0, 0, 0.25), (2, 0, 2, 0.75), (2, 1, 2, 1.0), (3, 0, 3, 1.0), (3, 1, 3, 1.0)],
    ],
    rewards=[(0, 0, 2.0), (1, 0, 4.0), (1, 0, 1, 8.0), (1, 0, 2, -16.0), (0, 1, 2, 3.0), (0, 0, 1, 1.0)],
)
NOMINAL, OTHER = as_table([0, 0, 0, 0], MODEL), as_table([1, 1, 1, 1], MODEL)
MIXED = as_table([[0.75, 0.25]] * 4, MODEL)
EVEN = as_table([[0.5, 0.5]] * 4, MODEL)
PLAIN = Law.stationary(NOMINAL, MODEL)


def world(nominal: Law = PLAIN, change: Intervention | None = None, *, merge_actions: bool = False) -> Dynamics:
    return dynamics(nominal, nominal.under(change or Intervention()), merge_actions=merge_actions)


class Found(NamedTuple):
    """What a row table holds for one action in a state: the row by successor (of bounds: low, high, reward)."""

    action: int
    weight: float
    reward: float
    successors: dict[int, Any]


def found(of: Dynamics, kind: int, step: tuple[int, int, int], state: int, r: int = 0) -> list[Found]:
    """Return (action, weight, reward, {successor: (lower, upper, successor reward)}) of each row of a state."""
    table = RowTable(kind, MODEL.states, MODEL.actions)
    observed = r if step[2] < 0 else find_observed(of, table, r, *step)
    entry = find_entry(of, table, r, observed, *step, state)
    assert entry != FULL
    return read(table, entry)


def read(table: RowTable, entry: int) -> list[Found]:
    some: list[Found] = []
    for n in range(table.entry_begin[entry], table.entry_begin[entry + 1]):
        row: dict[int, Any] = {}
        for k in range(table.row_begin[n], table.row_begin[n + 1]):
            low = table.lower[k]
            row[int(table.successors[k])] = (
                low if table.kind == EXACT else (low, table.upper[k], table.successor_reward[k])
            )
        some.append(Found(int(table.action[n]), table.weight[n], table.reward[n], row))
    return some


def test_a_phase_is_in_force_from_its_first_offset_to_that_of_the_next() -> None:
    before = PLAIN.under(Intervention(OTHER, 5))
    three = dynamics(before, before.under(Intervention(MIXED, 2)), merge_actions=False)
    assert list(three.phase_begin) == [0, 2, 5]
    assert [phase_at(three, offset) for offset in range(7)] == [0, 0, 1, 1, 1, 2, 2]
    assert [phase_end(three, r) for r in range(3)] == [2, 5, 1 << 62]
    assert list(three.is_nominal) == [False, True, True]
    assert list(three.stochastic) == [True, False, False]


def test_nominal_is_back_where_a_takeover_ends() -> None:
    back = world(change=Intervention(OTHER, 2))
    assert (list(back.phase_begin), list(back.is_nominal)) == ([0, 2], [False, True])
    assert list(world().is_nominal) == [True]
    assert list(world(change=Intervention(OTHER)).is_nominal) == [False]
    assert [np.asarray(back.policy_actions)[r].tolist() for r in range(2)] == [[1] * 4, [0] * 4]


def test_an_observed_choice_is_evidence_only_if_it_was_uncertain() -> None:
    assert len(world().nominal_policy_probabilities) == 0
    uncertain = world(Law.stationary(MIXED, MODEL))
    assert np.asarray(uncertain.nominal_policy_probabilities).tolist() == [MIXED.probabilities.tolist()]  # type: ignore[union-attr]
    later = dynamics(Law.stationary(MIXED, MODEL), PLAIN.under(Intervention(OTHER, 2)), merge_actions=False)
    assert later.nominal_policy_probabilities.shape == (2, 4, 2)
    first = Law.stationary(NOMINAL, MODEL).under(Intervention(MIXED, 2))
    assert np.asarray(dynamics(first, first, merge_actions=False).nominal_policy_probabilities).tolist() == [
        [[0.75, 0.25]] * 4,
        [[1.0, 0.0]] * 4,
    ]


def test_data_shared_between_paths_is_not_copied() -> None:
    mixed = world(change=Intervention(MIXED))
    assert MIXED.probabilities is not None
    assert NOMINAL.actions is not None
    assert np.shares_memory(np.asarray(mixed.policy_probabilities), MIXED.probabilities)
    assert np.shares_memory(np.asarray(world().policy_actions), NOMINAL.actions)
    assert np.shares_memory(np.asarray(world().counterfactual_row_probabilities), MODEL.probabilities)


def test_every_observed_transition_has_a_number_of_its_own() -> None:
    two = world(change=Intervention(OTHER, 2))
    table = RowTable(EXACT, MODEL.states, MODEL.actions)
    every = list(product(range(2), range(4), range(2), range(4)))
    while len(table.observed_keys) < 4 * len(every):
        table.grow(forget=False)
        for step in every:
            find_observed(two, table, *step)
    numbers = [find_observed(two, table, *step) for step in every]
    assert sorted(numbers) == list(range(2, 2 + len(every)))  # those below are of nothing observed
    assert [find_observed(two, table, *step) for step in every] == numbers


def test_what_was_observed_is_repeated_with_its_reward() -> None:
    assert found(world(), EXACT, (1, 0, 2), 1) == [(0, 1.0, 4.0 - 16.0, {2: 1.0})]
    assert found(world(), EXACT, (1, 0, 0), 1) == [(0, 1.0, 4.0, {0: 1.0})]
    for kind in (ANY, STABLE):
        assert found(world(), kind, (1, 0, 1), 1) == [(0, 1.0, 4.0 + 8.0, {1: (1.0, 1.0, 0.0)})]


def test_where_nothing_was_observed_rows_are_the_models() -> None:
    assert found(world(), EXACT, (-1, -1, -1), 1) == [(0, 1.0, 4.0 + 3.0 - 8.0, {0: 0.125, 1: 0.375, 2: 0.5})]
    mixed = world(change=Intervention(MIXED))
    assert found(mixed, EXACT, (-1, -1, -1), 0) == [
        (0, 0.75, 0.75 * 2.5, {0: 0.375, 1: 0.375}),
        (1, 0.25, 0.25 * 2.25, {1: 0.0625, 2: 0.1875}),
    ]


def test_other_states_have_the_counterfactual_row_and_its_reward() -> None:
    (each,) = found(world(), EXACT, (0, 0, 1), 1)
    expected = counterfactual_row(MODEL.row(0, 0), 1, MODEL.row(1, 0))
    assert each.successors == pytest.approx({s: p for s, p in enumerate(expected) if p > 0.0})
    assert each.reward == pytest.approx(4.0 + 8.0 * expected[1] - 16.0 * expected[2])


def test_bounds_keep_the_reward_of_each_successor() -> None:
    (each,) = found(world(), ANY, (0, 0, 1), 1)
    assert each[:3] == (0, 1.0, 4.0)
    rows = each.successors
    assert isinstance(rows, dict)
    assert {s: cell[2] for s, cell in rows.items()} == {0: 0.0, 1: 8.0, 2: -16.0}
    assert all(0.0 <= low <= high <= 1.0 for low, high, _ in rows.values())


def test_a_choice_of_two_gives_two_rows_or_their_sum() -> None:
    change = Intervention(MIXED)
    apart, merged = world(change=change), world(change=change, merge_actions=True)
    two = found(apart, EXACT, (0, 0, 1), 1)
    (one,) = found(merged, EXACT, (0, 0, 1), 1)
    assert [each.action for each in two] == [0, 1]
    assert one[1] == pytest.approx(sum(float(str(each.weight)) for each in two))
    assert one[2] == pytest.approx(sum(float(str(each.reward)) for each in two))
    sums: dict[int, float] = {}
    for each in two:
        assert isinstance(each.successors, dict)
        for s, p in each.successors.items():
            sums[s] = sums.get(s, 0.0) + p
    assert one[3] == pytest.approx(sums)
    assert len(found(merged, ANY, (0, 0, 1), 1)) == 2  # bounds choose a row for each action


def test_the_observed_action_conditions_the_choice() -> None:
    law = Law.stationary(EVEN, MODEL)
    conditioned = found(world(law, Intervention(MIXED)), EXACT, (0, 1, 2), 1)
    weights = conditional_choices(np.array([0.5, 0.5]), 1, np.array([0.75, 0.25]))
    assert [each.weight for each in conditioned] == pytest.approx(weights.tolist())
    prior = found(world(law, Intervention(MIXED)), EXACT, (-1, -1, -1), 1)
    assert [each.weight for each in prior] == [0.75, 0.25]


def test_what_is_never_chosen_has_no_row() -> None:
    """The action observed has become likelier, so the other one is not taken."""
    of = world(Law.stationary(EVEN, MODEL), Intervention(MIXED))
    assert [each[:2] for each in found(of, EXACT, (0, 0, 1), 1)] == [(0, 1.0)]


def test_rows_are_counted_where_the_observation_says_something() -> None:
    table = RowTable(EXACT, MODEL.states, MODEL.actions)
    of = world()
    observed = find_observed(of, table, 0, 0, 0, 1)
    counts = []
    for state in (0, 1, 2, 3):  # the very same, two that share a successor, one that shares none
        find_entry(of, table, 0, observed, 0, 0, 1, state)
        counts.append(table.computed)
    assert counts == [0, 1, 2, 2]


def test_a_model_with_one_transition_has_its_reward() -> None:
    one = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], rewards=[(0, 0, 0, 4.0)])
    of = world(Law.stationary(as_table([0], one), one))
    assert found(of, EXACT, (-1, -1, -1), 0) == [(0, 1.0, 4.0, {0: 1.0})]


def test_nothing_observed_leaves_the_row_as_it_is() -> None:
    two = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 0, 0.25), (0, 0, 1, 0.75), (1, 0, 0, 0.5), (1, 0, 1, 0.5)]
    )
    of = world(Law.stationary(as_table([0, 0], two), two))
    assert found(of, EXACT, (-1, -1, -1), 0) == [(0, 1.0, 0.0, {0: 0.25, 1: 0.75})]


def test_another_model_is_never_what_was_observed() -> None:
    other = MDP.from_transitions(states=4, actions=2, transitions=[(s, a, s, 1.0) for s in range(4) for a in range(2)])
    assert found(world(change=Intervention(dynamics=other)), EXACT, (0, 0, 1), 0)[0][3] == {0: 1.0}


def with_space(monkeypatch: pytest.MonkeyPatch, kind: int, *sizes: int) -> RowTable:
    """Return a table with space for so many observed transitions, entries, rows and successors."""
    monkeypatch.setattr(row_table, "INITIAL_SIZES", sizes)
    return RowTable(kind, MODEL.states, MODEL.actions)


@pytest.mark.parametrize(("kind", "space"), [(EXACT, 3), (ANY, 4)])  # of bounds, space for the first of two rows
def test_without_space_nothing_is_changed(kind: int, space: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of, table = world(change=Intervention(MIXED)), with_space(monkeypatch, kind, 64, 64, 64, space)
    observed = find_observed(of, table, 0, 0, 0, 1)
    rows, successors = table.row_count, table.successor_count
    assert find_entry(of, table, 0, observed, 0, 0, 1, 1) == FULL
    assert (table.entry_count, table.row_count, table.successor_count) == (0, rows, successors)
    assert set(table.entry_keys) == {-1}
    table = with_space(monkeypatch, kind, 64, 64, 64, space + 1)
    observed = find_observed(of, table, 0, 0, 0, 1)
    assert find_entry(of, table, 0, observed, 0, 0, 1, 1) == 0


def test_space_is_used_up_and_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two transitions, three entries, and as many rows as there is space for."""
    of, table = world(), with_space(monkeypatch, EXACT, 2, 3, 8, 64)
    numbers = [find_observed(of, table, 0, 0, 0, outcome) for outcome in (0, 1, 2)]
    assert numbers == [1, 2, FULL]
    assert find_observed(of, table, 0, 0, 0, 1) == 2  # what is known needs no space
    entries = [find_entry(of, table, 0, 1, 0, 0, 0, state) for state in (0, 1, 2, 3)]
    assert entries == [0, 1, 2, FULL]
    assert find_entry(of, table, 0, 1, 0, 0, 0, 1) == 1


def test_two_rows_need_space_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    of, entries = world(change=Intervention(MIXED)), []
    for held in (1, 2):
        table = with_space(monkeypatch, EXACT, 64, 64, held, 64)
        observed = find_observed(of, table, 0, 0, 0, 1)
        entries.append(find_entry(of, table, 0, observed, 0, 0, 1, 1))
    assert entries == [FULL, 0]


@LAW
@given(chances)
def test_actions_and_rows_are_those_of_the_twin(chance: Random) -> None:
    """At each observed step, in each state: the actions with their weights, the rows, the rewards."""
    case = a_case(chance)
    of, twin = dynamics(case.nominal, case.law, merge_actions=False), case.twin(0)
    for k, (pair, (s_next, _)) in enumerate(pairwise(case.path)):
        phase = phase_at(of, k)
        for state in range(case.states):
            actions = twin.actions(k, state)
            exact = found(of, EXACT, (*pair, s_next), state, phase)
            assert_close({each.action: each.weight for each in exact}, actions)
            for action, _, reward, row in exact:
                successors = twin.successors(k, state, action)
                expected = {s: actions.get(action, 0) * chance for s, chance in successors.items()}
                assert_close(row, expected)
                earned = sum(weight * twin.reward(k, state, action, s) for s, weight in expected.items())
                assert reward == pytest.approx(float(earned), abs=CLOSE)
            for kind, name in ((ANY, "any"), (STABLE, "stable")):
                bounded = found(of, kind, (*pair, s_next), state, phase)
                assert_close({each.action: each.weight for each in bounded}, actions)
                for action, weight, reward, row in bounded:
                    ranges = twin.ranges(k, state, action, name)
                    assert_close({s: low for s, (low, _, _) in row.items()}, {s: low for s, low, _ in ranges})
                    assert_close({s: high for s, (_, high, _) in row.items()}, {s: high for s, _, high in ranges})
                    for s, (_, _, extra) in row.items():  # with the part that no successor changes: all of it
                        whole = float(twin.reward(k, state, action, s))
                        assert reward / weight + extra == pytest.approx(whole, abs=1e-9)
