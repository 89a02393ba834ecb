"""Forecast verification: compare the probability that a verdict gives to the agent's future with the actual future.

A verdict on `P>=0.9 [ G<=20 !"unsafe" ]` is a forecast: it gives the probability that the agent satisfies the path
formula under the nominal policy. Twenty steps later the outcome is known. For each formula and agent, one forecast at a
time is *followed*: its path formula is progressed through the observed states until the forecast is due. Then the next
verdict is followed.

A forecast is due when its whole horizon has passed, even if the outcome is decided earlier. Otherwise the count would
depend on the outcome: if the data end early, a failed forecast would be counted, but an undecided forecast would be
dropped.

The horizons of followed forecasts do not overlap. So outcome minus forecast is a martingale difference if the model is
correct and the agent follows the nominal policy (A. Dawid, "The well-calibrated Bayesian", 1982). Consecutive verdicts
on one path are about almost the same future steps, so counting all verdicts would count the same luck many times.

The nominal path begins at the offset of the quantity, so its first states are observed (docs/semantics/worlds.md,
section 2.3). The observed states are read first. If they decide the formula, there is no forecast.

The forecast of a sampled verdict is estimated anew, with a fixed number of samples. The mean over the verdict's own
samples would be biased, because these samples determined when sampling stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from monitor.alarm.figures import is_open
from monitor.errors import LimitError, MonitorError
from monitor.evaluation import Engines, HiddenEngines, TableEngines, WorldEngines
from monitor.logic import FALSE, TRUE, Formula, PathAutomaton
from monitor.logic.syntax import NOMINAL, Goal, Probability
from monitor.logic.traversal import nested_goals, quantity_goals
from monitor.runtime.held_path import held_path
from monitor.statistics.calibration import CalibrationCounts
from monitor.stream.path import SlidingPath
from monitor.types.notices import Calibrated, Calibration, Forecast
from monitor.types.stream_events import State
from monitor.types.verdicts import Verdict

NOTHING_OWN: Final = "it asks for no probability under the agent's own policy"
REWARD: Final = "it asks for a reward, and a mean does not come true or false"
EFFECT: Final = "it asks for an effect, a difference between two worlds of which only one happens"
NESTED: Final = "it asks for a probability within a probability, which no observed state decides"
SEVERAL: Final = "it asks for several probabilities under the agent's own policy"
SETTLED: Final = "the state it is asked in decides it, so nothing is forecast"


class FollowedForecast(msgspec.Struct, frozen=True):
    """The followed forecast of a formula. `index`: index of its quantity in a verdict. `path`: its path formula."""

    index: int
    goal: Goal
    path: Formula


@lru_cache(maxsize=1024)
def followed_forecast(formula: Formula) -> FollowedForecast | str:
    """Return the forecast to follow for a formula, or the reason why there is none."""
    quantities = list(enumerate(quantity_goals(formula)))
    own = [(n, goal) for n, goal in quantities if goal.world.change == NOMINAL and goal.world.baseline is None]
    found = [(n, goal, goal.measure.path) for n, goal in own if isinstance(goal.measure, Probability)]
    if not found:
        effect = any(goal.world.baseline is not None for _, goal in quantities)
        return REWARD if own else EFFECT if effect else NOTHING_OWN
    if len({(goal.world.offset, path) for _, goal, path in found}) > 1:
        return SEVERAL
    index, goal, path = found[0]
    if next(nested_goals(path), None) is not None:
        return NESTED
    try:
        automaton = PathAutomaton(path)
    except LimitError as error:
        return str(error)
    return FollowedForecast(index, goal, path) if automaton.horizon(automaton.start) > 1 else SETTLED


class Obligation:
    """The rest of a path formula that is still to be satisfied: a state of its automaton.

    `after`: label set -> next obligation, as far as computed. `came_true`: whether the formula came true; None while
    undecided.
    """

    __slots__ = ("after", "came_true", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.after: dict[int, Obligation] = {}
        self.came_true = {TRUE: True, FALSE: False}.get(number)


class ForecastTarget:
    """The followed forecast of one formula with its automaton, shared by all agents.

    `index`, `goal`: index of the quantity in a verdict, and its goal. `start`: obligation before the first state.
    `horizon`: number of states after which the forecast is decided. `label_sets`: label set of each state, numbered as
    in the automaton.
    """

    __slots__ = ("_automaton", "_obligations", "goal", "horizon", "index", "label_sets", "start")

    def __init__(self, forecast: FollowedForecast, engines: TableEngines | WorldEngines) -> None:
        self.index, self.goal = forecast.index, forecast.goal
        self._automaton = PathAutomaton(forecast.path)
        self._obligations: dict[int, Obligation] = {}
        self.start = self._obligation(self._automaton.start)
        self.horizon = self._automaton.horizon(self._automaton.start)
        self.label_sets = engines.label_sets(self._automaton)

    def after(self, obligation: Obligation, label_set: int) -> Obligation:
        """Compute and store the obligation that remains after a label set is read.

        Raises LimitError if the automaton gets too large.
        """
        following = self._obligation(self._automaton.step(obligation.number, label_set))
        obligation.after[label_set] = following
        return following

    def _obligation(self, number: int) -> Obligation:
        return self._obligations.setdefault(number, Obligation(number))


def target_of(formula: Formula, engines: Engines) -> ForecastTarget | None:
    """Return the forecast to follow for a validated formula; None if there is none (see `followed_forecast`)."""
    forecast = followed_forecast(formula)
    if isinstance(forecast, str) or isinstance(engines, HiddenEngines):
        return None  # if states are hidden, nobody observes the outcome
    return ForecastTarget(forecast, engines)


class ForecastsState(msgspec.Struct, frozen=True, array_like=True):
    """State of `Forecasts` as plain data. `label_sets`: label sets read so far for the followed forecast `value`."""

    tally: Calibration
    value: float | None = None
    label_sets: tuple[int, ...] = ()


class Forecasts:
    """The forecasts of one formula for one agent: the forecast followed now, and the counts of earlier forecasts.

    Attributes:
        value: the followed forecast, a probability; None if no forecast is followed (then `read` need not be called).
        counts: outcomes of the earlier forecasts.
    """

    __slots__ = ("_agent", "_formula", "_label_sets", "_obligation", "_read", "_target", "counts", "value")

    def __init__(self, target: ForecastTarget, agent: str, formula: str) -> None:
        self._target, self._agent, self._formula = target, agent, formula
        self._obligation, self._label_sets = target.start, target.label_sets
        self._read: list[int] = []
        self.value: float | None = None
        self.counts = CalibrationCounts()

    def begin(self, verdict: Verdict, path: SlidingPath, engines: Engines) -> None:
        """Follow the forecast of a verdict on a path, unless the observed states already decide its formula.

        Call this only if no forecast is followed.
        """
        if not verdict.quantities:
            return
        target, held = self._target, path.held
        quantity = verdict.quantities[target.index]
        if is_open(quantity.extremes):
            return  # unrecorded transitions leave the value open, so there is no forecast
        # Number of observed states of the nominal path: @t begins t steps back, and @-k begins at the k-th held pair.
        known = quantity.offset + 1 if quantity.offset >= 0 else len(held) + quantity.offset + 1
        if known >= target.horizon:
            return  # the observed states decide it
        try:
            read = [self._label_sets[state] for state, _ in held[-known:]]
            obligation = self._follow(read)
            if obligation is None or obligation.came_true is not None:
                return
            value = quantity.value
            if verdict.drawn is not None and quantity.samples:
                assert not isinstance(engines, HiddenEngines), "where states are hidden nothing is drawn"
                value = engines.forecast(target.goal, held_path(path), verdict.drawn)
        except MonitorError:
            return  # a world or a policy fails
        self.value, self._obligation, self._read = value, obligation, read

    def read(self, state: State) -> Forecast | None:
        """Read the next state of the path; return the forecast if it is due. `value` must not be None."""
        try:
            label_set = self._label_sets[state]
        except MonitorError:  # a world fails
            return self.drop()
        obligation = self._obligation.after.get(label_set) or self._follow([label_set], self._obligation)
        if obligation is None:
            return self.drop()
        self._obligation = obligation
        self._read.append(label_set)
        if len(self._read) < self._target.horizon:
            return None
        assert obligation.came_true is not None, "the horizon decides it"
        return self.resolve(came_true=obligation.came_true)

    def resolve(self, *, came_true: bool) -> Forecast:
        """Count and return the followed forecast, which must be due."""
        assert self.value is not None, "only a followed forecast reads states"
        self.counts.add(self.value, came_true=came_true)
        return self._finish(came_true=came_true)

    def stay(self, state: State) -> Forecast | None:
        """Read an absorbing state until the forecast is due; return the forecast, or None if none is followed."""
        forecast = None
        while self.value is not None:
            forecast = self.read(state)
        return forecast

    def drop(self) -> Forecast | None:
        """Drop the followed forecast, if any, because its outcome will not be known."""
        if self.value is None:
            return None
        self.counts.drop()
        return self._finish(came_true=None)

    def calibrated(self) -> Calibrated:
        """Return the counts so far as a notice."""
        return Calibrated(self._formula, self.counts.dump(), self._agent)

    def dump(self) -> ForecastsState:
        """Return the state as plain data."""
        return ForecastsState(self.counts.dump(), self.value, () if self.value is None else tuple(self._read))

    def load(self, state: ForecastsState) -> None:
        """Restore the state that `dump` returned. Call this before a forecast is followed."""
        self.counts.merge(state.tally)
        if state.value is not None and (obligation := self._follow(state.label_sets)) is not None:
            self.value, self._obligation, self._read = state.value, obligation, list(state.label_sets)

    def _follow(self, label_sets: Sequence[int], obligation: Obligation | None = None) -> Obligation | None:
        """Return the obligation after these label sets.

        None if the automaton gets too large. This should not happen, because the engine built the same part of the
        automaton for the verdict.
        """
        obligation = obligation or self._target.start
        try:
            for label_set in label_sets:
                obligation = obligation.after.get(label_set) or self._target.after(obligation, label_set)
        except LimitError:
            return None
        return obligation

    def _finish(self, *, came_true: bool | None) -> Forecast:
        value, self.value = self.value, None
        assert value is not None, "a forecast was followed"
        return Forecast(self._agent, self._formula, value, came_true)


def dropped_forecast(agent: str, formula: str, state: ForecastsState | None) -> list[Forecast]:
    """Return the forecast, if any, that a saved state of a changed formula followed; mark it as dropped."""
    return [] if state is None or state.value is None else [Forecast(agent, formula, state.value, None)]
