"""Quality of a model in words and numbers, for `cfmon init`, `cfmon model learn --report` and `cfmon report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from monitor.alarm.phrases import bases_text, steps
from monitor.cli.output import say
from monitor.cli.recorded_inputs import many
from monitor.cli.report_page import Page, ReportRow, ReportSection
from monitor.errors import printable

if TYPE_CHECKING:
    from monitor.authoring.learning.forecast_skill import ForecastSkill
    from monitor.authoring.learning.model_report import Gain
    from monitor.authoring.proposal.belief_calibration import BeliefCalibration
    from monitor.authoring.proposal.model_quality import AlarmRates, ModelQuality
    from monitor.statistics.calibration import ReliabilityBin
    from monitor.statistics.clusters import Estimate

RELIABILITY: Final = "Forecasts of the event"
LEADS: Final = "Alarms"
BELIEF: Final = "Belief about the hidden state"

FORECASTS: Final = (
    "Each forecast is P(the event within so many steps) after a recorded step. Held-out: by a model that was learned "
    "without the episode. Base rate: how often it happens in the other episodes. Loss: negative log score; forecasts "
    "must take away 1 % of it at least, beyond chance. Where the event is one of several ways in which episodes end, "
    "so must they of the loss of a rule that knows when episodes end but not how: telling that the end is near is no "
    "forecast of the event. All intervals are 99 %, with episodes as what varies."
)
CLASSES: Final = "Reliability: the frequency of the event for forecasts in each tenth"
RELIABLE: Final = (
    "Mean forecast beside what happened. Not judged: over half of the forecast comes from states or actions that were "
    "never recorded in the other episodes. The event is assumed there, so this is no forecast by the model."
)
FILTERED: Final = (
    "Of the states said to have such a probability, how many were the true one? The belief is filtered: the "
    "distribution of the state given all observations and actions up to the step. Neighbouring steps depend on each "
    "other, so what is judged is the first such state of each episode. Its intervals are 99 % for all tenths together; "
    "a difference within 2 % never counts as wrong."
)
PAST: Final = (
    "Does the past help to predict the next state, beyond state and action? A difference above 0.01 nats and three "
    "standard errors counts. Power: the information that such a history must hold, in nats a step, for the test to "
    "find it with 90 % probability."
)


def quality_lines(found: ModelQuality) -> list[str]:
    """Return the quality in sentences, followed by further problems of the model."""
    main = found.main
    word = _refusal(main) if found.refused else "Good enough." if found.good else "NOT good enough."
    if main is None and found.good:
        word = "Nothing counts against the model, but its forecasts are NOT judged."
    parts = [word]
    if main is not None:
        parts += [_forecasts(main, "held-out episodes" if found.held_out else "episodes"), _gains(main)]
    if found.alarms is not None:
        parts.append(_alarms(found.alarms, found.day))
    parts += [f"From the start, {line}." for line in bases_text(found.bases)]
    from monitor.authoring.learning.model_report import NOT_MARKOV  # noqa: PLC0415 - keep `cfmon --help` light

    past = _past(found.past) if found.past else ""
    parts += [past] if past and not any(each.startswith(NOT_MARKOV) for each in found.problems) else []
    parts += [f"Not judged: {each}." for each in found.unjudged]
    return [" ".join(parts), *found.reasons]


def say_quality(name: str, found: ModelQuality) -> None:
    """Print the name with the quality, and below it further problems of the model."""
    first, *more = quality_lines(found)
    say(f"{printable(name)}: {printable(first)}")
    for line in more:
        say(f"  {printable(line)}")


def page_of(
    found: Sequence[tuple[str, ModelQuality]],
    title: str,
    about: str,
    more: tuple[Sequence[ReportSection], Mapping[str, str]] = ((), {}),
) -> Page:
    """Return a page with the quality of each formula under its name, and then the sections and charts of `more`.

    If there is only one formula, its name is left out.
    """
    lines: list[str] = []
    problems: list[str] = []
    sections: list[ReportSection] = []
    charts: dict[str, str] = {}
    for name, each in found:
        prefix = f"{name}: " if len(found) > 1 else ""
        first, *reasons = quality_lines(each)
        lines.append(prefix + first)
        problems += [prefix + reason for reason in reasons]
        for heading, drawing in _charts(each).items():
            charts[prefix + heading] = drawing
        sections += [(prefix + heading, text, head, rows) for heading, text, head, rows in _sections(each)]
    bad = any(not each.good for _, each in found)
    return Page(title, [" ".join(lines), *problems], about, [*sections, *more[0]], charts | dict(more[1]), bad=bad)


def belief_sentence(found: BeliefCalibration) -> str:
    """Return a sentence on the comparison of the belief with true states."""
    if not found.steps:
        return "The belief about the hidden state is NOT judged, as no true state was recorded."
    if found.calibrated:
        return "The belief about the hidden state was right, as far as these recordings show."
    said = "The belief about the hidden state was WRONG"
    if found.worst is not None:
        first = found.worst.first
        said += (
            f": of {first.count:,} states said to be the true one with {first.forecast:.1%} on average, "
            f"{_true(first)} were"
        )
    return said + (f"; the true state had probability 0 at {steps(found.impossible)}." if found.impossible else ".")


def with_belief(page: Page, found: BeliefCalibration) -> Page:
    """Return the page on quality with one more part at its beginning: the comparison of the belief with true states."""
    first, *more = page.result
    sections = [belief_section(found), *page.sections]
    bad = page.bad or not found.calibrated
    return replace(page, result=[f"{belief_sentence(found)} {first}", *more], sections=sections, bad=bad)


def belief_about(found: BeliefCalibration) -> str:
    """Return a sentence on the steps at which the belief was compared with the true state."""
    return (
        f"Compared the belief with the true state at {many(found.steps, 'step')} of {many(found.episodes, 'episode')}; "
        f"{many(found.unknown, 'step')} without a known state left out."
    )


def belief_section(found: BeliefCalibration) -> ReportSection:
    """Return the section of a page on the belief."""
    head = ("probability", "states", "said", "true", "first of each episode", "said", "true", "judgement")
    rows: list[ReportRow] = [
        (
            f"{first.low:.0%} to {first.high:.0%}", f"{every.count:,}", f"{every.forecast:.1%}",
            f"{every.frequency:.1%}", f"{first.count:,}", f"{first.forecast:.1%}", _true(first),
            "right" if each.agrees else "WRONG",
        )
        for each in found.tenths
        for every, first in [(each.every, each.first)]
    ]  # fmt: skip
    return BELIEF, FILTERED, head, rows


def _true(first: ReliabilityBin) -> str:
    return f"{first.frequency:.1%} ({first.interval[0]:.1%} to {first.interval[1]:.1%})"


def _charts(found: ModelQuality) -> dict[str, str]:
    charts = {RELIABILITY: "".join(_reliability(each) for each in found.skills if each.count)}
    return charts if found.alarms is None else charts | {LEADS: _lead_chart(found.alarms)}


def _sections(found: ModelQuality) -> list[ReportSection]:
    sections: list[ReportSection] = []
    if found.skills:
        head: ReportRow = ("within", "forecasts", "episodes", "with it", "said", "happened", "Brier", "base rate's",
                     "less loss", "than one that knows ends", "judgement")  # fmt: skip
        sections.append((RELIABILITY, FORECASTS, head, [_skill_row(each) for each in found.skills]))
        rows: list[ReportRow] = [
            (str(each.horizon), f"{one.count:,}", f"{one.said:.1%}", _with(one.happened, percent=True), judged)
            for each in found.skills
            for one, judged in [*((one, "judged") for one in each.classes), (each.assumed, "not judged")]
            if one is not None
        ]
        sections.append((CLASSES, RELIABLE, ("within", "forecasts", "said", "happened", ""), rows))
    if found.alarms is not None:
        sections.append((LEADS, found.alarms.measured.candidate.text, ("what", "number"), _alarm_rows(found)))
    if found.past:
        head = ("knows state, action and", "difference, nats a step", "standard error", "power")
        sections.append(("What the past still tells", PAST, head, [_past_row(each) for each in found.past]))
    return sections


def _refusal(one: ForecastSkill | None) -> str:
    """Return the first words of a result without a proposed formula."""
    from monitor.authoring.learning.forecast_skill import WORTH  # noqa: PLC0415 - keep `cfmon --help` light

    only_ends = one is not None and one.log_gain.low > WORTH
    ends = ": the forecasts know when episodes end, but not how" if only_ends else ""
    return f"No better than the base rate, as far as these recordings show{ends}."


def _forecasts(one: ForecastSkill, of: str) -> str:
    right = "were right" if one.calibrated else "were WRONG"
    apart = ""
    if one.assumed is not None:
        apart = (
            f" Not judged: {many(one.assumed.count, 'further forecast')}; over half of the value comes from what was "
            f"never recorded, where the event is assumed (mean forecast {one.assumed.said:.1%})."
        )
    return (
        f"Forecasts of '{one.label}' within {one.horizon} steps {right}: on average they said {one.said:.1%}, and it "
        f"happened after {_with(one.happened, percent=True)} of them, {one.count:,} forecasts on {one.episodes:,} "
        f"{of}, {one.eventful:,} of which had the event (Brier score {one.brier:.3f}; always saying the base rate: "
        f"{one.base_brier:.3f}).{apart}"
    )


def _gains(one: ForecastSkill) -> str:
    said = (
        "The judged forecasts reduce the loss (negative log score) of always saying the base rate by "
        f"{_with(one.log_gain, percent=True)}"
    )
    if one.end_gain is not None:
        said += f", and that of a rule that knows when episodes end but not how by {_with(one.end_gain, percent=True)}"
    return said + ("." if one.better else "; to be better than chance, it must be by 1 % or more.")


def _alarms(rates: AlarmRates, day: float | None) -> str:
    found = rates.measured
    scale, unit = (1000.0, "in 1,000 steps") if day is None else (day, "a day")
    said = (
        f"Expect {_with(rates.alarms, scale)} alarms {unit}, {_with(rates.false, scale)} of them false "
        f"(measured: {found.alarms:,} in {found.steps:,} steps of {len(found.episodes):,} episodes)"
    )
    if not found.events:
        return f"{said}; no event came, so that an alarm precedes one is not shown."
    ahead = (
        ""
        if found.lead is None
        else f", half of them {steps(found.lead)} or more ahead ({min(found.leads)} to {max(found.leads)})"
    )
    return (
        f"{said}; {_with(rates.preceded, percent=True)} of {found.events:,} events came after an alarm{ahead}, "
        f"and {found.events - found.preceded:,} without one."
    )


def _past(past: Sequence[Gain]) -> str:
    real = max((each for each in past if each.real), key=lambda each: each.difference, default=None)
    if real is not None:
        return (
            f"The states are not Markov: {real.name} still predicts the next state, by {real.difference:.3f} nats a "
            "step."
        )
    weakest = max(past, key=lambda each: each.detects)
    power = f"one of {weakest.detects:.3f} nats a step" if weakest.detects < float("inf") else "NO history"
    return f"No history was found that improves predictions; with 90 % probability {power} would have been."


def _with(found: Estimate, scale: float = 1.0, *, percent: bool = False) -> str:
    """Return a number with its interval."""
    value, low, high = (each * scale for each in (found.value, found.low, found.high))
    shown = f"{value:.1%}" if percent else _short(value)
    if found.clusters < 2:
        return f"{shown} (no interval: {found.clusters} episode)"
    if percent:
        return f"{shown} ({low:.1%} to {high:.1%})"
    return f"{shown} ({_short(max(low, 0.0))} to {_short(high)})"


def _short(number: float) -> str:
    """Return a number with two significant digits; from 10 on, rounded to a whole number."""
    return f"{number:,.0f}" if abs(number) >= 10 else f"{number:.2g}"


def _skill_row(one: ForecastSkill) -> ReportRow:
    judged = "not judged" if not one.known else "better" if one.better else "no better"
    right = "" if one.calibrated or not one.known else ", wrong"
    return (
        str(one.horizon), f"{one.count:,}", f"{one.episodes:,}", f"{one.eventful:,}", f"{one.said:.1%}",
        _with(one.happened, percent=True), f"{one.brier:.4f}", f"{one.base_brier:.4f}",
        _with(one.log_gain, percent=True), "-" if one.end_gain is None else _with(one.end_gain, percent=True),
        judged + right,
    )  # fmt: skip


def _alarm_rows(found: ModelQuality) -> list[ReportRow]:
    assert found.alarms is not None
    rates, counts = found.alarms, found.alarms.measured
    scale, unit = (1000.0, "in 1,000 steps") if found.day is None else (found.day, "a day")
    return [
        ("steps, episodes", f"{counts.steps:,}, {len(counts.episodes):,}"),
        ("alarms", f"{counts.alarms:,}; {_with(rates.alarms, scale)} {unit}"),
        ("of them true: the event followed within the horizon", f"{counts.alarms - counts.false:,}"),
        ("of them false", f"{counts.false:,}; {_with(rates.false, scale)} {unit}"),
        ("events", f"{counts.events:,}"),
        ("events after an alarm", f"{counts.preceded:,}; {_with(rates.preceded, percent=True)}"),
        ("events without (missed)", f"{counts.events - counts.preceded:,}"),
        ("median steps from the alarm to the event", "-" if counts.lead is None else f"{counts.lead:g}"),
    ]


def _past_row(one: Gain) -> ReportRow:
    power = f"{one.detects:.3f}" if one.detects < float("inf") else "none"
    return one.name, f"{one.difference:+.4f}{' (real)' if one.real else ''}", f"{one.error:.4f}", power


def _reliability(one: ForecastSkill) -> str:
    """Return a reliability diagram: for each tenth of the forecasts, the frequency of the event with its interval.

    On the diagonal, the frequency is equal to the forecast.
    """
    from monitor.picture.svg import ALTERNATIVE, FAINT, NOMINAL, RULE, Canvas  # noqa: PLC0415 - keep `cfmon --help` light

    title = f"{one.label} within {one.horizon}"
    canvas = Canvas(210, title, f"Reliability diagram of {one.count} forecasts")
    canvas.text((30, 16), title, size=12, bold=True)
    canvas.box((30, 26), (150, 150), ink=RULE)
    canvas.line((30, 176), (180, 26), ink=FAINT, dash="4 3")
    for each in one.classes:
        x, y = 30 + 150 * each.said, 176 - 150 * each.happened.value
        low, high = max(each.happened.low, 0.0), min(each.happened.high, 1.0)
        ink = ALTERNATIVE if low <= each.said <= high else NOMINAL
        canvas.line((x, 176 - 150 * low), (x, 176 - 150 * high), ink=ink)
        says = f"said {each.said:.3f}, happened {each.happened.value:.3f}, {each.count} forecasts"
        canvas.dot((x, y), 3 + 6 * (each.count / one.count) ** 0.5, fill=ink, says=says)
    canvas.text((105, 194), "forecast", size=11, ink=FAINT, anchor="middle")
    canvas.text((26, 34), "1", size=11, ink=FAINT, anchor="end")
    canvas.text((26, 176), "0", size=11, ink=FAINT, anchor="end")
    return canvas.document(200)


def _lead_chart(rates: AlarmRates) -> str:
    """Return a chart that shows, for each number of steps from alarm to event, the number of events."""
    from monitor.picture.svg import ALTERNATIVE, FAINT, Canvas  # noqa: PLC0415 - keep `cfmon --help` light

    leads = rates.measured.leads
    if not leads:
        return ""
    counts = {step: leads.count(step) for step in range(1, max(leads) + 1)}
    canvas = Canvas(640, "Steps from the alarm to the event", ", ".join(f"{k}: {n}" for k, n in counts.items()))
    width = 600 / len(counts)
    for number, (step, count) in enumerate(counts.items()):
        height, x = 120 * count / max(counts.values()), 20 + width * number
        canvas.box((x, 140 - height), (0.8 * width, height), fill=ALTERNATIVE, says=f"{step} steps: {count} events")
    for place, step in ((20 + 0.4 * width, 1), (20 + width * (len(counts) - 0.6), max(leads))):
        canvas.text((place, 156), str(step), size=11, ink=FAINT, anchor="middle")
    canvas.text((320, 168), "steps from the alarm to the event", size=11, ink=FAINT, anchor="middle")
    return canvas.document(176)
