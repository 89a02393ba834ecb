"""Decisions made for the goal, by hand and by law: on the ledge of docs/semantics/worlds.md, and in random worlds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.errors import ConfigError, FormulaError, LimitError
from monitor.evaluation import TableEngines
from monitor.exact.best import prior
from monitor.exact.best.options import options_of
from monitor.exact.best.values import FirstChange, Observed, PlanValues
from monitor.logic.syntax import Goal
from monitor.policy import as_table
from monitor.referee import derive
from monitor.types import FormulaSpec, Sampling
from tests.exact.learned import learned_world
from tests.exact.small import path_formula, small_world

Pairs = list[tuple[int, int]]

WALK, CRAWL = 0, 1
LEDGE = monitor.MDP.from_transitions(
    states=4,
    actions=2,
    labels={"home": [2], "safe": [0, 1, 2]},
    transitions=[
        *[(0, WALK, 1, 0.8), (0, WALK, 3, 0.2), (0, CRAWL, 0, 0.5), (0, CRAWL, 1, 0.45), (0, CRAWL, 3, 0.05)],
        *[(1, WALK, 2, 0.8), (1, WALK, 3, 0.2), (1, CRAWL, 1, 0.5), (1, CRAWL, 2, 0.45), (1, CRAWL, 3, 0.05)],
        *[(2, WALK, 2, 1), (2, CRAWL, 2, 1), (3, WALK, 3, 1), (3, CRAWL, 3, 1)],
    ],
)
FELL = [(0, WALK), (1, WALK), (3, WALK)]
POLICIES = {"nominal": [WALK] * 4, "careful": [CRAWL] * 4}
REACH = 'P>=0.6 [ F<=3 "home" ]'


def ask(text: str, path: Pairs = FELL, **options: Any) -> monitor.Verdict:  # noqa: ANN401 - arguments of check
    return monitor.check(text, model=LEDGE, path=path, policies=POLICIES, engine="exact", **options)


def goal_of(text: str) -> Goal:
    goal = monitor.parse(text)
    assert isinstance(goal, Goal)
    return goal


def plan_values(
    text: str, path: Pairs, most: int, model: monitor.MDP = LEDGE, policies: Mapping[str, object] = POLICIES
) -> PlanValues:
    goal = goal_of(text)
    checker = monitor.Checker(model, {name: as_table(table, model) for name, table in policies.items()})
    states, actions = np.array(path).T.copy()  # contiguous, as the monitor passes them: else all is compiled again
    return checker.evaluators.best.of(goal.measure, None).plan_values(Observed(states, actions), most)


def test_one_other_decision_would_have_led_home() -> None:
    found = plan_values(REACH, FELL, 3)
    ledge = 0.13235294117647056 + 0.6176470588235294 * 0.8  # home at once, or still there and home by the next step
    assert (found.unchanged, found.few[0]) == (0.0, 0.0)
    assert found.few[1:] == pytest.approx([ledge] * 3, abs=1e-12)
    assert found.best == pytest.approx(ledge, abs=1e-12)
    assert found.optimal < found.best
    assert found.first == [None, *[FirstChange(level=1, state=1, taken=WALK, proposed=CRAWL)] * 3]


def test_a_plan_changes_as_late_as_it_can_and_nothing_where_nothing_helps() -> None:
    """Once home every decision is as good; after the fall none helps."""
    assert plan_values(REACH, [(0, WALK), (1, WALK), (2, WALK)], 2).first == [None, None, None]
    assert plan_values('P>=0.5 [ F<=2 "home" ]', [(3, WALK), (3, WALK)], 1).first == [None, None]
    safe = plan_values('P>=0.5 [ G<=3 "safe" ]', FELL, 2)
    assert [change and change.level for change in safe.first] == [None, 1, 1]


def test_the_outlook_is_what_the_formulas_answer() -> None:
    for seed in range(40):
        chance = Random(seed)
        world = small_world(chance, stochastic=seed % 2 == 0, length=4)
        body = path_formula(chance)
        pairs = [(state, action) for state, action in world.setting.path if action is not None]
        found = plan_values(f"P>=0.5 [ {body} ]", pairs, 3, world.model, world.policies)
        few = [world.number(f"max[<={k}]@3.P=? [ {body} ]") for k in range(4)]
        assert found.few == pytest.approx(few, abs=1e-12)
        assert found.unchanged == pytest.approx(world.number(f"@3.P=? [ {body} ]"), abs=1e-12)
        assert found.best == pytest.approx(world.number(f"max@3.P=? [ {body} ]"), abs=1e-12)
        assert found.optimal == pytest.approx(world.ask(f"optimal@3.P>=0 [ {body} ]").quantities[0].value, abs=1e-12)


def test_no_policy_is_better_than_best_and_more_changes_are_never_worse() -> None:
    strict = 0
    for seed in range(60):
        chance = Random(1000 + seed)
        world = small_world(chance, stochastic=seed % 3 == 0, length=3)
        body = chance.choice(('F<=3 "a"', 'G<=3 !"b"', '!"b" U<=3 "a"'))
        most, least = (world.number(f"{word}@2.P=? [ {body} ]") for word in ("max", "min"))
        for other in ("nominal", "alt", "third", "alt[1]", "max[1]", "max[<=1]", "max[<=2]", "min[<=3]"):
            assert least - 1e-12 <= world.number(f"{other}@2.P=? [ {body} ]") <= most + 1e-12
        few = [world.number(f"max[<={k}]@2.P=? [ {body} ]") for k in range(5)]
        assert np.all(np.diff(few) >= -1e-12)
        assert few[3] == few[4]  # three decisions are held
        strict += few[0] < few[1] - 1e-12
    assert strict >= 5


def test_best_at_the_last_pair_is_optimal_and_needs_no_hindsight() -> None:
    for change in ("best", "optimal"):
        assert ask(f'{change}@0.P>=0.5 [ G<=2 "safe" ]', [(0, WALK)]).quantities[0].value == pytest.approx(0.9025)


def test_regret_compares_with_the_best_decisions() -> None:
    assert ask(f"regret(best@2, {REACH})").outcome == "regret"
    assert ask(f"regret(optimal@2, {REACH})").outcome == "unavoidable"
    verdict = ask(f"regret(best[<=1]@2, {REACH})", causal_model="any")
    assert (verdict.outcome, verdict.robust, verdict.latest_useful) == ("regret", True, 1)
    assert sorted(verdict.profile) == [0, 1, 2]


def test_delta_optimises_each_of_its_worlds_by_itself() -> None:
    most, least, spread = (ask(f'{world}@2.P=? [ F<=3 "home" ]').value for world in ("max", "min", "delta(max,min)"))
    assert most is not None
    assert least is not None
    assert spread == pytest.approx(most - least, abs=1e-12)


def test_a_trivial_goal_has_its_value_whoever_decides() -> None:
    for causal_model in ("gumbel", "any"):
        verdict = ask("best@2.P>=0.5 [ true ]", causal_model=causal_model)
        assert (verdict.holds, verdict.quantities[0].value) == (True, 1.0)
        assert verdict.bounds == (None if causal_model == "gumbel" else (1.0, 1.0))


def test_actions_with_the_same_row_are_one_option_and_the_observed_one_stays_certain() -> None:
    """Two names of one action: by another mechanism than Gumbel-Max the other might have led elsewhere."""
    twice = monitor.MDP.from_transitions(
        states=2,
        actions=3,
        labels={"good": [1]},
        transitions=[
            (0, 0, 0, 0.5),
            (0, 0, 1, 0.5),
            (0, 1, 0, 0.5),
            (0, 1, 1, 0.5),
            (0, 2, 0, 1),
            *[(1, a, 1, 1) for a in range(3)],
        ],
    )
    assert list(options_of(twice, as_table([0, 0], twice)).alike) == [0, 0, 2, 0, 0, 0]
    about: dict[str, Any] = {"model": twice, "path": [(0, 0), (0, 0)], "policies": {"nominal": [0, 0]}}
    exact = monitor.check('best@1.P>=0.5 [ F=1 "good" ]', **about, causal_model="any")
    assert exact.quantities[0].value == 0.0
    assert exact.bounds == (0.0, 1.0)
    unchanged = monitor.check('best[<=0]@1.P>=0.5 [ F=1 "good" ]', **about, causal_model="any")
    assert unchanged.bounds == (0.0, 0.0)


def test_tables_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "MAX_NUMBERS", 10)
    with pytest.raises(LimitError, match="limit MAX_NUMBERS"):
        ask('best@0.P>=0.5 [ F<=3 "home" ]', [(0, WALK)])


def test_a_pass_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.exact.best.values.MAX_NUMBERS", 10)
    with pytest.raises(LimitError, match="obligations, 1 ways to decide and 4 states"):
        ask('best@0.P>=0.5 [ F<=3 "home" ]', [(0, WALK)])


def test_the_decisions_count_in_the_size_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3 pairs, 1 obligation each, 4 states: 2 x 4 + 3 x 4 numbers of values and states, 3 x 3 of decisions."""
    text = 'best@2.P>=0.5 [ F<=5 "home" ]'
    monkeypatch.setattr("monitor.exact.best.values.MAX_NUMBERS", 29)
    assert ask(text).quantities[0].value is not None
    monkeypatch.setattr("monitor.exact.best.values.MAX_NUMBERS", 28)
    with pytest.raises(LimitError, match="limit MAX_NUMBERS"):
        ask(text)


