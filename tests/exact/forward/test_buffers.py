"""The arrays that the loops work in: how large they are, and what stays when they grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.exact.forward import bounds, step
from monitor.exact.forward import buffers as room_module
from monitor.exact.forward.buffers import ForwardBuffers, Workspace

STATES = 7


def sizes(workspace: Workspace) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in workspace.scratch._asdict().items()}


def test_room_grows_by_what_it_counts_and_marks_stay() -> None:
    workspace = Workspace(STATES)
    before = sizes(workspace)
    workspace.scratch.clock[:] = 5, 9
    workspace.scratch.mark[:] = 9
    workspace.grow()
    after = sizes(workspace)
    for name in ("items", "strand", "states", "places", "lanes", "weights", "gained"):
        assert after[name][0] == 2 * before[name][0], name
        assert after[name][1:] == before[name][1:], name
    assert after["first"][0] == after["strand"][0] + 1
    for name in ("mark", "where", "ends", "rows", "clock", "lacks"):
        assert after[name] == before[name], name
    assert workspace.scratch.clock.tolist() == [5, 9]  # else marks of the arrays before would be met again
    assert workspace.scratch.mark.tolist() == [9] * STATES


def test_room_for_strands_and_lanes_is_never_taken_away() -> None:
    workspace = Workspace(STATES)
    workspace.fit(3, 5)
    assert (workspace.strands, workspace.lanes) == (4, 5)
    assert (sizes(workspace)["ends"], sizes(workspace)["rows"]) == ((4, 3), (5,))
    assert sizes(workspace)["weights"][1] == 5
    workspace.fit(9, 2)
    assert (workspace.strands, workspace.lanes) == (9, 5)
    assert (sizes(workspace)["ends"], sizes(workspace)["rows"]) == ((9, 3), (5,))


def test_what_a_step_could_have_led_to_is_marked_for_large_models_alone() -> None:
    assert sizes(Workspace(STATES))["evidence"] == (0,)
    assert sizes(Workspace(STATES, local=True))["evidence"] == (STATES,)


def test_levels_grow_by_twice_what_they_lack_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(STATES)
    levels = workspace.levels
    assert workspace.levels is levels
    assert levels.below.shape == levels.above.shape == (STATES,)
    workspace.grow_levels(bounds.NODES, 100)
    grown = workspace.levels
    assert [len(grown.strand), len(grown.state), len(grown.entry), len(grown.low), len(grown.high)] == [200] * 5
    assert [len(grown.node_first), len(grown.item_count), len(grown.items)] == [64, 64, 64]
    monkeypatch.setattr(room_module, "MAX_LEVELS", 300)
    workspace.grow_levels(bounds.ITEMS, 300)
    assert workspace.levels.items.shape == (300, 4)
    with pytest.raises(LimitError, match=r"choose more than 300 rows .*\(limit MAX_LEVELS\)"):
        workspace.grow_levels(bounds.PLACES, 301)


def test_a_walk_has_a_lane_for_each_start_point_that_can_still_owe_something() -> None:
    assert [ForwardBuffers(keep, -1, horizon).lanes for keep, horizon in ((5, 3), (3, 5), (0, 5), (4, 0))] == [
        3,
        3,
        1,
        1,
    ]
    progress = ForwardBuffers(5, 2, 3)
    assert (progress.now[step.KEEP], progress.now[step.ONLY]) == (5, 2)
    assert progress.arrays.weights.shape[1] == 3
    assert len(progress.values) == len(progress.arrays.gained) == 5
    assert np.isnan(progress.values).all()
    assert len(ForwardBuffers(0, 0, 3).values) == 1


def test_a_path_forgotten_leaves_what_is_asked_about() -> None:
    progress = ForwardBuffers(5, 2, 3)
    progress.now[: step.KEEP] = 7
    progress.now[step.UNANSWERED] = 1
    progress.restart()
    assert progress.now.tolist() == [0, 0, 0, 0, 0, 5, 2, 0]


def test_a_walk_keeps_what_it_holds_as_it_grows() -> None:
    progress = ForwardBuffers(2, -1, 2)
    old = progress.arrays
    arrays: list[Any] = list(old[1:])
    for n, array in enumerate(arrays, 2):
        array[...] = n
    old.now[step.STARTS] = 2
    progress.grow(len(old.strand) + 1, len(old.states))
    new = progress.arrays
    assert (len(new.strand), len(new.first)) == (2 * len(old.strand) + 2, 2 * len(old.strand) + 3)
    assert len(new.states) == len(new.lanes) == len(new.weights) == len(old.states)
    pairs: list[tuple[Any, Any]] = list(zip(old, new, strict=True))
    for before, after in pairs:
        assert (after[: len(before)] == before).all()
    progress.grow(len(new.strand), len(new.states) + 3)
    assert len(progress.arrays.states) == 2 * len(new.states) + 6
    assert len(progress.arrays.strand) == len(new.strand)


def test_what_one_start_point_owes_is_read_from_its_lane() -> None:
    progress = ForwardBuffers(3, -1, 3)
    walk = progress.arrays
    walk.now[step.SEGMENTS] = 2
    walk.strand[:2], walk.first[:3] = (4, 6), (0, 2, 4)
    walk.states[:4] = (10, 11, 20, 21)
    walk.lanes[:4] = [(0, 1), (0, 2), (1, 3), (2, 3)]
    walk.weights[:4] = [(0.5, 9, 9), (0.25, 0.75, 9), (9, 0.0, 1.0), (9, 9, 0.125)]
    found = [[(g, s.tolist(), w.tolist()) for g, s, w in progress.spreads(lane)] for lane in range(3)]
    assert found == [[(4, [10, 11], [0.5, 0.25])], [(4, [11], [0.75])], [(6, [20, 21], [1.0, 0.125])]]
