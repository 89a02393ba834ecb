"""The report on a world of `cfmon model learn --dynamics --report`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from monitor.cli.report_page import Page, ReportRow, ReportSection

if TYPE_CHECKING:
    from monitor.authoring.dynamics.judgement import FeatureCheck, ForecastCheck, Judgement
    from monitor.authoring.dynamics.learned_world import Score

COMPARED: Final = (
    "Mean log probability, in nats a step, of the next state within a tenth of the residuals' standard deviation, on "
    "the episodes held back for the choice; higher is better. Beside it the difference to the one taken, with its "
    "standard error by episodes. A later one is taken only if it is better by more than that."
)
PREDICTED: Final = (
    "The same of each feature on the held-out steps, beside a forecast that the last value stays, with noise of "
    "constant scale. All features together: {gain:.3f} +- {error:.3f} better."
)
NOISE: Final = (
    "If the world is right, the noise that explains an observed step is uniform in (0, 1), and independent of that of "
    "the step before. Distance: the largest between its distribution and the uniform one (Kolmogorov-Smirnov). A "
    "distance above {noise}, or a correlation above {related}, counts against the world if its p-value is below "
    "{level:.1g}."
)
FORECASTS: Final = (
    "{count:,} forecasts of {horizon} steps, with recorded inputs and actions as recorded in similar states. Covered: "
    "how often the middle {covered:.0%} of the forecasts contained what came. The ranks of what came among the "
    "forecasts are uniform if forecasts are calibrated; a distance above {apart} counts if it is significant. Inputs "
    "are those of the last of these steps, as resampled when those of the first are known."
)
HISTOGRAMS: Final = "Noise of held-out steps"


def page_of(judgement: Judgement, title: str, scored: Sequence[Score], fits: int) -> Page:
    """Return the page of a report on a world. `fits`: number of further fits of the world to resampled episodes."""
    problems = judgement.problems
    result = ["The world is not good enough:", *problems] if problems else ["The world is good enough by these checks."]
    band = f"a credible band, from {fits} fits to resampled episodes" if fits else "no credible band (--fits 0)"
    about = (
        f"Checked on {judgement.steps:,} held-out steps of {judgement.paths:,} paths, which the world was neither "
        f"fitted to nor chosen by. Answers have {band}."
    )
    return Page(title, result, about, sections(judgement, scored), charts(judgement))


def charts(judgement: Judgement) -> dict[str, str]:
    """Return the heading of a section -> its charts, as SVG."""
    return {HISTOGRAMS: "".join(map(_histogram, judgement.features))}


def sections(judgement: Judgement, scored: Sequence[Score]) -> list[ReportSection]:
    """Return the heading, the explanation and the table of each section of the report on a world."""
    from monitor.authoring.dynamics import judgement as limits  # noqa: PLC0415 - keep `cfmon --help` light

    level = limits.LEVEL / len(judgement.features)
    noise = NOISE.format(noise=limits.NOISE_APART, related=limits.RELATED, level=level)
    forecasts = FORECASTS.format(
        count=judgement.forecasts, horizon=limits.HORIZON, covered=limits.COVERED, apart=limits.FORECAST_APART
    )
    gain, error = judgement.gain
    features = judgement.features
    compared: list[ReportRow] = [
        (
            each.name,
            f"{each.value:.3f}",
            f"{each.difference:+.3f} +- {each.error:.3f}{' (taken)' if each.taken else ''}",
        )
        for each in scored
    ]
    predicted: list[ReportRow] = [
        (each.name, f"{each.score:.3f}", f"{each.baseline:.3f}", f"{each.score - each.baseline:+.3f}")
        for each in features
    ]
    return [
        ("Worlds compared", COMPARED, ("location and scale", "nats a step", "difference"), compared),
        (
            "Prediction of the next state",
            PREDICTED.format(gain=gain, error=error),
            ("feature", "world", "last value", "difference"),
            predicted,
        ),
        (
            HISTOGRAMS,
            noise,
            ("feature", "distance", "p-value", "correlation", "p-value"),
            list(map(_noise_row, features)),
        ),
        (
            f"Forecasts of {limits.HORIZON} steps",
            forecasts,
            ("feature or input", "covered", "distance", "p-value"),
            list(map(_forecast_row, (*features, *judgement.inputs))) if judgement.forecasts else [],
        ),
    ]


def _noise_row(each: FeatureCheck) -> ReportRow:
    return (
        each.name, f"{each.uniform.size:.3f}", f"{each.uniform.chance:.2g}", f"{each.related.size:+.3f}",
        f"{each.related.chance:.2g}",
    )  # fmt: skip


def _forecast_row(each: ForecastCheck) -> ReportRow:
    return each.name, f"{each.covered:.0%}", f"{each.forecast.size:.3f}", f"{each.forecast.chance:.2g}"


def _histogram(each: FeatureCheck) -> str:
    """Return the histogram of a feature's noise. A line shows the height of all bars if the noise is uniform."""
    from monitor.picture.svg import ALTERNATIVE, FAINT, NOMINAL, Canvas  # noqa: PLC0415 - keep `cfmon --help` light

    bars = each.histogram
    canvas = Canvas(210, each.name, "Histogram of its noise: " + ", ".join(f"{bar:.1%}" for bar in bars))
    canvas.text((20, 16), each.name, size=12, bold=True)
    width, unit = 170 / len(bars), 110 / max(2 / len(bars), *bars)
    for k, bar in enumerate(bars):
        fill = NOMINAL if each.problems else ALTERNATIVE
        canvas.box((20 + width * k, 140 - unit * bar), (width - 2, unit * bar), fill=fill, says=f"{bar:.1%}")
    canvas.line((20, 140 - unit / len(bars)), (190, 140 - unit / len(bars)), ink=FAINT, dash="4 3")
    canvas.text((20, 158), "0", size=11, ink=FAINT)
    canvas.text((190, 158), "1", size=11, ink=FAINT, anchor="end")
    return canvas.document(170)
