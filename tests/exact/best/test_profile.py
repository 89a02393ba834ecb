"""The profile of `regret` against decisions made for the goal: one backward pass for all offsets."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.errors import LimitError
from monitor.exact.best import induction, layouts, values
from monitor.policy import as_table
from monitor.referee import derive
from tests.exact.best.test_decision_rules import CRAWL, FELL, LEDGE, POLICIES, WALK
from tests.exact.small import path_formula, small_world
from tests.tiers import examples

CHANGES = ("best", "best[1]", "best[2]", "best[<=1]", "best[<=2]", "optimal")
LONG = [*[(0, CRAWL)] * 9, (1, WALK), (3, WALK)]


def as_lists(profile: Any) -> list[list[float]]:  # noqa: ANN401 - of a verdict
    return [list(profile[offset]) for offset in sorted(profile)]


@pytest.mark.parametrize("change", CHANGES)
def test_each_offset_has_the_value_it_has_alone(change: str) -> None:
    for seed in range(examples(8, 40)):
        chance = Random(seed)
        ended, unsure = seed % 4 == 1, seed % 3 == 0
        world = small_world(chance, stochastic=unsure, length=4, terminated=ended, open_end=seed % 4 == 2)
        acted = chance.choices(["nominal", "alt"], k=4) if seed % 4 == 3 else ()
        goal = f"P>=0.6 [ {path_formula(chance)} ]" if seed % 5 else "R>=0.5 [ C[1,3] ]"
        together = world.ask(f"regret({change}@3, {goal})", acted=acted)
        alone = [
            [world.ask(f"{each}@{offset}.{goal}", acted=acted).quantities[0].value for each in ("nominal", change)]
            for offset in range(4)
        ]
        assert as_lists(together.profile) == pytest.approx(np.array(alone), abs=1e-12), (seed, goal)
        second = derive(
            f"regret({change}@3, {goal})",
            model=world.model,
            path=world.setting.path,
            policies=world.policies,
            terminated=ended,
            acted=acted,
        )
        assert as_lists(second.profile) == pytest.approx(np.array(alone), abs=1e-12), (seed, goal)


def test_one_backward_pass_finds_all_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []

    def counted(*given: Any) -> int:  # noqa: ANN401 - arguments of induct
        passes.append(len(given[0].held.states))
        return int(induction.induct(*given))

    monkeypatch.setattr(values, "induct", counted)
    about: dict[str, Any] = {"model": LEDGE, "path": LONG, "policies": POLICIES, "recourse": False}
    verdict = monitor.check('regret(best@10, P>=0.6 [ F<=12 "home" ])', **about)
    assert len(verdict.profile) == 11
    assert passes == [11]


def test_a_growing_path_unfolds_each_level_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = monitor.Checker(LEDGE, {name: as_table(actions, LEDGE) for name, actions in POLICIES.items()})
    formula = monitor.parse('regret(best@10, P>=0.6 [ F<=12 "home" ])')
    incremental = checker.incremental_check(formula, window=11)
    found = [incremental.verdict(LONG[:end], 1) for end in range(1, 12)]
    assert [as_lists(verdict.profile) for verdict in found] == [
        as_lists(checker.check(formula, LONG[:end]).profile) for end in range(1, 12)
    ]
    monkeypatch.setattr(layouts, "MAX_SLOTS", 0)  # nothing more is unfolded, for no length
    monkeypatch.setattr(layouts, "MAX_LAYOUTS", 0)
    assert as_lists(incremental.verdict(LONG[:5]).profile) == as_lists(found[4].profile)


def test_what_is_too_large_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = monitor.Checker(LEDGE, {name: as_table(actions, LEDGE) for name, actions in POLICIES.items()})
    checker.prepare(monitor.parse('regret(best@20, P>=0.6 [ F<=30 "home" ])'))
    checker.prepare(monitor.parse('best@1000.P>=0.6 [ F<=3000 "home" ]'))  # one offset: one obligation at each pair
    with pytest.raises(LimitError, match=r"on 1001 pairs would need more than 500,000 obligations.*look back fewer"):
        checker.prepare(monitor.parse('regret(best@1000, P>=0.6 [ F<=3000 "home" ])'))
    monkeypatch.setattr(values, "MAX_PRODUCTS", 1000)
    with pytest.raises(
        LimitError,
        match=r"from each of 31 pairs would need [0-9,]+ multiplications, .* 1 ways to decide and 14 entries",
    ):
        checker.prepare(monitor.parse('regret(best@30, P>=0.6 [ F<=33 "home" ])'))
    for other in ("regret(careful@30, ?)", "best@30.?"):
        checker.prepare(monitor.parse(other.replace("?", 'P>=0.6 [ F<=33 "home" ]')))


def test_the_products_of_a_pass_are_counted() -> None:
    """Three pairs: 1, 2 and 3 obligations if each pair begins one, 1 at each if the first does; 14 entries."""
    best = monitor.Checker(LEDGE, {"nominal": as_table([WALK] * 4, LEDGE)}).evaluators.best
    goal = monitor.parse('best@2.P>=0.6 [ F<=3 "home" ]')
    assert isinstance(goal, monitor.logic.syntax.Goal)
    entries = len(LEDGE.probabilities)
    assert best.products(goal.world.change, goal.measure, len(FELL), each=True) == 6 * entries
    assert best.products(goal.world.change, goal.measure, len(FELL), each=False) == 3 * entries
