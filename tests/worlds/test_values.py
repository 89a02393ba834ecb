"""Values in worlds with numbers: reference cases, closed forms, plain simulation, the exact engine, an own loop."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from monitor.evaluation import check
from monitor.types import Sampling, Verdict
from tests.exact.small import question, small_world
from tests.tiers import examples, scaled, slow
from tests.worlds.oracle import counterfactual_share
from tests.worlds.samples import GumbelTable, InverseTable, Linear, NumberLine, number_rule, state_rule

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference/dynamics_cases.json").read_text())
FAR = 4.5
"""Standard errors by which an estimate may miss: in a thousand comparisons, once in 150 runs with other seeds."""


def asked(case: dict[str, Any], seed: int, **more: Any) -> Verdict:
    return check(
        f'alternative@{case["offset"]}.P=? [ F<={case["horizon"]} "hot" ]',
        model=NumberLine(case),
        path=[([x], a) for x, a in case["path"]],
        policies={name: number_rule(case, name) for name in ("nominal", "alternative")},
        sampling=Sampling(seed=seed, **more),
    )


def deviation(verdict: Verdict, truth: float, variance: float | None = None) -> float:
    """How many standard errors an estimate is from the truth; its samples are 0 or 1, or have this variance."""
    found = verdict.quantities[0]
    if found.samples == 0:
        assert found.value == pytest.approx(truth, abs=1e-9)
        return 0.0
    spread = truth * (1.0 - truth) if variance is None else variance
    return (found.value - truth) / max(math.sqrt(spread / found.samples), 1e-3)


@scaled
def test_the_reference_cases() -> None:
    for n, case in enumerate(CASES[:: 120 // examples(12, 120)]):
        assert abs(deviation(asked(case, n), case["value"])) < FAR, case


@slow
def test_intervals_hold_the_answer_as_often_as_they_say() -> None:
    held = [
        low - case["tolerance"] <= case["value"] <= high + case["tolerance"]
        for seed in range(5)
        for n, case in enumerate(CASES)
        for low, high in [asked(case, 1000 * seed + n, error=0.05).bounds or (0.0, 1.0)]
    ]
    assert len(held) == 600
    assert 0.93 <= np.mean(held) <= 0.985  # Clopper and Pearson: at least .95, and more where the answer is near 0 or 1


@scaled
def test_linear_systems_have_closed_forms() -> None:
    rng = np.random.default_rng(1)
    for n in range(examples(20, 200)):
        size, steps, offset = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(0, 3))
        matrix = rng.normal(size=(size, size)) / 2
        push, scale, normal = rng.normal(size=(2, size)), rng.uniform(0.2, 1, size), rng.normal(size=size)
        world = Linear(matrix, push, scale, normal, float(rng.normal()))
        x, path = rng.normal(size=size), []
        noise = rng.normal(size=(offset, size))
        for z in noise:
            path.append((x, int(rng.integers(2))))
            x = matrix @ x + push[path[-1][1]] + scale * z
        path.append((x, 0))
        other, covariance = path[0][0], np.zeros((size, size))  # in the world of do(1): its mean, its spread
        for k in range(offset + steps):
            other = matrix @ other + push[1] + (scale * noise[k] if k < offset else 0.0)
            covariance = matrix @ covariance @ matrix.T + (np.diag(scale**2) if k >= offset else 0.0)
        truth = float(ndtr((normal @ other - world.bound) / math.sqrt(normal @ covariance @ normal)))
        policies = {"nominal": lambda x: np.zeros(len(x), dtype=int)}
        text = f'do(one)@{offset}.P=? [ F={offset + steps} "far" ]'
        verdict = check(text, model=world, path=path, policies=policies, sampling=Sampling(seed=n))
        assert abs(deviation(verdict, truth)) < FAR, n


@scaled
def test_a_world_without_noise_is_simulated_to_the_bit() -> None:
    rng = np.random.default_rng(2)
    for _ in range(examples(10, 100)):
        size, steps, offset = int(rng.integers(1, 5)), int(rng.integers(1, 12)), int(rng.integers(0, 4))
        world = Linear(
            rng.normal(size=(size, size)) / 2, rng.normal(size=(2, size)), np.zeros(size), np.ones(size), 0.3
        )
        policies = {"nominal": lambda x: (x[:, 0] > 0).astype(int), "other": lambda x: (x[:, -1] < 0.2).astype(int)}

        def walked(start: Any, name: str, count: int, world: Any = world, policies: Any = policies) -> list[Any]:
            states, none = [start], np.zeros((1, 0))
            for _ in range(count):
                states.append(world.step(states[-1], policies[name](states[-1]), none, none))
            return states

        happened = walked(rng.normal(size=(1, size)), "nominal", offset)
        path = [(x[0], int(policies["nominal"](x)[0])) for x in happened]
        other = walked(happened[0], "other", steps)
        verdict = check(f"other@{offset}.R=? [ C<={steps - 1} ]", model=world, path=path, policies=policies)
        rewards = [float(world.reward(x, x, after)[0]) for x, after in pairwise(other)]
        assert verdict.method == "exact"
        assert verdict.value == sum(rewards)
        verdict = check(f'other@{offset}.P=? [ F={steps} "far" ]', model=world, path=path, policies=policies)
        assert verdict.value == float(world.holds("far", other[-1])[0])
        assert verdict.tiers == ()


@scaled
def test_a_gumbel_simulator_agrees_with_the_exact_engine() -> None:
    """Its noise is drawn from its posterior; policies may be stochastic, and the episode may have ended."""
    tested = 0
    for seed in range(examples(12, 1000)):
        chance = Random(seed)
        small = small_world(chance, stochastic=seed % 3 == 0, on_policy=True, terminated=seed % 4 == 0)
        names = ["alt", "third", "alt[1]", "nominal", "do(1)"]
        text = question(chance, f"{chance.choice(names)}@{chance.randint(0, 3)}")
        truth = small.ask(text)
        world = GumbelTable(small, weighted=seed % 2 == 1)
        verdict = check(
            text,
            model=world,
            path=[([state], action) for state, action in small.setting.path],
            policies={name: state_rule(policy) for name, policy in small.policies.items()},
            terminated=small.setting.terminated,
            sampling=Sampling(seed=seed, rewards=(-2.0, 2.0), error=0.05),
        )
        assert truth.value is not None
        variance = None if ".P" in text else 16.0
        assert abs(deviation(verdict, truth.value, variance)) < FAR, (seed, text)
        tested += verdict.method == "sampled"
    assert tested > examples(4, 330)


@scaled
def test_an_inverse_distribution_function_lies_within_the_bounds_of_all_causal_models() -> None:
    for seed in range(examples(10, 1000)):
        chance = Random(seed)
        small = small_world(chance, length=chance.randint(2, 4), on_policy=True)
        text = f'alt@{chance.randint(1, 3)}.P=? [ F<={chance.randint(1, 3)} "a" ]'
        low, high = small.ask(text, causal_model="any").bounds or (0.0, 1.0)
        found = check(
            text,
            model=InverseTable(small),
            path=[([state], action) for state, action in small.setting.path],
            policies={name: state_rule(policy) for name, policy in small.policies.items()},
            sampling=Sampling(seed=seed, error=0.05, error_alpha=1e-6),
        )
        ends = found.bounds or (found.value, found.value)
        assert ends[1] is not None
        assert ends[0] is not None
        assert ends[0] <= high + 1e-9, (seed, text)
        assert ends[1] >= low - 1e-9, (seed, text)


def expected(case: dict[str, Any], x: float, action: int) -> float:
    return float(case["base"] + case["keep"] * x + case["push"][action])


def chosen(policy: Any, x: float) -> int:
    return int(policy(np.array([[x]]))[0])


def holds(case: dict[str, Any], met: Callable[[list[bool]], bool], states: list[float]) -> bool:
    return met([x >= case["hot"] for x in states])


@scaled
def test_an_own_loop_agrees() -> None:
    """Path formulas that the reference cases lack: until, always, next."""
    properties: dict[str, Callable[[list[bool]], bool]] = {
        '!"hot" U<=4 (X "hot")': lambda hot: any(hot[k + 1] and not any(hot[:k]) for k in range(5)),
        'G<=3 !"hot"': lambda hot: not any(hot[:4]),
        'F=2 "hot"': lambda hot: hot[2],
    }
    for n in range(examples(6, 60)):
        case = CASES[(7 * n) % len(CASES)]
        text, met = list(properties.items())[n % 3]
        nominal, other = (number_rule(case, name) for name in ("nominal", "alternative"))
        start = max(len(case["path"]) - 1 - case["offset"], 0)
        share = counterfactual_share(
            partial(expected, case),
            case["s"],
            case.get("N"),
            [(float(x), a) for x, a in case["path"][start:]],
            partial(chosen, other),
            partial(holds, case, met),
            5,
            2_000,
            n,
        )
        verdict = check(
            f"alternative@{case['offset']}.P=? [ {text} ]",
            model=NumberLine(case),
            path=[([x], a) for x, a in case["path"]],
            policies={"nominal": nominal, "alternative": other},
            sampling=Sampling(seed=n),
        )
        assert verdict.value is not None
        assert abs(verdict.value - share) < FAR * math.sqrt(0.25 / 2_000 + 0.25 / 4_612), (n, text)
