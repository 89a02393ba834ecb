"""Streams on a model learned from data: which verdicts have bands, alarms only if robust, evidence, newer data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from monitor.alarm.message import alert_payload, identity_of, refreshed_payload
from monitor.errors import ConfigError, LimitError
from monitor.evaluation import check
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.exact import tables
from monitor.exact.path_values import PathValues
from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import (
    AlarmSpec,
    Alert,
    Bands,
    BandSettings,
    BandsWhen,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    StreamSettings,
    TrustSettings,
)
from tests.evidence.rederived import make_evidence, rederive
from tests.exact.learned import learned_model

N = TypeVar("N")
WALK, CRAWL = 0, 1
ROAD, HOME, DITCH = range(3)
POLICIES = {"nominal": [WALK] * 4, "careful": [CRAWL] * 4}
TEXT = 'regret(careful@1, P>=0.8 [ G<=3 !"bad" ])'
DRAWS = BandSettings(draws=39, seed=3)


def road(times: int = 1) -> MDP:
    """Walking falls once in ten times, crawling never; seen ten times each, or a multiple of that."""
    fallen = [(ROAD, WALK, ROAD)] * 9 + [(ROAD, WALK, DITCH)]
    rest = [(state, action, state) for state in (HOME, DITCH) for action in (WALK, CRAWL)]
    draws = (fallen + [(ROAD, CRAWL, ROAD)] * 10 + rest) * times
    return learned_model(4, 2, draws, {"bad": frozenset({DITCH, 3}), "home": frozenset({HOME})})[0]


def of(kind: type[N], notices: Iterable[Notice]) -> list[N]:
    return [notice for notice in notices if isinstance(notice, kind)]


class Stream:
    """A monitor of one agent, a second between two steps."""

    def __init__(self, model: MDP, *specs: FormulaSpec, delta: float = 0.05) -> None:
        self.monitor = make_monitor(model, *specs, delta=delta)
        self.seq = 0

    def step(self, state: int = ROAD, action: int = WALK) -> list[Notice]:
        now = Instant(1000.0 + self.seq, float(self.seq))
        observation = Observation("ada", "e", self.seq, state, action, time=now.wall)
        self.seq += 1
        return [*self.monitor.observe(observation, now), *self.monitor.evaluate(now)]


def make_monitor(model: MDP, *specs: FormulaSpec, delta: float = 0.05) -> Monitor:
    settings, bands = StreamSettings(window=8, stale_after=1000.0), replace(DRAWS, delta=delta)
    return Monitor(model, POLICIES, specs, settings, trust=TrustSettings(enabled=False), bands=bands)


def spec(text: str = TEXT, **more: Any) -> FormulaSpec:  # noqa: ANN401 - other settings of a formula
    return FormulaSpec("watch", text, **more)


def test_a_bad_verdict_has_the_bands_of_monitor_check() -> None:
    stream = Stream(road(), spec(causal_model="any"))
    stream.step()
    (judged,) = of(Judged, stream.step())
    expected = check(TEXT, model=road(), path=[(ROAD, WALK)] * 2, policies=POLICIES, causal_model="any", bands=DRAWS)
    assert judged.verdict == expected
    assert expected.outcome == "regret"
    assert expected.credible is not None
    assert expected.bands == Bands(39, 3, 0.95, 0.05)
    assert expected.support == 10


GOOD, BAD = 'P>=0.5 [ G<=3 !"bad" ]', 'P>=0.99 [ G<=3 !"bad" ]'


@pytest.mark.parametrize(
    ("text", "bands", "drawn"),
    [
        (GOOD, "auto", False),
        (BAD, "auto", True),
        ('P=? [ G<=3 !"bad" ]', "auto", False),
        (GOOD, "always", True),
        ('P=? [ G<=3 !"bad" ]', "always", True),
        (BAD, "off", False),
    ],
)
def test_which_verdicts_have_a_credible_band(text: str, bands: BandsWhen, drawn: bool) -> None:  # noqa: FBT001 - a column
    stream = Stream(road(), spec(text, bands=bands))
    (judged,) = of(Judged, stream.step())
    assert (judged.verdict.credible is not None) == drawn
    assert (judged.verdict.support is not None) == drawn
    assert (judged.verdict.bands is not None) == drawn


def test_while_an_alarm_fires_good_verdicts_have_bands_too() -> None:
    stream = Stream(road(), spec('P>=0.99 [ G<=3 !"bad" ]', alarm=AlarmSpec(keep=2)))
    stream.step()
    firing, closing = (of(Judged, stream.step(HOME))[0].verdict for _ in range(2))
    assert firing.holds
    assert firing.credible is not None
    assert closing.credible is not None
    assert of(Judged, stream.step(HOME))[0].verdict.credible is None


def test_a_given_model_has_the_same_verdicts_with_and_without_the_setting() -> None:
    given = MDP.from_transitions(
        states=4,
        actions=2,
        transitions=[(ROAD, WALK, ROAD, 0.9), (ROAD, WALK, DITCH, 0.1), (ROAD, CRAWL, ROAD, 1.0)]
        + [(s, a, s, 1.0) for s in (HOME, DITCH, 3) for a in range(2)],
        labels={"bad": [DITCH], "home": [HOME]},
    )
    streams = [Stream(given, spec(causal_model="any", bands=bands)) for bands in ("auto", "always", "off")]
    answers = [[of(Judged, stream.step())[0].verdict for _ in range(3)] for stream in streams]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][2].bands is None


# ---- only if robust ----


@pytest.mark.parametrize(("times", "fires"), [(1, False), (200, True)])
def test_an_alarm_may_wait_until_the_data_leave_no_doubt(times: int, fires: bool) -> None:  # noqa: FBT001 - a column
    for only_if, expected in (("robust", fires), (None, True)):
        stream = Stream(road(times), spec(BAD, causal_model="any", alarm=AlarmSpec(only_if=only_if)))  # type: ignore[arg-type]
        notices = [notice for _ in range(3) for notice in stream.step()]
        assert bool(of(Alert, notices)) == expected
        assert {judged.verdict.robust for judged in of(Judged, notices)} == {fires}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (spec(BAD, alarm=AlarmSpec(only_if="robust")), "add causal_model: any"),
        (spec(BAD, causal_model="any", alarm=AlarmSpec(only_if="sure")), "'sure' does not exist; use robust"),  # type: ignore[arg-type]
        (spec(BAD, bands="sometimes"), "'sometimes' does not exist; use auto, always, off"),
        (
            spec('P>=0.9 [ F<=2 (P>0.5 [ X "bad" ]) ]', causal_model="any", alarm=AlarmSpec(only_if="robust")),
            "quantities are nested",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(asked: FormulaSpec, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_monitor(road(), asked)


def test_a_nested_formula_may_be_robust_on_a_given_model_and_over_stable_models() -> None:
    nested = spec('P>=0.9 [ F<=2 (P>0.5 [ X "bad" ]) ]', causal_model="stable", alarm=AlarmSpec(only_if="robust"))
    make_monitor(road(), nested)


def test_too_few_draws_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"bands\.draws"):
        Monitor(road(), POLICIES, [spec()], bands=BandSettings(draws=3))


# ---- evidence ----


def evidence_of(model: MDP, *, delta: float = 0.05, **more: Any) -> Any:  # noqa: ANN401 - an evidence document
    stream = Stream(model, spec(**more), delta=delta)
    alert = of(Alert, [notice for _ in range(2) for notice in stream.step()])[-1]
    policies = tables(POLICIES, model)
    return read_evidence(make_evidence(alert, identity_of(model, policies, {}), policies, {}))


def test_evidence_has_the_bands_and_they_are_derived_again() -> None:
    model = road()
    evidence = evidence_of(model, causal_model="any")
    verdict, policies = evidence.verdict, tables(POLICIES, model)
    assert verdict.credible is not None
    assert verdict.guaranteed is not None
    assert verdict.effect_credible is not None
    assert verdict.support == 10
    assert not rederive(evidence, model, policies)
    forged = replace(evidence, verdict=replace(verdict, support=99, credible=(0.5, 0.6), guaranteed=(0.5, 0.6)))
    found = rederive(forged, model, policies)
    assert [problem.partition(":")[0] for problem in found] == [
        "verdict.credible[0]",
        "verdict.credible[1]",
        "verdict.guaranteed[0]",
        "verdict.guaranteed[1]",
        "verdict.support",
    ]
    other = replace(evidence, verdict=replace(verdict, bands=replace(verdict.bands, seed=4)))
    assert any("credible" in problem for problem in rederive(other, model, policies))


HELP = "and by the engine, which alone computes the credible band, the support and the pairs to visit"


@pytest.mark.parametrize(("bands", "passed"), [("auto", (HELP,)), ("off", ())])
def test_a_second_program_derives_the_guaranteed_band_too(bands: BandsWhen, passed: tuple[str, ...]) -> None:
    model, policies = road(), tables(POLICIES, road())
    evidence = evidence_of(model, causal_model="any", bands=bands)
    assert evidence.verdict.guaranteed is not None
    derived = derive_again(evidence, model, policies, derivers=[REFEREE])
    assert derived == ([], "referee", passed)
    forged = replace(evidence, verdict=replace(evidence.verdict, guaranteed=(0.5, 0.6)))
    problems = derive_again(forged, model, policies, derivers=[REFEREE]).problems
    assert [problem.partition(":")[0] for problem in problems] == ["verdict.guaranteed[0]", "verdict.guaranteed[1]"]


def test_a_guaranteed_band_that_is_wrong_in_the_engine_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathValues, "guaranteed", lambda *_: (0.125, 0.875))
    model, policies = road(), tables(POLICIES, road())
    evidence = evidence_of(model, causal_model="any")
    assert not rederive(evidence, model, policies)
    problems = derive_again(evidence, model, policies, derivers=[REFEREE, ENGINE]).problems
    assert any(problem.startswith("verdict.guaranteed[0]: 0.125 is recorded, ") for problem in problems)


def test_a_band_that_the_engine_left_out_is_not_derived_by_the_referee(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LimitError("too many numbers")

    monkeypatch.setattr(PathValues, "guaranteed", refuse)
    model, policies = road(), tables(POLICIES, road())
    evidence = evidence_of(model, causal_model="any")
    left_out = "without the guaranteed band, which is too large for the engine"
    assert derive_again(evidence, model, policies, derivers=[REFEREE]) == ([], "referee", (left_out, HELP))
    wrong = replace(evidence, verdict=replace(evidence.verdict, effect=0.25))
    assert any("verdict.effect" in each for each in derive_again(wrong, model, policies, derivers=[REFEREE]).problems)


def test_a_band_that_is_too_large_for_the_referee_is_derived_by_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies = road(), tables(POLICIES, road())
    evidence = evidence_of(model, causal_model="any")
    monkeypatch.setattr("monitor.referee.guaranteed.LIMIT", 1)
    help_with = "and by the engine the guaranteed band, which is too large for the referee"
    assert derive_again(evidence, model, policies, derivers=[REFEREE]) == ([], "referee", (help_with, HELP))
    forged = replace(evidence, verdict=replace(evidence.verdict, guaranteed=(0.5, 0.6), effect=0.25))
    problems = derive_again(forged, model, policies, derivers=[REFEREE]).problems
    places = [problem.partition(":")[0] for problem in problems]
    assert places == ["verdict.effect", "verdict.guaranteed[0]", "verdict.guaranteed[1]"]


def test_a_credible_band_alone_needs_the_engine() -> None:
    model = road()
    derived = derive_again(evidence_of(model), model, tables(POLICIES, model), derivers=[REFEREE])
    assert derived == ([], "referee", (HELP,))


@pytest.mark.parametrize("bands", ["auto", "off"])
def test_evidence_has_the_error_rate_of_its_guaranteed_band(bands: BandsWhen) -> None:
    model = road()
    usual, strict = (evidence_of(model, causal_model="any", bands=bands, delta=rate) for rate in (0.05, 1e-6))
    assert (usual.verdict.bands.delta, strict.verdict.bands.delta) == (0.05, 1e-6)
    narrow, wide = (evidence.verdict.quantities[0].guaranteed for evidence in (usual, strict))
    assert wide[0] < narrow[0] < narrow[1] <= wide[1]
    policies = tables(POLICIES, model)
    assert not rederive(strict, model, policies)
    forged = replace(strict, verdict=replace(strict.verdict, bands=replace(strict.verdict.bands, delta=0.05)))
    assert any("guaranteed" in problem for problem in rederive(forged, model, policies))


def test_an_error_rate_outside_its_range_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"bands\.delta must lie strictly between 0 and 1, not 1"):
        Monitor(road(), POLICIES, [spec()], bands=BandSettings(delta=1.0))


@pytest.mark.parametrize("more", [{"bands": "off"}, {"bands": "off", "causal_model": "any"}])
def test_evidence_without_a_credible_band_is_derived_without_one(more: dict[str, Any]) -> None:
    model = road()
    evidence = evidence_of(model, **more)
    assert evidence.verdict.credible is None
    assert not rederive(evidence, model, tables(POLICIES, model))


# ---- newer data ----


def test_a_monitor_of_a_model_with_more_data_takes_up_the_path_with_narrower_bands() -> None:
    watched = spec(causal_model="any", bands="always")
    before = Stream(road(), watched)
    before.step()
    (old,) = of(Judged, before.step())
    after = Stream(road(50), watched)
    after.monitor.load(before.monitor.save(everything=True))
    after.seq = before.seq
    (new,) = of(Judged, after.step())
    expected = check(TEXT, model=road(50), path=[(ROAD, WALK)] * 3, policies=POLICIES, causal_model="any", bands=DRAWS)
    assert new.verdict == expected
    for band in ("credible", "guaranteed"):
        wide, narrow = (getattr(judged.verdict.quantities[0], band) for judged in (old, new))
        assert narrow[1] - narrow[0] < wide[1] - wide[0]
    assert (old.verdict.support, new.verdict.support) == (10, 500)


# ---- alerts and metrics ----


def alert_of(model: MDP, *specs: FormulaSpec) -> Alert:
    stream = Stream(model, *specs)
    return of(Alert, [notice for _ in range(2) for notice in stream.step()])[-1]


def published(alert: Alert, model: MDP) -> dict[str, Any]:
    payload = alert_payload(alert, identity_of(model, tables(POLICIES, model), {}), sent=0.0, evidence=None)
    return dict(json.loads(payload))


def test_an_alert_has_the_bands_of_both_values() -> None:
    alert = alert_of(road(), spec(causal_model="any"))
    bands = published(alert, road())["bands"]
    assert isinstance(bands, dict)
    nominal, alternative = alert.verdict.quantities
    assert bands["value"] == {
        "credible": list(nominal.credible or ()),
        "guaranteed": list(nominal.guaranteed or ()),
        "support": nominal.support,
    }
    assert bands["alternative"]["credible"] == list(alternative.credible or ())
    assert bands["effect_credible"] == list(alert.verdict.effect_credible or ())
    assert bands["to_visit"] == [list(pair) for pair in alert.verdict.to_visit]
    assert (bands["draws"], bands["seed"], bands["level"], bands["delta"], bands["reason"]) == (39, 3, 0.95, 0.05, "")


def test_an_alert_of_several_quantities_has_the_smallest_support() -> None:
    several = spec('P>=0.99 [ G<=3 !"bad" ] & P>=0.1 [ G<=3 !"home" ]')
    alert = alert_of(road(), several)
    bands = published(alert, road())["bands"]
    assert isinstance(bands, dict)
    assert (bands["value"], bands["alternative"], bands["support"]) == (None, None, 1)  # the ditch
    assert alert.details[-1] == "The model rests on at least 1 visit."


def test_a_newer_verdict_replaces_the_bands_and_one_without_removes_them() -> None:
    alert = alert_of(road(), spec())
    first = published(alert, road())
    assert "bands" in first
    without = replace(alert, verdict=replace(alert.verdict, bands=None))
    assert "bands" not in refreshed_payload(first, without)
    assert refreshed_payload(refreshed_payload(first, without), alert)["bands"] == first["bands"]
    assert "bands" not in published(without, road())


def test_sentences_say_what_the_answer_rests_on() -> None:
    few, many = (alert_of(road(times), spec(BAD, causal_model="any")) for times in (1, 200))
    assert few.summary.endswith("The data guarantee nothing yet.")
    assert few.details[-1] == (
        "The model rests on at least 10 visits; credible band (95 %) 0.15 to 1.00; the data guarantee nothing yet "
        "(cfmon check --visits says what to record)."
    )
    assert many.summary.endswith("The finding is guaranteed at 95 %.")
    assert many.details[-1].endswith("guaranteed 0.66 to 0.80; robust.")
    assert not any("ausal models disagree" in sentence for sentence in (few.summary, *few.details))
    assert alert_of(road(), spec(BAD, bands="off")).details == ()
