"""Verdicts from samples against exact ones, and what is said where samples do not do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import monitor
from monitor.errors import ConfigError, LimitError
from monitor.evaluation import SampledChecker, alone, check
from monitor.exact import (
    Checker,
    history,
    tables,
    value_table,
)
from monitor.logic import parse
from monitor.logic.syntax import Probability
from monitor.model import MDP
from monitor.sampled import Enumerated
from monitor.types import Drawn, Engine, Sampling, Verdict
from tests.evaluation.road import PATH, POLICIES, ROAD
from tests.sampled.worlds import FALSE_ALARM, goal, model_of, width
from tests.tiers import examples, heavy, scaled

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference" / "cases.json").read_text())
APART = 0.1
"""How far the bounds asked about lie from the true value, as a part of the range: twice the indifference below."""

ABOUT: dict[str, Any] = {"model": ROAD, "path": PATH, "policies": POLICIES}
HOME = 'bold@2.P>=0.7 [ F<=3 "home" ]'  # 0.8457 exactly


def ask(text: str, engine: Engine = "sampled", **more: Any) -> Verdict:  # noqa: ANN401 - arguments of check
    return monitor.check(text, engine=engine, **(ABOUT | more))


def reference(kinds: str) -> Iterator[tuple[SampledChecker, list[tuple[int, int]], str, float, float, int]]:
    """Checker, path, text with `=?`, value, width of the range, number of every reference question of these kinds."""
    for n, case in enumerate(CASES):
        model = model_of(case)
        checker = SampledChecker(Enumerated(Checker(model, tables(case["policies"], model)).evaluators), model)
        path = [(state, action) for state, action in case["path"]]
        for m, query in enumerate(case["queries"]):
            if "value" in query:
                asked = goal(query["formula"])
                kind = "delta" if asked.world.baseline else "P" if isinstance(asked.measure, Probability) else "R"
                if kind in kinds:
                    yield checker, path, query["formula"], query["value"], width(asked, model.rewards), 1000 * n + m


def bounded(kinds: str) -> Iterator[tuple[SampledChecker, list[tuple[int, int]], str, bool, int]]:
    """The reference questions with a bound on either side of the value, so that the answer is known."""
    for checker, path, text, value, span, number in reference(kinds):
        holds = Random(number).random() < 0.5
        theta = round(value - APART * span if holds else value + APART * span, 9)
        lowest = -1.0 if text.startswith("delta") else 0.0
        if "R=?" in text.split("[")[0] or lowest <= theta <= 1.0:
            yield checker, path, text.replace("=?", f">={theta!r}", 1), holds, number


@heavy
@scaled
@pytest.mark.parametrize("test", [0, 1])
def test_every_reference_query_with_a_bound_away_from_its_value(test: int) -> None:
    """Alone (Wald's test for P, bets with a region for the others) and on a stream, all are as strong as they say."""
    asked = list(bounded("P R delta"))
    assert len(asked) > 300
    asked = asked[:: examples(7, 1)]
    each = FALSE_ALARM / len(asked)
    settings = Sampling(delta=APART / 2)
    for checker, path, text, holds, number in asked:
        drawn = Drawn(settings, seed=number, first=0, alpha=each, beta=each, test=test)
        verdict = checker.verdict(parse(text), path, drawn, text=text)
        assert verdict.holds is holds, (text, verdict)
        assert verdict.method == "sampled"


@pytest.mark.parametrize("text", ["bold@2.R<=-1 [ C[0,3] ]", 'delta(bold,nominal)@2.P>=0.5 [ F<=3 "home" ]'])
def test_the_papers_test_can_be_chosen_by_name(text: str) -> None:
    betting, paper = ask(text), ask(text, sampling=Sampling(test="paper"))
    assert betting.holds == paper.holds == ask(text, "exact").holds
    assert betting.quantities[0].samples != paper.quantities[0].samples


@heavy
@scaled
def test_the_t_test_is_seldom_wrong_on_the_reference_queries() -> None:
    """Its rates are nominal where samples are not normal; at .05 each it was wrong in none of 823."""
    asked = list(bounded("R delta"))[:: examples(7, 1)]
    wrong = 0
    for checker, path, text, holds, number in asked:
        drawn = alone(Sampling(seed=number, alpha=0.01, beta=0.01, test="paper"))
        wrong += checker.verdict(parse(text), path, drawn, text=text).holds is not holds
    assert wrong <= 0.02 * len(asked)


@heavy
@scaled
@pytest.mark.parametrize("test", [0, 1])
def test_every_reference_value_lies_in_the_interval_reported(test: int) -> None:
    asked = list(reference("P R delta"))
    assert len(asked) == 1440
    settings = Sampling(error=0.1, error_alpha=FALSE_ALARM / len(asked))
    for checker, path, text, value, span, number in asked[:: examples(11, 1 + 2 * test)]:
        drawn = Drawn(settings, seed=number, first=0, alpha=0.01, beta=0.01, test=test)
        verdict = checker.verdict(parse(text), path, drawn, text=text)
        assert verdict.bounds is not None
        assert verdict.bounds[0] - 1e-9 <= value <= verdict.bounds[1] + 1e-9, (text, verdict)
        assert verdict.bounds[1] - verdict.bounds[0] <= 0.2 * span * (1 + 1e-9)
        assert verdict.value == verdict.quantities[0].value


@pytest.mark.parametrize(
    "text",
    [
        HOME,
        'bold@2.P<0.7 [ F<=3 "home" ]',
        'bold@2.P<=0.9 [ F<=3 "home" ]',
        "bold@2.R>=-1 [ C[0,3] ]",
        "bold@2.R<0 [ C[0,3] ]",
        'delta(bold,nominal)@2.P>=0.5 [ F<=3 "home" ]',
        'delta(bold,bold)@2.P>=0 [ F<=3 "home" ]',
        'delta(bold,bold)@2.P>0 [ F<=3 "home" ]',
        'regret(bold@2, P>=0.7 [ F<=3 "home" ])',
        'regret(bold@2, P>=0.95 [ F<=3 "home" ])',
        'regret(bold@2, P<0.7 [ F<=3 "home" ])',
        f'"home" | !({HOME})',
        f'!"lost" & ({HOME}) & P<=0.1 [ F<=3 "home" ]',
        "true",
        '"lost"',
        'P>=0 [ F<=3 "home" ]',
        'P>1 [ F<=3 "home" ]',
        'bold@2.P>=1 [ F<=3 "home" ]',
        'bold@2.P>0 [ F<=3 "home" ]',
        "R>=5 [ C[0,3] ]",
    ],
)
def test_every_kind_of_formula_comes_out_as_it_does_exactly(text: str) -> None:
    exact, sampled = ask(text, "exact"), ask(text)
    assert (sampled.holds, sampled.outcome) == (exact.holds, exact.outcome)
    assert (sampled.offset, sampled.clipped, sampled.formula) == (exact.offset, exact.clipped, exact.formula)
    assert [q.holds for q in sampled.quantities] == [q.holds for q in exact.quantities]
    assert [q.threshold for q in sampled.quantities] == [q.threshold for q in exact.quantities]
    for quantity, true in zip(sampled.quantities, exact.quantities, strict=True):
        assert quantity.samples > 0
        assert quantity.bounds is not None
        assert quantity.confidence == pytest.approx(0.95)
        assert quantity.bounds[0] <= true.value <= quantity.bounds[1]


def test_the_strength_is_divided_among_the_parts() -> None:
    alone_, both = ask(HOME), ask(f'({HOME}) & (bold@1.P>=0.6 [ F<=2 "home" ])')
    assert both.drawn == alone_.drawn
    assert both.quantities[0].samples == alone_.quantities[0].samples  # to say true costs beta, which is not divided
    wrong = 'bold@2.P>=0.88 [ F<=3 "home" ]'  # near enough to take more than the draws of a published mean
    assert ask(f"({wrong}) & ({HOME})").quantities[0].samples > ask(wrong).quantities[0].samples


def test_the_effect_of_regret_and_its_interval() -> None:
    verdict, exact = (
        ask('regret(bold@2, P>=0.7 [ F<=3 "home" ])'),
        ask('regret(bold@2, P>=0.7 [ F<=3 "home" ])', "exact"),
    )
    assert verdict.effect == verdict.quantities[1].value - verdict.quantities[0].value
    assert exact.effect is not None
    assert verdict.effect_bounds is not None
    assert verdict.effect_bounds[0] <= exact.effect <= verdict.effect_bounds[1]


@pytest.mark.parametrize("test", [0, 1])
def test_rounding_moves_no_value_out_of_its_range(test: int) -> None:
    """Six steps of 0.7 sum to 4.2, one after the other to a little more."""
    model = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], rewards=[(0, 0, 0.7)])
    drawn = Drawn(Sampling(), seed=0, first=0, alpha=0.01, beta=0.01, test=test)
    assert np.cumsum([0.7] * 6)[-1] > 6 * 0.7
    for text in ("R=? [ C[0,5] ]", "R>=4 [ C[0,5] ]"):
        verdict = check(text, model=model, path=[(0, 0)], policies={"nominal": [0]}, engine="sampled", drawn=drawn)
        (quantity,) = verdict.quantities
        assert quantity.bounds is not None
        assert quantity.bounds[1] <= 6 * 0.7
        assert quantity.value == 6 * 0.7


