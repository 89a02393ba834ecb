"""Alarm state machine, as one transition table.

An alarm is `clear`, `pending` (bad verdicts, fewer than `for`) or `firing`. Each verdict is assessed first:

- `bad`: the trigger. For a plain formula it is `fails` or `holds`, as set by `alarm.when`. For `regret(...)` it is
  regret, and with `when: unavoidable` also unavoidable. `for` bad verdicts, without a good verdict in between, fire the
  alarm;
- `missed`: the goal is missed, but this is not the trigger: the outcome is unavoidable, or the alternative is unknown.
  A firing alarm keeps firing, and its count of good verdicts restarts. A missed verdict does not start an alarm, and
  does not change the count of a pending alarm;
- `good`: resets a pending alarm. `keep` good verdicts, without a bad or missed verdict in between, resolve a firing
  alarm;
- `neutral`: undecided, or without a truth value (`=?`). It neither advances nor resets a count.

The outcome of unrecorded pairs is unknown, and unknown never counts as good. If unrecorded pairs decide the answer, a
plain formula is assessed as if its answer were bad, and `regret` as if the agent missed its goal. An unknown
alternative fires no alarm: `regret` is then `missed`, and an effect is neutral.

Definitions: docs/semantics/streams.md, sections 10.1 and 10.2.

Two more events close an alarm: `ended` (the episode is over) and `removed` (the formula was removed). Blindness changes
no state by itself (`set_blind`). If blindness prevents verdicts, the alarm keeps its state. Marked verdicts advance the
alarm as usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, assert_never

import msgspec
from msgspec.structs import replace

from monitor.types.alerts import AlarmState
from monitor.types.specs import AlarmSpec, AlarmWhen
from monitor.types.stream_events import BlindReason
from monitor.types.verdicts import UNRECORDED, Verdict

MachineState = Literal["clear", "pending", "firing"]
Assessment = Literal["good", "bad", "missed", "neutral"]
MachineEvent = Literal["good", "bad", "missed", "neutral", "ended", "removed"]


class Alarm(msgspec.Struct, frozen=True):
    """Alarm of one formula for one agent, as plain data in `FormulaMonitorState`.

    `run`: number of counted bad verdicts while pending, of good verdicts while firing, else 0. `first_seq`, `since`:
    step and time (seconds since the epoch) of the first counted bad verdict; None while clear. `revision`: number of
    alerts published in this episode. The next alarm of the episode does not reset `revision`. If an agent restarts
    under the same episode, two alarms may have the same `first_seq` and therefore the same id. Even then, each (id,
    revision) is used only once.
    """

    state: MachineState = "clear"
    run: int = 0
    first_seq: int | None = None
    since: float | None = None
    revision: int = 0
    blind: BlindReason | None = None


class AlarmChange(msgspec.Struct, frozen=True):
    """A change of an alarm to report: its new state, and its other fields from `Alarm` before their reset.

    `clear` and `pending` change metrics only; `firing`, `resolved`, `ended` and `removed` are alerts. After `resolved`,
    `ended` and `removed` the alarm is `clear`.
    """

    state: AlarmState
    first_seq: int
    since: float
    revision: int

    @property
    def is_alert(self) -> bool:
        """True if the change is published, because the alarm fires or has fired."""
        return self.state not in ("clear", "pending")


class Transition(msgspec.Struct, frozen=True):
    """One row of the table. `run`: change of the count. `reports`: the state to report; None for no report."""

    to: MachineState
    run: Literal["keep", "grow", "reset"]
    reports: AlarmState | None
    why: str


NOTHING: Final = Transition("clear", "keep", None, "nothing to report")
QUIET: Final = Transition("clear", "reset", "clear", "never fired, so nothing to close")

TABLE: Final[Mapping[tuple[MachineState, MachineEvent, bool], Transition]] = MappingProxyType(
    {
        ("clear", "bad", False): Transition("pending", "grow", "pending", "bad verdicts, fewer than `for`"),
        ("clear", "bad", True): Transition("firing", "reset", "firing", "`for: 1`"),
        ("clear", "missed", False): Transition("clear", "keep", None, "the goal is missed, but not the trigger"),
        ("clear", "good", False): NOTHING,
        ("clear", "neutral", False): NOTHING,
        ("clear", "ended", False): NOTHING,
        ("clear", "removed", False): NOTHING,
        ("pending", "bad", False): Transition("pending", "grow", None, "still fewer than `for`"),
        ("pending", "bad", True): Transition("firing", "reset", "firing", "`for` bad ones, no good one in between"),
        ("pending", "missed", False): Transition("pending", "keep", None, "neither trigger nor good verdict: no reset"),
        ("pending", "good", False): Transition("clear", "reset", "clear", "the count of bad verdicts restarts"),
        ("pending", "neutral", False): Transition("pending", "keep", None, "no truth value"),
        ("pending", "ended", False): QUIET,
        ("pending", "removed", False): QUIET,
        ("firing", "bad", False): Transition("firing", "reset", None, "the count of good verdicts restarts"),
        ("firing", "missed", False): Transition("firing", "reset", None, "likewise: the goal is still missed"),
        ("firing", "good", False): Transition("firing", "grow", None, "still fewer than `keep`"),
        ("firing", "good", True): Transition("clear", "reset", "resolved", "`keep` good, no bad or missed in between"),
        ("firing", "neutral", False): Transition("firing", "keep", None, "no truth value"),
        ("firing", "ended", False): Transition("clear", "reset", "ended", "over without good verdicts: never resolved"),
        ("firing", "removed", False): Transition("clear", "reset", "removed", "the formula is gone"),
    }
)
"""(state, event, whether this verdict completes a count) -> transition.

