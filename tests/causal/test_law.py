"""What acts from now on, as the interventions before have left it."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.causal import Intervention, Law
from monitor.model import MDP
from monitor.policy import as_table

ROWS = [(s, a, t, 0.5) for s in range(3) for a in range(2) for t in (s, (s + 1) % 3)]
MODEL = MDP.from_transitions(
    states=3, actions=2, transitions=ROWS, rewards=[(0, 0, 2.0), (0, 0, 1, 4.0), (1, 0, 3.0), (1, 1, 2, -1.0)]
)
STOPPED = MODEL.with_absorbing(1)
OTHER = MDP.from_transitions(states=3, actions=2, transitions=[(s, a, s, 1.0) for s in range(3) for a in range(2)])
FIRST, SECOND, THIRD = (as_table(actions, MODEL) for actions in ([0, 0, 0], [1, 1, 1], [0, 1, 0]))
PLAIN = Law.stationary(FIRST, MODEL)
ENDING = Law.ending(FIRST, MODEL, STOPPED, 2, 1)
LARGE = Law.ending(FIRST, MODEL, MODEL, 2, 1)  # whose future rows do not say that the state is absorbing


def test_a_law_that_never_changes_is_settled_from_the_start() -> None:
    assert PLAIN.stationary_from() == 0
    assert PLAIN.under(Intervention(SECOND, 3)).stationary_from() == 3
    assert ENDING.stationary_from() == 2
    assert ENDING.under(Intervention(SECOND, 5)).stationary_from() == 5


def test_an_end_takes_effect_at_its_offset_not_before() -> None:
    assert [ENDING.ended(offset) for offset in range(4)] == [None, None, 1, 1]
    assert [ENDING.model_at(offset) is STOPPED for offset in range(4)] == [False, False, True, True]
    assert [PLAIN.ended(offset) for offset in range(2)] == [None, None]


def test_rows_are_explicit_except_for_an_end_in_a_large_model() -> None:
    assert PLAIN.explicit
    assert ENDING.explicit
    assert not LARGE.explicit


@pytest.mark.parametrize("law", [ENDING, LARGE])
def test_an_ended_episode_is_absorbing_without_reward(law: Law) -> None:
    here, there = np.array([1]), np.array([1, 2])
    for action in range(2):
        states, weights = law.row(2, 1, action)
        assert (states.tolist(), weights.tolist()) == ([1], [1.0])
        assert law.rewards(2, 1, action, there).tolist() == [0.0, 0.0]
        assert law.expected_rewards(2, here, np.array([action])).tolist() == [0.0]
    assert law.row(1, 1, 0)[0].tolist() == [1, 2]
    assert law.rewards(1, 1, 0, there).tolist() == [3.0, 3.0]
    assert law.rewards(1, 1, 1, there).tolist() == [0.0, -1.0]
    assert law.expected_rewards(1, here, np.array([0])).tolist() == [3.0]
    assert law.row(2, 0, 0)[0].tolist() == [0, 1]  # other states move on


def test_the_reward_of_a_transition_is_added_to_that_of_its_pair() -> None:
    assert PLAIN.rewards(0, 0, 0, np.array([0, 1])).tolist() == [2.0, 6.0]
    assert PLAIN.expected_rewards(0, np.array([0]), np.array([0])).tolist() == [4.0]


def test_a_takeover_hides_what_would_have_ended_with_it_or_before() -> None:
    twice = PLAIN.under(Intervention(SECOND, 3)).under(Intervention(THIRD, 3))
    assert twice.phases == ((3, THIRD), (None, FIRST))
    assert [twice.table(offset) is THIRD for offset in range(4)] == [True, True, True, False]
    longer = PLAIN.under(Intervention(SECOND, 3)).under(Intervention(THIRD, 2))
    assert longer.phases == ((2, THIRD), (3, SECOND), (None, FIRST))
    assert longer.nominal_from == 2


def test_a_takeover_of_no_steps_is_no_change() -> None:
    assert PLAIN.under(Intervention(SECOND, 0)) == PLAIN
    assert PLAIN.under(Intervention()) is PLAIN


def test_another_dynamics_also_holds_beyond_the_path_by_default() -> None:
    changed = PLAIN.under(Intervention(dynamics=OTHER))
    assert changed.dynamics is changed.future is OTHER
    assert PLAIN.under(Intervention(dynamics=OTHER, future=STOPPED)).future is STOPPED


def test_a_later_offset_becomes_the_first() -> None:
    law = ENDING.under(Intervention(SECOND, 3))
    later = law.after(1)
    assert (later.phases, later.until, later.nominal_from) == (((2, SECOND), (None, FIRST)), 1, 0)
    assert law.after(3).phases == ((None, FIRST),)
    assert law.after(4).until == 0
