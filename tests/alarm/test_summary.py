"""The sentence: each kind of alarm, state, offset and blindness, word for word."""

from __future__ import annotations

import re
from typing import Any, Literal, cast, get_args

import pytest
from msgspec.structs import replace

from monitor.alarm.blindness import BLIND_WORDS
from monitor.alarm.figures import figures_of
from monitor.alarm.phrases import departing_text
from monitor.alarm.summary import LONGEST, Told, tell
from monitor.logic import parse
from monitor.types import (
    AlarmSpec,
    AlarmState,
    Alert,
    Bands,
    BlindReason,
    CausalModel,
    Departing,
    Drawn,
    FormulaSpec,
    Outcome,
    Quantity,
    Sampling,
    TestName,
    Verdict,
)

GOAL = 'P>=0.8 [ G<=20 !"death" ]'
CHANCE = "P(no death in 20 steps)"
COUNTED = "P(no death in 20 steps, from 5 steps ago)"
NEED = "at least 0.80 required"
FOUND = f"{COUNTED} = 0.61; {NEED}"
MISSED = f"{CHANCE} = 0.60; {NEED}"
TOO_LITTLE = ", too little for 0.80"


def say(text: str, verdict: Verdict, **more: Any) -> str:  # noqa: ANN401 - of tell_all
    """Return all sentences, in their full length, without the agent and without how sure they are."""
    told = tell_all(text, verdict, **more)
    assert told.summary.startswith("ward-7: ")
    assert len(told.summary) <= LONGEST
    assert told.text.endswith(".")
    assert "\n" not in told.text
    full, *details = (
        told.details if told.details and told.details[0].startswith("In full: ") else (told.summary, *told.details)
    )
    said = full.removeprefix("In full: ").removeprefix("ward-7: ")
    return " ".join((SURE.sub("", said), *details)).removesuffix(".")


SURE = re.compile(
    r" (Exact for |Every |Not certain|The same |Sampled, |Estimated|Too few |The data |The finding )"
    r"[^.]*(0\.\d+)?( to 0\.\d+)?[^.]*\.$"
)


def tell_all(
    text: str,
    verdict: Verdict,
    *,
    state: AlarmState | Literal["fired"] = "firing",
    blind: BlindReason | None = None,
    pairs: int = 9,
    alarm: AlarmSpec | None = None,
    labels: tuple[tuple[str, str], ...] = (),
    actions: tuple[tuple[str, str], ...] = (),
    agent: str = "ward-7",
    name: str = "watch",
    worst: float | None = None,
) -> Told:
    return tell(
        seq=14,
        agent=agent,
        formula=FormulaSpec(name, text, alarm=alarm or AlarmSpec(), labels=labels, actions=actions),
        parsed=parse(text),
        state=state,
        blind=blind,
        verdict=verdict,
        path_length=pairs,
        worst=worst,
    )


def regretted(outcome: Outcome, nominal: float = 0.61, other: float = 0.93, **fields: Any) -> Verdict:  # noqa: ANN401 - of Verdict
    both = (Quantity("nominal", nominal, 5, clipped=False), Quantity("other", other, 5, clipped=False))
    return Verdict("watch", "exact", "gumbel", both, outcome=outcome, **{"offset": 5, **fields})


def plain(value: float, *, holds: bool = False, **fields: Any) -> Verdict:  # noqa: ANN401 - of Verdict
    quantity = Quantity("quantity", value, 0, clipped=False)
    return Verdict("watch", "exact", "gumbel", (quantity,), holds=holds, **fields)


RUNBOOK = "Follow the runbook"


def stop(who: str, given: str = "0.70", own: str = "0.60", lacks: str = ", too little") -> str:
    """The advice where handing over is better, and not good enough. `lacks`: for what, if there is room to say it."""
    do = who if " " in who else f"hand over to '{who}'"
    impossible = "that is impossible" if " for " in lacks else "impossible"
    return f"Stop the agent safely; if {impossible}, {do}: {given} instead of {own}{lacks}"


@pytest.mark.parametrize(
    ("outcome", "now", "latest", "advice"),
    [
        ("regret", (0.60, 0.90), 0, "Hand over to 'clinicians' now: 0.90 instead of 0.60"),
        ("unavoidable", (0.60, 0.90), 0, "Hand over to 'clinicians' now: 0.90 instead of 0.60"),
        ("regret", (0.60, 0.70), 2, stop("clinicians")),
        ("unavoidable", (0.60, 0.70), None, stop("clinicians")),
        ("regret", (0.81, 0.90), 2, "No need to act: without handing over to 'clinicians' it is 0.81 from now on"),
        ("regret", (0.81, 0.70), 2, "No need to act: without handing over to 'clinicians' it is 0.81 from now on"),
        ("regret", None, None, "It is not known whether handing over to 'clinicians' now would help"),
        ("undecided", None, None, "It is not known whether handing over to 'clinicians' now would help"),
    ],
)
def test_first_what_and_how_bad_then_what_to_do_then_what_would_have_been(
    outcome: Outcome, now: tuple[float, float] | None, latest: int | None, advice: str
) -> None:
    profile = {} if now is None else {0: now}
    verdict = regretted(outcome, profile=profile, latest_useful=latest)
    missed = now is not None and now[0] < 0.8
    found, had = MISSED if missed else FOUND, "Had 'clinicians' taken over 5 steps ago: 0.93"
    had += " instead of 0.61" if missed else ""
    assert say(f"regret(clinicians@5, {GOAL})", verdict).startswith(f"{found}. {advice}. {had}")


WITH_BOUNDS = Quantity("nominal", 0.61, 5, clipped=False, bounds=(0.5, 0.7))


@pytest.mark.parametrize(
    "otherwise",
    [
        {"bands": Bands(), "profile": {0: (0.6, 0.9)}},
        {"profile": {0: (0.6, 0.9)}, "profile_extremes": ((0.5, 0.7, 0.9, 0.9),)},
        {"profile": {0: (0.6, 0.9)}, "method": "sampled"},
        {"profile": {0: (0.6, 0.9)}, "quantities": (WITH_BOUNDS, regretted("regret").quantities[1])},
    ],
    ids=["estimated", "open", "sampled", "bounds"],
)
def test_a_value_from_now_on_that_is_not_exactly_known_is_not_the_finding(otherwise: dict[str, Any]) -> None:
    told = say(f"regret(c@5, {GOAL})", replace(regretted("regret", latest_useful=0), **otherwise))
    assert told.startswith(FOUND)
    assert " 0.93 instead of" not in told


