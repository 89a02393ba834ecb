"""Outcomes of other decisions on an observed path (docs/semantics/decisions.md, sections 14.3 and 14.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from monitor.causal import CounterfactualWorld, Intervention
from monitor.exact.avoidable import avoidable_of
from monitor.exact.best.plans import PlannedChange, Planner
from monitor.exact.best.responsibility import responsibility
from monitor.exact.best.values import BestValues, Lookback, Observed
from monitor.exact.evaluators import Evaluators, within
from monitor.exact.verdict import resolve
from monitor.logic import Formula, print_formula
from monitor.logic.parser import error_at
from monitor.logic.printer import print_change
from monitor.logic.syntax import Goal, Measure, Probability, Regret, Test, WorldRef
from monitor.logic.traversal import nested_goals
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import Avoidable

__all__ = ["Decision", "Effect", "Plan", "PlannedChange", "RecourseQuery", "RecourseReport", "query_of", "recourse_of"]

Unchanged = Literal["nominal", "observed"]
USE = "explain regret(..), or a goal of the path as it happened such as nominal@2.P>=0.9 [ .. ]"


class Effect(msgspec.Struct, frozen=True):
    """Effect of one other action, with all other decisions unchanged."""

    action: int
    """The action."""
    value: float
    """Value of the goal with this action."""
    difference: float
    """`value` minus the value of the goal as it happened."""


class Decision(msgspec.Struct, frozen=True):
    """One decision of the path."""

    offset: int
    """Number of steps from this decision to the last pair of the path."""
    state: int
    """The state in which the decision was made."""
    taken: int | None
    """The action taken; `null` if no action is taken yet."""
    effects: tuple[Effect, ...]
    """One effect for each action that is available in the state, including the action taken."""
    responsibility: float | None = None
    """Degree of responsibility, 1/m. Here m is the size of the smallest minimal set of decisions that contains this
    decision. A set is minimal if the goal can be met by changing these decisions, but not by changing only some of
    them. The degree is 0 if no minimal set of at most `within` decisions contains this decision, and `null` if the goal
    is not missed.
    """


class Plan(msgspec.Struct, frozen=True):
    """The best decisions with a limited number of changes, chosen with hindsight."""

    changes: int
    """Largest number of decisions that the plan may change."""
    value: float
    """Value of the goal under the plan."""
    holds: bool | None
    """True if this value meets the goal; `null` for `=?`."""
    first: PlannedChange | None
    """The first change; `null` if no change helps."""


class RecourseReport(msgspec.Struct, frozen=True):
    """Outcomes of other decisions on a path. All values are exact, under the Gumbel-Max causal model."""

    goal: str
    """The goal, as a formula about the path as it happened."""
    largest: bool
    """True if the goal asks for large values."""
    offset: int
    """The offset from which decisions are examined, in the convention of the formula."""
    clipped: bool
    """True if the path is too short for the requested offset, so that the offset was clipped."""
    unchanged: float
    """Value of the goal as it happened."""
    holds: bool | None
    """True if `unchanged` meets the goal; `null` for `=?`."""
    optimal: float
    """Value of the goal under the policy that is best without hindsight."""
    best: float
    """Value of the goal if every decision is best with hindsight. No policy has a better value."""
    avoidable: Avoidable | None
    """Whether a missed goal could have been met. `foresight`: the policy that is best without hindsight meets the goal.
    `hindsight`: only the best decisions with hindsight meet the goal. `no`: no decisions meet the goal. `null`: the
    goal is not missed.
    """
    within: int
    """Size of the largest sets of decisions that were examined for responsibility."""
    plans: tuple[Plan, ...]
    """The best plan with at most k changes, for k = 0, 1, ..."""
    decisions: tuple[Decision, ...]
    """The decisions from the offset to the last pair, oldest first."""


class RecourseQuery(NamedTuple):
    """A goal for which decisions are examined. `largest`: whether the goal asks for large values."""

    measure: Measure
    test: Test | None
    offset: int
    largest: bool

    @property
    def text(self) -> str:
        """The goal in the formula language, about the path as it happened."""
        return print_formula(Goal(WorldRef(offset=self.offset), self.measure, self.test))

    def meets(self, value: float) -> bool | None:
        """Return whether a value meets the goal; None for `=?`."""
        return None if self.test is None else self.test.holds(value)


class RecourseSettings(NamedTuple):
    """Limits of a recourse report.

    `most`: number of changes of the largest plan; `within`: size of the largest sets of decisions; `unchanged`: see
    `monitor.recourse`.
    """

    most: int = 3
    within: int = 3
    unchanged: Unchanged = "nominal"


DEFAULTS = RecourseSettings()


def query_of(formula: Formula, text: str, offset: int | None = None) -> RecourseQuery:
    """Return the goal of a formula for which decisions can be examined; `offset` replaces the formula's offset.

    Raises FormulaError if the formula has no such goal. The message says which formulas can be examined.
    """
    match formula:
        case Regret(world, goal):
            test, measure = goal.test, goal.measure
        case Goal(world, measure, test):
            _check_world(world, test, text)
        case _:
            raise error_at(f"decisions are explained for one goal, and this is none or several; {USE}", text, 0)
    if isinstance(measure, Probability) and any(nested_goals(measure.path)):
        problem = "decisions are not made for a goal with another one nested in it; explain the nested goal by itself"
        raise error_at(problem, text, 0)
    largest = world.change.largest if test is None else test.comparison in (">=", ">")
    return RecourseQuery(measure, test, world.offset if offset is None else offset, largest)


def _check_world(world: WorldRef, test: Test | None, text: str) -> None:
    """Raise FormulaError unless decisions can be explained for a goal in this world."""
    change = world.change
    if world.baseline is not None:
        raise error_at(f"a difference of two worlds has no decisions to explain; {USE}", text, change.at)
    if not (change.kind == "nominal" or change.decides):
        problem = f"the decisions of the world {print_change(change)} are not those that were made"
        raise error_at(f"{problem}; {USE}", text, change.at)
    if test is None and not change.decides:
        raise error_at(
            "=? does not say whether large or small values are wanted; say max@.. or min@..", text, change.at
        )


def recourse_of(
    evaluators: Evaluators,
    query: RecourseQuery,
    path: PathPairs,
    settings: RecourseSettings = DEFAULTS,
    *,
    terminated: bool = False,
    acted: Sequence[str] = (),
) -> RecourseReport:
    """Return the outcomes of other decisions on a path; see `monitor.recourse` for the arguments.

    Raises:
        FormulaError: no decision can change the goal.
        LimitError: the model, the goal or the path is too large.
    """
    constant = evaluators.constant(query.measure)
    if constant is not None:
        problem = f"the value of this goal is {constant:g} on every path, so no decision matters"
        raise error_at(f"{problem}; explain another goal", query.text, 0)
    used, position, clipped = resolve(query.offset, len(path))
    since, end = path[position:], path[-1][0] if terminated else None
    observed = evaluators.observed(since, end, acted[position:])._replace(repeats=settings.unchanged == "observed")
    values = evaluators.best.of(query.measure, observed.end, largest=query.largest)
    found = values.lookback(observed, max(settings.most, 1))
    nominal = evaluators.nominal(end, len(since) - 1, acted[position:])
    world = CounterfactualWorld.at(since, 0, nominal, Intervention(), evaluators.rows)
    planner = Planner(values, found, world, repeats=observed.repeats)
    unchanged, optimal, best = (
        within(query.measure, value)
        for value in (found.plan_values.unchanged, found.plan_values.optimal, found.plan_values.best)
    )
    few = [within(query.measure, value) for value in found.plan_values.few[: settings.most + 1]]
    return RecourseReport(
        goal=query.text,
        largest=query.largest,
        offset=used,
        clipped=clipped,
        unchanged=unchanged,
        holds=query.meets(unchanged),
        optimal=optimal,
        best=best,
        avoidable=_avoidable(query, unchanged, optimal, best),
        within=settings.within,
        plans=tuple(Plan(k, value, query.meets(value), planner.plan(k)) for k, value in enumerate(few)),
        decisions=_decisions(
            evaluators, query, since, found, _degrees(query, values, observed, found, settings.within)
        ),
    )


def _avoidable(query: RecourseQuery, unchanged: float, optimal: float, best: float) -> Avoidable | None:
    if query.test is None or query.test.holds(unchanged):
        return None
    return avoidable_of(query.test, best, optimal)


def _degrees(
    query: RecourseQuery, values: BestValues, observed: Observed, found: Lookback, size: int
) -> Sequence[float | None]:
    """Return the degree of responsibility of each decision; None if the goal is not missed.

    Changing a set of decisions is never better than a plan with as many changes. So if no plan of `size` changes meets
    the goal, no sets are examined.
    """
    test, decisions = query.test, len(observed.states)
    if test is None or test.holds(within(query.measure, found.plan_values.unchanged)):
        return [None] * decisions
    few = found.plan_values.few
    if size < len(few) and not test.holds(within(query.measure, few[size])):
        return [0.0] * decisions
    return responsibility(
        values, observed, lambda value: test.holds(within(query.measure, value)), size, largest=query.largest
    )


def _decisions(
    evaluators: Evaluators, query: RecourseQuery, path: PathPairs, found: Lookback, degrees: Sequence[float | None]
) -> tuple[Decision, ...]:
    available = [np.flatnonzero(evaluators.model.available(state)).tolist() for state, _ in path]
    return tuple(
        Decision(len(path) - 1 - n, state, taken, _effects(query, found, n, available[n]), degrees[n])
        for n, (state, taken) in enumerate(path)
    )


def _effects(query: RecourseQuery, found: Lookback, decision: int, available: Sequence[int]) -> tuple[Effect, ...]:
    """Return the effect of each available action; an empty tuple if the goal is already decided."""
    happened = within(query.measure, found.plan_values.unchanged)
    values = dict.fromkeys(available, happened)
    if decision < len(found.actions):
        here = found.actions[decision]
        values |= {
            action: within(query.measure, float(here[action])) for action in available if np.isfinite(here[action])
        }
    return tuple(Effect(action, value, value - happened) for action, value in values.items())
