"""Recourse: could other decisions have met a missed goal of `regret`? (docs/semantics/decisions.md, section 14.3).

The answer is about all decisions from the intervention on. It does not depend on the alternative that the formula
names. One backward pass over the observed path computes the values (`monitor.exact.best`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from monitor.errors import LimitError, PathError
from monitor.exact.best.lanes import DecisionRule
from monitor.exact.best.values import BestValues, FirstChange, Observed, PlanValues
from monitor.exact.evaluators import Evaluators, within
from monitor.exact.forward.row_table import ANY, STABLE
from monitor.exact.verdict import is_missed, resolve
from monitor.logic import Formula
from monitor.logic.polarity import split_labels
from monitor.logic.syntax import Measure, Probability, Regret, Test
from monitor.logic.traversal import nested_goals
from monitor.model import MDP
from monitor.types.specs import CausalModel
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import UNRECORDED, Avoidable, Changes, Recourse, Verdict

MOST_CHANGES: Final = 3
"""Largest number of changed decisions in the plans that are tried."""
NESTED: Final = "decisions are not made for a goal with another one nested in it"
SAMPLED: Final = "decisions are made by exact values, which samples do not have"
LEARNED: Final = (
    "whether it is robust is not known: on a learned model decisions made for the goal have no guaranteed band"
)


class _Missed(NamedTuple):
    """A missed goal. `observed`: the path from the intervention on, as arrays; `steps`: the same path as pairs."""

    measure: Measure
    test: Test
    observed: Observed
    steps: PathPairs

    @property
    def largest(self) -> bool:
        """True if the goal asks for a large value, False if it asks for a small one."""
        return self.test.comparison in (">=", ">")


def with_recourse(
    verdict: Verdict,
    formula: Formula,
    evaluators: Evaluators,
    path: PathPairs,
    *,
    terminated: bool = False,
    acted: Sequence[str] = (),
) -> Verdict:
    """Add to a verdict on a missed goal of `regret` whether other decisions could have met the goal.

    Any other verdict is returned unchanged.

    Args:
        verdict: the verdict on `path`.
        formula: a validated formula.
        evaluators: the evaluators of the model and its policies.
        path: pairs (state, action), oldest first.
        terminated: the episode has ended in the last state.
        acted: names of the policies that acted at the pairs; empty if the nominal policy acted.
    """
    if not (isinstance(formula, Regret) and is_missed(verdict)):
        return verdict
    if verdict.method == "sampled":
        return unexamined(verdict, SAMPLED)
    try:
        missed = _missed(formula, evaluators, path, terminated=terminated, acted=acted)
        return replace(verdict, recourse=_recourse(missed, evaluators, verdict.causal_model))
    except (LimitError, PathError) as error:  # the computation is too large, or an unknown policy acted
        return unexamined(verdict, str(error))


def unexamined(verdict: Verdict, reason: str) -> Verdict:
    """Add to a verdict on a missed goal the reason why it is unknown whether the goal could have been met."""
    return replace(verdict, recourse=Recourse(reason=reason)) if is_missed(verdict) else verdict


def prepare_recourse(formula: Formula, evaluators: Evaluators, path: PathPairs, causal_model: CausalModel) -> None:
    """Compute in advance the tables that `with_recourse` needs, so that the first missed goal is not delayed."""
    if not isinstance(formula, Regret):
        return
    try:
        _recourse(_missed(formula, evaluators, path), evaluators, causal_model)
    except LimitError:
        return  # each verdict reports the limit


def _missed(
    formula: Regret, evaluators: Evaluators, path: PathPairs, *, terminated: bool = False, acted: Sequence[str] = ()
) -> _Missed:
    assert formula.goal.test is not None
    first = resolve(formula.world.offset, len(path))[1]
    end = path[-1][0] if terminated else None
    observed = evaluators.observed(path[first:], end, acted[first:])
    return _Missed(formula.goal.measure, formula.goal.test, observed, path[first:])


def _recourse(missed: _Missed, evaluators: Evaluators, causal_model: CausalModel) -> Recourse:
    measure, test = missed.measure, missed.test
    if _nests(measure):
        return Recourse(reason=NESTED)
    unknown = causal_model == "any" and evaluators.learned
    reason, asked = (LEARNED if unknown else ""), causal_model != "gumbel" and not unknown
    constant = evaluators.constant(measure)
    if constant is not None:
        return Recourse(avoidable_of(test, constant, constant), asked or None, constant, constant, reason=reason)
    values = _at_extremes(missed, evaluators)
    every = [each.plan_values(missed.observed, min(MOST_CHANGES, len(missed.steps))) for each in values]
    ends = [(within(measure, plan_values.best), within(measure, plan_values.optimal)) for plan_values in every]
    possible = {avoidable_of(test, best, optimal) for best, optimal in ends}
    if len(possible) > 1:
        return Recourse(reason=UNRECORDED)
    avoidable = possible.pop()
    robust = all(_is_robust(each, missed, avoidable, causal_model) for each in values) if asked else None
    worst, greatest = ends[0], ends[-1]  # report numbers that imply `avoidable` at both extremes
    best, _ = greatest if avoidable == "no" else worst
    _, optimal = worst if avoidable == "foresight" else greatest
    return Recourse(avoidable, robust, best, optimal, _changes(missed, every[0], evaluators.model), reason)


def _at_extremes(missed: _Missed, evaluators: Evaluators) -> list[BestValues]:
    """Return the values of decisions at each extreme; the extreme that is worse for the goal comes first.

    The list has only one entry if no row leads to a state about which something is unknown.
    """
    measure = missed.measure
    worlds = [evaluators]
    if evaluators.sides is not None:
        worlds = list(evaluators.sides if missed.largest else reversed(evaluators.sides))
        if isinstance(measure, Probability):
            measure = Probability(split_labels(measure.path))
    return [each.best.of(measure, missed.observed.end, largest=missed.largest) for each in worlds]


@lru_cache
def _nests(measure: Measure) -> bool:
    """Return whether a measure has nested goals."""
    return isinstance(measure, Probability) and any(nested_goals(measure.path))


def avoidable_of(test: Test, best: float, optimal: float) -> Avoidable:
    """Return whether a missed goal could have been met, given the values of `best` and `optimal` decisions."""
    if test.holds(optimal):
        return "foresight"
    return "hindsight" if test.holds(best) else "no"


def _is_robust(values: BestValues, missed: _Missed, avoidable: Avoidable, causal_model: CausalModel) -> bool:
    """Return whether `avoidable` is the same in every causal model of the class.

    In every causal model the best decisions with hindsight (`free`) are at least as good as the policy that is optimal
    without hindsight (`optimal`). So it is enough to test one or two ends of the bounds.
    """

    def meets(rule: DecisionRule, *, favourable: bool) -> bool:
        kind, greatest = (STABLE if causal_model == "stable" else ANY), missed.largest == favourable
        end = values.bound(missed.observed, rule, kind, greatest=greatest)
        return missed.test.holds(within(missed.measure, end))

    if avoidable == "foresight":
        return meets(DecisionRule("optimal"), favourable=False)
    if avoidable == "no":
        return not meets(DecisionRule("free"), favourable=True)
    return not meets(DecisionRule("optimal"), favourable=True) and meets(DecisionRule("free"), favourable=False)


def _changes(missed: _Missed, plan_values: PlanValues, model: MDP) -> Changes | None:
    """Return the plan with the fewest changes that meets the goal; None if no plan meets it."""
    for count, (value, first) in enumerate(zip(plan_values.few, plan_values.first, strict=True)):
        if first is not None and missed.test.holds(within(missed.measure, value)):
            return _described(count, within(missed.measure, value), first, missed.steps, model)
    return None


def _described(count: int, value: float, first: FirstChange, steps: PathPairs, model: MDP) -> Changes:
    taken = steps[first.level][1]
    return Changes(
        count=count,
        value=value,
        offset=len(steps) - 1 - first.level,
        state=first.state,
        taken=taken,
        proposed=first.proposed,
        taken_name=_name(model, taken),
        proposed_name=_name(model, first.proposed),
    )


def _name(model: MDP, action: int | None) -> str:
    return model.action_names[action] if model.action_names and action is not None else ""
