"""The MiniGrid models and policies in `policies/`: whole, as told beside them, and as the real environments step."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from monitor.exact import Checker
from monitor.logic import parse
from monitor.model.io import canonical_bytes, load_model
from monitor.model.mdp import MDP
from policies.minigrid import table
from tests.tiers import examples, scaled, slow

ROOMS = Path(__file__).parents[2] / "policies" / "minigrid"
STATES = {"empty": 62, "doorkey": 1294, "gotodoor": 132, "fetch": 61}


@pytest.fixture(scope="module")
def worlds() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what pygame thinks of its own dependencies
        pytest.importorskip("minigrid", reason="the real environments are not installed (extra `train`)")
        from policies.minigrid import worlds as module  # noqa: PLC0415 - needs minigrid
    return module


@pytest.mark.parametrize(("name", "states"), STATES.items())
def test_every_action_is_mostly_done_as_meant_and_ended_is_ended(name: str, states: int) -> None:
    model = load_model(ROOMS / f"{name}.npz")
    assert (model.states, model.actions) == (states, 7)
    for state in range(model.states):
        rows = [model.row(state, action) for action in range(7)]
        meant = [int(successors[np.argmax(chances)]) for successors, chances in rows]
        slipped = np.bincount(meant, minlength=model.states) / 7 * 0.1
        for target, (successors, chances) in zip(meant, rows, strict=True):
            expected = slipped + 0.9 * (np.arange(model.states) == target)
            assert chances == pytest.approx(expected[successors], abs=1e-12)
    assert all(model.is_absorbing(int(s)) for s in np.flatnonzero(model.labels["terminal"]))
    assert not (model.labels["goal"] & ~model.labels["terminal"]).any()
    assert (ROOMS / f"{name}.npz").stat().st_size < 50_000


@pytest.mark.parametrize("name", ["empty", pytest.param("doorkey", marks=slow), "gotodoor", "fetch"])
def test_the_five_verdicts_of_the_paper_come_out(name: str) -> None:
    benchmark = table.load(name, "following")
    checker, path = Checker(benchmark.model, benchmark.policies), table.observed(benchmark, 1)
    for question in table.questions(table.FORMULAS[name]):
        verdict = checker.check(parse(question.text), path[:1] if question.column == "nominal" else path)
        assert verdict.holds is question.holds
        # Far from the threshold: nominal above .9, the other below; the effect is strongly negative.
        value = verdict.quantities[0].value
        assert {"nominal": value > 0.92, "undertrained": value < 0.5, "effect": value < -0.5}[question.column]


@pytest.mark.parametrize("name", STATES)
def test_policies_are_worth_what_is_reported(name: str) -> None:
    benchmark = table.load(name, "absorbing")
    told = (ROOMS / "PROVENANCE.md").read_text()
    for policy in ("nominal", "undertrained"):
        value = worth(benchmark.model, benchmark.policies[policy].actions)
        assert re.search(rf"\| {name} \| `{policy}` \| [\d,]+ \| {value:.4f} \|", told)


def worth(model: MDP, actions: object) -> float:
    chosen = np.asarray(actions)
    chain = np.zeros((model.states, model.states))
    for state in range(model.states):
        successors, chances = model.row(state, int(chosen[state]))
        chain[state, successors] = chances
    reached = np.eye(1, model.states)[0]
    for _ in range(50):
        reached = reached @ chain
    return float(reached[model.labels["goal"]].sum())


@scaled
@pytest.mark.parametrize("name", STATES)
def test_walks_in_the_real_environment_are_walks_in_the_model(worlds: ModuleType, name: str) -> None:
    model, rng = load_model(ROOMS / f"{name}.npz"), np.random.default_rng(7)
    numbers = model.valuation_index
    for _ in range(examples(10, 60)):
        env, state = worlds.WORLDS[name].reset(), 0
        for _ in range(100):
            action = int(rng.integers(7))
            env.step_count = 0
            _, reward, terminated, _, _ = env.step(action)
            ended = ("success" if reward > 0 else "failure") if terminated else ""
            successors, chances = model.row(state, action)
            state = numbers[worlds.variables(env, ended)]
            assert state == successors[np.argmax(chances)]
            assert model.labels["terminal"][state] == terminated
            assert model.labels["goal"][state] == (reward > 0)
            assert model.observations is not None
            assert model.observations[state].tolist() == worlds.observation(worlds.variables(env))
            if terminated:
                break


def test_the_slip_is_that_of_the_real_wrapper(worlds: ModuleType) -> None:
    from minigrid import wrappers  # noqa: PLC0415 - skipped without it

    wrapper: Any = wrappers.StochasticActionWrapper
    env = wrapper(worlds.WORLDS["empty"].reset(), prob=worlds.INTENDED)
    done = np.bincount([int(env.action(2)) for _ in range(70_000)], minlength=7)
    expected = np.full(7, 1_000) + 63_000 * (np.arange(7) == 2)
    assert (abs(done - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("name", ["empty", "gotodoor", "fetch"])
def test_enumerating_again_gives_the_same_model(worlds: ModuleType, name: str) -> None:
    again = worlds.enumerate_world(worlds.WORLDS[name])
    assert canonical_bytes(again) == canonical_bytes(load_model(ROOMS / f"{name}.npz"))
