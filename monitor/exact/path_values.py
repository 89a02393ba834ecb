"""Values of the goals of one formula along one growing path. Each pair is processed once, for all start points.

A `WorldValues` has the values of one measure in one world. A `PathValues` has the values of all goals of a formula.
Forward weights are kept for each of the newest start points, so a new pair costs only one step of these weights
(docs/semantics/formulas.md, section 6.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from monitor.arrays import Floats
from monitor.causal import CounterfactualWorld, Law
from monitor.errors import FormulaError
from monitor.exact.best.values import Observed
from monitor.exact.evaluators import Evaluators, check_known, pair_arrays, within
from monitor.exact.forward.buffers import ForwardBuffers
from monitor.exact.forward.evaluator import Evaluator, Pairs
from monitor.exact.forward.row_table import ANY, STABLE
from monitor.exact.windows import Windows
from monitor.logic import Formula
from monitor.logic.comparison import probability
from monitor.logic.syntax import NOMINAL, Goal, InterventionRef, Measure, Probability, Regret
from monitor.logic.traversal import asks_back, goals, handover_goal
from monitor.types.specs import CausalModel
from monitor.types.stream_events import PathPairs


class WorldValues:
    """Values of a measure under an intervention, along one path.

    `keep`: number of start points to keep. `only`: index of the only start point that has a value, counted from the
    oldest; -1 if all have values.
    """

    def __init__(self, change: InterventionRef, measure: Measure, evaluator: Evaluator, keep: int, only: int) -> None:
        self.change, self.measure, self.evaluator, self.keep, self.only = change, measure, evaluator, keep, only
        self.buffers = ForwardBuffers(keep, only, evaluator.unrolled.horizon)
        self._is_probability = isinstance(measure, Probability)

    def value(self, place: int) -> float:
        """Return the value of the `place`-th newest start point. A selected start point has place 0."""
        value = float(self.buffers.answers[place])
        return probability(value) if self._is_probability else value

    def select(self, oldest: int) -> None:
        """Select the only start point that has a value, counted from the oldest."""
        self.buffers.queried_start = oldest


class _RecentPairs:
    """The newest pairs of a growing path, as arrays. Appending is faster than converting the path each time."""

    def __init__(self, path: PathPairs, window: int) -> None:
        self._kept = max(window, len(path))
        self._count = len(path)
        self._arrays = np.empty((2, 2 * self._kept + 1), np.int64)
        self._arrays[:, : self._count] = pair_arrays(path)

    def append(self, state: int, action: int) -> None:
        """Add a pair. The action is -1 if it is not yet taken."""
        if self._count == self._arrays.shape[1]:
            self._arrays[:, : self._kept] = self._arrays[:, self._count - self._kept :]
            self._count = self._kept
        self._arrays[0, self._count] = state
        self._arrays[1, self._count] = action
        self._count += 1

    def last(self, count: int) -> Pairs:
        """Return states and actions [count] of the newest pairs, at most `window`."""
        begin = self._count - count
        assert begin >= 0, "the path is longer than its window"
        return self._arrays[0, begin : self._count], self._arrays[1, begin : self._count]


class PathValues:
    """Values of all goals of a formula, along one path of at most `window` pairs.

    With `window` 0 nothing is kept from pair to pair, and each value is computed only when a caller needs it. This is
    faster for a single value with a large offset. `worlds`: the worlds whose values are updated with each pair.
    """

    def __init__(self, evaluators: Evaluators, formula: Formula, window: int) -> None:
        self.evaluators = evaluators
        self._nominal = evaluators.nominal()
        self.worlds: list[WorldValues] = []
        self._by_world: dict[tuple[int, int], WorldValues] = {}
        """Keys are the ids of intervention and measure, which stay valid because `_formula` keeps the formula alive."""
        self._formula = formula
        self._end: int | None = None
        self._from_start: list[tuple[WorldValues, int]] = []
        """Values that are needed only at @-k, each with k. The index of the start point changes as the path grows."""
        self._keep: dict[int, int] = {}
        """Id of a `best` or `optimal` intervention -> number of offsets with values, computed at each call."""
        self._path: PathPairs = ()
        self._acted: Sequence[str] = ()
        self._restart = False
        self._window = window
        self._recent: _RecentPairs | None = None
        """The newest pairs; None until bounds are requested, and again after the path was replaced."""
        for goal, changes, offset in [*goals(formula), *_advised(formula)]:
            if not window or asks_back(goal.measure) or evaluators.constant(goal.measure) is not None:
                continue  # computed by `Evaluators` at each call
            keep = min(offset + 1, window) if offset >= 0 else window
            only = -1 if isinstance(formula, Regret) else 0
            for change in changes:
                if change.decides:
                    self._keep[id(change)] = keep
                    continue
                evaluator = evaluators.evaluator(self._nominal, self._law(self._nominal, change, None), goal.measure)
                self._add(WorldValues(change, goal.measure, evaluator, keep, only), min(offset, 0))

    def advance(self, path: PathPairs, added: int, end: int | None, acted: Sequence[str] = ()) -> None:
        """Process the last `added` pairs of a path. If `added` >= the path's length, the path is new.

        `end`: the state in which the episode has terminated. `acted`: names of the policies that acted at the pairs;
        empty if the nominal policy acted. After an error some values have advanced and some have not, so the next call
        restarts all of them.
        """
        length = len(path)
        if self._restart:
            added = length
        self._restart = True
        self._path, self._acted = path, acted
        self._end = None if end is None or self.evaluators.stays(end) else end
        answer_now = self._end is None and added > 0
        if added >= length:
            added = length
            self._recent = None
            for entry in self.worlds:
                entry.buffers.restart()
        for entry, k in self._from_start:
            entry.select(max(min(k, length - 1) - 1, 0))
        for place in range(length - added, length):
            state, action = path[place]
            taken = -1 if action is None else action
            if self._recent is not None:
                self._recent.append(state, taken)
            for entry in self.worlds:
                entry.evaluator.push(entry.buffers, state, taken, answer_now and place == length - 1)
        if not answer_now:
            self._answer()
        self._restart = path[length - 1][1] is None  # in the next call, this pair may have an action

    def value(self, change: InterventionRef, measure: Measure, position: int) -> float:
        """Return the Gumbel-Max value under an intervention at `path[position]`.

        Raises PathError if the value depends on an unknown policy that acted.
        """
        self._check_known(change, measure, position)
        entry = self._by_world.get((id(change), id(measure)))
        if entry is None and change.decides:
            return self.evaluators.decided(change, measure, self._since(position))
        if entry is None or self._foresees_end(entry) or self._mixes(change, measure):
            return self.evaluators.value(self._world(change, position), measure)
        return entry.value(len(self._path) - 1 - position if entry.only < 0 else 0)

    def profile(self, change: InterventionRef, measure: Measure) -> list[float]:
        """Return the Gumbel-Max values under an intervention at offsets 0, 1, ..., as far as the formula looks back."""
        entry = self._by_world.get((id(change), id(measure)))
        keep = self._keep.get(id(change), len(self._path)) if entry is None else entry.keep
        count = min(keep, len(self._path))
        if change.decides:
            return self.evaluators.decided_profile(change, measure, self._since(len(self._path) - count))
        if entry is None or self._foresees_end(entry) or self._mixes(change, measure):
            return [self.value(change, measure, len(self._path) - 1 - offset) for offset in range(count)]
        return [entry.value(place) for place in range(count)]

    def bounds(
        self, change: InterventionRef, measure: Measure, position: int, causal_model: CausalModel
    ) -> tuple[float, float]:
        """Return bounds of the value under an intervention at `path[position]`, over a class of causal models."""
        assert causal_model != "gumbel"
        assert causal_model != "world"
        if change.decides:
            return self.evaluators.decided_interval(change, measure, self._since(position), causal_model)
        entry = self._by_world.get((id(change), id(measure)))
        if entry is None or self._end is not None or self._mixes(change, measure):
            return self.evaluators.interval(self._world(change, position), measure, causal_model)
        if self._recent is None:
            self._recent = _RecentPairs(self._path, self._window)
        pairs = self._recent.last(len(self._path) - position)
        low, high = entry.evaluator.interval(pairs, STABLE if causal_model == "stable" else ANY)
        return within(measure, low), within(measure, high)

    def guaranteed(self, change: InterventionRef, measure: Measure, position: int) -> tuple[float, float] | None:
        """Return bounds over every causal model and every row of a learned model's confidence set.

        Return None if `Evaluators.guaranteed` has no bounds. Raises LimitError if the bounds are too costly.
        """
        constant = self.evaluators.constant(measure)
        if constant is not None:
            return constant, constant
        if change.decides:
            return None
        nominal = self._nominal_at(position)
        values = self.evaluators.guaranteed(nominal, self._law(nominal, change, self._end), measure)
        if values is None:
            return None
        low, high = values.interval(pair_arrays(self._path[position:]))
        return within(measure, low), within(measure, high)

    def _add(self, entry: WorldValues, from_start: int) -> None:
        key = id(entry.change), id(entry.measure)
        known = self._by_world.get(key)
        if known is not None:  # needed at two offsets
            self._from_start = [(other, k) for other, k in self._from_start if other is not known]
            entry = WorldValues(entry.change, entry.measure, entry.evaluator, max(entry.keep, known.keep), -1)
        self._by_world[key] = entry
        self.worlds = list(self._by_world.values())
        if from_start and entry.only >= 0:
            self._from_start.append((entry, -from_start))

    def _answer(self) -> None:
        for entry in self.worlds:
            if not self._foresees_end(entry):
                evaluator = entry.evaluator if self._end is None else self._evaluator_at_end(entry, self._end)
                evaluator.answer(entry.buffers)

    def _foresees_end(self, entry: WorldValues) -> bool:
        """Return whether goals are nested and the episode has ended; then values at earlier offsets change too."""
        return self._end is not None and entry.evaluator.value_table.labelling.by_action

    def _evaluator_at_end(self, entry: WorldValues, end: int) -> Evaluator:
        """Return the evaluator for an episode that has ended in `end`. Its values do not depend on offsets."""
        nominal = self.evaluators.nominal(end, 0)
        past = self._nominal, self._law(self._nominal, entry.change, None)
        return self.evaluators.evaluator(nominal, self._law(nominal, entry.change, end), entry.measure, past)

    def _law(self, nominal: Law, change: InterventionRef, end: int | None) -> Law:
        return nominal.under(self.evaluators.intervention(change, end))

    def _world(self, change: InterventionRef, position: int) -> CounterfactualWorld:
        intervention = self.evaluators.intervention(change, self._end)
        return CounterfactualWorld.at(
            self._path, position, self._nominal_at(position), intervention, self.evaluators.rows
        )

    def _nominal_at(self, position: int) -> Law:
        """Return the law without an intervention, from a position of the path on."""
        acted = self._acted[position:]
        return self.evaluators.nominal(self._end, until=len(self._path) - 1 - position, acted=acted)

    def _since(self, position: int) -> Observed:
        """Return the path from a position on."""
        return self.evaluators.observed(self._path[position:], self._end, self._acted[position:])

    def _check_known(self, change: InterventionRef, measure: Measure, position: int) -> None:
        """Raise PathError if a value depends on an unknown policy that acted at `position` or later."""
        if self._mixes(change, measure):
            check_known(self._acted[position:])

    def _mixes(self, change: InterventionRef, measure: Measure) -> bool:
        """Return whether a value depends on the policies that acted.

        Such a value is computed separately at each call.
        """
        if not self._acted:
            return False
        chooses = self._path[len(self._path) - 1][1] is None  # the policy that acts chooses the last action
        return chooses or self.evaluators.depends_on_policies(change, measure)


def _advised(formula: Formula) -> Iterator[tuple[Goal, tuple[InterventionRef, ...], int]]:
    """Yield the goal of `handover(F, Q, h)` with the interventions nominal and F, at offset 0 (the last pair)."""
    goal = handover_goal(formula)
    if goal is not None:
        yield goal, (NOMINAL, goal.world.change), 0


class Stepper:
    """Values of one goal, pair by pair, at every offset up to the goal's own offset.

    Raises FormulaError for a difference, an offset `@-k`, decisions made for the goal, or nested goals that look back.
    """

    def __init__(self, evaluators: Evaluators, goal: Goal) -> None:
        world = goal.world
        if world.baseline is not None or world.offset < 0 or asks_back(goal.measure):
            raise FormulaError(
                "only one world at @t, t >= 0, without nested @t, can be followed step by step", "", 1, 1
            )
        if world.change.decides:
            raise FormulaError(
                f"{world.change.name} is evaluated backward along a whole path, so it cannot be followed step by "
                "step; check one path after another",
                "",
                1,
                1,
            )
        nominal = evaluators.nominal()
        evaluator = evaluators.evaluator(
            nominal, nominal.under(evaluators.intervention(world.change, None)), goal.measure
        )
        self._values = WorldValues(world.change, goal.measure, evaluator, world.offset + 1, -1)

    @property
    def rows_computed(self) -> int:
        """Number of counterfactual rows computed so far, for all paths in this world."""
        return self._values.evaluator.computed

    def push(self, state: int, action: int) -> Floats:
        """Process a pair and return the values [t + 1], newest start point first; NaN if the path is too short.

        The next call overwrites the array.
        """
        buffers = self._values.buffers
        self._values.evaluator.push(buffers, state, action, True)  # noqa: FBT003
        return buffers.values

    def push_all(self, pairs: PathPairs) -> Floats:
        """Process n pairs and return the values [n, t + 1] after each."""
        values = np.full((len(pairs), self._values.keep), np.nan)
        self._values.evaluator.push_all(self._values.buffers, pair_arrays(pairs), values)
        return values

    def along(self, pairs: PathPairs) -> Floats:
        """Process n pairs as a separate recording, and return the values [n, t + 1] after each pair.

        The values have the same bits as the values of `push_all`. Each distinct window of t + 1 pairs is evaluated
        once.
        """
        arrays, buffers = pair_arrays(pairs), self._values.buffers
        windows = Windows(arrays, self._values.keep)
        values = np.full((len(pairs), self._values.keep), np.nan)
        buffers.restart()
        self._values.evaluator.push_all(buffers, arrays, values, windows.plan)
        windows.fill(values)
        buffers.restart()
        return values
