"""What the picture of an alarm shows, as plain data: everything is derived again from the evidence, nothing is drawn.

It has the observed path, the worlds that are compared (each a `Branch`), and how the formula's value came to where the
alarm found it. Probabilities are exact (forward products, as in `monitor.exact`), whoever gave the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from monitor.alarm.document import Evidence
from monitor.alarm.summary import summary
from monitor.causal import World
from monitor.errors import LimitError
from monitor.exact import Checker
from monitor.logic import Formula, parse
from monitor.logic.syntax import Change, Goal, Regret, Reward
from monitor.logic.traversal import asks_back, goals, largest_offset
from monitor.model import MDP
from monitor.picture.distribution import (
    Distribution,
    Route,
    likeliest,
    spread,
)
from monitor.policy import PolicyTable
from monitor.types import AlarmSpec, FormulaSpec, Quantity

__all__ = ["Branch", "Explanation", "Moment", "tell"]

ROUTES = 6
"""Paths shown of a world: more cannot be told apart."""


class Branch(msgspec.Struct, frozen=True):
    """One of the worlds compared. `name`: what is in force there, in the formula's words.

    `begins`: position on the path at which it sets in. `spread`: from there on, one entry a step. `routes`: its
    likeliest paths up to now. `value`: what the verdict says of it. `problem`: why there is no spread.
    """

    name: str
    nominal: bool
    begins: int
    value: float
    bounds: tuple[float, float] | None
    spread: Distribution | None
    routes: tuple[Route, ...]
    problem: str = ""


class Moment(msgspec.Struct, frozen=True):
    """The answer as it was after one step of the path. `value`, `bounds`: of the alternative; `nominal`: of regret."""

    seq: int
    value: float
    bounds: tuple[float, float] | None
    nominal: float | None


class Explanation(msgspec.Struct, frozen=True):
    """One alarm.

    `now`: position of the path's last pair; steps are counted from the path's first pair, whose seq is `first`.
    `threshold`: of the quantity, None for `=?`; `comparison`: the way round. `horizon`: steps the formula looks ahead.
    `history`: empty where the formula cannot be answered exactly. `profile`: offset -> (nominal, alternative).
    `others`: quantities of a compound formula that are not shown.
    """

    title: str
    summary: str
    evidence: Evidence
    now: int
    first: int
    threshold: float | None
    comparison: str
    horizon: int
    reward: bool
    arms: tuple[Branch, ...]
    history: tuple[Moment, ...]
    profile: Mapping[int, tuple[float, float]]
    latest_useful: int | None
    others: int


def tell(
    evidence: Evidence,
    model: MDP,
    tables: Mapping[str, PolicyTable],
    models: Mapping[str, MDP] | None = None,
) -> Explanation:
    """The story of an alarm, from its evidence and the model and policies that it names.

    A formula of several quantities is told by its first. Raises FormulaError if its text is none.
    """
    formula = parse(evidence.text)
    asked = list(goals(formula))
    if not asked:
        raise LimitError(
            f"alarm {evidence.alert}: its formula asks for no probability or reward, so nothing can be drawn"
        )
    goal, changes, _ = asked[0]
    checker = Checker(model, tables, models)
    verdict, now = evidence.verdict, len(evidence.path) - 1
    quantities = verdict.quantities[: len(changes)] if isinstance(formula, Regret) else verdict.quantities[:1]
    arms = tuple(_arm(checker, evidence, goal, change, _of(quantities, n)) for n, change in enumerate(changes))
    spreads = [arm.spread for arm in arms if arm.spread is not None]
    return Explanation(
        title=f"{evidence.formula} · {evidence.agent} · episode {evidence.episode}, step {evidence.seq}",
        summary=_summary(evidence, formula),
        evidence=evidence,
        now=now,
        first=evidence.seq - now,
        threshold=None if goal.test is None else goal.test.bound,
        comparison="" if goal.test is None else goal.test.comparison,
        horizon=max((arm.begins + len(arm.spread.states) - 1 - now for arm in arms if arm.spread), default=0)
        if spreads
        else 0,
        reward=isinstance(goal.measure, Reward),
        arms=arms,
        history=_history(checker, evidence, formula),
        profile=verdict.profile,
        latest_useful=verdict.latest_useful,
        others=len(asked) - 1,
    )


def _of(quantities: tuple[Quantity, ...], n: int) -> Quantity:
    """The quantity of change n; a difference of two worlds has one for both."""
    return quantities[min(n, len(quantities) - 1)]


def _arm(checker: Checker, evidence: Evidence, goal: Goal, change: Change, quantity: Quantity) -> Branch:
    path, offset = evidence.path, quantity.offset
    begins = len(path) - 1 - offset if offset >= 0 else -offset - 1
    worlds = checker.evaluators
    end = path[-1][0] if evidence.terminated else None
    nominal = worlds.nominal(end, len(path) - 1 - begins)
    world = World.at(path, begins, nominal, worlds.intervention(change, end), worlds.rows)
    seen, problem = None, ""
    if asks_back(goal.measure):
        problem = "a nested quantity looks back, so the paths do not spread step by step"
    else:
        try:
            seen = spread(world, worlds.value_table(world.law, goal.measure), checker.model.states)
        except LimitError as error:
            problem = str(error)
    is_nominal = change.kind == "nominal"
    routes = () if is_nominal or seen is None else likeliest(world, world.observed, ROUTES)
    return Branch(_name(change), is_nominal, begins, quantity.value, quantity.bounds, seen, routes, problem)


def _name(change: Change) -> str:
    match change.kind:
        case "nominal":
            return "nominal"
        case "policy":
            return change.name if change.steps is None else f"{change.name} for {change.steps} steps"
        case "action":
            return f"action {change.name}" if change.steps is None else f"action {change.name} for {change.steps} steps"
        case _:
            return f"model {change.name}"


def _history(checker: Checker, evidence: Evidence, formula: Formula) -> tuple[Moment, ...]:
    """The answers after each step of the held path, as a monitor with this path alone would have given them."""
    path, reach = evidence.path, largest_offset(formula)
    track = checker.incremental_check(formula, evidence.causal_model, evidence.text, window=len(path))
    moments = []
    for n in range(1, len(path) + 1):
        last = n == len(path)
        try:
            verdict = track.verdict(
                path[:n],
                None if n == 1 else 1,
                terminated=evidence.terminated and last,
                start_observed=evidence.start_observed,
            )
        except LimitError:
            return ()
        if n <= reach and not evidence.start_observed:
            continue  # what lies before is not known, so this answer was never given
        both = verdict.outcome is not None and len(verdict.quantities) == 2
        asked = verdict.quantities[1 if both else 0]
        nominal = verdict.quantities[0].value if both else None
        moments.append(Moment(evidence.seq - len(path) + n, asked.value, asked.bounds, nominal))
    return tuple(moments)


def _summary(evidence: Evidence, formula: Formula) -> str:
    alarm = AlarmSpec(when="holds") if evidence.verdict.holds else AlarmSpec()  # it fired on this verdict
    spec = FormulaSpec(evidence.formula, evidence.text, causal_model=evidence.causal_model, alarm=alarm)
    return summary(
        agent=evidence.agent,
        formula=spec,
        parsed=formula,
        state="fired",
        blind=None,
        verdict=evidence.verdict,
        path_length=len(evidence.path),
    )
