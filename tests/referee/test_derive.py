"""What the referee says of small worlds computed by hand, what it refuses, and a real alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.errors import ConfigError, FormulaError, LimitError, MonitorError, PathError, PolicyError
from monitor.model import MDP
from monitor.policy.onnx_policy import load_policy
from monitor.referee import derive, unroll
from tests.tiers import slow

ICU = Path(__file__).parents[2] / "policies" / "icu-sepsis"


def walk(*more: tuple[int, int, int, float]) -> MDP:
    """Two states; action 0 stays, action 1 moves on with probability 1/2; trying pays 4, being at the goal 1."""
    return MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(0, 0, 0, 1.0), (0, 1, 0, 0.5), (0, 1, 1, 0.5), (1, 0, 1, 1.0), (1, 1, 1, 1.0)],
        rewards=[(0, 1, 4.0), (1, 0, 1.0), (1, 1, 1.0), *more],
        labels={"goal": [1]},
    )


ABOUT: dict[str, Any] = {"model": walk(), "policies": {"nominal": [0, 0], "bold": [1, 1]}, "path": [(0, 0), (0, 0)]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('@0.P=? [ F<=2 "goal" ]', 0.0),
        ('bold@0.P=? [ F<=2 "goal" ]', 0.75),
        ('bold[1]@0.P=? [ F<=2 "goal" ]', 0.5),
        ('delta(bold,nominal)@1.P=? [ F<=1 "goal" ]', 0.5),
        ("bold@0.R=? [ C<=1 ]", 4.0 + 0.5 * 4.0 + 0.5 * 1.0),
        ('bold@0.P=? [ X bold@0.P>=0.5 [ F<=1 "goal" ] ]', 1.0),
        ('bold@0.P=? [ X (!"goal" & nominal@0.P>=0.5 [ F<=1 "goal" ]) ]', 0.5),
    ],
)
def test_values_by_hand(text: str, value: float) -> None:
    assert derive(text, **ABOUT).value == pytest.approx(value, abs=1e-15)


def test_an_observed_move_is_replayed() -> None:
    verdict = derive('bold@1.P=? [ F<=1 "goal" ]', **(ABOUT | {"path": [(0, 1), (1, 0)]}), causal_model="any")
    assert (verdict.value, verdict.bounds) == (1.0, (1.0, 1.0))


def test_rewards_of_transitions_follow_the_counterfactual_row() -> None:
    """Trying to move on earns 4, succeeding another 2; a replayed step earns just what it earned."""
    about = ABOUT | {"model": walk((0, 1, 1, 2.0))}
    assert derive("bold@0.R=? [ C=0 ]", **about).value == pytest.approx(4.0 + 0.5 * 2.0)
    assert derive("bold@1.R=? [ C=0 ]", **(about | {"path": [(0, 1), (1, 0)]})).value == pytest.approx(6.0)
    assert derive("bold@1.R=? [ C=0 ]", **(about | {"path": [(0, 1), (0, 1)]})).value == pytest.approx(4.0)
    certain = derive("bold@1.R=? [ C=0 ]", **about, causal_model="any")  # staying was certain: it leaves no choice
    assert certain.bounds == pytest.approx((5.0, 5.0))


def test_an_ended_episode_absorbs_from_its_end_on_only() -> None:
    """The last pair, at time 1, is in state 0. Before that state 0 pays as ever, looked back at from beyond as well."""
    about = ABOUT | {"path": [(0, 1), (0, 1)], "terminated": True}
    assert derive("bold@1.R=? [ C<=3 ]", **about).value == pytest.approx(4.0)
    assert derive('bold@1.P=? [ F<=3 "goal" ]', **about).value == 0.0
    assert derive("bold@1.P=? [ F=2 (bold@2.R>=4 [ C=0 ]) ]", **about).value == 1.0
    assert derive("bold@1.P=? [ F=2 (bold@1.R<=0 [ C<=3 ]) ]", **about).value == 1.0


def test_regret_and_its_profile() -> None:
    verdict = derive('regret(bold@1, P>=0.6 [ F<=2 "goal" ])', **ABOUT, causal_model="any")
    assert (verdict.outcome, verdict.method, verdict.latest_useful) == ("regret", "exact", 0)
    assert verdict.profile == {0: (0.0, 0.75), 1: (0.0, 0.75)}
    assert (verdict.effect, verdict.robust) == (0.75, True)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"query": '@0.P=? [ F<=2 "gaol" ]'}, FormulaError, "column 15"),
        ({"query": 'timid@0.P=? [ F<=2 "goal" ]'}, FormulaError, "timid"),
        ({"query": 'model:m@0.P=? [ F<=2 "goal" ]'}, FormulaError, "unknown model"),
        ({"query": 'do(2)@0.P=? [ F<=2 "goal" ]'}, FormulaError, "unknown action"),
        ({"query": "@0.P=? [ F "}, FormulaError, "bounded"),
        ({"path": [(1, 0), (0, 0)]}, PathError, "probability 0"),
        ({"path": [(0, 0), (1, 0)]}, PathError, "probability 0"),
        ({"path": []}, PathError, "empty"),
        ({"path": [(0, None), (0, 0)]}, PathError, "only the last"),
        ({"path": [(2, 0)]}, PathError, "outside"),
        ({"path": [(0, 2)]}, PathError, "unavailable"),
        ({"path": ["ab"]}, PathError, "must contain pairs"),
        ({"policies": {"bold": [1, 1]}}, ConfigError, "nominal"),
        ({"policies": {"nominal": [1]}}, PolicyError, "2 states"),
        ({"causal_model": "all"}, ConfigError, "all"),
        (
            {"models": {"m": MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])}},
            ConfigError,
            "'m'",
        ),
        ({"query": 'bold[20000]@0.P=? [ F<=2 "goal" ]'}, LimitError, "takeover"),
    ],
)
def test_what_is_wrong_is_refused(change: dict[str, Any], error: type[MonitorError], words: str) -> None:
    with pytest.raises(error, match=words):
        derive(**({"query": '@0.P=? [ F<=2 "goal" ]'} | ABOUT | change))


def test_another_model_must_have_every_action() -> None:
    lacking = MDP.from_transitions(states=2, actions=2, transitions=[(0, 0, 0, 1.0), (1, 0, 1, 1.0), (1, 1, 1, 1.0)])
    with pytest.raises(ConfigError, match="lacks action 1 in state 0"):
        derive("true", **ABOUT, models={"m": lacking})


def test_a_query_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unroll, "LIMIT", 50)
    assert derive('bold@0.P=? [ F<=20 "goal" ]', **ABOUT).value == pytest.approx(1 - 0.5**20)
    with pytest.raises(LimitError, match="at most 50 rows"):
        derive('bold@0.P=? [ F<=100 "goal" ]', **ABOUT)


@slow
def test_the_demo_s_alarm_is_judged_as_by_the_engine() -> None:
    """716 states, 25 actions, a stochastic fallback."""
    model = monitor.load_model(ICU / "model.npz")
    files = {"nominal": "deployed", "fallback": "clinicians"}
    policies = {name: load_policy(ICU / f"{file}.yaml", model).table for name, file in files.items()}
    path = [(56, 0), (148, 0), (657, 0), (657, 0), (170, 5), (170, 5)]
    about: dict[str, Any] = {"model": model, "path": path, "policies": policies, "causal_model": "any"}
    text = 'regret(fallback@2, P>=0.75 [ G<=20 !"death" ])'
    verdict, engine = derive(text, **about), monitor.check(text, **about)
    assert verdict.outcome == engine.outcome
    assert verdict.effect_bounds == pytest.approx(engine.effect_bounds, abs=1e-9)
    assert [quantity.value for quantity in verdict.quantities] == pytest.approx(
        [quantity.value for quantity in engine.quantities], abs=1e-9
    )
