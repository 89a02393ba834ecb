"""Picture of an alarm on a world with numbers: the observed numbers over time, and the numbers of each compared world.

The referee repeats the draws of the verdict. A world is a line while its noise is known, and a band afterwards.
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
from monitor.logic.syntax import NOMINAL, Goal, InterventionRef, Label, Measure, Probability, Reward
from monitor.logic.traversal import goals, handover_goal, subformulas
from monitor.picture.charts import TALL, dash_of, draw_handover, ink_of, marks_of
from monitor.picture.draw import draw_foot, draw_head, undrawn
from monitor.picture.explanation import ComparedWorld, explanation_of, what_if, world_name
from monitor.picture.sheet import SMALL, WIDTH, Scale, Sheet, figure, scale_of, time_axis_of
from monitor.picture.svg import INK, PAPER, Canvas, Point
from monitor.picture.thresholds import LabelThreshold, thresholds
from monitor.referee.numbers import Given, drawn_states
from monitor.worlds import CheckedWorld

DRAWS, MOST_DRAWS = 400, 4_000
"""Each world has as many paths as the verdict has samples, but at least `DRAWS` and at most `MOST_DRAWS`."""
MOST_FEATURES: Final = 4
MOST_LABELS: Final = 3
TRIED: Final = 12
"""Number of states in which thresholds of labels are searched for."""
BAND: Final = (10.0, 50.0, 90.0)
"""Percentiles of the draws: the lower end of a band, its middle, and its upper end."""
TINT: Final = 0.16
"""Opacity of a band."""


class NumbersWorld(msgspec.Struct, frozen=True):
    """One compared world. `begins`: position of its first state on the path. `states`: [draws, f] at each step."""

    name: str
    nominal: bool
    begins: int
    states: Sequence[Floats]


class _Alarm(msgspec.Struct, frozen=True):
    """The data of the charts."""

    evidence: Evidence
    world: CheckedWorld
    compared: Sequence[NumbersWorld]
    labels: Sequence[str]


def draw_numbers(
    evidence: Evidence, world: CheckedWorld, policies: Policies, models: Mapping[str, AnyModel] | None = None
) -> str:
    """Return the picture as an SVG document. Equal evidence gives equal bytes.

    If a formula has several goals, the first one is drawn. For `handover`, both policies are drawn from the last step.

    Raises:
        LimitError: the formula has no quantity, or the referee does not sample this quantity.
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
    compared = [_compared(evidence, change, offset, given, _steps(goal.measure)) for change in changes]
    now, labels = len(evidence.path) - 1, _labels(goal)
    quantities = evidence.verdict.quantities * (1 if goal.world.baseline is None else 2)  # a difference is one quantity
    branches = tuple(
        ComparedWorld(
            each.name,
            each.nominal,
            each.begins,
            quantity.value,
            quantity.bounds,
            extremes=quantity.extremes,
            question=what_if(change, evidence.actions),
        )
        for each, change, quantity in zip(compared, changes, quantities, strict=False)
    )
    alarm = explanation_of(evidence, formula, branches=branches, history=(), names=world.action_names)
    canvas = Canvas(WIDTH, alarm.title, " ".join([alarm.told.text, *_in_words(compared, world, now)]))
    ends = max(each.begins + len(each.states) - 1 for each in compared)
    time_axis = time_axis_of(evidence, [each.begins for each in compared], ends)
    sheet = Sheet(canvas, time_axis, draw_head(canvas, alarm))
    sheet.words("Squares: observed. Lines: the median of the draws. Bands: 10 to 90 % of them, where noise is unknown.")
    sheet.marks(marks_of(alarm))
    columns = _shown(world)
    for column in columns:
        _draw_feature(sheet, _Alarm(evidence, world, compared, labels), column)
    for label in labels[:MOST_LABELS]:
        _draw_label(sheet, _Alarm(evidence, world, compared, labels), label)
    actions = {n: alarm.action_in_brief(action) for n, (_, action) in enumerate(evidence.path) if action is not None}
    sheet.lane("action", actions)
    for position, action in actions.items():
        sheet.notes[position].append(f"Did {action}")
    draw_handover(sheet, alarm)
    sheet.finish(evidence)
    features = [each.name for n, each in enumerate(world.features) if n not in columns]
    further = [print_formula(each) for each, _, _ in found[1:]]
    rest = undrawn({"feature": features, "label": labels[MOST_LABELS:], "goal": further})
    how = f"; {given.draws:,} draws of each world, with the verdict's noise, by the referee"
    return canvas.document(draw_foot(canvas, alarm, how, sheet.y, rest))


def _draws(evidence: Evidence) -> int:
    return min(max([DRAWS, *(each.samples for each in evidence.verdict.quantities)]), MOST_DRAWS)


def _compared(evidence: Evidence, change: InterventionRef, offset: int, given: Given, steps: int) -> NumbersWorld:
    begins, states = drawn_states(change, offset, given, steps)
    return NumbersWorld(world_name(change, evidence.actions), change.kind == "nominal", begins, states)


def _steps(measure: Measure) -> int:
    """Return the number of steps after an intervention on which a measure depends.

    It is at least one, for the drawing.
    """
    if isinstance(measure, Reward):
        return measure.high + 1
    automaton = PathAutomaton(measure.path)
    return max(automaton.horizon(automaton.start) - 1, 1)


def _shown(world: CheckedWorld) -> list[int]:
    """Return the columns that are drawn. Columns driven by noise are preferred."""
    columns = dict.fromkeys([*(world.noise_features or ()), *range(len(world.features))])
    return sorted([*columns][:MOST_FEATURES])