def test_it_says_when_it_was_not_too_late() -> None:
    verdict = regretted("regret", profile={0: (0.60, 0.70)}, latest_useful=2)
    assert say(f"regret(c@5, {GOAL})", verdict).endswith(f"{HAD_NOW}. Handing over last sufficed 2 steps ago")


NOT_SHOWN = "You decide: the recordings do not show whether"


@pytest.mark.parametrize(
    ("now", "band", "doubt", "helps", "advice", "detail"),
    [
        ((0.60, 0.70), (0.5, 0.7, 0.6, 0.75), "", False, stop("c"), ""),
        ((0.70, 0.63), (0.6, 0.9, 0.5, 0.7), "", False, "Stop the agent safely: handing over to 'c' does not help", ""),
        (
            (0.70, 0.63),
            (0.6, 0.7, 0.03, 1),
            "",
            None,
            f"{NOT_SHOWN} handing over to 'c' suffices (0.63)",
            "0.03 to 1.00",
        ),
        (
            *((0.60, 0.70), (0.5, 0.7, 0.6, 0.8), "", None),
            *(
                "Hand over to 'c' now: 0.70 instead of 0.60; the recordings do not show whether that",
                "0.60 to 0.80",
            ),
        ),
        (
            *((0.70, 0.63), (0.6, 0.7, 0.5, 0.7), "not Markov", None),
            *("You decide: the model is too poor to say whether handing over to 'c' suffices", "0.50 to 0.70"),
        ),
        ((0.81, 0.90), (0.80, 0.85, 0.1, 1.0), "", False, "No need to act: without handing over to 'c' it is", ""),
        (
            *((0.81, 0.90), (0.79, 0.85, 0.85, 1.0), "", None),
            *(f"{NOT_SHOWN} it is safe without handing over to 'c' (0.81)", "0.79 to 0.85"),
        ),
        ((0.60, 0.90), (0.5, 0.7, 0.1, 1.0), "wrong", True, "Hand over to 'c' now: 0.90 instead of 0.60", ""),
    ],
)
def test_what_is_denied_must_be_excluded_by_the_recordings(  # noqa: PLR0917 - a case
    now: tuple[float, float],
    band: tuple[float, float, float, float],
    doubt: str,
    helps: bool | None,  # noqa: FBT001 - likewise
    advice: str,
    detail: str,
) -> None:
    bands = Bands(64, 0, 0.95, doubt=doubt)
    useful = 0 if helps else 3
    verdict = regretted("regret", profile={0: now}, latest_useful=useful, bands=bands, credible_now=band, robust=False)
    text = f"regret(c@5, {GOAL})"
    handover = figures_of(parse(text), verdict).handover
    assert handover is not None
    assert (handover.helps_now, handover.credible_now) == (helps, band[2:])
    assert handover.latest_useful == (None if helps is None else useful)
    told = tell_all(text, verdict)
    assert f"required. {advice}" in told.summary
    assert ([each for each in told.details if "credibly" in each] == []) == (not detail)
    assert not detail or f"now: credibly {detail} (95 %)." in told.text
    assert (f"The model is not good enough: {doubt}." in told.text) == bool(doubt)
    assert ("last sufficed" in told.text) == (helps is False and "No need" not in advice)
    late = parse('handover(c, P>=0.8 [ X "death" ], 3) >= 0.2')
    handover = figures_of(late, replace(verdict, outcome=None, holds=True)).handover
    assert handover is not None
    assert handover.helps_now == helps


USELESS = "Stop the agent safely: handing over to 'c' does not help"
UNKNOWN = USELESS.replace("help", "suffice")


@pytest.mark.parametrize(
    ("bound", "now", "told"),
    [
        (">=0.8", (0.60, 0.70), stop("c", lacks=", too little for 0.80")),
        (">=0.8", (0.70, 0.60), f"{USELESS} (0.60). Without handing over: 0.70"),
        (">=0.8", (0.60, 0.60), f"{USELESS} (0.60). Without handing over: the same"),
        ("<=0.2", (0.60, 0.70), f"{USELESS} (0.70). Without handing over: 0.60"),
        ("<=0.2", (0.70, 0.60), stop("c", "0.60", "0.70", ", too much for 0.20")),
        (">0.8", (0.60, 0.80), stop("c", "0.80", lacks=", too little for more than 0.80")),
        ("<0.2", (0.60, 0.20), stop("c", "0.20", lacks=", too much for less than 0.20")),
    ],
)
def test_for_an_agent_that_cannot_be_stopped_it_says_what_is_better(
    bound: str, now: tuple[float, float], told: str
) -> None:
    text = f'regret(c, P{bound} [ X "death" ])'
    assert say(text, regretted("regret", profile={0: now}, offset=0)).endswith(f" required. {told}")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ((0.1, 0.5, 0.3, 0.7), f"{UNKNOWN} (0.30 to 0.70). Without handing over: 0.10 to 0.50"),
        ((0.1, 0.5, 0.1, 0.5), f"{UNKNOWN} (0.10 to 0.50). Without handing over: 0.10 to 0.50"),
        ((0.1, 0.2, 0.3, 0.7), stop("c", "0.30 to 0.70", "0.10 to 0.20", TOO_LITTLE)),
        ((0.4, 0.4, 0.6, 0.6), stop("c", "0.60", "0.40")),
    ],
    ids=["overlap", "the same", "better at worst", "nothing open"],
)
def test_where_values_are_open_handing_over_is_better_only_if_it_is_so_at_its_worst(
    ends: tuple[float, float, float, float], told: str
) -> None:
    verdict = regretted("regret", profile={0: (0.4, 0.6)}, profile_extremes=(ends,))
    assert f" required. {told}. Had" in say(f"regret(c@5, {GOAL})", verdict)