@pytest.mark.parametrize("causal_model", ["gumbel", "any"])
def test_more_changes_than_decisions_cost_nothing(causal_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ask(f"best[<=3]@2.{REACH}", causal_model=causal_model)
    monkeypatch.setattr("monitor.exact.best.values.MAX_NUMBERS", 2 * 4 * 4 + 3 * 4 + 3 * 3 * 4)
    many = ask(f"best[<=1000000]@2.{REACH}", causal_model=causal_model)
    assert (many.quantities[0].value, many.bounds) == (few.quantities[0].value, few.bounds)


def test_a_long_takeover_is_computed_without_recursion() -> None:
    text = 'P>=0.5 [ G<=5000 "safe" ]'
    long, short = (ask(f"best[{steps}]@0.{text}", [(0, WALK)]).quantities[0].value for steps in (4000, 2))
    assert long == pytest.approx(ask(f"best@0.{text}", [(0, WALK)]).quantities[0].value, abs=1e-12)
    assert short is not None
    assert long is not None
    assert short < long


def test_what_decides_is_not_followed_step_by_step() -> None:
    checker = monitor.Checker(LEDGE, {name: as_table(actions, LEDGE) for name, actions in POLICIES.items()})
    goal = goal_of(f"best@2.{REACH}")
    with pytest.raises(FormulaError, match="best is evaluated backward along a whole path"):
        checker.stepper(goal)


def test_a_stream_that_neither_engine_can_follow_gives_the_reason_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "MAX_NUMBERS", 10)
    checker = monitor.Checker(LEDGE, {name: as_table(actions, LEDGE) for name, actions in POLICIES.items()})
    text = f"best@2.{REACH}"
    with pytest.raises(
        LimitError, match=r"limit MAX_NUMBERS.*; nor by sampling: best decides by exact values"
    ) as refused:
        TableEngines(checker, Sampling()).prepare(
            monitor.parse(text), FormulaSpec(name="best", text=text, engine="auto")
        )
    assert "use engine: exact" not in str(refused.value)


