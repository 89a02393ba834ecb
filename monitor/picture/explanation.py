"""Explanation of an alarm as plain data for the picture, computed again from the evidence.

It has the observed path, the compared worlds (each a `ComparedWorld`), and the formula's value at each step up to the
alarm. Probabilities are exact (forward products, as in `monitor.exact`), also if the verdict was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import msgspec

from monitor.alarm.message import known_profile
from monitor.alarm.phrases import steps
from monitor.alarm.subject import Subject
from monitor.alarm.summary import Told, tell
from monitor.causal import CounterfactualWorld
from monitor.errors import FormulaError, LimitError, PathError
from monitor.evidence.document import Evidence
from monitor.exact import Checker
from monitor.exact.recourse import RecourseReport, RecourseSettings, query_of, recourse_of
from monitor.logic import Formula, parse
from monitor.logic.printer import print_change
from monitor.logic.syntax import Comparison, Goal, InterventionRef, Probability, Regret, Reward
from monitor.logic.traversal import asks_back, goals, largest_offset
from monitor.model import MDP
from monitor.model.action_names import WordsOfActions, action_in_words
from monitor.picture.distribution import Distribution, Route, distribution_of, likeliest
from monitor.policy import PolicyTable
from monitor.types.specs import AlarmSpec, FormulaSpec
from monitor.types.verdicts import Quantity, Verdict

ROUTES = 6
"""Largest number of shown paths of a world. More paths cannot be distinguished."""
DECIDES = "decisions made for the goal have no distribution of states"


class ComparedWorld(msgspec.Struct, frozen=True):
    """One of the compared worlds. `name`: the intervention as the formula writes it.

    `begins`: position on the path at which the intervention begins. `distribution`: one entry for each step from
    `begins` on. `routes`: its most likely paths up to now. `value`, `bounds` and the bands of a learned model: as in
    the verdict. `problem`: why there is no distribution. `question`: the question that the world answers.
    """

    name: str
    nominal: bool
    begins: int
    value: float
    bounds: tuple[float, float] | None
    distribution: Distribution | None = None
    routes: tuple[Route, ...] = ()
    problem: str = ""
    credible: tuple[float, float] | None = None
    guaranteed: tuple[float, float] | None = None
    extremes: tuple[float, float] | None = None
    question: str = ""


class StepAnswer(msgspec.Struct, frozen=True):
    """Answer after one step of the path. `value`, `bounds`: for the alternative. `nominal`: value, for `regret`."""

    seq: int
    value: float
    bounds: tuple[float, float] | None
    nominal: float | None


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of one alarm.

    `now`: position of the path's last pair. Positions are counted from the path's first pair, whose seq is `first`.
    `threshold`, `comparison`: the threshold of the quantity, and the relation that the quantity must have to the
    threshold; None for `=?`. `horizon`: number of steps that the formula looks ahead. `history`: empty if the formula
    cannot be answered exactly. `profile`: offset -> (nominal, alternative). Offsets are left out if rows that were
    never recorded leave a value open there. `kept`, `reached`: the words for a goal that is not missed by a given step,
    and for a goal that is reached by a given step; empty for a reward. `others`: number of further quantities of a
    compound formula, which are not shown. `names`: names of the actions in the model. `recourse`: the effect of other
    decisions, None if it is not defined for the formula.
    """

    title: str
    told: Told
    evidence: Evidence
    now: int
    first: int
    threshold: float | None
    comparison: Comparison | None
    horizon: int
    reward: bool
    branches: tuple[ComparedWorld, ...]
    history: tuple[StepAnswer, ...]
    profile: Mapping[int, tuple[float, float]]
    latest_useful: int | None
    others: int
    kept: str
    reached: str
    recourse: RecourseReport | None = None
    names: Sequence[str] = ()

    @property
    def difference(self) -> bool:
        """True if the value is the difference of two worlds, which have no values of their own."""
        return self.evidence.verdict.outcome is None and len(self.branches) > 1

    def action(self, number: int) -> str:
        """Return the name of an action in a sentence."""
        return action_in_words(self.names[number] if self.names else "", number, self.evidence.actions)

    def action_in_brief(self, number: int) -> str:
        """Return the name of an action, for a place where it is clear that actions are meant."""
        return self.action(number).removeprefix("action ").strip("'")


