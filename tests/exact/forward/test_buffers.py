"""The arrays that the loops work in: how large they are, and what stays when they grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.exact.forward import bounds, step
from monitor.exact.forward import buffers as buffers_module
from monitor.exact.forward.buffers import ForwardBuffers, Workspace

STATES = 7


def sizes(workspace: Workspace) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in workspace.scratch._asdict().items()}


def test_a_workspace_grows_by_what_it_counts_and_stamps_stay() -> None:
    workspace = Workspace(STATES)
    before = sizes(workspace)
    workspace.scratch.clock[:] = 5, 9
    workspace.scratch.state_stamp[:] = 9
    workspace.grow()
    after = sizes(workspace)
    for name in ("edges", "column", "states", "by_state", "start_range", "weights", "accumulated"):
        assert after[name][0] == 2 * before[name][0], name
        assert after[name][1:] == before[name][1:], name
    assert after["first_node"][0] == after["column"][0] + 1
    for name in ("state_stamp", "state_node", "edge_lists", "vectors", "clock", "missing"):
        assert after[name] == before[name], name
    assert workspace.scratch.clock.tolist() == [5, 9]  # else stamps of the arrays before would be valid again
    assert workspace.scratch.state_stamp.tolist() == [9] * STATES


def test_space_for_columns_and_starts_never_shrinks() -> None:
    workspace = Workspace(STATES)
    workspace.fit(3, 5)
    assert (workspace.columns, workspace.starts) == (4, 5)
    assert (sizes(workspace)["edge_lists"], sizes(workspace)["vectors"]) == ((4, 3), (5,))
    assert sizes(workspace)["weights"][1] == 5
    workspace.fit(9, 2)
    assert (workspace.columns, workspace.starts) == (9, 5)
    assert (sizes(workspace)["edge_lists"], sizes(workspace)["vectors"]) == ((9, 3), (5,))


def test_observed_successors_are_stamped_for_large_models_alone() -> None:
    assert sizes(Workspace(STATES))["observed_stamp"] == (0,)
    assert sizes(Workspace(STATES, share_prior_rows=True))["observed_stamp"] == (STATES,)


def test_levels_grow_to_twice_what_they_need_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(STATES)
    levels = workspace.levels
    assert workspace.levels is levels
    assert levels.row_values.shape == (2, STATES)
    assert levels.marked.shape[1] * bounds.WORD > STATES
    workspace.grow_levels(bounds.NODES, 100)
    grown = workspace.levels
    assert [len(grown.column), len(grown.state), len(grown.first_edge), len(grown.low), len(grown.high)] == [200] * 5
    assert [len(grown.first_node), len(grown.edge_count), len(grown.edges)] == [64, 64, 64]
    monkeypatch.setattr(buffers_module, "MAX_LEVELS", 300)
    workspace.grow_levels(bounds.EDGES, 300)
    assert workspace.levels.edges.shape == (300, 4)
    with pytest.raises(LimitError, match=r"choose more than 300 rows .*\(limit MAX_LEVELS\)"):
        workspace.grow_levels(bounds.OFFSETS, 301)


def test_there_are_weights_for_each_start_with_an_obligation_left() -> None:
    assert [
        ForwardBuffers(starts, -1, horizon).live_starts for starts, horizon in ((5, 3), (3, 5), (0, 5), (4, 0))
    ] == [
        3,
        3,
        1,
        1,
    ]
    buffers = ForwardBuffers(5, 2, 3)
    assert (buffers.scalars[step.MAX_STARTS], buffers.scalars[step.QUERIED_START]) == (5, 2)
    assert buffers.arrays.weights.shape[1] == 3
    assert len(buffers.values) == len(buffers.arrays.accumulated) == 5
    assert np.isnan(buffers.values).all()
    assert len(ForwardBuffers(0, 0, 3).values) == 1


def test_a_restart_keeps_the_queried_start() -> None:
    buffers = ForwardBuffers(5, 2, 3)
    buffers.scalars[: step.MAX_STARTS] = 7
    buffers.scalars[step.UNANSWERED] = 1
    buffers.restart()
    assert buffers.scalars.tolist() == [0, 0, 0, 0, 0, 5, 2, 0]


def test_weights_are_kept_as_they_grow() -> None:
    buffers = ForwardBuffers(2, -1, 2)
    old = buffers.arrays
    arrays: list[Any] = list(old[1:])
    for n, array in enumerate(arrays, 2):
        array[...] = n
    old.scalars[step.START_COUNT] = 2
    buffers.grow(len(old.column) + 1, len(old.states))
    new = buffers.arrays
    assert (len(new.column), len(new.first_node)) == (2 * len(old.column) + 2, 2 * len(old.column) + 3)
    assert len(new.states) == len(new.start_range) == len(new.weights) == len(old.states)
    pairs: list[tuple[Any, Any]] = list(zip(old, new, strict=True))
    for before, after in pairs:
        assert (after[: len(before)] == before).all()
    buffers.grow(len(new.column), len(new.states) + 3)
    assert len(buffers.arrays.states) == 2 * len(new.states) + 6
    assert len(buffers.arrays.column) == len(new.column)


def test_the_part_of_one_start_has_its_nodes_and_weights() -> None:
    buffers = ForwardBuffers(3, -1, 3)
    arrays = buffers.arrays
    arrays.scalars[step.SEGMENT_COUNT] = 2
    arrays.column[:2], arrays.first_node[:3] = (4, 6), (0, 2, 4)
    arrays.states[:4] = (10, 11, 20, 21)
    arrays.start_range[:4] = [(0, 1), (0, 2), (1, 3), (2, 3)]
    arrays.weights[:4] = [(0.5, 9, 9), (0.25, 0.75, 9), (9, 0.0, 1.0), (9, 9, 0.125)]
    found = [[(g, s.tolist(), w.tolist()) for g, s, w in buffers.of_start(start)] for start in range(3)]
    assert found == [[(4, [10, 11], [0.5, 0.25])], [(4, [11], [0.75])], [(6, [20, 21], [1.0, 0.125])]]
