"""The test of a learned model on streams: no contradiction by few data alone, and what was never recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as with_fields
from functools import cache
from typing import TypeVar

import numpy as np
import pytest
from msgspec.structs import replace

from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import (
    Blind,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    Received,
    StreamSettings,
    Trust,
    TrustSettings,
)
from tests.exact.learned import learned_model
from tests.statistics.test_model_betting import grid, walk

N = TypeVar("N")
ELSEWHERE = 16
SPECS = [FormulaSpec("watch", 'P>=0.5 [ F<=1 "there" ]', bands="off")]
SETTINGS = StreamSettings(window=8, stale_after=1e6, max_lag=1e9)
HELP = "was never recorded; `cfmon model learn --append` adds recordings"


@cache
def learned(steps: int, seed: int = 0) -> MDP:
    """A grid whose moves slip in one of ten, learned from so many steps."""
    draws = [(row // 4, row % 4, to) for row, to in walk(grid(0.1), np.random.default_rng([seed, steps]), steps)]
    return learned_model(17, 4, draws, {"there": frozenset({5})})[0]


def of(kind: type[N], notices: Iterable[Notice]) -> list[N]:
    return [notice for notice in notices if isinstance(notice, kind)]


class Stream:
    """A monitor of one agent that publishes a step a second."""

    def __init__(self, model: MDP, trust: TrustSettings | None = None) -> None:
        self.model = model
        self.monitor = Monitor(model, {"nominal": [0] * model.states}, SPECS, SETTINGS, trust=trust)
        self.seq = 0

    def step(self, state: int, action: int | str = 0) -> list[Notice]:
        now = Instant(1000.0 + self.seq, float(self.seq))
        observation = Observation("ada", "e", self.seq, state, action, time=now.wall)
        self.seq += 1
        return [*self.monitor.observe(observation, now), *self.monitor.evaluate(now)]

    def walk(self, slip: float, steps: int, seed: int = 1) -> list[Notice]:
        """Steps of a grid, each from where the one before led."""
        told: list[Notice] = []
        for row, _ in walk(grid(slip), np.random.default_rng(seed), steps):
            told += self.step(row // 4, row % 4)
        return told

    @property
    def tested(self) -> int:
        doubt = self.monitor.save().common.trust
        assert doubt is not None
        return doubt.fleet.transitions

    def carried(self, **changed: object) -> Stream:
        """The stream on a new monitor with the state of this one."""
        after = Stream(self.model)
        saved = self.monitor.save(everything=True)
        doubt = saved.common.trust
        assert doubt is not None
        after.monitor.load(replace(saved, common=replace(saved.common, trust=replace(doubt, **changed))))
        after.seq = self.seq
        return after


def reasons(told: Iterable[Notice]) -> set[str | None]:
    return {blind.reason for blind in of(Blind, told)}


def blind(told: Iterable[Notice]) -> list[tuple[str, str]]:
    """Each reason that begins, with its detail."""
    return [(each.reason, each.detail) for each in of(Blind, told) if each.reason is not None]


@pytest.mark.parametrize("steps", [200, 2_000, 20_000])
def test_a_stream_like_the_recordings_does_not_contradict_the_model(steps: int) -> None:
    stream = Stream(learned(steps))
    told = stream.walk(0.1, 2_000)
    assert "model_doubt" not in reasons(told)
    assert stream.tested > {200: 800, 2_000: 1_900, 20_000: 1_990}[steps]


@pytest.mark.parametrize("steps", [200, 2_000])
def test_with_the_same_rows_taken_as_exact_it_would(steps: int) -> None:
    exact = with_fields(learned(steps), counts=None)
    assert "model_doubt" in reasons(Stream(exact).walk(0.1, 2_000))


def test_an_environment_that_changes_contradicts_the_model() -> None:
    stream = Stream(learned(20_000))
    before = stream.walk(0.1, 500)
    after = stream.walk(0.8, 300, seed=2)
    assert "model_doubt" not in reasons(before)
    assert "model_doubt" in reasons(after)
    [trust] = [trust for trust in of(Trust, after) if trust.doubted and trust.agent == "ada"]
    assert trust.departing


def test_a_transition_that_was_never_recorded_is_named_and_counted() -> None:
    stream = Stream(learned(20_000))
    for state in (5, 9):
        stream.step(state)
    told = stream.step(2)
    assert blind(told) == [("impossible_step", f"the transition (9, 0) -> 2 {HELP}")]
    assert stream.tested == 2
    stream.step(6)  # leads from what may be a wrong reading, so it is not tested
    stream.step(10)
    assert stream.tested == 3


def test_one_of_them_is_no_proof_and_many_are() -> None:
    stream = Stream(learned(20_000))
    stream.walk(0.1, 300)
    once = [*stream.step(0), *stream.step(15), *stream.step(11)]
    again = [notice for _ in range(30) for state in (5, 0, 4, 8) for notice in stream.step(state)]
    assert "model_doubt" not in reasons(once)
    assert "model_doubt" in reasons(again)


def test_an_action_that_was_never_recorded_in_a_state_is_named_and_not_counted() -> None:
    model = learned_model(17, 4, [(0, 0, 4), (4, 0, 8), (8, 0, 4)], {"there": frozenset({5})})[0]
    stream = Stream(model)
    stream.step(4, 1)
    told = stream.step(8)
    assert blind(told) == [("impossible_step", f"action 1 in state 4 {HELP}")]
    assert stream.tested == 0
    stream.step(4)  # this one is: nothing suggests that the state before was a wrong reading
    assert stream.tested == 1


def test_a_row_that_is_given_in_a_learned_model_keeps_its_impossible_steps() -> None:
    model = learned(2_000)
    assert model.counts is not None
    absorbing = model.with_absorbing(5)
    stream = Stream(absorbing)
    stream.step(5)
    told = stream.step(9)
    assert blind(told) == [("impossible_step", "the model has no transition (5, 0) -> 9")]
    assert stream.tested == 1


def test_a_state_that_was_never_recorded_is_named_and_counts_as_a_successor() -> None:
    stream = Stream(learned(20_000))
    stream.step(5)
    told = stream.step(40)
    [received] = of(Received, told)
    assert (received.result, received.reason) == ("rejected", "unknown_state")
    assert received.detail.startswith(
        "40 is not a state of the model (a whole number in 0..16 is expected); it was never"
    )
    assert [(reason, detail.endswith(HELP)) for reason, detail in blind(told)] == [("unknown_state", True)]
    assert stream.tested == 1
    stream.step(40)  # nothing is known of the state before
    stream.step(5)
    assert stream.tested == 1
    stream.step(9)  # no wrong reading is before this one
    assert stream.tested == 2


def test_a_number_far_outside_what_was_recorded_blinds_and_is_named() -> None:
    stream = Stream(learned(20_000))
    edges, ranges = (np.arange(17.0),), np.array([[0.0, 16.0]])
    edges[0][-1] = np.inf
    model = with_fields(stream.model, bin_edges=edges, ranges=ranges)
    monitor = Monitor(model, {"nominal": [0] * 17}, SPECS, replace(SETTINGS, encoder="bins"))

    def step(seq: int, level: float) -> list[Notice]:
        now = Instant(1000.0 + seq, float(seq))
        observation = Observation("ada", "e", seq, (level,), 0, time=now.wall)
        return [*monitor.observe(observation, now), *monitor.evaluate(now)]

    assert blind(step(0, 5.5)) == []
    told = step(1, 4120.0)  # would be in the last bin
    [received] = of(Received, told)
    assert (received.result, received.reason) == ("rejected", "out_of_range")
    [(reason, detail)] = blind(told)
    assert reason == "out_of_range"
    assert detail.startswith("number 1 of the state is 4120.0, far outside what was recorded, 0 to 16; perhaps")
    assert detail.endswith(HELP)


def test_many_such_states_contradict_the_model() -> None:
    stream = Stream(learned(20_000))
    told = [notice for _ in range(30) for state in (5, 9, 40) for notice in stream.step(state)]
    assert [trust.agent for trust in of(Trust, told) if trust.doubted] == ["ada"]


def test_an_action_that_the_model_does_not_have_says_nothing_about_the_successor() -> None:
    stream = Stream(learned(20_000))
    stream.step(5)
    told = stream.step(9, 7)
    assert [(reason, detail.endswith(HELP)) for reason, detail in blind(told)] == [("unknown_state", True)]
    assert stream.tested == 0


def test_a_state_that_a_given_model_does_not_have_is_not_tested() -> None:
    stream = Stream(with_fields(learned(20_000), counts=None))
    stream.step(5)
    told = stream.step(40)
    why = "40 is not a state of the model (a whole number in 0..16 is expected)"
    assert blind(told) == [("unknown_state", why)]
    assert stream.tested == 0


def test_an_episode_that_begins_in_an_unknown_state_tests_nothing() -> None:
    stream = Stream(learned(20_000))
    stream.step(5)
    now = Instant(1000.0 + stream.seq, float(stream.seq))
    last = Observation("ada", "e", stream.seq, 9, 0, time=now.wall, truncated=True)
    first = Observation("ada", "f", 0, 40, 0, time=now.wall)
    for observation in (last, first):
        stream.monitor.observe(observation, now)
        stream.monitor.evaluate(now)
    assert stream.tested == 1


def test_the_test_goes_on_over_a_restart_as_if_there_had_been_none() -> None:
    killed, never = Stream(learned(20_000)), Stream(learned(20_000))
    rows = list(walk(grid(0.5), np.random.default_rng(3), 120))
    for n, (row, _) in enumerate(rows):
        state = 40 if n % 20 == 7 else row // 4
        if n % 10 == 0:
            killed = killed.carried()
        assert of(Trust, killed.step(state, row % 4)) == of(Trust, never.step(state, row % 4))
        assert killed.monitor.save().common == never.monitor.save().common
    assert killed.tested > 80


def test_a_state_from_before_learned_rows_had_bounds_starts_the_test_again() -> None:
    stream = Stream(learned(20_000))
    stream.walk(0.1, 50)
    assert stream.carried().tested == stream.tested > 40
    assert stream.carried(delta=0.0).tested == 0


def test_a_level_applies_to_bounds_and_bets_together() -> None:
    strict, lax = (Stream(learned(20_000), TrustSettings(alpha=alpha)) for alpha in (1e-9, 0.05))
    steps = dict.fromkeys((strict, lax), 0)
    for stream in steps:
        for row, _ in walk(grid(0.8), np.random.default_rng(5), 1_000):
            steps[stream] += 1
            if any(trust.doubted for trust in of(Trust, stream.step(row // 4, row % 4))):
                break
    assert steps[lax] < steps[strict] < 1_000
