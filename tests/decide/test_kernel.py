"""The loops' own parts that answers alone do not show: the order in which nodes are added up."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from monitor.causal.memo import EXACT, Memo
from monitor.decide import kernel
from tests.causal.test_memo import entry


@pytest.mark.parametrize(("states", "nodes"), [(10, 2), (10, 9), (400, 30), (4000, 300), (1000, 1), (8, 1)])
@pytest.mark.parametrize("start", [0, 3])
def test_nodes_are_put_in_the_order_of_their_states(states: int, nodes: int, start: int) -> None:
    """By looking through all states, by insertion, or by a sort, whichever is the quickest."""
    met = Random(states + nodes).sample(range(states), nodes)
    mark, where = np.full(states, 6), np.zeros(states, dtype=np.int32)
    held = np.array([states - 1] * start + met, dtype=np.int32)
    places = np.arange(len(held) + 2)
    mark[met], where[met] = 7, np.arange(start, start + nodes)
    kernel.order(mark, where, held, places, start, start + nodes)
    assert held[places[start : start + nodes]].tolist() == sorted(met)
    assert places[:start].tolist() == list(range(start))
    assert places[start + nodes :].tolist() == [start + nodes, start + nodes + 1]


def test_a_row_is_touched_where_it_shares_a_successor_with_what_was_observed() -> None:
    memo, evidence = Memo(EXACT), np.zeros(40, dtype=np.int64)
    first = entry(memo, 0, 1, 20)  # successors 20, 21, 25, 29
    evidence[[21, 3]] = 5
    assert kernel.touched(memo.arrays, first, evidence, 5)
    assert not kernel.touched(memo.arrays, first, evidence, 6)
    evidence[21] = 4
    assert not kernel.touched(memo.arrays, first, evidence, 5)
