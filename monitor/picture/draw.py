"""Picture of an alarm: one sentence, the observed and the counterfactual course on one time axis, and details."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from monitor.alarm.figures import is_open
from monitor.alarm.phrases import NEEDED
from monitor.logic import parse
from monitor.logic.syntax import Label
from monitor.logic.traversal import subformulas
from monitor.model import MDP
from monitor.picture.charts import dash_of, draw_handover, draw_history, draw_outlook, ink_of, marks_of
from monitor.picture.explanation import ComparedWorld, Explanation
from monitor.picture.layout import grid_of
from monitor.picture.learned import learned_in_words
from monitor.picture.scenes import LabelStates, draw_grids
from monitor.picture.sheet import MARGIN, WIDTH, Sheet, clock, figure, interval, time_axis_of
from monitor.picture.single_decisions import decisions_in_words, decisions_of
from monitor.picture.state_words import likeliest_in_words, likeliest_of, state_in_brief, state_in_words
from monitor.picture.svg import FAINT, Canvas, width_of

CAUSAL: Final = {
    "gumbel": "the Gumbel-Max causal model",
    "any": "Gumbel-Max; bounds over every causal model",
    "stable": "Gumbel-Max; bounds over every counterfactually stable model",
    "world": "the world's own step",
}
LIKELY: Final = 0.5
"""Smallest probability of a state that is named as the likely state of a world."""


def draw(alarm: Explanation, model: MDP) -> str:
    """Return the picture as an SVG document. Equal explanations give equal bytes."""
    canvas = Canvas(WIDTH, alarm.title, in_words(alarm, model))
    ends = max((b.begins + len(b.distribution.states) - 1 for b in alarm.branches if b.distribution), default=0)
    time_axis = time_axis_of(alarm.evidence, [branch.begins for branch in alarm.branches], ends)
    sheet = Sheet(canvas, time_axis, draw_head(canvas, alarm))
    sheet.marks(marks_of(alarm))
    draw_history(sheet, alarm)
    path = alarm.evidence.path
    for position, (state, action) in enumerate(path):
        done = "" if action is None else f"; did {alarm.action(action)}"
        sheet.notes[position].insert(0, f"{state_in_words(model, state)}{done}")
    sheet.lane("state", {n: state_in_brief(model, state) for n, (state, _) in enumerate(path)})
    sheet.lane("action", {n: alarm.action_in_brief(each) for n, (_, each) in enumerate(path) if each is not None})
    draw_outlook(sheet, alarm)
    for branch in alarm.branches:
        if not branch.nominal:
            _draw_whereabouts(sheet, branch, model)
    draw_handover(sheet, alarm, decisions_of(alarm))
    sheet.finish(alarm.evidence)
    y, grid = sheet.y, grid_of(model)
    if grid is not None:
        y += 14 + draw_grids(canvas, alarm, grid, labels_of(alarm, model), (MARGIN, y + 14))
    method = alarm.evidence.verdict.method
    more = "; its figures are sampled, the curves exact" if method == "sampled" else ""
    more += f"; {alarm.others} more quantities of the formula are not shown" if alarm.others else ""
    return canvas.document(
        draw_foot(canvas, alarm, more, y, [*decisions_in_words(alarm), *learned_in_words(alarm, model)])
    )


def _draw_whereabouts(sheet: Sheet, branch: ComparedWorld, model: MDP) -> None:
    """Write the most likely state of a world at each step up to now. The notes of the step list further states."""
    texts = {}
    for n, there in enumerate(branch.distribution.states if branch.distribution else ()):
        position = branch.begins + n
        sheet.notes[position].append(f"{branch.name} would be in: {likeliest_in_words(model, there)}")
        if position <= sheet.time_axis.now:
            (state,) = likeliest_of(there, 1)
            texts[position] = state_in_brief(model, state) if there[state] >= LIKELY else "?"
    sheet.lane("instead", texts, ink_of(branch))


def draw_head(canvas: Canvas, alarm: Explanation) -> float:
    """Draw the sentence, its subject, and the key of the lines for all bands. Return the y coordinate of their end."""
    y = 18 + canvas.paragraph((MARGIN, 32), alarm.told.summary, size=16, bold=True)
    y += canvas.paragraph((MARGIN, y + 12), alarm.title, size=12, ink=FAINT) + 20
    x = MARGIN
    for branch in alarm.branches:
        what = branch.name if alarm.difference else f"{branch.name} {_known(branch, alarm)}"
        ink = ink_of(branch)
        wide = 46 + width_of(what, 13, bold=True)
        if x > MARGIN and x + wide > WIDTH - MARGIN:
            x, y = MARGIN, y + 20
        canvas.line((x, y - 4), (x + 32, y - 4), ink=ink, width=2.6, dash=dash_of(branch))
        if branch.nominal:
            canvas.dot((x + 16, y - 4), 3.5, fill=ink)
        else:
            canvas.diamond((x + 16, y - 4), 5, fill=ink)
        canvas.text((x + 40, y), what, ink=ink, bold=True)
        x += wide + 10
    if alarm.threshold is not None and alarm.comparison is not None:
        needed = f"{NEEDED[alarm.comparison]} {alarm.threshold:g} required"
        if x + 40 + width_of(needed, 13) > WIDTH - MARGIN:
            x, y = MARGIN, y + 20
        canvas.line((x, y - 4), (x + 32, y - 4), width=1.4, dash="1 3")
        canvas.text((x + 40, y), needed)
    return y + 10


def _known(branch: ComparedWorld, alarm: Explanation) -> str:
    """Return a value, or its interval if rows that were never recorded leave it open."""
    if branch.extremes is None or not is_open(branch.extremes):
        return figure(branch.value, reward=alarm.reward)
    return f"{interval(branch.extremes, reward=alarm.reward)} (partly never recorded)"


def undrawn(left_out: Mapping[str, Sequence[str]]) -> list[str]:
    """Return sentences that list the items for which a picture has no space. `left_out`: kind -> names."""
    return [
        f"{len(names)} more {what}{' is' if len(names) == 1 else 's are'} not drawn: {', '.join(names)}."
        for what, names in left_out.items()
        if names
    ]


def draw_foot(canvas: Canvas, alarm: Explanation, more: str, y: float, sentences: Iterable[str] = ()) -> float:
    """Draw the details: sentences, the formula, how the numbers were obtained, the identity. Return their end.

    `more`: further text on how the numbers were obtained.
    """
    evidence = alarm.evidence
    canvas.line((MARGIN, y + 8), (WIDTH - MARGIN, y + 8), ink=FAINT, width=0.6)
    y += 28
    for sentence in (*alarm.told.details, *sentences):
        y += 2 + canvas.paragraph((MARGIN, y), sentence, size=13)
    wide = evidence.causal_model == "any" and evidence.verdict.belief is not None
    classes = f"{CAUSAL[evidence.causal_model]}{', which may be too wide' if wide else ''}"
    how = f"How obtained: {evidence.verdict.method}, {classes}{more}."
    when = f"{time} · " if (time := clock(evidence.time, day=True)) else ""
    model = f"model {evidence.model} {evidence.model_sha256[:12]}"
    for line in (evidence.text, how, f"{when}evidence {evidence.id} · {model}"):
        y += 1.2 + canvas.paragraph((MARGIN, y), line, size=12, ink=FAINT)
    return y


def in_words(alarm: Explanation, model: MDP) -> str:
    """Return the picture in words, for screen readers."""
    sentences = [alarm.told.text]
    if not alarm.difference:
        sentences += [f"Under {branch.name} the value is {_known(branch, alarm)}." for branch in alarm.branches]
    sentences += learned_in_words(alarm, model)
    if alarm.history:
        sentences.append(
            f"{'Difference' if alarm.difference else 'Value'} at each step: "
            + ", ".join(f"{m.seq}: {figure(m.value, reward=alarm.reward)}" for m in alarm.history)
            + "."
        )
    if alarm.profile:
        each = (
            f"{k} steps ago: {figure(v[1], reward=alarm.reward)} instead of {figure(v[0], reward=alarm.reward)}"
            for k, v in sorted(alarm.profile.items())
        )
        sentences.append("Had it taken over " + ", ".join(each) + ".")
    sentences += decisions_in_words(alarm)
    return " ".join(sentences)


def labels_of(alarm: Explanation, model: MDP) -> LabelStates:
    """Return the labels of the formula with their states, in the order of its text."""
    nodes = subformulas(parse(alarm.evidence.text))
    names = dict.fromkeys(node.name for node in nodes if isinstance(node, Label))
    return [(name, frozenset(np.flatnonzero(model.labels[name]).tolist())) for name in names if name in model.labels]