@pytest.mark.parametrize("text", ['bold@2.P>=0.8456 [ F<=3 "home" ]', 'regret(bold@2, P>=0.8456 [ F<=3 "home" ])'])
def test_too_near_the_bound_it_is_undecided_within_the_limit(text: str) -> None:
    verdict = ask(text, sampling=Sampling(limit=300, delta=0.001))
    assert verdict.holds is None
    assert verdict.outcome == ("undecided" if "regret" in text else None)
    assert verdict.quantities[-1].samples == 300
    assert verdict.quantities[-1].holds is None
    assert "open after 300 samples (sampling.limit)" in verdict.reason


def test_a_limit_below_what_the_error_needs_leaves_a_wider_interval_and_says_so() -> None:
    verdict = ask('bold@2.P=? [ F<=3 "home" ]', sampling=Sampling(limit=300))
    assert verdict.quantities[0].samples == 300
    assert "300 samples (sampling.limit) leave a wider interval" in verdict.reason
    assert ask('bold@2.P=? [ F<=3 "home" ]').reason == ""


def test_the_same_seed_gives_the_same_verdict_and_another_one_another_sample() -> None:
    text = 'bold@2.P=? [ F<=3 "home" ]'
    assert ask(text) == ask(text)
    assert ask(text).value != ask(text, sampling=Sampling(seed=1)).value


