"""Evaluators after an intervention: what acts where, under which rows."""

from __future__ import annotations

import gc
import weakref
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.causal import CounterfactualWorld, Intervention, Law, RowCache, counterfactual_row
from monitor.causal import world as world_module
from monitor.exact import tables
from monitor.model import MDP
from monitor.policy import PolicyTable, as_table
from tests.exact.small import LAW, Small, chances, small_world

# 0 -> {1, 2}, both actions with other odds; 1 and 2 lead to 0 or stay; 3 is out of the others' reach
MODEL = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[
        *[(0, 0, 1, 0.5), (0, 0, 2, 0.5), (0, 1, 1, 0.25), (0, 1, 2, 0.75)],
        *[
            (1, 0, 0, 0.5),
            (1, 0, 1, 0.5),
            (1, 1, 0, 1.0),
            (2, 0, 0, 1.0),
            (2, 1, 2, 1.0),
            (3, 0, 3, 1.0),
            (3, 1, 3, 1.0),
        ],
    ],
)
ICY = MDP.from_transitions(
    states=4, actions=2, transitions=[(s, a, t, 0.5) for s in range(4) for a in range(2) for t in (s, (s + 1) % 4)]
)
NOMINAL = as_table([0, 0, 0, 0], MODEL)
OTHER = as_table([1, 1, 1, 1], MODEL)
MIXED = as_table([[0.5, 0.5]] * 4, MODEL)
LEANING = as_table([[0.25, 0.75]] * 4, MODEL)
PATH = ((0, 0), (1, 1), (0, 0), (2, 0))  # off-policy at offset 1
LAST = ((0, 0), (1, 0), (0, None))


def world(
    change: Intervention, path: tuple[tuple[int, int | None], ...] = PATH, table: PolicyTable = NOMINAL
) -> CounterfactualWorld:
    return CounterfactualWorld.at(path, 0, Law.stationary(table, MODEL), change)


def replays(asked: CounterfactualWorld) -> bool:
    """Whether the world goes the observed way with probability 1, the last action included where it is known."""
    for offset, (state, action) in enumerate(asked.path):
        if action is None:
            return True
        if dict(asked.choices(offset, state)) != pytest.approx({action: 1.0}, abs=1e-12):
            return False
        if offset < asked.observed:
            states, weights = asked.row(offset, state, action)
            if weights[states == asked.path[offset + 1][0]].sum() != pytest.approx(1.0, abs=1e-12):
                return False
    return True


def drawn(chance: Random, *, stochastic: bool) -> tuple[Small, Law]:
    small = small_world(chance, stochastic=stochastic, on_policy=stochastic)
    return small, Law.stationary(tables(small.policies, small.model)["nominal"], small.model)


@LAW
@given(chances)
def test_no_change_replays_the_path_with_deviations_from_the_nominal_policy(chance: Random) -> None:
    small, law = drawn(chance, stochastic=False)
    assert replays(CounterfactualWorld.at(small.setting.path, 0, law, Intervention()))


@LAW
@given(chances)
def test_the_very_actions_taken_replay_the_path(chance: Random) -> None:
    """As a policy where each state saw one action; the deterministic case of docs/semantics/worlds.md, section 3.2."""
    small, law = drawn(chance, stochastic=False)
    first: dict[int, int | None] = {}
    for state, action in small.setting.path:
        first.setdefault(state, action)
    consistent = [n for n, (s, a) in enumerate(small.setting.path) if first[s] == a]
    taken = as_table([first.get(s) or 0 for s in range(small.model.states)], small.model)
    asked = CounterfactualWorld.at(small.setting.path, 0, law, Intervention(taken))
    for offset in consistent:
        state, action = small.setting.path[offset]
        assert asked.choices(offset, state) == [(action, 1.0)]
        if offset < asked.observed and action is not None:
            states, weights = asked.row(offset, state, action)
            assert (states.tolist(), weights.tolist()) == ([small.setting.path[offset + 1][0]], [1.0])


