"""The one decision whose change would have met a missed goal: against the plant run again with its own noise."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from monitor import ConfigError, Monitor, check, recourse
from monitor.alarm.message import Identity, alert_payload, identity_of
from monitor.evaluation import one_decision
from monitor.evaluation.one_decision import ALONE, NONE
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.types import Alert, Changes, FormulaSpec, Recourse, Sampling, Verdict
from tests.evidence.rederived import confirmed, make_evidence
from tests.tiers import examples, scaled
from tests.worlds.lives import Life, lived, met, settings
from tests.worlds.samples import NumberLine, Tank, number_rule

BACK = 6
TEXT = f'regret(careful@{BACK}, P>=0.9 [ G<={BACK} !"overflow" ])'
TANKS = {
    "nominal": lambda x: np.zeros(len(x), dtype=int),
    "careful": lambda x: (x[:, 0] > 7.5).astype(int),
}


def quiet(**more: Any) -> Monitor:
    return Monitor(Tank, TANKS, [FormulaSpec("watch", "P>=0.5 [ true ]", every=999)], settings(16), **more)


def tank_life(seed: int) -> Life:
    """A tank whose valve is sometimes opened, against its policy."""
    rng = np.random.default_rng(seed)
    policies = {**TANKS, "nominal": lambda x: (rng.uniform(size=len(x)) < 0.15).astype(int)}
    rain = lambda: (float(rng.uniform(0.2, 0.8)),)  # noqa: E731
    start = float(rng.uniform(6.0, 8.0))
    return lived(quiet(), Tank(), policies, lambda *_: "nominal", rng, start=start, steps=BACK + 2, inputs=rain)


def path_of(life: Life) -> list[tuple[Any, ...]]:
    steps = zip(life.states, life.actions, life.inputs, strict=False)
    return [(tuple(state[0].tolist()), action, *([given] if given else [])) for state, action, given in steps]


def changed(life: Life, begin: int, at: int, action: int) -> bool | None:
    """Whether a tank stays below the brim from `begin` on if one decision is another, and the rest are unchanged.

    None if it comes back to an observed level: then rounding says whether the observed action is taken there.
    """
    off = []

    def chooses(k: int, state: Any) -> int:
        off.append(abs(state[0, 0] - life.states[k][0, 0]))
        return action if k == at else life.actions[k] if k < at else 0

    states = life.rerun(Tank(), begin, BACK, chooses)
    return None if min(off[at - begin + 1 :], default=1.0) < 1e-9 else met(Tank(), "overflow", states)


@scaled
def test_the_latest_decision_that_suffices_in_a_tank_run_again_is_named() -> None:
    named = 0
    for seed in range(examples(20, 150)):
        life = tank_life(seed)
        begin, last = len(life.actions) - 1 - BACK, len(life.actions) - 1
        if max(life.states)[0, 0] == 10.0:
            continue  # a full tank hides its leak
        verdict = check(TEXT, model=Tank, path=path_of(life), policies=TANKS)
        truths = {k: changed(life, begin, k, 1 - life.actions[k]) for k in range(begin, last)}
        if None in truths.values():
            continue
        suffice = [k for k, suffices in truths.items() if suffices]
        if verdict.outcome == "safe":
            assert verdict.recourse is None
            continue
        assert verdict.recourse is not None
        found = verdict.recourse.changes
        assert (found is None) == (not suffice), seed
        assert verdict.recourse.reason == (ALONE + NONE if found is None else ALONE)
        if found is None:
            continue
        at = suffice[-1]
        taken = life.actions[at]
        assert (found.offset, found.taken, found.proposed) == (last - at, taken, 1 - taken), seed
        assert (found.value, found.samples, found.count) == (1.0, 0, 1)
        assert found.state == (life.states[at][0, 0],)
        assert (found.taken_name, found.proposed_name) == (Tank.actions[taken], Tank.actions[1 - taken])
        named += 1
    assert named >= examples(2, 20)


# ---- values that are drawn ----

LINE: dict[str, Any] = {"family": "whole", "N": 8, "base": 0.9, "keep": 0.85, "s": 0.8, "push": [0.0, 0.6],
                        "hot": 7.0, "nominal": [1] * 9, "careful": [0] * 9}  # fmt: skip
LINES = {name: number_rule(LINE, name) for name in ("nominal", "careful")}
AHEAD = 3


def line_verdict(seed: int) -> tuple[Life, Verdict]:
    rng = np.random.default_rng(seed)
    monitor = Monitor(NumberLine(LINE), LINES, [FormulaSpec("watch", "P>=0.5 [ true ]", every=99)], settings(8))
    life = lived(monitor, NumberLine(LINE), LINES, lambda *_: "nominal", rng, start=3.0, steps=4)
    text = f'regret(careful@{AHEAD}, P>=0.6 [ G<={AHEAD + 2} !"hot" ])'
    return life, check(
        text, model=NumberLine(LINE), path=path_of(life), policies=LINES, sampling=Sampling(seed=seed, delta=0.05)
    )


@scaled
def test_a_value_that_is_drawn_is_that_of_a_plain_simulation() -> None:
    named = 0
    for seed in range(examples(6, 60)):
        life, verdict = line_verdict(seed)
        if verdict.recourse is None or (found := verdict.recourse.changes) is None:
            continue
        truth = simulated(life, found, np.random.default_rng(1000 + seed), 4000)
        assert found.samples == 1024
        assert abs(found.value - truth) < 4.5 * 0.5 * np.sqrt(1 / 1024 + 1 / 4000), seed
        assert found.value > 0.6
        named += 1
    assert named >= 1


def simulated(life: Life, change: Changes, rng: np.random.Generator, draws: int) -> float:
    """The fraction of lines that stay cold, their held noise drawn by rejection; nothing of the engine."""
    at, held, stays = len(life.actions) - 1 - change.offset, len(life.actions) - 1, np.ones(draws, dtype=bool)
    states = np.full(draws, life.states[0][0, 0])
    for k in range(AHEAD + 3):
        stays &= states < LINE["hot"]
        if k == AHEAD + 2:
            return float(stays.mean())
        actions = np.full(draws, change.proposed if k == at else 1)
        noise = rng.normal(size=draws)
        if k < held:
            came, unknown = life.states[k + 1][0, 0], np.ones(draws, dtype=bool)
            while unknown.any():
                noise[unknown] = rng.normal(size=int(unknown.sum()))
                unknown = _moved(np.full(draws, life.states[k][0, 0]), np.full(draws, life.actions[k]), noise) != came
        states = _moved(states, actions, noise)
    raise AssertionError


def _moved(states: Any, actions: Any, noise: Any) -> Any:
    moved = LINE["base"] + LINE["keep"] * states + np.array(LINE["push"])[actions] + LINE["s"] * noise
    return np.clip(np.floor(moved + 0.5), 0, LINE["N"])


# ---- an alarm ----


@pytest.fixture(scope="module")
def alarm() -> tuple[Alert, WorldChecker, Identity]:
    """The first alarm of a tank in a storm that begins at its fourth step."""
    rng, spec = np.random.default_rng(1), FormulaSpec("watch", 'regret(careful@3, P>=0.9 [ G<=5 !"overflow" ])')
    monitor = Monitor(Tank, TANKS, [spec], settings(16))
    rain = iter([0.2, 0.2, 0.2, 1.6, 1.6])
    life = lived(
        monitor, Tank(), TANKS, lambda *_: "nominal", rng, start=6.0, steps=5, inputs=lambda: (next(rain),)
    )  # fmt: skip
    alert = next(notice for notice in life.notices if isinstance(notice, Alert))
    checker = WorldChecker(Tank, TANKS, {})
    return alert, checker, identity_of(checker.model, checker.policies, {})


def test_an_alarm_says_it_and_says_that_it_is_drawn(alarm: tuple[Alert, WorldChecker, Identity]) -> None:
    alert, _, identity = alarm
    assert alert.verdict.recourse is not None
    found = alert.verdict.recourse.changes
    assert found is not None
    words = " ".join(alert.details)
    about = "about " if found.samples else ""
    step = f"open instead of shut at step {alert.seq - found.offset}"
    assert f"In hindsight, {step}" in words
    assert f"with no other decision changed, would have given {about}{found.value:.2f}" in words
    message = msgspec.json.decode(alert_payload(alert, identity, sent=1.0, evidence=None))["recourse"]
    assert message["avoidable"] is None
    assert message["changes"].get("samples", 0) == found.samples
    assert message["changes"]["state"] == list(found.state)
    assert message["reason"] == ALONE


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
def test_both_programs_derive_it_again_and_find_another_value(
    alarm: tuple[Alert, WorldChecker, Identity], deriver: Any
) -> None:
    alert, checker, identity = alarm
    document = confirmed(alert, checker, identity, deriver)
    recourse = document.verdict.recourse
    assert recourse is not None
    assert recourse.changes is not None
    for change in (
        {"value": 0.5},
        {"offset": recourse.changes.offset + 1},
        {"proposed": 0},
        {"proposed": -1},
        {"samples": 7},
    ):
        forged = msgspec.structs.replace(recourse, changes=msgspec.structs.replace(recourse.changes, **change))
        altered = msgspec.structs.replace(document, verdict=msgspec.structs.replace(document.verdict, recourse=forged))
        problems = derive_again(altered, checker.model, checker.policies, {}, [deriver]).problems
        assert any("verdict.recourse.changes" in problem for problem in problems), change


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
def test_what_a_forger_writes_is_a_problem_and_no_crash(
    alarm: tuple[Alert, WorldChecker, Identity], deriver: Any
) -> None:
    alert, checker, identity = alarm
    document = read_evidence(make_evidence(alert, identity, checker.policies, {}))
    one, other = document.verdict.quantities
    for quantities in [(), (one,), (one, msgspec.structs.replace(other, text="P>=0.5 [ true ]")), (one, other, one)]:
        verdict = msgspec.structs.replace(document.verdict, quantities=quantities)
        altered = msgspec.structs.replace(document, verdict=verdict)
        assert derive_again(altered, checker.model, checker.policies, {}, [deriver]).problems
    many = msgspec.structs.replace(other, samples=10**12)
    verdict = msgspec.structs.replace(document.verdict, quantities=(one, many))
    altered = msgspec.structs.replace(document, verdict=verdict)
    assert derive_again(altered, checker.model, checker.policies, {}, [deriver]).problems
    for path in [(((6.0,), 9), *document.path[1:]), (((6.0,), None), *document.path[1:])]:
        altered = msgspec.structs.replace(document, path=path)
        assert derive_again(altered, checker.model, checker.policies, {}, [deriver]).problems
    altered = msgspec.structs.replace(document, inputs=document.inputs[1:])
    assert contradictions(altered) == ["inputs: entries for 3 pairs are recorded, and the path has 4"]


# ---- limits ----


def test_what_fails_is_the_reason_and_the_verdict_stays() -> None:
    class Failing(Tank):
        def step(self, x: Any, a: Any, u: Any, w: Any) -> Any:
            if len(x) == 128:
                raise ZeroDivisionError
            return super().step(x, a, u, w)

    path = [((8.9,), 0, (0.9,))]
    verdict = check('regret(careful@0, P>=0.9 [ G<=2 !"overflow" ])', model=Failing, path=path, policies=TANKS)
    assert verdict.outcome in {"regret", "unavoidable"}
    assert verdict.recourse is not None
    assert "ZeroDivisionError" in verdict.recourse.reason
    assert verdict.recourse.changes is None


@pytest.mark.parametrize(("most", "named"), [(1, False), (2, False), (3, True)])
def test_only_so_many_decisions_are_tried_the_newest_first(
    most: int,
    named: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It overflows at the third step, so the newest decision that matters is the second."""
    monkeypatch.setattr(one_decision, "MOST_TRIED", most)
    path = [((8.0,), 0, (0.8,)), ((8.7,), 0, (0.9,)), ((9.5,), 0, (0.1,)), ((9.5,), 1, (0.1,))]
    verdict = check('regret(careful@3, P>=0.9 [ G<=3 !"overflow" ])', model=Tank, path=path, policies=TANKS)
    assert verdict.recourse is not None
    assert (verdict.recourse.changes is not None) == named
    assert f"(the newest {most})" in verdict.recourse.reason
    if verdict.recourse.changes is not None:
        assert verdict.recourse.changes.offset == 2