@pytest.mark.parametrize(("agent", "lacks"), [("a", ", too little for 0.80"), ("ward-7-bed-12", ", too little")])
def test_where_there_is_no_room_the_advice_leaves_out_what_handing_over_is_too_little_for(
    agent: str, lacks: str
) -> None:
    told = tell_all(f"regret(clinicians, {GOAL})", regretted("regret", profile={0: (0.6, 0.7)}, offset=0), agent=agent)
    advice = stop("clinicians", lacks=lacks)
    assert told.summary == f"{agent}: {CHANCE} = 0.61; {NEED}. {advice}. Exact for this model."
    assert told.details == ()


def test_the_numbers_of_a_summary_have_the_same_number_of_decimals_where_there_is_room() -> None:
    close = regretted("regret", 0.748, 0.802, profile={0: (0.73, 0.79)}, latest_useful=0, offset=0)
    text = 'regret(c, P>=0.75 [ G<=20 !"death" ])'
    assert tell_all(text, close).summary == (
        f"ward-7: {CHANCE} = 0.748; at least 0.750 required. Hand over to 'c' now: 0.790 instead of 0.730. "
        "Exact for this model."
    )
    late = regretted("regret", 0.65, 0.82, profile={0: (0.6371, 0.7451)}, offset=0)
    assert tell_all(text, late).summary == (
        f"ward-7: {CHANCE} = 0.650; at least 0.750 required. Stop the agent safely; if that is impossible, hand over "
        "to 'c': 0.745 instead of 0.637, too little for 0.750. Exact for this model."
    )
    assert tell_all(text, late, state="resolved").summary.startswith(
        f"ward-7: resolved: {CHANCE} = 0.65; at least 0.75 "
    )


def test_a_resolved_alarm_says_how_bad_it_was_if_that_is_known() -> None:
    text, met = f"regret(c, {GOAL})", regretted("safe", 0.85, 0.93, offset=0)

    def resolved(worst: float | None, **more: Any) -> str:  # noqa: ANN401 - of tell_all
        return tell_all(text, met, **{"state": "resolved", "worst": worst, **more}).summary

    assert (
        resolved(0.61)
        == f"ward-7: resolved: {CHANCE} = 0.85; {NEED}. While firing it fell to 0.61. Exact for this model."
    )
    assert "= 0.8500; at least 0.8000 required. While firing it fell to 0.7999." in resolved(0.7999)
    for unsaid in (resolved(None), resolved(0.81), resolved(0.61, state="firing"), resolved(0.61, state="ended")):
        assert "While firing" not in unsaid
    assert len(resolved(0.61, agent="a" * 300)) < 200


def test_a_value_that_was_too_high_rose() -> None:
    told = tell_all('P<0.2 [ F<=5 "death" ]', plain(0.1, holds=True), state="resolved", worst=0.42)
    assert ". While firing it rose to 0.42." in told.summary
    alarm = AlarmSpec(when="holds")
    told = tell_all('P<0.2 [ F<=5 "death" ]', plain(0.3), state="resolved", worst=0.12, alarm=alarm)
    assert ". While firing it fell to 0.12." in told.summary


def test_a_firing_alarm_whose_goal_is_met_says_so() -> None:
    verdict = regretted("safe", 0.85, 0.93, profile={0: (0.9, 0.95)})
    assert say(f"regret(c@5, {GOAL})", verdict) == (
        f"{COUNTED} = 0.85; {NEED}, met again. "
        f"No need to act: without handing over to 'c' it is 0.90 from now on. {HAD}"
    )


def test_an_action_is_taken_and_no_one_hands_over_to_it() -> None:
    helps = regretted("regret", profile={0: (0.6, 0.9)}, latest_useful=0)
    late = regretted("regret", profile={0: (0.6, 0.7)}, latest_useful=1)
    assert "Take action brake for 2 steps now: 0.90 instead of 0.60." in say(f"regret(do(brake)[2]@5, {GOAL})", helps)
    told = say(f"regret(do(brake)@5, {GOAL})", late)
    assert f"{stop('take action brake', lacks=TOO_LITTLE)}. Had" in told
    assert told.endswith("Taking it last sufficed 1 step ago")
    worse = say(f"regret(do(brake)@5, {GOAL})", replace(late, profile={0: (0.6, 0.5)}))
    assert "Stop the agent safely: taking action brake does not help (0.50). Without taking it: 0.60." in worse


def test_nobody_hands_over_to_a_model() -> None:
    told = say(f"regret(model:dry@5, {GOAL})", regretted("regret", profile={0: (0.6, 0.9)}, latest_useful=0))
    assert told == f"{FOUND}. {RUNBOOK}. Had model 'dry' been in force starting 5 steps ago: 0.93"


@pytest.mark.parametrize(
    ("world", "fields", "pairs", "had"),
    [
        ("c@5", {}, 9, "Had 'c' taken over 5 steps ago: 0.93"),
        ("c[1]@5", {}, 9, "Had 'c' taken over for 1 step, 5 steps ago: 0.93"),
        ("do(up)@5", {}, 9, "Had action up been taken 5 steps ago: 0.93"),
        ("do(1)[2]@5", {}, 9, "Had action 1 been taken for 2 steps, 5 steps ago: 0.93"),
        ("model:dry@5", {}, 9, "Had model 'dry' been in force starting 5 steps ago: 0.93"),
        ("model:dry", {"offset": 0}, 9, "Had model 'dry' been in force from now on: 0.93"),
        ("c@5", {"offset": 3, "clipped": True}, 4, "Had 'c' taken over at the episode's start, 3 steps ago: 0.93"),
        ("c@5", {"offset": 1, "clipped": True}, 2, "Had 'c' taken over at the episode's start, 1 step ago: 0.93"),
        ("c@-1", {"offset": -1}, 9, "Had 'c' taken over at the episode's start, 8 steps ago: 0.93"),
        ("c@-1", {"offset": -1}, 0, "Had 'c' taken over at the episode's start: 0.93"),
        (
            "c@-3",
            {"offset": -3, "start_dropped": True},
            9,
            "Had 'c' taken over 2 steps after the oldest step still held, 6 steps ago: 0.93",
        ),
    ],
)
def test_the_counterfactual_says_since_when_and_by_whom(
    world: str, fields: dict[str, Any], pairs: int, had: str
) -> None:
    assert say(f"regret({world}, {GOAL})", regretted("regret", **fields), pairs=pairs).endswith(had)


