"""The picture of an alarm, put together: the sentence, the world, the risk ahead, the value so far, the profile."""

from __future__ import annotations

from textwrap import shorten

import numpy as np

from monitor.logic import parse
from monitor.logic.syntax import Label
from monitor.logic.traversal import subformulas
from monitor.model import MDP
from monitor.picture.charts import Frame, draw_history, draw_lanes, draw_profile, draw_risk
from monitor.picture.explanation import Explanation
from monitor.picture.layout import grid_of
from monitor.picture.routes import route_in_words
from monitor.picture.scenes import Lanes, draw_grids
from monitor.picture.svg import ALTERNATIVE, FAINT, NOMINAL, Canvas

__all__ = ["draw"]

WIDTH, MARGIN = 1040.0, 28.0
MOST_LANES, MOST_ROUTES = 4, 4
MOST_SECONDS = 253_402_300_800
"""The year 10000."""
CAUSAL = {
    "gumbel": "one causal model (Gumbel-Max)",
    "any": "Gumbel-Max; the band holds every causal model",
    "stable": "Gumbel-Max; the band holds every counterfactually stable model",
}


def draw(story: Explanation, model: MDP) -> str:
    """The picture as an SVG document; the same story gives the same bytes."""
    canvas = Canvas(WIDTH, story.title, _description(story))
    canvas.text((MARGIN, 40), story.title, size=20, bold=True)
    y = 66 + canvas.paragraph((MARGIN, 66), story.summary)
    canvas.text((MARGIN, y), story.evidence.text, size=13, ink=FAINT)
    y = _draw_key(canvas, story, y + 24)
    lanes = _lanes(story, model)
    grid = grid_of(model)
    if grid is not None:
        y += draw_grids(canvas, story, grid, lanes, (MARGIN, y))
    elif lanes:
        height = 110.0 * len(lanes[:MOST_LANES]) + 72
        draw_lanes(canvas, story, lanes[:MOST_LANES], Frame(MARGIN, y, WIDTH - 2 * MARGIN, height, 0, 1))
        y += height + 16
    y += _draw_routes(canvas, story, model, y)
    draw_risk(canvas, story, Frame(MARGIN, y + 8, WIDTH - 2 * MARGIN, 264, 0, 1))
    half = (WIDTH - 2 * MARGIN - 30) / 2
    wide = WIDTH - 2 * MARGIN if not story.profile else half
    draw_history(canvas, story, Frame(MARGIN, y + 286, wide, 256, 0, 1))
    draw_profile(canvas, story, Frame(MARGIN + half + 30, y + 286, half, 256, 0, 1))
    return canvas.document(_draw_foot(canvas, story, y + 560))


def _draw_key(canvas: Canvas, story: Explanation, y: float) -> float:
    """Which line is which, once for all charts."""
    x = MARGIN
    for arm in story.arms:
        ink = NOMINAL if arm.nominal else ALTERNATIVE
        canvas.line((x, y - 4), (x + 44, y - 4), ink=ink, width=2.6, dash="" if arm.nominal else "7 4")
        if arm.nominal:
            canvas.dot((x + 22, y - 4), 3.5, fill=ink)
        else:
            canvas.diamond((x + 22, y - 4), 5, fill=ink)
        what = f"{arm.name}: {_shown(arm.value, story)}"
        if arm.bounds is not None and arm.bounds[0] < arm.bounds[1]:
            what += f" (between {_shown(arm.bounds[0], story)} and {_shown(arm.bounds[1], story)})"
        canvas.text((x + 52, y), what, ink=ink, bold=True)
        x += 76 + 7.6 * len(what)
    return y + 18


def _draw_routes(canvas: Canvas, story: Explanation, model: MDP, y: float) -> float:
    """The likeliest paths of each alternative in words, with their probabilities; returns the height they take."""
    height = 0.0
    for arm in story.arms:
        if not arm.routes or len(arm.routes[0].states) < 2:
            continue
        canvas.text((MARGIN, y + height + 14), f"Likeliest paths under {arm.name} up to now", bold=True)
        height += 22
        for route in arm.routes[:MOST_ROUTES]:
            told = route_in_words(model, route.states)
            canvas.box((MARGIN + 62, y + height + 4), (160 * route.probability, 11), fill=ALTERNATIVE)
            canvas.text((MARGIN + 56, y + height + 14), f"{100 * route.probability:.1f} %", size=12, anchor="end")
            canvas.text((MARGIN + 232, y + height + 14), shorten(told, 110, placeholder=" …"), size=12)
            height += 18
        height += 14
    return height


def _draw_foot(canvas: Canvas, story: Explanation, y: float) -> float:
    evidence = story.evidence
    method = evidence.verdict.method
    drawn = "; the figures of the verdict are sampled, the curves exact" if method == "sampled" else ""
    more = f"; {story.others} more quantities of the formula are not shown" if story.others else ""
    canvas.text(
        (MARGIN, y), f"How obtained: {method}, {CAUSAL[evidence.causal_model]}{drawn}{more}.", size=12, ink=FAINT
    )
    when = _clock(evidence.time)
    model = f"model {evidence.model} {evidence.model_sha256[:12]}"
    canvas.text((MARGIN, y + 18), f"{when}evidence {evidence.id} · {model}", size=12, ink=FAINT)
    return y + 36


def _description(story: Explanation) -> str:
    """The picture in words, for who cannot see it."""
    told = [story.summary]
    told += [f"Under {arm.name} the value is {_shown(arm.value, story)}." for arm in story.arms]
    if story.history:
        told.append("Step by step: " + ", ".join(f"{m.seq}: {_shown(m.value, story)}" for m in story.history) + ".")
    if story.profile:
        each = (
            f"{k} steps ago: {_shown(v[1], story)} against {_shown(v[0], story)}"
            for k, v in sorted(story.profile.items())
        )
        told.append("Had it taken over, " + ", ".join(each) + ".")
    return " ".join(told)


def _shown(value: float, story: Explanation) -> str:
    return f"{value:.4g}" if story.reward else f"{100 * value:.1f} %"


def _clock(seconds: float) -> str:
    """UTC, as text; nothing for a time that no calendar has: an agent's clock may say anything."""
    if not 0 <= seconds < MOST_SECONDS:
        return ""
    return str(np.datetime64(int(seconds), "s")).replace("T", " ") + " UTC · "


def _lanes(story: Explanation, model: MDP) -> Lanes:
    """The labels the formula asks about, with their states, in the order of its text."""
    asked = subformulas(parse(story.evidence.text))
    names = dict.fromkeys(node.name for node in asked if isinstance(node, Label))
    return [(name, frozenset(np.flatnonzero(model.labels[name]).tolist())) for name in names if name in model.labels]
