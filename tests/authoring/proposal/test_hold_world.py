"""Guards simulated in a world, against the exact figures of the same chain as a table."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import MDP, Feature, load_world
from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.proposal.hold import guarded
from monitor.authoring.proposal.hold_world import guarded_in_world
from monitor.authoring.proposal.measure import CandidateFormula
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.types import AlarmSpec

STATES, UP = 6, np.array([0.6, 0.2])
"""A ladder whose top is unsafe: a step leads up with this probability, by action, and else down."""


class Ladder:
    features = (Feature("rung", low=0, high=STATES - 1, whole=True),)
    actions = ("climb", "rest")
    labels = ("top",)
    noise = 1
    version = "ladder"

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        del w
        return np.clip(x + np.where(u < UP[a][:, np.newaxis], 1, -1), 0, STATES - 1)

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> tuple[Floats, Floats]:
        del w
        low, high = np.zeros(1), np.ones(1)
        if (x_next > x)[0] or x[0] == x_next[0] == STATES - 1:
            high[:] = UP[a]
        else:
            low[:] = UP[a]
        return low, high

    def holds(self, label: str, x: Floats) -> Bools:
        del label
        return np.asarray(x[:, 0] == STATES - 1)


def test_the_figures_are_those_of_the_exact_chain() -> None:
    rungs = np.arange(STATES, dtype=np.float64)[:, np.newaxis]
    table = MDP.from_transitions(
        states=STATES,
        actions=2,
        transitions=[
            (s, a, int(np.clip(s + by, 0, STATES - 1)), p)
            for s in range(STATES)
            for a in range(2)
            for by, p in ((1, UP[a]), (-1, 1 - UP[a]))
        ],
        labels={"top": [STATES - 1]},
        observations=rungs,
    )
    candidate = CandidateFormula(4, 2, 0.7, "top", AlarmSpec())
    paths = [RecordedPath(np.full(13, start), np.zeros(12, np.int64), ended=False) for start in (1, 2)]
    tables = {"nominal": np.zeros(STATES, np.int64), "fallback": np.ones(STATES, np.int64)}
    functions = {"nominal": lambda x: np.zeros(len(x), np.int64), "fallback": lambda x: np.ones(len(x), np.int64)}
    numbers = RecordedNumbers(rungs, np.zeros((STATES, 0)))
    wanted = guarded(table, tables, candidate, paths)
    found = guarded_in_world(load_world(Ladder), functions, (table, tables), candidate, (paths, numbers), seed=0)
    assert [(each.hold, each.length) for each in found] == [(each.hold, each.length) for each in wanted]
    assert [each.unsafe for each in found] == pytest.approx([each.unsafe for each in wanted], abs=0.035)
    assert wanted[0].unsafe - wanted[-1].unsafe > 0.1, "a guard helps"
    assert [each.taken for each in found] == pytest.approx([each.taken for each in wanted], abs=0.035)
    assert all(0.0 < each.taken < 1.0 for each in found[1:])
