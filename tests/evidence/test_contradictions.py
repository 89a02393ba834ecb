"""Where the first bad verdict can lie, what is given besides the model, and states that the model does not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from msgspec.structs import replace

from monitor.alarm.message import Identity, alert_id
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.rederivation import Derived, Deriver, derive_again
from monitor.model.mdp import MDP
from monitor.model.npz import model_sha256
from monitor.policy.table import PolicyTable
from monitor.types import Alert, FormulaSpec
from tests.evidence.rederived import make_evidence, rederive

Tables = dict[str, PolicyTable]


def test_the_first_bad_verdict_is_within_the_episode(content: bytes) -> None:
    evidence = read_evidence(content)
    assert evidence.seq == 3

    def told(first_seq: int, *, start_observed: bool) -> list[str]:
        moved = replace(evidence, first_seq=first_seq, start_observed=start_observed)
        return [problem for problem in contradictions(moved) if problem.startswith("first_seq: ")]

    for first_seq in (0, 3):
        assert told(first_seq, start_observed=True) == []
    for first_seq in (-1, 4):
        problem = f"first_seq: the first bad verdict is of step {first_seq}, which is not within 0..3"
        assert told(first_seq, start_observed=True) == [problem]
    assert told(-1, start_observed=False) == [
        "first_seq: the first bad verdict is of step -1, which is not within 0..3"
    ]
    assert told(4, start_observed=False) == []  # the agent may have started over


def test_a_state_that_no_model_has_is_one_problem(content: bytes, road: MDP, tables: Tables) -> None:
    evidence = read_evidence(content)
    (told,) = rederive(replace(evidence, path=((0, 1), (-1, 1), (1, 0), (2, 1))), road, tables)
    assert told.startswith("no verdict follows: pair 1")


def test_other_models_have_to_be_those_of_the_alarm(
    regret: Alert, identity: Identity, road: MDP, tables: Tables
) -> None:
    icy = dataclasses.replace(road, rewards=road.rewards + 1)
    both = replace(identity, models={"icy": model_sha256(icy)})
    formula = FormulaSpec(regret.formula, regret.text, causal_model="any")
    alert = replace(regret, id=alert_id("robot-7", "monday", formula, both, regret.first_seq))
    evidence = read_evidence(make_evidence(alert, both, tables, {}))
    assert rederive(evidence, road, tables, {"icy": icy}) == []
    assert rederive(evidence, road, tables) == [f"models.icy: {model_sha256(icy)!r} is recorded, None follows"]
    (told,) = rederive(evidence, road, tables, {"icy": road})
    assert told.endswith(f"is recorded, {model_sha256(road)!r} follows")
    (told,) = rederive(evidence, road, tables, {"icy": icy, "dry": road})
    assert told.startswith("models.dry: None is recorded")


def test_a_program_is_given_the_other_models(regret: Alert, identity: Identity, road: MDP, tables: Tables) -> None:
    given: list[Mapping[str, object]] = []

    def note(evidence: Evidence, model: object, policies: object, models: Mapping[str, object]) -> Derived:
        del model, policies
        given.append(models)
        return Derived([evidence.verdict])

    formula = FormulaSpec(regret.formula, regret.text, causal_model="any")
    both = replace(identity, models={"icy": model_sha256(road)})
    for names, models in ((identity, None), (both, {"icy": road})):
        alert = replace(regret, id=alert_id("robot-7", "monday", formula, names, regret.first_seq))
        evidence = read_evidence(make_evidence(alert, names, tables, {}))
        assert derive_again(evidence, road, tables, models, [Deriver("note", note)]).by == "note"
    assert given == [{}, {"icy": road}]
