"""One formula followed along one path: each pair is taken in once, every offset is answered from where it stands.

A `WorldValues` is a law and a measure on the path so far; an `IncrementalCheck` is a formula with those it needs. What
a path has come to is kept for each of the newest start points, so a message costs one step (docs/semantics.md,
section 6.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from monitor.causal import Law, World
from monitor.errors import FormulaError
from monitor.exact.evaluators import Evaluators, pair_arrays, within
from monitor.exact.forward import step
from monitor.exact.forward.buffers import ForwardBuffers
from monitor.exact.forward.evaluator import Evaluator
from monitor.exact.forward.row_table import ANY, STABLE
from monitor.logic import Formula
from monitor.logic.syntax import Change, Goal, Probability, Regret, Reward
from monitor.logic.traversal import asks_back, goals
from monitor.types import CausalModel

__all__ = ["Path", "PathValues", "Stepper", "WorldValues"]

Floats = npt.NDArray[np.float64]
Path = Sequence[tuple[int, int | None]]
Measure = Probability | Reward


class WorldValues:
    """A measure under a change of the law, on one path.

    `keep`: start points held. `only`: the one asked about, counted from the oldest; -1: all of them.
    """

    def __init__(self, change: Change, measure: Measure, arm: Evaluator, keep: int, only: int) -> None:
        self.change, self.measure, self.arm, self.keep, self.only = change, measure, arm, keep, only
        self.progress = ForwardBuffers(keep, only, arm.unrolled.horizon)

    @property
    def values(self) -> Floats:
        """The answers, newest start point first, or that of the one asked about."""
        return self.progress.values

    def ask_about(self, oldest: int) -> None:
        """Ask about another start point, counted from the oldest."""
        self.progress.scalars[step.QUERIED_START] = oldest


class PathValues:
    """Every line a formula needs, on one path of at most `window` pairs."""

    def __init__(self, worlds: Evaluators, formula: Formula, window: int) -> None:
        self.worlds = worlds
        self._nominal = worlds.nominal()
        self._lines: dict[tuple[int, int], WorldValues] = {}
        """By identity: the formula's own changes and measures, which live as long as it."""
        self._formula = formula
        self._end: int | None = None
        self._from_start: list[tuple[WorldValues, int]] = []
        """PathValues asked about at @-k alone, and k: the start point asked about moves as the path grows."""
        self._path: Path = ()
        self._begins_anew = False
        for goal, changes, offset in goals(formula):
            if asks_back(goal.measure) or worlds.constant(goal.measure) is not None:
                continue  # answered one by one
            keep = min(offset + 1, window) if offset >= 0 else window
            only = -1 if isinstance(formula, Regret) else 0
            for change in changes:
                arm = worlds.arm(self._nominal, self._law(self._nominal, change, None), goal.measure)
                self._add(WorldValues(change, goal.measure, arm, keep, only), min(offset, 0))

    def move(self, path: Path, moved: int, end: int | None) -> None:
        """The path has grown by `moved` pairs (or begun anew: at least its length); `end`: it ended there for good.

        Where that raises an error some lines have moved and some have not: the next time all begin anew.
        """
        if self._begins_anew:
            moved = len(path)
        self._begins_anew = True
        self._path = path
        self._end = None if end is None or self.worlds.stays(end) else end
        fresh = self._end is None and moved > 0
        if moved >= len(path):
            moved = len(path)
            for line in self._lines.values():
                line.progress.restart()
        for line, k in self._from_start:
            line.ask_about(max(min(k, len(path) - 1) - 1, 0))
        if moved > 1:
            pairs = pair_arrays(path[-moved:-1])
            for line in self._lines.values():
                line.arm.push_all(line.progress, pairs)
        if moved:
            state, action = path[-1]
            taken = -1 if action is None else action
            for line in self._lines.values():
                line.arm.push(line.progress, state, taken, answered=fresh)
        if not fresh:
            self._close()
        self._begins_anew = path[-1][1] is None  # what is taken there may be known the next time

    def rehearse(self, path: Path, causal_model: CausalModel) -> None:
        """Go through what a stream will ask, once, so that all of it is compiled; what comes out is forgotten."""
        self.move(path[:1], 1, None)
        self.move(path, len(path) - 1, None)
        self.move(path, 0, None)
        for line in self._lines.values():
            if causal_model != "gumbel":
                self.bounds(line.change, line.measure, 0, causal_model)

    def value(self, change: Change, measure: Measure, position: int) -> float:
        """The Gumbel-Max value under a change at `path[position]`."""
        line = self._lines.get((id(change), id(measure)))
        if line is None or self._apart(line):
            return self.worlds.value(self._world(change, position), measure)
        return within(measure, float(line.values[len(self._path) - 1 - position if line.only < 0 else 0]))

    def profile(self, change: Change, measure: Measure) -> list[float]:
        """The values at offsets 0, 1, ..., as far back as the formula looks."""
        line = self._lines.get((id(change), id(measure)))
        count = len(self._path) if line is None else min(line.keep, len(self._path))
        if line is None or self._apart(line):
            return [self.value(change, measure, len(self._path) - 1 - offset) for offset in range(count)]
        return [within(measure, value) for value in line.values[:count].tolist()]

    def bounds(self, change: Change, measure: Measure, position: int, causal_model: CausalModel) -> tuple[float, float]:
        """Bounds of the value over a class of causal models."""
        assert causal_model != "gumbel"
        line = self._lines.get((id(change), id(measure)))
        if line is None or self._end is not None:
            return self.worlds.interval(self._world(change, position), measure, causal_model)
        pairs = pair_arrays(self._path[position:])
        low, high = line.arm.interval(pairs, STABLE if causal_model == "stable" else ANY)
        return within(measure, low), within(measure, high)

    def _add(self, line: WorldValues, from_start: int) -> None:
        key = id(line.change), id(line.measure)
        known = self._lines.get(key)
        if known is not None:  # asked about at two offsets
            self._from_start = [(other, k) for other, k in self._from_start if other is not known]
            line = WorldValues(line.change, line.measure, line.arm, max(line.keep, known.keep), -1)
        self._lines[key] = line
        if from_start and line.only >= 0:
            self._from_start.append((line, -from_start))

    def _close(self) -> None:
        for line in self._lines.values():
            if not self._apart(line):
                arm = line.arm if self._end is None else self._ended(line, self._end)
                arm.answer(line.progress)

    def _apart(self, line: WorldValues) -> bool:
        """Whether an ended episode changes more than what lies ahead: quantities nested in its past foresee the end."""
        return self._end is not None and line.arm.value_table.letters.by_action

    def _ended(self, line: WorldValues, end: int) -> Evaluator:
        """The line's arm where the episode has ended in `end`: what lies ahead is then the same at every offset."""
        nominal = self.worlds.nominal(end, 0)
        past = self._nominal, self._law(self._nominal, line.change, None)
        return self.worlds.arm(nominal, self._law(nominal, line.change, end), line.measure, past)

    def _law(self, nominal: Law, change: Change, end: int | None) -> Law:
        return nominal.under(self.worlds.intervention(change, end))

    def _world(self, change: Change, position: int) -> World:
        nominal = self.worlds.nominal(self._end, until=len(self._path) - 1 - position)
        return World.at(self._path, position, nominal, self.worlds.intervention(change, self._end), self.worlds.rows)


