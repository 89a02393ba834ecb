"""The report on a model of `cfmon model learn --report`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from monitor.cli.report_page import Page, Row, Section

if TYPE_CHECKING:
    from monitor.authoring.learning.abstraction_scores import Scored
    from monitor.authoring.learning.model_report import Gain, LabelCalibration, ModelReport

CLASSES: Final = ("1", "2-9", "10-99", "100-999", "1,000-9,999", "10,000 and more")

CALIBRATION: Final = "Forecasts and what happened"


def _verdict(report: ModelReport) -> list[str]:
    """Return the sentences that come first."""
    if not report.problems:
        unknown = sum(each.unjudged for each in report.calibrations)
        doubt = f" {unknown} of the forecasts below cannot be judged: the episodes are too short." if unknown else ""
        return [f"The state abstraction is good enough by the checks below.{doubt}"]
    return ["The state abstraction is not good enough:", *report.problems]


COVERED: Final = (
    "{seen:,} of {pairs:,} pairs (state, action) were seen. {thin:.1%} of held-out steps are in rows with fewer than "
    "10 visits; {unseen:.2%} lead to a successor that was never seen in their row. A row that was never seen leads to "
    "the state 'elsewhere'."
)
PREDICTED: Final = (
    "Mean log likelihood of held-out steps in nats, by what the prediction knows; higher is better. The difference is "
    "to a prediction from state and action, with its standard error."
)
MARKOV: Final = (
    "If the state says all that matters, what came before it does not improve the prediction. A difference above 0.01 "
    "nats and three standard errors counts against the abstraction."
)
FORECASTS: Final = (
    "P(label within so many steps) from held-out states under the recorded behaviour, beside the frequency. Cut off: "
    "the recording ends before; above a tenth, no judgement."
)
DISTANT: Final = (
    "Distance of observations from the centre of their state, in standard deviations of the columns; the largest is "
    "{farthest:.3g}. An observation gets the nearest state however far away it is, when recorded and when monitored."
)
SCARCE: Final = (
    "Rows with much influence on the forecast of the first label and few visits: record more of these first."
)


COMPARED: Final = (
    "Squared errors of forecasts of the labels on held-out paths, over those of always forecasting the frequency: 0 is "
    "perfect, 1 no better. Beside it the difference to the best one, with its standard error by paths, and the largest "
    "gain of a history in nats a step."
)


def _sections(report: ModelReport, compared: Sequence[Scored]) -> list[Section]:
    """Return heading, explanation and table of each section."""
    cover = report.coverage
    visits: list[Row] = [(name, f"{count:,}") for name, count in zip(CLASSES, cover.classes, strict=True)]
    covered = COVERED.format(seen=cover.seen, pairs=cover.pairs, thin=cover.thin, unseen=cover.unseen)
    gains = "nats a step", "difference"
    found: list[Section] = [
        ("Coverage", covered, ("visits", "pairs"), visits),
        ("Prediction of the next state", PREDICTED, ("knows", *gains), list(map(_gain_row, report.simpler))),
        ("Markov test", MARKOV, ("knows state, action and", *gains), list(map(_gain_row, report.histories))),
    ]
    if compared:
        from monitor.cli.comparing import HEAD, table_of, verdict_of  # noqa: PLC0415 - keep `cfmon --help` light

        found.insert(0, ("Abstractions compared", f"{COMPARED} {verdict_of(compared)}", HEAD, table_of(compared)))
    if report.distances:
        distant = DISTANT.format(farthest=report.farthest)
        found.append(("Distances from the centres", distant, ("distance", "observations", "part"), _distances(report)))
    if report.calibrations:
        head = ("label", "steps", "forecasts", "mean", "frequency", "error", "cut off", "judgement")
        found.append((CALIBRATION, FORECASTS, head, list(map(_calibration_row, report.calibrations))))
    if report.scarce:
        rows: list[Row] = [(row.state, row.action, f"{row.visits:,}", f"{row.score:.2g}") for row in report.scarce]
        found.append(("Rows to visit", SCARCE, ("state", "action", "visits", "influence"), rows))
    return found


def _distances(report: ModelReport) -> list[Row]:
    from monitor.authoring.learning.abstraction import DISTANCES  # noqa: PLC0415 - keep `cfmon --help` light

    classes = [*(f"up to {bound:g}" for bound in DISTANCES), "more"]
    total = sum(report.distances)
    return [(name, f"{n:,}", f"{n / total:.1%}") for name, n in zip(classes, report.distances, strict=True)]


def page_of(report: ModelReport, model: str, compared: Sequence[Scored] = ()) -> Page:
    """Return the page of a report on a model."""
    charts = {"Coverage": _visits_chart(report), CALIBRATION: _reliability_charts(report)}
    return Page(model, _verdict(report), _about(report), _sections(report, compared), charts)


def _about(report: ModelReport) -> str:
    limit = " Histories beyond a limit of two million kinds were not counted." if report.full else ""
    part = (
        f" This covers only what was counted in this run. The model has {report.earlier:,} further transitions, "
        "counted before, which are neither tested here nor used in these predictions: for a report on all, learn a "
        "new model from all recordings."
        if report.earlier
        else ""
    )
    return (
        f"Checked on {report.held:,} held-out steps of {report.paths:,} paths, with a model of the "
        f"{report.transitions:,} steps of the other paths.{part}{limit}"
    )


def _gain_row(gain: Gain) -> Row:
    return gain.name, f"{gain.value:.4f}", f"{gain.difference:+.4f} +- {gain.error:.4f}{' (real)' if gain.real else ''}"


def _calibration_row(each: LabelCalibration) -> Row:
    mean = sum(n * predicted for n, predicted, _ in each.bins) / each.count
    frequency = "-" if each.unjudged else f"{mean - each.gap:.4f}"
    judged = "wrong" if each.wrong else "not judged" if each.unjudged else "right"
    return (
        each.label, str(each.horizon), f"{each.count:,}", f"{mean:.4f}", frequency, f"{each.error:.4f}",
        f"{each.cut:,}", judged,
    )  # fmt: skip


def _visits_chart(report: ModelReport) -> str:
    from monitor.picture.svg import ALTERNATIVE, Canvas  # noqa: PLC0415 - keep `cfmon --help` light

    classes = report.coverage.classes
    canvas = Canvas(640, "Pairs by visits", ", ".join(f"{c}: {n}" for c, n in zip(CLASSES, classes, strict=True)))
    for i, (name, count) in enumerate(zip(CLASSES, classes, strict=True)):
        height = 120 * count / max(*classes, 1)
        canvas.box((20 + 102 * i, 140 - height), (80, height), fill=ALTERNATIVE, says=f"{name} visits: {count} pairs")
        canvas.text((60 + 102 * i, 134 - height), f"{count:,}", size=12, anchor="middle")
        canvas.text((60 + 102 * i, 158), name, size=11, anchor="middle")
    return canvas.document(170)


def _reliability_charts(report: ModelReport) -> str:
    return "".join(_reliability(each) for each in report.calibrations if not each.unjudged)


def _reliability(each: LabelCalibration) -> str:
    """Return a reliability diagram: frequency by forecast, dots sized by their number; the diagonal is right."""
    from monitor.picture.svg import ALTERNATIVE, FAINT, NOMINAL, RULE, Canvas  # noqa: PLC0415 - likewise

    title = f"{each.label} within {each.horizon}"
    canvas = Canvas(210, title, f"Reliability diagram of {each.count} forecasts")
    canvas.text((30, 16), title, size=12, bold=True)
    canvas.box((30, 26), (150, 150), ink=RULE)
    canvas.line((30, 176), (180, 26), ink=FAINT, dash="4 3")
    for count, predicted, frequency in each.bins:
        radius = 3 + 6 * (count / each.count) ** 0.5
        says = f"forecast {predicted:.3f}, frequency {frequency:.3f}, {count} forecasts"
        at = (30 + 150 * predicted, 176 - 150 * frequency)
        canvas.dot(at, radius, fill=NOMINAL if each.wrong else ALTERNATIVE, says=says)
    canvas.text((105, 194), "forecast", size=11, ink=FAINT, anchor="middle")
    canvas.text((26, 34), "1", size=11, ink=FAINT, anchor="end")
    canvas.text((26, 176), "0", size=11, ink=FAINT, anchor="end")
    return canvas.document(200)
