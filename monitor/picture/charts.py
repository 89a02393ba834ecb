"""Charts over steps: the risk ahead in the worlds compared, the value so far, the profile over offsets, label lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from monitor.picture.explanation import Branch, Explanation
from monitor.picture.svg import ALTERNATIVE, FAINT, INK, NOMINAL, RULE, Anchor, Canvas, Point

__all__ = ["Frame", "dash_of", "draw_history", "draw_lanes", "draw_profile", "draw_risk", "ink_of"]

LEFT: Final = 46
"""Room for the numbers at the left of a chart."""
ROW: Final = 16
"""Height of a line of words above the plot, where it hides no data."""
MOST_STEPS: Final = 8
MOST_LINES: Final = 5
"""Intervals between ticks along a chart, and up it."""
BAND: Final = {
    "any": "every causal model that fits what was observed",
    "stable": "every counterfactually stable causal model that fits what was observed",
}


class Frame(msgspec.Struct, frozen=True):
    """Where a chart is, and what its axes show.

    In the topmost `head` pixels stand the heading and other words; `right` is the margin there.
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
        """A point of the data on the page."""
        across = (x - self.low) / max(self.high - self.low, 1e-9)
        up = (y - self.bottom) / max(self.top - self.bottom, 1e-9)
        left, height = self.x + LEFT, self.height - self.head - 40
        wide = self.width - LEFT - self.right
        return left + across * wide, self.y + self.head + (1 - min(max(up, 0.0), 1.0)) * height


def ink_of(arm: Branch) -> str:
    """The colour of a world; its dash tells it apart as well."""
    return NOMINAL if arm.nominal else ALTERNATIVE


def dash_of(arm: Branch) -> str:
    """Unbroken for nominal, broken for what did not happen."""
    return "" if arm.nominal else "7 4"


def draw_risk(canvas: Canvas, story: Explanation, where: Frame) -> None:
    """What is decided by each step, in each world: risk, or success, whichever grows on the way."""
    arms = [arm for arm in story.arms if arm.spread is not None]
    if story.reward:
        heading, curves = "Reward collected by then", [arm.spread.gained for arm in arms if arm.spread]
    elif sum(sum(arm.spread.broken[:-1]) - sum(arm.spread.kept[:-1]) for arm in arms if arm.spread) >= 0:
        heading, curves = "Chance that the requirement is broken by then", [a.spread.broken for a in arms if a.spread]
    else:
        heading, curves = "Chance that the requirement is met by then", [a.spread.kept for a in arms if a.spread]
    top = max((max(curve) for curve in curves if curve), default=1.0)
    last = max((arm.begins + len(curve) - 1 for arm, curve in zip(arms, curves, strict=True)), default=story.now + 1)
    ends = [f"{arm.name} {_figure(curve[-1], story)}" for arm, curve in zip(arms, curves, strict=True)]
    frame = msgspec.structs.replace(
        where,
        low=story.first,
        high=story.first + max(last, 1),
        bottom=_round(min([0.0, *(min(curve) for curve in curves if curve)]), down=True),
        top=_round(top),
        head=24 + ROW * len(_marks(story)),
        right=20 + 7.2 * max(map(len, ends), default=0),
    )
    _axes(canvas, frame, heading, "step", percent=not story.reward)
    _moments(canvas, story, frame)
    lowest = math.inf
    last_points = []
    for arm, curve, end in zip(arms, curves, ends, strict=True):
        points = [frame.at(story.first + arm.begins + n, y) for n, y in enumerate(curve)]
        canvas.track(points, ink=ink_of(arm), width=2.4, dash=dash_of(arm))
        last_points.append((points[-1][1], end, ink_of(arm)))
    beside = frame.at(frame.high, frame.bottom)[0] + 8
    for height, end, ink in sorted(last_points, reverse=True):  # from below, each clear of the one under it
        lowest = min(height + 4, lowest - 14)
        canvas.text((beside, lowest), end, size=12, ink=ink, bold=True)
    if not arms:
        canvas.text(frame.at(frame.low, 0.5), story.arms[0].problem, ink=FAINT)


