"""Extremes of the values of a formula: with what was never recorded as bad, and as good, as it can be.

Each is an exact value of its own, on a model that differs in unknown labels and rewards only (docs/semantics.md,
section 13.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from monitor.errors import LimitError
from monitor.exact.evaluators import Evaluators
from monitor.exact.path_values import Measure, Path, PathValues
from monitor.logic import Formula
from monitor.logic.polarity import split_labels
from monitor.logic.syntax import And, Change, Goal, Not, Or, Probability, Regret, WorldRef
from monitor.logic.traversal import handover_goal

__all__ = ["Extremes", "extremes_of"]

Band = tuple[float, float]


class _Both(NamedTuple):
    """Values at both extremes, along one path."""

    low: PathValues
    high: PathValues


class Extremes:
    """Least and greatest values of all goals of a formula along one path of at most `window` pairs.

    Raises LimitError for a nested quantity that has no worst and best case (`split_labels`).
    """

    def __init__(self, sides: tuple[Evaluators, Evaluators], formula: Formula, window: int) -> None:
        self._measures: dict[int, Measure] = {}
        self._given: int | None = None
        self._both = [self._values(sides, formula, window)]
        goal = handover_goal(formula)
        if goal is not None:  # its values now have other extremes than the probability that it is too late
            now = Regret(WorldRef(goal.world.change), Goal(WorldRef(), goal.measure, goal.test))
            self._both.append(self._values(sides, now, window))
            self._given = id(goal.measure)

    def advance(self, path: Path, added: int, end: int | None, acted: Sequence[str]) -> None:
        """Process the last `added` pairs of a path, as `PathValues.advance` does."""
        for both in self._both:
            for values in both:
                values.advance(path, added, end, acted)

    def warm_up(self, path: Path) -> None:
        """Run once all code that a stream needs."""
        for both in self._both:
            for values in both:
                values.warm_up(path, "gumbel")

    def value(self, change: Change, measure: Measure, position: int) -> Band:
        """Return the least and the greatest value under a change at `path[position]`."""
        split, both = self._measures[id(measure)], self._both[id(measure) == self._given]
        low, high = (values.value(change, split, position) for values in both)
        return low, high

    def guaranteed(self, change: Change, measure: Measure, position: int) -> Band | None:
        """Return the guaranteed band, at its low end with what is unknown at its worst, at the high end at its best."""
        split, both = self._measures[id(measure)], self._both[0]
        low, high = (values.guaranteed(change, split, position) for values in both)
        return None if low is None or high is None else (low[0], high[1])

    def profile(self, change: Change, measure: Measure) -> list[Band]:
        """Return the least and the greatest values at offsets 0, 1, ..., as far back as the formula looks."""
        split, both = self._measures[id(measure)], self._both[id(measure) == self._given]
        low, high = (values.profile(change, split) for values in both)
        return list(zip(low, high, strict=True))

    def _values(self, sides: tuple[Evaluators, Evaluators], formula: Formula, window: int) -> _Both:
        split = self._split(formula)
        low, high = sides
        return _Both(PathValues(low, split, window), PathValues(high, split, window))

    def _split(self, formula: Formula) -> Formula:
        """Return a formula with its measures split; its changes are the same objects, by which values are kept."""
        match formula:
            case Goal(_, measure):
                return replace(formula, measure=self._measure(measure))
            case Regret(_, goal):
                return replace(formula, goal=replace(goal, measure=self._measure(goal.measure)))
            case Not(arg):
                return Not(self._split(arg))
            case And(left, right) | Or(left, right):
                return type(formula)(self._split(left), self._split(right))
            case _:
                return formula

    def _measure(self, measure: Measure) -> Measure:
        if id(measure) not in self._measures:
            split = Probability(split_labels(measure.path)) if isinstance(measure, Probability) else measure
            self._measures[id(measure)] = split
        return self._measures[id(measure)]


def extremes_of(evaluators: Evaluators, formula: Formula, window: int) -> tuple[Extremes | None, str]:
    """Return the extremes of a formula; None if nothing unknown can matter, or for the reason beside it."""
    if evaluators.sides is None:
        return None, ""
    try:
        return Extremes(evaluators.sides, formula, window), ""
    except LimitError as error:
        return None, f"no extremes: {error}"