def explain(
    evidence: Evidence, model: MDP, tables: Mapping[str, PolicyTable], models: Mapping[str, MDP] | None = None
) -> Explanation:
    """Explain an alarm from its evidence and the model and policies that the evidence names.

    If a formula has several quantities, the first one is explained.

    Raises:
        FormulaError: the evidence's text is not a formula.
        LimitError: the formula has no quantity.
    """
    formula = parse(evidence.text)
    found = list(goals(formula))
    if not found:
        raise LimitError(
            f"alarm {evidence.alert}: its formula asks for no probability or reward, so nothing can be drawn"
        )
    goal, changes, _ = found[0]
    checker = Checker(model, tables, models)
    verdict = evidence.verdict
    quantities = verdict.quantities[: len(changes)] if isinstance(formula, Regret) else verdict.quantities[:1]
    branches = tuple(_branch(checker, evidence, goal, change, _of(quantities, n)) for n, change in enumerate(changes))
    return explanation_of(
        evidence,
        formula,
        branches=branches,
        history=_history(checker, evidence, formula),
        names=model.action_names,
        recourse=_recourse(checker, evidence, formula if isinstance(formula, Regret) else goal),
    )


def explanation_of(
    evidence: Evidence,
    formula: Formula,
    *,
    branches: tuple[ComparedWorld, ...],
    history: tuple[StepAnswer, ...],
    names: Sequence[str],
    recourse: RecourseReport | None = None,
) -> Explanation:
    """Return the explanation of an alarm from the parts computed from its evidence.

    The formula must have a quantity.
    """
    found, verdict, now = list(goals(formula)), evidence.verdict, len(evidence.path) - 1
    goal = found[0][0]
    kept, reached = _by_then(evidence, goal.measure)
    return Explanation(
        title=f"{evidence.formula} · {evidence.agent} · episode {evidence.episode}, step {evidence.seq}",
        told=told_of(evidence, formula),
        evidence=evidence,
        now=now,
        first=evidence.seq - now,
        threshold=None if goal.test is None else goal.test.bound,
        comparison=None if goal.test is None else goal.test.comparison,
        horizon=max((b.begins + len(b.distribution.states) - 1 - now for b in branches if b.distribution), default=0),
        reward=isinstance(goal.measure, Reward),
        branches=branches,
        history=history,
        profile=_known_profile(verdict) if isinstance(formula, Regret) else {},
        latest_useful=verdict.latest_useful if isinstance(formula, Regret) else None,
        others=len(found) - 1,
        kept=kept,
        reached=reached,
        recourse=recourse,
        names=names,
    )


def _by_then(evidence: Evidence, measure: Probability | Reward) -> tuple[str, str]:
    """Return the words for a goal that is not missed, and for a goal that is reached, by a given step."""
    if isinstance(measure, Reward):
        return "", ""
    subject = Subject(_spec_of(evidence), evidence.verdict, len(evidence.path), "before")
    return subject.by_then(measure.path, reached=False), subject.by_then(measure.path, reached=True)


def _recourse(checker: Checker, evidence: Evidence, formula: Goal | Regret) -> RecourseReport | None:
    """Return the effects of single decisions, without degrees of responsibility; None if they are not defined.

    If the alarm fired because the formula holds, the best decisions are the decisions that make the formula fail.
    """
    try:
        query = query_of(formula, evidence.text)
        if evidence.verdict.holds:
            query = query._replace(largest=not query.largest)
        return recourse_of(
            checker.evaluators,
            query,
            evidence.path,
            RecourseSettings(most=1, within=1),
            terminated=evidence.terminated,
            acted=evidence.acted,
        )
    except (FormulaError, LimitError, PathError):  # no such goal, too large, or an unknown policy acted
        return None


def _of(quantities: tuple[Quantity, ...], n: int) -> Quantity:
    """Return the quantity of intervention n. A difference of two worlds has one quantity for both interventions."""
    return quantities[min(n, len(quantities) - 1)]


def _branch(
    checker: Checker, evidence: Evidence, goal: Goal, change: InterventionRef, quantity: Quantity
) -> ComparedWorld:
    called, asked = world_name(change, evidence.actions), what_if(change, evidence.actions)
    path, offset = evidence.path, quantity.offset
    begins = len(path) - 1 - offset if offset >= 0 else -offset - 1
    if change.decides:
        return ComparedWorld(
            called,
            nominal=False,
            begins=begins,
            value=quantity.value,
            bounds=quantity.bounds,
            problem=DECIDES,
            extremes=quantity.extremes,
            question=asked,
        )
    worlds = checker.evaluators
    end = path[-1][0] if evidence.terminated else None
    nominal = worlds.nominal(end, len(path) - 1 - begins, evidence.acted[begins:])
    world = CounterfactualWorld.at(path, begins, nominal, worlds.intervention(change, end), worlds.rows)
    distribution, problem = None, ""
    if asks_back(goal.measure):
        problem = "a nested quantity looks back, so no distribution per step exists"
    else:
        try:
            distribution = distribution_of(world, worlds.value_table(world.law, goal.measure), checker.model.states)
        except LimitError as error:
            problem = str(error)
    is_nominal = change.kind == "nominal"
    routes = () if is_nominal or distribution is None else likeliest(world, world.observed, ROUTES)
    return ComparedWorld(
        called,
        is_nominal,
        begins,
        quantity.value,
        quantity.bounds,
        distribution,
        routes,
        problem,
        quantity.credible,
        quantity.guaranteed,
        quantity.extremes,
        asked,
    )


