"""Candidates measured in a world without chance, where each verdict follows from running the tank on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from monitor import load_world
from monitor.authoring.proposal.measure import CandidateFormula
from monitor.authoring.proposal.measure_world import measured_in_world
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.types import AlarmSpec

FULL, HORIZON, OFFSET = 6.0, 3, 2


class Bucket:
    """A bucket that gets the recorded rain; an open tap takes 2."""

    features = ("level",)
    actions = ("shut", "open")
    labels = ("full",)
    inputs = ("rain",)
    noise = 0
    version = "bucket 1"

    def step(self, x: np.ndarray, a: np.ndarray, u: np.ndarray, w: np.ndarray) -> np.ndarray:
        del u
        return np.asarray(x + w - 2.0 * a[:, np.newaxis])

    def forecast(self, w: np.ndarray) -> np.ndarray:
        return w

    def holds(self, label: str, x: np.ndarray) -> np.ndarray:
        del label
        return np.asarray(x[:, 0] >= FULL)


POLICIES = {"nominal": lambda x: np.zeros(len(x), np.int64), "fallback": lambda x: (x[:, 0] >= 4).astype(np.int64)}


def avoids(level: float, rains: list[float], acts: str) -> bool:
    """Whether the bucket does not get full within the horizon, with the recorded rain and then the last."""
    for step in range(HORIZON):
        if level >= FULL:
            return False
        level += rains[min(step, len(rains) - 1)] - 2.0 * (acts == "fallback" and level >= 4)
    return level < FULL


def counted(levels: list[float], rains: list[float], alarm: AlarmSpec) -> tuple[list[int], dict[str, int]]:
    """First steps of alarms, and outcomes, of one path; every action recorded is `shut`."""
    fired, outcomes, bad, good, firing = [], {"regret": 0, "unavoidable": 0}, 0, 0, False
    for now in range(len(levels)):
        begin = max(now - OFFSET, 0)
        own, other = (avoids(levels[begin], rains[begin : now + 1], acts) for acts in ("nominal", "fallback"))
        if own:
            bad, good = 0, good + 1
            firing = firing and good < alarm.keep
            continue
        outcomes["regret" if other else "unavoidable"] += 1
        good = 0
        bad += other
        if not firing and bad >= alarm.for_:
            fired.append(now)
            firing = True
        bad = 0 if firing else bad
    return fired, outcomes


@pytest.mark.parametrize("alarm", [AlarmSpec(for_=1, keep=2), AlarmSpec(for_=2, keep=1)])
def test_figures_are_those_of_a_plain_count(alarm: AlarmSpec) -> None:
    rng = np.random.default_rng(3)
    paths: list[RecordedPath] = []
    levels: list[float] = []
    inputs: list[float] = []
    wanted: dict[str, int] = {"alarms": 0, "events": 0, "regret": 0, "unavoidable": 0}
    for _ in range(12):
        rain = rng.integers(-1, 3, 15).astype(float)
        level = [float(rng.integers(0, 5))]
        for fall in rain[:-1]:
            level.append(level[-1] + fall)
        paths.append(RecordedPath(np.arange(15) + len(levels), np.zeros(14, np.int64), ended=False))
        levels, inputs = [*levels, *level], [*inputs, *rain.tolist()]
        fired, outcomes = counted(level, rain.tolist(), alarm)
        wanted["alarms"] += len(fired)
        wanted["events"] += sum(a < FULL <= b for a, b in pairwise(level))
        wanted |= {name: wanted[name] + count for name, count in outcomes.items()}
    numbers = RecordedNumbers(np.array(levels)[:, np.newaxis], np.array(inputs)[:, np.newaxis])
    candidates = [CandidateFormula(HORIZON, OFFSET, threshold, "full", alarm) for threshold in (0.5, 0.9)]
    done: list[int] = []
    rows = measured_in_world(load_world(Bucket), POLICIES, candidates, (paths, numbers), done.append)
    assert done[-1] == len(levels)
    for row in rows:  # without chance all thresholds are one
        assert (row.alarms, row.events) == (wanted["alarms"], wanted["events"])
        assert (row.regret, row.unavoidable) == (wanted["regret"], wanted["unavoidable"])
        assert row.answered == 12 * 15
    assert wanted["alarms"] > 5
    assert wanted["unavoidable"] > 0
