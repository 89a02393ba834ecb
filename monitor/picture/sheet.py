"""The single time axis of a picture of an alarm. Charts lie below one another, and a step has the same x in each chart.

Each chart has its own vertical axis over the range of its values. Steps and times are written once, under the last
chart. Each step is an element that the keyboard reaches, with its numbers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec
import numpy as np

from monitor.evidence.document import Evidence
from monitor.logic.syntax import Comparison
from monitor.picture.svg import AHEAD, FAINT, FIRING, INK, PAPER, RULE, Anchor, Canvas, Ink, Point, width_of
from monitor.types.stream_events import YEAR_10000

WIDTH: Final = 760.0
MARGIN: Final = 20.0
NUMBERS: Final = 52.0
"""Width of the numbers and names to the left of the charts, in pixels; `ENDS`: width of the texts at the right."""
ENDS: Final = 120.0
MOST_STEPS: Final = 44
"""Largest number of steps in a picture. Only steps before the first intervention or after the alarm are left out.
"""
MOST_LINES: Final = 4
"""Largest number of intervals between ticks on the vertical axis."""
WIDEST: Final = 1.6
"""A chart shows all bounds if lines and bounds together span at most this many times the range of the lines."""
PAD: Final = 0.08
SMALL: Final = 11.0
"""Size of the type in lanes and of numbers, in pixels."""
TALLEST: Final = 92.0
FLAT: Final = 40.0
"""Height of a lane with turned names, in pixels. A name in a cell of at least this width is shortened instead."""


class TimeAxis(msgspec.Struct, frozen=True):
    """The drawn steps: positions on the path from `first` to `last`, on the pixels from `left` to `right`.

    `now`: position of the path's last pair, whose step is `seq`. `ends`: last position with any data, drawn or not.
    """

    first: int
    last: int
    now: int
    seq: int
    ends: int
    left: float = MARGIN + NUMBERS
    right: float = WIDTH - MARGIN - ENDS

    @property
    def cell(self) -> float:
        """Width of a step, in pixels."""
        return (self.right - self.left) / (self.last - self.first + 1)

    @property
    def positions(self) -> range:
        """All drawn positions."""
        return range(self.first, self.last + 1)

    def x(self, position: float) -> float:
        """Return the middle of a step, in pixels."""
        return self.left + (position - self.first + 0.5) * self.cell

    def step(self, position: int) -> int:
        """Return the number of a step."""
        return self.seq - self.now + position

    @property
    def cut(self) -> str:
        """A sentence that says which steps are drawn, if some are left out."""
        if self.first <= 0 and self.last >= self.ends:
            return ""
        first, last, begin, end = map(self.step, (self.first, self.last, 0, max(self.ends, self.last)))
        return f"Only steps {first} to {last} of steps {begin} to {end} are drawn."


def time_axis_of(evidence: Evidence, begins: Iterable[int], ends: int, left: float = MARGIN + NUMBERS) -> TimeAxis:
    """Return the axis of an alarm.

    Args:
        evidence: evidence of the alarm.
        begins: positions at which interventions begin; all of them are drawn.
        ends: last position with any data.
        left: pixel at which the axis begins.
    """
    now = len(evidence.path) - 1
    last = max(min(ends, max(now, min([*begins, now]) + MOST_STEPS - 1)), now + 1)
    first = max(min([*begins, last - MOST_STEPS + 1]), 0) if last >= MOST_STEPS else 0
    return TimeAxis(first, last, now, evidence.seq, ends, left)


class Scale(msgspec.Struct, frozen=True):
    """A vertical axis. `clipped`: True if some of the given bounds are outside the axis."""

    low: float
    high: float
    clipped: bool = False


def scale_of(lines: Sequence[float], bounds: Sequence[float] = (), *, reward: bool) -> Scale:
    """Return the axis over the range of some lines.

    It includes the bounds of the lines, unless the bounds would flatten the lines.

    >>> scale_of([0.7, 0.9], [0.65, 0.92], reward=False).clipped, scale_of([0.7, 0.74], [0.0], reward=False).clipped
    (False, True)
    """
    low, high = min(lines), max(lines)
    least = 0.1 * max(abs(low), abs(high), 1e-9) if reward else 0.05
    ends = min([low, *bounds]), max([high, *bounds])
    clipped = ends[1] - ends[0] > WIDEST * max(high - low, 2 * least)
    low, high = (low, high) if clipped else ends
    pad = PAD * (high - low) + max(least - (high - low), 0.0) / 2
    low, high = low - pad, high + pad
    floor = -0.02 if ends[0] >= 0 else -1.02  # of probabilities, and of their differences
    return Scale(low, high, clipped) if reward else Scale(max(low, floor), min(high, 1.02), clipped)


class Chart(msgspec.Struct, frozen=True):
    """A part of the picture with a vertical axis; `top` and `height` in pixels."""

    time_axis: TimeAxis
    scale: Scale
    top: float
    height: float

    def at(self, position: float, value: float) -> Point:
        """Return the pixel of a value at a step. A value outside the axis is drawn at its edge."""
        return self.time_axis.x(position), self.y(value)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value, in pixels."""
        up = (value - self.scale.low) / max(self.scale.high - self.scale.low, 1e-12)
        return self.top + (1 - min(max(up, 0.0), 1.0)) * self.height