@pytest.mark.parametrize("clipped", [False, True])
def test_now_is_said_once(clipped: bool) -> None:  # noqa: FBT001 - a parameter of the test
    verdict = regretted("regret", 0.61, 0.93, offset=0, clipped=clipped, profile={0: (0.61, 0.93)}, latest_useful=0)
    told = say(f"regret(c@{5 * clipped}, {GOAL})", verdict)
    assert told == f"{CHANCE} = 0.61; {NEED}. Hand over to 'c' now: 0.93 instead of 0.61"


@pytest.mark.parametrize(
    ("text", "offset", "told"),
    [
        (GOAL, 0, f"{CHANCE} = 0.70; {NEED}"),
        (f"@5.{GOAL}", 5, f"{COUNTED} = 0.70; {NEED}"),
        (f"c.{GOAL}", 0, f"{CHANCE} with 'c' from now on = 0.70; {NEED}"),
        (f"c@1.{GOAL}", 1, f"{CHANCE} with 'c' starting 1 step ago = 0.70; {NEED}"),
        (
            f"delta(c,nominal)@5.{GOAL}",
            5,
            f"effect on {CHANCE} of 'c' rather than 'nominal' starting 5 steps ago = 0.70; {NEED}",
        ),
        ("R<=0.5 [ C<=10 ]", 0, "expected reward(C<=10) = 0.70; at most 0.50 required"),
        ('P<0.5 [\n X "death" // soon [\n]', 0, 'P(X "death") = 0.70; less than 0.50 required'),
        ('P<0.5 [X "death"]', 0, 'P(X "death") = 0.70; less than 0.50 required'),
        ('P>0.9 [ F<=2 P>=0.5 [ X "death" ] ]', 0, 'P(F<=2 P>=0.5 [ X "death" ]) = 0.70; more than 0.90 required'),
        (f'P>=0.8 [ {"X " * 60} "death" ]', 0, f"P(the goal of 'watch') = 0.70; {NEED}"),
    ],
)
def test_a_plain_formula(text: str, offset: int, told: str) -> None:
    assert say(text, plain(0.7, offset=offset)) == f"{told}. {RUNBOOK}"


@pytest.mark.parametrize("state", ["fired", "resolved", "ended", "removed", "clear"])
def test_only_who_is_called_by_an_alarm_without_advice_is_sent_to_the_runbook(
    state: AlarmState | Literal["fired"],
) -> None:
    assert RUNBOOK not in say(GOAL, plain(0.7), state=state)
    assert tell_all(GOAL, plain(0.7)).summary == f"ward-7: {CHANCE} = 0.70; {NEED}. {RUNBOOK}. Exact for this model."
    assert say(GOAL, plain(0.7), blind="gap") == (
        f"BLIND (gap), last known: {CHANCE} = 0.70; {NEED}. {RUNBOOK}. Blind: {BLIND_WORDS['gap']}"
    )
    assert RUNBOOK not in say(f"regret(c@5, {GOAL})", ADVISED, state="firing")


def test_an_alarm_on_what_holds_says_what_it_is_for() -> None:
    told = say('P>=0.3 [ F<=4 "death" ]', plain(0.31, holds=True), alarm=AlarmSpec(when="holds"))
    assert told == f"P(death within 4 steps) = 0.31; alarm if at least 0.30. {RUNBOOK}"


def test_a_question_has_a_value_and_no_need() -> None:
    assert say('P=? [ F<=4 "death" ]', plain(0.31), state="clear") == "P(death within 4 steps) = 0.31"


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.7999, "0.7999; at least 0.8000 required"), (0.8 - 1e-9, "0.799999999; at least 0.800000000 required"),
     (0.8 - 1e-15, "0.800000000000; at least 0.800000000000 required"), (-0.0, "0.00; at least 0.80 required")],
)  # fmt: skip
def test_a_value_is_told_apart_from_the_bound_it_misses(value: float, told: str) -> None:
    assert say(GOAL, plain(value)) == f"{CHANCE} = {told}. {RUNBOOK}"


HAD = "Had 'c' taken over 5 steps ago: 0.93"
HAD_NOW = f"{HAD} instead of 0.61"
THEN = f"{FOUND}. {HAD}".replace("ago", "before")
ADVISED = regretted("regret", 0.61, 0.93, profile={0: (0.6, 0.9)}, latest_useful=0)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("resolved", f"resolved: {FOUND}"),
        ("ended", f"the episode ended while this alarm was firing; last: {FOUND}"),
        ("removed", f"alarm 'watch' was changed or removed while it was firing; last: {FOUND}"),
        (
            "fired",
            f"when it fired, {THEN}; when it fired: 0.90 instead of 0.60",
        ),
    ],
)
def test_only_a_firing_alarm_advises(state: AlarmState | Literal["fired"], told: str) -> None:
    assert say(f"regret(c@5, {GOAL})", ADVISED, state=state) == told


def test_a_contradicted_model_does_not_say_that_all_is_well_or_that_it_is_too_late() -> None:
    safe = regretted("regret", profile={0: (0.85, 0.7)}, latest_useful=2)
    told = tell_all(f"regret(c@5, {GOAL})", safe, blind="model_doubt")
    assert "You decide: the model is too poor to say whether it is safe without handing over to 'c' (0.85)" in told.text
    assert "No need" not in told.text
    late = regretted("regret", profile={0: (0.7, 0.6)}, latest_useful=2)
    told = tell_all(f"regret(c@5, {GOAL})", late, blind="model_doubt")
    words = "Stop the agent safely: the model is not good enough to say whether handing over to 'c' suffices (0.60)"
    assert words in told.text
    assert "last sufficed" not in told.text


def test_a_doubted_model_still_answers_but_not_for_sure() -> None:
    doubted = "Do not rely on this: observed transitions contradict the model"
    told = say(f"regret(c@5, {GOAL})", ADVISED, blind="model_doubt")
    assert told == f"MODEL CONTRADICTED: {MISSED}. Hand over to 'c' now: 0.90 instead of 0.60. {HAD_NOW}. {doubted}"
    late = regretted("regret", 0.61, 0.93, profile={0: (0.6, 0.7)}, latest_useful=None)
    assert say(f"regret(c@5, {GOAL})", late, blind="model_doubt") == (
        f"MODEL CONTRADICTED: {MISSED}. {stop('c', lacks=TOO_LITTLE)}. {HAD_NOW}. {doubted}"
    )


