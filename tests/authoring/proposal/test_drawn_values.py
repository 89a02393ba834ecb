"""Values drawn for many recorded steps at once, against those of the sampled engine, step by step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from monitor import load_world
from monitor.authoring.proposal.drawn_values import DRAWS, DrawnValues
from monitor.authoring.proposal.measure import CandidateFormula
from monitor.authoring.proposal.measure_world import measured_in_world
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.evaluation.worlds import WorldChecker
from monitor.logic.parser import parse
from monitor.types import AlarmSpec, Drawn, Sampling
from tests.authoring.proposal.test_measure_world import FULL, POLICIES, Bucket
from tests.tiers import heavy

HORIZONS, OFFSET, EXACT = (2, 5), 2, 16 * DRAWS


class Drift(Bucket):
    """A bucket that gets up to 1.3 more than the rain, or 0.7 less, with readings in tenths: the noise is a box."""

    noise = 1
    version = "drift"

    def step(self, x: np.ndarray, a: np.ndarray, u: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.asarray(np.round(np.clip(x + w - 2.0 * a[:, np.newaxis] + 2.0 * u - 0.7, 0.0, 20.0), 1))

    def invert(self, x: np.ndarray, a: int, x_next: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, high = ((x_next + half - x - w + 2.0 * a + 0.7) / 2.0 for half in (-0.05, 0.05))
        return np.clip(np.where(x_next <= 0.0, 0.0, low), 0.0, 1.0), np.clip(high, 0.0, 1.0)


class Dry(Drift):
    """The same bucket without rain."""

    inputs = ()  # type: ignore[assignment] # of another length

    def step(self, x: np.ndarray, a: np.ndarray, u: np.ndarray, w: np.ndarray) -> np.ndarray:
        return super().step(x, a, u, np.zeros((len(w), 1)))

    def invert(self, x: np.ndarray, a: int, x_next: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert not w.size
        return super().invert(x, a, x_next, np.zeros(1))


class Resampled(Drift):
    """The same bucket; the coming rain is one of five that were recorded, the same at all steps of a draw."""

    recorded_steps = 5
    version = "resampled"

    def resample(self, w: np.ndarray, ahead: int, u: np.ndarray) -> np.ndarray:
        return np.asarray(w + 0.05 * ahead * (np.floor(5 * u)[:, np.newaxis] - 2.0))


def uneven(x: np.ndarray) -> np.ndarray:
    """Open the tap more often, the fuller the bucket."""
    chance = 1 / (1 + np.exp(3.5 - x[:, 0]))
    return np.stack([1 - chance, chance], axis=1)


def rarely(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Open the tap in a full bucket in the rain, or else by chance."""
    chance = np.where(w[:, 0] > 1.0, 0.8, 0.3) * (x[:, 0] > 2.0)
    return np.stack([1 - chance, chance], axis=1)


CHANCE = {"nominal": uneven, "fallback": rarely}


Recorded = tuple[list[RecordedPath], RecordedNumbers]


def recorded(world: Bucket, episodes: int, seed: int, *, ended: bool = False) -> Recorded:
    rng = np.random.default_rng(seed)
    paths: list[RecordedPath] = []
    levels: list[float] = []
    rains: list[float] = []
    for _ in range(episodes):
        level, first = np.array([[round(rng.uniform(1.0, 4.0), 1)]]), len(levels)
        actions: list[int] = []
        for _ in range(7):
            rain, action = round(rng.uniform(0.0, 0.6), 1), int(rng.random() < 0.4)
            levels.append(float(level[0, 0]))
            rains.append(rain)
            actions.append(action)
            level = world.step(level, np.array([action]), rng.uniform(size=(1, 1)), np.array([[rain]]))
        paths.append(RecordedPath(np.arange(first, len(levels)), np.array(actions[:-1]), ended=ended))
    return paths, RecordedNumbers(np.array(levels)[:, np.newaxis], np.array(rains)[:, np.newaxis])


