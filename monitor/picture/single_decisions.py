"""The decisions on the path: the value if one of them had been different, and the action that matters most."""

from __future__ import annotations

from typing import NamedTuple

from monitor.exact.recourse import Effect
from monitor.picture.explanation import Explanation
from monitor.picture.sheet import figure

DIGITS = 9
"""Decimals to which values are compared, so that rounding errors do not choose among equal values."""


class Decided(NamedTuple):
    """A decision, with its best other action for the goal. `instead`: both actions, in words."""

    position: int
    instead: str
    value: float
    difference: float


def decisions_of(alarm: Explanation) -> list[Decided]:
    """Return the decisions since the takeover, oldest first; none if they are not defined for the formula."""
    report = alarm.recourse
    if report is None:
        return []
    sign = 1.0 if report.largest else -1.0

    def serves(effect: Effect) -> tuple[float, int]:
        return round(sign * effect.value, DIGITS), -effect.action

    found = []
    for each in report.decisions:
        best = max(each.effects, key=serves)
        instead = alarm.action(best.action)
        instead += "" if each.taken is None else f" instead of {alarm.action(each.taken)}"
        found.append(Decided(alarm.now - each.offset, instead, best.value, best.difference))
    return found


def decisions_in_words(alarm: Explanation) -> list[str]:
    """Return a sentence on the decision that mattered most; an empty result if there are no decisions."""
    decided = decisions_of(alarm)
    if not decided:
        return []
    largest = max(decided, key=lambda each: (round(abs(each.difference), DIGITS), each.position))
    if round(abs(largest.difference), DIGITS) == 0.0:
        return ["No single other action would have helped."]
    value = figure(largest.value, reward=alarm.reward)
    return [f"The decision that mattered most: {largest.instead} at step {alarm.first + largest.position}: {value}."]
