"""Proposed policies, paths and formulas, against slow definitions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from monitor.authoring.learning.cross_fitting import Collected
from monitor.authoring.learning.holdout import HELD, HeldOut
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.authoring.learning.state_codes import code_of
from monitor.authoring.learning.states import States
from monitor.authoring.proposal.measure import (
    CandidateFormula,
    FormulaTrace,
    Measured,
    PathAlarms,
    first_firing,
    measured,
    replayed,
    summary_of,
    take,
)
from monitor.authoring.proposal.model_quality import AlarmRates
from monitor.authoring.proposal.paths import (
    RecordedPath,
    first_steps,
    measured_paths,
    outcomes_of,
    paths_of,
    simulated,
    unsafe_events,
)
from monitor.authoring.proposal.policies import action_frequencies, constant_policy, safest_policy
from monitor.authoring.proposal.rules import candidates, chosen, horizon_of
from monitor.authoring.proposal.simulated_forecasts import judge_of
from monitor.errors import ModelError
from monitor.exact.all_states import values
from monitor.model.mdp import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmSpec, FormulaSpec, TrustSettings
from tests.authoring.learning.recorded import batches, learned, random_rows, roles

ALARM = AlarmSpec(for_=1, keep=2)


def random_model(rng: np.random.Generator, states: int = 4) -> MDP:
    rows = [(s, a, t, float(p)) for s in range(states) for a in range(2)
            for t, p in enumerate(rng.dirichlet(np.ones(states)))]  # fmt: skip
    return MDP.from_transitions(
        states=states, actions=2, transitions=rows, labels={"bad": [states - 1]}, initial={0: 1.0}
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_safest_first_action_is_that_of_the_recursion(seed: int) -> None:
    model = random_model(np.random.default_rng(seed))
    bad = model.labels["bad"]

    @cache
    def value(state: int, left: int) -> float:
        if bad[state]:
            return 0.0
        return 1.0 if left == 0 else max(after(state, action, left) for action in range(2))

    def after(state: int, action: int, left: int) -> float:
        return sum(float(p) * value(int(t), left - 1) for t, p in zip(*model.row(state, action), strict=True))

    expected = [int(np.argmax([after(s, a, 5) for a in range(2)])) for s in range(model.states)]
    assert safest_policy(model, bad, 5).tolist() == expected


def test_equal_actions_are_those_the_agent_takes() -> None:
    model = MDP.from_transitions(states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 1.0)])
    nothing = np.zeros(1, np.bool_)
    assert safest_policy(model, nothing, 3).tolist() == [0]
    assert safest_policy(model, nothing, 3, np.array([[0.2, 0.8]])).tolist() == [1]


def test_a_constant_action_must_be_available() -> None:
    model = MDP.from_transitions(states=2, actions=2, transitions=[(0, 0, 1, 1.0), (0, 1, 0, 1.0), (1, 0, 1, 1.0)])
    assert constant_policy(model, 0).tolist() == [0, 0]
    with pytest.raises(ModelError, match="not available in state 1"):
        constant_policy(model, 1)
    assert action_frequencies(model)[0].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_paths_and_events() -> None:
    codes = np.concatenate([code_of(np.array([s]), end) for s, end in ((1, False), (0, False), (1, True))])
    held = HeldOut(
        np.array([0, 1, 1]),
        np.array([0, 1, 0]),
        codes,
        np.zeros((3, 2), np.int64),
        np.array([4, 4, 9]),
        np.array([4, 4, 4]),
    )
    where = States(2, np.array([code_of(np.array([1]), True)[0]]))  # noqa: FBT003
    found = paths_of(held, where)
    assert [path.states.tolist() for path in found] == [[0, 1, 0], [1, 2]]
    assert [path.ended for path in found] == [False, True]
    assert [path.episode for path in found] == [4, 4], "a gap is between them"
    assert unsafe_events(found[0], np.array([False, True, False, False])) == [1]
    assert first_steps(found, 2) == found[:1]
    assert first_steps(found, 3) == found
    nothing = np.zeros(0, np.int64)
    assert paths_of(HeldOut(nothing, nothing, nothing, np.zeros((0, 2), np.int64), nothing, nothing), where) == []


def test_paths_are_measured_until_there_are_enough_events() -> None:
    bad = np.array([False, True])
    calm = RecordedPath(np.zeros(11, np.int64), np.zeros(10, np.int64), ended=False)
    event = RecordedPath(np.array([0] * 10 + [1]), np.zeros(10, np.int64), ended=True)
    often, rare = [event] * 1000, [*([calm] * 9), event] * 1000
    assert len(measured_paths(often, bad, None, 30_000)) == 300, "3,000 steps, with more than 100 events"
    assert len(measured_paths(rare, bad, None, 30_000)) == 1000, "until the hundredth event"
    assert len(measured_paths(rare, bad, None, 5_000)) == 500, "no more work than this"
    assert len(measured_paths(rare[:70], bad, None, 5_000)) == 70
    assert len(measured_paths(rare, bad, 25, 5_000)) == 2
    assert len(measured_paths(rare, bad, 1, 5_000)) == 1, "at least one path"
    assert measured_paths([], bad, None, 10) == []


def test_simulated_episodes_follow_the_model() -> None:
    steps = [(0, 0, 0, 0.5), (0, 0, 1, 0.5), (1, 0, 1, 1.0)]
    model = MDP.from_transitions(states=2, actions=1, transitions=steps, initial={0: 1.0})
    found = simulated(model, np.ones((2, 1)), 50, np.random.default_rng(0))
    assert sum(len(path.actions) for path in found) >= 50
    assert all(path.ended and path.states.tolist() == [0] * len(path.actions) + [1] for path in found)


def test_all_paths_are_kept_beside_those_held_out() -> None:
    rows = random_rows(np.random.default_rng(5), episodes=40)
    learner, kept = Learner.new(roles("step"), None, [], 1.0), Collected(0, unsafe=np.zeros(0, np.bool_))
    for batch in batches(rows, 50):
        kept.add(learner.read(batch))
    assert len(kept.every().state) == learner.tally.draws == len(kept.held().state) + kept.train.draws
    assert 0 < len(kept.held().state) < learner.tally.draws
    full = Collected(0, unsafe=np.zeros(0, np.bool_), _size=HELD)
    full.add(Learner.new(roles("step"), None, [], 1.0).read(batches(rows, 1000)[0]))
    assert len(full.every().state) == 0


def test_forecasts_on_simulated_episodes_are_values_of_the_model() -> None:
    rng = np.random.default_rng(5)
    model = random_model(rng)
    policy = rng.dirichlet(np.ones(2), model.states)
    paths = simulated(model, policy, HELD // 100, rng)
    after = np.concatenate([path.states[1:] for path in paths])
    judge = judge_of(model, policy, "bad", paths)
    wanted = values('P=? [ F<=3 "bad" ]', model=model, policies={"nominal": policy})
    np.testing.assert_allclose(judge.forecasts("bad", 3).said, wanted[after])
    ((counts,), (came,)) = (each.T for each in judge.outcomes.events(3))
    assert counts.sum() == sum((path.states[1 : len(path.states) - 3] < 3).sum() for path in paths)
    assert came[counts].tolist() == [
        bool((path.states[t + 1 : t + 4] == 3).any())
        for path in paths
        for t in range(1, len(path.states) - 3)
        if path.states[t] < 3
    ]


def test_what_came_is_known_of_all_steps() -> None:
    long = RecordedPath(np.zeros(HELD // 2 + 1, np.int64), np.zeros(HELD // 2, np.int64), ended=True)
    found = outcomes_of([long, long, long], np.array([False]))
    assert np.bincount(found.paths()).tolist() == [HELD // 2] * 3
    assert found.ends(1).sum() == 6


def test_episodes_that_end_where_they_start_are_none() -> None:
    model = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], initial={0: 1.0})
    assert simulated(model, np.ones((1, 1)), 5, np.random.default_rng(0)) == []


def test_horizons_are_waits_for_events() -> None:
    bad = np.array([False, True])
    path = RecordedPath(np.array([0] * 7 + [1] + [0] * 8 + [1]), np.zeros(16, np.int64), ended=False)
    assert horizon_of([path], bad) == 8  # 7 and 9
    assert horizon_of([path], np.zeros(2, np.bool_)) == 20
    assert {each.horizon for each in candidates(8, "bad", 3, ALARM)} == {4, 8}
    assert len(candidates(4, "bad", 3, ALARM)) == 5


def test_alarms_are_compared_with_what_followed() -> None:
    step = [(0, 0, 0, 0.5), (0, 0, 1, 0.5), (0, 1, 0, 1.0), (1, 0, 1, 0.5), (1, 0, 2, 0.5), (1, 1, 0, 1.0),
            (2, 0, 2, 1.0), (2, 1, 2, 1.0)]  # fmt: skip
    model = MDP.from_transitions(states=3, actions=2, transitions=step, labels={"bad": [2]}, initial={0: 1.0})
    warned = RecordedPath(np.array([0, 0, 1, 1, 2]), np.array([0, 0, 0, 0]), ended=True)
    calm = RecordedPath(np.array([0, 0]), np.array([0]), ended=False)
    policies = {"nominal": [0, 0, 0], "fallback": [1, 1, 1]}
    done: list[int] = []
    (row,) = measured(model, policies, [CandidateFormula(2, 1, 0.6, "bad", ALARM)], [calm, warned], done.append)
    # P(no bad in 2 steps) is 0.5 in state 1 and 0.75 in state 0, from the step before
    assert (row.steps, row.events, row.preceded, row.false, row.first) == (5, 1, 1, 0, 1)
    assert row.lead is not None
    assert 0 < row.lead <= 2
    assert done[-1] == 7
    assert row.balance == 1.0
    assert row.paths == (PathAlarms(1, 0, 0, 0, 0), PathAlarms(4, 1, 0, 1, 1))
    assert row.leads[0] == row.lead
    assert row.episodes == row.paths
    rates = AlarmRates(row)
    assert rates.alarms.clusters == 2
    pieces = [replace(path, episode=3) for path in (calm, warned)]
    (whole,) = measured(model, policies, [CandidateFormula(2, 1, 0.6, "bad", ALARM)], pieces)
    assert whole.episodes == (PathAlarms(5, 1, 0, 1, 1),), "pieces of one episode"
    assert len(whole.paths) == 2
    assert [each.value for each in (rates.alarms, rates.false, rates.preceded)] == [0.2, 0.0, 1.0]


@pytest.mark.parametrize("alarm", [ALARM, AlarmSpec(for_=2, keep=1)])
def test_values_compared_with_thresholds_are_the_formulas_themselves(alarm: AlarmSpec) -> None:
    """On a learned model, where labels are unknown in places and steps impossible."""
    rows = random_rows(np.random.default_rng(30), episodes=60)
    conditions = labels_of([], ["high: x >= 2"], roles("step"), tuple(rows[0]))
    learner, kept = Learner.new(roles("step"), None, conditions, 1.0), Collected(0, unsafe=np.ones(1, np.bool_))
    for batch in batches(rows, 50):
        kept.add(learner.read(batch))
    learner.end_file()
    model = learner.model("rows")
    assert model.counts is not None
    assert model.counts.unknown
    paths = paths_of(kept.every(), learner.where())
    rng = np.random.default_rng(1)
    policies = {name: rng.dirichlet(np.ones(model.actions), model.states) for name in ("nominal", "fallback")}
    every = [CandidateFormula(3, 2, threshold, "high", alarm) for threshold in (0.2, 0.4, 0.5, 0.6, 0.8)]
    found = measured(model, policies, every, paths)
    specs = [FormulaSpec(f"c{i}", each.text, alarm=alarm, bands="off") for i, each in enumerate(every)]
    traces = {spec.name: FormulaTrace() for spec in specs}
    monitor = Monitor(model, policies, specs, trust=TrustSettings(enabled=False))
    for number, seq, notices in replayed(
        monitor, model.named_actions, paths, lambda state: (state, None), lambda _: None
    ):
        for notice in notices:
            take(notice, traces, number, seq)
    assert found == [
        summary_of(each, trace, paths, model.labels["high"]) for each, trace in zip(every, traces.values(), strict=True)
    ]
    assert len({each.alarms for each in found}) > 1
    assert sum(traces["c2"].outcomes.values()) > sum(traces["c2"].outcomes[name] for name in ("safe", "regret"))


def test_the_first_path_that_fires_is_that_of_the_measured_alarms() -> None:
    model = random_model(np.random.default_rng(6))
    rng = np.random.default_rng(2)
    policies = {name: rng.dirichlet(np.ones(2), model.states) for name in ("nominal", "fallback")}
    paths = simulated(model, policies["nominal"], 300, rng)
    paths = [RecordedPath(path.states[:5], path.actions[:4], ended=False) for path in paths] + [
        RecordedPath(path.states[n : n + 5], path.actions[n : n + 4], ended=False)
        for path in paths
        for n in range(5, len(path.actions) - 4, 5)
    ]
    every = [CandidateFormula(2, 1, threshold, "bad", ALARM) for threshold in (0.2, 0.4, 0.5, 0.6, 0.8, 1.0)]
    firsts: set[int | None] = set()
    for candidate, found in zip(every, measured(model, policies, every, paths), strict=True):
        spec = FormulaSpec("c", candidate.text, alarm=ALARM, bands="off")
        monitor = Monitor(model, policies, [spec], trust=TrustSettings(enabled=False))
        fired = [number for number, path in enumerate(found.paths) if path.alarms]
        sent = [(number, path, path.states.tolist()) for number, path in enumerate(paths)]
        firsts.add(fired[0] if fired else None)
        assert first_firing(monitor, model.named_actions, sent) == (fired[0] if fired else None), candidate
        monitor = Monitor(model, policies, [spec], trust=TrustSettings(enabled=False))
        cut = [(number, path, states[:1]) for number, path, states in sent]
        assert first_firing(monitor, model.named_actions, cut) is None, "nothing lies a step ago"
    assert None in firsts
    assert max(first for first in firsts if first is not None) > 0


def row(threshold: float, alarms: int, false: int, preceded: int, events: int = 10) -> Measured:
    return Measured(
        CandidateFormula(8, 2, threshold, "bad", ALARM), 1000, 1000, alarms, false, events, preceded, None, 0, 0, None
    )


def test_the_rule() -> None:
    best, why = chosen([row(0.5, 5, 0, 5), row(0.7, 10, 1, 9), row(0.9, 40, 30, 10)])
    assert (best.candidate.threshold, "F1" in why) == (0.7, True)
    best, why = chosen([row(0.5, 0, 0, 0, 0), row(0.7, 1, 1, 0, 0), row(0.9, 9, 9, 0, 0)])
    assert (best.candidate.threshold, "there is no unsafe event" in why) == (0.7, True)
    best, why = chosen([row(0.5, 3, 3, 0), row(0.7, 9, 9, 0)])
    assert (best.candidate.threshold, "no alarm precedes an unsafe event" in why) == (0.5, True)


def test_frequencies_are_those_of_the_rows() -> None:
    rows = random_rows(np.random.default_rng(3), episodes=40)
    learner = learned([rows], 50, roles("step"))
    model = learner.model("rows")
    found, seen = action_frequencies(model)
    assert found.sum(axis=1) == pytest.approx(np.ones(model.states))
    assert not seen[-1]
    assert model.counts is not None
    first = model.counts.visits[model.indptr[0] : model.indptr[1]].sum()
    both = model.counts.visits[model.indptr[0] : model.indptr[2]].sum()
    assert found[0, 0] == first / both
    unsafe = model.labels["elsewhere"]
    assert safest_policy(model, unsafe, 4).shape == (model.states,)
