"""Sampled answers against exact ones: all reference questions, and worlds of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from monitor.logic.syntax import Goal, Probability
from monitor.model import MDP
from tests.exact.small import question, small_world
from tests.sampled.worlds import FALSE_ALARM, error_bound, goal, model_of, sampler, sampler_of, width
from tests.tiers import examples, heavy, scaled

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference" / "cases.json").read_text())
PARTICLES = 20_000
WORLDS, DRAWN = examples(60, 400), 5_000


def fits(outcomes: npt.NDArray[np.float64], asked: Goal, model: MDP, value: float, chance: float) -> bool:
    """Whether outcomes have a mean; says no to a true one with a probability of at most `chance`."""
    if isinstance(asked.measure, Probability) and asked.world.baseline is None:
        assert set(outcomes.tolist()) <= {0.0, 1.0}
        hits, likely = int(outcomes.sum()), min(max(value, 0.0), 1.0)
        return bool(binomtest(hits, len(outcomes), likely).pvalue > chance)
    return bool(abs(outcomes.mean() - value) <= error_bound(outcomes, width(asked, model.rewards), chance))


@heavy
@scaled
def test_every_reference_question_with_a_value() -> None:
    asked = [(n, query) for n, case in enumerate(CASES) for query in case["queries"] if "value" in query]
    assert len(asked) == 1440
    asked = asked[:: examples(13, 1)]  # of each 24, another one in the next case
    models = [model_of(case) for case in CASES]
    samplers = [
        sampler_of(model, case["policies"], n) for n, (model, case) in enumerate(zip(models, CASES, strict=True))
    ]
    wrong = []
    for n, query in asked:
        question, path = goal(query["formula"]), [(state, action) for state, action in CASES[n]["path"]]
        outcomes = samplers[n].outcomes(question, path, range(PARTICLES))
        if not fits(outcomes, question, models[n], query["value"], FALSE_ALARM / len(asked)):
            wrong.append((n, query, outcomes.mean()))
    assert not wrong


def world(chance: Random) -> str:
    """Any change, or the effect of one over another, at any offset."""
    change = chance.choice(["nominal", "alt", "alt[1]", "third[2]", "do(1)", "do(0)[1]", "model:icy"])
    if chance.random() < 0.3:
        change = f"delta({change},{chance.choice(['nominal', 'third', 'model:icy'])})"
    return f"{change}@{chance.randint(-3, 3)}"


def nested(chance: Random) -> str:
    inner = chance.choice(["nominal", "alt", "third[1]", "delta(alt,nominal)", "model:icy"])
    operator = chance.choice(["F", "G"])
    return f'P=? [ {operator}<=2 ("a" | {inner}@0.P>{chance.choice([0, 0.3, 0.6])} [ F<=2 "b" ]) ]'


@scaled
def test_worlds_of_every_kind() -> None:
    """Stochastic policies, off-policy paths, actions not yet taken, ends, takeovers, actions held, other dynamics."""
    wrong = []
    for n in range(WORLDS):
        chance = Random(n)
        stochastic, open_end, terminated = (chance.random() < share for share in (0.5, 0.3, 0.3))
        small = small_world(chance, stochastic=stochastic, open_end=open_end, terminated=terminated)
        asked = world(chance)
        text = f"{asked}.{nested(chance)}" if chance.random() < 0.3 else question(chance, asked)
        outcomes = sampler(small, n).outcomes(goal(text), small.setting.path, range(DRAWN), terminated=terminated)
        if not fits(outcomes, goal(text), small.model, small.number(text), FALSE_ALARM / WORLDS):
            wrong.append((n, text, outcomes.mean(), small.number(text)))
    assert not wrong


@heavy
def test_sharing_the_noise_makes_an_effect_less_spread() -> None:
    """Where both interventions matter: the paired difference against that of independent worlds."""
    spread = []
    for n, case in enumerate(CASES):
        model, path = model_of(case), [(s, a) for s, a in case["path"]]
        one, other = (sampler_of(model, case["policies"], seed) for seed in (n, n + 1000))
        alt, third = (goal(f'{name}@9.P=? [ F<=6 "a" ]') for name in ("alt", "third"))
        paired = one.outcomes(alt, path, range(4_000)) - one.outcomes(third, path, range(4_000))
        assert np.array_equal(paired, one.outcomes(goal('delta(alt,third)@9.P=? [ F<=6 "a" ]'), path, range(4_000)))
        alone = one.outcomes(alt, path, range(4_000)) - other.outcomes(third, path, range(4_000))
        spread.append((paired.var(), alone.var()))
    paired_sum, alone_sum = np.sum(spread, axis=0)
    assert paired_sum < 0.8 * alone_sum
    assert all(both <= alone * 1.1 + 0.02 for both, alone in spread)