@LAW
@given(chances)
def test_a_stochastic_policy_put_in_its_own_place_replays_the_path(chance: Random) -> None:
    small, law = drawn(chance, stochastic=True)
    same = as_table(law.table(0).probabilities if law.table(0).actions is None else law.table(0).actions, small.model)
    assert replays(CounterfactualWorld.at(small.setting.path, 0, law, Intervention(same)))


@LAW
@given(chances)
def test_choices_and_rows_are_distributions(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.5)
    table = tables(small.policies, small.model)
    changes = [
        Intervention(),
        Intervention(table["alt"]),
        Intervention(table["alt"], 1),
        Intervention(dynamics=small.models["icy"], future=small.models["icy"]),
    ]
    asked = CounterfactualWorld.at(
        small.setting.path, 0, Law.stationary(table["nominal"], small.model), chance.choice(changes)
    )
    for offset in range(len(small.setting.path) + 1):
        for state in range(small.model.states):
            choices = asked.choices(offset, state)
            assert sum(share for _, share in choices) == pytest.approx(1.0, abs=1e-12)
            for action, _ in choices:
                states, weights = asked.row(offset, state, action)
                assert (np.diff(states) > 0).all()
                assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_takeover_acts_for_its_steps_and_hands_back() -> None:
    asked = world(Intervention(OTHER, 2))
    assert [asked.choices(k, 0) for k in range(2)] == [[(1, 1.0)], [(1, 1.0)]]
    assert asked.choices(2, 0) == [(0, 1.0)]
    assert asked.choices(3, 2) == [(0, 1.0)]
    assert asked.choices(4, 2) == [(0, 1.0)]


def test_handed_back_where_the_path_was_means_what_was_done_there() -> None:
    """After a takeover of one step, in the state really visited the action really taken (off-policy here)."""
    asked = world(Intervention(OTHER, 1))
    assert asked.choices(1, 1) == [(1, 1.0)]
    assert asked.choices(1, 2) == [(0, 1.0)]


def test_a_takeover_of_no_steps_is_nominal() -> None:
    assert replays(world(Intervention(OTHER, 0)))


def test_deviations_from_the_nominal_policy_are_no_evidence_of_action_noise() -> None:
    """Nominal gives action 1 in state 1 probability 0, yet it was taken: the alternative's choice is its own."""
    assert world(Intervention(LEANING)).choices(1, 1) == [(0, 0.25), (1, 0.75)]


def test_stochastic_choices_are_conditioned_as_rows_are() -> None:
    """Nominal (1/2, 1/2) took 0; under (1/4, 3/4) it stays with probability 1/2, the worked example of the row."""
    asked = world(Intervention(LEANING), table=MIXED)
    assert dict(asked.choices(0, 3)) == pytest.approx({0: 0.5, 1: 0.5})
    assert asked.choices(1, 3) == [(1, 1.0)]  # 1 was taken and has become likelier
    assert asked.choices(4, 3) == [(0, 0.25), (1, 0.75)]  # beyond the path


def test_the_last_action_is_evidence_although_its_outcome_is_unknown() -> None:
    asked = world(Intervention(LEANING), table=MIXED)
    assert dict(asked.choices(3, 0)) == pytest.approx({0: 0.5, 1: 0.5})
    states, weights = asked.row(3, 0, 1)
    assert (states.tolist(), weights.tolist()) == ([1, 2], [0.25, 0.75])


def test_no_last_action_is_the_policys_choice() -> None:
    assert world(Intervention(), LAST, MIXED).choices(2, 0) == [(0, 0.5), (1, 0.5)]
    assert world(Intervention(LEANING), LAST, MIXED).choices(2, 0) == [(0, 0.25), (1, 0.75)]


