"""Picture of an alarm: the sentences, the world, the risk ahead, the value so far, the profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten

import numpy as np

from monitor.alarm.figures import is_open
from monitor.alarm.summary import Told
from monitor.evidence.document import Evidence
from monitor.logic import parse
from monitor.logic.syntax import Label
from monitor.logic.traversal import subformulas
from monitor.model import MDP
from monitor.picture.axes import ChartFrame
from monitor.picture.band_chart import bands_in_words, draw_bands
from monitor.picture.charts import draw_history, draw_labels, draw_profile, draw_risk
from monitor.picture.decision_chart import decisions_in_words, draw_decisions
from monitor.picture.explanation import ComparedWorld, Explanation
from monitor.picture.layout import grid_of
from monitor.picture.routes import route_in_words
from monitor.picture.scenes import LabelStates, draw_grids
from monitor.picture.svg import ALTERNATIVE, FAINT, NOMINAL, Canvas

WIDTH, MARGIN = 1040.0, 28.0
MOST_LABELS, MOST_ROUTES = 4, 4
MOST_SECONDS = 253_402_300_800
"""The year 10000."""
CAUSAL = {
    "gumbel": "the Gumbel-Max causal model",
    "any": "Gumbel-Max; bounds over every causal model",
    "stable": "Gumbel-Max; bounds over every counterfactually stable model",
    "world": "the world's own step",
}


def draw(alarm: Explanation, model: MDP) -> str:
    """Return the picture as an SVG document; equal explanations give equal bytes."""
    canvas = Canvas(WIDTH, alarm.title, in_words(alarm, model))
    y = draw_head(canvas, alarm.title, alarm.told, alarm.evidence.text)
    y = draw_key(canvas, alarm, y + 6)
    labels = labels_of(alarm, model)
    grid = grid_of(model)
    if grid is not None:
        y += draw_grids(canvas, alarm, grid, labels, (MARGIN, y))
    elif labels:
        height = 110.0 * len(labels[:MOST_LABELS]) + 72
        draw_labels(canvas, alarm, labels[:MOST_LABELS], ChartFrame(MARGIN, y, WIDTH - 2 * MARGIN, height, 0, 1))
        y += height + 16
        y += draw_undrawn(canvas, {"label": [name for name, _ in labels[MOST_LABELS:]]}, y)
    y += _draw_routes(canvas, alarm, model, y)
    draw_risk(canvas, alarm, ChartFrame(MARGIN, y + 8, WIDTH - 2 * MARGIN, 264, 0, 1))
    half = (WIDTH - 2 * MARGIN - 30) / 2
    wide = WIDTH - 2 * MARGIN if not alarm.profile else half
    draw_history(canvas, alarm, ChartFrame(MARGIN, y + 286, wide, 256, 0, 1))
    draw_profile(canvas, alarm, ChartFrame(MARGIN + half + 30, y + 286, half, 256, 0, 1))
    y += 560
    y += draw_decisions(canvas, alarm, model, ChartFrame(MARGIN, y - 4, WIDTH - 2 * MARGIN, 236, 0, 1))
    y += draw_bands(canvas, alarm, model, (MARGIN, y - 10), WIDTH - 2 * MARGIN)
    method = alarm.evidence.verdict.method
    more = "; the figures of the verdict are sampled, the curves exact" if method == "sampled" else ""
    more += f"; {alarm.others} more quantities of the formula are not shown" if alarm.others else ""
    return canvas.document(draw_foot(canvas, alarm.evidence, more, y))


def draw_head(canvas: Canvas, title: str, told: Told, text: str) -> float:
    """Draw the title, the sentences and the formula's text; return where they end."""
    y = 38 + canvas.paragraph((MARGIN, 40), title, size=20, bold=True)
    y += canvas.paragraph((MARGIN, y), told.summary, size=16)
    y += canvas.paragraph((MARGIN, y), " ".join(told.details)) if told.details else 0
    return y + canvas.paragraph((MARGIN, y), text, size=13, ink=FAINT)


def draw_key(canvas: Canvas, alarm: Explanation, y: float) -> float:
    """Draw the key of the lines, once for all charts."""
    x = MARGIN
    for branch in alarm.branches:
        ink = NOMINAL if branch.nominal else ALTERNATIVE
        what = f"{branch.name}: {_known(branch, alarm)}"
        if is_open(branch.extremes):
            what += " (partly never recorded)"
        elif branch.bounds is not None and branch.bounds[0] < branch.bounds[1]:
            what += f" (between {_shown(branch.bounds[0], alarm)} and {_shown(branch.bounds[1], alarm)})"
        if x > MARGIN and x + 52 + 7.6 * len(what) > canvas.width - MARGIN:
            x, y = MARGIN, y + 20
        canvas.line((x, y - 4), (x + 44, y - 4), ink=ink, width=2.6, dash="" if branch.nominal else "7 4")
        if branch.nominal:
            canvas.dot((x + 22, y - 4), 3.5, fill=ink)
        else:
            canvas.diamond((x + 22, y - 4), 5, fill=ink)
        canvas.text((x + 52, y), what, ink=ink, bold=True)
        x += 76 + 7.6 * len(what)
    return y + 18