@pytest.mark.parametrize(("last", "most", "cut"), [(1, 4, False), (1, 3, True), (None, 5, False), (None, 4, True)])
def test_a_decision_that_was_not_yet_taken_can_be_each_action(
    last: int | None,
    most: int,
    cut: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_decision, "MOST_TRIED", most)
    path = [((8.0,), 0, (0.8,)), ((8.7,), 0, (0.9,)), ((9.5,), 0, (0.1,)), ((9.5,), last, (0.1,))]
    verdict = check('regret(careful@3, P>=0.9 [ G<=3 !"overflow" ])', model=Tank, path=path, policies=TANKS)
    assert verdict.recourse is not None
    assert ("the newest" in verdict.recourse.reason) == cut


def test_where_the_verdict_draws_nothing_no_decision_is_drawn() -> None:
    """So much rain fills the tank whatever leaks, so its noise is not known; both policies keep the valve shut."""
    path = [((8.9,), 0, (1.5,)), ((10.0,), 0, (0.0,))]
    both = {"nominal": TANKS["nominal"], "same": TANKS["nominal"]}
    verdict = check('regret(same@1, P>=0.9 [ G<=1 !"overflow" ])', model=Tank, path=path, policies=both)
    assert (verdict.outcome, verdict.method, verdict.drawn) == ("unavoidable", "exact", None)
    assert verdict.recourse is not None
    assert (verdict.recourse.changes, verdict.recourse.reason) == (None, ALONE + NONE)