def test_rows_where_noise_was_seen_and_where_not() -> None:
    asked = world(Intervention(OTHER))
    states, weights = asked.row(0, 0, 1)
    expected = counterfactual_row(MODEL.row(0, 0), 1, MODEL.row(0, 1))
    assert states.tolist() == [1, 2]
    np.testing.assert_array_equal(weights, expected)
    assert asked.row(0, 3, 1)[1].tolist() == [1.0]  # out of the observation's reach
    assert asked.row(3, 0, 1)[1].tolist() == [0.25, 0.75]  # prior noise from the last observed state on


def test_changed_dynamics_replay_the_noise_under_their_own_rows() -> None:
    asked = world(Intervention(dynamics=ICY, future=ICY))
    assert asked.choices(1, 1) == [(1, 1.0)]  # nobody acts differently
    np.testing.assert_array_equal(asked.row(0, 0, 0)[1], counterfactual_row(MODEL.row(0, 0), 1, ICY.row(0, 0)))
    assert asked.row(3, 2, 0)[1].tolist() == [0.5, 0.5]


def test_an_end_is_absorbing_from_then_on_and_no_earlier() -> None:
    law = Law.ending(NOMINAL, MODEL, MODEL.with_absorbing(2), until=3, end=2)
    asked = CounterfactualWorld.at((*PATH[:3], (2, None)), 0, law, Intervention(OTHER))
    assert asked.row(3, 2, 0)[0].tolist() == [2]
    assert asked.row(3, 0, 0)[0].tolist() == [1, 2]
    assert asked.row(2, 2, 0)[0].tolist() == [0]
    assert law.after(2).until == 1


@pytest.mark.parametrize("causal_model", ["any", "stable"])
def test_the_observed_pair_is_certain_under_every_causal_model(causal_model: str) -> None:
    asked = world(Intervention(OTHER))
    for offset, (state, action) in enumerate(PATH[:-1]):
        states, low, high = asked.row_bounds(offset, state, action or 0, "any" if causal_model == "any" else "stable")
        assert (states.tolist(), low.tolist(), high.tolist()) == ([PATH[offset + 1][0]], [1.0], [1.0])


def test_same_row_elsewhere_is_not_certain_under_every_causal_model() -> None:
    """State 0 under `ICY` has the same row for both actions; only the very pair observed is certain."""
    asked = CounterfactualWorld.at(((0, 0), (1, 0)), 0, Law.stationary(NOMINAL, ICY), Intervention(OTHER))
    _, low, high = asked.row_bounds(0, 0, 1, "any")
    assert (low.tolist(), high.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    _, low, high = asked.row_bounds(0, 0, 1, "stable")
    assert (low.tolist(), high.tolist()) == ([0.0, 1.0], [0.0, 1.0])


def test_the_row_cache_keeps_its_models_alive() -> None:
    """Else another model could come to lie where the first one was, and get its rows."""
    cache: RowCache = {}
    icy = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])
    grave = weakref.ref(icy)
    only = PolicyTable(actions=np.zeros(1, dtype=np.int64))
    plain = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])
    change = Intervention(dynamics=icy, future=icy)
    CounterfactualWorld.at(((0, 0), (0, 0)), 0, Law.stationary(only, plain), change, cache).row(0, 0, 0)
    del icy, change
    gc.collect()
    assert grave() is not None
    assert len(cache) == 1


def test_no_more_rows_are_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "MAX_ROWS", 2)
    asked = world(Intervention(OTHER))
    held = []
    for state in (1, 2, 3, 1):
        asked.row(0, state, 1)
        held.append(len(asked.cache))
    assert held == [1, 2, 1, 2]


def test_laws_drop_past_phases() -> None:
    law = Law.stationary(NOMINAL, MODEL).under(Intervention(OTHER, 3)).under(Intervention(LEANING, 1))
    assert [law.table(k) for k in range(4)] == [LEANING, OTHER, OTHER, NOMINAL]
    assert law.stationary_from() == 3
    assert [law.after(2).table(k) for k in range(2)] == [OTHER, NOMINAL]
    assert law.after(3) == Law.stationary(NOMINAL, MODEL)