def what_if(change: InterventionRef, actions: WordsOfActions) -> str:
    """Return the question that a compared world answers, for the step at which its intervention begins."""
    name = world_name(change, actions)
    lasting = "" if change.steps is None else f" for {steps(change.steps)}"
    match change.kind:
        case "nominal":
            return ""
        case "policy":
            return f"What if '{change.name}' had taken over here{lasting}?"
        case "action":
            action = action_in_words(change.name, 0, actions).removeprefix("action ")
            return f"What if action {action} had been taken here{lasting}?"
        case "model":
            return f"What if {name} had been in force from here on?"
        case "best":
            return f"What if the decisions of '{name}' had been made from here on?"
        case "optimal":
            return "What if the optimal policy had taken over here?"
        case _:
            assert_never(change.kind)


def world_name(change: InterventionRef, actions: WordsOfActions) -> str:
    """Return the name of a compared world."""
    match change.kind:
        case "nominal":
            return "nominal"
        case "policy":
            return change.name if change.steps is None else f"{change.name} for {change.steps} steps"
        case "action":
            name = action_in_words(change.name, 0, actions)
            return name if change.steps is None else f"{name} for {change.steps} steps"
        case "model":
            return f"model {change.name}"
        case "best" | "optimal":
            return print_change(change)
        case _:
            assert_never(change.kind)


def _history(checker: Checker, evidence: Evidence, formula: Formula) -> tuple[StepAnswer, ...]:
    """Return the answers after each step of the stored path.

    They are the answers of a monitor that knows only this path.
    """
    path = evidence.path
    check = checker.incremental_check(formula, evidence.causal_model, evidence.text, window=len(path))
    return answers_so_far(evidence, formula, lambda n, **ended: check.verdict(path[:n], None if n == 1 else 1, **ended))


def answers_so_far(evidence: Evidence, formula: Formula, ask: Callable[..., Verdict]) -> tuple[StepAnswer, ...]:
    """Return the answers after each step of the stored path; no answers if the computation of one is too large.

    `ask` takes n and the information how the first n pairs ended. It returns the verdict on these pairs, and is called
    for each n.
    """
    count, lookback, moments = len(evidence.path), largest_offset(formula), list[StepAnswer]()
    for n in range(1, count + 1):
        try:
            verdict = ask(
                n,
                terminated=evidence.terminated and n == count,
                start_observed=evidence.start_observed,
                acted=evidence.acted[:n],
            )
        except LimitError:
            return ()
        if n <= lookback and not evidence.start_observed:
            continue  # the path was too short, so the monitor never gave this answer
        both = verdict.outcome is not None and len(verdict.quantities) == 2
        quantity = verdict.quantities[1 if both else 0]
        nominal = verdict.quantities[0].value if both else None
        moments.append(StepAnswer(evidence.seq - count + n, quantity.value, quantity.bounds, nominal))
    return tuple(moments)


def _known_profile(verdict: Verdict) -> dict[int, tuple[float, float]]:
    profile = ((offset, nominal, other) for offset, (nominal, other), _ in known_profile(verdict))
    return {offset: (nominal, other) for offset, nominal, other in profile if nominal is not None and other is not None}


def told_of(evidence: Evidence, formula: Formula) -> Told:
    """Return the sentences of an alarm at the moment when it fired."""
    return tell(
        agent=evidence.agent,
        formula=_spec_of(evidence),
        parsed=formula,
        state="fired",
        blind=None,
        verdict=evidence.verdict,
        path_length=len(evidence.path),
        seq=evidence.seq,
    )


def _spec_of(evidence: Evidence) -> FormulaSpec:
    alarm = AlarmSpec(when="holds") if evidence.verdict.holds else AlarmSpec()  # the alarm fired on this verdict
    return FormulaSpec(
        evidence.formula, evidence.text, causal_model=evidence.causal_model, alarm=alarm, actions=evidence.actions
    )
