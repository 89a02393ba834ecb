"""Recourse in alerts: data and sentences on whether a missed goal could have been met.

The sentences say what would have happened, and never what to do, because the changed decisions use knowledge that
nobody had at that time. Steps are named by number, so that a sentence is still true when it is read later. A sentence
also says how many steps ago the named step was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from monitor.alarm.phrases import capital, decimals
from monitor.alarm.subject import Subject
from monitor.logic.syntax import Test
from monitor.model.action_names import WordsOfActions
from monitor.types.stream_events import State
from monitor.types.verdicts import Avoidable, Changes, Recourse


class StepSentence(NamedTuple):
    """A sentence that names a step, as the texts before and after the step's number.

    `offset`: number of steps from the named step to the verdict's step; None if no step is named.

    The step's number is not included, because agents on the same path share the sentence but number their steps
    differently.
    """

    before: str
    offset: int | None = None
    after: str = ""

    def at(self, seq: int) -> str:
        """Return the sentence about a verdict on the step `seq`."""
        return self.before if self.offset is None else f"{self.before}{seq - self.offset}{self.after}"


class AlertChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fewest changed decisions, chosen in hindsight, that would have met the goal; and the first of them."""

    count: int
    """Number of changed decisions, at most 3. All other decisions are unchanged."""
    value: float
    """The value with these changes."""
    seq: int
    """The step of the first changed decision. Before it, nothing is different."""
    offset: int
    """Number of steps from the first changed decision to the step `seq` of the alert."""
    state: State
    """The state in which this decision was made: the model's index, or the numbers in a world with numbers."""
    taken: int | None
    """The action taken, as the model's index; `null` if no action was taken yet."""
    taken_name: str
    """The words for this action in the configuration's `actions`, or its name in the model; empty if it has no name."""
    proposed: int
    """The action to take instead."""
    proposed_name: str
    """The words for the proposed action in the configuration's `actions`, or its name in the model; empty if it has no
    name."""
    samples: int | None = None
    """Number of samples of which the value is the mean; left out if the value is exact."""


class AlertRecourse(msgspec.Struct, frozen=True):
    """Whether the missed goal could have been met by other decisions from the formula's offset on.

    The values are exact under the Gumbel-Max causal model, except in a world with numbers, where noise may be sampled.
    """

    avoidable: Avoidable | None
    """`foresight`: the best policy without hindsight would have met the goal. `hindsight`: only the best decisions in
    hindsight would have met it. `no`: no decisions would have met it. `null`: unknown; see `reason`."""
    robust: bool | None
    """True if no causal model of the requested class changes `avoidable`; `null` if no class was requested, or if
    unknown."""
    best: float | None
    """Value of the best decisions in hindsight. No policy has a better value."""
    optimal: float | None
    """Value of the policy that is best without hindsight."""
    changes: AlertChanges | None
    """The fewest changed decisions that would have met the goal; `null` if three are not enough, or if the goal could
    not be met."""
    reason: str
    """Reason why something is unknown; empty if everything is known."""


def alert_recourse(recourse: Recourse | None, seq: int, actions: WordsOfActions = ()) -> AlertRecourse | None:
    """Return the part of an alert on recourse; None if the verdict was not examined. `seq`: the step of the verdict."""
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
    """Return sentences on the values of other decisions.

    Args:
        recourse: recourse of a verdict; None if it was not examined. There are then no sentences.
        test: test of the goal.
        subject: gives the words for the time of decisions.
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
    what, rest = f"{instead(changes, subject.action)} at step ", ago
    if changes.count == 1:
        rest += f", with no other decision changed, would have given {value}"
    else:
        what = f"{changes.count} other decisions together would have given {value}, the first: {what}"
    return [StepSentence(capital(f"{lead}{what}"), changes.offset, rest)]


def instead(changes: Changes, in_words: Callable[[str, int], str]) -> str:
    """Return the first other decision in words. `in_words`: returns the words for an action's name and number."""
    proposed = in_words(changes.proposed_name, changes.proposed)
    if changes.taken is None:
        return proposed
    return f"{proposed} instead of {in_words(changes.taken_name, changes.taken)}"


def _could(recourse: Recourse, test: Test, *, hindsight: bool) -> tuple[str, str]:
    """Return the words on whether the goal could have been met: those before and those after the starting time."""
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
