"""Charts over steps: the risk ahead in the worlds compared, the value so far, the profile over offsets, label lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from monitor.picture.story import Arm, Story
from monitor.picture.svg import ALTERNATIVE, FAINT, INK, NOMINAL, Anchor, Canvas, Point

__all__ = ["Frame", "dash_of", "draw_history", "draw_lanes", "draw_profile", "draw_risk", "ink_of"]

LEFT: Final = 46
"""Room for the numbers at the left of a chart."""
TICKS: Final = 6


class Frame(msgspec.Struct, frozen=True):
    """Where a chart is, and what its axes show. The heading stands in the topmost 24 pixels."""

    x: float
    y: float
    width: float
    height: float
    low: float
    high: float
    bottom: float = 0.0
    top: float = 1.0

    def at(self, x: float, y: float) -> Point:
        """A point of the data on the page."""
        across = (x - self.low) / max(self.high - self.low, 1e-9)
        up = (y - self.bottom) / max(self.top - self.bottom, 1e-9)
        left, height = self.x + LEFT, self.height - 24 - 40
        return left + across * (self.width - LEFT - 12), self.y + 24 + (1 - min(max(up, 0.0), 1.0)) * height


def ink_of(arm: Arm) -> str:
    """The colour of a world; its dash tells it apart as well."""
    return NOMINAL if arm.nominal else ALTERNATIVE


def dash_of(arm: Arm) -> str:
    """Unbroken for nominal, broken for what did not happen."""
    return "" if arm.nominal else "7 4"


def draw_risk(canvas: Canvas, story: Story, where: Frame) -> None:
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
    frame = msgspec.structs.replace(where, low=story.first, high=story.first + max(last, 1), top=_round_up(top))
    _axes(canvas, frame, heading, "step", percent=not story.reward)
    _moments(canvas, story, frame)
    for arm, curve in zip(arms, curves, strict=True):
        points = [frame.at(story.first + arm.begins + n, y) for n, y in enumerate(curve)]
        canvas.track(points, ink=ink_of(arm), width=2.4, dash=dash_of(arm))
        end = f"{arm.name} {_figure(curve[-1], story)}"
        x, y = points[-1]
        canvas.text((x, y - 7), end, size=12, ink=ink_of(arm), anchor="end", bold=True, halo=True)
    if not arms:
        canvas.text(frame.at(frame.low, 0.5), story.arms[0].problem, ink=FAINT)


def draw_history(canvas: Canvas, story: Story, where: Frame) -> None:
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
    top, bottom = (_round_up(max(numbers)), min(0.0, *numbers)) if story.reward else (1.0, 0.0)
    frame = msgspec.structs.replace(
        where, low=story.first, high=max(story.first + story.now, story.first + 1), bottom=bottom, top=top
    )
    _axes(canvas, frame, heading, "step", percent=not story.reward)
    banded = [m for m in moments if m.bounds is not None]
    if banded:
        low = [frame.at(m.seq, m.bounds[0]) for m in banded if m.bounds]
        high = [frame.at(m.seq, m.bounds[1]) for m in banded if m.bounds]
        canvas.area([*high, *reversed(low)], "band")
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


def draw_profile(canvas: Canvas, story: Story, where: Frame) -> None:
    """What the alternative would give had it taken over earlier or later: the nearer, the less it can still change."""
    profile = sorted(story.profile.items(), reverse=True)
    heading = "Had it taken over … steps ago"
    if not profile:
        return
    numbers = [number for _, both in profile for number in both]
    top, bottom = (_round_up(max(numbers)), min(0.0, *numbers)) if story.reward else (1.0, 0.0)
    far = max(profile[0][0], 1)
    frame = msgspec.structs.replace(where, low=-far, high=0, bottom=bottom, top=top)
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
        canvas.line((x, frame.y + 24), (x, frame.at(0, bottom)[1]), ink=FAINT, dash="2 4")
        anchor: Anchor = "start" if story.latest_useful > far / 2 else "end"
        canvas.text(
            (x + (4 if anchor == "start" else -4), frame.at(0, bottom)[1] - 6),
            "latest that still helps",
            size=12,
            ink=FAINT,
            anchor=anchor,
            halo=True,
        )


def draw_lanes(canvas: Canvas, story: Story, lanes: Sequence[tuple[str, frozenset[int]]], where: Frame) -> None:
    """One lane a label: when it held on the observed path (squares), and how likely it holds in each world (lines)."""
    arms = [arm for arm in story.arms if arm.spread is not None]
    last = max((arm.begins + len(arm.spread.states) - 1 for arm in arms if arm.spread), default=story.now + 1)
    height = (where.height - 24) / max(len(lanes), 1)
    for n, (label, states) in enumerate(lanes):
        frame = Frame(where.x, where.y + n * height, where.width, height + 24, story.first, story.first + max(last, 1))
        is_last = n == len(lanes) - 1
        _axes(canvas, frame, f"“{label}” holds", "step" if is_last else "", percent=True)
        _moments(canvas, story, frame, say=n == 0)
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
    for part in (0.0, 0.5, 1.0):
        value = frame.bottom + part * (frame.top - frame.bottom)
        _, y = frame.at(frame.low, value)
        canvas.line((left[0], y), (right[0], y), ink="#c8c8c8" if part else INK, width=0.8)
        canvas.text((left[0] - 6, y + 4), f"{100 * value:.3g} %" if percent else f"{value:.3g}", size=12, anchor="end")
    steps = _ticks(int(frame.low), int(frame.high))
    for step in steps:
        x, y = frame.at(step, frame.bottom)
        canvas.line((x, y), (x, y + 4))
        canvas.text((x, y + 17), str(abs(step) if signless else step), size=12, anchor="middle")
    if below:
        canvas.text(((left[0] + right[0]) / 2, left[1] + 33), below, size=12, ink=FAINT, anchor="middle")


def _ticks(low: int, high: int) -> list[int]:
    """Some whole numbers from `low` to `high`, evenly apart, the last one always."""
    step = max(1, -(-(high - low) // TICKS))
    return [*range(high, low - 1, -step)][::-1]


def _moments(canvas: Canvas, story: Story, frame: Frame, *, say: bool = True) -> None:
    """Now, and where each alternative sets in."""
    marks = [(story.now, "now")]
    marks += [
        (arm.begins, f"{arm.name} takes over") for arm in story.arms if not arm.nominal and arm.begins < story.now
    ]
    for position, what in marks:
        x, bottom = frame.at(story.first + position, frame.bottom)
        canvas.line((x, frame.y + 24), (x, bottom), ink=FAINT, dash="2 4")
        if say:
            canvas.text((x + 4, frame.y + (34 if what == "now" else 48)), what, size=12, ink=FAINT, halo=True)


def _threshold(canvas: Canvas, story: Story, frame: Frame) -> None:
    if story.threshold is None:
        return
    a, b = frame.at(frame.low, story.threshold), frame.at(frame.high, story.threshold)
    canvas.line(a, b, ink=INK, width=1.4, dash="1 3")
    shown = f"{story.threshold:g}" if story.reward else f"{100 * story.threshold:g} %"
    canvas.text((a[0] + 4, a[1] + 15), f"needed: {story.comparison} {shown}", size=12, halo=True)


def _figure(number: float, story: Story) -> str:
    return f"{number:.3g}" if story.reward else f"{100 * number:.1f} %"


def _round_up(number: float) -> float:
    """A round number a little above."""
    for top in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0):
        if number <= top:
            return top
    scale = 10.0 ** len(str(int(number)))
    return next(scale * part for part in (0.2, 0.5, 1.0) if number <= scale * part)