def test_a_change_that_is_known_to_suffice_is_named_where_a_drawn_one_only_seemed_better() -> None:
    """A full tank hides its leak, so the older decision is drawn: good in the first draws, bad in those that count."""

    class Lucky(Tank):
        def reward(self, x: Any, a: Any, x_next: Any) -> Any:
            return np.where(a == 1, {1: 3.0, 128: 9.0}.get(len(x), 0.5), 0.0)

    path = [((8.9,), 0, (1.5,)), ((10.0,), 0, (0.0,)), ((9.9,), 0, (0.0,))]
    given: dict[str, Any] = {"model": Lucky, "path": path, "policies": TANKS, "sampling": Sampling(rewards=(0.0, 9.0))}
    good, bad = (check(f"regret(careful@2, R>={bound} [ C<=1 ])", **given).recourse for bound in (2, 4))
    assert good is not None
    assert good.changes is not None
    assert (good.changes.offset, good.changes.samples, good.changes.value) == (1, 0, 3.0)
    assert bad == Recourse(reason=ALONE + NONE)


def test_the_recourse_of_a_path_is_that_of_a_verdict() -> None:
    with pytest.raises(ConfigError, match=r"monitor\.check does it for regret"):
        recourse('P>=0.9 [ G<=3 !"overflow" ]', model=Tank, path=[((6.0,), 0)], policies=TANKS)  # type: ignore[arg-type, list-item]


