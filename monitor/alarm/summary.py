"""Sentences of an alert: a summary that can be read alone, and details.

A person who is woken at night must be able to act on the summary alone, and to read it out on the telephone. The
summary says what happened, how bad it is, what to do, and how certain this is. It has fewer than 200 characters, for
all names and numbers. The details are the counterfactual, other possible decisions, and how the numbers were computed.

The numbers are the numbers of the verdict. They are rounded to two decimals, or to more decimals if a value would
otherwise look equal to the threshold that it misses. All numbers in one summary have the same number of decimals if
there is room.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from monitor.alarm.advice import Advice
from monitor.alarm.blindness import BLIND_WORDS, advises
from monitor.alarm.certainty import Certainty
from monitor.alarm.figures import missed_now
from monitor.alarm.finding import Finding, ends
from monitor.alarm.phrases import places, shortened
from monitor.alarm.recourse_sentences import StepSentence
from monitor.alarm.subject import LONGEST_NAME, Subject
from monitor.alarm.verdict_cache import VerdictCache
from monitor.logic.syntax import Formula
from monitor.types.alerts import AlarmState
from monitor.types.specs import FormulaSpec
from monitor.types.stream_events import BlindReason
from monitor.types.verdicts import Verdict

LONGEST: Final = 199
"""Maximum number of characters of a summary."""
LONGEST_AGENT: Final = 40
"""Maximum number of characters of an agent's name in a summary. A longer name is shortened."""
RUNBOOK: Final = "Follow the runbook"
"""Advice of a firing alarm that has no other advice."""
Spoken = AlarmState | Literal["fired"]
_kept: Final[VerdictCache[_Parts]] = VerdictCache()


class Told(NamedTuple):
    """The sentences of an alert. `summary` can be read alone; `details` [n] are further sentences."""

    summary: str
    details: tuple[str, ...]

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join((self.summary, *self.details))


class _Parts(NamedTuple):
    """Sentences without the agent's name, the numbers of steps and the full stops."""

    summary: tuple[str, ...]
    details: tuple[str | StepSentence, ...]


def tell(
    *,
    agent: str,
    formula: FormulaSpec,
    parsed: Formula,
    state: Spoken,
    blind: BlindReason | None,
    verdict: Verdict,
    path_length: int,
    seq: int,
    worst: float | None = None,
) -> Told:
    """Return the sentences for an alert in `state`, after `verdict`. `parsed`: the formula's text, parsed.

    The state `fired` describes the step at which the alarm fired, as the alarm's picture does, and gives no advice.
    `path_length`: number of pairs of the verdict's path; 0 if unknown, so that the sentences do not say how many steps
    ago an `@-k` was. `seq`: step of the verdict. `worst`: the worst value since the alarm fired, which the summary of a
    resolved alarm gives; None if unknown. If the summary would be too long, names are shortened and the least important
    words are left out.
    """
    pairs = path_length if verdict.offset < 0 else 0  # otherwise no sentence depends on it
    past: Final = "before" if state == "fired" else "ago"
    worst = worst if state == "resolved" else None

    def parts(brevity: int) -> _Parts:
        return _kept.get(
            lambda: _parts(
                formula,
                parsed,
                verdict,
                Subject(formula, verdict, pairs, past, brevity),
                state=state,
                blind=blind,
                worst=worst,
            ),
            *(verdict, formula, state, blind, pairs, brevity, worst),
        )

    full = parts(0)
    details = tuple(f"{part if isinstance(part, str) else part.at(seq)}." for part in full.details)
    for brevity in range(len(LONGEST_NAME)):
        name = shortened(agent, LONGEST_AGENT if brevity == 0 else LONGEST_NAME[brevity])
        said = f"{name}: {'. '.join(parts(brevity).summary)}."
        if len(said) <= LONGEST:
            break
    else:
        said = f"{said[: LONGEST - 1]}…"
    if brevity > 1:  # words were left out
        details = (f"In full: {'. '.join(full.summary)}.", *details)
    return Told(said, details)


def _parts(
    formula: FormulaSpec,
    parsed: Formula,
    verdict: Verdict,
    subject: Subject,
    *,
    state: Spoken,
    blind: BlindReason | None,
    worst: float | None,
) -> _Parts:
    """Return the sentences without the agent's name and without numbers of steps."""
    # The advice compares values from now on. If the goal is missed from now on too, the finding gives the same value.
    now = missed_now(parsed, verdict) if state == "firing" else None
    finding, advice = Finding(formula, parsed, verdict, subject, now), Advice(parsed, verdict, subject)
    if state == "firing" and subject.brevity <= 1:  # finding and advice are shown side by side
        numbers = finding.numbers(), advice.numbers()
        finding.places = advice.places = max(places(*ends(each)) for each in numbers)
    was_missed = worst is not None and subject.brevity <= 1 and finding.is_missed_by(worst)
    if worst is not None and was_missed:
        finding.places = places(*ends(finding.numbers()), worst)
    certainty = Certainty(formula, parsed, verdict, subject, finding.places)
    found, unsure, could = finding.sentence(), finding.disagreement(), finding.recourse()
    had = finding.counterfactual()
    last = f"{_caution(blind) or 'last: '}{found}"
    details: list[str | StepSentence]
    match state:
        case "firing":
            lead = [_caution(blind) + found + finding.met_again(), advice.sentence(blind) or RUNBOOK]
            details = [
                advice.without(blind),
                advice.credibly(blind),
                *([had] if had else unsure),
                advice.too_late(blind),
                *could,
            ]
        case "fired":
            lead = [f"when it fired, {found}"]
            then = "; ".join(part for part in (had, advice.then(had)) if part)
            details = [then, *([] if had else unsure), *could]
        case "resolved":
            lead, details = [f"resolved: {_caution(blind)}{found}"], [*unsure]
            if worst is not None and was_missed:
                lead.append(finding.worst(worst))
        case "ended":
            over = "the episode ended while this alarm was firing" if subject.brevity == 0 else "ended while firing"
            lead, details = [f"{over}; {last}"], [*unsure, *could]
        case "removed":
            over = "was changed or removed while it was firing" if subject.brevity == 0 else "was changed or removed"
            lead, details = [f"alarm '{subject.name(formula.name)}' {over}; {last}"], [*unsure]
        case _:
            lead, details = [found], [*unsure, *could]
    details += [
        *finding.all_quantities(),
        *certainty.learned(),
        *certainty.obtained(),
        *certainty.resampled(),
        *certainty.believed(),
        *_why(blind),
    ]
    return _Parts(
        tuple(part for part in (*lead, certainty.sure(blind, of_both=state == "fired")) if part),
        tuple(part for part in details if part),
    )


def _caution(blind: BlindReason | None) -> str:
    """Return the warning at the beginning of the summary."""
    match blind:
        case None:
            return ""
        case "model_doubt":
            return "MODEL CONTRADICTED: "
        case _:
            return f"BLIND ({blind}), last known: "


def _why(blind: BlindReason | None) -> list[str]:
    return [] if blind is None else [f"{'Do not rely on this' if advises(blind) else 'Blind'}: {BLIND_WORDS[blind]}"]
