"""Bounds by the loops, forward and back over what is reached, as by carrying whole histories, one cell at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import pytest

from monitor.causal import World
from monitor.exact import Checker, tables
from monitor.exact.evaluators import Evaluators, pair_arrays
from monitor.exact.forward import buffers as buffers_module
from monitor.exact.forward import row_table
from monitor.exact.forward.row_table import ANY
from monitor.exact.history import HistoryChain
from monitor.logic import parse
from monitor.logic.syntax import Goal
from tests.exact.forward.test_evaluator import RING, ring_path
from tests.exact.small import telling_world

TEXTS = (
    'F<=4 ("a" & X X X "a")',  # eight strands for two letters
    'F<=3 ("a" & G[1,2] ("b" | X "a"))',
    '("a" & X X "b") | (!"a" & X ("b" & X "a"))',  # a strand in use below one that is not
    'F<=1 alt@0.P>0.5 [ X "a" ]',
)


@pytest.mark.parametrize("room", ["enough", "little"])
@pytest.mark.parametrize("kind", ["any", "stable"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(4))
def test_bounds_by_levels_are_those_by_cells(
    seed: int, text: str, kind: Literal["any", "stable"], room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if room == "little":
        monkeypatch.setattr(buffers_module, "INITIAL_NODES", 1)
    small = telling_world(seed, stochastic=seed % 2 == 0, length=5)
    worlds = Evaluators(small.model, tables(small.policies, small.model), small.models)
    for change in ("alt@4", "alt[1]@3", "model:icy@4"):
        goal = parse(f"{change}.P=? [ {text} ]")
        assert isinstance(goal, Goal)
        path = [(state, 0 if action is None else action) for state, action in small.setting.path]
        intervention = worlds.intervention(goal.world.change, None)
        world = World.at(path, 4 - goal.world.offset, worlds.nominal(), intervention)
        tail = worlds.tail(world.law, goal.measure)
        by_cells = HistoryChain(world, tail.program, tail.letters, {}, kind).interval()
        assert worlds.interval(world, goal.measure, kind) == pytest.approx(by_cells, abs=1e-12)
        levels = worlds._workspace().levels
        for begin, end in pairwise(levels.first_node[: len(world.path) + 1].tolist()):
            nodes = list(zip(levels.column[begin:end], levels.state[begin:end], strict=True))
            assert len(set(nodes)) == len(nodes)


def test_more_transitions_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = tables({"nominal": [0] * 8, "alt": [1] * 8}, RING)
    goal, path = parse('alt@4.P=? [ F<=9 "bad" ]'), ring_path(12)
    assert isinstance(goal, Goal)
    expected = Checker(RING, policies).stepper(goal)._line.arm.interval(pair_arrays(path), ANY)
    followed = Checker(RING, policies).along(goal, path)
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (1, 256, 256, 2048))  # all rows have room
    assert Checker(RING, policies).stepper(goal)._line.arm.interval(pair_arrays(path), ANY) == expected
    np.testing.assert_array_equal(Checker(RING, policies).along(goal, path), followed)


def test_rows_of_one_path_are_not_those_of_another() -> None:
    """Many transitions, and the same states at each: what is remembered of one is not taken for another."""
    policies = tables({"nominal": [0] * 8, "alt": [1] * 8}, RING)
    one, goal = Checker(RING, policies), parse('alt@4.P=? [ F<=9 "bad" ]')
    assert isinstance(goal, Goal)
    arm, path = one.stepper(goal)._line.arm, ring_path(60)
    for begin in range(0, 54, 3):
        pairs = pair_arrays(path[begin : begin + 6])
        alone = Checker(RING, policies).stepper(goal)._line.arm
        assert arm.interval(pairs, ANY) == alone.interval(pairs, ANY)
