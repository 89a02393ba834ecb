"""Extremes: the lowest and the highest possible value, if a value depends on what was never recorded.

Each extreme is an exact value on a variant of the model, in which unknown labels and rewards are as bad as possible or
as good as possible (docs/semantics/learned-models.md, section 13.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from monitor.errors import LimitError
from monitor.exact.path_values import PathValues
from monitor.logic import Formula
from monitor.logic.polarity import split_measure
from monitor.logic.syntax import And, Const, Goal, InterventionRef, Measure, Not, Or, Regret, WorldRef
from monitor.logic.traversal import handover_goal
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import NO_EXTREMES, Band

NOTHING = Const(value=True)
"""Replaces a goal that has no extremes."""


class Both(NamedTuple):
    """The lowest and the highest possible values along one path."""

    low: PathValues
    high: PathValues


class Extremes:
    """Least and greatest values of the goals of a formula along one path.

    `values_of`: returns the values of the goals of a formula whose labels are split. A goal has no extremes if a nested
    quantity in it has no worst and best case (`split_labels`). Then `reason` is a message that says why.
    """

    def __init__(self, values_of: Callable[[Formula], Both], formula: Formula) -> None:
        self.reason = ""
        self._measures: dict[int, Measure | None] = {}
        self._given: int | None = None
        self._both = [values_of(self._split(formula))]
        goal = handover_goal(formula)
        if goal is not None:  # the goal's own value has other extremes than the probability that it is too late
            now = Regret(WorldRef(goal.world.change), Goal(WorldRef(), goal.measure, goal.test))
            self._both.append(values_of(self._split(now)))
            self._given = id(goal.measure)

    def advance(self, path: PathPairs, added: int, end: int | None, acted: Sequence[str]) -> None:
        """Process the last `added` pairs of a path, as `PathValues.advance` does."""
        for both in self._both:
            for values in both:
                values.advance(path, added, end, acted)

    def value(self, change: InterventionRef, measure: Measure, position: int) -> Band | None:
        """Return the least and the greatest value under an intervention at `path[position]`; None without extremes."""
        split, both = self._measures[id(measure)], self._both[id(measure) == self._given]
        if split is None:
            return None
        low, high = (values.value(change, split, position) for values in both)
        return low, high

    def guaranteed(self, change: InterventionRef, measure: Measure, position: int) -> Band | None:
        """Return the guaranteed band, from the low end at the low extreme to the high end at the high extreme."""
        split, both = self._measures[id(measure)], self._both[0]
        if split is None:
            return None
        low, high = (values.guaranteed(change, split, position) for values in both)
        return None if low is None or high is None else (low[0], high[1])

    def profile(self, change: InterventionRef, measure: Measure) -> list[Band]:
        """Return the least and the greatest value at offsets 0, 1, ..., as far back as the formula looks.

        The list is empty if the goal has no extremes.
        """
        split, both = self._measures[id(measure)], self._both[id(measure) == self._given]
        if split is None:
            return []
        low, high = (values.profile(change, split) for values in both)
        return list(zip(low, high, strict=True))

    def _split(self, formula: Formula) -> Formula:
        """Return a formula with split measures.

        Interventions stay the same objects, because values are cached by the ids of these objects.
        """
        match formula:
            case Goal(_, measure):
                split = self._measure(measure)
                return NOTHING if split is None else replace(formula, measure=split)
            case Regret(_, goal):
                split = self._measure(goal.measure)
                return NOTHING if split is None else replace(formula, goal=replace(goal, measure=split))
            case Not(arg):
                return Not(self._split(arg))
            case And(left, right) | Or(left, right):
                return type(formula)(self._split(left), self._split(right))
            case _:
                return formula

    def _measure(self, measure: Measure) -> Measure | None:
        if id(measure) not in self._measures:
            try:
                self._measures[id(measure)] = split_measure(measure)
            except LimitError as error:
                self._measures[id(measure)] = None
                self.reason = max(self.reason, f"{NO_EXTREMES}: {error}")  # as in the referee
        return self._measures[id(measure)]