LATE = f"handover(c, {GOAL}, 5) >= 0.5"
HOLDS = AlarmSpec(when="holds")


def handing_over(value: float, now: tuple[float, float]) -> Verdict:
    return plain(value, holds=True, profile={0: now}, latest_useful=0 if now[1] >= 0.8 else None)


@pytest.mark.parametrize(
    ("value", "now", "advice"),
    [
        (0.62, (0.7, 0.9), "Hand over to 'c' now: 0.90 instead of 0.70"),
        (0.62, (0.85, 0.9), "Hand over to 'c' now: 0.90 instead of 0.85"),
        (1.0, (0.6, 0.7), stop("c")),
        (1.0, (0.85, 0.7), "No need to act: without handing over to 'c' it is 0.85 from now on"),
    ],
)  # fmt: skip
def test_an_alarm_before_it_is_too_late_says_what_handing_over_gives(
    value: float, now: tuple[float, float], advice: str
) -> None:
    told = say(LATE, handing_over(value, now), alarm=HOLDS)
    assert told == f"P(too late for 'c' within 5 steps) = {value:.2f}; alarm if at least 0.50. {advice}"


EFFECT = 'delta(c,nominal)@0.P>=0.1 [ G<=20 !"death" ]'


def test_a_large_effect_advises_to_hand_over() -> None:
    found = "effect on P(no death in 20 steps) of 'c' rather than 'nominal' from now on = 0.20; alarm if at least 0.10"
    assert say(EFFECT, plain(0.2, holds=True), alarm=HOLDS) == f"{found}. Hand over to 'c' now"
    assert say(EFFECT, plain(0.2, holds=True), alarm=HOLDS, blind="gap") == (
        f"BLIND (gap), last known: {found}. Look yourself; handing over to 'c' helped then. Blind: {BLIND_WORDS['gap']}"
    )
    assert say(EFFECT, plain(0.2, holds=True), alarm=HOLDS, state="resolved") == f"resolved: {found}"
    assert f". {RUNBOOK}" in say(EFFECT, plain(0.0), alarm=HOLDS)


def test_how_a_late_handover_is_told_when_blind_when_over_and_in_a_picture() -> None:
    verdict = handing_over(0.62, (0.85, 0.9))
    found = "P(too late for 'c' within 5 steps) = 0.62; alarm if at least 0.50"
    assert say(LATE, verdict, alarm=HOLDS, blind="gap") == (
        f"BLIND (gap), last known: {found}. Look at the agent yourself; handing over to 'c' helped then (0.90). "
        f"Blind: {BLIND_WORDS['gap']}"
    )
    assert say(LATE, verdict, alarm=HOLDS, state="resolved") == f"resolved: {found}"
    assert say(LATE, verdict, alarm=HOLDS, state="fired") == (
        f"when it fired, {found}. Had 'c' taken over when it fired: 0.90 instead of 0.85"
    )
    assert say(LATE, plain(0.62, holds=True), alarm=HOLDS) == (
        f"{found}. It is not known whether handing over to 'c' now would help"
    )


@pytest.mark.parametrize("reason", sorted(set(get_args(BlindReason)) - {"model_doubt"}))
def test_who_is_blind_does_not_know_what_helps_now(reason: BlindReason) -> None:
    told = say(f"regret(c@5, {GOAL})", ADVISED, blind=reason)
    last = f"BLIND ({reason}), last known: {MISSED}. Look at the agent yourself;"
    assert told.startswith(f"{last} handing over to 'c' helped then (0.90)")
    assert told.endswith(f". Blind: {BLIND_WORDS[reason]}")
    late = regretted("regret", 0.61, 0.93, profile={0: (0.6, 0.7)}, latest_useful=1)
    assert say(f"regret(c@5, {GOAL})", late, blind=reason) == (
        f"{last} handing over to 'c' did not suffice then (0.70). {HAD_NOW}. Blind: {BLIND_WORDS[reason]}"
    )
    needless = regretted("regret", 0.61, 0.93, profile={0: (0.81, 0.9)}, latest_useful=1)
    assert say(f"regret(c@5, {GOAL})", needless, blind=reason) == (
        f"BLIND ({reason}), last known: {FOUND}. Look at the agent yourself; there was no need to act then (0.81). "
        f"{HAD}. Blind: {BLIND_WORDS[reason]}"
    )
    assert say(GOAL, plain(0.7), state="ended", blind=reason) == (
        f"the episode ended while this alarm was firing; BLIND ({reason}), last known: {CHANCE} = 0.70; {NEED}. "
        f"Blind: {BLIND_WORDS[reason]}"
    )


def test_nobody_handed_over_to_a_model_when_it_fired() -> None:
    then = f"when it fired, {FOUND}. Had model 'dry' been in force starting 5 steps ago: 0.93".replace("ago", "before")
    assert say(f"regret(model:dry@5, {GOAL})", ADVISED, state="fired") == then


def test_what_fired_without_a_profile_says_nothing_of_handing_over() -> None:
    assert say(f"regret(c@5, {GOAL})", regretted("regret"), state="fired") == f"when it fired, {THEN}"


def drawn(verdict: Verdict, *, samples: int = 1_200, test: TestName = "betting", beta: float = 0.05) -> Verdict:
    """The verdict as if sampled, with alpha = 0.01; each quantity but the first from five samples more."""
    sampling = Sampling(alpha=0.01, beta=beta, test=test)
    quantities = tuple(replace(q, samples=samples + 5 * n) for n, q in enumerate(verdict.quantities))
    how = Drawn(sampling, seed=1, first=0, alpha=0.01, beta=beta)
    return replace(verdict, method="sampled", quantities=quantities, drawn=how)


@pytest.mark.parametrize(
    ("when", "holds", "sure"),
    [
        (None, False, "confidence 0.99"),
        (None, True, "confidence 0.95"),
        ("fails", False, "confidence 0.99"),
        ("fails", True, "confidence 0.95"),
        ("holds", True, "confidence 0.99"),
        ("holds", False, "confidence 0.95"),
    ],
)
def test_a_sampled_answer_says_how_often_such_an_answer_is_right(
    when: Literal["fails", "holds"] | None, *, holds: bool, sure: str
) -> None:
    told = say(GOAL, drawn(plain(0.7, holds=holds)), alarm=AlarmSpec(when=when))
    assert told.endswith(f". Sampled: 1,200 samples, {sure}")
    told = say(GOAL, drawn(plain(0.7, holds=holds), test="paper"), alarm=AlarmSpec(when=when))
    assert told.endswith(f". Sampled: 1,200 samples, nominal {sure}")