def draw_history(canvas: Canvas, story: Explanation, where: Frame) -> None:
    """The value at each step so far, with its bounds over causal models, against the threshold."""
    moments = story.history
    heading = "Value at each step so far"
    if not moments:
        _axes(canvas, where, heading, "step", percent=not story.reward)
        canvas.text((where.x + LEFT + 8, where.y + 60), "not answered exactly, so not derived again", ink=FAINT)
        return
    numbers = [m.value for m in moments] + [m.nominal for m in moments if m.nominal is not None]
    numbers += [end for m in moments if m.bounds for end in m.bounds] + (
        [] if story.threshold is None else [story.threshold]
    )
    top, bottom = (_round(max(numbers)), _round(min(0.0, *numbers), down=True)) if story.reward else (1.0, 0.0)
    banded = [m for m in moments if m.bounds is not None]
    frame = msgspec.structs.replace(
        where,
        low=story.first,
        high=max(story.first + story.now, story.first + 1),
        bottom=bottom,
        top=top,
        head=24 + ROW * bool(banded),
    )
    _axes(canvas, frame, heading, "step", percent=not story.reward)
    if banded:
        low = [frame.at(m.seq, m.bounds[0]) for m in banded if m.bounds]
        high = [frame.at(m.seq, m.bounds[1]) for m in banded if m.bounds]
        canvas.area([*high, *reversed(low)], "band")
        told = BAND.get(story.evidence.causal_model, "its bounds")
        canvas.text((frame.x, frame.y + 14 + ROW), f"hatched: {_banded(story)} in {told}", size=12, ink=FAINT)
        canvas.track(high, ink=ALTERNATIVE, width=0.8, dash="2 3")
        canvas.track(low, ink=ALTERNATIVE, width=0.8, dash="2 3")
    alternative = next((arm for arm in story.arms if not arm.nominal), story.arms[-1])
    if any(m.nominal is not None for m in moments):
        points = [frame.at(m.seq, m.nominal) for m in moments if m.nominal is not None]
        canvas.track(points, ink=NOMINAL, width=2.2)
        for point in points:
            canvas.dot(point, 3, fill=NOMINAL)
    points = [frame.at(m.seq, m.value) for m in moments]
    canvas.track(points, ink=ink_of(alternative), width=2.2, dash=dash_of(alternative))
    for point in points:
        canvas.diamond(point, 4, fill=ink_of(alternative))
    _threshold(canvas, story, frame)


def draw_profile(canvas: Canvas, story: Explanation, where: Frame) -> None:
    """What the alternative would give had it taken over earlier or later: the nearer, the less it can still change."""
    profile = sorted(story.profile.items(), reverse=True)
    heading = "Had it taken over … steps ago"
    if not profile:
        return
    numbers = [number for _, both in profile for number in both]
    top, bottom = (_round(max(numbers)), _round(min(0.0, *numbers), down=True)) if story.reward else (1.0, 0.0)
    far = max(profile[0][0], 1)
    head = 24 + ROW * (story.latest_useful is not None)
    frame = msgspec.structs.replace(where, low=-far, high=0, bottom=bottom, top=top, head=head)
    _axes(canvas, frame, heading, "steps ago", percent=not story.reward, signless=True)
    nominal = [frame.at(-offset, values[0]) for offset, values in profile]
    other = [frame.at(-offset, values[1]) for offset, values in profile]
    canvas.track(nominal, ink=NOMINAL, width=2.2)
    canvas.track(other, ink=ALTERNATIVE, width=2.2, dash="7 4")
    for point in nominal:
        canvas.dot(point, 3, fill=NOMINAL)
    for point in other:
        canvas.diamond(point, 4, fill=ALTERNATIVE)
    _threshold(canvas, story, frame)
    if story.latest_useful is not None:
        x, _ = frame.at(-story.latest_useful, 0)
        canvas.line((x, frame.y + 14 + ROW), (x, frame.at(0, bottom)[1]), ink=FAINT, dash="2 4")
        anchor: Anchor = "start" if story.latest_useful > far / 2 else "end"
        beside = x + (4 if anchor == "start" else -4)
        canvas.text((beside, frame.y + 12 + ROW), "latest that still helps", size=12, ink=FAINT, anchor=anchor)


