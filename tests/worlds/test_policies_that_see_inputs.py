"""Policies that decide on a world's inputs too: engine, referee, stream and evidence agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monitor
from monitor.alarm.message import identity_of
from monitor.arrays import Floats, Ints
from monitor.errors import PolicyError
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.logic import parse
from monitor.logic.traversal import quantity_goals
from monitor.referee.numbers import Given, mean
from monitor.sampled.sampler import Sampler
from monitor.stream.world_adapter import WorldAdapter
from monitor.types import Alert, FormulaSpec, Instant, Observation, StreamSettings
from monitor.worlds.world_policies import as_world_policy
from tests.evidence.rederived import make_evidence


class Shop:
    """A store that is filled while it is cheap: level [0, inf), prices are recorded inputs."""

    features = ("level",)
    inputs: tuple[str, ...] = ("price", "demand")
    actions = ("wait", "fill")
    labels = ("empty",)
    noise = 1
    version = "shop 1"

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        return x + 2.0 * a[:, np.newaxis] - w[..., 1:2] + (u - 0.5)

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Floats:
        return np.asarray(x_next - x - 2.0 * a + w[1] + 0.5)

    def holds(self, label: str, x: Floats) -> Any:
        assert label == "empty"
        return x[:, 0] <= 0.0

    def forecast(self, w: Floats) -> Floats:
        return w


class ResampledShop(Shop):
    """Later prices are drawn from ten that were recorded."""

    recorded_steps = 10

    def resample(self, w: Floats, ahead: int, u: Floats) -> Floats:
        at = (np.floor(u * 10).astype(int) + ahead) % 10
        return np.column_stack([at / 10.0, 0.5 + 0.1 * at]) + 0.0 * w


def thrifty(x: Floats, w: Floats) -> Any:
    """Fill if it is cheap, or if little is left."""
    return ((w[:, 0] < 0.5) | (x[:, 0] < 1.0)).astype(int)


def unsure(x: Floats, w: Floats) -> Any:
    fills = np.clip(1.0 - w[:, 0] - 0.05 * x[:, 0], 0.1, 0.9)
    return np.column_stack([1.0 - fills, fills])


POLICIES = {"nominal": lambda x: np.zeros(len(x), dtype=int), "thrifty": thrifty, "unsure": unsure}
PATH = [((4.0,), "wait", (0.9, 1.0)), ((3.1,), "wait", (0.2, 1.5)), ((1.4,), "wait", (0.8, 0.9))]


def test_a_policy_acts_on_the_inputs_recorded_with_each_step() -> None:
    """By hand: at the second step it is cheap, so it fills; noise of the held steps is inverted: 0.6, 0.3."""
    verdict = monitor.check('thrifty@2.P=? [ G<=2 !"empty" ]', model=Shop, path=PATH, policies=POLICIES)
    assert (verdict.method, verdict.value) == ("exact", 1.0)
    steps: list[tuple[float, float]] = []

    def noted(x: Floats, w: Floats) -> Any:
        steps.append((float(x[0, 0]), float(w[0, 0])))
        return thrifty(x, w)

    monitor.check('noted@2.P=? [ G<=2 !"empty" ]', model=Shop, path=PATH, policies={**POLICIES, "noted": noted})
    assert steps[:3] == [(4.0, 0.9), (pytest.approx(3.1), 0.2), (pytest.approx(3.4), 0.8)]


@pytest.mark.parametrize("model", [Shop, ResampledShop])
@pytest.mark.parametrize("name", ["thrifty", "unsure"])
@pytest.mark.parametrize("nominal", ["nominal", "unsure"])
def test_the_referee_draws_the_same(model: type, name: str, nominal: str) -> None:
    policies = {**POLICIES, "nominal": POLICIES[nominal]}
    checker = WorldChecker(model, policies, {})
    path, draws, chances = checker.path(PATH), 300, list[float]()
    for text in (f'{name}@1.P=? [ F<=6 "empty" ]', f'{name}[2]@2.P=? [ F<=6 "empty" ]', '@1.P=? [ F<=6 "empty" ]'):
        (goal,) = quantity_goals(parse(text))
        drawn = Sampler(checker.scene, 7).question(goal, path).outcomes(range(draws))
        tables = checker.policies
        given = Given(path, 0, terminated=False, worlds={"": checker.model},
                      policies={each: table.decide for each, table in tables.items()}, seed=7, draws=draws,
                      see_inputs={each for each, table in tables.items() if table.sees_inputs})  # fmt: skip
        assert mean(goal, given) == drawn.mean()
        chances.append(drawn.mean())
    assert any(0.0 < chance < 1.0 for chance in chances)


def test_deviation_is_judged_with_the_inputs_of_the_step() -> None:
    world = monitor.load_world(Shop)
    adapter = WorldAdapter(world, StreamSettings(encoder="features"), as_world_policy("nominal", thrifty, world))
    assert adapter.off_policy(((4.0,), 0, (0.2, 1.0))), "it is cheap, and nothing was filled"
    assert not adapter.off_policy(((4.0,), 0, (0.9, 1.0)))


def test_a_function_of_two_arguments_needs_inputs() -> None:
    class Bare(Shop):
        inputs = ()

        def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
            return x + 2.0 * a[:, np.newaxis] - 1.0 + (u - 0.5)

        def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Floats:
            return x_next - x - 2.0 * a + 1.5

    with pytest.raises(PolicyError, match="'p' takes two arguments, states and inputs, and world 'shop 1' has no in"):
        as_world_policy("p", thrifty, monitor.load_world(Bare))


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=["engine", "referee"])
@pytest.mark.parametrize("model", [Shop, ResampledShop])
def test_the_evidence_of_an_alarm_is_derived_again(model: type, deriver: Any) -> None:
    world = monitor.load_world(model)
    policies = {name: as_world_policy(name, each, world) for name, each in POLICIES.items()}
    watching = monitor.Monitor(
        world,
        policies,
        [FormulaSpec("watch", 'regret(thrifty@2, P>=0.9 [ G<=4 !"empty" ])')],
        StreamSettings(encoder="features", window=8),
    )
    notices: list[Any] = []
    for seq, (state, action, inputs) in enumerate(PATH):
        now = Instant(1000.0 + seq, float(seq))
        step = Observation("ada", "e", seq, state, action, time=now.wall, inputs=inputs)
        notices += [*watching.observe(step, now), *watching.evaluate(now)]
    alert = next(each for each in notices if isinstance(each, Alert))
    evidence = read_evidence(make_evidence(alert, identity_of(world, policies, {}), policies, {}))
    assert evidence.policies["thrifty"].choices[0][0] == (*alert.path[-1][0], *alert.inputs[-1])
    assert derive_again(evidence, world, policies, {}, [deriver]).problems == []
    blind = {**policies, "thrifty": policies["nominal"]}
    assert derive_again(evidence, world, blind, {}, [deriver]).problems
