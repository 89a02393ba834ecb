"""Picture of an alarm on a world with numbers: the numbers over time, observed and in each compared world.

The paths are the verdict's draws, made again by the referee: a line where noise is known, elsewhere a band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError
from monitor.evaluation.models import AnyModel
from monitor.evidence.document import Evidence
from monitor.evidence.rederivation import Policies, given_of
from monitor.logic import PathAutomaton, parse, print_formula
from monitor.logic.printer import print_change
from monitor.logic.syntax import NOMINAL, Goal, InterventionRef, Label, Probability, Reward
from monitor.logic.traversal import goals, handover_goal, subformulas
from monitor.picture.axes import ROW, ChartFrame, draw_axes
from monitor.picture.charts import dash_of, ink_of
from monitor.picture.draw import MARGIN, draw_foot, draw_head, draw_undrawn
from monitor.picture.explanation import told_of
from monitor.picture.svg import FAINT, INK, Canvas, Point
from monitor.picture.thresholds import Threshold, thresholds
from monitor.referee.numbers import Given, drawn_states
from monitor.worlds import CheckedWorld

WIDTH: Final = 720.0
"""Pixels: a phone shows it legibly."""
DRAWS, MOST_DRAWS = 400, 4_000
"""Paths of each world: as many as the verdict drew, within these limits."""
MOST_FEATURES: Final = 4
MOST_LABELS: Final = 3
TRIED: Final = 12
"""States in which thresholds of labels are looked for."""
BAND: Final = (10.0, 50.0, 90.0)
"""Percentiles of the draws: the ends of a band, and its middle."""
TINT: Final = 0.16
AHEAD: Final = "#f2f2f2"
"""Opacity of a band; ground of what is to come."""


class NumbersWorld(msgspec.Struct, frozen=True):
    """One compared world. `begins`: position of its first state on the path; `states`: [draws, f] at each step."""

    name: str
    nominal: bool
    begins: int
    states: Sequence[Floats]


class _Alarm(msgspec.Struct, frozen=True):
    """What charts show."""

    evidence: Evidence
    world: CheckedWorld
    compared: Sequence[NumbersWorld]
    labels: Sequence[str]


def draw_numbers(
    evidence: Evidence, world: CheckedWorld, policies: Policies, models: Mapping[str, AnyModel] | None = None
) -> str:
    """Return the picture as an SVG document; equal evidence gives equal bytes.

    Of a formula with several goals the first is drawn; of `handover` both policies from the last step on.

    Raises:
        LimitError: the formula has no quantity, or its noise is not drawn by the referee.
    """
    formula = parse(evidence.text)
    found = list(goals(formula))
    if not found:
        raise LimitError(f"alarm {evidence.alert}: its formula asks for no probability or reward, so nothing is drawn")
    goal, changes, offset = found[0]
    if (late := handover_goal(goal)) is not None:
        goal, changes = late, (NOMINAL, late.world.change)
    given = given_of(evidence, world, policies, models or {})
    given = given._replace(draws=_draws(evidence))
    compared = [_compared(change, offset, given, _steps(goal.measure)) for change in changes]
    labels = _labels(goal)
    alarm = _Alarm(evidence, world, compared, labels)
    told, now = told_of(evidence, formula), len(evidence.path) - 1
    title = f"{evidence.formula} · {evidence.agent} · episode {evidence.episode}, step {evidence.seq}"
    canvas = Canvas(WIDTH, title, " ".join([told.text, *_in_words(compared, world, now)]))
    y = draw_head(canvas, title, told, evidence.text)
    y = _draw_key(canvas, compared, y + 6)
    first = evidence.seq - now
    last = max(now + 1, *(each.begins + len(each.states) - 1 for each in compared))
    frame = ChartFrame(MARGIN, y, WIDTH - 2 * MARGIN, 210.0, first, first + last, head=24.0 + ROW * 2)
    columns = _shown(world)
    for column in columns:
        frame = msgspec.structs.replace(frame, y=y)
        _draw_feature(canvas, alarm, column, frame)
        y += 214.0
    for label in labels[:MOST_LABELS]:
        frame = msgspec.structs.replace(frame, y=y, height=150.0, bottom=0.0, top=1.0, head=24.0)
        _draw_label(canvas, alarm, label, frame)
        y += 154.0
    features = [each.name for n, each in enumerate(world.features) if n not in columns]
    further = [print_formula(each) for each, _, _ in found[1:]]
    y += draw_undrawn(canvas, {"feature": features, "label": labels[MOST_LABELS:], "goal": further}, y + 14)
    how = f"; {given.draws:,} draws of each world, with the verdict's noise, by the referee"
    return canvas.document(draw_foot(canvas, evidence, how, y + 14))


def _draws(evidence: Evidence) -> int:
    return min(max([DRAWS, *(each.samples for each in evidence.verdict.quantities)]), MOST_DRAWS)


def _compared(change: InterventionRef, offset: int, given: Given, steps: int) -> NumbersWorld:
    begins, states = drawn_states(change, offset, given, steps)
    return NumbersWorld(
        "nominal" if change.kind == "nominal" else print_change(change), change.kind == "nominal", begins, states
    )


def _steps(measure: Probability | Reward) -> int:
    """Return how many steps after an intervention a measure reads; at least one, which can be drawn."""
    if isinstance(measure, Reward):
        return measure.high + 1
    automaton = PathAutomaton(measure.path)
    return max(automaton.horizon(automaton.start) - 1, 1)


def _shown(world: CheckedWorld) -> list[int]:
    """Return the columns that are drawn: those that noise drives before the others."""
    columns = dict.fromkeys([*(world.noise_features or ()), *range(len(world.features))])
    return sorted([*columns][:MOST_FEATURES])


def _labels(goal: Goal) -> list[str]:
    if not isinstance(goal.measure, Probability):
        return []
    names = [node.name for node in subformulas(goal.measure.path, nested=False) if isinstance(node, Label)]
    return list(dict.fromkeys(names))


def _draw_key(canvas: Canvas, compared: Sequence[NumbersWorld], y: float) -> float:
    x = MARGIN
    canvas.line((x, y - 4), (x + 44, y - 4), ink=INK, width=2.2)
    canvas.text((x + 52, y), "observed", bold=True)
    x += 140
    for each in compared:
        if x + 52 + 8.0 * len(each.name) > canvas.width - MARGIN:
            x, y = MARGIN, y + 20
        canvas.tint([(x, y - 10), (x + 44, y - 10), (x + 44, y + 2), (x, y + 2)], ink_of(each), TINT)
        canvas.line((x, y - 4), (x + 44, y - 4), ink=ink_of(each), width=2.4, dash=dash_of(each))
        canvas.text((x + 52, y), each.name, ink=ink_of(each), bold=True)
        x += 86 + 8.0 * len(each.name)
    said = "Line: the median of the draws. Band: 10 to 90 % of them, where noise is unknown. Grey: after now."
    return y + 18 + canvas.paragraph((MARGIN, y + 20), said, size=12, ink=FAINT)


def _draw_feature(canvas: Canvas, alarm: _Alarm, column: int, frame: ChartFrame) -> None:
    feature = alarm.world.features[column]
    observed = [state[column] for state, _ in alarm.evidence.path]
    bands = [np.percentile([states[:, column] for states in each.states], BAND, axis=1) for each in alarm.compared]
    least, most = (float(pick([pick(observed), *(pick(band) for band in bands)])) for pick in (np.min, np.max))
    marks = _thresholds(alarm, column, least, most)
    least, most = min([least, *(mark.value for _, mark in marks)]), max([most, *(mark.value for _, mark in marks)])
    room = 0.06 * (most - least) or 1.0
    frame = msgspec.structs.replace(frame, bottom=least - room, top=most + room)
    named = ", ".join(f"{number} {value}" for number, value in enumerate(feature.values))
    heading = ": ".join(filter(None, (feature.name, named))) + (f", {feature.unit}" if feature.unit else "")
    _draw_ahead(canvas, alarm, frame)
    draw_axes(canvas, frame, heading, "step", percent=False)
    _draw_marks(canvas, alarm, frame)
    for each, band in zip(alarm.compared, bands, strict=True):
        low, middle, high = ([frame.at(frame.low + each.begins + k, y) for k, y in enumerate(line)] for line in band)
        for begin, end in _drawn(band):
            canvas.tint([*high[begin:end], *reversed(low[begin:end])], ink_of(each), TINT)
            for edge in (low, high):
                canvas.polyline(edge[begin:end], ink=ink_of(each), width=0.8, dash=dash_of(each))
        canvas.polyline(middle, ink=ink_of(each), width=2.4, dash=dash_of(each))
    points: list[Point] = [frame.at(frame.low + k, y) for k, y in enumerate(observed)]
    canvas.polyline(points, ink=INK, width=2.2)
    for x, y in points:
        canvas.box((x - 2.5, y - 2.5), (5, 5), fill=INK)
    for label, mark in marks:
        x, y = frame.at(frame.low, mark.value)
        canvas.line((x, y), frame.at(frame.high, mark.value), ink=INK, width=1.4, dash="1 3")
        said = f"“{label}” {'below' if mark.below else 'from'} {mark.value:.6g}"
        canvas.text((x + 8, y + (13 if mark.below else -5)), said, size=12, halo=True)


def _thresholds(alarm: _Alarm, column: int, least: float, most: float) -> list[tuple[str, Threshold]]:
    """Return the thresholds of the goal's labels on a feature, if they are not farther away than what is drawn is."""
    room = most - least or 1.0
    states = np.array([np.median(states, axis=0) for each in alarm.compared for states in each.states])
    tried = states[np.unique(np.linspace(0, len(states) - 1, TRIED).astype(np.int64))]
    ends = least - room, most + room
    return [(label, each) for label in alarm.labels for each in thresholds(alarm.world, label, column, tried, ends)]