def draw_lanes(canvas: Canvas, story: Explanation, lanes: Sequence[tuple[str, frozenset[int]]], where: Frame) -> None:
    """One lane a label: when it held on the observed path (squares), and how likely it holds in each world (lines)."""
    arms = [arm for arm in story.arms if arm.spread is not None]
    last = max((arm.begins + len(arm.spread.states) - 1 for arm in arms if arm.spread), default=story.now + 1)
    words = ROW * len(_marks(story))
    height = (where.height - 24 - words) / max(len(lanes), 1)
    for n, (label, states) in enumerate(lanes):
        first = n == 0
        y, high = where.y + n * height + (0 if first else words), height + 24 + (words if first else 0)
        frame = Frame(
            *(where.x, y, where.width, high, story.first, story.first + max(last, 1)), head=24 + (words if first else 0)
        )
        is_last = n == len(lanes) - 1
        _axes(canvas, frame, f"“{label}” holds", "step" if is_last else "", percent=True)
        _moments(canvas, story, frame, say=first)
        for position, (state, _) in enumerate(story.evidence.path):
            x, y = frame.at(story.first + position, 1.0 if state in states else 0.0)
            canvas.box((x - 3.5, y - 3.5), (7, 7), fill=INK if state in states else "#fff", ink=INK)
        for arm in arms:
            assert arm.spread is not None
            points = [
                frame.at(story.first + arm.begins + k, sum(p for s, p in there.items() if s in states))
                for k, there in enumerate(arm.spread.states)
            ]
            canvas.track(points, ink=ink_of(arm), width=2.2, dash=dash_of(arm))


# ---- what charts share ----


def _axes(canvas: Canvas, frame: Frame, heading: str, below: str, *, percent: bool, signless: bool = False) -> None:
    canvas.text((frame.x, frame.y + 14), heading, bold=True)
    left, right = frame.at(frame.low, frame.bottom), frame.at(frame.high, frame.bottom)
    room = frame.height - frame.head - 40
    for value in _ticks(frame.bottom, frame.top, max(2, min(MOST_LINES, int(room // 22)))):
        _, y = frame.at(frame.low, value)
        canvas.line((left[0], y), (right[0], y), ink=INK if value == frame.bottom else RULE, width=0.8)
        canvas.text((left[0] - 6, y + 4), f"{100 * value:.4g} %" if percent else f"{value:.4g}", size=12, anchor="end")
    for step in map(int, _ticks(frame.low, frame.high, MOST_STEPS, least=1)):
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


def _ticks(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Round numbers from `low` to `high`, evenly apart."""
    step = _interval(high - low, most, least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _marks(story: Explanation) -> list[tuple[int, str]]:
    """Where something happens: each alternative sets in, and now; position on the path and what."""
    setting_in = [arm for arm in story.arms if not arm.nominal and arm.begins < story.now]
    return [*((arm.begins, f"{arm.name} takes over") for arm in setting_in), (story.now, "now")]


def _moments(canvas: Canvas, story: Explanation, frame: Frame, *, say: bool = True) -> None:
    """Draw `_marks`; what they are is said above the plot, a line each."""
    for row, (position, what) in enumerate(_marks(story)):
        x, bottom = frame.at(story.first + position, frame.bottom)
        above = frame.y + 14 + ROW * (row + 1)
        canvas.line((x, above if say else frame.y + frame.head), (x, bottom), ink=FAINT, dash="2 4")
        if say:
            canvas.text((x + 4, above - 2), what, size=12, ink=FAINT, halo=True)


def _threshold(canvas: Canvas, story: Explanation, frame: Frame) -> None:
    if story.threshold is None:
        return
    a, b = frame.at(frame.low, story.threshold), frame.at(frame.high, story.threshold)
    canvas.line(a, b, ink=INK, width=1.4, dash="1 3")
    said = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}.get(story.comparison, "needed")
    shown = f"{story.threshold:g}" if story.reward else f"{100 * story.threshold:g} %"
    canvas.text((frame.x + frame.width - frame.right, frame.y + 14), f"dotted: {said} {shown}", size=12, anchor="end")


def _figure(number: float, story: Explanation) -> str:
    return f"{number:.3g}" if story.reward else f"{100 * number:.1f} %"


def _banded(story: Explanation) -> str:
    """Whose value lies in the band."""
    alternative = next((arm for arm in story.arms if not arm.nominal), story.arms[-1])
    return f"the value under {alternative.name}"


def _round(number: float, *, down: bool = False) -> float:
    """A round number a little above, or below."""
    if number == 0.0:
        return 0.0 if down else 0.01
    step = _interval(abs(number), MOST_LINES)
    return step * (math.floor(number / step + 1e-9) if down else math.ceil(number / step - 1e-9))
