"""Which policy acted, beside nominal: what is checked, what is refused, and what does not depend on it."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import PathError, check
from monitor.errors import LimitError
from monitor.evaluation import TableEngines
from monitor.exact import Checker
from monitor.logic import parse
from monitor.model import MDP
from monitor.policy.table import as_table
from monitor.referee import derive
from monitor.sampled import Simulated
from monitor.types import UNKNOWN_POLICY, Sampling
from tests.tiers import examples, heavy, scaled

WALK, CRAWL = 0, 1
PATH = [(0, WALK), (1, CRAWL), (1, WALK)]
ACTED = ["nominal", "careful", "nominal"]
POLICIES = {"nominal": [WALK] * 4, "careful": [CRAWL] * 4, "mixed": [[0.5, 0.5]] * 4}
TEXTS = ['careful@2.P=? [ F=2 "ledge" ]', 'nominal@1.P=? [ F<=3 "home" ]', 'do(1)@2.P=? [ F<=3 "home" ]']
DEPENDS = ['careful[1]@2.P=? [ F=2 "ledge" ]', 'mixed@2.P=? [ F=2 "ledge" ]', 'model:icy@2.P=? [ F=2 "ledge" ]']


def walks(fall: float) -> MDP:
    rows = [(0, WALK, 1, 1 - fall), (0, WALK, 3, fall), (0, CRAWL, 0, 0.5), (0, CRAWL, 1, 0.45), (0, CRAWL, 3, 0.05)]
    rows += [(1, WALK, 2, 1 - fall), (1, WALK, 3, fall), (1, CRAWL, 1, 0.5), (1, CRAWL, 2, 0.45), (1, CRAWL, 3, 0.05)]
    rows += [(state, action, state, 1.0) for state in (2, 3) for action in (WALK, CRAWL)]
    return MDP.from_transitions(states=4, actions=2, transitions=rows, labels={"ledge": [1], "home": [2]})


MODEL, ICY = walks(0.2), walks(0.5)


def value(text: str, acted: list[str], **more: object) -> float | None:
    about = {"model": MODEL, "models": {"icy": ICY}, "path": PATH, "policies": POLICIES}
    return check(text, **about, acted=acted, **more).value  # type: ignore[arg-type] # as the test says


@pytest.mark.parametrize("text", TEXTS)
def test_what_leaves_nothing_to_the_policies_does_not_depend_on_them(text: str) -> None:
    assert value(text, ACTED) == value(text, [])
    short = Sampling(limit=500, error=0.2)
    assert value(text, ACTED, engine="sampled", sampling=short) == value(text, [], engine="sampled", sampling=short)


@heavy
@scaled
@pytest.mark.parametrize("acted", [ACTED, ["careful", "careful", "nominal"], ["mixed", "nominal", "careful"]])
@pytest.mark.parametrize(
    "text", [*DEPENDS, *TEXTS, "careful[1]@2.R=? [ C<=3 ]", 'delta(careful[1],nominal)@2.P=? [ F=2 "ledge" ]']
)
def test_samples_follow_the_policies_that_acted(text: str, acted: list[str]) -> None:
    """Within their error of the exact values, which differ from those under nominal alone."""
    exact, seeds = value(text, acted), range(examples(2, 6))
    drawn = [
        value(text, acted, engine="sampled", sampling=Sampling(error=0.02, error_alpha=1e-4, seed=seed))
        for seed in seeds
    ]
    assert drawn == pytest.approx([exact] * len(drawn), abs=0.02)


def test_samples_refuse_nested_quantities_where_another_policy_acted() -> None:
    text = 'careful[1]@2.P=? [ F<=2 P>=0.5 [ X "home" ] ]'
    with pytest.raises(LimitError, match="nested quantities"):
        value(text, ACTED, engine="sampled")
    assert value(text, [], engine="sampled", sampling=Sampling(limit=500, error=0.2)) is not None


@pytest.mark.parametrize("change", ["best", "best[<=1]", "best[1]", "optimal"])
def test_samples_refuse_decisions_for_a_goal_whoever_acted(change: str) -> None:
    with pytest.raises(LimitError, match="decides by exact values"):
        value(f'{change}@2.P>=0.5 [ F<=3 "home" ]', ACTED, engine="sampled")


@pytest.mark.parametrize("text", [DEPENDS[0], DEPENDS[0].replace("careful", "do(1)")])
def test_it_matters_where_a_counterfactual_path_is_left_to_who_acted(text: str) -> None:
    assert value(text, ACTED) != value(text, [])
    assert value(text, ["nominal"] * 3) == value(text, [])


def test_an_action_not_taken_yet_is_that_of_who_acts() -> None:
    about = {"model": MODEL, "path": [(1, None)], "policies": POLICIES}
    walked, crawled = (check('P=? [ X "home" ]', **about, acted=[name]) for name in ("nominal", "careful"))  # type: ignore[arg-type] # likewise
    assert (walked.value, crawled.value) == (0.8, 0.45)
    drawn = check('P=? [ X "home" ]', **about, acted=["careful"], engine="sampled", sampling=Sampling(error=0.02))  # type: ignore[arg-type] # likewise
    assert drawn.value == pytest.approx(0.45, abs=0.03)


@pytest.mark.parametrize(
    ("acted", "engine", "referee"),
    [
        (["careful"], "acted names 1 policies for 3 pairs; name one", "3 pairs, and the policies that acted are named"),
        (["nominal", "who", "nominal"], "pair 1: no policy is called 'who'; there is nominal, careful", "'who'; there"),
    ],
)
def test_a_wrong_list_of_policies_is_an_error(acted: list[str], engine: str, referee: str) -> None:
    about = {"model": MODEL, "path": PATH, "policies": POLICIES, "acted": acted}
    with pytest.raises(PathError, match=engine):
        check(TEXTS[0], **about)  # type: ignore[arg-type] # likewise
    with pytest.raises(PathError, match=referee):
        derive(TEXTS[0], **about)  # type: ignore[arg-type] # likewise


@pytest.mark.parametrize("text", TEXTS)
def test_an_unknown_policy_does_not_matter_where_nothing_is_left_to_it(text: str) -> None:
    acted = ["nominal", UNKNOWN_POLICY, "nominal"]
    assert value(text, acted) == value(text, [])
    assert derive(text, model=MODEL, path=PATH, policies=POLICIES, acted=acted).value == pytest.approx(value(text, []))


@pytest.mark.parametrize("text", [*DEPENDS, 'max[<=1]@2.P=? [ F=2 "ledge" ]', 'delta(max,nominal)@2.P=? [ X "home" ]'])
def test_an_answer_that_depends_on_an_unknown_policy_is_refused(text: str) -> None:
    about = {
        "model": MODEL,
        "models": {"icy": ICY},
        "path": PATH,
        "policies": {**POLICIES, "nominal": [[0.5, 0.5]] * 4},
    }
    with pytest.raises(PathError, match="not configured acted at 1 of the steps from the intervention state on"):
        check(text, **about, acted=["nominal", UNKNOWN_POLICY, "nominal"])  # type: ignore[arg-type] # as the test says
    before = text.replace("@2", "@0")
    acted = [UNKNOWN_POLICY, UNKNOWN_POLICY, "nominal"]
    assert check(before, **about, acted=acted).value == check(before, **about).value  # type: ignore[arg-type] # likewise


@pytest.mark.parametrize("text", DEPENDS[:2])
def test_the_referee_refuses_an_answer_that_depends_on_an_unknown_policy(text: str) -> None:
    about = {"model": MODEL, "path": PATH, "policies": POLICIES}
    with pytest.raises(PathError, match="acts a policy that acted on the path and is not known"):
        derive(text, **about, acted=[UNKNOWN_POLICY] * 3)  # type: ignore[arg-type] # likewise


def test_a_simulated_model_depends_on_it_unless_the_path_is_replayed() -> None:
    scene = Simulated(MODEL, {"nominal": lambda states: np.full(len(states), WALK)})  # type: ignore[arg-type] # an MDP serves as one
    goals = [parse(text) for text in TEXTS[:2]]
    found = [scene.depends_on_policies(goal.world.change, goal.measure) for goal in goals]  # type: ignore[union-attr] # goals
    assert found == [True, False]


def test_one_value_is_the_same_with_and_without_a_growing_path() -> None:
    """With a window of 0 nothing is kept between verdicts; the numbers are the same."""
    tables = {name: as_table(policy, MODEL) for name, policy in POLICIES.items()}
    checker = TableEngines(Checker(MODEL, tables, {"icy": ICY}), Sampling()).checker
    for text in [
        'careful@2.P>=0.5 [ F=2 "ledge" ] & mixed[1]@1.P<0.2 [ X "home" ]',
        'regret(careful@2, P>=0.5 [ F=2 "ledge" ])',
    ]:
        formula = parse(text)
        for causal_model in ("gumbel", "any"):
            grown = checker.incremental_check(formula, causal_model, window=3).verdict(PATH, acted=ACTED)
            once = checker.incremental_check(formula, causal_model, window=0).verdict(PATH, acted=ACTED)
            assert [q.value for q in once.quantities] == pytest.approx([q.value for q in grown.quantities], abs=1e-15)
            assert [q.bounds for q in once.quantities] == [q.bounds for q in grown.quantities]
            assert once.outcome == grown.outcome
