"""Replay recorded steps through the formulas of a configuration, to compare forecasts and alarms with outcomes.

The steps go through a monitor with the formulas. For each event, the monitor also has a query of the event's
probability from now on. Whether the event happened is read from the recorded states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import numpy as np

from monitor.arrays import Bools
from monitor.authoring.learning.cross_fitting import ForecastJudge
from monitor.authoring.learning.forecast_skill import EXACT, ForecastSet, ForecastSkill
from monitor.authoring.proposal.measure import CandidateFormula, FormulaTrace, summary_of
from monitor.authoring.proposal.model_quality import AlarmRates
from monitor.authoring.proposal.paths import RecordedPath, Shown, outcomes_of
from monitor.errors import InputError
from monitor.logic import Formula, parse, print_formula
from monitor.logic.syntax import And, Const, Goal, Label, Not, Or, Probability, Regret, Until, WorldRef
from monitor.model.emissions import Emissions
from monitor.runtime.monitor import Monitor
from monitor.types.alerts import Alert
from monitor.types.notices import Judged, Notice
from monitor.types.specs import FormulaSpec
from monitor.types.stream_events import Instant, Observation

FORECAST: Final = "report-forecast-"
"""Prefix of the names of the additional queries."""


@dataclass(frozen=True)
class AvoidedEvent:
    """The event that a formula avoids: a condition on the state, within a horizon. `path`: the path formula."""

    condition: Formula
    horizon: int
    path: Formula

    @property
    def name(self) -> str:
        """The text of the condition; a label has no quotes."""
        return self.condition.name if isinstance(self.condition, Label) else print_formula(self.condition)

    @property
    def query(self) -> str:
        """The query for the probability that the event does not happen from now on."""
        return print_formula(Goal(WorldRef(), Probability(self.path)))


def event_of(text: str) -> AvoidedEvent | None:
    """Return the event that a formula avoids; None if the goal is not of the form `P>=p [ G<=h CONDITION ]`."""
    formula = parse(text)
    goal = formula.goal if isinstance(formula, Regret) else formula
    if not isinstance(goal, Goal) or goal.test is None or goal.test.comparison not in (">=", ">"):
        return None
    path = goal.measure.path if isinstance(goal.measure, Probability) else None
    if not isinstance(path, Not) or not isinstance(path.arg, Until) or path.arg.low or path.arg.left != Const(True):  # noqa: FBT003 - the constant
        return None
    condition = path.arg.right
    while isinstance(condition, Not) and isinstance(condition.arg, Not):
        condition = condition.arg.arg
    return AvoidedEvent(condition, path.arg.high, path) if _on_state(condition) else None


def _on_state(formula: Formula) -> bool:
    match formula:
        case Const() | Label():
            return True
        case Not(arg=inner):
            return _on_state(inner)
        case And(left=left, right=right) | Or(left=left, right=right):
            return _on_state(left) and _on_state(right)
    return False


def holds(formula: Formula, label: Callable[[str], Bools]) -> Bools:
    """Return where a condition on the state holds. `label`: returns where a label holds."""
    match formula:
        case Label(name=name):
            return label(name)
        case Not(arg=inner):
            return ~holds(inner, label)
        case And(left=left, right=right):
            return holds(left, label) & holds(right, label)
        case Or(left=left, right=right):
            return holds(left, label) | holds(right, label)
        case Const(value=value):
            return np.asarray(value)
    raise TypeError(f"{formula} is no condition on a state")


def shown_in(
    steps: Sequence[tuple[int | None, int | None]], condition: Bools, emissions: Emissions
) -> tuple[Bools, Shown]:
    """Return where a condition on hidden states is known to hold, and what the recordings show of it, [n] each.

    `steps`: true state and observation of each step; None for an unknown one. `condition`: whether the condition holds
    in each state, [S]. At a step with a true state, it is known whether the condition holds. It is also known if the
    condition holds in all states that can show the observation, or in none of them.
    """
    of = np.repeat(condition, np.diff(emissions.indptr))
    some, other = (np.bincount(emissions.observed[each], minlength=emissions.signals) > 0 for each in (of, ~of))
    # the last entry is for a missing observation, which shows nothing
    always, never = (np.append(one & ~two, values=False) for one, two in ((some, other), (other, some)))
    true = np.array([-1 if state is None else state for state, _ in steps], np.int64)
    seen = np.array([emissions.signals if signal is None else signal for _, signal in steps], np.int64)
    given = true >= 0
    return np.where(given, condition[true], always[seen]), Shown(given | always[seen] | never[seen], always[seen])


@dataclass(frozen=True)
class ConfiguredFormula(CandidateFormula):
    """A formula as written in a configuration."""

    written: str = ""

    @property
    def text(self) -> str:
        """The formula."""
        return self.written


@dataclass
class Replay:
    """Recorded steps that go through a monitor.

    Attributes:
        monitor: monitor with the formulas and the queries of `with_forecasts`.
        read: returns the model's own state for an observation; raises InputError.
        states: states of all steps so far.
        paths: indices in `states` of the steps of each path.
        episodes: number of the episode of each path.
        refused: number of messages whose state or action the model does not have.
        times: times of the first and of the last step, in seconds since the epoch.
    """

    monitor: Monitor
    read: Callable[[Observation], object]
    states: list[object] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    episodes: list[int] = field(default_factory=list)
    ended: dict[int, bool] = field(default_factory=dict)
    refused: int = 0
    times: tuple[float, float] | None = None
    _newest: dict[str, tuple[object, int, int]] = field(default_factory=dict)
    _places: dict[tuple[str, object, int], tuple[int, int]] = field(default_factory=dict)
    _alarms: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    _values: dict[str, dict[tuple[int, int], tuple[float, float]]] = field(default_factory=dict)

    def take(self, observations: Iterable[tuple[Observation, Instant]]) -> None:
        """Take steps in the order of their arrival. Steps that arrive twice or late are left out."""
        for step, now in observations:
            if self._keep(step):
                self.times = (now.wall if self.times is None else self.times[0], now.wall)
            for notice in (*self.monitor.observe(step, now), *self.monitor.evaluate(now)):
                self._note(notice)

    def _keep(self, step: Observation) -> bool:
        episode, seq, path = self._newest.get(step.agent, (None, -1, -1))
        if episode == step.episode and step.seq <= seq:
            return False
        try:
            state = self.read(step)
        except InputError:
            self.refused += 1
            return False
        if episode != step.episode or step.seq != seq + 1:
            self.episodes.append(self.episodes[path] if episode == step.episode else len(self.paths))
            path = len(self.paths)
            self.paths.append([])
        self.paths[path].append(len(self.states))
        self.states.append(state)
        self.ended[path] = step.terminated
        self._newest[step.agent] = step.episode, step.seq, path
        self._places[step.agent, step.episode, step.seq] = path, len(self.paths[path]) - 1
        return True

    def _note(self, notice: Notice) -> None:
        match notice:
            case Judged(formula=name, verdict=verdict) if name.startswith(FORECAST) and verdict.value is not None:
                place = self._places.get((notice.agent, notice.episode, notice.seq))
                if place is not None:
                    (quantity,) = verdict.quantities
                    best = verdict.value if quantity.extremes is None else quantity.extremes[1]
                    self._values.setdefault(name, {})[place] = verdict.value, best
            case Alert(formula=name, state="firing"):
                place = self._places.get((notice.agent, notice.episode, notice.fired.seq))
                if place is not None:
                    self._alarms.setdefault(name, {}).setdefault(notice.id, place)
            case _:
                pass

    @property
    def day(self) -> float | None:
        """Number of steps in a day, of all agents together; None without times."""
        if self.times is None or self.times[1] <= self.times[0]:
            return None
        return len(self.states) * 86_400.0 / (self.times[1] - self.times[0])

    def recorded_paths(self) -> list[RecordedPath]:
        """Return the paths. The number of a step serves as its state."""
        return [
            RecordedPath(np.array(steps), np.zeros(len(steps) - 1, np.int64), self.ended[number], self.episodes[number])
            for number, steps in enumerate(self.paths)
        ]

    def fired(self, spec: FormulaSpec) -> int:
        """Return the number of a formula's alarms."""
        return len(self._alarms.get(spec.name, {}))

    def rates(self, spec: FormulaSpec, event: AvoidedEvent, unsafe: Bools, shown: Shown | None = None) -> AlarmRates:
        """Return the rates of a formula's alarms. `unsafe`: whether the event's condition holds after each step.

        `shown`: None if states are not hidden.
        """
        formula = parse(spec.text)
        goal = formula if isinstance(formula, Goal | Regret) else None
        offset = 0 if goal is None else goal.world.offset
        candidate = ConfiguredFormula(event.horizon, max(offset, 0), 0.0, event.name, spec.alarm, spec.text)
        trace = FormulaTrace()
        for path, place in sorted(self._alarms.get(spec.name, {}).values()):
            trace.alarms.setdefault(path, []).append(place)
        known = None if shown is None else shown.known
        return AlarmRates(summary_of(candidate, trace, self.recorded_paths(), unsafe, known))

    def skill(self, event: AvoidedEvent, unsafe: Bools, shown: Shown | None = None) -> ForecastSkill:
        """Return the skill of the forecasts of an event. `unsafe`, `shown`: as in `rates`."""
        values = self._values.get(query_name(event), {})
        nothing = np.nan, np.nan
        steps = [(number, place) for number, each in enumerate(self.paths) for place in range(1, len(each))]
        safe, at_best = np.array([values.get(each, nothing) for each in steps], np.float64).reshape(-1, 2).T
        made = ForecastSet(1 - safe, np.full(len(steps), EXACT), assumed=at_best - safe)
        judge = ForecastJudge(
            lambda _label, _horizon: made,
            outcomes_of(self.recorded_paths(), unsafe, shown),
            [event.name],
            np.zeros_like,
        )
        return judge.skills(event.name, [event.horizon])[0]


def with_forecasts(formulas: Sequence[FormulaSpec]) -> tuple[list[FormulaSpec], dict[str, AvoidedEvent]]:
    """Return the formulas with additional queries, and name -> event for each formula that has an event."""
    events = {spec.name: event for spec in formulas if (event := event_of(spec.text)) is not None}
    queries = {query_name(event): FormulaSpec(query_name(event), event.query, bands="off") for event in events.values()}
    return [*formulas, *queries.values()], events


def query_name(event: AvoidedEvent) -> str:
    """Return the name of the query of an event."""
    return FORECAST + sha256(event.query.encode()).hexdigest()[:16]
