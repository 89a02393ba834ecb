"""The coverage of bands: recordings, the models learned from them, and the figures on the page."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from experiments.learned_models import CERTAIN, ENVIRONMENTS, RANDOM, Source, environment, models, summary
from experiments.recordings import LONGEST, learned, recorded
from monitor.arrays import Floats, Ints
from monitor.model import MDP
from tests.oracle.learned import learned_model
from tests.tiers import first, slow

DOCS = Path(__file__).parents[2] / "docs"
SOURCES = pytest.mark.parametrize("source", first(1, ENVIRONMENTS), ids=lambda source: source.name)


@SOURCES
def test_recorded_agents_follow_policy_and_model(source: Source) -> None:
    there = environment(source)
    steps = 20_000
    recording = recorded(there.model, there.behaviour, steps, np.random.default_rng(3))
    agents = steps // LONGEST
    assert len(recording.states) == steps
    absorbing = np.array([there.model.is_absorbing(s) for s in range(there.model.states)])
    first = recording.states[0]
    expected = np.where(absorbing[recording.successors[:-agents]], first, recording.successors[:-agents])
    assert np.array_equal(recording.states[agents:], expected)
    pairs = recording.states * there.model.actions + recording.actions
    visits = np.bincount(recording.states, minlength=there.model.states)
    taken = np.bincount(pairs, minlength=there.behaviour.size).reshape(there.behaviour.shape)
    _close(taken, there.behaviour, visits[:, None])
    rows = np.zeros((there.behaviour.size, there.model.states))
    np.add.at(rows, (pairs, recording.successors), 1)
    chances = np.zeros_like(rows)
    of = np.repeat(np.arange(len(rows)), np.diff(there.model.indptr))
    np.add.at(chances, (of, there.model.successors), there.model.probabilities)
    _close(rows, chances, taken.reshape(-1, 1))
    assert there.behaviour.max() == pytest.approx(1 - RANDOM + RANDOM / there.model.actions)


def _close(counted: Ints | Floats, chances: Floats, of: Ints) -> None:
    """Fail if counts are more than five and a half standard errors from what chances predict."""
    error = np.sqrt(of * chances * (1 - chances))
    assert np.all(np.abs(counted - of * chances) <= 5.5 * error + 1e-9)


@SOURCES
def test_a_model_is_learned_by_definition(source: Source) -> None:
    there = environment(source)
    recording = recorded(there.model, there.behaviour, 3_000, np.random.default_rng(4))
    found = learned(there.model, recording)
    states, actions = there.model.states, there.model.actions
    known = [s for s in range(states) if there.model.is_absorbing(s)]
    draws = [(int(s), int(a), int(t)) for s, a, t in zip(*recording, strict=True)]
    given = {(s, a): {s: Fraction(1)} for s in known for a in range(actions)}
    expected = learned_model(draws, states + 1, actions, given)
    for name in ("indptr", "successors"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert np.allclose(found.probabilities, expected.probabilities, rtol=1e-14, atol=0.0)
    assert found.counts is not None
    assert expected.counts is not None
    for name in ("visits", "since", "order", "elsewhere"):
        assert np.array_equal(getattr(found.counts, name), getattr(expected.counts, name)), name
    assert not any(where[-1] for where in found.labels.values())


@SOURCES
def test_no_policy_reaches_the_goal_much_more_often_than_the_best(source: Source) -> None:
    there = environment(source)
    ours = most = there.model.labels["goal"].astype(float)
    for _ in range(200):
        ours = np.array([_mean(there.model, s, int(a), ours) for s, a in enumerate(there.best)])
        actions = range(there.model.actions)
        most = np.array([max(_mean(there.model, s, a, most) for a in actions) for s in range(there.model.states)])
    assert np.all(ours <= most + 1e-12)
    assert np.all(ours >= most - 0.02)


def _mean(model: MDP, state: int, action: int, values: Floats) -> float:
    successors, probabilities = model.row(state, action)
    return float(probabilities @ values[successors])


@slow
def test_answers_are_informative_and_summed_up() -> None:
    rows = [row for number in range(2) for row in models(environment(ENVIRONMENTS[1]), number, 5)]
    assert len(rows) == 2 * 3 * 2
    assert all(CERTAIN <= row["truth"] <= 1 - CERTAIN for row in rows)
    assert all(
        row["guaranteed_low"] <= row["bounds_low"] <= row["bounds_high"] <= row["guaranteed_high"] for row in rows
    )
    lines = summary(rows)
    assert [(line["query"], line["steps"]) for line in lines] == [
        (query, steps) for query in ("long", "short") for steps in (3_000, 30_000, 300_000)
    ]
    for line in lines:
        part = [row for row in rows if (row["query"], row["steps"]) == (line["query"], line["steps"])]
        held = [row["credible_low"] <= row["truth"] <= row["credible_high"] for row in part]
        widths = [row["credible_high"] - row["credible_low"] for row in part]
        assert line["models"] == 2
        assert line["credible_coverage"] == sum(held) / 2
        assert line["credible_error"] == pytest.approx((sum(held) / 2 * (1 - sum(held) / 2) / 2) ** 0.5)
        assert line["credible_width"] == pytest.approx(sum(widths) / 2)
        assert line["guaranteed_coverage"] == 1.0


@slow
def test_more_data_narrow_the_bands() -> None:
    lines = summary([row for number in range(3) for row in models(environment(ENVIRONMENTS[0]), number, 6)])
    for query in ("short", "long"):
        widths = [line["credible_width"] for line in lines if line["query"] == query]
        assert widths == sorted(widths, reverse=True)


def test_the_page_has_the_numbers_of_the_kept_run() -> None:
    with (DOCS / "experiments" / "learned-models-summary.csv").open(newline="") as handle:
        lines = list(csv.DictReader(handle))
    page = (DOCS / "experiments.md").read_text()
    assert len(lines) == 12
    for line in lines:
        assert _row(line) in page


def _row(line: dict[str, str]) -> str:
    cells = [line["environment"], line["query"], f"{int(line['steps']):,}"]
    for band in ("credible", "guaranteed"):
        held, error = (100 * float(line[f"{band}_{what}"]) for what in ("coverage", "error"))
        cells += [f"{held:.1f} % ± {error:.1f}", f"{float(line[f'{band}_width']):.2f}"]
    return "| " + " | ".join([*cells, f"{float(line['bounds_width']):.2f}"]) + " |"