def test_samples_refuse_decisions() -> None:
    with pytest.raises(LimitError, match="best decides by exact values, which samples do not have"):
        monitor.check(f"best@2.{REACH}", model=LEDGE, path=FELL, policies=POLICIES, engine="sampled")


@pytest.mark.parametrize("name", ["best", "max", "min", "optimal"])
def test_no_policy_can_have_the_name_of_a_word(name: str) -> None:
    about: dict[str, Any] = {"model": LEDGE, "path": FELL, "policies": {**POLICIES, name: [CRAWL] * 4}}
    for answer in (monitor.check, derive):
        with pytest.raises(ConfigError, match=f"no policy can be called '{name}'"):
            answer("P=? [ true ]", **about)


def test_a_growing_path_is_answered_as_a_new_one() -> None:
    for text in (f"regret(best@1, {REACH})", f"best[<=1]@-1.{REACH}", 'max[1]@1.P=? [ G<=3 "safe" ]'):
        checker = monitor.Checker(LEDGE, {name: as_table(actions, LEDGE) for name, actions in POLICIES.items()})
        formula = monitor.parse(text)
        incremental = checker.incremental_check(formula, "stable", text, window=5)
        for end in range(1, len(FELL) + 1):
            verdict = incremental.verdict(FELL[:end], 1)
            assert verdict == checker.check(formula, FELL[:end], causal_model="stable", text=text)


def test_preparing_a_formula_makes_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = monitor.Checker(LEDGE, {name: as_table(actions, LEDGE) for name, actions in POLICIES.items()})
    formula = monitor.parse(f"regret(best@2, {REACH})")
    checker.prepare(formula, "any", window=8)
    monkeypatch.setattr(prior, "MAX_NUMBERS", -1)  # no more of them
    assert checker.check(formula, FELL).outcome == "regret"
    with pytest.raises(LimitError, match="limit MAX_NUMBERS"):
        ask(f"regret(best@2, {REACH})")


def test_no_more_measures_are_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.exact.best.catalogue.MAX_MEASURES", 1)
    checker = monitor.Checker(LEDGE, {name: as_table(actions, LEDGE) for name, actions in POLICIES.items()})
    goals = [goal_of(f'max@2.P=? [ F<={steps} "home" ]') for steps in (3, 2)]
    values = [checker.check(goal, FELL).value for goal in goals * 2]
    assert values[:2] == values[2:]
    assert values[0] != values[1]
    known = [weakref.ref(checker.evaluators.best.of(goal.measure)) for goal in goals]
    gc.collect()
    assert [each() is not None for each in known] == [False, True]


def test_on_a_learned_model_the_bands_that_are_missing_are_named() -> None:
    world, text = learned_world(Random(2)), 'best@1.P>=0.5 [ F<=2 "a" ]'
    about: dict[str, Any] = {"model": world.model, "policies": world.policies, "path": world.setting.path}
    verdict = monitor.check(text, **about, causal_model="any")
    assert verdict.bands is not None
    assert verdict.guaranteed is None
    for part in ("no guaranteed band", "no credible band: best is not evaluated", "no support: rows that best uses"):
        assert part in verdict.bands.reason
    second = derive(text, **about, causal_model="any")
    assert second.quantities[0].value == pytest.approx(verdict.quantities[0].value, abs=1e-12)
    assert second.guaranteed is None


def test_the_referee_refuses_more_rows_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.referee.best.BEST_LIMIT", 3)
    with pytest.raises(LimitError, match="at most 3 rows to make decisions"):
        derive(f"best@2.{REACH}", model=LEDGE, path=FELL, policies=POLICIES)
