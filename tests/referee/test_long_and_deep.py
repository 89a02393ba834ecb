"""Long horizons and deep formulas: the referee answers them by loops, or there is a bound that says so."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import monitor
from monitor.logic import parse, print_formula
from monitor.logic.parser import MAX_DEPTH
from monitor.referee import derive
from monitor.types import Recourse, Verdict
from tests.exact.best.test_decision_rules import FELL, LEDGE, POLICIES
from tests.exact.learned import learned_world
from tests.tiers import first

FRAMES = 700
"""Of Python's 1,000: a test, and the sidecar, begin some hundred frames deep."""
HORIZONS = first(1, [200, 2000])
ABOUT: dict[str, Any] = {"model": LEDGE, "path": FELL, "policies": POLICIES}


@contextmanager
def a_small_stack() -> Iterator[None]:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def home_from_the_ledge(steps: int) -> float:
    """The best chance to be home: walk at once, or crawl until the last step."""
    value = 0.0
    for _ in range(steps):
        value = max(0.8, 0.45 + 0.5 * value)
    return value


def second(text: str, **options: Any) -> Verdict:  # noqa: ANN401 - arguments of derive
    with a_small_stack():
        return derive(text, **ABOUT, **options)


def same(one: Verdict, other: Verdict) -> None:
    assert [each.value for each in one.quantities] == pytest.approx(
        [each.value for each in other.quantities], abs=1e-12
    )
    assert one.bounds == pytest.approx(other.bounds, abs=1e-12)
    assert one.profile.keys() == other.profile.keys()
    for offset, values in one.profile.items():
        assert values == pytest.approx(other.profile[offset], abs=1e-12)
    assert (one.outcome, one.robust, one.latest_useful) == (other.outcome, other.robust, other.latest_useful)


@pytest.mark.parametrize("horizon", HORIZONS)
def test_a_missed_goal_is_examined_over_any_horizon(horizon: int) -> None:
    text = f'regret(careful@2, P>=0.65 [ F<={horizon} "home" ])'
    judged, checked = second(text, causal_model="any"), monitor.check(text, **ABOUT, causal_model="any")
    same(judged, checked)
    found, known = judged.recourse, checked.recourse
    assert found is not None
    assert known is not None
    assert (found.avoidable, found.robust, found.changes) == (known.avoidable, known.robust, known.changes)
    # on the ledge, which it fell from, crawl: home with .132, still there with .618
    ledge = 0.13235294117647056 + 0.6176470588235294 * home_from_the_ledge(horizon - 2)
    assert found.best == pytest.approx(ledge, abs=1e-12)
    assert known.best == pytest.approx(ledge, abs=1e-12)
    assert found.optimal == pytest.approx(known.optimal, abs=1e-12)


@pytest.mark.parametrize("horizon", HORIZONS)
def test_decisions_are_made_over_any_horizon(horizon: int) -> None:
    for change in ("best", "best[<=2]", f"best[{horizon - 1}]", "optimal"):
        text = f'regret({change}@2, P>=0.65 [ F<={horizon} "home" ])'
        same(second(text, causal_model="stable"), monitor.check(text, **ABOUT, causal_model="stable"))


@pytest.mark.parametrize("horizon", HORIZONS)
def test_a_learned_model_may_lead_elsewhere_over_any_horizon(horizon: int) -> None:
    world = learned_world(Random(2))
    about: dict[str, Any] = {"model": world.model, "policies": world.policies, "path": world.setting.path}
    text = f'P>=0.5 [ G<={horizon} ("a" | F<=1 "b") ]'
    with a_small_stack():
        judged = derive(text, **about, causal_model="any")
    checked = monitor.check(text, **about, causal_model="any", bands=None)
    assert judged.guaranteed is not None
    assert judged.guaranteed == pytest.approx(checked.guaranteed, abs=1e-9)


def nested(wrap: str, core: str, depth: int) -> str:
    return wrap.replace("?", nested(wrap, core, depth - 1)) if depth else core


def inside(wrap: str, depth: int) -> str:
    return "P>=0.5 [ " + nested(wrap, '"home"', depth) + " ]"


DEEP: dict[str, Callable[[int], str]] = {
    "negations": lambda depth: inside("!?", depth),
    "conjunctions": lambda depth: inside('("safe" & ?)', depth),
    "next": lambda depth: inside("X ?", depth),
    "until, left": lambda depth: inside('(?) U<=1 "home"', depth),
    "release, left": lambda depth: inside('(?) R<=1 "safe"', depth // 3),
    "outside all brackets": lambda depth: nested('"safe" & (!(?))', 'P>=0.5 [ "home" ]', depth // 2),
    "nested quantities": lambda depth: nested("P>=0.5 [ F<=1 ? ]", '"home"', depth // 2),
}


@pytest.mark.parametrize("kind", DEEP)
def test_the_deepest_formulas_that_are_read_fit_the_stack(kind: str) -> None:
    monitor.check(DEEP[kind](2), **ABOUT, causal_model="any")  # compiles
    text = next(text for depth in range(MAX_DEPTH + 1, 0, -1) if accepted(text := DEEP[kind](depth)))
    assert not accepted(DEEP[kind](3 * MAX_DEPTH))
    with a_small_stack():
        assert print_formula(parse(print_formula(parse(text)))) == print_formula(parse(text))
        same(derive(text, **ABOUT, causal_model="any"), monitor.check(text, **ABOUT, causal_model="any"))


def accepted(text: str) -> bool:
    try:
        parse(text)
    except monitor.FormulaError as error:
        return f"nested deeper than {MAX_DEPTH}" not in str(error)
    return True


def test_what_is_too_large_for_recourse_leaves_the_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'regret(careful@2, P>=0.65 [ F<=20 "home" ])'
    monkeypatch.setattr("monitor.referee.best.BEST_LIMIT", 10)
    judged = second(text, causal_model="any")
    assert judged.recourse == Recourse(reason="too large for the referee")
    same(judged, monitor.check(text, **ABOUT, causal_model="any"))
