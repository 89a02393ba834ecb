"""Audit of takeovers: statistics over the evidence of many takeovers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import msgspec

from monitor.evidence.document import Evidence
from monitor.logic import parse, print_formula
from monitor.logic.syntax import And, Goal, Probability, WorldRef
from monitor.types.notices import TakeoverOutcome
from monitor.types.specs import CausalModel


class Audited(msgspec.Struct, frozen=True):
    """The takeovers by one policy, judged by one goal."""

    formula: str
    """Name of the formula that has the goal."""
    policy: str
    """The policy that took over."""
    goal: str
    """The goal by which takeovers were judged, as text. A formula of the same name may have had another goal
    earlier."""
    causal_model: CausalModel
    """The class of causal models of the bounds; `gumbel` means no bounds."""
    takeovers: int
    """Number of judgements, one for each takeover."""
    outcomes: dict[str, int]
    """Number of takeovers by outcome."""
    robust: int | None
    """Number of takeovers whose outcome no causal model of the formula's class changes; `null` if the formula has no
    bounds."""
    happened: float
    """Sum of the observed values: the number of takeovers after which the goal's path formula held, or the total
    reward."""
    deployed: float
    """Sum of the expected values if the deployed policy had continued."""
    deviation: float | None
    """Standard deviation of the number of these takeovers after which the path formula would have held under the
    deployed policy, given the observations; `null` for rewards."""


def audit(documents: Iterable[Evidence]) -> list[Audited]:
    """Return the judged takeovers among documents, grouped by formula, policy, goal and causal model.

    The documents must have no `contradictions`. Raises FormulaError if a text is not a formula.
    """
    groups: dict[tuple[str, str, str, CausalModel], list[Evidence]] = {}
    for document in documents:
        if (takeover := document.takeover) is not None:
            goal = print_formula(_goal(document.text)).removeprefix("nominal@0.")  # as a user writes it
            key = document.formula, takeover.policy, goal, document.causal_model
            groups.setdefault(key, []).append(document)
    return [_audited(*key, group) for key, group in sorted(groups.items())]


def _audited(formula: str, policy: str, goal: str, causal_model: CausalModel, group: list[Evidence]) -> Audited:
    counts = Counter(document.takeover.outcome for document in group if document.takeover is not None)
    happened, deployed = ([each.verdict.quantities[n].value for each in group] for n in (0, 1))
    bounded = [each.verdict.robust for each in group if each.verdict.robust is not None]
    certain = isinstance(_goal(group[0].text).measure, Probability)
    return Audited(
        formula,
        policy,
        goal,
        causal_model,
        len(group),
        {outcome: counts[outcome] for outcome in get_args(TakeoverOutcome) if outcome != "undecided"},
        sum(bounded) if bounded else None,
        math.fsum(happened),
        math.fsum(deployed),
        math.sqrt(math.fsum(value * (1.0 - value) for value in deployed)) if certain else None,
    )


def _goal(text: str) -> Goal:
    """Return the goal of a judgement's formula, without its offset, which depends on the takeover."""
    formula = parse(text)
    assert isinstance(formula, And), "a judgement is a conjunction"
    assert isinstance(formula.left, Goal), "of two goals"
    return Goal(WorldRef(), formula.left.measure, formula.left.test)