def test_auto_is_exact_where_that_fits_and_says_why_where_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(HOME, "auto") == ask(HOME, "exact")
    monkeypatch.setattr(value_table, "MAX_TABLE_NUMBERS", 0)
    monkeypatch.setattr(value_table, "numbers", lambda _: 0)
    with pytest.raises(LimitError) as refusal:
        ask(HOME, "exact")
    verdict = ask(HOME, "auto")
    assert (verdict.method, verdict.holds) == ("sampled", True)
    assert verdict.reason == f"sampled, because the exact engine refused: {refusal.value}"
    with pytest.raises(LimitError, match="Gumbel-Max"):
        ask(HOME, "auto", causal_model="any")


@pytest.mark.parametrize("causal_model", ["any", "stable"])
def test_sampling_bounds_over_no_other_causal_models(causal_model: str) -> None:
    with pytest.raises(ConfigError, match=f"'{causal_model}': sampling draws from the Gumbel-Max causal model alone"):
        ask(HOME, causal_model=causal_model)


def test_unknown_engine() -> None:
    with pytest.raises(ConfigError, match="engine 'fast' does not exist; use auto, exact, sampled"):
        ask(HOME, "fast")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": -1}, "sampling.seed"),
        ({"alpha": 0.0}, "sampling.alpha must lie strictly between 0 and 1"),
        ({"beta": 1.0}, "sampling.beta"),
        ({"alpha": 0.6, "beta": 0.5}, "sum to less than 1"),
        ({"delta": float("nan")}, "sampling.delta"),
        ({"deviation": 0.0}, "sampling.deviation counts standard deviations"),
        ({"error": -0.1}, "sampling.error"),
        ({"error_alpha": 2.0}, "sampling.error_alpha"),
        ({"limit": 0}, "sampling.limit"),
        ({"rewards": (1.0, 0.0)}, "sampling.rewards"),
        ({"test": "t"}, "sampling.test 't' does not exist; use betting or paper"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ask(HOME, sampling=replace(Sampling(), **change))


def test_a_query_refused_by_both_engines_has_the_exact_engines_reason_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "MAX_HISTORIES", 0)
    model = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (1, 0, 1, 1.0)], labels={"end": [1]}
    )
    text = 'P=? [ F<=3 (nominal@1.P>0.5 [ F<=2 "end" ]) ]'
    with pytest.raises(LimitError, match=r"MAX_HISTORIES.*; nor by sampling: .*looks back"):
        check(text, model=model, path=[(0, 0), (0, 0)], policies={"nominal": [0, 0]})