@pytest.mark.parametrize(
    ("outcome", "beta", "told"),
    [
        ("regret", 0.05, "confidence 0.99"),
        ("safe", 0.05, "confidence 0.95"),
        ("unavoidable", 0.05, "confidence 0.95"),  # of regret it is said with beta
        ("unavoidable", 0.001, "confidence 0.99"),  # of safe it is said with alpha
        ("undecided", 0.05, "undecided"),
    ],
)
def test_a_sampled_outcome_says_how_often_such_an_outcome_is_right(outcome: Outcome, beta: float, told: str) -> None:
    verdict = drawn(regretted(outcome), beta=beta)
    assert say(f"regret(c@5, {GOAL})", verdict).endswith(f". Sampled: 1,205 samples, {told}")


def test_what_samples_left_open_is_undecided_and_a_question_has_nothing_to_decide() -> None:
    open_ = Verdict("watch", "sampled", "gumbel", plain(0.8).quantities)
    assert say(GOAL, drawn(open_)).endswith(". Sampled: 1,200 samples, undecided")
    asked = replace(open_, value=0.8)
    assert (
        say('P=? [ F<=4 "death" ]', drawn(asked), state="clear")
        == "P(death within 4 steps) = 0.80. Sampled: 1,200 samples"
    )
    assert say('"death"', drawn(Verdict("watch", "sampled", "gumbel", (), holds=False))).endswith(
        ". Sampled: 0 samples, confidence 0.99"
    )


def test_a_transition_that_speaks_against_the_model_is_reported_with_its_counts() -> None:
    departing = Departing(state=3, action=1, successor=4, seen=20, of=50, expected=7.26)
    assert departing_text(departing) == "(3, 1) -> 4 seen 20 times of 50, expected 7.3"


def test_it_says_when_causal_models_disagree() -> None:
    verdict = regretted("regret", bounds=(0.14, 0.95), robust=False)
    assert say(f"regret(c@5, {GOAL})", verdict).endswith(": 0.93 (causal models disagree: 0.14 to 0.95)")
    resolved = say(f"regret(c@5, {GOAL})", verdict, state="resolved")
    assert resolved.endswith("in every causal model. Causal models disagree: 0.14 to 0.95 with 'c'")
    now = say(f"regret(c, {GOAL})", regretted("regret", bounds=(0.14, 0.95), robust=False, offset=0))
    assert now.endswith("Causal models disagree: 0.14 to 0.95 with 'c'")
    assert "disagree" not in say(f"regret(c@5, {GOAL})", regretted("regret", bounds=(0.9, 0.95), robust=True))
    assert say(f"c@5.{GOAL}", plain(0.7, bounds=(0.6, 0.9), robust=False, offset=5)).endswith(
        "Causal models disagree: 0.60 to 0.90"
    )
    hidden = replace(verdict, belief={0: 1.0})  # where states are hidden, bounds may be too wide
    assert say(f"regret(c@5, {GOAL})", hidden).endswith(": 0.93 (causal models may disagree, at most 0.14 to 0.95)")
    several = Verdict("watch", "exact", "any", (), holds=False, robust=False)
    assert say(f'"death" & {GOAL}', replace(several, belief={0: 1.0})).endswith("Causal models may disagree on this")
    assert say(f'"death" & {GOAL}', several).endswith("Causal models disagree on this")


@pytest.mark.parametrize(
    ("path", "spoken"),
    [
        ('G<=4 !"crash"', "not 'a robot falls' in 4 steps"),
        ('G<=4 "crash"', "'a robot falls' throughout 4 steps"),
        ('F<=4 "crash"', "'a robot falls' within 4 steps"),
        ('!"crash" U<=4 "home"', "home within 4 steps, not 'a robot falls' before it"),
    ],
)
def test_labels_are_said_in_the_words_of_the_configuration(path: str, spoken: str) -> None:
    told = say(f"P=? [ {path} ]", plain(0.31), state="clear", labels=(("crash", "a robot falls"), ("other", "unsaid")))
    assert told == f"P({spoken}) = 0.31"


@pytest.mark.parametrize("blind", [None, *get_args(BlindReason)])
@pytest.mark.parametrize("now", [(0.6, 0.9), (0.6123456, 0.7), (0.85, 0.9)])
def test_what_to_do_is_said_within_the_first_200_characters(
    now: tuple[float, float], blind: BlindReason | None
) -> None:
    verdict = regretted("regret", 0.7999, 0.93, profile={0: now}, latest_useful=0 if now[1] > 0.8 else 3, offset=12)
    told = tell_all(f"regret(clinicians@12, {GOAL})", verdict, blind=blind, labels=(("death", "the patient dies"),))
    if blind not in (None, "model_doubt"):
        advice = f"yourself; handing over to 'clinicians' {'helped' if now[1] > 0.8 else 'did not suffice'} then (0."
    else:
        advice = "Hand over to 'clinicians' now: 0." if now[1] > 0.8 else stop("clinicians").partition("0.7")[0]
    assert advice in told.summary.partition("required. ")[2]
    assert len(told.summary) < 200


def test_a_combination_tells_its_quantities() -> None:
    def quantity(text: str) -> Quantity:
        return Quantity(text, 0.25, 0, clipped=False)

    def verdict(*texts: str, holds: bool | None = False) -> Verdict:
        return Verdict("watch", "exact", "gumbel", tuple(quantity(text) for text in texts), holds=holds)

    def told(text: str, verdict: Verdict) -> str:
        return say(text, verdict, state="clear")

    text = f'"death" & {GOAL}'
    assert say(text, verdict("one", "two")) == f"formula 'watch' fails: one = 0.25, two = 0.25. {RUNBOOK}"
    all_five = "a = 0.25, b = 0.25, c = 0.25, d = 0.25, e = 0.25"
    assert told(text, verdict("a", "b", "c", "d", "e", holds=True)).endswith(f"c = 0.25, and 2 more. {all_five}")
    assert "c = 0.25, and 1 more" in told(text, verdict("a", "b", "c", "d"))
    assert told(text, verdict("a", "b", "c")).endswith("b = 0.25, c = 0.25")
    assert told(text, verdict("x" * 61, holds=None)) == "formula 'watch' is undecided: one quantity = 0.25"
    undecided = Verdict("watch", "exact", "gumbel", (), outcome="undecided")
    assert say(f"regret(c@5, {GOAL})", undecided) == (
        f"formula 'watch' is undecided: regret(c@5, {GOAL}). It is not known whether handing over to 'c' now would help"
    )
    assert told('!"death"', verdict()) == "formula 'watch' fails: !\"death\""
    assert told(GOAL, verdict(holds=None)) == f"formula 'watch' is undecided: {GOAL}"
    assert told(text, verdict("x" * 60)).endswith(f"fails: {'x' * 60} = 0.25")
    assert told("!" * 99 + '"death"', verdict()) == "formula 'watch' fails"


