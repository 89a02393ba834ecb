"""Evidence of a sampled verdict: its noise and its strength are those of its place on its stream."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from monitor.alarm.message import Identity
from monitor.evaluation import check, on_stream
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.rederivation import REFEREE, Rederivation, derive_again
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.types import AlarmSpec, Drawn, Sampling
from tests.alarm.conftest import RUN, Raise
from tests.evidence.rederived import make_evidence, rederive

TEXT = 'P>=0.99 [ X !"crash" ]'
PATH = ((0, RUN), (1, RUN))
FIRST, SEQ = 4, 5
SAMPLING = Sampling(seed=7, alpha=0.1, beta=0.05, delta=0.1)
Tables = dict[str, PolicyTable]


def placed(alarm: AlarmSpec) -> Drawn:
    return on_stream(SAMPLING, alarm, stream=("robot-7", "monday", "watch"), seq=SEQ, first=FIRST, test=2)


def sampled(alarm: AlarmSpec, raise_alert: Raise, road: MDP, tables: Tables, identity: Identity) -> Evidence:
    alert = raise_alert(TEXT, PATH, causal_model="gumbel", first=FIRST)
    verdict = check(
        TEXT, model=road, path=PATH, policies=tables, engine="sampled", drawn=placed(alarm), start_observed=False
    )
    assert verdict.quantities[0].samples
    return read_evidence(make_evidence(replace(alert, verdict=verdict), identity, tables, {}))


@pytest.fixture(scope="module")
def evidence(raise_alert: Raise, road: MDP, tables: Tables, identity: Identity) -> Evidence:
    return sampled(AlarmSpec(), raise_alert, road, tables, identity)


def drawn_of(evidence: Evidence) -> Drawn:
    assert evidence.verdict.drawn is not None
    return evidence.verdict.drawn


def otherwise(evidence: Evidence, drawn: Drawn) -> Evidence:
    return replace(evidence, verdict=replace(evidence.verdict, drawn=drawn))


def test_it_is_drawn_again_whichever_answer_the_alarm_fires_on(
    raise_alert: Raise, road: MDP, tables: Tables, identity: Identity
) -> None:
    for alarm in (AlarmSpec(when="fails"), AlarmSpec(when="holds")):
        evidence = sampled(alarm, raise_alert, road, tables, identity)
        assert derive_again(evidence, road, tables) == Rederivation([], "engine")


def test_what_quotes_the_refusal_of_the_exact_engine_is_no_disagreement(
    evidence: Evidence, content: bytes, road: MDP, tables: Tables
) -> None:
    def quoting(one: Evidence) -> Evidence:
        return replace(one, verdict=replace(one.verdict, reason="too large"))

    assert rederive(quoting(evidence), road, tables) == []
    (told,) = rederive(quoting(read_evidence(content)), road, tables)  # an exact one has nothing to quote
    assert told.startswith("verdict.reason: 'too large' is recorded")


def test_it_is_not_for_the_referee(evidence: Evidence, road: MDP, tables: Tables) -> None:
    problem = "a sampled verdict has to be drawn again, with the noise it was drawn with"
    found = derive_again(evidence, road, tables, derivers=[REFEREE])
    assert (found.by, found.notes) == (None, (f"not by the referee: {problem}",))


def test_noise_and_strength_of_another_place_are_found(evidence: Evidence) -> None:
    drawn, fails = drawn_of(evidence), placed(AlarmSpec(when="fails"))
    assert fails.alpha != fails.beta
    assert contradictions(evidence) == []
    for changed, told in (
        (
            replace(drawn, seed=drawn.seed + 1),
            f"verdict.drawn.seed: {drawn.seed + 1} is recorded, {fails.seed} follows",
        ),
        (replace(drawn, first=FIRST + 1), f"verdict.drawn.first: {FIRST + 1} is recorded, {FIRST} follows"),
        (replace(drawn, alpha=0.5), f"verdict.drawn.alpha: 0.5 is recorded, {fails.alpha!r} follows"),
    ):
        assert contradictions(otherwise(evidence, changed)) == [told]


def test_a_place_that_no_stream_has_is_found(evidence: Evidence) -> None:
    (told,) = contradictions(otherwise(evidence, replace(drawn_of(evidence), test=-1)))
    assert told.startswith("verdict.drawn: ")
