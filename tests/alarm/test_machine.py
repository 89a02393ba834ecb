"""The alarm's table against the rules of the public surface, told a second time and slowly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args

import pytest
from msgspec.structs import replace

from monitor.alarm.machine import (
    TABLE,
    Alarm,
    AlarmChange,
    Assessment,
    MachineEvent,
    MachineState,
    assess,
    close,
    next_alarm,
    renew,
    set_blind,
)
from monitor.types import AlarmSpec, AlarmState, Outcome, Verdict

ASSESSMENTS: tuple[Assessment, ...] = get_args(Assessment)


def transcription(history: list[Assessment], for_: int, keep: int) -> list[tuple[str, str | None, int | None]]:
    """The state after each verdict of an episode, the published alert (if any), and the index of its first bad verdict.

    Fires once the last `for_` verdicts that are good or bad are all bad; resolves once the last `keep` that are not
    neutral are all good. Both look back no further than the last firing or resolving.
    """
    told: list[tuple[str, str | None, int | None]] = []
    firing, start, began = False, 0, None
    for now in range(len(history)):
        held = [i for i in range(start, now + 1) if history[i] != "neutral" and (firing or history[i] != "missed")]
        wanted, needed = ("good", keep) if firing else ("bad", for_)
        complete = len(held) >= needed and all(history[i] == wanted for i in held[len(held) - needed :])
        if complete and now in held:
            began = began if firing else held[len(held) - needed]
            told.append(("clear", "resolved", began) if firing else ("firing", "firing", began))
            firing, start = not firing, now + 1
        elif firing:
            told.append(("firing", None, began))
        else:
            told.append(("pending" if held and history[held[-1]] == "bad" else "clear", None, None))
    return told


@pytest.mark.parametrize(("for_", "keep"), list(product((1, 2, 3), (1, 2, 3))))
def test_every_short_sequence_of_verdicts_does_what_the_rules_say(for_: int, keep: int) -> None:
    spec = AlarmSpec(for_=for_, keep=keep)

    def walk(alarm: Alarm, history: list[Assessment], alerts: int) -> Iterator[int]:
        if len(history) == 7:
            yield 1
            return
        for assessment in ASSESSMENTS:
            longer = [*history, assessment]
            after, change = next_alarm(alarm, assessment, spec, seq=100 + len(history), time=0.5 * len(history))
            state, alert, began = transcription(longer, for_, keep)[-1]
            assert after.state == state, longer
            told = change if change is not None and change.is_alert else None
            if alert is None:
                assert told is None, longer
            else:
                assert began is not None
                expected = AlarmChange(
                    "firing" if alert == "firing" else "resolved", 100 + began, 0.5 * began, alerts + 1
                )
                assert told == expected, longer
            assert (change is not None) == (after.state != alarm.state), longer
            assert (after.first_seq is None) == (after.since is None) == (after.state == "clear"), longer
            yield from walk(after, longer, alerts + (told is not None))

    assert sum(walk(Alarm(), [], 0)) == 4**7


@pytest.mark.parametrize(("for_", "keep"), list(product((1, 2), (1, 2))))
@pytest.mark.parametrize("how", ["ended", "removed"])
def test_a_closed_alarm_starts_again_from_nothing(for_: int, keep: int, how: Literal["ended", "removed"]) -> None:
    spec = AlarmSpec(for_=for_, keep=keep)
    for history in product(ASSESSMENTS, repeat=4):
        alarm = Alarm()
        for seq, assessment in enumerate(history):
            alarm, _ = next_alarm(alarm, assessment, spec, seq=seq, time=float(seq))
        after, change = close(alarm, how)
        assert after == Alarm()
        match alarm.state:
            case "firing":
                assert change == AlarmChange(how, alarm.first_seq or 0, alarm.since or 0.0, alarm.revision + 1)
            case "pending":
                assert change is not None
                assert (change.state, change.is_alert) == ("clear", False)
            case "clear":
                assert change is None


def test_the_end_of_an_episode_is_never_a_resolution() -> None:
    told = {row.reports for (_, event, _), row in TABLE.items() if event in ("ended", "removed")}
    assert "resolved" not in told


def test_the_table_is_complete_and_no_row_is_out_of_reach() -> None:
    places, events = get_args(MachineState), get_args(MachineEvent)
    assert {(place, event) for place, event, _ in TABLE} == set(product(places, events))
    assert {key[:2] for key in TABLE if key[2]} == {("clear", "bad"), ("pending", "bad"), ("firing", "good")}


def test_blindness_keeps_the_state_and_is_reported_for_a_firing_alarm_only() -> None:
    spec = AlarmSpec(for_=2, keep=2)
    pending, _ = next_alarm(Alarm(), "bad", spec, seq=3, time=1.0)
    blind, change = set_blind(pending, "gap")
    assert (blind, change) == (replace(pending, blind="gap"), None)
    firing, fired = next_alarm(blind, "bad", spec, seq=4, time=2.0)
    assert fired == AlarmChange("firing", 3, 1.0, 1)
    assert set_blind(firing, "gap") == (firing, None)
    seeing, change = set_blind(firing, None)
    assert change == AlarmChange("firing", 3, 1.0, 2)
    assert seeing == replace(firing, blind=None, revision=2)
    again, change = set_blind(seeing, "stale")
    assert change == AlarmChange("firing", 3, 1.0, 3)
    ended, change = close(again, "ended")
    assert change == AlarmChange("ended", 3, 1.0, 4)
    assert ended == Alarm(blind="stale")


def test_a_firing_alarm_takes_a_new_revision_for_news_and_stays() -> None:
    firing, _ = next_alarm(Alarm(), "bad", AlarmSpec(), seq=3, time=1.0)
    after, change = renew(firing)
    assert change == AlarmChange("firing", 3, 1.0, 2)
    assert after == replace(firing, revision=2)


def test_a_second_alarm_of_the_episode_never_repeats_an_id_and_revision() -> None:
    spec, seen = AlarmSpec(), set()
    alarm = Alarm()
    for assessment, seq in (("bad", 0), ("good", 1), ("bad", 0), ("good", 1)):  # the agent started over
        alarm, change = next_alarm(alarm, "bad" if assessment == "bad" else "good", spec, seq=seq, time=0.0)
        assert change is not None
        seen.add((change.first_seq, change.revision))
    assert len(seen) == 4


def verdict(*, holds: bool | None = None, outcome: Outcome | None = None, value: float | None = None) -> Verdict:
    return Verdict("f", "exact", "gumbel", (), value=value, holds=holds, outcome=outcome)


@pytest.mark.parametrize(
    ("when", "given", "expected"),
    [
        (None, verdict(holds=False), "bad"),
        (None, verdict(holds=True), "good"),
        ("fails", verdict(holds=False), "bad"),
        ("fails", verdict(holds=True), "good"),
        ("holds", verdict(holds=True), "bad"),
        ("holds", verdict(holds=False), "good"),
        ("holds", verdict(), "neutral"),
        (None, verdict(value=0.25), "neutral"),
        ("holds", verdict(value=0.25), "neutral"),
        (None, verdict(outcome="safe"), "good"),
        (None, verdict(outcome="regret"), "bad"),
        (None, verdict(outcome="unavoidable"), "missed"),
        (None, verdict(outcome="undecided"), "neutral"),
        ("regret", verdict(outcome="regret"), "bad"),
        ("regret", verdict(outcome="unavoidable"), "missed"),
        ("unavoidable", verdict(outcome="unavoidable"), "bad"),
        ("unavoidable", verdict(outcome="regret"), "bad"),
        ("unavoidable", verdict(outcome="safe"), "good"),
        ("unavoidable", verdict(outcome="undecided"), "neutral"),
    ],
)
def test_what_a_verdict_means_to_an_alarm(
    when: Literal["fails", "holds", "regret", "unavoidable"] | None, given: Verdict, expected: str
) -> None:
    assert assess(given, AlarmSpec(when=when)) == expected


def test_the_table_reports_states_of_alerts() -> None:
    assert {row.reports for row in TABLE.values()} - {None} <= set(get_args(AlarmState))