@pytest.mark.parametrize(
    ("path", "spoken"),
    [
        ('G<=1 !"crash"', "no crash in 1 step"),
        ('G<=4 "safe"', "safe throughout 4 steps"),
        ('F<=4 "home"', "home within 4 steps"),
        ('!"crash" U<=4 "home"', "home within 4 steps, no crash before it"),
        ('G[1,4] !"crash"', 'G[1,4] !"crash"'),
        ('F<=4 !"crash"', 'F<=4 !"crash"'),
    ],
)
def test_common_goals_are_said_in_words_and_others_quoted(path: str, spoken: str) -> None:
    assert say(f"P=? [ {path} ]", plain(0.31), state="clear") == f"P({spoken}) = 0.31"


def test_a_real_regret_reads_as_it_should(regret: Alert) -> None:
    assert regret.summary == (
        "robot-7: P(no crash in 4 steps) = 0.54; at least 0.80 required. "
        "Hand over to 'careful' now: 0.91 instead of 0.54. These numbers hold in every causal model."
    )
    assert regret.details == (
        "Had 'careful' taken over 2 steps ago: 0.94 instead of 0.59.",
        "Even without hindsight, acting optimally from step 1 on would have met the goal: 0.94.",
    )


@pytest.mark.parametrize(
    ("change", "had"),
    [
        ("best", "Had every decision been the best in hindsight, starting 5 steps ago: 0.93"),
        ("best[2]", "Had every decision been the best in hindsight for 2 steps, starting 5 steps ago: 0.93"),
        ("best[<=1]", "Had at most 1 decision been changed for the better in hindsight, starting 5 steps ago: 0.93"),
        ("max", "Had every decision been the one for the largest value in hindsight, starting 5 steps ago: 0.93"),
        ("min", "Had every decision been the one for the smallest value in hindsight, starting 5 steps ago: 0.93"),
        (
            "min[2]",
            "Had every decision been the one for the smallest value in hindsight for 2 steps, starting 5 steps ago",
        ),
        (
            "min[<=2]",
            "Had at most 2 decisions been changed for the smallest value in hindsight, starting 5 steps ago: 0.93",
        ),
        ("optimal", "Had the optimal policy taken over 5 steps ago: 0.93"),
    ],
)
def test_decisions_made_for_the_goal_are_said_in_words(change: str, had: str) -> None:
    assert f". {had}" in say(f"regret({change}@5, {GOAL})", regretted("regret"))


@pytest.mark.parametrize(
    ("change", "then"), [("best", "Acting optimally with hindsight"), ("optimal", "Acting optimally")]
)
def test_the_advice_of_the_best_decisions_is_to_act_optimally_from_now_on(change: str, then: str) -> None:
    text = f"regret({change}@5, {GOAL})"
    helped = say(text, regretted("regret", profile={0: (0.60, 0.90)}, latest_useful=0))
    assert "Act optimally now: 0.90 instead of 0.60" in helped
    late = say(text, regretted("regret", profile={0: (0.60, 0.70)}, latest_useful=2))
    assert f"{stop('act optimally', lacks=TOO_LITTLE)}. Had" in late
    assert f"{then} last sufficed 2 steps ago" in late


def test_to_act_optimally_follows_the_direction_of_the_goal() -> None:
    text, lower = 'regret(best@5, P<=0.2 [ F<=20 "death" ])', {0: (0.40, 0.10)}
    assert "Act optimally now: 0.10 instead of 0.40" in say(text, regretted("regret", profile=lower, latest_useful=0))


@pytest.mark.parametrize("change", ["best[<=1]", "best[2]", "max", "min", "min[2]", "max[<=2]"])
@pytest.mark.parametrize(("given", "latest"), [(0.90, 0), (0.70, 2), (0.70, None)])
def test_few_decisions_and_those_for_a_direction_are_no_advice(change: str, given: float, latest: int | None) -> None:
    told = say(f"regret({change}@5, {GOAL})", regretted("regret", profile={0: (0.60, given)}, latest_useful=latest))
    finding, had = told.split(". Had ")
    assert finding == f"{FOUND}. {RUNBOOK}"
    assert had.endswith(", starting 5 steps ago: 0.93")


def test_the_value_of_the_best_decisions_says_whose_it_is() -> None:
    assert say(f"max@5.{GOAL}", plain(0.61, offset=5)).startswith(
        f"{CHANCE} with decisions for the largest value in hindsight starting 5 steps ago = 0.61"
    )
    assert "with decisions for the smallest value in hindsight" in say(f"min@5.{GOAL}", plain(0.61, offset=5))
    assert "with at most 2 decisions changed for the smallest value in hindsight starting" in say(
        f"min[<=2]@5.{GOAL}", plain(0.61, offset=5)
    )
    assert "with the best decisions in hindsight starting" in say(f"best@5.{GOAL}", plain(0.61, offset=5))
    assert "with at most 2 decisions changed in hindsight" in say(f"best[<=2]@5.{GOAL}", plain(0.61, offset=5))


