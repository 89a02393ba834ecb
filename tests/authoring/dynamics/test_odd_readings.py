"""Odd readings: found where they were put, and a world learned from a log with them is that of the clean log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from monitor.arrays import AnyArray, Floats
from monitor.authoring.dynamics.learned_world import Candidate, Draft, Form, refitted, scores, split
from monitor.authoring.dynamics.odd_readings import odd_readings
from monitor.authoring.dynamics.ranges import features_of
from monitor.authoring.dynamics.steps import RecordedSteps

LENGTH = 40


def rows(seed: int, episodes: int) -> list[Floats]:
    """The level of a tank and an action in each row, one array [LENGTH + 1, 2] for each episode."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(episodes):
        log, level = np.zeros((LENGTH + 1, 2)), rng.uniform(3, 7)
        for k in range(LENGTH + 1):
            log[k] = level, rng.integers(2)
            level = 0.9 * level + 0.5 - 0.8 * (log[k, 1] - 0.5) + 0.2 * rng.normal()
        found.append(log)
    return found


def steps_of(log: Sequence[Floats]) -> RecordedSteps:
    x, x_next = (np.concatenate([each[part, :1] for each in log]) for part in (slice(-1), slice(1, None)))
    path = np.repeat(np.arange(len(log)), [len(each) - 1 for each in log])
    a = np.concatenate([each[:-1, 1] for each in log]).astype(np.int64)
    return RecordedSteps(x, a, np.zeros((len(x), 0)), x_next, path, path, ("shut", "open"))


def soiled(log: Sequence[Floats], fraction: float, value: float | None) -> tuple[list[Floats], AnyArray]:
    """Return the rows with odd levels, and which rows these are [r]. `value`: None for spikes of different sizes."""
    rng, found, hit = np.random.default_rng(7), [], []
    for each in log:
        there, dirty = rng.uniform(size=len(each)) < fraction, each.copy()
        spikes = each[:, 0] + rng.choice([-1, 1], len(each)) * rng.uniform(8, 20, len(each))
        dirty[there, 0] = spikes[there] if value is None else value
        found.append(dirty)
        hit.append(there)
    return found, np.concatenate(hit)


def learned(steps: RecordedSteps) -> Candidate:
    draft = Draft("w", features_of(("level",), np.concatenate([steps.x, steps.x_next])), (), steps.actions, {})
    return refitted(Form("linear", varying=False), draft, split(steps, 0), 0)


@pytest.mark.parametrize("value", [-999.0, 255.0, None])
def test_odd_readings_are_found_where_they_were_put(value: float | None) -> None:
    log, hit = soiled(rows(1, 150), 0.01, value)
    found = odd_readings(steps_of(log))
    assert found.values[:, 0].tolist() == np.concatenate([each[:, 0] for each in log]).tolist()
    assert (found.odd[:, 0] & ~hit).sum() == 0
    assert (hit & ~found.odd[:, 0]).sum() <= (0 if value is not None else 0.05 * hit.sum())
    [said] = found.in_words(("level",))
    assert f"without {int(found.steps.sum()):,} of 6,000 steps" in said
    assert f"level ({int(found.odd.sum()):,} odd readings, " in said


@pytest.mark.parametrize("value", [-999.0, 255.0, None])
def test_a_world_learned_from_soiled_rows_is_that_of_clean_rows(value: float | None) -> None:
    clean, other = learned(steps_of(rows(1, 120))), steps_of(rows(2, 60))
    soiled_steps = steps_of(soiled(rows(1, 120), 0.01, value)[0])
    found = learned(soiled_steps[~odd_readings(soiled_steps).steps])
    ends, actions = np.array([[4.0], [5.0]]), np.zeros(2, np.int64)
    at = found.world.located(ends, actions, np.zeros((2, 0)))[0]
    assert float(at[1, 0] - at[0, 0]) == pytest.approx(0.9, abs=0.03)
    within = np.array([0.02])
    score, best, spoilt = (float(scores(each, other, within).mean()) for each in (found, clean, learned(soiled_steps)))
    assert score == pytest.approx(best, abs=0.02)
    assert spoilt < best - 0.1, "without this, odd readings spoil the world"


@pytest.mark.parametrize("case", ["clean", "lasting", "at the end", "pulses", "a switch"])
def test_what_lasts_or_is_usual_is_never_odd(case: str) -> None:
    log, rng = rows(3, 100), np.random.default_rng(4)
    for each in log:
        at = int(rng.integers(4, 30))
        if case == "lasting":
            each[at:, 0] += 20
        elif case == "at the end":
            each[-1, 0] += 20
        elif case == "pulses":
            each[rng.uniform(size=len(each)) < 0.2, 0] += 20
        elif case == "a switch":
            each[:, 0] = rng.uniform(size=len(each)) < 0.02
    found = odd_readings(steps_of(log))
    assert not found.odd.any()
    assert not found.steps.any()
    assert found.in_words(("level",)) == []


def test_a_run_ends_where_a_step_was_taken_out() -> None:
    steps = steps_of(rows(5, 2))
    assert steps.linked.tolist() == steps.path.tolist()
    kept = np.ones(len(steps), np.bool_)
    kept[[10, 11, 50]] = False
    assert np.bincount(steps[kept].linked).tolist() == [10, 28, 10, 29]
    assert len(odd_readings(steps[np.zeros(len(steps), np.bool_)]).steps) == 0
