"""`monitor.check` on models that are never enumerated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

import monitor
from monitor.errors import ConfigError, FormulaError, ModelError, PathError, PolicyError
from monitor.model import MDP
from monitor.sampled import NumberedSimulator
from monitor.types import Drawn, Sampling, Verdict

Ints = npt.NDArray[np.int64]
LEFT, RIGHT = 0, 1
FAR = 1 << 40
"""Where the line begins: no table has so many rows."""


class Line:
    """A walker on all whole numbers: goes where it wants with probability .8, else stays. Home is 3 to the right."""

    actions = 2
    labels = ("home", "left")

    def successors(self, state: int, action: int) -> tuple[list[int], list[float]]:
        return [state, state + (1 if action == RIGHT else -1)], [0.2, 0.8]

    def holds(self, label: str, state: int) -> bool:
        return state - FAR == 3 if label == "home" else state < FAR

    def reward(self, state: int, action: int) -> float:
        del state
        return 1.0 if action == RIGHT else 0.0


def left(states: Ints) -> Ints:
    return np.full(len(states), LEFT)


def right(states: Ints) -> Ints:
    return np.full(len(states), RIGHT)


PATH = [(FAR, LEFT), (FAR - 1, LEFT), (FAR - 2, LEFT)]
POLICIES = {"nominal": left, "right": right}


def ask(text: str, **more: Any) -> Verdict:  # noqa: ANN401 - arguments of check
    about: dict[str, Any] = {"model": Line(), "path": PATH, "policies": POLICIES}
    return monitor.check(text, **(about | more))


def enumerated(text: str, **more: Any) -> Verdict:  # noqa: ANN401 - likewise
    """The same on a stretch of the line long enough, state 10 being FAR."""
    line, states = Line(), range(21)
    transitions = [
        (s, a, min(max(t - FAR + 10, 0), 20), p)
        for s in states
        for a in (LEFT, RIGHT)
        for t, p in zip(*line.successors(FAR - 10 + s, a), strict=True)
    ]
    model = MDP.from_transitions(
        states=21,
        actions=2,
        transitions=transitions,
        labels={"home": [13], "left": range(10)},
        rewards=[(s, RIGHT, 1.0) for s in states],
    )
    path = [(s - FAR + 10, a) for s, a in PATH]
    return monitor.check(text, model=model, path=path, policies={"nominal": [LEFT] * 21, "right": [RIGHT] * 21}, **more)


@pytest.mark.parametrize(
    "text",
    [
        'right@2.P>=0.5 [ F<=5 "home" ]',
        'right@2.P>=0.99 [ F<=5 "home" ]',
        'regret(right@2, P>=0.6 [ F<=5 "home" ])',
        "right@2.R>=3 [ C[0,5] ]",
        'delta(right,nominal)@2.P>0.2 [ F<=5 "home" ]',
        '"left" & !(P>0.5 [ F<=5 "home" ])',
    ],
)
def test_verdicts_equal_those_of_the_enumerated_model(text: str) -> None:
    exact = enumerated(text)
    for sampling in (Sampling(rewards=(0.0, 1.0)), Sampling(test="paper")):
        verdict = ask(text, sampling=sampling)
        assert verdict.method == "sampled"
        assert verdict.reason == "sampled, for a simulated model cannot be enumerated"
        assert (verdict.holds, verdict.outcome) == (exact.holds, exact.outcome)
        assert ask(text, engine="sampled", sampling=sampling).reason == ""


@pytest.mark.parametrize("text", ["right@2.R>=3 [ C[0,5] ]", "delta(right,nominal)@2.R>0 [ C[0,5] ]"])
def test_a_reward_is_tested_if_its_range_is_known_or_by_the_papers_test(text: str) -> None:
    with pytest.raises(ConfigError, match=r"R>.*: betting needs .* as sampling\.rewards, or .* sampling\.test 'paper'"):
        ask(text)
    assert ask(text, sampling=Sampling(rewards=(0.0, 1.0))).holds is True
    assert ask(text, sampling=Sampling(test="paper")).holds is True


def test_a_reward_is_estimated_if_its_range_is_known() -> None:
    text = "right@2.R=? [ C[0,5] ]"
    with pytest.raises(ConfigError, match=r"R=\? \[ C<=5 \]: .*sampling\.rewards"):
        ask(text)
    verdict, exact = ask(text, sampling=Sampling(rewards=(0.0, 1.0))), enumerated(text)
    assert verdict.bounds is not None
    assert exact.value is not None
    assert verdict.bounds[0] - 1e-9 <= exact.value <= verdict.bounds[1] + 1e-9


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"engine": "exact"}, ConfigError, "a simulator cannot be answered exactly"),
        ({"causal_model": "any"}, ConfigError, "Gumbel-Max"),
        ({"path": []}, PathError, "the path is empty"),
        ({"path": [(FAR, 2)]}, PathError, r"pair 0: action 2 is outside 0\.\.1"),
        ({"path": [(FAR, None), (FAR, LEFT)]}, PathError, "only the last pair may lack its action"),
        ({"path": [(FAR, LEFT), (FAR + 1, LEFT)]}, PathError, "pair 0: the model gives .* probability 0"),
        ({"policies": {"nominal": [0, 0], "right": right}}, PolicyError, "policy 'nominal' is a list"),
        ({"policies": {"right": right}}, ConfigError, "no policy is called 'nominal'"),
        ({"policies": {"nominal": left}}, FormulaError, "unknown policy 'right'"),
    ],
)
def test_unsupported_queries_are_refused(more: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ask('right@2.P>=0.5 [ F<=5 "home" ]', **more)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('!("nowhere" | "left")', "unknown label 'nowhere'; there is home, left"),
        ('P>=0.5 [ F<=2 "nowhere" ]', "unknown label 'nowhere'"),
        ("model:icy@1.P>=0.5 [ true ]", "unknown model 'icy'"),
        ("do(7)@1.P>=0.5 [ true ]", "unknown action '7'"),
        ('P>=0.5 [ F<=2 P>=0.5 [ X "home" ] ]', "nested in a path"),
    ],
)
def test_names_a_simulator_does_not_have(text: str, says: str) -> None:
    with pytest.raises(FormulaError, match=says):
        ask(text)


def test_models_of_two_kinds_do_not_mix() -> None:
    small = MDP.from_transitions(states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 1.0)])
    with pytest.raises(ConfigError, match="model 'other' is enumerated and the main model is not"):
        ask('model:other@2.P>=0.5 [ F<=5 "home" ]', models={"other": small})
    with pytest.raises(ConfigError, match="give each as an MDP"):
        monitor.check("true", model=small, path=[(0, 0)], policies={"nominal": [0]}, models={"other": Line()})


class Paid(Line):
    """Brings the same at each step."""

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def reward(self, state: int, action: int) -> float:
        del state, action
        return self.gain


@pytest.mark.parametrize(
    "text", ["R=? [ C<=4 ]", "R>=3 [ C<=4 ]", "R>=-1 [ C<=4 ]", "delta(right,nominal)@1.R=? [ C<=4 ]"]
)
def test_rewards_outside_the_stated_range_give_no_value(text: str) -> None:
    told = Sampling(rewards=(0.0, 1.0))
    if "delta" not in text:
        for gain in (5.0, -1000.0):
            with pytest.raises(ConfigError, match=r"outside \[0, 5\]; sampling\.rewards must hold the smallest"):
                ask(text, model=Paid(gain), sampling=told)
    for gain in (float("nan"), *([] if "delta" in text else [float("inf")])):
        with pytest.raises(ModelError, match="must be a finite number"):
            ask(text, model=Paid(gain), sampling=told)


def test_rewards_stated_to_be_zero_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"samples are 5 to 5, outside \[0, 0\]"):
        ask("R=? [ C<=4 ]", model=Paid(1.0), sampling=Sampling(rewards=(0.0, 0.0)))


class Words:
    """States that are words."""

    actions = 1
    labels = ("long",)

    def successors(self, state: str, action: int) -> tuple[list[str], list[float]]:
        del action
        return [state, state + "a"], [0.5, 0.5]

    def holds(self, label: str, state: str) -> bool:
        del label
        return len(state) > 2

    def reward(self, state: str, action: int) -> float:
        del state, action
        return 0.0


def test_a_number_that_no_state_has_is_named() -> None:
    words, policies = NumberedSimulator(Words()), {"nominal": left}
    monitor.check('P>=0.1 [ F<=4 "long" ]', model=words, path=[(words.number("a"), 0)], policies=policies)
    with pytest.raises(ModelError, match="no state met so far has the number 3"):
        monitor.check('P>=0.1 [ F<=4 "long" ]', model=words, path=[(3, 0)], policies=policies)


@pytest.mark.parametrize(("seed", "first"), [(-1, 0), (1 << 53, 0), (0, -1)])
def test_what_no_verdict_was_drawn_with_is_refused(seed: int, first: int) -> None:
    with pytest.raises(ConfigError, match="which no verdict was drawn with"):
        ask('P>=0.5 [ F<=5 "home" ]', drawn=Drawn(Sampling(), seed, first, 0.01, 0.01))


@pytest.mark.parametrize("name", ["alpha", "beta", "delta", "error", "error_alpha", "deviation"])
def test_settings_so_small_that_numbers_end_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"sampling.{name}.*1e-30"):
        ask('P>=0.5 [ F<=5 "home" ]', sampling=msgspec.structs.replace(Sampling(), **{name: 1e-200}))
    smallest = msgspec.structs.replace(Sampling(limit=300), **{name: 1e-30})
    for text in ('P>=0.5 [ F<=5 "home" ]', 'P=? [ F<=5 "home" ]', 'delta(right,nominal)@2.P>0.2 [ F<=5 "home" ]'):
        assert ask(text, sampling=smallest).quantities[0].samples <= 300


class Deciding:
    """A policy that is no function."""

    def __init__(self, function: Callable[[Ints], Any]) -> None:
        self.decide = function


@pytest.mark.parametrize("kind", [lambda function: function, Deciding], ids=["function", "object"])
@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (lambda _: [0, 0, 0, 0, 0, 0, 0], r"gives \(7,\) of int64, not"),
        (lambda states: np.full(len(states), 0.7), r"of float64, not"),
        (lambda states: np.full((len(states), 3), 1 / 3), r"3\) of float64, not"),
        (lambda states: np.full(len(states), 2), r"gives action 2 in state \d+, outside 0\.\.1"),
        (lambda states: np.full(len(states), -1), "gives action -1"),
        (lambda states: np.full((len(states), 2), np.nan), "no distribution"),
        (lambda states: np.zeros((len(states), 2)), "no distribution"),
        (lambda states: np.tile([0.2, 0.2], (len(states), 1)), "no distribution"),
        (lambda states: np.tile([1.5, -0.5], (len(states), 1)), "no distribution"),
    ],
)
def test_a_policy_that_gives_no_decision_gives_no_number(
    kind: Callable[[Any], Any], policy: Callable[[Ints], Any], says: str
) -> None:
    with pytest.raises(PolicyError, match=f"policy 'right' .*{says}"):
        ask('right@2.P>=0.5 [ F<=5 "home" ]', policies={"nominal": left, "right": kind(policy)})


class Many:
    """The line for many states at once; says of one state what it should say of all."""

    actions = 2
    labels = ("home",)

    def rows(self, states: Ints, actions: Ints) -> tuple[Ints, npt.NDArray[np.float64]]:
        return np.stack([states, states + 2 * actions - 1], axis=1), np.tile([0.2, 0.8], (len(states), 1))

    def holds(self, label: str, states: Ints) -> npt.NDArray[np.bool_]:
        del label
        first: npt.NDArray[np.bool_] = states[:1] == FAR + 3
        return first

    def rewards(self, states: Ints, actions: Ints) -> npt.NDArray[np.float64]:
        del actions
        return np.ones((len(states), 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('right@2.P>=0.5 [ F<=5 "home" ]', r"label 'home': \(1,\) truths for 256 states"),
        ("right@2.R>=3 [ C<=5 ]", r"rewards: \(256, 1\) for 256 pairs"),
    ],
)
def test_a_simulator_that_answers_for_fewer_states_gives_no_number(text: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        ask(text, model=Many(), sampling=Sampling(rewards=(0.0, 1.0)))
