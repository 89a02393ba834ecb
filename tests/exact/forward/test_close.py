"""What lies ahead of the last pair: the action taken there, known or not, and what it says about other choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.causal import Intervention, World
from monitor.engine import check
from monitor.exact import Checker, tables
from monitor.exact.evaluators import Evaluators
from monitor.logic import parse
from monitor.logic.syntax import Goal, Reward
from monitor.model import MDP
from monitor.types import CausalModel
from tests.exact.small import exact, telling_world

CORRIDOR = MDP.from_transitions(
    states=6,
    actions=2,
    transitions=[(s, a, min(s + 1 + a, 5), 1.0) for s in range(6) for a in range(2)],
    rewards=[(s, a, 10.0 * s + a) for s in range(6) for a in range(2)],
)


@pytest.mark.parametrize("causal_model", ["any", "stable"])
@pytest.mark.parametrize(
    ("usual", "path", "world", "steps", "earned"),
    [
        (1, [(0, 1), (2, 0)], "nominal@0", 1, 20 + 31),
        (1, [(0, 1), (2, 0)], "same[1]@1", 2, 1 + 20 + 31),  # the nominal law is back at the last pair
        (1, [(0, 1), (2, 0)], "same@1", 2, 1 + 21 + 41),  # it goes on, and takes its own action there
        (0, [(0, 0), (1, 1)], "nominal@0", 1, 11 + 30),
        (0, [(0, 0), (1, 1)], "same[1]@1", 2, 0 + 11 + 30),
        (0, [(0, 0), (1, 1)], "same@1", 2, 0 + 10 + 20),
    ],
)
def test_the_last_action_is_that_which_was_taken(  # noqa: PLR0917 - columns of the table
    usual: int, path: list[tuple[int, int]], world: str, steps: int, earned: int, causal_model: CausalModel
) -> None:
    """Where the nominal policy would have taken the other one."""
    policies = {"nominal": [usual] * 6, "same": [usual] * 6}
    text = f"{world}.R=? [ C<={steps} ]"
    verdict = check(text, model=CORRIDOR, path=path, policies=policies, causal_model=causal_model)
    assert verdict.value == earned
    assert verdict.bounds == (earned, earned)


def test_one_start_point_is_answered_where_one_is_asked_about() -> None:
    """And the rewards up to the last pair count once, whichever law was in force when."""
    policies = {"nominal": [1] * 6, "same": [1] * 6}
    worlds = Evaluators(CORRIDOR, tables(policies, CORRIDOR))
    path, measure = ((0, 1), (2, 1), (4, 0)), Reward(0, 2)
    for steps in (None, 1, 2, 3):
        world = World.at(path, 0, worlds.nominal(), Intervention(worlds.policies["same"], steps))
        assert worlds.value(world, measure) == 1 + 21 + (40 if steps in (1, 2) else 41)
    track = Checker(CORRIDOR, tables(policies, CORRIDOR)).track(parse("same@2.R=? [ C<=2 ]"), window=9)
    (line,) = track.lines._lines.values()
    for end in (1, 2, 3):
        track.verdict(path[:end], 1)
        assert np.isfinite(line.values).tolist() == [True, False, False]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("path", ['F<=4 ("a" & X X X "a")', '("a" & X X "a") | (!"a" & X ("b" & X !"a"))'])
def test_start_points_that_owe_different_things_are_answered_together(path: str, seed: int) -> None:
    small = telling_world(seed, length=5, support=2)
    checker = Checker(small.model, tables(small.policies, small.model))
    pairs = [(state, 0 if action is None else action) for state, action in small.setting.path]
    asked = parse(f"alt@4.P=? [ {path} ]")
    assert isinstance(asked, Goal)
    followed = checker.along(asked, pairs)
    for end in range(1, 6):
        part = replace(small, setting=replace(small.setting, path=tuple(pairs[:end])))
        for offset in range(end):
            expected = float(exact(part, f"alt@{offset}.P=? [ {path} ]"))
            assert followed[end - 1, offset] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("policy", ["alt", "nominal"])
def test_an_action_that_is_not_known_says_nothing(seed: int, policy: str) -> None:
    """From the last pair on no causal model differs: bounds are the value."""
    small = telling_world(seed, stochastic=True, length=1, open_end=True)
    text = f'{policy}@0.P=? [ X ("a" | X "b") ]'
    expected = float(exact(small, text))
    verdict = small.ask(text, causal_model="any")
    assert verdict.value == pytest.approx(expected, abs=1e-12)
    assert verdict.bounds == pytest.approx((expected, expected), abs=1e-12)
