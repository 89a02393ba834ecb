"""Picture of an alarm on a world with numbers: the numbers over time, observed and in each compared world.

The paths are the referee's draws of the alarm's own noise, so where noise is known a world is one line.
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
from monitor.logic.syntax import Goal, InterventionRef, Label, Probability, Reward
from monitor.logic.traversal import goals, subformulas
from monitor.picture.axes import ROW, ChartFrame, draw_axes
from monitor.picture.charts import dash_of, ink_of
from monitor.picture.draw import MARGIN, WIDTH, draw_foot, draw_undrawn
from monitor.picture.explanation import told_of
from monitor.picture.svg import FAINT, INK, Canvas
from monitor.referee.numbers import Given, drawn_states
from monitor.worlds import CheckedWorld

DRAWS: Final = 400
"""Paths of each world; a band reaches from their 5th to their 95th percentile."""
MOST_FEATURES: Final = 4
MOST_LABELS: Final = 3
BAND: Final = (5.0, 50.0, 95.0)


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


def draw_numbers(
    evidence: Evidence, world: CheckedWorld, policies: Policies, models: Mapping[str, AnyModel] | None = None
) -> str:
    """Return the picture as an SVG document; equal evidence gives equal bytes.

    Of a formula with several goals the first is drawn.

    Raises:
        LimitError: the formula has no quantity, or its noise is not drawn by the referee.
    """
    formula = parse(evidence.text)
    found = list(goals(formula))
    if not found:
        raise LimitError(f"alarm {evidence.alert}: its formula asks for no probability or reward, so nothing is drawn")
    goal, changes, offset = found[0]
    given = given_of(evidence, world, policies, models or {})._replace(draws=DRAWS)
    compared = [_compared(change, offset, given, _steps(goal.measure)) for change in changes]
    alarm = _Alarm(evidence, world, compared)
    told, now = told_of(evidence, formula), len(evidence.path) - 1
    title = f"{evidence.formula} · {evidence.agent} · episode {evidence.episode}, step {evidence.seq}"
    canvas = Canvas(WIDTH, title, " ".join([told.text, *_in_words(compared, world, now)]))
    y = 38 + canvas.paragraph((MARGIN, 40), title, size=20, bold=True)
    y += canvas.paragraph((MARGIN, y), told.summary, size=16)
    y += canvas.paragraph((MARGIN, y), " ".join(told.details)) if told.details else 0
    y += canvas.paragraph((MARGIN, y), evidence.text, size=13, ink=FAINT)
    y = _draw_key(canvas, compared, y + 6)
    first = evidence.seq - now
    last = max(now + 1, *(each.begins + len(each.states) - 1 for each in compared))
    frame = ChartFrame(MARGIN, y, WIDTH - 2 * MARGIN, 210.0, first, first + last, head=24.0 + ROW * 2)
    columns, labels = _shown(world), _labels(goal)
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
    return canvas.document(draw_foot(canvas, evidence, f"; {DRAWS} paths of each world, by the referee", y + 14))


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
        canvas.line((x, y - 4), (x + 44, y - 4), ink=ink_of(each), width=2.4, dash=dash_of(each))
        canvas.text((x + 52, y), each.name, ink=ink_of(each), bold=True)
        x += 86 + 8.0 * len(each.name)
    canvas.text((x, y), "where noise is not known: the middle of the paths, and 5 to 95 % of them", size=12, ink=FAINT)
    return y + 18


def _draw_feature(canvas: Canvas, alarm: _Alarm, column: int, frame: ChartFrame) -> None:
    feature = alarm.world.features[column]
    observed = [state[column] for state, _ in alarm.evidence.path]
    bands = [np.percentile([states[:, column] for states in each.states], BAND, axis=1) for each in alarm.compared]
    least, most = (pick([pick(observed), *(pick(band) for band in bands)]) for pick in (np.min, np.max))
    room = 0.06 * float(most - least) or 1.0
    frame = msgspec.structs.replace(frame, bottom=float(least) - room, top=float(most) + room)
    named = ", ".join(f"{number} {value}" for number, value in enumerate(feature.values))
    heading = ": ".join(filter(None, (feature.name, named))) + (f", {feature.unit}" if feature.unit else "")
    draw_axes(canvas, frame, heading, "step", percent=False)
    _draw_marks(canvas, alarm, frame)
    first = frame.low
    for each, band in zip(alarm.compared, bands, strict=True):
        low, middle, high = ([frame.at(first + each.begins + k, y) for k, y in enumerate(line)] for line in band)
        if not each.nominal:
            canvas.area([*high, *reversed(low)], "band")
        for edge in (low, high):
            canvas.polyline(edge, ink=ink_of(each), width=0.8, dash="2 3")
        canvas.polyline(middle, ink=ink_of(each), width=2.4, dash=dash_of(each))
    points = [frame.at(first + k, y) for k, y in enumerate(observed)]
    canvas.polyline(points, ink=INK, width=2.2)
    for x, y in points:
        canvas.box((x - 2.5, y - 2.5), (5, 5), fill=INK)


def _draw_label(canvas: Canvas, alarm: _Alarm, label: str, frame: ChartFrame) -> None:
    """Draw when a label held on the observed path (squares), and on how many paths of each world (lines)."""
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