class Stepper:
    """One quantity of one world, followed pair by pair with nothing around it: the profile over its offsets.

    Raises FormulaError for a difference, an offset `@-k`, or nested quantities that look back.
    """

    def __init__(self, worlds: Evaluators, goal: Goal) -> None:
        world = goal.world
        if world.baseline is not None or world.offset < 0 or asks_back(goal.measure):
            raise FormulaError(
                "only one world at @t, t >= 0, without nested @t, can be followed step by step", "", 1, 1
            )
        nominal = worlds.nominal()
        arm = worlds.arm(nominal, nominal.under(worlds.intervention(world.change, None)), goal.measure)
        self._line = WorldValues(world.change, goal.measure, arm, world.offset + 1, -1)

    @property
    def rows_computed(self) -> int:
        """Counterfactual rows computed so far, for every path this world was asked about."""
        return self._line.arm.computed

    def push(self, state: int, action: int) -> Floats:
        """Take a pair in: the values [t + 1], newest start point first, NaN before there is one; reused."""
        progress = self._line.progress
        self._line.arm.push(progress, state, action, answered=True)
        return progress.values

    def push_all(self, pairs: Path) -> Floats:
        """Take pairs in: the values [n, t + 1] after each."""
        values = np.full((len(pairs), self._line.keep), np.nan)
        self._line.arm.push_all(self._line.progress, pair_arrays(pairs), values)
        return values
