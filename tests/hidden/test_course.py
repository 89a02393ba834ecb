"""Where a world is at each step, given all that was observed."""

from __future__ import annotations

import numpy as np
import pytest

import monitor
from monitor.causal import CounterfactualWorld
from monitor.exact import Checker, tables
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.logic import parse
from monitor.logic.traversal import goals
from monitor.picture.distribution import distribution_of
from tests.hidden.played import some_world
from tests.hidden.scores import model_of, policy
from tests.hidden.test_seen_states import case, shown
from tests.tiers import slow

STEPS = 7
"""More than any path here has."""


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=slow) for seed in range(4, 40))])
def test_where_states_are_seen_it_is_that_of_the_other_picture(seed: int) -> None:
    about, path, terminated = case(seed)
    path[-1] = path[-1][0], path[-1][1] or 0
    hidden = HiddenChecker(shown(about["model"]), about["policies"], {"icy": shown(about["models"]["icy"])})
    pairs, _ = hidden.check_path(path)
    beliefs = hidden.beliefs(pairs, (), None)
    worlds = Checker(about["model"], tables(about["policies"], about["model"]), about["models"]).evaluators
    for text in ("other@1", "nominal@2", "other[1]@2", "do(1)@0", "model:icy@1"):
        goal, (change,), offset = next(goals(parse(f"{text}.R=? [ C<={STEPS - 1} ]")))
        begins, end = max(len(path) - 1 - offset, 0), path[-1][0] if terminated else None
        nominal = worlds.nominal(end, len(path) - 1 - begins)
        world = CounterfactualWorld.at(path, begins, nominal, worlds.intervention(change, end), worlds.rows)
        wanted = distribution_of(world, worlds.value_table(world.law, goal.measure), about["model"].states).states
        (found,) = hidden.courses([(change, begins)], pairs, beliefs, steps=STEPS, terminated=terminated)
        assert len(found) == len(wanted) == STEPS
        for one, other in zip(found, wanted, strict=True):
            assert {s: p for s, p in one.items() if p > 1e-15} == pytest.approx(other, abs=1e-12)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=slow) for seed in range(6, 40))])
def test_it_is_what_verdicts_say_of_each_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    played = some_world(rng, memories=1 + seed % 2, sees_state=seed % 3 == 0, shadows=seed % 4 < 2)
    model = model_of(played)
    policies = {"nominal": policy(played.nominal), "other": policy(played.alternative)}
    path = [(None if rng.random() < 0.3 else 0, None if rng.random() < 0.3 else 0) for _ in range(3)]
    hidden = HiddenChecker(model, policies, {})
    try:
        beliefs = hidden.beliefs(path, (), None)
        monitor.check('P=? [ "bad" ]', model=model, path=path, policies=policies)
    except monitor.PathError:
        pytest.skip("it is impossible in this world")
    for text in ("other@2", "nominal@2", "other@0", "do(1)@1"):
        _, (change,), offset = next(goals(parse(f'{text}.P=? [ "bad" ]')))
        (found,) = hidden.courses([(change, 2 - offset)], path, beliefs, steps=5)
        for step, there in enumerate(found):
            assert sum(there.values()) == pytest.approx(1.0, abs=1e-12)
            query = f'{text}.P=? [ F={step} "bad" ]'
            verdict = monitor.check(query, model=model, path=path, policies=policies)
            assert there.get(0, 0.0) == pytest.approx(verdict.value, abs=1e-12)
