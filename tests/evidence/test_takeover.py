"""Evidence of a judged takeover: it follows from path, model and policies, and what contradicts it is found."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from monitor.alarm.message import alert_id, identity_of
from monitor.alarm.takeover import outcome_of, takeover_text
from monitor.evidence.audit import audit
from monitor.evidence.canonical import plain
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence, TakeoverEvidence, pack_evidence, read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.evidence.verification import examine
from monitor.policy.table import PolicyTable, as_table
from monitor.types import FormulaSpec, TakenOver
from tests.evidence.rederived import make_evidence
from tests.runtime.test_takeovers import POLICIES, ROAD, SAFE, Stream, road

MODEL = road()
TABLES = {name: as_table(actions, MODEL) for name, actions in POLICIES.items()}
IDENTITY = identity_of(MODEL, TABLES, {})
BOTH: dict[str, PolicyTable] = {**TABLES, "deployed": TABLES["nominal"]}


def taken(text: str = SAFE, *policies: str, **more: Any) -> TakenOver:  # noqa: ANN401 - settings of a formula
    """The judgement of a takeover by `careful` that hands back after a step, unless the policies are given."""
    stream = Stream(MODEL, [FormulaSpec("watch", text, **more)])
    for policy in policies or ("nominal", "careful", "nominal", "careful"):
        stream.send(policy, ROAD)
    [notice] = stream.taken
    return notice


def evidence(notice: TakenOver | None = None) -> Evidence:
    return read_evidence(make_evidence(notice or taken(), IDENTITY, TABLES, {}))


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda deriver: deriver.name)
@pytest.mark.parametrize("causal_model", ["gumbel", "any", "stable"])
def test_both_programs_derive_it_again(deriver: Any, causal_model: str) -> None:  # noqa: ANN401 - a named tuple
    document = evidence(taken(causal_model=causal_model))
    found = derive_again(document, MODEL, BOTH, {}, [deriver])
    assert (found.problems, found.by) == ([], deriver.name)
    assert document.takeover == TakeoverEvidence("careful", "needed")
    assert document.acted == ("careful", "nominal", "careful")
    assert (document.first_seq, document.seq) == (1, 3)


def test_the_evidence_of_an_alarm_has_nothing_of_it() -> None:
    document = evidence()
    alarm = replace(document, takeover=None, acted=())
    assert {"takeover", "acted"} <= set(plain(document))
    assert not {"takeover", "acted"} & set(plain(alarm))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"acted": ("careful",)}, "acted: entries for 1 pairs are recorded, and the path has 3"),
        ({"acted": ("careful", "who", "careful")}, "acted: there is no policy 'who' in the evidence"),
        ({"acted": ("nominal", "nominal", "careful")}, "takeover.policy: careful is recorded, which does not act"),
        (
            {"takeover": TakeoverEvidence("careful", "futile")},
            "takeover.outcome: futile is recorded, needed follows from the verdict",
        ),
        ({"takeover": TakeoverEvidence("nominal", "needed")}, "takeover.policy: nominal is recorded"),
    ],
)
def test_what_contradicts_itself_is_found(changes: dict[str, Any], problem: str) -> None:
    [found] = contradictions(replace(evidence(), **changes))
    assert found.startswith(problem)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("deployed", "careful"),
        lambda text: text.replace("@2", "@1"),
        lambda text: text.replace("0.5", "0.6", 1),
        lambda text: text.partition(" & ")[0],
    ],
)
def test_another_formula_is_not_that_of_a_judgement(change: Any) -> None:  # noqa: ANN401 - a function of the text
    document = evidence()
    text = change(document.text)
    policies = {name: policy.sha256 for name, policy in document.policies.items()}
    identity = replace(IDENTITY, policies=policies)
    spec = FormulaSpec(document.formula, text)
    alert = alert_id(document.agent, document.episode, spec, identity, document.first_seq)
    assert contradictions(replace(document, text=text, alert=alert)) == [
        "text: not what happened and what the deployed policy would have done, from the takeover on"
    ]


def test_an_undecided_takeover_has_no_evidence() -> None:
    document = evidence()
    undecided = replace(document.verdict, quantities=())
    crafted = replace(document, verdict=undecided, takeover=TakeoverEvidence("careful", "undecided"))
    assert contradictions(crafted) == [
        "takeover.outcome: undecided is recorded, and an undecided takeover has no evidence"
    ]


def test_a_text_that_is_no_formula_is_found() -> None:
    document = evidence()
    identity = replace(IDENTITY, policies={name: policy.sha256 for name, policy in document.policies.items()})
    spec = FormulaSpec(document.formula, "(((")
    alert = alert_id(document.agent, document.episode, spec, identity, document.first_seq)
    crafted = replace(document, text="(((", alert=alert)
    [found] = contradictions(crafted)
    assert found.startswith("text: not a formula: ")
    report = examine(pack_evidence(crafted), lambda sha256: pytest.fail(f"{sha256} is opened"))
    assert report.problems == (found,)


def test_a_takeover_that_begins_elsewhere_is_found() -> None:
    document = evidence()
    policies = {name: policy.sha256 for name, policy in document.policies.items()}
    spec = FormulaSpec(document.formula, document.text)
    alert = alert_id(document.agent, document.episode, spec, replace(IDENTITY, policies=policies), 2)
    assert contradictions(replace(document, first_seq=2, alert=alert)) == [
        "first_seq: 2 is recorded, but the path begins at 1"
    ]


def test_numbers_that_do_not_follow_are_found() -> None:
    document = evidence()
    happened, gone_on = document.verdict.quantities
    wrong = replace(document.verdict, quantities=(happened, replace(gone_on, value=0.25)))
    for deriver in (ENGINE, REFEREE):
        found = derive_again(replace(document, verdict=wrong), MODEL, BOTH, {}, [deriver])
        assert [problem.partition(":")[0] for problem in found.problems] == ["verdict.quantities[1].value"]


def test_who_acted_is_part_of_what_follows() -> None:
    """With stochastic policies another actor has other noise, so other numbers follow."""
    mixed = {"nominal": [[0.7, 0.3]] * 3, "careful": [[0.2, 0.8]] * 3}
    tables = {name: as_table(choices, MODEL) for name, choices in mixed.items()}
    stream = Stream(MODEL, [FormulaSpec("watch", SAFE)])
    monitor_tables = {**tables, "other": tables["careful"]}
    stream.make = lambda: type(stream.monitor)(MODEL, monitor_tables, stream.formulas, stream.settings)  # type: ignore[method-assign] # other policies
    stream.monitor = stream.make()
    for policy in ("nominal", "careful", "careful", "nominal"):
        stream.send(policy, ROAD)
    [notice] = stream.taken
    identity = identity_of(MODEL, tables, {})
    document = read_evidence(make_evidence(notice, identity, tables, {}))
    both = {**tables, "deployed": tables["nominal"]}
    for deriver in (ENGINE, REFEREE):
        assert derive_again(document, MODEL, both, {}, [deriver]).problems == []
        other = replace(document, acted=("careful", "nominal", "nominal"))
        assert derive_again(other, MODEL, both, {}, [deriver]).problems != []


def test_a_deployed_policy_has_a_name_that_no_other_has() -> None:
    tables = {**TABLES, "deployed": TABLES["careful"]}
    identity = identity_of(MODEL, tables, {})
    stream = Stream(MODEL, [FormulaSpec("watch", SAFE)])
    stream.make = lambda: type(stream.monitor)(MODEL, tables, stream.formulas, stream.settings)  # type: ignore[method-assign] # other policies
    stream.monitor = stream.make()
    for policy in ("nominal", "careful", "careful", "careful"):
        stream.send(policy, ROAD)
    [notice] = stream.taken
    document = read_evidence(make_evidence(notice, identity, tables, {}))
    assert "deployed_@2." in document.text
    assert contradictions(document) == []
    assert derive_again(document, MODEL, {**tables, "deployed_": tables["nominal"]}, {}).problems == []


def test_the_sentence_says_what_happened_and_what_would_have() -> None:
    notice = taken()
    assert notice.verdict is not None
    assert outcome_of(notice.verdict) == "needed"
    assert takeover_text(notice) == (
        "ada: the takeover by 'careful' at step 1 of 'e' was needed for watch: the goal was met; the deployed policy "
        "would have missed it (0.11; at least 0.50 required)"
    )
    lost = replace(notice, outcome="undecided", verdict=None, reason="the path broke")
    assert takeover_text(lost) == (
        "ada: the takeover by 'careful' at step 1 of 'e' is not judged by watch: the path broke"
    )


def test_the_sentence_has_enough_digits_and_the_direction_of_the_bound() -> None:
    close = taken(SAFE.replace("0.5", "0.1106")), taken('regret(careful@0, P<=0.89 [ F<=2 "ditch" ])')
    assert [takeover_text(notice).partition("the deployed policy ")[2] for notice in close] == [
        "would have missed it (0.110; at least 0.111 required)",
        "would have met it (0.8895; at most 0.8900 required)",
    ]


def test_the_audit_keeps_formulas_apart() -> None:
    first, second = taken(causal_model="any"), taken("regret(careful@0, R<=1 [ C<=1 ])")
    documents = [evidence(first), evidence(replace(first, first_seq=1)), evidence(replace(second, formula="cost"))]
    cost, watch = audit(documents)
    assert first.verdict is not None
    assert second.verdict is not None
    value = first.verdict.quantities[1].value
    assert (watch.formula, watch.policy, watch.takeovers) == ("watch", "careful", 2)
    assert watch.outcomes == {"needed": 2, "needless": 0, "harmful": 0, "futile": 0}
    assert (watch.happened, watch.robust) == (2.0, 2)
    assert watch.deployed == pytest.approx(2 * value)
    assert watch.deviation == pytest.approx((2 * value * (1 - value)) ** 0.5)
    assert (cost.formula, cost.robust, cost.deviation) == ("cost", None, None)
    assert cost.deployed == pytest.approx(second.verdict.quantities[1].value)
    assert audit([replace(documents[0], takeover=None)]) == []


def test_the_audit_keeps_goals_of_one_name_and_their_causal_models_apart() -> None:
    notices = taken(), taken(SAFE.replace("0.5", "0.6")), taken(causal_model="any")
    rows = audit([evidence(notice) for notice in notices])
    assert [(row.formula, row.goal, row.causal_model, row.takeovers) for row in rows] == [
        ("watch", 'P>=0.5 [ G<=2 !"ditch" ]', "any", 1),
        ("watch", 'P>=0.5 [ G<=2 !"ditch" ]', "gumbel", 1),
        ("watch", 'P>=0.6 [ G<=2 !"ditch" ]', "gumbel", 1),
    ]


def test_an_alarm_with_an_unknown_policy_on_its_path_is_found_too() -> None:
    document = replace(evidence(), takeover=None)
    assert contradictions(document) == []
    wrong = replace(document, acted=("careful", "who", "careful"))
    assert contradictions(wrong) == ["acted: there is no policy 'who' in the evidence"]
