"""Whether a missed goal could have been met: as part of an alert, and in sentences.

The sentences say what would have been, never what to do: the changed decisions are chosen with knowledge that nobody
had then. Steps have their numbers, so that a sentence is still true when it is read later; how long ago one was is said
beside its number, as in the other sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from monitor.alarm.phrases import capital, decimals
from monitor.alarm.subject import Subject
from monitor.logic.syntax import Test
from monitor.model.action_names import WordsOfActions
from monitor.types import Avoidable, Changes, Recourse, State


class StepSentence(NamedTuple):
    """A sentence that names a step, in two parts; `offset`: how many steps before the verdict's that is, None: no step.

    The number is not in it: agents on the same path share the sentence, and each counts its steps.
    """

    before: str
    offset: int | None = None
    after: str = ""

    def at(self, seq: int) -> str:
        """Return the sentence about a verdict on the step `seq`."""
        return self.before if self.offset is None else f"{self.before}{seq - self.offset}{self.after}"


class AlertChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fewest decisions whose change meets the goal, chosen in hindsight, with the first of them."""

    count: int
    """Number of changed decisions, at most 3; all others are unchanged."""
    value: float
    """The value with these changes."""
    seq: int
    """The step of the first changed decision; up to it nothing is different."""
    offset: int
    """How many steps that is before the step `seq` of the alert."""
    state: State
    """The state in which it was made, as the model's index; of a world with numbers, the numbers."""
    taken: int | None
    """The action taken, as the model's index; `null`: none yet."""
    taken_name: str
    """What the configuration's `actions` call it, else its name in the model; empty if actions have none."""
    proposed: int
    """The action to take instead."""
    proposed_name: str
    """What it is called, likewise."""
    samples: int | None = None
    """Number of draws of which the value is the mean; left out if it is exact."""


class AlertRecourse(msgspec.Struct, frozen=True):
    """Whether the missed goal could have been met by other decisions from the formula's offset on.

    The values are exact, by the Gumbel-Max causal model, except in a world with numbers, where noise may be drawn.
    """

    avoidable: Avoidable | None
    """`foresight`: the policy that is best without hindsight would have met it; `hindsight`: only the best decisions in
    hindsight; `no`: nobody. `null`: not known, for the `reason`.
    """
    robust: bool | None
    """True if no causal model of the requested class changes `avoidable`; `null` if none was requested, or not known.
    """
    best: float | None
    """Value of the best decisions in hindsight: no policy has a better one."""
    optimal: float | None
    """Value of the policy that is best without hindsight."""
    changes: AlertChanges | None
    """The fewest changed decisions that would have met the goal; `null` if three are not enough, or if it could not be
    met.
    """
    reason: str
    """Why something is not known; empty if all is."""


def alert_recourse(recourse: Recourse | None, seq: int, actions: WordsOfActions = ()) -> AlertRecourse | None:
    """Return the part of an alert; `seq`: the step of the verdict. None if the verdict was not examined."""
    if recourse is None:
        return None
    return AlertRecourse(
        avoidable=recourse.avoidable,
        robust=recourse.robust,
        best=recourse.best,
        optimal=recourse.optimal,
        changes=None if recourse.changes is None else _changes(recourse.changes, seq, dict(actions)),
        reason=recourse.reason,
    )


def _changes(changes: Changes, seq: int, words: Mapping[str, str]) -> AlertChanges:
    taken, proposed = changes.taken_name or str(changes.taken), changes.proposed_name or str(changes.proposed)
    return AlertChanges(
        count=changes.count,
        value=changes.value,
        seq=seq - changes.offset,
        offset=changes.offset,
        state=changes.state,
        taken=changes.taken,
        taken_name=words.get(taken, changes.taken_name),
        proposed=changes.proposed,
        proposed_name=words.get(proposed, changes.proposed_name),
        samples=changes.samples or None,
    )


def recourse_sentences(recourse: Recourse | None, test: Test, subject: Subject) -> list[StepSentence]:
    """Return what other decisions would have given, one sentence each.

    Args:
        recourse: of a verdict; None: not examined, nothing is said.
        test: of the goal.
        subject: says when decisions were made.
    """
    if recourse is None:
        return []
    few = _few(recourse.changes, test, subject)
    if recourse.avoidable is None:
        return few
    lead, rest = _could(recourse, test, hindsight=subject.hindsight)
    if subject.back is None:
        could = StepSentence(f"{lead} {subject.when()} on{rest}")
    else:
        could = StepSentence(f"{lead} from step ", subject.back, f" on{rest}")
    return [*few, could]


def _few(changes: Changes | None, test: Test, subject: Subject) -> list[StepSentence]:
    if changes is None:
        return []
    lead = "In hindsight, " if subject.hindsight else ""
    value, _ = decimals(changes.value, test.bound)
    if changes.samples:
        value = f"about {value}"
    ago = f" ({subject.ago(changes.offset)})" if changes.offset else ""
    what, rest = f"{_instead(changes, subject)} at step ", ago
    if changes.count == 1:
        rest += f", with no other decision changed, would have given {value}"
    else:
        what = f"{changes.count} other decisions together would have given {value}, the first: {what}"
    return [StepSentence(capital(f"{lead}{what}"), changes.offset, rest)]


def _instead(changes: Changes, subject: Subject) -> str:
    proposed = subject.action(changes.proposed_name, changes.proposed)
    if changes.taken is None:
        return proposed
    return f"{proposed} instead of {subject.action(changes.taken_name, changes.taken)}"


def _could(recourse: Recourse, test: Test, *, hindsight: bool) -> tuple[str, str]:
    """Return whether the goal could have been met: before the words since when, and after them, with the values."""
    assert recourse.best is not None
    assert recourse.optimal is not None
    unsure = "; other causal models may disagree" if recourse.robust is False else ""
    match recourse.avoidable:
        case "foresight":
            known = "Even without hindsight, acting" if hindsight else "Acting"
            optimal, _ = decimals(recourse.optimal, test.bound)
            return f"{known} optimally", f" would have met the goal: {optimal}{unsure}"
        case "hindsight":
            best, optimal, _ = decimals(recourse.best, recourse.optimal, test.bound)
            return (
                "Only with knowledge of how it turned out could the goal have been met",
                f": {best}; acting optimally without it: {optimal}{unsure}",
            )
        case _:
            known = ", even in hindsight" if hindsight else ""
            best, _ = decimals(recourse.best, test.bound)
            return "Nobody could have met the goal", f"{known}: {best} at best{unsure}"
