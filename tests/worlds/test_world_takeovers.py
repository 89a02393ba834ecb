"""Takeovers in worlds with numbers, judged: against the plant run again with its own noise, and an own loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor import Monitor
from monitor.alarm.message import identity_of
from monitor.alarm.takeover import takeover_text
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.runtime.takeovers import CUT_OFF
from monitor.types import FormulaSpec, Sampling, TakenOver
from tests.evidence.rederived import make_evidence
from tests.tiers import examples, scaled
from tests.worlds.lives import Life, lived, met, settings
from tests.worlds.oracle import counterfactual_share
from tests.worlds.samples import NumberLine, Tank, number_rule

HORIZON = 6
TANK = FormulaSpec("tank", f'regret(careful@0, P>=0.9 [ G<={HORIZON} !"overflow" ])', every=99)
TANKS = {
    "nominal": lambda x: np.zeros(len(x), dtype=int),
    "careful": lambda x: (x[:, 0] > 7.5).astype(int),
}
OUTCOMES = {
    (True, False): "needed",
    (True, True): "needless",
    (False, True): "harmful",
    (False, False): "futile",
}


def taken(life: Life) -> list[TakenOver]:
    return [notice for notice in life.notices if isinstance(notice, TakenOver)]


def tank_life(monitor: Monitor, seed: int, *, steps: int = 14, above: float = 6.0, **end: bool) -> Life:
    """A tank whose valve another policy takes over when the level is above something, for the rest of the episode."""
    rng = np.random.default_rng(seed)
    start, taken_over = float(rng.uniform(4.0, 6.0)), [False]

    def acting(_: int, level: float) -> str:
        taken_over[0] |= level > above
        return "careful" if taken_over[0] else "nominal"

    rain = lambda: (float(rng.uniform(0.0, 1.4)),)  # noqa: E731 - drawn in order with the noise
    episode = f"e{seed}"
    return lived(monitor, Tank(), TANKS, acting, rng, start=start, steps=steps, episode=episode, inputs=rain, end=end)


@scaled
def test_a_tank_run_again_with_its_own_noise_says_the_same() -> None:
    monitor, found = Monitor(Tank, TANKS, [TANK], settings(16)), set()
    for seed in range(examples(25, 300)):
        life = tank_life(monitor, seed, truncated=True)
        begin = life.who.index("careful") if "careful" in life.who else None
        [*notices] = taken(life)
        if begin is None or begin + HORIZON >= len(life.who):
            assert [(n.outcome, n.reason) for n in notices] == [("undecided", CUT_OFF)] * (begin is not None)
            continue
        [notice] = notices
        shut = life.rerun(Tank(), begin, HORIZON, lambda *_: 0)
        happened = met(Tank(), "overflow", life.states[begin : begin + HORIZON + 1])
        assert notice.outcome == OUTCOMES[happened, met(Tank(), "overflow", shut)], seed
        assert (notice.first_seq, notice.seq, len(notice.path)) == (begin, begin + HORIZON, HORIZON + 1)
        assert notice.verdict is not None
        assert notice.verdict.method == "exact" or max(life.states)[0, 0] == 10.0
        found.add(notice.outcome)
    assert found >= {"needed", "needless"}


def test_a_reward_is_that_of_the_tank_run_again() -> None:
    spec = FormulaSpec("rise", f"regret(careful@0, R<=1.5 [ C<={HORIZON - 2} ])", every=99)
    monitor = Monitor(Tank, TANKS, [spec], settings(16), sampling=Sampling(rewards=(-10.0, 10.0)))
    life = tank_life(monitor, 5, above=5.0)
    begin = life.who.index("careful")
    [notice] = taken(life)
    shut = life.rerun(Tank(), begin, HORIZON - 1, lambda *_: 0)
    rises = [float(states[-1][0, 0] - states[0][0, 0]) for states in (life.states[begin : begin + HORIZON], shut)]
    assert notice.verdict is not None
    assert [each.value for each in notice.verdict.quantities] == pytest.approx(rises, abs=1e-9)


def test_at_an_end_that_terminates_the_episode_a_takeover_is_judged() -> None:
    monitor = Monitor(Tank, TANKS, [TANK], settings(16))
    life = tank_life(monitor, 5, steps=5, above=5.0, terminated=True)
    [notice] = taken(life)
    assert notice.verdict is not None
    assert notice.verdict.quantities[0].value == float(met(Tank(), "overflow", life.states[:5]))
    assert (notice.terminated, notice.seq) == (True, 4)


# ---- noise that is not known: levels are rounded ----

ROUNDED = {"family": "whole", "N": 8, "base": 0.9, "keep": 0.85, "s": 0.8, "push": [0.0, 0.4], "hot": 7.0,
           "nominal": [1] * 9, "careful": [0] * 9}  # fmt: skip
LINE = FormulaSpec("line", f'regret(careful@0, P>=0.7 [ G<={HORIZON} !"hot" ])', every=99)
LINES = {name: number_rule(ROUNDED, name) for name in ("nominal", "careful")}


def line_life(monitor: Monitor, seed: int, steps: int = HORIZON + 3) -> Life:
    rng = np.random.default_rng(seed)
    acting = lambda seq, _: "nominal" if seq < 2 else "careful"  # noqa: E731
    world, episode, end = NumberLine(ROUNDED), f"e{seed}", {"truncated": True}
    return lived(monitor, world, LINES, acting, rng, start=3.0, steps=steps, episode=episode, end=end)


def line_monitor(**more: Any) -> Monitor:
    return Monitor(NumberLine(ROUNDED), LINES, [LINE], settings(16), **more)


@scaled
def test_where_noise_is_an_interval_the_values_are_those_of_an_own_loop_and_of_the_plant() -> None:
    monitor, values, truths = line_monitor(), [], []
    for seed in range(examples(15, 300)):
        life = line_life(monitor, seed)
        [notice] = taken(life)
        if notice.verdict is None:
            assert "too near its bound" in notice.reason
            continue
        happened, gone_on = notice.verdict.quantities
        hot = life.states[2][0, 0] >= 7.0
        assert (happened.samples, notice.verdict.method) == (0, "exact" if hot else "sampled")
        assert happened.value == float(met(NumberLine(ROUNDED), "hot", life.states[2 : 3 + HORIZON]))
        pushed = life.rerun(NumberLine(ROUNDED), 2, HORIZON, lambda *_: 1)
        values.append(gone_on.value)
        truths.append(met(NumberLine(ROUNDED), "hot", pushed))
        if seed < examples(5, 30) and not hot:
            share = _own_share(life, seed)
            spread = np.sqrt(0.25 / gone_on.samples + 0.25 / 2000)
            assert abs(gone_on.value - share) < 4.5 * spread + LEAN, seed
            if abs(share - 0.7) > 0.05:
                assert gone_on.holds == (share >= 0.7), seed
    off = np.array(values) - np.array(truths)
    assert abs(off.mean()) < 4.5 * max(off.std(), 0.1) / np.sqrt(len(off)) + LEAN


LEAN = 0.05
"""The mean of a test, which stops by what it drew, leans away from the bound by at most as much."""


def _own_share(life: Life, seed: int) -> float:
    path = [(float(life.states[k][0, 0]), life.actions[k]) for k in range(2, 3 + HORIZON)]
    return counterfactual_share(
        lambda x, a: ROUNDED["base"] + ROUNDED["keep"] * x + ROUNDED["push"][a],  # type: ignore[operator, index]
        ROUNDED["s"],  # type: ignore[arg-type]
        ROUNDED["N"],  # type: ignore[arg-type]
        path,
        lambda _: 1,
        lambda states: max(states) < ROUNDED["hot"],  # type: ignore[operator]
        HORIZON,
        2000,
        seed,
    )


def test_each_judgement_by_draws_spends_a_part_of_the_error_rate_also_after_a_restart() -> None:
    monitor, judged = line_monitor(), []
    for seed in range(6):
        if seed == 3:
            saved = monitor.save(everything=True)
            monitor = line_monitor()
            monitor.load(msgspec.msgpack.decode(msgspec.msgpack.encode(saved), type=type(saved)))
        judged += taken(line_life(monitor, seed))
    drawn = [each.verdict.drawn for each in judged if each.verdict is not None and each.verdict.drawn is not None]
    assert [each.test for each in drawn] == [n + 1 for n in range(len(drawn))]
    assert len(drawn) > 3
    assert [each.alpha for each in drawn] == sorted({each.alpha for each in drawn}, reverse=True)


def test_what_the_draws_leave_open_is_undecided_and_says_why() -> None:
    monitor = line_monitor(sampling=Sampling(limit=3))
    [notice] = taken(line_life(monitor, 0))
    assert (notice.outcome, notice.verdict) == ("undecided", None)
    assert "is open after 3 samples (sampling.limit)" in notice.reason


def test_a_world_that_fails_judges_nothing_and_says_why() -> None:
    class Failing(Tank):
        armed = False

        def step(self, x: Any, a: Any, u: Any, w: Any) -> Any:
            if self.armed and len(x) == 1 and (a == 0).all() and x[0, 0] > 6.5:
                raise ZeroDivisionError
            return super().step(x, a, u, w)

    world = Failing()
    policies = {**TANKS, "careful": lambda x: np.ones(len(x), dtype=int)}
    monitor = Monitor(world, policies, [TANK], settings(16))
    world.armed = True
    rng = np.random.default_rng(0)
    acting = lambda seq, _: "careful" if seq else "nominal"  # noqa: E731
    life = lived(monitor, Tank(), policies, acting, rng, start=6.2, steps=9, inputs=lambda: (0.9,))
    [notice] = taken(life)
    assert notice.outcome == "undecided"
    assert "ZeroDivisionError" in notice.reason


# ---- evidence ----


def _evidence(name: str) -> tuple[Any, TakenOver, Any, dict[str, Any]]:
    """A judged takeover's document, the notice, the world and the policies."""
    tank = name == "point"
    world: Any = Tank() if tank else NumberLine(ROUNDED)
    policies, formula = (TANKS, TANK) if tank else (LINES, LINE)
    checker, monitor = WorldChecker(world, policies, {}), Monitor(world, policies, [formula], settings(16))
    notice = taken(tank_life(monitor, 3) if tank else line_life(monitor, 1))[0]
    identity = identity_of(checker.model, checker.policies, {})
    document = read_evidence(make_evidence(notice, identity, checker.policies, {}))
    return document, notice, checker.model, {**checker.policies, "deployed": checker.policies["nominal"]}


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", ["point", "interval"])
def test_both_programs_derive_a_judgement_again(kind: str, deriver: Any) -> None:
    document, notice, world, policies = _evidence(kind)
    assert contradictions(document) == []
    found = derive_again(document, world, policies, {}, [deriver])
    assert (found.problems, found.by) == ([], deriver.name)
    assert document.takeover is not None
    assert document.takeover.outcome in takeover_text(notice)
    assert len(document.inputs) == (len(document.path) if kind == "point" else 0)


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "change",
    [
        lambda e: {"inputs": (*e.inputs[:-2], (e.inputs[-2][0] + 0.1,), e.inputs[-1])},
        lambda e: {"path": (((e.path[0][0][0] + 0.05,), e.path[0][1]), *e.path[1:])},
        lambda e: {"verdict": msgspec.structs.replace(e.verdict, quantities=e.verdict.quantities[::-1])},
    ],
)
def test_an_altered_judgement_is_caught(change: Callable[[Any], dict[str, Any]], deriver: Any) -> None:
    document, _, world, policies = _evidence("point")
    altered = msgspec.structs.replace(document, **change(document))
    assert contradictions(altered) or derive_again(altered, world, policies, {}, [deriver]).problems