class Levels(Tank):
    """The tank, whose actions are named by numbers that are the indices of the other."""

    actions = ("1", "0")


def test_a_decision_is_named_where_names_are_numbers() -> None:
    path = [((8.0,), 0, (0.8,)), ((8.7,), 0, (0.9,)), ((9.5,), 0, (0.1,)), ((9.5,), 1, (0.1,))]
    text = 'regret(careful@3, P>=0.9 [ G<=3 !"overflow" ])'
    by_name, by_number = (check(text, model=each, path=path, policies=TANKS) for each in (Tank, Levels))
    assert by_name.recourse is not None
    assert by_number.recourse is not None
    assert by_name.recourse.changes is not None
    renamed = msgspec.structs.replace(by_name.recourse.changes, taken_name="1", proposed_name="0")
    assert by_number.recourse.changes == renamed


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
def test_both_programs_derive_again_an_alarm_on_levels(deriver: Any) -> None:
    rng, spec = np.random.default_rng(1), FormulaSpec("watch", 'regret(do(0)@3, P>=0.9 [ G<=5 !"overflow" ])')
    monitor = Monitor(Levels, TANKS, [spec], settings(16))
    rain = iter([0.2, 0.2, 0.2, 1.6, 1.6])
    life = lived(
        monitor, Levels(), TANKS, lambda *_: "nominal", rng, start=6.0, steps=5, inputs=lambda: (next(rain),)
    )  # fmt: skip
    alert = next(notice for notice in life.notices if isinstance(notice, Alert))
    assert alert.verdict.recourse is not None
    assert alert.verdict.recourse.changes is not None
    assert "action 0 instead of action 1 at step" in " ".join(alert.details)
    checker = WorldChecker(Levels, TANKS, {})
    confirmed(alert, checker, identity_of(checker.model, checker.policies, {}), deriver)