def _labels(goal: Goal) -> list[str]:
    if not isinstance(goal.measure, Probability):
        return []
    names = [node.name for node in subformulas(goal.measure.path, nested=False) if isinstance(node, Label)]
    return list(dict.fromkeys(names))


def _draw_feature(sheet: Sheet, alarm: _Alarm, column: int) -> None:
    feature, shown = alarm.world.features[column], sheet.time_axis.positions
    observed = {n: state[column] for n, (state, _) in enumerate(alarm.evidence.path) if n in shown}
    bands = [
        np.percentile([states[:, column] for states in each.states[: shown.stop - each.begins]], BAND, axis=1)
        for each in alarm.compared
    ]
    numbers = [float(pick([*observed.values(), *(pick(band) for band in bands)])) for pick in (np.min, np.max)]
    marks = _thresholds(alarm, column, *numbers)
    named = ", ".join(f"{number} {value}" for number, value in enumerate(feature.values))
    sheet.heading(": ".join(filter(None, (feature.name, named))) + (f", {feature.unit}" if feature.unit else ""))
    chart = sheet.chart(TALL, scale_of([*numbers, *(mark.value for _, mark in marks)], reward=True))
    for each, percentiles in zip(alarm.compared, bands, strict=True):
        low, middle, high = ([chart.at(each.begins + k, y) for k, y in enumerate(line)] for line in percentiles)
        for begin, end in _drawn(percentiles):
            sheet.canvas.tint([*high[begin:end], *reversed(low[begin:end])], ink_of(each), TINT)
            for edge in (low, high):
                sheet.canvas.polyline(edge[begin:end], ink=ink_of(each), width=0.8, dash=dash_of(each))
        sheet.canvas.polyline(middle, ink=ink_of(each), width=2.4, dash=dash_of(each))
        for k, (least, median, most) in enumerate(percentiles.T.tolist()):
            between = f" ({least:.4g} to {most:.4g})" if most - least > 1e-9 * max(abs(median), 1.0) else ""
            sheet.notes[each.begins + k].append(f"{feature.name}, {each.name}: {median:.4g}{between}")
    points: list[Point] = [chart.at(position, y) for position, y in observed.items()]
    sheet.canvas.polyline(points, ink=INK, width=2.2)
    for (x, y), (position, number) in zip(points, observed.items(), strict=True):
        sheet.canvas.box((x - 2.5, y - 2.5), (5, 5), fill=INK)
        sheet.notes[position].append(f"{feature.name}, observed: {number:.4g}")
    for label, mark in marks:
        (left, right), y = (sheet.time_axis.left, sheet.time_axis.right), chart.y(mark.value)
        sheet.canvas.line((left, y), (right, y), ink=INK, width=1.4, dash="1 3")
        said = f"“{label}” {'below' if mark.below else 'from'} {mark.value:.6g}"
        sheet.canvas.text((right + 8, y + 4), said, size=SMALL, halo=True)


def _thresholds(alarm: _Alarm, column: int, least: float, most: float) -> list[tuple[str, LabelThreshold]]:
    """Return the thresholds of the goal's labels on a feature, if they are near the range of the drawn numbers."""
    room = most - least or 1.0
    states = np.array([np.median(states, axis=0) for each in alarm.compared for states in each.states])
    tried = states[np.unique(np.linspace(0, len(states) - 1, TRIED).astype(np.int64))]
    ends = least - room, most + room
    return [(label, each) for label in alarm.labels for each in thresholds(alarm.world, label, column, tried, ends)]


def _drawn(band: Floats) -> list[tuple[int, int]]:
    """Return (begin, end) of each part of a band [3, k] wider than rounding errors, and one point on each side."""
    wide = band[2] - band[0] > 1e-9 * np.maximum(np.abs(band[1]), 1.0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wide, [False]]).astype(np.int8)))
    return [(max(begin - 1, 0), end + 1) for begin, end in edges.reshape(-1, 2).tolist()]


def _draw_label(sheet: Sheet, alarm: _Alarm, label: str) -> None:
    """Draw where a label held on the observed path (squares), and on what fraction of each world's paths (lines)."""
    sheet.heading(f"“{label}” holds")
    chart = sheet.chart(TALL / 2, Scale(-0.04, 1.04))
    held = alarm.world.holds(label, np.array([state for state, _ in alarm.evidence.path]))
    for k, holds in enumerate(held.tolist()):
        if k in sheet.time_axis.positions:
            x, y = chart.at(k, float(holds))
            sheet.canvas.box((x - 3.5, y - 3.5), (7, 7), fill=INK if holds else PAPER, ink=INK)
    for each in alarm.compared:
        shares = [float(alarm.world.holds(label, states).mean()) for states in each.states]
        shown = [(each.begins + k, y) for k, y in enumerate(shares) if each.begins + k in sheet.time_axis.positions]
        points = [chart.at(position, share) for position, share in shown]
        sheet.canvas.polyline(points, ink=ink_of(each), width=2.2, dash=dash_of(each))
        for position, share in shown:
            sheet.notes[position].append(f"“{label}”, {each.name}: {figure(share, reward=False)}")


def _in_words(compared: Sequence[NumbersWorld], world: CheckedWorld, now: int) -> list[str]:
    """Return the present state in each world, for screen readers."""
    sentences = []
    for each in compared:
        if 0 <= now - each.begins < len(each.states):
            middle = np.median(each.states[now - each.begins], axis=0)
            sentences.append(f"Under {each.name} it would now be {world.shown(middle)}.")
    return sentences
