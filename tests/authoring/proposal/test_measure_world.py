"""Candidates measured in a world without chance, where each verdict follows from running the tank on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from monitor import load_world
from monitor.authoring.proposal.measure import CandidateFormula
from monitor.authoring.proposal.measure_world import measured_in_world, replayed_alone
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.model.action_names import ActionNames
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmSpec, Alert, FormulaSpec, Instant, Observation, StreamSettings
from tests.tiers import heavy

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


def test_an_end_that_was_not_recorded_is_an_event_without_a_verdict() -> None:
    """The bucket gets full in the last step, after which nothing was recorded."""
    levels, rains, alarm = [2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 1.0], AlarmSpec(for_=1, keep=2)
    path = RecordedPath(np.arange(5), np.zeros(4, np.int64), ended=True, unseen=True)
    numbers = RecordedNumbers(np.array([*levels, 5.0])[:, np.newaxis], np.ones((5, 1)), np.array([False] * 4 + [True]))
    world, candidate = load_world(Bucket), CandidateFormula(HORIZON, OFFSET, 0.5, "full", alarm)
    (row,) = measured_in_world(world, POLICIES, [candidate], ([path], numbers))
    fired, _ = counted(levels, rains, alarm)
    assert fired == [3]
    assert (row.answered, row.events, row.alarms, row.false, row.preceded) == (4, 1, 1, 0, 1)
    assert row.leads == (1,)
    spec = FormulaSpec("regret_fallback", candidate.text, alarm=alarm)
    again = replayed_alone(
        lambda: Monitor(Bucket, POLICIES, [spec], StreamSettings(encoder="features")), candidate, ([path], numbers),
        numbers.unsafe(world, "full"), names=ActionNames(Bucket.actions, 2), only=[0],
    )  # fmt: skip
    assert (again.answered, again.events, again.alarms, again.leads) == (4, 1, 1, (1,))


class Leaky(Bucket):
    """A bucket that loses up to 1, so that whether it gets full must be drawn."""

    noise = 1
    version = "leaky bucket"

    def step(self, x: np.ndarray, a: np.ndarray, u: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.asarray(x + w - 2.0 * a[:, np.newaxis] - u)

    def invert(self, x: np.ndarray, a: int, x_next: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.asarray(x + w - 2.0 * a - x_next)


@heavy
def test_a_path_replayed_alone_raises_the_alarms_that_were_counted() -> None:
    """Near the threshold it depends on the draws: they are those of the same agent, episode, step and test."""
    rng, world = np.random.default_rng(4), Leaky()
    paths: list[RecordedPath] = []
    levels: list[float] = []
    inputs: list[float] = []
    for _ in range(8):
        level, first = np.array([[rng.uniform(1.0, 4.0)]]), len(levels)
        for _ in range(9):
            rain = rng.uniform(0.3, 1.4)
            levels.append(float(level[0, 0]))
            inputs.append(rain)
            level = world.step(level, np.zeros(1, np.int64), rng.uniform(size=(1, 1)), np.array([[rain]]))
        paths.append(RecordedPath(np.arange(first, len(levels)), np.zeros(8, np.int64), ended=False))
    numbers = RecordedNumbers(np.array(levels)[:, np.newaxis], np.array(inputs)[:, np.newaxis])
    candidate = CandidateFormula(3, 2, 0.55, "full", AlarmSpec(for_=1, keep=2))
    spec = FormulaSpec("regret_fallback", candidate.text, alarm=candidate.alarm)

    def new_monitor() -> Monitor:
        return Monitor(Leaky, POLICIES, [spec], StreamSettings(encoder="features"))

    unsafe = world.holds("full", numbers.states)
    found = replayed_alone(
        new_monitor, candidate, (paths, numbers), unsafe, names=ActionNames(world.actions, 2), only=range(8)
    )
    fired = 0
    for path in paths:
        monitor, firing = new_monitor(), False
        for seq, state in enumerate(path.states.tolist()):
            now = Instant(float(seq), float(seq))
            step = Observation(
                "recorded",
                1,
                seq,
                (levels[state],),
                0 if seq < 8 else None,
                inputs=(inputs[state],),
                truncated=seq == 8,
            )
            alerts = [n for n in (*monitor.observe(step, now), *monitor.evaluate(now)) if isinstance(n, Alert)]
            fired += sum(not firing and each.state == "firing" for each in alerts[:1])
            firing = alerts[-1].state == "firing" if alerts else firing
    assert found.alarms == fired > 0
    assert found.answered == sum(len(path.states) for path in paths)