@pytest.mark.parametrize(
    ("robust", "causal_model", "sure"),
    [
        (None, "gumbel", "Exact for this model"),
        (True, "any", "Every causal model agrees"),
        (True, "stable", "Every stable causal model agrees"),
        (False, "any", "Not certain: other causal models disagree"),
        (False, "stable", "Not certain: other causal models disagree"),
    ],
)
def test_the_last_words_of_a_summary_say_how_sure_it_is(
    robust: bool | None,  # noqa: FBT001 - a parameter of pytest
    causal_model: CausalModel,
    sure: str,
) -> None:
    verdict = replace(plain(0.7, robust=robust), causal_model=causal_model, bounds=(0.6, 0.9))
    for hidden in (replace(verdict, belief={0: 1.0}), replace(verdict, belief={0: 1.0}, bounds=None)):
        unseen = tell_all(GOAL, hidden).summary  # then bounds may be too wide; several quantities have none here
        assert unseen.endswith(f" {sure}.".replace("models disagree", "models may disagree"))
    for state, lead in (("firing", ""), ("resolved", "resolved: ")):
        told = tell_all(GOAL, verdict, state=cast("AlarmState", state))
        advice = f" {RUNBOOK}." if state == "firing" else ""
        assert told.summary == f"ward-7: {lead}{CHANCE} = 0.70; {NEED}.{advice} {sure}."
    assert "odel" not in tell_all(GOAL, verdict, blind="gap").summary


@pytest.mark.parametrize(
    ("outcome", "own", "sure"),
    [
        ("regret", None, "These numbers hold in every causal model"),
        ("unavoidable", True, "These numbers hold in every causal model"),
        ("regret", False, "Not certain: other causal models disagree"),  # a nested goal that looks back
        ("safe", False, "Not certain: other causal models disagree"),
    ],
)
def test_where_models_disagree_only_on_what_would_have_been_the_rest_is_not_said_to_be_unsure(
    outcome: Outcome,
    own: bool | None,  # noqa: FBT001 - a parameter of pytest
    sure: str,
) -> None:
    verdict = regretted(outcome, robust=False, bounds=(0.14, 0.95), profile={0: (0.6, 0.9)}, latest_useful=0, offset=0)
    nominal, other = verdict.quantities
    verdict = replace(verdict, quantities=(replace(nominal, robust=own), other))
    told = tell_all(f"regret(c, {GOAL})", verdict)
    assert told.summary.endswith(f" Hand over to 'c' now: 0.90 instead of 0.60. {sure}.")
    fired = tell_all(f"regret(c, {GOAL})", verdict, state="fired").summary  # of the picture, which shows both values
    said = [] if sure.startswith("These") else [f"{sure}."]  # the picture says it beside the bounds
    assert fired.endswith(" ".join(["required.", *said]))
    longer = tell_all(f"regret(clinicians_of_ward_7, {GOAL})", verdict, agent="a" * 40)
    short = {
        "These numbers hold in every causal model": "Same in every model",
        "other causal models": "models",
    }
    for words, fewer in short.items():
        sure = sure.replace(words, fewer)
    assert longer.summary.endswith(f". {sure}.")
    assert told.details == ("Causal models disagree: 0.14 to 0.95 with 'c'.",)


@pytest.mark.parametrize(
    ("text", "band", "sure"),
    [
        (GOAL, (0.41, 0.89), "Estimated from recordings: 0.41 to 0.89 (95 %)"),
        (GOAL, (0.11, 0.99), "Too few recordings to be sure: 0.11 to 0.99 (95 %)"),
        ("R>=0.8 [ C<=7 ]", (0.11, 0.99), "Estimated from recordings: 0.11 to 0.99 (95 %)"),
        (EFFECT, (-0.2, 0.7), "Estimated from recordings: -0.20 to 0.70 (95 %)"),
        (EFFECT, (-0.3, 0.8), "Too few recordings to be sure: -0.30 to 0.80 (95 %)"),
        (GOAL, None, "Estimated from recordings"),
    ],
    ids=["narrow", "wide", "a reward", "an effect", "a wide effect", "no band"],
)
def test_an_estimate_says_its_band_and_whether_that_leaves_too_much_open(
    text: str, band: tuple[float, float] | None, sure: str
) -> None:
    quantity = Quantity("quantity", 0.5, 0, clipped=False, credible=band)
    verdict = Verdict("watch", "exact", "gumbel", (quantity,), holds=False, bands=Bands(level=0.95))
    assert tell_all(text, verdict).summary.endswith(f". {sure}.")
    labels = (("death", "the patient dies in this ward, or in the next one, before noon"),)
    words = sure.partition(":")[0]
    if band is not None and text == GOAL:
        shorter = tell_all(f"regret(clinicians@5, {GOAL})", _both(verdict), agent="a" * 40, labels=labels)
        assert shorter.summary.endswith(f" {words.removesuffix(' from recordings').removesuffix(' to be sure')}.")


def _both(verdict: Verdict) -> Verdict:
    """A verdict on regret with the bands of one on a plain goal."""
    return replace(
        verdict, quantities=verdict.quantities * 2, holds=None, outcome="regret", offset=5, profile={0: (0.6, 0.7)}
    )


@pytest.mark.parametrize(
    ("text", "band", "robust", "sure", "detail"),
    [
        ('P>=0.8 [ F<=2 "x" ]', (0.06, 1.0), False, "The data guarantee nothing yet", "The data guarantee nothing yet"),
        ('P>=0.05 [ F<=2 "x" ]', (0.06, 1.0), True, "guaranteed at 95 %", "Guaranteed 0.06 to 1.00; robust."),
        ("R>=13 [ C<=7 ]", (11.0, 13.5), False, "is not guaranteed", "Guaranteed 11.00 to 13.50; not robust."),
        (
            'delta(careful,nominal)@0.P>=0.3 [ F<=2 "x" ]',
            (-0.2, 0.8),
            False,
            "is not guaranteed",
            "Guaranteed -0.20 to 0.80; not robust.",
        ),
    ],
    ids=["all but a little", "robust", "reward", "effect"],
)
def test_a_band_says_nothing_only_if_it_has_nearly_all_possible_values_and_decides_nothing(
    text: str,
    band: tuple[float, float],
    robust: bool,  # noqa: FBT001 - a parameter of pytest
    sure: str,
    detail: str,
) -> None:
    quantity = Quantity("quantity", 0.5, 0, clipped=False, guaranteed=band)
    verdict = Verdict("watch", "exact", "any", (quantity,), holds=False, robust=robust, bands=Bands(delta=0.05))
    told = tell_all(text, verdict)
    assert f"{sure}." in told.summary
    assert told.details[-1].startswith(detail)
