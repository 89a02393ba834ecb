"""Bets on transitions in compiled code: the numbers are those of `ModelTest.step` and `RowTests.step`, for long."""

from __future__ import annotations

import random

import pytest

from monitor.model import MDP
from monitor.runtime.lanes.lane import Lane
from monitor.runtime.monitor import Monitor
from monitor.statistics import betting_odds, model_test, row_tests
from monitor.statistics.betting_odds import MEMORY
from monitor.statistics.row_tests import ROW_MEMORY
from monitor.types import Instant, Observation, StreamSettings
from tests.runtime.test_lanes import without_lanes
from tests.tiers import examples, first, scaled

AGENTS = ("ada", "bob")


def monitor_of(chances: list[float]) -> Monitor:
    """Return a monitor of a model with one action, in which each state leads to the others with the same chances."""
    rows = [(s, 0, y, chance) for s in range(4) for y, chance in enumerate(chances)]
    model = MDP.from_transitions(states=4, actions=1, transitions=rows, labels={"bad": [3]})
    settings = StreamSettings(window=4, stale_after=1e9, forget_after=1e9)  # no silent agents, so no sweeps
    return Monitor(model, {"nominal": [0] * 4}, ['P>=0.1 [ G<=2 !"bad" ]'], settings)


def steps(draw: random.Random, chances: list[float], seq: int) -> list[tuple[Observation, Instant]]:
    """Return a step of each agent, and when it comes."""
    states = draw.choices(range(len(chances)), chances, k=len(AGENTS))
    now = Instant(1000.0 + seq, float(seq))
    each = zip(AGENTS, states, strict=True)
    return [(Observation(agent=agent, episode=1, seq=seq, state=state, action=0), now) for agent, state in each]


@pytest.mark.parametrize(
    "chances", first(1, [[0.6, 0.39, 0.01], [0.98, 0.02]])
)  # the count of a rare step falls to zero again
def test_counts_that_are_halved_and_bets_that_begin_anew_stay_in_lanes(
    chances: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Lane] = []
    close = Lane.close

    def noted(lane: Lane) -> None:
        closed.append(lane)
        close(lane)

    monkeypatch.setattr(Lane, "close", noted)
    lanes, plain = monitor_of(chances), without_lanes(monitor_of(chances))
    draw = random.Random(len(chances))
    count = 8 * ROW_MEMORY
    assert count > 4 * MEMORY * 3, "each row is halved several times, by the agents' own counts too"
    for n in range(count):
        for step, now in steps(draw, chances, n):
            lanes.step(step, now)
            plain.step(step, now)
        if n % 257 == 0 or n == 2 * MEMORY:
            before = len(closed)
            assert lanes.dump() == plain.dump()
            assert lanes.changed(everything=True) == plain.changed(everything=True)
            del closed[before:]
    assert len(closed) < 20, "hardly a step goes the ordinary way"


@scaled
def test_counts_that_are_halved_and_cleared_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """More transitions than are counted: all counts are cleared, which is for the ordinary way."""
    draw = random.Random(5)
    for _ in range(examples(3, 8)):
        monkeypatch.setattr(betting_odds, "MEMORY", draw.choice([3, 6, 10]))
        monkeypatch.setattr(row_tests, "ROW_MEMORY", draw.choice([4, 9]))
        monkeypatch.setattr(row_tests, "MAX_TRANSITIONS", draw.choice([3, 5, 100]))
        monkeypatch.setattr(model_test, "OWN_TRANSITIONS", draw.choice([2, 3, 5]))
        chances = draw.choice([[0.7, 0.3], [0.5, 0.3, 0.2]])
        lanes, plain = monitor_of(chances), without_lanes(monitor_of(chances))
        for n in range(400):
            for step, now in steps(draw, chances, n):
                lanes.step(step, now)
                plain.step(step, now)
            assert n % 7 or lanes.dump() == plain.dump()
            assert n % 7 or lanes.changed(everything=True) == plain.changed(everything=True)