class Sheet:
    """A picture in progress. `y`: y coordinate of the next part, in pixels; `notes`: position -> texts on this step."""

    def __init__(self, canvas: Canvas, time_axis: TimeAxis, y: float) -> None:
        self.canvas, self.time_axis, self.y = canvas, time_axis, y
        self.notes: defaultdict[int, list[str]] = defaultdict(list)
        self._top, self._under = y, canvas.drawn
        self._marks: Sequence[tuple[float, str, Ink]] = ()

    def marks(self, named: Sequence[tuple[float, str, Ink]]) -> None:
        """Write texts over the charts at some positions. Lines through all later charts mark these positions."""
        self._marks, self._under = named, self.canvas.drawn
        for position, what, ink in named:
            x, wide = self.time_axis.x(position), width_of(what, 12, bold=True)
            anchor: Anchor = "start" if x + 5 + wide <= WIDTH - MARGIN else "end"
            beside = x + (5 if anchor == "start" else -5)
            self.canvas.text((beside, self.y + 12), what, size=12, ink=ink, bold=True, anchor=anchor, halo=True)
            self.y += 17
        self._top = self.y

    def heading(self, text: str, aside: str = "", ink: Ink = INK) -> None:
        """Write the heading of the next chart. `aside`: text to the right of the heading."""
        self.y += 12
        room = WIDTH - 2 * MARGIN - width_of(text, 13, bold=True) - 16
        self.canvas.text((MARGIN, self.y + 13), text, bold=True, ink=ink, halo=True)
        beside = width_of(aside, 12) <= room
        if aside and beside:
            self.canvas.text((WIDTH - MARGIN, self.y + 13), aside, size=12, ink=FAINT, anchor="end", halo=True)
        self.y += 20
        if aside and not beside:
            self.words(aside)

    def words(self, text: str) -> None:
        """Write a line under a heading."""
        self.y += self.canvas.paragraph((MARGIN, self.y + 11), text, size=12, ink=FAINT, halo=True)

    def chart(self, height: float, scale: Scale) -> Chart:
        """Return the next chart, with its background and ticks drawn."""
        time_axis, canvas = self.time_axis, self.canvas
        chart = Chart(time_axis, scale, self.y + 6, height)
        split = time_axis.x(time_axis.now + 0.5)
        canvas.box((split, chart.top), (time_axis.right - split, height), fill=AHEAD)
        for value in ticks(scale.low, scale.high, MOST_LINES):
            y = chart.y(value)
            canvas.line((time_axis.left, y), (time_axis.right, y), ink=RULE, width=0.8)
            canvas.text((time_axis.left - 6, y + 4), f"{value:.4g}", size=SMALL, ink=FAINT, anchor="end")
        self.y = chart.top + height + 4
        return chart

    def threshold(self, chart: Chart, comparison: Comparison | None, bound: float | None) -> None:
        """Draw a required value over the width of a chart, with a tint on the side that misses it."""
        if bound is None:
            return
        (left, right), y = (chart.time_axis.left, chart.time_axis.right), chart.y(bound)
        missed = chart.top + chart.height if comparison in (">=", ">") else chart.top
        self.canvas.tint([(left, y), (right, y), (right, missed), (left, missed)], FIRING, 0.08)
        self.canvas.line((left, y), (right, y), ink=INK, width=1.4, dash="1 3")

    def unknown(self, chart: Chart, begin: float, end: float, why: str = "") -> None:
        """Hatch a part of a chart, between two positions, for which nothing is known."""
        left, right = (chart.time_axis.x(each) for each in (begin, end))
        if right > left:
            size = right - left, chart.height
            self.canvas.box((left, chart.top), size, fill="url(#blind)", says=why)
            if why:
                self.canvas.text(
                    (left + 8, chart.top + 18), why, size=12, ink=FAINT, halo=True, room=WIDTH - MARGIN - left
                )

    def lane(self, name: str, texts: Mapping[int, str], ink: Ink = INK) -> None:
        """Write a word at each of some positions. Equal neighbouring words are written once, and wide words are turned.

        A word that is still too long loses its middle; the step's notes have the whole word.
        """
        time_axis, canvas = self.time_axis, self.canvas
        drawn = [(position, texts[position]) for position in time_axis.positions if position in texts]
        neighbours = groupby(enumerate(drawn), key=lambda each: (each[1][1], each[1][0] - each[0]))
        runs = [[pair for _, pair in run] for _, run in neighbours]
        if not runs:
            return
        rooms = [len(run) * time_axis.cell - 1 for run in runs]
        fits = [room >= min(width_of(run[0][1], SMALL) + 4, FLAT) for run, room in zip(runs, rooms, strict=True)]
        tall = [width_of(run[0][1], SMALL) + 6 for run, flat in zip(runs, fits, strict=True) if not flat]
        height = min(max(tall, default=18.0), TALLEST)
        middle = self.y + height / 2 + 4
        canvas.text(
            (time_axis.left - 6, middle), name, size=SMALL, ink=FAINT, anchor="end", room=time_axis.left - MARGIN - 6
        )
        for run, flat in zip(runs, fits, strict=True):
            left, right = time_axis.x(run[0][0] - 0.5), time_axis.x(run[-1][0] + 0.5)
            canvas.box((left + 0.5, self.y), (right - left - 1, height), fill=PAPER, ink=RULE, width=0.8)
            x, text = (left + right) / 2, run[0][1]
            if flat:
                canvas.text((x, middle), text, size=SMALL, ink=ink, anchor="middle", room=right - left)
            elif right - left >= SMALL:
                low = self.y + height - 4
                canvas.text((x + 4, low), text, size=SMALL, ink=ink, room=height - 6, turned=True)
        self.y += height + 3

    def finish(self, evidence: Evidence) -> None:
        """Draw the steps and times, the lines of the marks, and the numbers of each step.

        Call this once, at the end.
        """
        time_axis, canvas = self.time_axis, self.canvas
        bottom = self.y + 2
        canvas.line((time_axis.left, bottom), (time_axis.right, bottom), ink=FAINT)
        with canvas.under(self._under):
            for n, (position, _, ink) in enumerate(self._marks):
                x = time_axis.x(position)
                top = self._top - 17 * (len(self._marks) - n) + 2
                canvas.line((x, top), (x, bottom), ink=ink, width=1.2, dash="3 3")
        low, high = time_axis.step(time_axis.first), time_axis.step(time_axis.last)
        most = max(int((time_axis.right - time_axis.left) / 34), 2)
        for step in map(int, ticks(low, high, most, least=1)):
            x = time_axis.x(time_axis.first + step - low)
            canvas.line((x, bottom), (x, bottom + 4), ink=FAINT)
            canvas.text((x, bottom + 16), str(step), size=12, anchor="middle")
        canvas.text((time_axis.left - 6, bottom + 16), "step", size=12, ink=FAINT, anchor="end")
        canvas.text((time_axis.right + 8, bottom + 16), "grey: forecast", size=SMALL, ink=FAINT)
        self.y = bottom + 20
        for step, seconds, what in (
            (evidence.first_seq, evidence.since, "missed since"),
            (evidence.seq, evidence.time, "fired at"),
        ):
            x, at, last = time_axis.x(time_axis.now + step - time_axis.seq), clock(seconds), step == evidence.seq
            text = f"{what} {at}" if what == "fired at" or not last else ""
            wide = width_of(text, SMALL)
            if at and text and (last or x - wide > MARGIN):
                anchor: Anchor = "start" if last and x + wide < WIDTH - MARGIN else "end"
                canvas.text(
                    (x + (4 if anchor == "start" else 0), self.y + 12), text, size=SMALL, ink=FAINT, anchor=anchor
                )
        self.y += 18
        if time_axis.cut:
            self.words(time_axis.cut)
        for position in time_axis.positions:
            if position in self.notes:
                lines = [f"Step {time_axis.step(position)}", *self.notes[position]]
                corner = time_axis.x(position - 0.5), self._top
                canvas.reading(corner, (time_axis.cell, bottom - self._top), lines, (MARGIN, bottom + 24))


