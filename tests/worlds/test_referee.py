"""The referee's own draws against the engine's: the same numbers, by another generator and another loop."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import LimitError
from monitor.evaluation.worlds import WorldChecker
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.referee.numbers import Given, mean, uniforms
from monitor.sampled import Sampler
from monitor.sampled.noise import STATE
from monitor.sampled.noise import uniforms as engines_uniforms
from tests.exact.small import small_world
from tests.tiers import examples, scaled
from tests.worlds.samples import GumbelTable, NumberLine, ResampledTank, Tank, number_rule, state_rule

CASES = json.loads((Path(__file__).parents[1] / "reference" / "dynamics_cases.json").read_text())
DRAWS = 40


def path_formula(chance: Random, label: str, depth: int = 2) -> str:
    """A random path formula over one label."""
    if depth == 0 or chance.random() < 0.2:
        return chance.choice([f'"{label}"', f'!"{label}"', "true", "false"])
    inner = [path_formula(chance, label, depth - 1) for _ in range(2)]
    low = chance.randrange(3)
    at = chance.choice([f"<={low + chance.randrange(3)}", f"[{low},{low + chance.randrange(3)}]"])
    kind = chance.randrange(6)
    if kind == 0:
        return f"!({inner[0]})"
    if kind < 3:
        return f"({inner[0]} {'&|'[kind - 1]} {inner[1]})"
    if kind < 5:
        return f"({'FG'[kind - 3]}{at} {inner[0]})"
    return f"({inner[0]} U{at} {inner[1]})"


def goal_text(chance: Random, label: str, policy: str, action: str) -> str:
    """A random quantity."""
    who = chance.choice([policy, f"{policy}[{chance.randint(1, 3)}]", f"do({action})", f"do({action})[2]", "nominal"])
    at = chance.choice([0, 1, 2, 4, -1, -2])
    if chance.random() < 0.25:
        return f"{who}@{at}.R=? [ C<={chance.randint(0, 4)} ]"
    if chance.random() < 0.3:
        return f"delta({who}, nominal)@{at}.P=? [ {path_formula(chance, label)} ]"
    return f"{who}@{at}.P=? [ {path_formula(chance, label)} ]"


def compared(
    checker: WorldChecker, text: str, path: Any, policies: Any, chance: Random, acted: list[str] | None = None
) -> None:
    seed, first, ended = chance.getrandbits(64), chance.randrange(99), chance.random() < 0.2
    acted = acted or []
    goal = parse(text)
    assert isinstance(goal, Goal)
    checker.validate(goal, text)
    moments = checker.path(path)
    engine = Sampler(checker.scene, seed).question(goal, moments, first_seq=first, terminated=ended, acted=acted)
    wanted = float(engine.outcomes(range(DRAWS)).mean())
    found = mean(goal, Given(moments, first, ended, {"": checker.model}, policies, seed, DRAWS, acted))
    assert found == pytest.approx(wanted, abs=1e-9), text
    if engine.certain is not None:
        assert engine.certain == pytest.approx(wanted, abs=1e-9)


@scaled
@given(st.randoms(use_true_random=False))
def test_the_referee_draws_what_the_engine_draws_on_a_number_line(chance: Random) -> None:
    case = chance.choice(CASES)
    policies = {name: number_rule(case, name) for name in ("nominal", "alternative")}
    checker = WorldChecker(NumberLine(case), policies, {})
    text = goal_text(chance, "hot", "alternative", "push")
    if ".R=?" in text:
        with pytest.raises(Exception, match="rewards"):
            compared(checker, text, [([x], a) for x, a in case["path"]], policies, chance)
        return
    path = [([x], a) for x, a in case["path"]]
    acted = [chance.choice(list(policies)) for _ in path] if chance.random() < 0.5 else None
    compared(checker, text, path, policies, chance, acted)


@scaled
@given(st.randoms(use_true_random=False))
def test_and_with_inputs_recorded_kept_or_resampled_rewards_and_full_tanks(chance: Random) -> None:
    rng, level, path = np.random.default_rng(chance.getrandbits(32)), np.array([[chance.uniform(4.0, 10.0)]]), []
    for _ in range(chance.randint(1, 7)):
        rain, action = float(rng.uniform(0.0, 1.5)), chance.randrange(2)
        path.append((level[0].tolist(), action, [rain]))
        level = Tank().step(level, np.array([action]), rng.uniform(size=(1, 1)), np.array([[rain]]))
    policies = {
        "nominal": lambda x: np.zeros(len(x), dtype=np.int64),
        "careful": lambda x: (x[:, 0] > 7.5).astype(np.int64),
    }
    checker = WorldChecker(chance.choice([Tank, ResampledTank]), policies, {})
    acted = [chance.choice(list(policies)) for _ in path] if chance.random() < 0.5 else None
    compared(checker, goal_text(chance, "overflow", "careful", "open"), path, policies, chance, acted)


def test_uniform_numbers_are_those_of_the_engine() -> None:
    rng = np.random.default_rng(0)
    for _ in range(examples(20, 200)):
        seed, step, width = int(rng.integers(2**63)), int(rng.integers(2**20)), int(rng.integers(1, 6))
        wanted = engines_uniforms(seed, STATE, step, np.arange(7), np.arange(width))
        assert np.array_equal(uniforms(seed, 4 * step, np.arange(7), width), wanted)


@scaled
@given(st.randoms(use_true_random=False))
def test_and_with_stochastic_policies_and_noise_from_a_posterior(chance: Random) -> None:
    """Choices use the observed ones; a posterior is drawn in blocks, weighted or not.

    See docs/semantics/formulas.md, section 7.
    """
    small = small_world(chance, stochastic=chance.random() < 0.8, on_policy=chance.random() < 0.5)
    policies = {name: state_rule(policy) for name, policy in small.policies.items()}
    checker = WorldChecker(GumbelTable(small, weighted=chance.random() < 0.5), policies, {})
    path = [([state], action) for state, action in small.setting.path]
    acted = [chance.choice(list(policies)) for _ in path] if chance.random() < 0.5 else None
    compared(checker, goal_text(chance, "a", "alt", "1"), path, policies, chance, acted)


def test_what_is_not_drawn_again_is_refused_with_the_reason() -> None:
    policies = {"nominal": lambda x: np.zeros(len(x), dtype=np.int64)}
    checker = WorldChecker(Tank, policies, {})
    goal = parse('P=? [ F<=2 P>=0.5 [ X "overflow" ] ]')
    assert isinstance(goal, Goal)
    path = checker.path([([6.0], None, [1.0])])
    with pytest.raises(LimitError, match="nested in a path"):
        mean(goal, Given(path, 0, terminated=False, worlds={"": checker.model}, policies=policies, seed=0, draws=2))
