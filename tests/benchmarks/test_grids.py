"""Large grids beside Storm: the same numbers from the same arrays. No time is asserted."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.loading import Peers
from benchmarks.rows import Bench, load
from benchmarks.workloads.grids import QUERY, Chain
from benchmarks.worlds import descent, grid
from monitor.exact import values


@pytest.mark.parametrize("key", ["reach-100", "reach-1000"])
def test_rows_beside_storm(key: str) -> None:
    pytest.importorskip("stormpy", reason="stormpy is not installed: pip install '.[bench]' in a clone")
    rows = load()[key](Bench(Peers(), quick=True))  # compares the values, or raises
    assert [row.key for row in rows] == [f"{key}/one", f"{key}/all"]
    assert all(row.theirs is not None and row.ratio is not None for row in rows)


def test_rows_without_storm_say_so() -> None:
    rows = load()["reach-100"](Bench(Peers(None), quick=True))
    assert [(row.ratio, row.met) for row in rows] == [(None, None)] * 2
    assert all(row.note for row in rows)


def test_the_4x4_grid_has_the_known_value() -> None:
    """.9089689536, from Storm, of going down and then right."""
    found = values(QUERY, model=grid(4), policies={"nominal": descent(4)})
    assert found[0] == pytest.approx(0.9089689536, abs=1e-9)


def test_the_chain_is_the_grid_under_its_policy() -> None:
    chain = Chain.of_grid(12)
    model, actions = grid(12), descent(12).actions
    assert actions is not None
    built = chain.model()
    for state in range(model.states):
        assert all(
            np.array_equal(x, y) for x, y in zip(built.row(state, 0), model.row(state, actions[state]), strict=True)
        )
