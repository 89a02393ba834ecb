"""Forecasts in worlds with numbers: closed forms, and outcomes in a plant that is the world, or is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from monitor import Monitor
from monitor.statistics.calibration import CalibrationCounts
from monitor.types import Forecast, FormulaSpec, Judged
from tests.tiers import examples, heavy, scaled
from tests.worlds.lives import Life, lived, settings
from tests.worlds.samples import NumberLine

LINE: dict[str, Any] = {"family": "real", "base": 0.0, "keep": 0.8, "s": 1.0, "push": [0.0, 0.5], "hot": 1.5}
POLICIES = {
    "nominal": lambda x: np.zeros(len(x), dtype=int),
    "careful": lambda x: np.ones(len(x), dtype=int),
}
STEPS = 4


def line_life(text: str, steps: int, seed: int = 0, plant: Mapping[str, float] | None = None) -> Life:
    """The life of an agent whose plant is the world of the monitor but for the numbers in `plant`."""
    monitor = Monitor(NumberLine(LINE), POLICIES, [FormulaSpec("watch", text, every=STEPS + 1)], settings(8))
    rng = np.random.default_rng(seed)
    return lived(
        monitor, NumberLine({**LINE, **(plant or {})}), POLICIES, lambda *_: "nominal", rng, start=0.5, steps=steps
    )


def forecasts(life: Life) -> list[Forecast]:
    return [notice for notice in life.notices if isinstance(notice, Forecast)]


@scaled
def test_a_forecast_has_the_closed_form_and_its_outcome_is_what_came() -> None:
    count = examples(20, 200)
    life = line_life(f'P>=0.5 [ F={STEPS} "hot" ]', count * (STEPS + 1) + 1)
    found, off = forecasts(life), []
    asked = [n.seq for n in life.notices if isinstance(n, Judged)]
    assert [later - earlier for earlier, later in pairwise(asked)] == [STEPS + 1] * (len(asked) - 1)
    spread = math.sqrt(sum(LINE["keep"] ** (2 * k) for k in range(STEPS)))
    for forecast, seq in zip(found, asked, strict=False):
        mean = LINE["keep"] ** STEPS * life.states[seq][0, 0]
        truth = float(ndtr((mean - LINE["hot"]) / spread))
        off.append((forecast.value - truth) / math.sqrt(truth * (1 - truth) / 1024))
        assert forecast.came_true == (life.states[seq + STEPS][0, 0] >= LINE["hot"])
    assert len(off) >= count - 1
    assert np.abs(off).max() < 4.5
    assert abs(np.mean(off)) < 4.5 / math.sqrt(len(off)), "the number of draws does not depend on what is drawn"


@heavy
@scaled
@pytest.mark.parametrize(("plant", "true"), [({}, True), ({"s": 2.0}, False), ({"base": -0.6}, False)])
def test_the_forecasts_of_a_true_world_are_calibrated_and_those_of_a_wrong_one_are_not(
    plant: dict[str, float],
    true: bool,  # noqa: FBT001
) -> None:
    counts, off, variance = CalibrationCounts(), 0.0, 0.0
    for seed in range(examples(2, 8)):
        for forecast in forecasts(line_life(f'P>=0.5 [ G<={STEPS} !"hot" ]', 500, seed, plant)):
            if forecast.came_true is None:
                assert not true, "only in a wrong world a step can be impossible, which drops a forecast"
                continue
            counts.add(forecast.value, came_true=forecast.came_true)
            off += forecast.came_true - forecast.value
            variance += forecast.value * (1.0 - forecast.value)
    assert counts.resolved > examples(60, 250)
    score = abs(off) / math.sqrt(variance)
    assert (score < 3.5) == true
    if true:
        assert sum(not point.agrees for point in counts.reliability(1e-3)) == 0
        assert abs(counts.brier - counts.expected_brier) < 0.05


def test_a_takeover_drops_a_forecast_and_none_begins_during_it() -> None:
    text = f'P>=0.5 [ G<={STEPS} !"hot" ]'
    monitor = Monitor(NumberLine(LINE), POLICIES, [FormulaSpec("watch", text)], settings(8))
    acting = lambda seq, _: "careful" if 2 <= seq < 6 else "nominal"  # noqa: E731
    life = lived(monitor, NumberLine(LINE), POLICIES, acting, np.random.default_rng(0), start=0.0, steps=7)
    assert [(forecast.came_true) for forecast in forecasts(life)] == [None]


def test_a_label_that_fails_drops_the_forecast_and_stops_nothing() -> None:
    class Failing(NumberLine):
        armed = False

        def holds(self, label: str, x: Any) -> Any:
            if self.armed:
                raise ZeroDivisionError
            return super().holds(label, x)

    world = Failing(LINE)
    monitor = Monitor(world, POLICIES, [FormulaSpec("watch", f'P>=0.5 [ G<={STEPS} !"hot" ]')], settings(8))

    def acting(seq: int, _: float) -> str:
        world.armed = seq in {2, 3}
        return "nominal"

    life = lived(monitor, NumberLine(LINE), POLICIES, acting, np.random.default_rng(0), start=0.0, steps=10)
    assert [forecast.came_true is None for forecast in forecasts(life)] == [True, False]
