"""Chart of the decisions on the path: the value if one of them had been another, and the action that matters most."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from monitor.exact.recourse import Effect
from monitor.model import MDP
from monitor.model.action_names import action_in_words
from monitor.picture.axes import ROW, ChartFrame, draw_axes, draw_threshold, figure, rounded
from monitor.picture.explanation import Explanation
from monitor.picture.svg import ALTERNATIVE, FAINT, NOMINAL, Anchor, Canvas

DIGITS = 9
"""Decimals to which values are compared: rounding must not choose among equals."""


class _Bar(NamedTuple):
    """A decision with the action that serves the goal most in its place. `seq`: its step."""

    seq: int
    taken: int | None
    best: Effect


def draw_decisions(canvas: Canvas, alarm: Explanation, model: MDP, where: ChartFrame) -> float:
    """Draw a bar for each decision, from the value as it happened; return their height in pixels, 0 without any."""
    bars = _bars(alarm)
    if alarm.recourse is None or not bars:
        return 0.0
    happened = alarm.recourse.unchanged
    numbers = [happened, *(bar.best.value for bar in bars)] + ([] if alarm.threshold is None else [alarm.threshold])
    top, bottom = (rounded(max(numbers)), rounded(min(0.0, *numbers), down=True)) if alarm.reward else (1.0, 0.0)
    low, high = bars[0].seq - 0.5, bars[-1].seq + 0.5
    frame = msgspec.structs.replace(where, low=low, high=high, bottom=bottom, top=top, head=24 + 2 * ROW)
    draw_axes(canvas, frame, "Had one decision been another, all else as it was", "step", percent=not alarm.reward)
    told = "bars: the value with the best other action, with hindsight; line: as it happened"
    canvas.text((frame.x, frame.y + 14 + ROW), told, size=12, ink=FAINT)
    draw_threshold(canvas, alarm, frame)
    wide = min(36.0, 0.6 * (frame.at(low + 1, 0)[0] - frame.at(low, 0)[0]))
    for bar in bars:
        x, level = frame.at(bar.seq, happened)
        _, end = frame.at(bar.seq, bar.best.value)
        size = wide, max(abs(end - level), 0.5)
        says = f"step {bar.seq}: {_instead(bar, model)}, {figure(bar.best.value, alarm)}"
        canvas.box((x - wide / 2, min(level, end)), size, fill=ALTERNATIVE, says=says)
    canvas.line(frame.at(low, happened), frame.at(high, happened), ink=NOMINAL, width=2.2)
    largest = _largest(bars)
    words = "no single other decision would have helped" if largest is None else _named(largest, alarm, model)
    x = frame.at(low if largest is None else largest.seq, 0)[0]
    anchor: Anchor = "start" if x < frame.x + frame.width / 2 else "end"
    canvas.text((x, frame.y + 12 + 2 * ROW), words, size=12, anchor=anchor, bold=largest is not None)
    return where.height + 12


def decisions_in_words(alarm: Explanation, model: MDP) -> list[str]:
    """Return the chart in words, for screen readers."""
    bars = _bars(alarm)
    if not bars:
        return []
    largest = _largest(bars)
    if largest is None:
        return ["No single other decision would have helped."]
    return [f"The decision that mattered most: {_named(largest, alarm, model)}."]


def _bars(alarm: Explanation) -> list[_Bar]:
    report = alarm.recourse
    if report is None:
        return []
    sign = 1.0 if report.largest else -1.0
    seq = alarm.first + alarm.now

    def serves(effect: Effect) -> tuple[float, int]:
        return round(sign * effect.value, DIGITS), -effect.action

    return [_Bar(seq - each.offset, each.taken, max(each.effects, key=serves)) for each in report.decisions]


def _largest(bars: list[_Bar]) -> _Bar | None:
    """Return the decision whose change has the largest effect, the latest of equals; None if none has one."""
    size, _, largest = max((round(abs(bar.best.difference), DIGITS), bar.seq, bar) for bar in bars)
    return largest if size > 0.0 else None


def _named(bar: _Bar, alarm: Explanation, model: MDP) -> str:
    return f"{_instead(bar, model)} at step {bar.seq}: {figure(bar.best.value, alarm)}"


def _instead(bar: _Bar, model: MDP) -> str:
    proposed = _name(bar.best.action, model)
    return proposed if bar.taken is None else f"{proposed} instead of {_name(bar.taken, model)}"


def _name(action: int, model: MDP) -> str:
    return action_in_words(model.action_names[action] if model.action_names else "", action)
