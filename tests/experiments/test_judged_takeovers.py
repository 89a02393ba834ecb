"""Takeovers on ICU-Sepsis: judgements against two patients with the same noise, and the kept comparison."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from experiments.judged_takeovers import Judged, Ward, judged, line
from experiments.takeovers import FALLBACKS, THETA, Clinic
from tests.tiers import examples, scaled

KEPT = Path(__file__).parents[2] / "docs" / "experiments" / "takeovers-judged.csv"
EVENTS = ("only_fallback_survives", "both_survive", "only_deployed_survives", "neither_survives")
EPISODES = examples(30, 300)


@pytest.fixture(scope="module")
def ward() -> Ward:
    return Ward(Clinic())


@pytest.fixture(scope="module")
def found(ward: Ward) -> dict[str, Judged]:
    return {fallback: judged(ward, fallback, EPISODES, seed=5) for fallback in FALLBACKS}


@scaled
@pytest.mark.parametrize("fallback", FALLBACKS)
def test_judgements_are_right_on_average_whatever_happened(found: dict[str, Judged], fallback: str) -> None:
    row = line(fallback, EPISODES, found[fallback])
    assert row["takeovers"] > EPISODES / 2
    for event in EVENTS:
        assert abs(row[event] - row[f"{event}_simulated"]) <= 4 * row[f"{event}_error"]
    assert sum(row[event] for event in EVENTS) == pytest.approx(1.0)


@scaled
@pytest.mark.parametrize("fallback", FALLBACKS)
def test_outcomes_are_the_facts_and_the_bound(found: dict[str, Judged], fallback: str) -> None:
    one = found[fallback]
    met, meets = np.array(one.met), np.array(one.values) >= THETA
    truths = {"needed": met & ~meets, "needless": met & meets, "harmful": ~met & meets, "futile": ~met & ~meets}
    assert dict(one.outcomes) == {name: truth.sum() for name, truth in truths.items() if truth.any()}


def test_the_kept_judgements_are_within_three_standard_errors() -> None:
    with KEPT.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["fallback"], int(row["episodes"])) for row in rows] == [(name, 100_000) for name in FALLBACKS]
    for row in rows:
        for event in EVENTS:
            error = abs(float(row[event]) - float(row[f"{event}_simulated"]))
            assert error < 3 * float(row[f"{event}_error"])
        outcomes = [int(row[name]) for name in ("needed", "needless", "harmful", "futile")]
        assert sum(outcomes) == int(row["takeovers"])
