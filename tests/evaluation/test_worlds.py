"""`monitor.check` with a world with numbers: what is exact, what is drawn, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.errors import ConfigError, FormulaError, LimitError, PathError, PolicyError
from monitor.types import Sampling, Verdict
from tests.worlds.samples import Linear, NumberLine, Tank, number_rule

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference/dynamics_cases.json").read_text())
REAL = next(case for case in CASES if case["family"] == "real" and case["offset"] > 1 and 0.2 < case["value"] < 0.8)
WHOLE = next(case for case in CASES if case["family"] == "whole" and case["offset"] > 1 and 0.2 < case["value"] < 0.8)
PATH = [([6.0], 0, [1.0]), ([6.9], 0, [1.5]), ([8.3], 0, [1.0]), ([9.2], 0, [0.5])]
POLICIES = {
    "nominal": lambda x: np.zeros(len(x), dtype=int),
    "careful": lambda x: (x[:, 0] > 7.5).astype(int),
    "dice": lambda x: np.full((len(x), 2), 0.5),
}


def ask(text: str, model: Any = Tank, path: Any = PATH, policies: Any = POLICIES, **more: Any) -> Verdict:
    return monitor.check(text, model=model, path=path, policies=policies, **more)


def line(text: str, case: dict[str, Any], **more: Any) -> Verdict:
    policies = {name: number_rule(case, name) for name in ("nominal", "alternative")}
    return ask(text, NumberLine(case), [([x], a) for x, a in case["path"]], policies, **more)


def test_inside_the_window_points_decide_without_a_draw() -> None:
    verdict = ask('regret(careful@3, P>=0.9 [ G<=3 !"overflow" ])')
    assert (verdict.outcome, verdict.method, verdict.tiers) == ("regret", "exact", ("recorded", "point"))
    assert [quantity.value for quantity in verdict.quantities] == [0.0, 1.0]
    assert (verdict.effect, verdict.effect_bounds, verdict.bounds) == (1.0, None, None)
    assert verdict.profile[3] == (0.0, 1.0)
    assert verdict.drawn is not None, "what handing over now gives is drawn"
    assert ask('delta(careful,nominal)@3.P=? [ G<=3 !"overflow" ]').value == 1.0
    assert ask('delta(careful,nominal)@3.P>=0.5 [ G<=3 !"overflow" ] & @1.P<=0 [ "overflow" ]').holds


def test_beyond_the_window_worlds_are_drawn() -> None:
    verdict = ask("careful@3.R=? [ C<=5 ]", sampling=Sampling(rewards=(-10, 10), error=0.2))
    assert (verdict.method, verdict.quantities[0].samples > 0) == ("sampled", True)
    assert verdict.bounds is not None
    assert verdict.drawn is not None
    assert ask("careful@3.R=? [ C<=2 ]").method == "exact"


def test_the_level_under_the_alternative_is_what_the_same_leak_makes_of_it() -> None:
    value = ask("careful@3.R=? [ C<=2 ]").value
    # 6.0 -> 6.9 -> 8.3 by the same steps, as both are shut below 7.5; then 9.2 - 1.5
    assert value == pytest.approx(9.2 - 1.5 - 6.0)


def test_a_mixed_formula_draws_only_what_is_open() -> None:
    verdict = ask('regret(careful@3, P>=0.9 [ G<=6 !"overflow" ])')
    nominal, alternative = verdict.quantities
    assert (nominal.value, nominal.samples, nominal.holds) == (0.0, 0, False)
    assert alternative.samples > 0
    assert verdict.method == "sampled"
    assert verdict.effect_bounds == alternative.bounds
    assert verdict.reason.startswith("sampled, because noise must be drawn")


def test_one_formula_is_drawn_again_by_what_its_verdict_says() -> None:
    first = ask('careful@3.P=? [ G<=6 !"overflow" ]', sampling=Sampling(seed=3))
    assert ask('careful@3.P=? [ G<=6 !"overflow" ]', drawn=first.drawn) == first


def test_forced_sampling_agrees_with_what_is_certain() -> None:
    text = 'delta(careful,nominal)@3.P=? [ G<=3 !"overflow" ]'
    drawn = ask(text, engine="sampled")
    assert (drawn.method, drawn.value) == ("sampled", 1.0)
    with pytest.raises(LimitError, match=r"noise must be drawn, as .*; use engine 'auto'"):
        ask('careful@3.P=? [ G<=6 !"overflow" ]', engine="exact")


def test_intervals_are_drawn_unless_what_happened_happens_again() -> None:
    happened = f'@{WHOLE["offset"]}.P=? [ F={WHOLE["offset"]} "hot" ]'
    verdict = line(happened, WHOLE)
    assert (verdict.method, verdict.tiers) == ("exact", ("interval",))
    assert verdict.value == float(WHOLE["path"][-1][0] >= WHOLE["hot"])
    assert line(f"alternative{happened}", WHOLE).method == "sampled"
    assert line(f"alternative{happened}", REAL).method == "exact"


def test_a_stochastic_policy_is_drawn() -> None:
    verdict = ask('dice@2.P=? [ F=1 "overflow" ]', path=[([8.0], 0, [1.4]), ([9.3], 1, [0.0]), ([7.7], 0, [0.0])])
    assert verdict.method == "sampled"
    assert verdict.value == pytest.approx(0.5, abs=0.04)
    replay = ask('@2.P=? [ F=1 "overflow" ]', path=[([8.0], 0, [1.4]), ([9.3], 1, [0.0]), ([7.7], 0, [0.0])])
    assert (replay.method, replay.value) == ("exact", 1.0)


def test_another_world_has_the_same_noise() -> None:
    class Wet(Tank):
        version = "wet 1"

        def step(self, x: Any, a: Any, u: Any, w: Any) -> Any:
            return super().step(np.minimum(x + 0.5, 10.0), a, u, w)

        def invert(self, x: Any, a: int, x_next: Any, w: Any) -> Any:
            return super().invert(np.minimum(x + 0.5, 10.0), a, x_next, w)

    verdict = ask("model:wet@3.R=? [ C<=0 ]", models={"wet": Wet})
    assert verdict.method == "exact"
    assert verdict.value == pytest.approx(1.4)
    with pytest.raises(ConfigError, match="model 'wet' is no world with numbers"):
        ask("true", models={"wet": 3})
    with pytest.raises(ConfigError, match="model 'wet': its inputs are not those of the main model"):
        ask("true", models={"wet": type("Dry", (Tank,), {"inputs": ("snow",)})})


def test_an_ended_episode_stays() -> None:
    assert ask('@0.P=? [ F<=5 "overflow" ]', terminated=True).value == 1.0
    path = [([6.0], 0, [1.0]), ([6.9], 0, [1.5])]
    assert ask('@0.P=? [ F<=5 "overflow" ]', path=path, terminated=True).value == 0.0
    assert ask("@1.R=? [ C<=5 ]", path=path, terminated=True).value == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ([], "the path is empty"),
        (3, "a path is a list of pairs"),
        ([([6.0], 0, [1.0]), ([6.9, 1.0], 0, [1.5])], 'pair 1: "state" has 2 numbers; the world has 1: level'),
        ([([6.0], 0)], 'pair 0: "inputs" has 0 numbers; the world has 1: rain'),
        ([({"levle": 6.0}, 0, [1.0])], 'pair 0: "state" has levle; the world has level'),
        ([(["full"], 0, [1.0])], "pair 0: \"state\" holds level='full', which is no number; the world has level"),
        ([([11.0], 0, [1.0])], "pair 0: out of range: level=11, outside 0 to 10 m"),
        ([([6.0], 0, [-1.0])], "pair 0: out of range: rain=-1, outside 0 to inf"),
        ([([float("nan")], 0, [1.0])], "pair 0: out of range: level=nan"),
        ([([6.0], 2, [1.0])], r"pair 0: action 2 is outside 0\.\.1"),
        ([([6.0], "ajar", [1.0])], "pair 0: a pair is .state, action."),
        (
            [([[6.0, 7.0]], 0, [1.0])],
            r'"state" holds level=\[6.0, 7.0\], which is no number',
        ),
        ([([10**400], 0, [1.0])], "which is no number"),
        ([(None, 0, [1.0])], 'pair 0: "state" holds level=None, which is no number; the world has level'),
        ([([6.0], None, [1.0]), ([6.9], 0, [1.0])], "pair 0: only the last pair may lack its action"),
        ([([6.0], 0, [1.0]), ([3.0], 0, [1.0])], "pair 0: .*level=3"),
    ],
)
def test_a_path_that_cannot_be_names_the_pair(path: Any, says: str) -> None:
    with pytest.raises(PathError, match=says):
        ask('@0.P=? [ "overflow" ]', path=path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('best@1.P>=0.5 [ F<=2 "overflow" ]', "best decides by exact values"),
        ('P=? [ F<=2 (P>=0.5 [ X "overflow" ]) ]', "is nested in a path"),
        ('P=? [ F<=2 "flood" ]', "unknown label 'flood'; there is overflow"),
        ('"flood"', "unknown label 'flood'"),
        ('bold.P=? [ F<=2 "overflow" ]', "unknown policy 'bold'"),
        ('do(ajar).P=? [ F<=2 "overflow" ]', "unknown action 'ajar'; there is open, shut"),
    ],
)
def test_what_is_not_offered_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(FormulaError, match=says):
        ask(text)


def test_other_refusals() -> None:
    with pytest.raises(ConfigError, match="causal model 'any': a world's own step is its causal model"):
        ask("true", causal_model="any")
    with pytest.raises(PolicyError, match="policy 'nominal' is a list; in a world with numbers a policy is a function"):
        ask("true", policies={"nominal": [0, 1]})
    with pytest.raises(PolicyError, match=r"policy 'nominal' fails .ZeroDivisionError"):
        ask('P=? [ X "overflow" ]', policies={"nominal": lambda x: 1 // 0}, path=[([3.0], None, [1.0])])
    with pytest.raises(PolicyError, match="policy 'nominal' gives action 7"):
        ask('P=? [ X "overflow" ]', policies={"nominal": lambda x: [7] * len(x)}, path=[([3.0], None, [1.0])])
    for text in ("R=? [ C<=0 ]", "regret(alternative@1, R>=1 [ C<=0 ])"):
        with pytest.raises(FormulaError, match=r"has no rewards: add reward\(x, a, x_next\), or to a manifest a graph"):
            line(text, REAL)


def test_a_policy_may_raise_an_error_of_its_own() -> None:
    def strict(_states: Any) -> Any:
        raise PolicyError("policy strict: no action fits")

    with pytest.raises(PolicyError, match="policy strict: no action fits"):
        ask('P=? [ X "overflow" ]', policies={"nominal": strict}, path=[([3.0], None, [1.0])])


def test_labels_outside_all_brackets_are_those_of_now() -> None:
    assert ask('"overflow"').holds
    assert ask('"overflow" & !true').holds is False
    assert ask('"overflow"').method == "exact"


def test_names_of_actions_are_taken_too() -> None:
    path = [(state, Tank.actions[action], inputs) for state, action, inputs in PATH]
    text = 'do(open)@3.P=? [ F<=3 "overflow" ]'
    assert ask(text, path=path) == ask(text)
    assert ask(text).value == 0.0


def test_a_missed_goal_says_that_decisions_were_tried_one_at_a_time() -> None:
    found = ask('regret(careful@3, P>=0.9 [ G<=3 !"overflow" ])').recourse
    assert found is not None
    assert (found.avoidable, found.best, found.optimal) == (None, None, None)
    assert found.reason.startswith("a world with numbers has no table of values, so only one other decision at a time")


def test_a_formula_open_at_the_limit_is_undecided() -> None:
    world = Linear(np.zeros((1, 1)), np.zeros((2, 1)), np.ones(1), np.ones(1), 0.0)
    verdict = ask('P>=0.5 [ X "far" ]', world, [([0.0], 0)], sampling=Sampling(limit=300, delta=1e-3))
    assert verdict.holds is None
    assert "is open after 300 samples (sampling.limit)" in verdict.reason