def clock(seconds: float, *, day: bool = False) -> str:
    """Return a time as UTC text; "" if it is out of range, because an agent's clock may send anything."""
    if not 0 <= seconds < YEAR_10000:
        return ""
    date, time = str(np.datetime64(int(seconds), "s")).split("T")
    return f"{date} {time} UTC" if day else time


def _interval(span: float, most: int, least: float = 0.0) -> float:
    """Return the smallest interval for at most `most` ticks in `span`: 1, 2 or 5 times a power of ten.

    The interval is at least `least`.
    """
    wanted = max(span / most, least, 1e-9)
    scale = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
    return next(scale * part for part in (1, 2, 5, 10) if scale * part >= wanted * (1 - 1e-9))


def ticks(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Return round, evenly spaced numbers from `low` to `high`."""
    step = _interval(high - low, most, least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def figure(number: float, *, reward: bool) -> str:
    """Return a value as text. A probability has three decimals."""
    return f"{number:.4g}" if reward else f"{number:z.3f}"


def interval(ends: tuple[float, float], *, reward: bool) -> str:
    """Return an interval as text.

    >>> interval((0.25, 0.5), reward=False), interval((2.0, 3.5), reward=True)
    ('0.250 to 0.500', '2 to 3.5')
    """
    low, high = (figure(end, reward=reward) for end in ends)
    return f"{low} to {high}"
