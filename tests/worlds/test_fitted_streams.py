"""Streams on a learned world with numbers that was fitted to resamples too: which verdicts have bands, evidence."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from monitor import Monitor, check, load_world
from monitor.alarm.message import alert_payload, identity_of
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.types import Alert, BandsWhen, FormulaSpec, Instant, Judged, Notice, Observation, StreamSettings
from monitor.worlds.world_policies import as_world_policy
from tests.evidence.rederived import make_evidence
from tests.tiers import heavy
from tests.worlds.samples import Basin
from tests.worlds.test_fit_bands import PATH, POLICIES, basin

NEAR, FAR = (f'regret(careful@2, P>=0.9 [ G<={steps} !"overflow" ])' for steps in (2, 8))
LEVELS = [*(state[0] for state, _ in PATH), 8.6]


def followed(world: Any, **more: Any) -> list[Notice]:
    settings = StreamSettings(encoder="features", window=8)
    watching = Monitor(world, POLICIES, [FormulaSpec("watch", **more)], settings)
    notices: list[Notice] = []
    for seq, level in enumerate(LEVELS):
        now = Instant(1000.0 + seq, float(seq))
        step = Observation("ada", "e", seq, (level,), "shut", time=now.wall)
        notices += [*watching.observe(step, now), *watching.evaluate(now)]
    return notices


def verdicts(notices: list[Notice]) -> list[Judged]:
    return [notice for notice in notices if isinstance(notice, Judged)]


@heavy
@pytest.mark.parametrize("text", [NEAR, FAR])
def test_a_bad_verdict_has_the_band_of_monitor_check(text: str) -> None:
    last = verdicts(followed(basin(), text=text))[-1].verdict
    path = [((level,), 0) for level in LEVELS]
    again = check(text, model=basin(), path=path, policies=POLICIES, drawn=last.drawn, recourse=False)
    assert last.credible is not None
    assert again == replace(last, recourse=None)


@pytest.mark.parametrize(
    ("bands", "banded"),
    [("auto", {"regret", "unavoidable"}), ("always", {"safe", "regret", "unavoidable"}), ("off", set())],
)
def test_which_verdicts_have_one(bands: BandsWhen, banded: set[str]) -> None:
    found = [each.verdict for each in verdicts(followed(basin(), text=NEAR, bands=bands))]
    assert {each.outcome for each in found} == {"safe", "regret"}
    for verdict in found:
        assert (verdict.bands is not None) == (verdict.outcome in banded)


def test_a_world_without_fits_has_none() -> None:
    found = verdicts(followed(Basin(0.93, 1.5, 0.3), text=NEAR, bands="always"))
    assert {each.verdict.bands for each in found} == {None}


class Raised:
    """An alarm and its evidence."""

    def __init__(self, text: str) -> None:
        self.world = load_world(basin())
        self.policies = {name: as_world_policy(name, policy, self.world) for name, policy in POLICIES.items()}
        self.alert = next(each for each in followed(self.world, text=text) if isinstance(each, Alert))
        self.identity = identity_of(self.world, self.policies, {})
        self.evidence = read_evidence(make_evidence(self.alert, self.identity, self.policies, {}))


@pytest.fixture(params=[NEAR, FAR], ids=["exact", "sampled"])
def raised(request: pytest.FixtureRequest) -> Raised:
    return Raised(request.param)


@heavy
@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=["engine", "referee"])
def test_evidence_is_derived_again_with_its_band(raised: Raised, deriver: Any) -> None:
    found = derive_again(raised.evidence, raised.world, raised.policies, {}, [deriver])
    assert raised.evidence.verdict.credible is not None
    assert (found.problems, found.by) == ([], deriver.name)


@heavy
@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=["engine", "referee"])
def test_a_band_that_does_not_follow_is_found(raised: Raised, deriver: Any) -> None:
    verdict = raised.evidence.verdict
    own, other = verdict.quantities
    assert own.credible is not None
    moved = replace(own, credible=(own.credible[0] - 1e-6, own.credible[1]))
    assert verdict.bands is not None
    for altered in (
        replace(verdict, quantities=(moved, other)),
        replace(verdict, effect_credible=(0.1, 0.2)),
        replace(verdict, bands=replace(verdict.bands, fits=17)),
        replace(verdict, bands=replace(verdict.bands, level=0.95)),
    ):
        evidence = replace(raised.evidence, verdict=altered)
        problems = derive_again(evidence, raised.world, raised.policies, {}, [deriver]).problems
        assert any("credible" in problem or "bands" in problem for problem in problems)


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=["engine", "referee"])
def test_quantities_that_are_left_out_and_a_level_that_is_none_are_problems(raised: Raised, deriver: Any) -> None:
    verdict = raised.evidence.verdict
    assert verdict.bands is not None
    for altered in (
        replace(verdict, quantities=()),
        replace(verdict, bands=replace(verdict.bands, level=float("nan"))),
    ):
        evidence = replace(raised.evidence, verdict=altered)
        assert derive_again(evidence, raised.world, raised.policies, {}, [deriver]).problems


@heavy
def test_the_alert_says_what_the_recordings_leave_open(raised: Raised) -> None:
    assert " Estimated" in raised.alert.summary
    assert "Credible band (88.24 %) 0.00 to 0.00." in raised.alert.details
    message = alert_payload(raised.alert, raised.identity, sent=0.0, evidence=None)
    assert b'"fits":16' in message
