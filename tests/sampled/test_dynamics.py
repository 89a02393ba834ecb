"""Particles in worlds with numbers: any cut into ranges, growing paths, noise shared by the worlds compared."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from monitor.evaluation.worlds import WorldChecker
from monitor.sampled import Sampler
from monitor.sampled.dynamics import WorldDynamics
from monitor.sampled.scene import Simulated
from monitor.worlds import Moment, load_world
from tests.exact.small import small_world
from tests.sampled.worlds import goal
from tests.worlds.samples import GumbelTable, NumberLine, number_rule, state_rule

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference/dynamics_cases.json").read_text())


class Rule:
    """Decisions of a function."""

    def __init__(self, function: Any) -> None:  # noqa: ANN401
        self.decide = function


def line(case: dict[str, Any]) -> tuple[Sampler, list[Moment]]:
    rules = {name: Rule(number_rule(case, name)) for name in ("nominal", "alternative")}
    sampler = Sampler(Simulated(load_world(NumberLine(case)), rules), 5)
    return sampler, [Moment((float(x),), a) for x, a in case["path"]]


def table(weighted: bool) -> tuple[Sampler, list[Moment]]:  # noqa: FBT001
    small = small_world(Random(10), length=4, stochastic=True, on_policy=True)
    rules = {name: Rule(state_rule(policy)) for name, policy in small.policies.items()}
    rules["alternative"] = rules["alt"]
    sampler = Sampler(Simulated(load_world(GumbelTable(small, weighted)), rules), 5)
    return sampler, [Moment((float(state),), action) for state, action in small.setting.path]


def some(family: str) -> tuple[Sampler, list[Moment]]:
    if family in ("posterior", "weights"):
        return table(family == "weights")
    return line(next(case for case in CASES if case["family"] == family and len(case["path"]) > 3))


@pytest.mark.parametrize("family", ["whole", "real", "posterior", "weights"])
def test_a_range_may_be_drawn_in_any_pieces(family: str) -> None:
    sampler, path = some(family)
    asked = goal('alternative@2.P=? [ F<=5 "hot" ]' if family in ("whole", "real") else 'alternative@2.P=? [ F=2 "a" ]')
    whole = sampler.outcomes(asked, path, range(1500), first_seq=7)
    assert 0.0 < whole.mean() < 1.0
    pieces = [range(700), range(700, 1300), range(1300, 1500)]
    assert np.array_equal(np.concatenate([sampler.outcomes(asked, path, each, first_seq=7) for each in pieces]), whole)
    assert np.array_equal(sampler.outcomes(asked, path, range(3, 1500, 7), first_seq=7), whole[3::7])


def test_compared_worlds_share_their_noise() -> None:
    sampler, path = some("whole")
    same = goal('delta(do(0),do(0))@2.P=? [ F<=6 "hot" ]')
    assert not sampler.outcomes(same, path, range(500)).any()


def test_the_noise_of_many_paths_is_forgotten_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.worlds.checked.MAX_ABDUCTIONS", 1)
    sampler, path = some("whole")
    asked = goal('alternative@3.P=? [ F<=6 "hot" ]')
    first = sampler.outcomes(asked, path, range(100))
    assert np.array_equal(sampler.outcomes(asked, path, range(100)), first)


def test_points_cost_no_draw_and_one_step() -> None:
    case = next(case for case in CASES if case["family"] == "real" and len(case["path"]) > 3)
    rules = {name: number_rule(case, name) for name in ("nominal", "alternative")}
    checker = WorldChecker(NumberLine(case), rules, {})
    path = checker.path([([x], a) for x, a in case["path"]])
    dynamics = WorldDynamics(checker.model)
    given = dynamics.given(path[0], path[1].state)
    assert given.noise is not None
    assert given.noise.is_point
    assert dynamics.certain(np.array([[100.0]]), np.array([1]), given)
    assert not dynamics.certain(np.array([[100.0]]), np.array([1]), dynamics.given(path[-1], None))
