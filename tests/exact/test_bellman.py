"""Means over rows of the model, laid out or read in place, also where an episode has ended in a state."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.causal import Law
from monitor.exact.bellman import Entries, layers, means_over_rows
from monitor.model import MDP
from monitor.policy import as_table

MODEL = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[
        *[(0, 0, 1, 0.5), (0, 0, 3, 0.5), (0, 1, 2, 1.0)],
        *[(1, 0, 0, 0.25), (1, 0, 2, 0.75)],
        *[(2, 0, 0, 0.125), (2, 0, 1, 0.375), (2, 0, 3, 0.5), (2, 1, 3, 1.0)],
        *[(3, 0, 3, 1.0)],
    ],
)
TABLE = as_table([0, 0, 0, 0], MODEL)
GOES_ON = Law.stationary(TABLE, MODEL)
ENDED = Law.ending(TABLE, MODEL, MODEL, 1, 2)
"""From offset 1 on the episode has ended in state 2, of which the rows of the model say nothing."""
VALUES = np.array([8.0, 4.0, 2.0, 1.0])
MEANS = {(0, 0): 2.5, (0, 1): 2.0, (1, 0): 3.5, (2, 0): 3.0, (2, 1): 1.0, (3, 0): 1.0}


def means(law: Law, offset: int, pairs: list[tuple[int, int]]) -> list[float]:
    states, actions = (np.array([pair[n] for pair in pairs], dtype=np.int64) for n in range(2))
    entries = Entries.gather(law, offset, states, actions)
    assert entries.count == len(pairs)
    assert len(entries.of) == len(entries.successors) == len(entries.probabilities)
    found: list[float] = entries.means(VALUES[entries.successors]).tolist()
    return found


def test_a_mean_is_over_the_row_of_its_pair() -> None:
    pairs = [(2, 0), (0, 1), (3, 0), (0, 0), (2, 1), (1, 0), (2, 0)]
    assert means(GOES_ON, 0, pairs) == [MEANS[pair] for pair in pairs]
    assert means(ENDED, 0, pairs) == [MEANS[pair] for pair in pairs]
    assert means(ENDED, 1, pairs) == [2.0 if pair[0] == 2 else MEANS[pair] for pair in pairs]
    assert means(ENDED, 5, [(2, 0)]) == means(ENDED, 1, [(2, 1)]) == [2.0]
    assert means(ENDED, 1, []) == []


def test_the_state_an_episode_ended_in_is_absorbing() -> None:
    entries = Entries.gather(ENDED, 1, np.array([1, 2, 3]), np.array([0, 0, 0]))
    assert entries.of.tolist() == [0, 0, 1, 2]
    assert entries.successors.tolist() == [0, 2, 2, 3]
    assert entries.probabilities.tolist() == [0.25, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(("law", "offset", "expected"), [(GOES_ON, 0, 3.0), (ENDED, 0, 3.0), (ENDED, 1, 2.0)])
def test_rows_read_in_place_have_the_same_means(law: Law, offset: int, expected: float) -> None:
    (layer,) = layers(law, offset, np.arange(4))
    for chosen in ([True, True, True, True], [False, True, True, False], [True, True, False, False]):
        out = np.full(4, -1.0)
        means_over_rows(law, offset, layer, np.array(chosen), VALUES, out)
        every = [2.5, 3.5, expected, 1.0]
        assert out.tolist() == [mean if here else -1.0 for mean, here in zip(every, chosen, strict=True)]
