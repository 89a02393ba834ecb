"""`handover` in worlds with numbers: against closed forms, plain simulation, the exact engine and the referee."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from monitor import FormulaError, LimitError, Monitor, check
from monitor.alarm.figures import figures_of
from monitor.alarm.message import Identity, identity_of
from monitor.arrays import Floats
from monitor.evaluation.fit_bands import NOT_NESTED
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.picture.numbers import draw_numbers
from monitor.referee.numbers import Given, mean
from monitor.sampled import Sampler
from monitor.sampled.handover import TooLate
from monitor.types import AlarmSpec, Alert, FormulaSpec, Sampling, Verdict
from monitor.worlds import load_world
from tests.evidence.rederived import confirmed, make_evidence
from tests.exact.small import small_world
from tests.tiers import examples, heavy, scaled, slow
from tests.worlds.lives import lived, settings
from tests.worlds.samples import (
    Basin,
    GumbelTable,
    InverseTable,
    Linear,
    NumberLine,
    ResampledTank,
    Tank,
    number_rule,
    state_rule,
)

Policies = dict[str, Callable[[Floats], Any]]
DRIFT, BACK, SPREAD, HIGH = 0.5, -0.6, 0.4, 3.0
LINE = Linear(np.array([[0.9]]), np.array([[DRIFT], [BACK]]), np.array([SPREAD]), np.array([1.0]), HIGH)
POLICIES: Policies = {
    "nominal": lambda x: np.zeros(len(x), dtype=np.int64),
    "careful": lambda x: np.ones(len(x), dtype=np.int64),
}
NORMAL = NormalDist()
NEAR = 0.08
"""So far from its bound a probability is rarely open after 1,024 draws: five of their standard errors."""


def half(x: Floats) -> Floats:
    return np.full((len(x), 2), 0.5)


def ask(text: str, state: float, **more: Any) -> Verdict:
    about: dict[str, Any] = {"model": LINE, "path": [([state], 0)], "policies": POLICIES}
    return check(text, **(about | more))


# ---- closed forms ----


def least_bad(ahead: int, required: float) -> float:
    """The state from which, under `careful`, the line is below HIGH after so many steps with this probability."""
    pushed: float = BACK * sum(0.9**k for k in range(ahead))
    spread: float = SPREAD * sum(0.81**k for k in range(ahead)) ** 0.5
    bound: float = (HIGH - spread * NORMAL.inv_cdf(required) - pushed) / 0.9**ahead
    return bound


def too_late(state: float, steps: int, limit: float) -> float:
    """The probability that nominal goes beyond a limit within one or two steps; 1 if it is there."""
    if state > limit:
        return 1.0

    def beyond(x: float) -> float:
        return 1.0 - NORMAL.cdf((limit - 0.9 * x - DRIFT) / SPREAD)

    if steps == 1:
        return beyond(state)
    middle = 0.9 * state + DRIFT
    later, _ = quad(lambda x: beyond(x) * NORMAL.pdf((x - middle) / SPREAD) / SPREAD, middle - 8 * SPREAD, limit)
    return beyond(state) + float(later)


@heavy
@scaled
def test_a_linear_gaussian_world_has_a_closed_form() -> None:
    rng = np.random.default_rng(3)
    for n in range(examples(3, 40)):
        ahead, steps, required = int(rng.integers(1, 5)), 1 + n % 2, float(rng.uniform(0.3, 0.9))
        limit = least_bad(ahead, required)
        state = limit - float(rng.uniform(0.0, 1.0))
        truth = too_late(state, steps, limit)
        least, most = (too_late(state, steps, least_bad(ahead, required + near)) for near in (-NEAR, NEAR))
        bounds = (truth - 0.25, True, truth - least), (truth + 0.25, False, most - truth)  # the last: draws left open
        text = f'handover(careful, P>={required} [ F={ahead} !"far" ], {steps})'
        estimate = ask(f"{text}", state, sampling=Sampling(seed=n, error=0.08, error_alpha=1e-4))
        assert estimate.bounds is not None
        assert estimate.bounds[0] < truth < estimate.bounds[1]
        for bound, holds, open_ in bounds:
            if 0.0 < bound < 1.0:
                for sign, found in ((">=", holds), ("<", not holds)):
                    tested = ask(f"{text} {sign} {bound}", state, sampling=Sampling(seed=n, alpha=1e-4, beta=1e-4))
                    assert tested.holds is found or (tested.holds is None and open_ > 0.15), (n, truth, tested)


@heavy
def test_the_values_of_now_come_with_it() -> None:
    verdict = ask('handover(careful, P>=0.9 [ F=3 !"far" ], 2) >= 0.2', 2.4)
    spread = SPREAD * (1 + 0.81 + 0.81**2) ** 0.5
    values = [NORMAL.cdf((HIGH - 0.729 * 2.4 - push * 2.71) / spread) for push in (DRIFT, BACK)]
    assert verdict.profile[0] == pytest.approx(values, abs=0.06)
    assert verdict.latest_useful == 0
    advice = figures_of(parse(verdict.formula), verdict).handover
    assert advice is not None
    assert advice.helps_now
    assert "R" not in verdict.tiers


def test_where_it_is_too_late_now_the_value_is_1() -> None:
    verdict = ask('handover(careful, P>=0.9 [ F=3 !"far" ], 4) >= 0.99', 6.5)
    assert (verdict.holds, verdict.latest_useful, verdict.quantities[0].value) == (True, None, 1.0)


@heavy
def test_a_state_at_the_bound_is_open_and_so_is_the_answer() -> None:
    state = least_bad(3, 0.7)
    text = 'handover(careful, P>=0.7 [ F=3 !"far" ], 0)'
    verdict = ask(f"{text} >= 0.5", state, sampling=Sampling(limit=500))
    assert verdict.holds is None
    assert "too near its bound" in verdict.reason
    estimate = ask(f"{text}", state, sampling=Sampling(limit=500))
    assert estimate.bounds is not None
    assert estimate.bounds[0] < 0.01
    assert estimate.bounds[1] > 0.99


@slow
def test_a_test_at_a_state_is_seldom_wrong() -> None:
    """At a state a little on the wrong side of the bound: how many of the draws find the opposite of the truth."""
    state, wrong, draws = least_bad(3, 0.7), 0, 20_000
    checker = WorldChecker(LINE, POLICIES, {})
    for apart, missed in ((1e-6, True), (-1e-6, False)):
        goal = parse('handover(careful, P>=0.7 [ F=3 !"far" ], 0) >= 0.5')
        assert isinstance(goal, Goal)
        question = Sampler(checker.scene, 1).question(goal, checker.path([([state + apart], 0)]))
        assert isinstance(question, TooLate)
        wrong += int((question.most(range(draws)) == 0.0).sum() if missed else question.outcomes(range(draws)).sum())
    assert wrong <= 2 * draws * 1e-3


# ---- plain simulation ----


def simulated(rng: np.random.Generator, level: float, rain: float, steps: int, within: int, required: float) -> float:
    """The fraction of tanks from which opening the valve comes too late, each tank with a thousand tanks of its own."""
    tank, draws, inner = ResampledTank(), 300, 1000

    def followed(levels: Floats, actions: int, rains: Floats) -> Floats:
        moved = levels + rains - 1.5 * actions - 0.2 * rng.uniform(size=len(levels))
        return np.clip(moved, 0.0, 10.0)

    late = np.zeros(draws, dtype=bool)
    levels, series = np.full(draws, level), rng.integers(4, size=draws)
    for k in range(steps + 1):
        now = np.full(draws, rain) if k == 0 else tank.series[series, k - 1]
        for n in np.flatnonzero(~late):
            dry, own, rains = np.full(inner, levels[n]), rng.integers(4, size=inner), np.full(inner, now[n])
            stays = dry < 9.0
            for j in range(within):
                dry = followed(dry, 1, rains)
                stays &= dry < 9.0
                rains = tank.series[own, j]
            late[n] = stays.mean() < required
        levels = followed(levels, 0, now)
    return float(late.mean())


@scaled
def test_with_resampled_inputs_it_is_that_of_a_nested_simulation() -> None:
    """Where the other policy takes over, the inputs after those of that step are drawn anew."""
    rng, seen = np.random.default_rng(5), set()
    for seed in range(examples(3, 20)):
        level, rain = float(rng.uniform(7.3, 8.9)), float(rng.choice([0.1, 0.8]))
        truth = simulated(rng, level, rain, 3, 3, 0.8)
        verdict = check(
            'handover(careful, P>=0.8 [ G<=3 !"overflow" ], 3)',
            model=ResampledTank,
            path=[([level], 0, [rain])],
            policies=POLICIES,
            sampling=Sampling(seed=seed, error=0.08, error_alpha=1e-3),
        )
        assert verdict.bounds is not None
        away = 4.0 * (0.25 / 300) ** 0.5
        assert verdict.bounds[0] - away <= truth <= verdict.bounds[1] + away, (seed, truth, verdict)
        assert verdict.resampled_from == 40
        seen.add(0.05 < truth < 0.95)
    assert True in seen


@scaled
@pytest.mark.parametrize("kind", [GumbelTable, InverseTable])
def test_a_table_as_a_world_agrees_with_the_exact_engine(kind: Any) -> None:
    """No step that happened is conditioned on, so both causal models have the value of the table."""
    between = 0
    for seed in range(examples(10, 300)):
        chance = Random(seed)
        small = small_world(chance, on_policy=True, terminated=seed % 4 == 0)
        required, steps = chance.choice([0.35, 0.55, 0.75]), chance.randrange(4)
        who = chance.choice(["alt", "alt[1]", "do(1)[2]"])
        inner = f'P{chance.choice([">=", "<="])}{required} [ F<={chance.randrange(3)} {chance.choice(["", "!"])}"a" ]'
        text = f"handover({who}, {inner}, {steps})"
        truth = small.ask(text).value
        assert truth is not None
        verdict = check(
            text,
            model=kind(small),
            path=[([state], action) for state, action in small.setting.path][-1:],
            policies={name: state_rule(policy) for name, policy in small.policies.items()},
            terminated=small.setting.terminated,
            sampling=Sampling(seed=seed, error=0.06, error_alpha=1e-4),
        )
        if verdict.method == "exact":
            assert verdict.value == truth
        else:
            assert verdict.bounds is not None
            assert verdict.bounds[0] <= truth <= verdict.bounds[1], (seed, text, truth, verdict.bounds)
        between += 0.0 < truth < 1.0
    assert between > 0


@scaled
def test_a_simulator_without_numbers_agrees_with_the_exact_engine() -> None:
    for seed in range(examples(5, 100)):
        chance = Random(seed)
        small = small_world(chance, on_policy=True)
        text = f'handover(alt, P>={chance.choice([0.35, 0.55, 0.75])} [ F<=2 "a" ], {chance.randrange(4)})'
        sampling = Sampling(seed=seed, error=0.06, error_alpha=1e-4)
        policies = {name: state_rule(policy) for name, policy in small.policies.items()}
        numbers = {name: lambda s, rule=rule: rule(s[:, np.newaxis]) for name, rule in policies.items()}
        path = [(state, action) for state, action in small.setting.path]
        verdict = check(text, model=_Rows(small), path=path, policies=numbers, sampling=sampling)
        truth = small.ask(text).value
        assert truth is not None
        assert verdict.bounds is not None
        assert verdict.bounds[0] <= truth <= verdict.bounds[1], (seed, text, truth, verdict.bounds)


class _Rows:
    """A small MDP, one state at a time."""

    actions, labels = 2, ("a", "b")

    def __init__(self, small: Any) -> None:
        self.setting, self.model = small.setting, small.model

    def successors(self, state: int, action: int) -> Any:
        row = self.setting.rows[state, action]
        return list(row), [float(p) for p in row.values()]

    def holds(self, label: str, state: int) -> bool:
        return state in self.setting.labels[label]

    def reward(self, state: int, action: int) -> float:
        raise NotImplementedError


# ---- without noise of the world ----

STILL = Linear(np.array([[1.0]]), np.array([[1.0], [-1.0]]), np.zeros(1), np.array([1.0]), HIGH)


def test_a_world_without_noise_is_answered_exactly() -> None:
    values = set()
    for state, steps in ((0.0, 1), (0.0, 3), (1.5, 0), (1.5, 1), (2.5, 0), (3.5, 9)):
        verdict = ask(f'handover(careful, P>=1 [ G<=2 !"far" ], {steps})', state, model=STILL)
        states = [state + k for k in range(steps + 1)]
        assert verdict.method == "exact"
        assert verdict.value == float(any(max(x, x - 1, x - 2) >= HIGH for x in states)), (state, steps)
        values.add(verdict.value)
    assert values == {0.0, 1.0}


@heavy
@pytest.mark.parametrize(
    ("usual", "acted", "value"),
    [(half, "nominal", 0.0), (POLICIES["careful"], "careful", 0.0), (POLICIES["careful"], "nominal", 1.0)],
)
def test_the_choice_of_now_says_what_the_other_policy_would_choose(usual: Any, acted: str, value: float) -> None:
    """It went back, and `careful` goes back as often as not: surely, if it chose itself or nominal is like it."""
    policies = {"nominal": usual, "careful": half}
    text = 'handover(careful, P>=0.9 [ G<=1 !"far" ], 0)'
    path = [([2.5], 1)]
    assert ask(text, 2.5, model=STILL, path=path, policies=policies, acted=[acted]).value == value


# ---- the referee ----


def by_chance(x: Floats) -> Floats:
    """Opens the valve the more often, the higher the level."""
    opens = np.clip(x[:, 0] / 10.0, 0.1, 0.9)
    return np.stack([1.0 - opens, opens], axis=1)


@scaled
@given(st.randoms(use_true_random=False))
def test_the_referee_draws_the_same(chance: Random) -> None:
    rng, tank = np.random.default_rng(chance.getrandbits(32)), chance.choice([Tank, ResampledTank])
    level, path = np.array([[chance.uniform(6.0, 9.5)]]), []
    for _ in range(chance.randint(1, 4)):
        rain, action = float(rng.uniform(0.0, 1.5)), chance.randrange(2)
        path.append((level[0].tolist(), action, [rain]))
        level = Tank().step(level, np.array([action]), rng.uniform(size=(1, 1)), np.array([[rain]]))
    drawn = set(chance.sample(sorted(POLICIES), chance.randrange(3)))
    policies = POLICIES | dict.fromkeys(drawn, by_chance)
    acted = [chance.choice(sorted(POLICIES)) for _ in path] if chance.random() < 0.5 else []
    checker = WorldChecker(tank, policies, {})
    who = chance.choice(["careful", "careful[2]", "do(open)"])
    bound = chance.choice(["P>=0.8", "P<0.4", "P<=0.9", "P>0"])
    inner = f'{bound} [ {chance.choice("FG")}<={chance.randrange(4)} !"overflow" ]'
    text = f"handover({who}, {inner}, {0 if len(drawn) == 2 else chance.randrange(3)})"
    goal, moments, seed = parse(text), checker.path(path), chance.getrandbits(53)
    assert isinstance(goal, Goal)
    checker.validate(goal, text)
    ended = chance.random() < 0.2
    question = Sampler(checker.scene, seed).question(goal, moments, first_seq=3, terminated=ended, acted=acted)
    assert isinstance(question, TooLate)
    draws = range(20)
    assert (question.outcomes(draws) <= question.most(draws)).all()
    wanted = float((question.outcomes(draws) + question.most(draws)).mean()) / 2.0
    again = Given(moments, 3, ended, {"": checker.model}, policies, seed, len(draws), acted)
    assert mean(goal, again) == pytest.approx(wanted, abs=1e-12), text
    if question.certain is not None:
        assert mean(goal, again._replace(draws=1, certain=True)) == question.certain


# ---- on a stream ----

LINE_CASE: dict[str, Any] = {"family": "whole", "N": 12, "base": 0.9, "keep": 0.95, "s": 0.8, "push": [0.0, -1.6],
                             "hot": 10.0, "nominal": [0] * 13, "careful": [1] * 13}  # fmt: skip
RULES = {name: number_rule(LINE_CASE, name) for name in ("nominal", "careful")}
FORMULA = 'handover(careful, P>=0.9 [ G<=2 !"hot" ], 1) >= 0.2'


@pytest.fixture(scope="module")
def alarm() -> tuple[Alert, WorldChecker, Identity]:
    spec = FormulaSpec("late", FORMULA, alarm=AlarmSpec(when="holds"))
    monitor = Monitor(NumberLine(LINE_CASE), RULES, [spec], settings(16))
    rng = np.random.default_rng(2)
    life = lived(monitor, NumberLine(LINE_CASE), RULES, lambda *_: "nominal", rng, start=7.0, steps=9)
    checker = WorldChecker(NumberLine(LINE_CASE), RULES, {})
    alert = next(notice for notice in life.notices if isinstance(notice, Alert))
    return alert, checker, identity_of(checker.model, checker.policies, {})


@heavy
def test_an_alarm_comes_while_it_is_not_too_late(alarm: tuple[Alert, WorldChecker, Identity]) -> None:
    alert, _, _ = alarm
    assert alert.verdict.holds
    assert alert.verdict.latest_useful == 0
    assert "careful" in alert.summary


@heavy
@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
def test_both_programs_derive_it_again_and_find_what_does_not_follow(
    alarm: tuple[Alert, WorldChecker, Identity], deriver: Any
) -> None:
    alert, checker, identity = alarm
    document = confirmed(alert, checker, identity, deriver)
    verdict = document.verdict
    forged = msgspec.structs.replace(verdict.quantities[0], value=verdict.quantities[0].value + 0.01)
    for change, where in (
        ({"quantities": (forged,)}, "verdict.quantities"),
        ({"profile": {0: (0.1, verdict.profile[0][1])}}, "verdict.profile"),
        ({"latest_useful": None}, "verdict.latest_useful"),
    ):
        altered = msgspec.structs.replace(document, verdict=msgspec.structs.replace(verdict, **change))
        problems = derive_again(altered, checker.model, checker.policies, {}, [deriver]).problems
        assert any(where in problem for problem in problems), where


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
def test_on_a_world_with_fits_it_has_no_band_and_says_why(deriver: Any) -> None:
    world = load_world(Basin(0.8, 1.0, 0.4, fits=[Basin(0.78, 1.0, 0.4), Basin(0.82, 1.0, 0.4)]))
    spec = FormulaSpec(
        "late", 'handover(careful, P>=0.9 [ G<=2 !"overflow" ], 1) >= 0.2', alarm=AlarmSpec(when="holds")
    )
    monitor = Monitor(world, POLICIES, [spec], settings(16))
    rng = np.random.default_rng(1)
    life = lived(monitor, Basin(0.9, 1.0, 0.4), POLICIES, lambda *_: "nominal", rng, start=6.5, steps=8)
    alert = next(notice for notice in life.notices if isinstance(notice, Alert))
    assert alert.verdict.bands is not None
    assert (alert.verdict.bands.reason, alert.verdict.bands.fits) == (NOT_NESTED, 2)
    checker = WorldChecker(world, POLICIES, {})
    confirmed(alert, checker, identity_of(checker.model, checker.policies, {}), deriver)


def test_a_picture_shows_both_policies_from_now_on(alarm: tuple[Alert, WorldChecker, Identity]) -> None:
    alert, checker, identity = alarm
    document = read_evidence(make_evidence(alert, identity, checker.policies, {}))
    drawn = draw_numbers(document, checker.model, checker.policies)
    assert {"nominal", "careful", "hot"} <= set(re.findall(r"[a-z]+", drawn))


# ---- refusals ----


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("handover(careful, R>=1 [ C<=2 ], 2) >= 0.2", "for the goal P only"),
        ('handover(careful, P>=0.5 [ F<=1 "far" ], 2) >= 0.2 & P>=0.1 [ F<=1 (P>=0.5 [ X "far" ]) ]', "nested"),
        ('handover(careful, P>=0.5 [ F<=1 (careful@0.P>=0.5 [ X "far" ]) ], 2) >= 0.2', "nested in a path"),
        ('regret(careful@0, P>=0.5 [ F<=1 !(careful@0.P>=0.5 [ X "far" ]) ])', "nested in a path"),
        ('handover(careful, P>=0.5 [ F<=1 "near" ], 2) >= 0.2', "unknown label 'near'"),
        ('handover(bold, P>=0.5 [ F<=1 "far" ], 2) >= 0.2', "unknown policy 'bold'"),
    ],
)
def test_what_is_not_drawn_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(FormulaError, match=re.escape(says)):
        ask(text, 1.0)


def test_two_policies_that_choose_by_chance_are_refused_only_where_it_matters() -> None:
    halves: Policies = dict.fromkeys(POLICIES, half)
    text = 'handover(careful, P>=0.9 [ F=3 !"far" ], {})'
    with pytest.raises(LimitError, match="choose by chance"):
        ask(text.format(1), 1.0, policies=halves)
    assert ask(text.format(0), 1.0, policies=halves, sampling=Sampling(error=0.2)).value == 0.0
    one = halves | {"careful": POLICIES["careful"]}
    verdict = ask(text.format(1), 1.0, policies=one, sampling=Sampling(error=0.2))
    assert verdict.method == "sampled"
