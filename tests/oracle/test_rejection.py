"""The trees beside worlds drawn with Gumbel noise, and sets of paths beside single paths."""

from __future__ import annotations

from math import log, sqrt

import pytest

from tests.oracle import syntax as ast
from tests.oracle.evaluate import Reading, horizon, resolve
from tests.oracle.rejection import Sampler, SinglePaths
from tests.oracle.worlds import DEPLOYED
from tests.tiers import first
from tests.truth.generate import batch

SEEDS = range(24)
QUESTIONS = 6  # of each seed that are compared at most
WORLDS = 20_000
FALSE_ALARM = 1e-6  # of all comparisons together


def numbers(seed: int) -> list[str]:
    """Return `=?` questions on a setting, those that look into the past first."""
    evaluator, cases = batch(seed)
    asked = [case.formula for case in cases if isinstance(evaluator.parser.parse(case.formula), ast.Ask)]
    return sorted(dict.fromkeys(asked), key=lambda text: "@0" in text)[:QUESTIONS]


@pytest.mark.parametrize("seed", first(3, SEEDS))
def test_trees_agree_with_noise(seed: int) -> None:
    """Hoeffding for each of two means a question, at the family-wise false-alarm rate divided by their number."""
    evaluator, _ = batch(seed)
    sampler = Sampler(evaluator, WORLDS, seed)
    width = sqrt(log(2 * 2 * len(SEEDS) * QUESTIONS / FALSE_ALARM) / (2 * WORLDS))
    for text in numbers(seed):
        value = evaluator.answer(text).value
        assert value is not None
        sampled = sampler.ask(text)
        assert abs(float(value) - sampled.mean) <= width * sampled.spread + 1e-9, text


@pytest.mark.parametrize("seed", first(5, range(100, 130)))
def test_sets_of_paths_agree_with_single_paths(seed: int) -> None:
    evaluator, cases = batch(seed)
    path, compared = evaluator.setting.path, 0
    for case in cases:
        formula = evaluator.parser.parse(case.formula)
        if not isinstance(formula, ast.Ask) or isinstance(formula.quantity, ast.Reward):
            continue
        body, asked = formula.quantity.body, formula.quantity.world
        _, start = resolve(asked.offset, len(path))
        world = evaluator.laws.world(DEPLOYED, start, path[start:], asked.change)
        tree = evaluator.tree(world, horizon(body), "gumbel")
        paths = Reading(evaluator, tree).sat(body, 0)
        single = SinglePaths(evaluator, world.regime, world.start)
        for leaf in tree.levels[-1]:
            literal = single.satisfies(leaf.history, body, 0)
            assert literal == bool(paths >> leaf.first & 1), (case.formula, leaf.history)
            compared += 1
    assert compared
