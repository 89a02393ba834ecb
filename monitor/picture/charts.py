"""Charts over steps: risk ahead in each world, value so far, profile over offsets, labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from monitor.picture.axes import LEFT, ROW, ChartFrame, draw_axes, draw_threshold, figure, rounded
from monitor.picture.explanation import Explanation
from monitor.picture.svg import ALTERNATIVE, FAINT, INK, NOMINAL, Anchor, Canvas

BAND: Final = {
    "any": "every causal model that fits",
    "stable": "every counterfactually stable model that fits",
}


class Compared(Protocol):
    """A compared world, as far as its line is concerned."""

    @property
    def nominal(self) -> bool:
        """Whether the nominal policy acts in it."""
        ...


def ink_of(branch: Compared) -> str:
    """Return the colour of a world; its dash distinguishes it too."""
    return NOMINAL if branch.nominal else ALTERNATIVE


def dash_of(branch: Compared) -> str:
    """Return the dash of a world: solid for nominal, dashed for an alternative."""
    return "" if branch.nominal else "7 4"


def draw_risk(canvas: Canvas, alarm: Explanation, where: ChartFrame) -> None:
    """Draw the probability of violation by each step in each world, or that of success if it is larger."""
    branches = [branch for branch in alarm.branches if branch.distribution is not None]
    if alarm.reward:
        heading, curves = (
            "Reward collected by then",
            [branch.distribution.reward for branch in branches if branch.distribution],
        )
    elif (
        sum(
            sum(branch.distribution.violated[:-1]) - sum(branch.distribution.satisfied[:-1])
            for branch in branches
            if branch.distribution
        )
        >= 0
    ):
        heading, curves = (
            "Probability that the requirement is violated by then",
            [a.distribution.violated for a in branches if a.distribution],
        )
    else:
        heading, curves = (
            "Probability that the requirement is met by then",
            [a.distribution.satisfied for a in branches if a.distribution],
        )
    top = max((max(curve) for curve in curves if curve), default=1.0)
    last = max(
        (branch.begins + len(curve) - 1 for branch, curve in zip(branches, curves, strict=True)), default=alarm.now + 1
    )
    ends = [f"{branch.name} {figure(curve[-1], alarm)}" for branch, curve in zip(branches, curves, strict=True)]
    frame = msgspec.structs.replace(
        where,
        low=alarm.first,
        high=alarm.first + max(last, 1),
        bottom=rounded(min([0.0, *(min(curve) for curve in curves if curve)]), down=True),
        top=rounded(top),
        head=24 + ROW * len(_marks(alarm)),
        right=20 + 7.2 * max(map(len, ends), default=0),
    )
    draw_axes(canvas, frame, heading, "step", percent=not alarm.reward)
    _moments(canvas, alarm, frame)
    lowest = math.inf
    last_points = []
    for branch, curve, end in zip(branches, curves, ends, strict=True):
        points = [frame.at(alarm.first + branch.begins + n, y) for n, y in enumerate(curve)]
        canvas.polyline(points, ink=ink_of(branch), width=2.4, dash=dash_of(branch))
        last_points.append((points[-1][1], end, ink_of(branch)))
    beside = frame.at(frame.high, frame.bottom)[0] + 8
    for height, end, ink in sorted(last_points, reverse=True):  # from below, each clear of the one under it
        lowest = min(height + 4, lowest - 14)
        canvas.text((beside, lowest), end, size=12, ink=ink, bold=True)
    if not branches:
        canvas.text(frame.at(frame.low, 0.5), alarm.branches[0].problem, ink=FAINT)
    else:
        missing = [f"no curve for {branch.name}: {branch.problem}" for branch in alarm.branches if branch.problem]
        at = frame.x + frame.width - 12, frame.y + 14
        canvas.text(at, "; ".join(missing), size=12, ink=FAINT, anchor="end")


def draw_history(canvas: Canvas, alarm: Explanation, where: ChartFrame) -> None:
    """Draw the value at each step so far, with its bounds over causal models and the threshold."""
    moments = alarm.history
    heading = "Value at each step so far"
    if not moments:
        draw_axes(canvas, where, heading, "step", percent=not alarm.reward)
        canvas.text((where.x + LEFT + 8, where.y + 60), "not answered exactly, so not derived again", ink=FAINT)
        return
    numbers = [m.value for m in moments] + [m.nominal for m in moments if m.nominal is not None]
    numbers += [end for m in moments if m.bounds for end in m.bounds] + (
        [] if alarm.threshold is None else [alarm.threshold]
    )
    top, bottom = (rounded(max(numbers)), rounded(min(0.0, *numbers), down=True)) if alarm.reward else (1.0, 0.0)
    banded = [m for m in moments if m.bounds is not None]
    frame = msgspec.structs.replace(
        where,
        low=alarm.first,
        high=max(alarm.first + alarm.now, alarm.first + 1),
        bottom=bottom,
        top=top,
        head=24 + ROW * bool(banded),
    )
    draw_axes(canvas, frame, heading, "step", percent=not alarm.reward)
    alternative = next((branch for branch in alarm.branches if not branch.nominal), alarm.branches[-1])
    if banded:
        low = [frame.at(m.seq, m.bounds[0]) for m in banded if m.bounds]
        high = [frame.at(m.seq, m.bounds[1]) for m in banded if m.bounds]
        canvas.area([*high, *reversed(low)], "band")
        models = BAND.get(alarm.evidence.causal_model, "its bounds")
        said = f"hatched: {alternative.name} over {models}"
        canvas.text((frame.x, frame.y + 14 + ROW), said, size=12, ink=FAINT, room=frame.width)
        canvas.polyline(high, ink=ALTERNATIVE, width=0.8, dash="2 3")
        canvas.polyline(low, ink=ALTERNATIVE, width=0.8, dash="2 3")
    if any(m.nominal is not None for m in moments):
        points = [frame.at(m.seq, m.nominal) for m in moments if m.nominal is not None]
        canvas.polyline(points, ink=NOMINAL, width=2.2)
        for point in points:
            canvas.dot(point, 3, fill=NOMINAL)
    points = [frame.at(m.seq, m.value) for m in moments]
    canvas.polyline(points, ink=ink_of(alternative), width=2.2, dash=dash_of(alternative))
    for point in points:
        canvas.diamond(point, 4, fill=ink_of(alternative))
    draw_threshold(canvas, alarm, frame)


def draw_profile(canvas: Canvas, alarm: Explanation, where: ChartFrame) -> None:
    """Draw the values had the alternative taken over earlier or later."""
    profile = sorted(alarm.profile.items(), reverse=True)
    heading = "Had it taken over … steps ago"
    if not profile:
        return
    numbers = [number for _, both in profile for number in both]
    top, bottom = (rounded(max(numbers)), rounded(min(0.0, *numbers), down=True)) if alarm.reward else (1.0, 0.0)
    far = max(profile[0][0], 1)
    head = 24 + ROW * (alarm.latest_useful is not None)
    frame = msgspec.structs.replace(where, low=-far, high=0, bottom=bottom, top=top, head=head)
    draw_axes(canvas, frame, heading, "steps ago", percent=not alarm.reward, signless=True)
    nominal = [frame.at(-offset, values[0]) for offset, values in profile]
    other = [frame.at(-offset, values[1]) for offset, values in profile]
    canvas.polyline(nominal, ink=NOMINAL, width=2.2)
    canvas.polyline(other, ink=ALTERNATIVE, width=2.2, dash="7 4")
    for point in nominal:
        canvas.dot(point, 3, fill=NOMINAL)
    for point in other:
        canvas.diamond(point, 4, fill=ALTERNATIVE)
    draw_threshold(canvas, alarm, frame)
    if alarm.latest_useful is not None:
        x, _ = frame.at(-alarm.latest_useful, 0)
        canvas.line((x, frame.y + 14 + ROW), (x, frame.at(0, bottom)[1]), ink=FAINT, dash="2 4")
        anchor: Anchor = "start" if alarm.latest_useful > far / 2 else "end"
        beside = x + (4 if anchor == "start" else -4)
        canvas.text((beside, frame.y + 12 + ROW), "latest that still helps", size=12, ink=FAINT, anchor=anchor)


def draw_labels(
    canvas: Canvas, alarm: Explanation, rows: Sequence[tuple[str, frozenset[int]]], where: ChartFrame
) -> None:
    """Draw one row per label: when it held on the observed path (squares), its probability in each world (lines)."""
    branches = [branch for branch in alarm.branches if branch.distribution is not None]
    last = max(
        (branch.begins + len(branch.distribution.states) - 1 for branch in branches if branch.distribution),
        default=alarm.now + 1,
    )
    words = ROW * len(_marks(alarm))
    height = (where.height - 24 - words) / max(len(rows), 1)
    for n, (label, states) in enumerate(rows):
        first = n == 0
        y, high = where.y + n * height + (0 if first else words), height + 24 + (words if first else 0)
        frame = ChartFrame(
            *(where.x, y, where.width, high, alarm.first, alarm.first + max(last, 1)), head=24 + (words if first else 0)
        )
        is_last = n == len(rows) - 1
        draw_axes(canvas, frame, f"“{label}” holds", "step" if is_last else "", percent=True)
        _moments(canvas, alarm, frame, say=first)
        for position, (state, _) in enumerate(alarm.evidence.path):
            x, y = frame.at(alarm.first + position, 1.0 if state in states else 0.0)
            canvas.box((x - 3.5, y - 3.5), (7, 7), fill=INK if state in states else "#fff", ink=INK)
        for branch in branches:
            assert branch.distribution is not None
            points = [
                frame.at(alarm.first + branch.begins + k, sum(p for s, p in there.items() if s in states))
                for k, there in enumerate(branch.distribution.states)
            ]
            canvas.polyline(points, ink=ink_of(branch), width=2.2, dash=dash_of(branch))


# ---- what charts share ----


def _marks(alarm: Explanation) -> list[tuple[int, str]]:
    """Return positions on the path with their names: where each alternative sets in, and now."""
    setting_in = [branch for branch in alarm.branches if not branch.nominal and branch.begins < alarm.now]
    return [*((branch.begins, f"{branch.name} takes over") for branch in setting_in), (alarm.now, "now")]


def _moments(canvas: Canvas, alarm: Explanation, frame: ChartFrame, *, say: bool = True) -> None:
    """Draw `_marks`, each named on a line above the plot."""
    for row, (position, what) in enumerate(_marks(alarm)):
        x, bottom = frame.at(alarm.first + position, frame.bottom)
        above = frame.y + 14 + ROW * (row + 1)
        canvas.line((x, above if say else frame.y + frame.head), (x, bottom), ink=FAINT, dash="2 4")
        if say:
            canvas.text((x + 4, above - 2), what, size=12, ink=FAINT, halo=True)
