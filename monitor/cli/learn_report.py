"""The report on a model of `cfmon model learn --report`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from monitor.cli.report_page import ReportRow, ReportSection

if TYPE_CHECKING:
    from monitor.authoring.learning.abstraction_scores import Scored
    from monitor.authoring.learning.model_report import Gain, LabelCalibration, ModelReport

CLASSES: Final = ("1", "2-9", "10-99", "100-999", "1,000-9,999", "10,000 and more")

CALIBRATION: Final = "Forecasts and what happened"


COVERED: Final = (
    "{seen:,} of {pairs:,} pairs (state, action) were seen. {thin:.1%} of held-out steps are in rows with fewer than "
    "10 visits; {unseen:.2%} lead to a successor that was never seen in their row. A row that was never seen leads to "
    "the state 'elsewhere'."
)
PREDICTED: Final = (
    "Mean log likelihood of held-out steps in nats, by what the prediction knows; higher is better. The difference is "
    "to a prediction from state and action, with its standard error."
)
FORECASTS: Final = (
    "P(label within so many steps) from held-out states under the recorded behaviour, beside the frequency. Cut off: "
    "the recording ends before; above a tenth, no judgement. Unknown: forecasts that rest mostly on what was never "
    "recorded, which are left out."
)
DISTANT: Final = (
    "Distance of observations from the centre of their state, in standard deviations of the columns; the largest is "
    "{farthest:.3g}. An observation gets the nearest state however far away it is, when recorded and when monitored."
)
SCARCE: Final = (
    "Rows with much influence on the forecast of the first label and few visits: record more of these first."
)


COMPARED: Final = (
    "Losses (negative log scores) of forecasts of the labels on held-out episodes, over those of always forecasting "
    "the frequency: 0 is perfect, 1 no better. Beside it the difference to the best one, with its standard error by "
    "episodes, and the largest gain of a history in nats a step."
)


def sections(report: ModelReport, compared: Sequence[Scored]) -> list[ReportSection]:
    """Return the heading, the explanation and the table of each section of the report on a model."""
    cover = report.coverage
    visits: list[ReportRow] = [(name, f"{count:,}") for name, count in zip(CLASSES, cover.classes, strict=True)]
    covered = COVERED.format(seen=cover.seen, pairs=cover.pairs, thin=cover.thin, unseen=cover.unseen)
    gains = "nats a step", "difference"
    found: list[ReportSection] = [
        ("Coverage", covered, ("visits", "pairs"), visits),
        ("Prediction of the next state", PREDICTED, ("knows", *gains), list(map(_gain_row, report.simpler))),
    ]
    if compared:
        from monitor.cli.comparing import HEAD, choice_sentence, table_of  # noqa: PLC0415 - keep `cfmon --help` light

        found.insert(0, ("Abstractions compared", f"{COMPARED} {choice_sentence(compared)}", HEAD, table_of(compared)))
    if report.distances:
        distant = DISTANT.format(farthest=report.farthest)
        found.append(("Distances from the centres", distant, ("distance", "observations", "part"), _distances(report)))
    if report.calibrations:
        head = ("label", "steps", "forecasts", "mean", "frequency", "error", "cut off", "unknown", "judgement")
        found.append((CALIBRATION, FORECASTS, head, list(map(_calibration_row, report.calibrations))))
    if report.scarce:
        rows: list[ReportRow] = [
            (row.state, row.action, f"{row.visits:,}", f"{row.score:.2g}") for row in report.scarce
        ]
        found.append(("Rows to visit", SCARCE, ("state", "action", "visits", "influence"), rows))
    return found


def _distances(report: ModelReport) -> list[ReportRow]:
    from monitor.authoring.learning.abstraction import DISTANCES  # noqa: PLC0415 - keep `cfmon --help` light

    classes = [*(f"up to {bound:g}" for bound in DISTANCES), "more"]
    total = sum(report.distances)
    return [(name, f"{n:,}", f"{n / total:.1%}") for name, n in zip(classes, report.distances, strict=True)]


def charts(report: ModelReport) -> dict[str, str]:
    """Return the heading of a section -> its chart, as SVG."""
    return {"Coverage": _visits_chart(report)}


def about(report: ModelReport) -> str:
    """Return sentences on the steps on which the model was checked."""
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


def _gain_row(gain: Gain) -> ReportRow:
    return gain.name, f"{gain.value:.4f}", f"{gain.difference:+.4f} +- {gain.error:.4f}{' (real)' if gain.real else ''}"


def _calibration_row(each: LabelCalibration) -> ReportRow:
    mean = sum(n * predicted for n, predicted, _ in each.bins) / max(each.count, 1)
    frequency = "-" if each.unjudged else f"{mean - each.gap:.4f}"
    judged = "wrong" if each.wrong else "not judged" if each.unjudged else "right"
    return (
        each.label, str(each.horizon), f"{each.count:,}", f"{mean:.4f}", frequency, f"{each.error:.4f}",
        f"{each.cut:,}", f"{each.assumed:,}", judged,
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
