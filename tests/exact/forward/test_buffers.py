"""The arrays that the loops work in: how large they are, and what stays when they grow."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.exact.forward import buffers as buffers_module
from monitor.exact.forward.buffers import EDGES, NODES, OFFSETS, ForwardBuffers, Workspace

STATES = 7
GROWING = ("edges", "column", "states", "by_state", "keys", "start_range", "weights", "accumulated")
ARRAYS = ("column", "first_node", "states", "start_range", "weights", "accumulated")
FIXED = ("state_stamp", "state_node", "observed_stamp", "edge_lists", "missing")


def sizes(workspace: Workspace) -> dict[str, tuple[int, ...]]:
    return {name: getattr(workspace, name).shape for name in (*GROWING, *FIXED, "first_node")}


def test_a_workspace_grows_by_what_it_counts_and_stamps_stay() -> None:
    workspace = Workspace(STATES)
    before = sizes(workspace)
    workspace.state_stamp[:] = 9
    workspace.grow()
    after = sizes(workspace)
    for name in GROWING:
        assert after[name][0] == 2 * before[name][0], name
        assert after[name][1:] == before[name][1:], name
    assert after["first_node"][0] == after["column"][0] + 1
    assert [after[name] for name in FIXED] == [before[name] for name in FIXED]
    assert list(workspace.state_stamp) == [9] * STATES


def test_space_for_columns_and_starts_never_shrinks() -> None:
    workspace = Workspace(STATES)
    workspace.fit(3, 5)
    assert (workspace.columns, workspace.starts) == (4, 5)
    assert (sizes(workspace)["edge_lists"], sizes(workspace)["weights"][1]) == ((4, 3), 5)
    workspace.fit(9, 2)
    assert (workspace.columns, workspace.starts) == (9, 5)
    assert (sizes(workspace)["edge_lists"], sizes(workspace)["weights"][1]) == ((9, 3), 5)


def test_observed_successors_are_stamped_for_large_models_alone() -> None:
    assert sizes(Workspace(STATES))["observed_stamp"] == (0,)
    assert sizes(Workspace(STATES, share_prior_rows=True))["observed_stamp"] == (STATES,)


def test_levels_grow_to_twice_what_they_need_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(STATES)
    levels = workspace.levels
    assert workspace.levels is levels
    assert levels.row_values.shape == (2, STATES)
    assert levels.ranked.shape == (2, STATES)
    levels.grow(NODES, 100)
    nodes = levels.column, levels.state, levels.first_edge, levels.low, levels.high
    assert [len(each) for each in nodes] == [200] * 5
    assert [len(levels.first_node), len(levels.edge_count), len(levels.edges)] == [64, 64, 64]
    monkeypatch.setattr(buffers_module, "MAX_LEVELS", 300)
    levels.grow(EDGES, 300)
    assert levels.edges.shape == (300, 4)
    with pytest.raises(LimitError, match=r"choose more than 300 rows .*\(limit MAX_LEVELS\)"):
        levels.grow(OFFSETS, 301)


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
    assert (buffers.max_starts, buffers.queried_start) == (5, 2)
    assert buffers.weights.shape[1] == 3
    assert len(buffers.values) == len(buffers.accumulated) == 5
    assert np.isnan(buffers.values).all()
    assert len(ForwardBuffers(0, 0, 3).values) == 1


def test_a_restart_keeps_the_queried_start() -> None:
    buffers = ForwardBuffers(5, 2, 3)
    buffers.unanswered = True
    buffers.restart()
    assert (buffers.start_count, buffers.segment_count, buffers.base_offset, buffers.unanswered) == (0, 0, 0, False)
    assert (buffers.max_starts, buffers.queried_start) == (5, 2)


def test_weights_are_kept_as_they_grow() -> None:
    buffers = ForwardBuffers(2, -1, 2)
    for n, name in enumerate(ARRAYS, 2):
        np.asarray(getattr(buffers, name))[...] = n
    segments, nodes = len(buffers.column), len(buffers.states)
    buffers.grow(segments + 1, nodes)
    assert (len(buffers.column), len(buffers.first_node)) == (2 * segments + 2, 2 * segments + 3)
    assert len(buffers.states) == len(buffers.start_range) == len(buffers.weights) == nodes
    buffers.grow(len(buffers.column), nodes + 3)
    assert len(buffers.states) == len(buffers.start_range) == len(buffers.weights) == 2 * nodes + 6
    assert len(buffers.column) == 2 * segments + 2
    for n, name in enumerate(ARRAYS, 2):
        kept = segments if name in {"column", "first_node"} else nodes if name != "accumulated" else 2
        assert (np.asarray(getattr(buffers, name))[:kept] == n).all(), name


def test_the_part_of_one_start_has_its_nodes_and_weights() -> None:
    buffers = ForwardBuffers(3, -1, 3)
    buffers.segment_count = 2
    for name, some in {
        "column": (4, 6),
        "first_node": (0, 2, 4),
        "states": (10, 11, 20, 21),
        "start_range": [(0, 1), (0, 2), (1, 3), (2, 3)],
        "weights": [(0.5, 9, 9), (0.25, 0.75, 9), (9, 0.0, 1.0), (9, 9, 0.125)],
    }.items():
        np.asarray(getattr(buffers, name))[: len(some)] = some
    found = [[(g, s.tolist(), w.tolist()) for g, s, w in buffers.of_start(start)] for start in range(3)]
    assert found == [[(4, [10, 11], [0.5, 0.25])], [(4, [11], [0.75])], [(6, [20, 21], [1.0, 0.125])]]