For an event that completes no count, the third entry is False.
"""

IDLE: Final = frozenset(event for (place, event, _), row in TABLE.items() if place == "clear" and row == NOTHING)
"""Events that never change a clear alarm. For these, the table need not be read."""


PLAIN_TRIGGERS: Final[tuple[AlarmWhen, ...]] = ("fails", "holds")
REGRET_TRIGGERS: Final[tuple[AlarmWhen, ...]] = ("regret", "unavoidable")
"""The values of `alarm.when` for a plain formula and for `regret(...)`, the default first. `_assessed` uses them."""

EFFECT: Final = "delta("
"""Beginning of the printed text of an effect."""


def assess(verdict: Verdict, spec: AlarmSpec) -> Assessment:
    """Return the assessment of a verdict for the alarm.

    With `only_if: robust`, a bad verdict that is not robust is neutral.

    A formula with `=?` has no truth value and is always neutral. The configuration refuses an alarm on it.

    >>> regret = Verdict("regret", "exact", "gumbel", (), outcome="unavoidable")
    >>> assess(regret, AlarmSpec()), assess(regret, AlarmSpec(when="unavoidable"))
    ('missed', 'bad')
    """
    assessment = _assessed(verdict, spec)
    if assessment == "bad" and spec.only_if == "robust" and verdict.robust is not True:
        return "neutral"
    return assessment


def _assessed(verdict: Verdict, spec: AlarmSpec) -> Assessment:
    outcome = verdict.outcome
    if outcome is None:  # a plain formula
        if verdict.holds is None:
            return _unknown(verdict)
        return "bad" if verdict.holds == (spec.fires_while == "holds") else "good"
    match outcome:
        case "safe":
            return "good"
        case "regret":
            return "bad"
        case "unavoidable":
            return "bad" if spec.when == "unavoidable" else "missed"
        case "undecided":
            return _unknown_regret(verdict, spec)
        case _:
            assert_never(outcome)


def _unknown_regret(verdict: Verdict, spec: AlarmSpec) -> Assessment:
    """Assess an undecided regret formula."""
    if verdict.method == "sampled" or len(verdict.quantities) != 2:
        return "neutral"
    suffices = verdict.quantities[1].holds
    return "bad" if suffices or spec.when == "unavoidable" else "missed"


def _unknown(verdict: Verdict) -> Assessment:
    """Assess a plain formula without a truth value: `=?`, or undecided."""
    if verdict.reason != UNRECORDED:
        return "neutral"
    open_ = [quantity for quantity in verdict.quantities if quantity.holds is None]
    return "neutral" if open_ and all(quantity.text.startswith(EFFECT) for quantity in open_) else "bad"


def next_alarm(
    alarm: Alarm, assessment: Assessment, spec: AlarmSpec, seq: int, time: float
) -> tuple[Alarm, AlarmChange | None]:
    """Advance an alarm by one verdict, given at step `seq` with time `time` (seconds since the epoch).

    Return the alarm after the verdict, and the change to report, if any.

    >>> alarm, change = next_alarm(Alarm(), "bad", AlarmSpec(for_=2), seq=7, time=1.5)
    >>> alarm.state, change.state
    ('pending', 'pending')
    >>> alarm, change = next_alarm(alarm, "bad", AlarmSpec(for_=2), seq=8, time=2.5)
    >>> change
    AlarmChange(state='firing', first_seq=7, since=1.5, revision=1)
    """
    if alarm.state == "clear" and assessment == "bad":
        alarm = replace(alarm, first_seq=seq, since=time)
    return _apply(alarm, assessment, _enough(alarm, assessment, spec))


def close(alarm: Alarm, how: Literal["ended", "removed"]) -> tuple[Alarm, AlarmChange | None]:
    """Close an alarm with its episode (`ended`) or its formula (`removed`). Only a firing alarm makes an alert.

    The returned alarm is new but keeps `blind`, because blindness belongs to the stream and not to the episode.
    """
    closed, change = _apply(alarm, how, enough=False)
    return replace(closed, revision=0), change


def set_blind(alarm: Alarm, blind: BlindReason | None) -> tuple[Alarm, AlarmChange | None]:
    """Set the reason why the formula is blind (None if it is not). The state does not change.

    A firing alarm reports the change as a new revision, because the operator must know whether the alarm's values are
    reliable, and if not, why.
    """
    if blind == alarm.blind:
        return alarm, None
    alarm = replace(alarm, blind=blind)
    return _report(alarm, "firing") if alarm.state == "firing" else (alarm, None)


def renew(alarm: Alarm) -> tuple[Alarm, AlarmChange]:
    """Make a new revision of a firing alarm, because its verdict has changed enough (`Stance.differs`)."""
    return _report(alarm, "firing")


def _enough(alarm: Alarm, assessment: Assessment, spec: AlarmSpec) -> bool:
    """Return whether this verdict completes the count to `for` or `keep`."""
    if assessment == "bad" and alarm.state != "firing":
        return alarm.run + 1 >= spec.for_
    return assessment == "good" and alarm.state == "firing" and alarm.run + 1 >= spec.keep


def _apply(alarm: Alarm, event: MachineEvent, enough: bool) -> tuple[Alarm, AlarmChange | None]:  # noqa: FBT001 - a table key
    row = TABLE[alarm.state, event, enough]
    if row is NOTHING:
        return alarm, None  # the usual case
    run = {"keep": alarm.run, "grow": alarm.run + 1, "reset": 0}[row.run]
    advanced = replace(alarm, state=row.to, run=run)
    if row.reports is None:
        return advanced, None
    reported, change = _report(advanced, row.reports)
    return (replace(reported, first_seq=None, since=None) if row.to == "clear" else reported), change


def _report(alarm: Alarm, state: AlarmState) -> tuple[Alarm, AlarmChange]:
    """Return the change to report. Only alerts get a new revision."""
    first_seq, since = alarm.first_seq, alarm.since
    assert first_seq is not None
    assert since is not None
    revision = alarm.revision + (state not in ("clear", "pending"))
    return replace(alarm, revision=revision), AlarmChange(state, first_seq, since, revision)
