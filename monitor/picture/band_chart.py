"""Bands of a verdict on a learned model: drawn beside each value, and in words with support and pairs to visit."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from monitor.model import MDP
from monitor.picture.explanation import ComparedWorld, Explanation
from monitor.picture.routes import state_in_words
from monitor.picture.svg import ALTERNATIVE, FAINT, INK, NOMINAL, RULE, Canvas

LEFT, RIGHT = 150.0, 300.0
"""Width of the names at the left of the strips, and of the words at the right, in pixels."""
ROW = 34.0
OUTLINE, BAR = 18.0, 9.0
"""Heights of the guaranteed and of the credible band."""


class _Axis(Struct, frozen=True):
    """A horizontal axis from `low` at the pixel `left` to `high` at `left + width`."""

    left: float
    width: float
    low: float
    high: float

    def at(self, value: float) -> float:
        return self.left + self.width * (value - self.low) / (self.high - self.low)


def draw_bands(canvas: Canvas, alarm: Explanation, model: MDP, corner: tuple[float, float], width: float) -> float:
    """Draw the bands of each value; return their height in pixels, 0 if the verdict has none.

    `corner`: the upper left one, in pixels, like `width`.
    """
    if alarm.evidence.verdict.bands is None:
        return 0.0
    x, y = corner
    canvas.text((x, y + 14), "What the recordings leave open", bold=True)
    what = "bar: credible; dashed outline: guaranteed; mark: value; dotted: required"
    branches = [branch for branch in _different(alarm) if branch.credible or branch.guaranteed]
    height = 26.0
    if branches:
        canvas.text((x + width, y + 14), what, size=12, ink=FAINT, anchor="end")
        axis = _axis(branches, alarm, x + LEFT, width - LEFT - RIGHT)
        for branch in branches:
            _draw_row(canvas, alarm, branch, axis, (x, y + height + ROW / 2))
            height += ROW
        for value in (axis.low, axis.high):
            canvas.text((axis.at(value), y + height + 10), _figure(alarm, value), size=12, anchor="middle")
        height += 24
    for line in _words(alarm, model):
        height += canvas.paragraph((x, y + height + 12), line, size=12)
    return height + 16


def bands_in_words(alarm: Explanation) -> list[str]:
    """Return one sentence for each value with bands, for screen readers."""
    if alarm.evidence.verdict.bands is None:
        return []
    named = [(branch.name, _named(alarm, branch)) for branch in _different(alarm)]
    return [f"{name}: {', '.join(words)}." for name, words in named if words]


def _different(alarm: Explanation) -> list[ComparedWorld]:
    """Return the worlds; of a difference of two worlds one, for both have the difference's value and bands."""
    if alarm.evidence.verdict.outcome is None and len(alarm.branches) > 1:
        return [replace(alarm.branches[0], name="difference")]
    return list(alarm.branches)


def _axis(branches: list[ComparedWorld], alarm: Explanation, left: float, width: float) -> _Axis:
    """Return the axis: probabilities from 0 to 1, everything else over all that is drawn."""
    numbers = [number for branch in branches for number in (branch.value, *_ends(branch))]
    numbers += [] if alarm.threshold is None else [alarm.threshold]
    return _Axis(left, width, min(0.0, *numbers), max(0.0 if alarm.reward else 1.0, *numbers) + 1e-9)


def _ends(branch: ComparedWorld) -> list[float]:
    return [end for band in (branch.credible, branch.guaranteed) if band is not None for end in band]


def _draw_row(canvas: Canvas, alarm: Explanation, branch: ComparedWorld, axis: _Axis, at: tuple[float, float]) -> None:
    """Draw the bands of one world; `at`: left end and middle of the row."""
    ink, (x, middle) = NOMINAL if branch.nominal else ALTERNATIVE, at
    canvas.text((x, middle + 4), branch.name, ink=ink, bold=True, room=LEFT - 8)
    canvas.line((axis.left, middle), (axis.left + axis.width, middle), ink=RULE)
    if branch.guaranteed is not None:
        left, right = (axis.at(end) for end in branch.guaranteed)
        corners = [(left, middle - OUTLINE / 2), (right, middle - OUTLINE / 2)]
        corners += [(right, middle + OUTLINE / 2), (left, middle + OUTLINE / 2), corners[0]]
        canvas.polyline(corners, ink=ink, width=1.4, dash="4 2")
    if branch.credible is not None:
        left, right = (axis.at(end) for end in branch.credible)
        canvas.line((left, middle), (max(right, left + 2), middle), ink=ink, width=BAR)
    if alarm.threshold is not None:
        across = axis.at(alarm.threshold)
        canvas.line((across, middle - ROW / 2), (across, middle + ROW / 2), ink=INK, width=1.4, dash="1 3")
    if branch.nominal:
        canvas.dot((axis.at(branch.value), middle), 5, fill=ink, ink="#fff", width=1.5)
    else:
        canvas.diamond((axis.at(branch.value), middle), 7, fill="#fff")
        canvas.diamond((axis.at(branch.value), middle), 5, fill=ink)
    for n, words in enumerate(_named(alarm, branch)):
        canvas.text((axis.left + axis.width + 16, middle - 3 + 15 * n), words, size=12)


def _named(alarm: Explanation, branch: ComparedWorld) -> list[str]:
    """Return both bands in words."""
    how, words = alarm.evidence.verdict.bands, []
    assert how is not None
    if branch.credible is not None and how.level is not None:
        words.append(f"credible ({100 * how.level:.4g} %): {_interval(alarm, branch.credible)}")
    if branch.guaranteed is not None and how.delta is not None:
        words.append(f"guaranteed ({100 * (1 - how.delta):.6g} %): {_interval(alarm, branch.guaranteed)}")
    return words


def _interval(alarm: Explanation, band: tuple[float, float]) -> str:
    return " to ".join(_figure(alarm, end) for end in band)


def _figure(alarm: Explanation, value: float) -> str:
    return f"{value:.4g}" if alarm.reward else f"{100 * value:.1f} %"


def _words(alarm: Explanation, model: MDP) -> list[str]:
    """Return what the answer rests on, what to visit, and why something is missing."""
    verdict, lines = alarm.evidence.verdict, []
    assert verdict.bands is not None
    if verdict.support == 0:
        lines.append("The answer rests on rows that were never recorded (within 90 % of the weight).")
    elif verdict.support is not None:
        visits = "visit" if verdict.support == 1 else "visits"
        lines.append(
            f"The answer rests on at least {verdict.support:,} {visits} of each row that matters (90 % of the weight)."
        )
    if verdict.to_visit:
        lines.append(
            f"To narrow it, record more visits of: {'; '.join(_pair(model, *pair) for pair in verdict.to_visit)}."
        )
    return [*lines, *([f"{verdict.bands.reason}."] if verdict.bands.reason else [])]


def _pair(model: MDP, state: int, action: int) -> str:
    name = model.action_names[action] if model.action_names else str(action)
    return f"action {name} in {state_in_words(model, state)}"
