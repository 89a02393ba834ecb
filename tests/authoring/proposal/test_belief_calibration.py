"""The belief compared with true states, against a filter written out here and against chains whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from monitor.authoring.learning.forecast_skill import CLOSE
from monitor.authoring.proposal.belief_calibration import BeliefCalibration, BeliefRecord
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.model import MDP
from monitor.types import Instant, Observation, StreamSettings
from tests.tiers import slow

ROWS = np.array([[0.7, 0.3, 0.0], [0.2, 0.4, 0.4], [0.1, 0.3, 0.6]])
START = np.array([0.5, 0.5, 0.0])
SHOWS = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
DIRTY = np.array([[0.6, 0.4], [0.3, 0.7], [0.6, 0.4]])
LENGTH = 12


class Taken(NamedTuple):
    """One step of a chain. `shown`: None if the sensor said nothing; `true`: None if nobody knows the state."""

    episode: int
    seq: int
    shown: int | None
    true: int | None


def model(shows: np.ndarray = SHOWS) -> MDP:
    return MDP.from_transitions(
        states=3,
        actions=1,
        transitions=[(s, 0, t, ROWS[s, t]) for s in range(3) for t in range(3) if ROWS[s, t]],
        initial={0: 0.5, 1: 0.5},
        signals=2,
        emissions=[(s, o, shows[s, o]) for s in range(3) for o in range(2)],
    )


def chain(rng: np.random.Generator, episodes: int, *, unseen: float = 0.1, unknown: float = 0.0) -> Iterator[Taken]:
    """Yield the steps of a hidden Markov chain with the emissions `SHOWS`."""
    for episode in range(episodes):
        state = int(rng.choice(3, p=START))
        for seq in range(LENGTH):
            shown = None if rng.random() < unseen else int(rng.random() < SHOWS[state, 1])
            yield Taken(episode, seq, shown, None if rng.random() < unknown else state)
            state = int(rng.choice(3, p=ROWS[state]))


def compared(found: MDP, steps: list[Taken]) -> BeliefCalibration:
    """Return the comparison that a record makes of these steps."""
    checker = HiddenChecker(found, {"nominal": [0, 0]}, {})
    record = BeliefRecord(checker, StreamSettings(window=3, reorder_wait=0.0))
    record.take(
        (
            Observation("a", each.episode, each.seq, action=0, observation=each.shown, truth=each.true,
                        truncated=each.seq == LENGTH - 1),
            Instant(float(n), float(n)),
        )
        for n, each in enumerate(steps)
    )  # fmt: skip
    return record.calibration()


class Said(NamedTuple):
    """A state's probability at a step, and whether it was the true one."""

    episode: int
    said: float
    came: bool


def filtered(shows: np.ndarray, steps: list[Taken]) -> list[Said]:
    """Return the probability of each possible state at each step with a known state: the forward algorithm."""
    found: list[Said] = []
    weights = START
    for each in steps:
        weights = START if each.seq == 0 else weights @ ROWS
        weights = weights if each.shown is None else weights * shows[:, each.shown]
        weights = weights / weights.sum()
        if each.true is not None:
            found += [Said(each.episode, weights[s], s == each.true) for s in range(3) if weights[s] > 0.0]
    return found


def test_each_tenth_has_the_probabilities_of_the_forward_algorithm() -> None:
    steps = list(chain(np.random.default_rng(3), 20, unknown=0.3))
    found, expected = compared(model(), steps), filtered(SHOWS, steps)
    assert found.steps == sum(each.true is not None for each in steps)
    assert (found.episodes, found.unknown, found.impossible) == (20, len(steps) - found.steps, 0)
    assert found.unknown > 0
    for kind in ("every", "first"):
        tenths = [[each for each in expected if int(each.said * 10) == n] for n in range(10)]
        if kind == "first":
            tenths = [list({each.episode: each for each in reversed(here)}.values()) for here in tenths]
        assert [(p.count, p.forecast, p.frequency) for p in (getattr(each, kind) for each in found.tenths)] == [
            (len(here), pytest.approx(np.mean([e.said for e in here]), abs=1e-12), np.mean([e.came for e in here]))
            for here in tenths
            if here
        ]


def test_a_right_model_is_calibrated() -> None:
    found = compared(model(), list(chain(np.random.default_rng(4), 300)))
    assert found.calibrated
    assert found.worst is None
    assert sum(each.first.count > 100 for each in found.tenths) > 5
    for each in found.tenths:
        assert each.first.interval[0] <= each.first.forecast <= each.first.interval[1]
        assert abs(each.every.forecast - each.every.frequency) < 0.08


def test_wrong_emissions_are_noticed() -> None:
    found = compared(model(DIRTY), list(chain(np.random.default_rng(4), 300)))
    assert not found.calibrated
    assert found.worst is not None
    assert found.worst.off == max(each.off for each in found.tenths if not each.first.agrees) > CLOSE


def test_a_true_state_of_probability_zero_is_noticed() -> None:
    found = compared(model(), [Taken(0, 0, 0, 2)])  # no episode begins in state 2
    assert (found.steps, found.impossible, found.calibrated) == (1, 1, False)
    assert [(each.every.count, each.every.frequency) for each in found.tenths] == [(1, 0.0), (1, 0.0)]


def test_without_true_states_nothing_is_compared() -> None:
    found = compared(model(), list(chain(np.random.default_rng(6), 3, unknown=1.0)))
    assert (found.steps, found.episodes, found.tenths) == (0, 0, ())


@slow
@pytest.mark.parametrize("episodes", [3, 30])
def test_a_right_model_is_rarely_called_wrong(episodes: int) -> None:
    """The error rate of all tenths together is at most 1 %; more than 5 of 100 would come once in 1,800 times."""
    rng = np.random.default_rng(episodes)
    wrong = sum(not compared(model(), list(chain(rng, episodes))).calibrated for _ in range(100))
    assert wrong <= 5