@heavy
@pytest.mark.parametrize(
    ("kind", "policies", "ended"),
    [(Drift, POLICIES, False), (Drift, CHANCE, True), (Resampled, CHANCE, False), (Resampled, POLICIES, True)],
)
def test_values_are_those_of_the_sampled_engine(
    kind: type[Bucket],
    policies: Mapping[str, object],
    ended: bool,  # noqa: FBT001
) -> None:
    """Also at path starts, in last states, and with policies by chance, of whose noise the recorded choice tells."""
    paths, numbers = recorded(kind(), 3, 5, ended=ended)
    found = DrawnValues(load_world(kind), policies, (paths, numbers)).values("full", HORIZONS, OFFSET)
    checker, at, between = WorldChecker(kind, policies, {}), 0, 0
    for number, path in enumerate(paths):
        given = [
            (numbers.states[s], int(a) if a >= 0 else None, numbers.inputs[s])
            for s, a in zip(path.states, [*path.actions, -1], strict=True)
        ]
        for seq in range(len(given)):
            last = ended and seq == len(given) - 1
            held = checker.path(given[: seq + 1])
            for n, who in enumerate(("", "fallback")):
                for k, horizon in enumerate(HORIZONS):
                    text = f'{who}@{OFFSET}.P=? [ G<={horizon} !"full" ]'
                    sampling = Sampling(error=0.01, limit=EXACT)
                    drawn = Drawn(seed=number, first=0, alpha=0.01, beta=0.01, sampling=sampling)
                    verdict = checker.verdict(parse(text), text, held, drawn, engine="auto", terminated=last)
                    right = verdict.quantities[0].value
                    error = np.sqrt(max(right * (1 - right), 0.01) * (1 / DRAWS + 1 / EXACT))
                    value = found[n][at, k]
                    assert abs(value - right) < 4.5 * error or (np.isnan(value) and (found[0][at] == 1.0).all())
                    between += 0.1 < right < 0.9
            at += 1
    assert at == 21
    assert between > 8


def test_the_fallback_is_drawn_only_where_it_decides() -> None:
    recorded_ = recorded(Drift(), 4, 6)
    drawn = DrawnValues(load_world(Drift), POLICIES, recorded_)
    nominal, fallback = drawn.values("full", HORIZONS, OFFSET, least=0.6)
    known = ~np.isnan(fallback)
    assert np.array_equal(known[:, 0], (nominal < 0.6).any(axis=1))
    assert 0 < known[:, 0].sum() < len(known)


def test_only_the_steps_at_which_a_policy_fails_have_no_value() -> None:
    def fragile(x: np.ndarray) -> np.ndarray:
        if (x > 5.5).any():
            raise ValueError("too full")
        return np.zeros(len(x), np.int64)

    world = load_world(Drift)
    levels = np.array([[1.0], [1.5], [5.6], [1.0]])
    given = (
        [RecordedPath(np.array([n]), np.zeros(0, np.int64), ended=False) for n in range(4)],
        RecordedNumbers(levels, np.full((4, 1), 0.1)),
    )
    policies = {"nominal": fragile, "fallback": fragile}
    nominal, _ = DrawnValues(world, policies, given).values("full", [2], OFFSET)
    assert np.isnan(nominal[:, 0]).tolist() == [False, False, True, False]


def test_an_impossible_step_begins_a_new_path() -> None:
    """The takeover two steps ago would be before the jump from 1 to 5."""
    levels, rain = np.array([[1.0], [1.5], [5.0], [5.3]]), np.full((4, 1), 0.0)
    joined = [RecordedPath(np.arange(4), np.zeros(3, np.int64), ended=False)], RecordedNumbers(levels, rain)
    alone = [RecordedPath(np.arange(2, 4), np.zeros(1, np.int64), ended=False)], RecordedNumbers(levels, rain)
    whole, part = (
        DrawnValues(load_world(Drift), POLICIES, each).values("full", [3], OFFSET) for each in (joined, alone)
    )
    for one, other in zip(whole, part, strict=True):
        assert np.abs(one[2:] - other).max() < 4.5 * 0.5 * np.sqrt(2 / DRAWS)
    assert whole[0][0] > 0.9
    assert whole[0][2] < 0.6


def test_a_world_without_inputs_has_the_values_of_one_without_rain() -> None:
    paths, numbers = recorded(Drift(), 3, 5)
    dry = RecordedNumbers(numbers.states, np.zeros_like(numbers.inputs))
    none = RecordedNumbers(numbers.states, numbers.inputs[:, :0])
    rainless, without = (
        DrawnValues(load_world(kind), POLICIES, (paths, each)).values("full", HORIZONS, OFFSET)
        for kind, each in ((Drift, dry), (Dry, none))
    )
    for one, other in zip(rainless, without, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.unique(without[0]).size > 2


def test_paths_far_from_the_threshold_are_not_near() -> None:
    levels = np.array([[0.0], [0.1], [FULL - 0.5], [FULL - 0.4]])
    paths = [RecordedPath(np.array([n, n + 1]), np.zeros(1, np.int64), ended=False) for n in (0, 2)]
    given = paths, RecordedNumbers(levels, np.zeros((4, 1)))
    every = [CandidateFormula(3, OFFSET, least, "full", AlarmSpec()) for least in (0.5, 0.95)]
    rows = measured_in_world(load_world(Drift), POLICIES, every, given)
    assert [row.near for row in rows] == [(1,), (1,)]
    assert rows[0].answered == 4
