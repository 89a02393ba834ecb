"""`check`: what it takes, what it refuses and how, and that sharing between questions changes nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import monitor.causal.world as world_module
import monitor.exact.evaluators as worlds_module
import monitor.exact.value_table as table_module
from monitor.errors import ConfigError, FormulaError, LimitError, PathError, PolicyError
from monitor.evaluation import check
from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.logic.syntax import Goal, Label, Probability, WorldRef, eventually
from monitor.model import MDP
from tests.exact.small import LAW, chances, question, small_world
from tests.tiers import examples

MODEL = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (0, 1, 1, 1.0), (1, 0, 2, 1.0), (1, 1, 0, 1.0), (2, 0, 2, 1.0)],
    labels={"a": [1]},
)
POLICIES: dict[str, Any] = {"nominal": [0, 0, 0], "alt": [1, 1, 0]}
PATH: list[Any] = [(0, 0), (1, 0), (2, 0)]
QUERY = 'alt@2.P=? [ F<=2 "a" ]'


def ask(query: Any = QUERY, **more: Any) -> Any:  # noqa: ANN401 - wrong arguments, too
    given_: dict[str, Any] = {"model": MODEL, "path": PATH, "policies": POLICIES, "engine": "exact"}
    return check(query, **(given_ | more))


PATHS = [
    ([], "the path is empty; it needs at least one pair"),
    ([(3, 0)], "pair 0: state 3 is outside 0..2"),
    ([(0, 0), (-1, 0)], "pair 1: state -1 is outside 0..2"),
    ([(10**40, 0)], "pair 0: state 1" + "0" * 40 + " is outside"),
    ([(0, 2)], "pair 0: action 2 is unavailable in state 0"),
    ([(0, -1)], "pair 0: action -1 is unavailable in state 0"),
    ([(1, 0), (2, 1)], "pair 1: action 1 is unavailable in state 2"),
    ([(0, None), (0, 0)], "pair 0: only the last pair may lack its action"),
    ([(0, 0), (2, 0)], "pair 0: the model gives 2 probability 0 after state 0, action 0"),
    ([(0, 0), (1, 0), (0, 0)], "pair 1: the model gives 0 probability 0 after state 1, action 0"),
    ([("0", 0)], "pair 0: a pair (state, action) of whole numbers is needed, such as (0, 1)"),
    ([(0, 0), (0.5, 0)], "pair 1: a pair (state, action) of whole numbers is needed"),
    ([(0, 0.0)], "pair 0: a pair (state, action) of whole numbers is needed"),
    ([(0,)], "pair 0: a pair (state, action) of whole numbers is needed"),
    ([(0, 0, 0)], "pair 0: a pair (state, action) of whole numbers is needed"),
    ([0, 1], "pair 0: a pair (state, action) of whole numbers is needed"),
    (None, "pair 0: a pair (state, action) of whole numbers is needed"),
    ("01", "pair 0: a pair (state, action) of whole numbers is needed"),
]


@pytest.mark.parametrize(("path", "problem"), PATHS)
def test_impossible_paths(path: Any, problem: str) -> None:  # noqa: ANN401 - wrong ones
    with pytest.raises(PathError) as caught:
        ask(path=path)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("query", ['nominal@2.P=? [ F<=2 "a" ]', '"a"', "true"])
def test_impossible_paths_are_refused_for_every_formula(query: str) -> None:
    with pytest.raises(PathError):
        ask(query, path=[(0, 0), (2, 0)])


POLICY_ERRORS = [
    ({"nominal": [0, 0, 0], "alt": [1, 1, 1]}, "state 2: the policy takes action 1, which is unavailable there"),
    ({"nominal": [0, 0], "alt": [1, 1, 0]}, "the policy has 2 actions for 3 states"),
    ({"nominal": [0, 0, 5], "alt": [1, 1, 0]}, "state 2: action 5 is outside 0..1"),
    ({"nominal": [[1, 0], [0.5, 0.4], [1, 0]], "alt": [1, 1, 0]}, "state 1: the action probabilities sum to 0.9"),
    ({"nominal": [[1, 0], [np.nan, 1], [1, 0]], "alt": [1, 1, 0]}, "state 1, action 0: nan is not a probability"),
    ({"nominal": "no such file.yaml", "alt": [1, 1, 0]}, ""),
]


@pytest.mark.parametrize(("policies", "problem"), POLICY_ERRORS)
def test_unfit_policies(policies: dict[str, Any], problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        ask(policies=policies)
    assert str(caught.value).startswith(problem)


def test_wrong_arrangements() -> None:
    with pytest.raises(ConfigError, match=r"no policy is called 'nominal'; it names the deployed one"):
        ask(policies={"alt": [1, 1, 0]})
    with pytest.raises(ConfigError, match=r"engine 'fast' does not exist; use auto, exact, sampled"):
        ask(engine="fast")
    with pytest.raises(ConfigError, match=r"causal model 'stabel' does not exist; use gumbel, any, stable"):
        ask(causal_model="stabel")
    small = MDP.from_transitions(states=1, actions=2, transitions=[(0, 0, 0, 1.0)])
    with pytest.raises(ConfigError, match=r"model 'icy' has 1 states and 2 actions; it must have the 3 and 2"):
        ask(models={"icy": small})
    gappy = MDP.from_transitions(states=3, actions=2, transitions=[(s, 0, s, 1.0) for s in range(3)])
    with pytest.raises(ConfigError, match=r"model 'icy' lacks action 1 in state 0, where the main model has it"):
        ask(models={"icy": gappy})


def test_formulas_are_read_and_checked() -> None:
    with pytest.raises(FormulaError, match=r"line 1, column 13: F needs an interval"):
        ask('alt.P=? [ F "a" ]')
    with pytest.raises(FormulaError, match=r"unknown label 'aa'; did you mean 'a'\?"):
        ask('P=? [ F<=1 "aa" ]')
    with pytest.raises(FormulaError, match=r"unknown model 'icy'"):
        ask("model:icy.P=? [ true ]")
    with pytest.raises(FormulaError, match=r"do\(1\) is impossible: the action is unavailable in 1 states, first in 2"):
        ask("do(1).P=? [ true ]")


def test_a_formula_may_come_parsed() -> None:
    assert ask(parse(QUERY)).value == ask().value
    assert ask(parse(QUERY)).formula == 'alt@2.P=? [ F<=2 "a" ]'


def test_paths_and_policies_may_come_as_arrays() -> None:
    matrix = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert ask(path=np.array(PATH), policies=POLICIES | {"alt": matrix}).value == ask().value


def test_tables_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_TABLE_NUMBERS", 60)  # more than twice the numbers of the model
    with pytest.raises(
        LimitError,
        match=r"more than 60 numbers \(limit MAX_TABLE_NUMBERS\): at least 21 obligations for 3 states; shorten",
    ):
        ask('P=? [ F<=40 "a" ]', path=[(0, 0)])
    checker = Checker(MODEL, tables(POLICIES, MODEL))
    with pytest.raises(LimitError):
        checker.prepare(parse('"a" | !(alt@2.P>0.5 [ F<=40 "a" ]) & true'))


@settings(LAW, max_examples=examples(25, 40))
@given(chances)
def test_sharing_between_queries_changes_nothing(chance: Random) -> None:
    """One checker for many formulas, paths and ends answers as a new one for each."""
    small = small_world(chance, stochastic=chance.random() < 0.3, length=4)
    checker = Checker(small.model, tables(small.policies, small.model), small.models)
    worlds = ["alt@1", "alt@2", "nominal@0", "do(1)@1", "model:icy@2", "alt[1]@2", "regret"]
    for _ in range(8):
        text = question(chance, chance.choice(worlds), reach=3)
        if text.startswith("regret"):
            text = text.replace("regret.", "regret(alt@1, ").replace("=?", ">=0.5") + ")"
        path = list(small.setting.path[: chance.randint(1, 4)])
        ended = chance.random() < 0.4
        if chance.random() < 0.3:
            checker.prepare(parse(text))
        verdict = checker.check(parse(text), path, terminated=ended, causal_model="any", text=text)
        assert verdict == small.ask(text, path=path, terminated=ended, causal_model="any", recourse=False)


@settings(LAW, max_examples=20)
@given(chances)
def test_cache_eviction_changes_nothing(chance: Random) -> None:
    """With room for one row, one table and one ended model, answers are computed again, and are the same."""
    small = small_world(chance, length=4)
    texts = [question(chance, world, reach=3) for world in ("alt@2", "do(0)@3", "model:icy@1")]
    with pytest.MonkeyPatch.context() as room:
        room.setattr(worlds_module, "MAX_VALUE_TABLES", 1)
        room.setattr(world_module, "MAX_ROWS", 1)
        checker = Checker(small.model, tables(small.policies, small.model), small.models)
        for n in (4, 3, 4):
            for text in texts:
                path = list(small.setting.path[:n])
                verdict = checker.check(parse(text), path, terminated=True, text=text)
                assert verdict == small.ask(text, path=path, terminated=True)


def test_a_formula_built_by_hand_is_held_to_the_grammar() -> None:
    asked: dict[str, Any] = {"model": MODEL, "path": PATH, "policies": POLICIES}
    with pytest.raises(FormulaError, match="reversed interval"):
        check(Goal(WorldRef(), Probability(eventually(3, 1, Label("a")))), **asked)
    with pytest.raises(FormulaError, match="outside the brackets"):
        check(eventually(0, 1, Label("a")), **asked)
    assert check(parse(QUERY), **asked).value == check(QUERY, **asked).value
