"""What charts have in common: their frame, axes with round numbers, and the threshold."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from monitor.picture.explanation import Explanation
from monitor.picture.svg import FAINT, INK, RULE, Canvas, Point

LEFT: Final = 46
"""Width of the axis numbers at the left of a chart, in pixels."""
ROW: Final = 16
"""Height of a line of text above the plot, in pixels."""
MOST_STEPS: Final = 8
MOST_LINES: Final = 5
"""Intervals between ticks along a chart, and up it."""


class ChartFrame(msgspec.Struct, frozen=True):
    """Where a chart is, and what its axes show.

    The topmost `head` pixels hold the heading and other text; `right` is the right margin.
    """

    x: float
    y: float
    width: float
    height: float
    low: float
    high: float
    bottom: float = 0.0
    top: float = 1.0
    head: float = 24.0
    right: float = 12.0

    def at(self, x: float, y: float) -> Point:
        """Return the pixel of a data point."""
        across = (x - self.low) / max(self.high - self.low, 1e-9)
        up = (y - self.bottom) / max(self.top - self.bottom, 1e-9)
        left, height = self.x + LEFT, self.height - self.head - 40
        wide = self.width - LEFT - self.right
        return left + across * wide, self.y + self.head + (1 - min(max(up, 0.0), 1.0)) * height


def draw_axes(
    canvas: Canvas, frame: ChartFrame, heading: str, below: str, *, percent: bool, signless: bool = False
) -> None:
    """Draw heading, axes and ticks of a chart; `below`: what the horizontal axis counts."""
    canvas.text((frame.x, frame.y + 14), heading, bold=True)
    left, right = frame.at(frame.low, frame.bottom), frame.at(frame.high, frame.bottom)
    room = frame.height - frame.head - 40
    for value in ticks(frame.bottom, frame.top, max(2, min(MOST_LINES, int(room // 22)))):
        _, y = frame.at(frame.low, value)
        canvas.line((left[0], y), (right[0], y), ink=INK if value == frame.bottom else RULE, width=0.8)
        canvas.text((left[0] - 6, y + 4), f"{100 * value:.4g} %" if percent else f"{value:.4g}", size=12, anchor="end")
    for step in map(int, ticks(frame.low, frame.high, MOST_STEPS, least=1)):
        x, y = frame.at(step, frame.bottom)
        canvas.line((x, y), (x, y + 4))
        canvas.text((x, y + 17), str(abs(step) if signless else step), size=12, anchor="middle")
    if below:
        canvas.text(((left[0] + right[0]) / 2, left[1] + 33), below, size=12, ink=FAINT, anchor="middle")


def _interval(span: float, most: int, least: float = 0.0) -> float:
    """The smallest of 1, 2 and 5 times a power of ten of which at most `most` make up `span`; `least` at least."""
    wanted = max(span / most, least, 1e-9)
    scale = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
    return next(scale * part for part in (1, 2, 5, 10) if scale * part >= wanted * (1 - 1e-9))


def ticks(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Return round numbers from `low` to `high`, evenly apart."""
    step = _interval(high - low, most, least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def draw_threshold(canvas: Canvas, alarm: Explanation, frame: ChartFrame) -> None:
    """Draw the threshold as a dotted line, named at the right of the heading."""
    if alarm.threshold is None:
        return
    a, b = frame.at(frame.low, alarm.threshold), frame.at(frame.high, alarm.threshold)
    canvas.line(a, b, ink=INK, width=1.4, dash="1 3")
    needed = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}.get(alarm.comparison, "")
    shown = f"{alarm.threshold:g}" if alarm.reward else f"{100 * alarm.threshold:g} %"
    canvas.text((frame.x + frame.width - frame.right, frame.y + 14), f"dotted: {needed} {shown}", size=12, anchor="end")


def figure(number: float, alarm: Explanation) -> str:
    """Return a value as text: a probability in percent."""
    return f"{number:.3g}" if alarm.reward else f"{100 * number:.1f} %"


def rounded(number: float, *, down: bool = False) -> float:
    """Return a round number a little above, or below."""
    if number == 0.0:
        return 0.0 if down else 0.01
    step = _interval(abs(number), MOST_LINES)
    return step * (math.floor(number / step + 1e-9) if down else math.ceil(number / step - 1e-9))
