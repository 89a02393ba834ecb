"""Worlds asked beyond what was recorded: how many draws leave it, and that nothing is advised on them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import norm

from monitor import Monitor, check, load_world
from monitor.alarm.figures import figures_of
from monitor.alarm.message import identity_of
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.logic import parse
from monitor.logic.syntax import Const, Goal, Probability, Until
from monitor.logic.traversal import subformulas
from monitor.referee.numbers import Given, left
from monitor.sampled import Sampler
from monitor.sampled.noise import STATE, uniforms
from monitor.sampled.sampler import Question
from monitor.types import (
    AlarmSpec,
    AlarmWhen,
    Alert,
    FormulaSpec,
    Instant,
    Observation,
    RestsOn,
    Sampling,
    StreamSettings,
    Verdict,
)
from monitor.worlds.world_policies import as_world_policy
from tests.evidence.rederived import confirmed, make_evidence
from tests.tiers import heavy, scaled
from tests.worlds.graphs import linear, world_files
from tests.worlds.test_referee import path_formula

REST, CLIMB = 0, 1
RECORDED = {"rest": {"steps": 40, "ranges": {"x": [0, 12]}}, "climb": {"steps": 20, "ranges": {"x": [0, 6]}}}
POLICIES = {
    "nominal": lambda x: np.full(len(x), REST),
    "climber": lambda x: np.full(len(x), CLIMB),
    "careful": lambda x: np.where(x[:, 0] < 5.0, CLIMB, REST),
}


def hill(folder: Path, **other: Any) -> Any:
    """A number that sinks by a half, or rises by one, with noise of a half; climbing was recorded below 6."""
    manifest: dict[str, Any] = {
        "features": [{"name": "x", "low": 0, "high": 20, "clip": True}], "actions": ["rest", "climb"],
        "location": "file:location", "scale": [0.5], "labels": {"low": "x < 2", "high": "x >= 11"},
        "learned": True, "recorded": RECORDED,
    }  # fmt: skip
    location = linear({"x": [[1.0]], "a": [[-0.5], [1.0]]}, [0.0])
    reward = linear({"x": [[1.0]], "a": [[0.0], [0.0]], "x_next": [[0.0]]}, [0.0])
    return load_world(world_files(folder, manifest | other, location=location, reward=reward))


def asked(world: Any, text: str, *states: float) -> Verdict:
    return check(text, model=world, path=[([x], REST) for x in states], policies=POLICIES, recourse=False)


def test_the_fraction_is_that_of_paths_followed_one_by_one(tmp_path: Path) -> None:
    world = hill(tmp_path)
    verdict = asked(world, 'regret(climber@0, P>=0.9 [ G<=6 !"low" ])', 3.0)
    assert verdict.drawn is not None
    went = 0
    for draw in range(1024):
        x, beyond = 3.0, False
        for step in range(6):
            if x < 2.0:
                break
            beyond |= x > 6.0
            (chance,) = uniforms(verdict.drawn.seed, STATE, step, np.array([draw]), np.zeros(1, np.int64))[0]
            x = min(max(x + 1.0 + 0.5 * norm.ppf(chance), 0.0), 20.0)
        went += beyond
    assert 0 < went < 1024
    assert verdict.quantities[1].rests_on == RestsOn(60, None, went / 1024)
    assert verdict.quantities[0].rests_on == RestsOn(60, None, 0.0)


def test_only_a_missed_goal_says_it_and_only_where_it_is_known_what_was_recorded(tmp_path: Path) -> None:
    text = 'regret(climber@0, P>=0.9 [ G<=6 !"low" ])'
    safe = asked(hill(tmp_path), text, 11.0)
    assert safe.outcome == "safe"
    assert {each.rests_on for each in safe.quantities} == {None}
    unknown = asked(hill(tmp_path, recorded={}), text, 3.0)
    assert {each.rests_on for each in unknown.quantities} == {None}


def test_an_action_never_recorded_is_beyond_everywhere(tmp_path: Path) -> None:
    world = hill(tmp_path, recorded={"rest": RECORDED["rest"]})
    found = asked(world, 'regret(climber@0, P>=0.9 [ G<=6 !"low" ])', 3.0).quantities[1].rests_on
    assert found == RestsOn(40, None, 1.0)


def test_what_was_observed_is_not_beyond(tmp_path: Path) -> None:
    world = hill(tmp_path, recorded={"climb": {"steps": 1, "ranges": {}}})  # nobody was recorded at rest
    path = [([x], REST) for x in (4.0, 3.4, 3.1)]
    verdict = check('P>=0.9 [ G[1,1] "high" ]', model=world, path=path, policies=POLICIES)
    assert verdict.quantities[0].rests_on == RestsOn(1, None, 1.0)
    held = check('nominal@2.P>=0.9 [ G[1,2] "high" ]', model=world, path=path, policies=POLICIES)
    assert held.quantities[0].rests_on == RestsOn(1, None, 0.0)  # decided by steps that were observed


@pytest.mark.parametrize("climbing", ["climber", "do(climb)"])
def test_nobody_is_told_to_stop_or_to_hand_over_on_what_was_never_recorded(tmp_path: Path, climbing: str) -> None:
    world = hill(tmp_path)
    for text, value in ((f'regret({climbing}@0, P>=0.9 [ G<=9 !"high" ])', 0.0),
                        (f'regret({climbing}@0, P>=0.9 [ F<=9 "high" ])', 1.0)):  # fmt: skip
        at = 10.9 if value == 0.0 else 5.0
        policies = {**POLICIES, "nominal": POLICIES["climber"] if value == 0.0 else POLICIES["nominal"]}
        verdict = check(text, model=world, path=[([at], REST)], policies=policies, recourse=False)
        other = verdict.quantities[1]
        assert other.value == pytest.approx(value, abs=0.3)
        assert other.rests_on is not None
        assert other.rests_on.never > 0.9
        handover = figures_of(parse(text), verdict).handover
        assert handover is not None
        assert handover.helps_now is None
        assert handover.latest_useful is None
        assert handover.extremes is not None
        assert handover.extremes[0] < 0.9 <= handover.extremes[1]


def alerts(world: Any, text: str, *levels: float, when: AlarmWhen | None = None) -> list[Alert]:
    spec = FormulaSpec("watch", text, alarm=AlarmSpec() if when is None else AlarmSpec(when=when))
    how = StreamSettings(encoder="features", window=8)
    watching = Monitor(world, POLICIES, [spec], how, sampling=Sampling(rewards=(0.0, 20.0)))
    found: list[Alert] = []
    for seq, level in enumerate(levels):
        now = Instant(1000.0 + seq, float(seq))
        step = Observation("ada", "e", seq, (level,), "rest", time=now.wall)
        found += [each for each in [*watching.observe(step, now), *watching.evaluate(now)] if isinstance(each, Alert)]
    return found


CLIMBING = 'regret(climber@1, P>=0.9 [ G<=9 !"low" ])'


def test_an_alert_says_how_many_draws_leave_what_was_recorded(tmp_path: Path) -> None:
    alert = alerts(hill(tmp_path), CLIMBING, 4.0, 3.4)[-1]
    assert "the recordings do not show whether handing over to 'climber' suffices (0.00 to 1.00)" in alert.summary
    assert any(
        "'climber' rests on 60 recorded steps, " in each and "paths go beyond them" in each for each in alert.details
    )
    assert not any(word in alert.summary for word in ("Stop the agent", "either way"))
    careful = alerts(hill(tmp_path), CLIMBING.replace("climber", "careful"), 4.0, 3.4)[-1]
    assert "Hand over to 'careful' now" in careful.summary
    assert "recorded" not in careful.summary


def test_what_may_be_worse_than_carrying_on_is_not_advised(tmp_path: Path) -> None:
    """Six of seven draws of `climber` leave what was recorded: at worst 1 of 7 is safe, and 3 of 7 without it."""
    (alert,) = alerts(hill(tmp_path), 'regret(climber@0, P>=0.9 [ G<=4 !"low" ])', 3.9)
    own, given = alert.verdict.profile[0]
    assert alert.figures.handover is not None
    assert alert.figures.handover.extremes is not None
    least, _ = alert.figures.handover.extremes
    assert 0.0 < least < own < given
    assert "the recordings do not show whether handing over to 'climber' suffices" in alert.summary


def test_nothing_is_known_of_a_reward_beyond_what_was_recorded(tmp_path: Path) -> None:
    alert = alerts(hill(tmp_path, reward="file:reward"), "regret(climber@0, R>=40 [ C<=6 ])", 5.0)[-1]
    handover = alert.figures.handover
    assert handover is not None
    assert (handover.helps_now, handover.latest_useful, handover.extremes) == (None, None, None)
    assert "the recordings do not show whether handing over to 'climber' suffices" in alert.summary
    assert "Hand over" not in alert.summary


@heavy
def test_handing_over_in_time_is_not_advised_where_it_was_never_recorded(tmp_path: Path) -> None:
    world, text = hill(tmp_path), 'handover({}, P>=0.9 [ G<=6 !"low" ], 3) >= 0.1'
    alert = alerts(world, text.format("climber"), 4.5, when="holds")[-1]
    alone = asked(world, 'regret(climber@0, P>=0.99 [ G<=6 !"low" ])', 4.5).quantities[1].rests_on
    found, handover = alert.verdict.quantities[0].rests_on, alert.figures.handover
    assert found is not None
    assert alone is not None
    assert found.never == pytest.approx(alone.never, abs=0.1)
    assert handover is not None
    assert handover.helps_now is None
    assert "You decide: not recorded whether handing over to 'climber' suffices" in alert.summary
    checker = WorldChecker(world, POLICIES, {})
    identity = identity_of(checker.model, checker.policies, {})
    for deriver in (REFEREE, ENGINE):
        evidence = confirmed(alert, checker, identity, deriver)
        (quantity,) = evidence.verdict.quantities
        forged = replace(evidence.verdict, quantities=(replace(quantity, rests_on=RestsOn(60, None, 0.0)),))
        problems = derive_again(replace(evidence, verdict=forged), world, checker.policies, {}, [deriver]).problems
        assert [each.partition(":")[0] for each in problems] == ["verdict.quantities[0].rests_on.never"]
    careful = alerts(world, text.format("careful"), 4.5, when="holds")
    assert "Hand over to 'careful' now" in careful[-1].summary


def test_the_referee_finds_the_fraction_again_and_a_forged_one(tmp_path: Path) -> None:
    world = hill(tmp_path)
    alert = alerts(world, CLIMBING, 4.0, 3.4)[0]
    tables = {name: as_world_policy(name, policy, world) for name, policy in POLICIES.items()}
    evidence = read_evidence(make_evidence(alert, identity_of(world, tables, {}), tables, {}))
    for deriver in (REFEREE, ENGINE):
        assert derive_again(evidence, world, tables, {}, [deriver]).problems == []
        own, other = evidence.verdict.quantities
        forged = replace(evidence.verdict, quantities=(own, replace(other, rests_on=RestsOn(60, None, 0.0))))
        problems = derive_again(replace(evidence, verdict=forged), world, tables, {}, [deriver]).problems
        assert [each.partition(":")[0] for each in problems] == ["verdict.quantities[1].rests_on.never"]


def test_an_engine_that_is_wrong_about_it_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.sampled.sampler.Question.left", lambda *_: 0.0)
    world = hill(tmp_path)
    alert = alerts(world, CLIMBING, 4.0, 3.4)[0]
    tables = {name: as_world_policy(name, policy, world) for name, policy in POLICIES.items()}
    evidence = read_evidence(make_evidence(alert, identity_of(world, tables, {}), tables, {}))
    assert derive_again(evidence, world, tables, {}, [ENGINE]).problems == []
    problems = derive_again(evidence, world, tables, {}, [REFEREE]).problems
    assert [each.partition(":")[0] for each in problems] == ["verdict.quantities[1].rests_on.never"]


@scaled
@given(st.randoms(use_true_random=False))
def test_both_programs_agree_on_who_leaves(tmp_path_factory: pytest.TempPathFactory, chance: Random) -> None:
    world = hill(tmp_path_factory.mktemp("hill"))
    checker = WorldChecker(world, POLICIES, {})
    who = chance.choice(["climber", "climber[2]", "careful", "do(climb)", "nominal"])
    text = f"{who}@{chance.randrange(4)}.P=? [ {path_formula(chance, chance.choice(['low', 'high']))} ]"
    goal = parse(text)
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    states = [chance.uniform(1.0, 12.0)]
    for _ in range(chance.randrange(4)):
        states.append(min(max(states[-1] - 0.5 + chance.uniform(-1.0, 1.0), 0.0), 20.0))
    path = checker.path([([x], REST) for x in states])
    ended = chance.random() < 0.2
    question = Sampler(checker.scene, 7).question(goal, path, first_seq=5, terminated=ended, watched=True)
    found = left(goal, Given(path, 5, ended, {"": checker.model}, POLICIES, 7, 64))
    timed = [each for each in subformulas(goal.measure.path) if isinstance(each, Until)]
    constant = any(isinstance(part, Const) for each in timed for part in subformulas(each.right))
    assert (found is None) == (len(timed) > 1 or constant)
    if found is not None:
        assert isinstance(question, Question)
        assert found == pytest.approx(question.left(range(64))), text


def test_before_anything_is_observed_it_starts_where_actions_were_recorded(tmp_path: Path) -> None:
    checker = WorldChecker(hill(tmp_path), POLICIES, {})
    found = checker.rests_on(parse('regret(climber@0, P>=0.9 [ G<=2 !"high" ])'))
    assert list(found) == ["climber"]
    assert found["climber"].steps == 60
    # it starts evenly in 0 to 12 twice of three times, else in 0 to 6, and leaves from some 5 to 11, where it is high
    assert 0.3 < found["climber"].never < 0.5
    assert checker.rests_on(parse('careful@0.P=? [ G<=2 !"high" ]'))["careful"].never == 0.0
    assert WorldChecker(hill(tmp_path, recorded={}), POLICIES, {}).rests_on(parse('P=? [ F<=2 "high" ]')) == {}
