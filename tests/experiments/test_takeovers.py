"""Takeovers on ICU-Sepsis: equations against simulated episodes, and the kept results against new ones."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from experiments.takeovers import FALLBACKS, RULES, THETA, Clinic, Row, deciles, exact, simulated, table
from tests.tiers import slow

KEPT = Path(__file__).parents[2] / "docs" / "experiments"
EPISODES = 20_000


def kept(name: str) -> list[dict[str, str]]:
    with (KEPT / name).open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture(scope="module")
def clinic() -> Clinic:
    return Clinic()


@pytest.fixture(scope="module")
def rows(clinic: Clinic) -> list[Row]:
    return table(clinic)


@pytest.mark.parametrize("fallback", FALLBACKS)
def test_simulated_episodes_agree_with_the_equations(clinic: Clinic, fallback: str) -> None:
    region = clinic.regret(fallback, THETA)
    found = simulated(clinic, fallback, region, EPISODES, np.random.default_rng(5))
    for sample, value in zip(found, exact(clinic, fallback, region)[::-1], strict=True):
        assert abs(sample.mean() - value) < 4 * np.sqrt(value * (1 - value) / EPISODES)


@slow
def test_kept_results_are_those_of_this_code(rows: list[Row]) -> None:
    assert [{name: str(value) for name, value in row.items()} for row in deciles(rows)] == kept("takeovers-summary.csv")
    before = kept("takeovers.csv")
    assert [(row["fallback"], row["rule"]) for row in rows] == [(row["fallback"], row["rule"]) for row in before]
    for name in ("threshold", "takeovers", "survival"):
        assert [row[name] for row in rows] == pytest.approx([float(row[name]) for row in before], abs=1e-9)


def test_the_kept_simulation_is_within_three_standard_errors() -> None:
    for line in kept("takeovers-simulated.csv"):
        assert int(line["episodes"]) == 100_000
        for name in ("takeovers", "survival"):
            error = abs(float(line[f"{name}_simulated"]) - float(line[name]))
            assert error < 3 * float(line[f"{name}_error"])


@slow
def test_the_effect_is_the_best_rule_at_equal_takeovers(rows: list[Row]) -> None:
    lines = {(line["fallback"], line["rule"]): line for line in deciles(rows)}
    for fallback in FALLBACKS:
        effect = lines[fallback, "effect"]
        for rule in set(RULES) - {"effect"}:
            other = lines[fallback, rule]
            parts = [part for part in map(str, np.arange(1, 10) / 10) if effect[part] != "" and other[part] != ""]
            assert len(parts) >= 5
            assert all(effect[part] >= other[part] for part in parts)
