"""Whether a missed goal could have been met: the sentences word for word, the message, and the evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import pytest
from msgspec.structs import replace

from monitor.alarm.message import Identity, alert_payload, refreshed_payload
from monitor.alarm.recourse_sentences import alert_recourse
from monitor.errors import EvidenceError
from monitor.evidence.canonical import plain
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.types import Alert, Avoidable, Changes, Quantity, Recourse, Verdict
from tests.alarm.conftest import RUN, WALK
from tests.alarm.test_summary import GOAL, regretted, say
from tests.evidence.rederived import make_evidence
from tests.evidence.test_rederivation import altered, packed

Tables = Mapping[str, PolicyTable]

BRAKE = Changes(1, 0.97, 2, 8, 1, 3, "accelerate", "brake")
BRAKED = "brake instead of accelerate at step 12"
ALONE = "with no other decision changed, would have given 0.97"
UNNAMED = replace(BRAKE, taken_name="", proposed_name="")


WORDS = (("brake", "slow down"), ("3", "do nothing"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [(BRAKE, "'slow down' instead of accelerate at"), (UNNAMED, "'do nothing' instead of action 1 at")],
)
def test_an_action_is_named_by_the_words_of_the_configuration(changes: Changes, said: str) -> None:
    recourse = Recourse("foresight", best=0.99, optimal=0.96, changes=changes)
    assert f"In hindsight, {said} step 12" in told(recourse, actions=WORDS)
    message = alert_recourse(recourse, 14, WORDS)
    assert message is not None
    assert message.changes is not None
    names = {message.changes.taken_name, message.changes.proposed_name}
    assert names == ({"accelerate", "slow down"} if changes is BRAKE else {"", "do nothing"})


def told(recourse: Recourse, text: str = f"regret(c@5, {GOAL})", **more: Any) -> str:  # noqa: ANN401 - of `say`
    """Return what follows the counterfactual; the newest step is 14."""
    fields = more.pop("fields", {})
    return say(text, regretted("regret", recourse=recourse, **fields), **more).partition("Had 'c' taken over ")[2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (BRAKE, f"{BRAKED} (2 steps ago), {ALONE}"),
        (UNNAMED, f"action 3 instead of action 1 at step 12 (2 steps ago), {ALONE}"),
        (replace(BRAKE, offset=0, taken=None), f"brake at step 14, {ALONE}"),
        (
            replace(BRAKE, count=2, value=0.8004),
            f"2 other decisions together would have given 0.8004, the first: {BRAKED} (2 steps ago)",
        ),
    ],
)
def test_a_changed_decision_is_named_with_its_step(changes: Changes, sentence: str) -> None:
    recourse = Recourse("foresight", best=0.99, optimal=0.96, changes=changes)
    assert told(recourse) == (
        f"5 steps ago: 0.93. In hindsight, {sentence}. "
        "Even without hindsight, acting optimally from step 9 on would have met the goal: 0.96"
    )


@pytest.mark.parametrize(
    ("avoidable", "sentence"),
    [
        ("foresight", "Even without hindsight, acting optimally from step 9 on would have met the goal: 0.7996"),
        (
            "hindsight",
            (
                "Only with knowledge of how it turned out could the goal have been met from step 9 on: 0.8004; acting "
                "optimally without it: 0.7996"
            ),
        ),
        ("no", "Nobody could have met the goal from step 9 on, even in hindsight: 0.8004 at best"),
    ],
)
@pytest.mark.parametrize(("robust", "unsure"), [(None, ""), (True, ""), (False, "; other causal models may disagree")])
def test_it_says_whether_the_goal_could_have_been_met(
    avoidable: Avoidable, sentence: str, *, robust: bool | None, unsure: str
) -> None:
    assert told(Recourse(avoidable, robust, 0.8004, 0.7996)) == f"5 steps ago: 0.93. {sentence}{unsure}"


def test_where_nothing_was_observed_since_nothing_is_known_in_hindsight() -> None:
    text, verdict = f"regret(c@0, {GOAL})", {"offset": 0, "profile": {0: (0.61, 0.70)}}
    could = Recourse("foresight", best=0.96, optimal=0.96, changes=replace(BRAKE, offset=0))
    said = say(text, regretted("unavoidable", 0.61, 0.70, recourse=could, **verdict))
    assert said.endswith(
        "Brake instead of accelerate at step 14, with no other decision changed, would have given 0.97. "
        "Acting optimally from step 14 on would have met the goal: 0.96"
    )
    fated = Recourse("no", best=0.7, optimal=0.7)
    said = say(text, regretted("unavoidable", 0.61, 0.70, recourse=fated, **verdict))
    assert said.endswith("Nobody could have met the goal from step 14 on: 0.70 at best")
    assert "hindsight" not in said


@pytest.mark.parametrize(
    ("world", "offset", "pairs", "since"),
    [
        ("c@-1", -1, 9, "from step 6 on"),
        ("c@-1", -1, 0, "from the episode's start on"),
        ("c@-3", -3, 0, "from 2 steps after the episode's start on"),
        ("c@9", 5, 6, "from step 9 on"),
    ],
)
def test_the_step_from_which_nobody_could_have_helped_is_that_of_the_formula(
    world: str, offset: int, pairs: int, since: str
) -> None:
    clipped = {"offset": offset, "clipped": world == "c@9"}
    said = told(Recourse("no", best=0.5, optimal=0.4), f"regret({world}, {GOAL})", fields=clipped, pairs=pairs)
    assert said.endswith(f"Nobody could have met the goal {since}, even in hindsight: 0.50 at best")


def test_the_first_line_still_says_what_happened_and_what_to_do_now() -> None:
    recourse = Recourse("hindsight", best=0.99, optimal=0.7, changes=BRAKE)
    verdict = regretted("regret", profile={0: (0.60, 0.90)}, latest_useful=0, recourse=recourse)
    first = say(f"regret(c@5, {GOAL})", verdict).partition(" Had ")[0]
    without = say(f"regret(c@5, {GOAL})", replace(verdict, recourse=None)).partition(" Had ")[0]
    assert first == without
    assert len(first) < 200
    assert "brake" not in first


@pytest.mark.parametrize("state", ["firing", "fired", "ended", "clear"])
def test_steps_keep_their_numbers_in_every_state(state: Any) -> None:  # noqa: ANN401 - a state
    recourse = Recourse("foresight", best=0.99, optimal=0.96, changes=BRAKE)
    said = say(f"regret(c@5, {GOAL})", regretted("unavoidable", recourse=recourse), state=state, blind=None)
    ago = "before" if state == "fired" else "ago"
    assert f"{BRAKED} (2 steps {ago}), {ALONE}" in said


def test_while_blind_it_is_about_the_last_known_verdict() -> None:
    recourse = Recourse("no", best=0.5, optimal=0.4)
    said = say(f"regret(c@5, {GOAL})", regretted("regret", recourse=recourse), blind="gap")
    assert said.startswith("BLIND (gap), last known: ")
    assert "Nobody could have met the goal from step 9 on" in said


def test_nothing_is_said_of_what_is_not_known() -> None:
    silent = say(f"regret(c@5, {GOAL})", regretted("regret"))
    assert say(f"regret(c@5, {GOAL})", regretted("regret", recourse=Recourse(reason="too large"))) == silent
    plain_verdict = Verdict("watch", "exact", "gumbel", (Quantity("q", 0.5, 0, clipped=False),), holds=False)
    assert "goal" not in say(GOAL, plain_verdict)


# ---- the message ----


@pytest.fixture(scope="module")
def ran(raise_alert: Callable[..., Alert]) -> Alert:
    """Running crashed; one step of walking would have avoided it."""
    path = ((0, RUN), (1, RUN), (4, RUN))
    return raise_alert('regret(careful@2, P>=0.5 [ G<=2 !"crash" ])', path, first=9)


def test_the_alert_has_the_answer_and_the_step_of_the_first_change(ran: Alert, identity: Identity) -> None:
    published = json.loads(alert_payload(ran, identity, sent=5.0, evidence=None))["recourse"]
    found = ran.verdict.recourse
    assert found is not None
    assert found.changes is not None
    assert published == {
        "avoidable": "foresight",
        "robust": found.robust,
        "best": found.best,
        "optimal": found.optimal,
        "changes": {
            "count": 1,
            "value": found.changes.value,
            "seq": 10,
            "offset": 1,
            "state": 1,
            "taken": RUN,
            "taken_name": "",
            "proposed": WALK,
            "proposed_name": "",
        },
        "reason": "",
    }
    assert "action 0 instead of action 1 at step 10" in " ".join(ran.details)


def test_a_newer_verdict_replaces_the_answer_and_one_on_a_met_goal_removes_it(ran: Alert, identity: Identity) -> None:
    published = json.loads(alert_payload(ran, identity, sent=5.0, evidence=None))
    later = refreshed_payload(published, replace(ran, seq=20))
    assert isinstance(later["recourse"], dict)
    assert later["recourse"]["changes"]["seq"] == 19
    met = refreshed_payload(published, replace(ran, verdict=replace(ran.verdict, recourse=None)))
    assert "recourse" not in met
    assert refreshed_payload(met, ran) == published


# ---- the evidence ----


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE])
def test_an_altered_answer_is_found(ran: Alert, road: MDP, identity: Identity, tables: Tables, deriver: Any) -> None:  # noqa: ANN401 - a program
    document = msgpack.unpackb(make_evidence(ran, identity, tables, {}))
    assert derive_again(read_evidence(packed(document)), road, tables, derivers=[deriver]).problems == []
    recourse = document["verdict"]["recourse"]
    others = {
        ("avoidable",): "hindsight",
        ("robust",): not recourse["robust"],
        ("best",): recourse["best"] + 0.01,
        ("optimal",): recourse["optimal"] - 0.01,
        ("reason",): "too large",
        ("changes", "count"): 2,
        ("changes", "value"): 0.6,
        ("changes", "offset"): 2,
        ("changes", "state"): 0,
        ("changes", "taken"): WALK,
        ("changes", "proposed"): RUN,
        ("changes", "taken_name"): "walk",
        ("changes", "proposed_name"): "run",
        ("changes",): None,
    }
    leaves = {(name,) for name in recourse} - {("changes",)} | {("changes", name) for name in recourse["changes"]}
    assert leaves <= set(others)
    for place, value in others.items():
        evil = altered(document, ("verdict", "recourse", *place), set_to(value))
        (problem, *_) = derive_again(read_evidence(packed(evil)), road, tables, derivers=[deriver]).problems
        assert problem.startswith(f"verdict.recourse.{'.'.join(place)}: {value!r} is recorded"), place


def set_to(value: object) -> Callable[[object], object]:
    return lambda _: value


def test_what_the_engine_left_out_leaves_the_rest_to_the_referee(
    ran: Alert, road: MDP, identity: Identity, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.exact.best.values.MAX_NUMBERS", 10)
    reason = "the best decisions would need more than 10 numbers for 1 obligations, 6 ways to decide and 6 states"
    left = Recourse(
        reason=f"{reason} (limit MAX_NUMBERS); shorten the formula's intervals, or examine fewer decisions or changes"
    )
    content = make_evidence(replace(ran, verdict=replace(ran.verdict, recourse=left)), identity, tables, {})
    found = derive_again(read_evidence(content), road, tables, derivers=[REFEREE, ENGINE])
    assert (found.problems, found.by) == ([], "referee")
    assert found.notes == ("without whether the goal could have been met, which is too large for the engine",)
    wrong = replace(ran.verdict, recourse=left, effect=0.25)
    forged = make_evidence(replace(ran, verdict=wrong), identity, tables, {})
    (problem,) = derive_again(read_evidence(forged), road, tables, derivers=[REFEREE, ENGINE]).problems
    assert problem.startswith("verdict.effect: 0.25 is recorded")


def test_what_is_too_large_for_the_referee_is_derived_by_the_engine_and_the_rest_by_the_referee(
    ran: Alert, road: MDP, identity: Identity, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.referee.best.BEST_LIMIT", 1)
    assert ran.verdict.recourse is not None
    found = derive_again(read_evidence(make_evidence(ran, identity, tables, {})), road, tables, derivers=[REFEREE])
    assert found == (
        [],
        "referee",
        ("and by the engine whether the goal could have been met, which is too large for the referee",),
    )
    wrong = replace(ran.verdict, effect=0.25, recourse=replace(ran.verdict.recourse, best=0.5))
    forged = make_evidence(replace(ran, verdict=wrong), identity, tables, {})
    problems = derive_again(read_evidence(forged), road, tables, derivers=[REFEREE]).problems
    assert [problem.partition(":")[0] for problem in problems] == ["verdict.effect", "verdict.recourse.best"]


def test_evidence_of_a_goal_that_was_not_examined_has_no_such_field(
    ran: Alert, road: MDP, identity: Identity, tables: Tables
) -> None:
    alert = replace(ran, verdict=replace(ran.verdict, recourse=None))
    content = make_evidence(alert, identity, tables, {})
    assert "recourse" not in msgpack.unpackb(content)["verdict"]
    for deriver in (ENGINE, REFEREE):
        assert derive_again(read_evidence(content), road, tables, derivers=[deriver]).problems == []
    document = msgpack.unpackb(content)
    document["verdict"]["recourse"] = None
    with pytest.raises(EvidenceError, match="not in canonical form"):
        read_evidence(msgpack.packb(plain(_signed(document))))


def _signed(document: dict[str, Any]) -> dict[str, Any]:
    return dict(msgpack.unpackb(packed(document)))