def _drawn(band: Floats) -> list[tuple[int, int]]:
    """Return the parts of a band [3, k] that are wider than rounding, with the points they begin and end in."""
    wide = band[2] - band[0] > 1e-9 * np.maximum(np.abs(band[1]), 1.0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wide, [False]]).astype(np.int8)))
    return [(max(begin - 1, 0), end + 1) for begin, end in edges.reshape(-1, 2).tolist()]


def _draw_ahead(canvas: Canvas, alarm: _Alarm, frame: ChartFrame) -> None:
    """Draw the ground of the steps after now, which are forecasts."""
    (left, top), (right, bottom) = (
        frame.at(frame.low + len(alarm.evidence.path) - 1, frame.top),
        frame.at(frame.high, frame.bottom),
    )
    canvas.box((left, top), (right - left, bottom - top), fill=AHEAD)


def _draw_label(canvas: Canvas, alarm: _Alarm, label: str, frame: ChartFrame) -> None:
    """Draw when a label held on the observed path (squares), and on how many paths of each world (lines)."""
    _draw_ahead(canvas, alarm, frame)
    draw_axes(canvas, frame, f"“{label}” holds", "step", percent=True)
    _draw_marks(canvas, alarm, frame, say=False)
    held = alarm.world.holds(label, np.array([state for state, _ in alarm.evidence.path]))
    for k, holds in enumerate(held.tolist()):
        x, y = frame.at(frame.low + k, float(holds))
        canvas.box((x - 3.5, y - 3.5), (7, 7), fill=INK if holds else "#fff", ink=INK)
    for each in alarm.compared:
        shares = [float(alarm.world.holds(label, states).mean()) for states in each.states]
        points = [frame.at(frame.low + each.begins + k, share) for k, share in enumerate(shares)]
        canvas.polyline(points, ink=ink_of(each), width=2.2, dash=dash_of(each))


def _draw_marks(canvas: Canvas, alarm: _Alarm, frame: ChartFrame, *, say: bool = True) -> None:
    now = len(alarm.evidence.path) - 1
    marks = [
        (each.begins, f"{each.name} takes over") for each in alarm.compared if not each.nominal and each.begins < now
    ]
    for row, (position, what) in enumerate([*marks, (now, "now")][:2]):
        x, bottom = frame.at(frame.low + position, frame.bottom)
        above = frame.y + 14 + ROW * (row + 1) if say else frame.y + frame.head
        canvas.line((x, above), (x, bottom), ink=FAINT, dash="2 4")
        if say:
            canvas.text((x + 4, above - 2), what, size=12, ink=FAINT, halo=True)


def _in_words(compared: Sequence[NumbersWorld], world: CheckedWorld, now: int) -> list[str]:
    """Return the states of now in each world, for screen readers."""
    sentences = []
    for each in compared:
        if 0 <= now - each.begins < len(each.states):
            middle = np.median(each.states[now - each.begins], axis=0)
            sentences.append(f"Under {each.name} it would now be {world.shown(middle)}.")
    return sentences
