"""The sentence: each kind of alarm, state, offset and blindness, word for word."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from monitor.alarm.summary import BLIND_WORDS, summary
from monitor.logic import parse
from monitor.types import AlarmSpec, AlarmState, Alert, BlindReason, FormulaSpec, Outcome, Quantity, Verdict

GOAL = 'P>=0.8 [ G<=20 !"death" ]'
CHANCE = "the chance of no death within 20 steps"
NEED = "(at least 0.80 is needed)"


def say(
    text: str,
    verdict: Verdict,
    *,
    state: AlarmState = "firing",
    blind: BlindReason | None = None,
    pairs: int = 9,
    alarm: AlarmSpec | None = None,
) -> str:
    formula = FormulaSpec("watch", text, alarm=alarm or AlarmSpec())
    told = summary(
        agent="ward-7",
        formula=formula,
        parsed=parse(text),
        state=state,
        blind=blind,
        verdict=verdict,
        path_length=pairs,
    )
    assert told.startswith("ward-7: ")
    assert told.endswith(".")
    assert "\n" not in told
    return told.removeprefix("ward-7: ").removesuffix(".")


def regretted(outcome: Outcome, nominal: float = 0.61, other: float = 0.93, **fields: Any) -> Verdict:  # noqa: ANN401 - of Verdict
    both = (Quantity("nominal", nominal, 5, clipped=False), Quantity("other", other, 5, clipped=False))
    return Verdict("watch", "exact", "gumbel", both, outcome=outcome, **{"offset": 5, **fields})


def plain(value: float, *, holds: bool = False, **fields: Any) -> Verdict:  # noqa: ANN401 - of Verdict
    quantity = Quantity("quantity", value, 0, clipped=False)
    return Verdict("watch", "exact", "gumbel", (quantity,), holds=holds, **fields)


HAD = f"had 'clinicians' been in charge from 5 steps ago on, {CHANCE} from there would be 0.93 instead of 0.61 {NEED}"


@pytest.mark.parametrize(
    ("now", "latest", "tail"),
    [
        ((0.60, 0.90), 0, "; switching now still helps"),
        ((0.60, 0.70), 2, "; switching now no longer helps, 2 steps ago it still would have"),
        ((0.60, 0.70), 1, "; switching now no longer helps, 1 step ago it still would have"),
        ((0.80, 0.90), 2, "; seen from now, all is well without switching"),
        (None, 2, ""),
        ((0.60, 0.90), None, ""),
    ],
)
def test_regret_says_what_would_have_been_and_whether_switching_still_helps(
    now: tuple[float, float] | None, latest: int | None, tail: str
) -> None:
    profile = {} if now is None else {0: now}
    verdict = regretted("regret", profile=profile, latest_useful=latest)
    assert say(f"regret(clinicians@5, {GOAL})", verdict) == HAD + tail


@pytest.mark.parametrize(
    ("world", "fields", "pairs", "told"),
    [
        ("clinicians", {"offset": 0}, 9, "were 'clinicians' to take over now,"),
        ("clinicians[3]", {"offset": 0}, 9, "were 'clinicians' for 3 steps to take over now,"),
        ("clinicians[1]@5", {}, 9, "had 'clinicians' been in charge for 1 step from 5 steps ago on,"),
        ("do(up)@5", {}, 9, "had action up been taken from 5 steps ago on,"),
        ("do(1)[2]@5", {}, 9, "had action 1 been taken for 2 steps from 5 steps ago on,"),
        ("model:dry@5", {}, 9, "had model 'dry' been true from 5 steps ago on,"),
        (
            "c@5",
            {"offset": 3, "clipped": True},
            4,
            "had 'c' been in charge since the start of the episode, 3 steps ago,",
        ),
        (
            "c@5",
            {"offset": 1, "clipped": True},
            2,
            "had 'c' been in charge since the start of the episode, 1 step ago,",
        ),
        ("c@5", {"offset": 0, "clipped": True}, 1, "had 'c' been in charge since the start of the episode, just now,"),
        ("c@-1", {"offset": -1}, 9, "had 'c' been in charge since the start of the episode, 8 steps ago,"),
        ("c@-1", {"offset": -1}, 0, "had 'c' been in charge since the start of the episode,"),
        (
            "c@-3",
            {"offset": -3, "start_dropped": True},
            9,
            "had 'c' been in charge since 2 steps after the oldest step still held, 6 steps ago,",
        ),
    ],
)
def test_regret_says_since_when_and_by_whom(world: str, fields: dict[str, Any], pairs: int, told: str) -> None:
    said = say(f"regret({world}, {GOAL})", regretted("regret", **fields), pairs=pairs)
    assert said.startswith(f"{told} {CHANCE}")


def test_a_model_is_nothing_one_could_switch_to() -> None:
    verdict = regretted("regret", profile={0: (0.6, 0.9)}, latest_useful=0)
    assert "switching" not in say(f"regret(model:dry@5, {GOAL})", verdict)


@pytest.mark.parametrize(
    ("outcome", "offset", "told"),
    [
        ("unavoidable", 5, f"{CHANCE}, counted from 5 steps ago, is 0.61 {NEED}, and 'c' would not have helped: 0.73"),
        ("unavoidable", 0, f"{CHANCE} is 0.61 {NEED}, and 'c' would not help: 0.73"),
        ("safe", 5, f"{CHANCE}, counted from 5 steps ago, is 0.61 without any change {NEED}"),
        ("safe", 0, f"{CHANCE} is 0.61 without any change {NEED}"),
        ("undecided", 0, f"{CHANCE} is 0.61 {NEED}, and whether 'c' would help is undecided"),
    ],
)
def test_the_other_outcomes(outcome: Outcome, offset: int, told: str) -> None:
    assert say(f"regret(c@{offset}, {GOAL})", regretted(outcome, 0.61, 0.73, offset=offset)) == told


@pytest.mark.parametrize(
    ("text", "offset", "told"),
    [
        (GOAL, 0, f"{CHANCE} is 0.70 {NEED}"),
        (f"@5.{GOAL}", 5, f"{CHANCE}, counted from 5 steps ago, is 0.70 {NEED}"),
        (f"c.{GOAL}", 0, f"{CHANCE}, with 'c' from now on, would be 0.70 {NEED}"),
        (f"c@1.{GOAL}", 1, f"{CHANCE}, had 'c' been in charge from 1 step ago on, would be 0.70 {NEED}"),
        (
            f"delta(c,nominal)@5.{GOAL}",
            5,
            f"the effect on {CHANCE} of 'c' rather than carrying on, from 5 steps ago on, is 0.70 {NEED}",
        ),
        ("R<=0.5 [ C<=10 ]", 0, "the expected reward over C<=10 is 0.70 (at most 0.50 is needed)"),
        ('P<0.5 [\n X "death" // soon [\n]', 0, 'the chance of X "death" is 0.70 (less than 0.50 is needed)'),
        (
            'P>0.9 [ F<=2 P>=0.5 [ X "death" ] ]',
            0,
            'the chance of F<=2 P>=0.5 [ X "death" ] is 0.70 (more than 0.90 is needed)',
        ),
        (f'P>=0.8 [ {"X " * 60} "death" ]', 0, f"the chance of the goal of 'watch' is 0.70 {NEED}"),
    ],
)
def test_a_plain_formula(text: str, offset: int, told: str) -> None:
    assert say(text, plain(0.7, offset=offset)) == told


def test_an_alarm_on_what_holds_says_what_it_is_for() -> None:
    told = say('P>=0.3 [ F<=4 "death" ]', plain(0.31, holds=True), alarm=AlarmSpec(when="holds"))
    assert told == "the chance of death within 4 steps is 0.31 (this alarm is for at least 0.30)"


def test_a_question_has_a_value_and_no_need() -> None:
    assert say('P=? [ F<=4 "death" ]', plain(0.31)) == "the chance of death within 4 steps is 0.31"


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.7999, "0.7999 (at least 0.8000 is needed)"), (0.8 - 1e-9, "0.799999999 (at least 0.800000000 is needed)"),
     (0.8 - 1e-15, "0.800000000000 (at least 0.800000000000 is needed)"), (-0.0, "0.00 (at least 0.80 is needed)")],
)  # fmt: skip
def test_a_value_is_told_apart_from_the_bound_it_misses(value: float, told: str) -> None:
    assert say(GOAL, plain(value)) == f"{CHANCE} is {told}"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("firing", f"{CHANCE} is 0.70 {NEED}"),
        ("resolved", f"resolved: {CHANCE} is 0.70 {NEED}"),
        ("ended", f"the episode ended while this alarm was firing; at last, {CHANCE} is 0.70 {NEED}"),
        ("removed", f"alarm 'watch' was changed or removed while it was firing; at last, {CHANCE} is 0.70 {NEED}"),
    ],
)
def test_each_state_of_an_alert(state: AlarmState, told: str) -> None:
    assert say(GOAL, plain(0.7), state=state) == told


def test_a_doubted_model_still_answers_but_not_for_sure() -> None:
    assert say(GOAL, plain(0.7), blind="model_doubt") == (
        f"{CHANCE} is 0.70 {NEED}; but do not rely on these numbers, for the model is in doubt "
        "(model_doubt: steps go otherwise than the model says)"
    )


@pytest.mark.parametrize("reason", sorted(set(get_args(BlindReason)) - {"model_doubt"}))
def test_every_reason_for_blindness_is_put_into_words(reason: BlindReason) -> None:
    told = say(GOAL, plain(0.7), blind=reason)
    assert told.startswith(f"{CHANCE} is 0.70 {NEED}; this is the last that is known")
    assert told.endswith(f"blind here ({reason}: {BLIND_WORDS[reason]})")


def test_a_combination_tells_its_quantities() -> None:
    def quantity(text: str) -> Quantity:
        return Quantity(text, 0.25, 0, clipped=False)

    def verdict(*texts: str, holds: bool | None = False) -> Verdict:
        return Verdict("watch", "exact", "gumbel", tuple(quantity(text) for text in texts), holds=holds)

    text = f'"death" & {GOAL}'
    assert say(text, verdict("one", "two")) == "formula 'watch' fails: one is 0.25, two is 0.25"
    assert say(text, verdict("a", "b", "c", "d", "e", holds=True)).endswith("c is 0.25, and 2 more")
    assert say(text, verdict("x" * 101, holds=None)) == "formula 'watch' is undecided: one quantity is 0.25"
    undecided = Verdict("watch", "exact", "gumbel", (), outcome="undecided")
    assert say(f"regret(c@5, {GOAL})", undecided) == f"formula 'watch' is undecided: regret(c@5, {GOAL})"
    assert say('!"death"', verdict()) == "formula 'watch' fails: !\"death\""
    assert say("!" * 101 + '"death"', verdict()) == "formula 'watch' fails"


@pytest.mark.parametrize(
    ("path", "spoken"),
    [
        ('G<=1 !"crash"', "no crash within 1 step"),
        ('G<=4 "safe"', "safe throughout 4 steps"),
        ('F<=4 "home"', "home within 4 steps"),
        ('!"crash" U<=4 "home"', "home within 4 steps, and no crash before it,"),
        ('G[1,4] !"crash"', 'G[1,4] !"crash"'),
        ('F<=4 !"crash"', 'F<=4 !"crash"'),
    ],
)
def test_common_goals_are_said_in_words_and_others_quoted(path: str, spoken: str) -> None:
    assert say(f"P=? [ {path} ]", plain(0.31)) == f"the chance of {spoken} is 0.31"


def test_a_real_regret_reads_as_it_should(regret: Alert) -> None:
    assert regret.summary == (
        "robot-7: had 'careful' been in charge from 2 steps ago on, the chance of no crash within 4 steps from there "
        "would be 0.94 instead of 0.59 (at least 0.80 is needed); switching now still helps."
    )