def _known(branch: ComparedWorld, alarm: Explanation) -> str:
    """Return a value, or the interval that what was never recorded leaves open."""
    if branch.extremes is None or not is_open(branch.extremes):
        return _shown(branch.value, alarm)
    return " to ".join(_shown(end, alarm) for end in branch.extremes)


def _draw_routes(canvas: Canvas, alarm: Explanation, model: MDP, y: float) -> float:
    """Draw the most likely paths of each alternative in words, with probabilities; return their height in pixels."""
    height = 0.0
    for branch in alarm.branches:
        if not branch.routes or len(branch.routes[0].states) < 2:
            continue
        canvas.text((MARGIN, y + height + 14), f"Most likely paths under {branch.name} up to now", bold=True)
        height += 22
        for route in branch.routes[:MOST_ROUTES]:
            route_text = route_in_words(model, route.states)
            canvas.box((MARGIN + 62, y + height + 4), (160 * route.probability, 11), fill=ALTERNATIVE)
            canvas.text((MARGIN + 56, y + height + 14), f"{100 * route.probability:.1f} %", size=12, anchor="end")
            canvas.text((MARGIN + 232, y + height + 14), shorten(route_text, 110, placeholder=" …"), size=12)
            height += 18
        height += 14
    return height


def draw_undrawn(canvas: Canvas, left_out: Mapping[str, Sequence[str]], y: float) -> float:
    """Draw what a picture has no space for, kind -> names; return the height in pixels, 0 if that is nothing."""
    sentences = [
        f"{len(names)} more {what}{' is' if len(names) == 1 else 's are'} not drawn: {', '.join(names)}."
        for what, names in left_out.items()
        if names
    ]
    return canvas.paragraph((MARGIN, y), " ".join(sentences), size=12, ink=FAINT) if sentences else 0.0


def draw_foot(canvas: Canvas, evidence: Evidence, more: str, y: float) -> float:
    """Draw how the numbers were obtained (and `more` about that), and the alarm's identity; return where it ends."""
    how = f"How obtained: {evidence.verdict.method}, {CAUSAL[evidence.causal_model]}{more}."
    y += 1.2 + canvas.paragraph((MARGIN, y), how, size=12, ink=FAINT)
    when = _clock(evidence.time)
    model = f"model {evidence.model} {evidence.model_sha256[:12]}"
    return y + 1.2 + canvas.paragraph((MARGIN, y), f"{when}evidence {evidence.id} · {model}", size=12, ink=FAINT)


def in_words(alarm: Explanation, model: MDP) -> str:
    """Return the picture in words, for screen readers."""
    sentences = [alarm.told.text]
    sentences += [f"Under {branch.name} the value is {_known(branch, alarm)}." for branch in alarm.branches]
    sentences += bands_in_words(alarm)
    if alarm.history:
        sentences.append(
            "Value at each step: " + ", ".join(f"{m.seq}: {_shown(m.value, alarm)}" for m in alarm.history) + "."
        )
    if alarm.profile:
        each = (
            f"{k} steps ago: {_shown(v[1], alarm)} instead of {_shown(v[0], alarm)}"
            for k, v in sorted(alarm.profile.items())
        )
        sentences.append("Had it taken over " + ", ".join(each) + ".")
    sentences += decisions_in_words(alarm, model)
    return " ".join(sentences)


def _shown(value: float, alarm: Explanation) -> str:
    return f"{value:.4g}" if alarm.reward else f"{100 * value:.1f} %"


def _clock(seconds: float) -> str:
    """Return a time as UTC text; empty if out of range: an agent's clock may send anything."""
    if not 0 <= seconds < MOST_SECONDS:
        return ""
    return str(np.datetime64(int(seconds), "s")).replace("T", " ") + " UTC · "


def labels_of(alarm: Explanation, model: MDP) -> LabelStates:
    """Return the labels of the formula with their states, in the order of its text."""
    nodes = subformulas(parse(alarm.evidence.text))
    names = dict.fromkeys(node.name for node in nodes if isinstance(node, Label))
    return [(name, frozenset(np.flatnonzero(model.labels[name]).tolist())) for name in names if name in model.labels]
