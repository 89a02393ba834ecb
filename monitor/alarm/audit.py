"""Audit of takeovers: what their evidence says about all of them together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import msgspec

from monitor.alarm.document import Evidence
from monitor.logic import parse
from monitor.logic.syntax import And, Goal, Probability
from monitor.types import TakeoverOutcome

__all__ = ["Audited", "audit"]


class Audited(msgspec.Struct, frozen=True):
    """The takeovers by one policy, judged by one goal."""

    formula: str
    """Name of the formula that has the goal."""
    policy: str
    """The policy that took over."""
    takeovers: int
    """Number of judged takeovers."""
    outcomes: dict[str, int]
    """Number of takeovers by outcome."""
    robust: int | None
    """Number whose outcome no causal model of the formula's class changes; `null` if the formula has no bounds."""
    happened: float
    """Sum of the values of what happened: after how many takeovers the goal's path formula held, or the reward."""
    deployed: float
    """The same, as expected if the deployed policy had gone on: the sum of its values."""
    deviation: float | None
    """Standard deviation of that number, given what was observed; `null` for rewards."""


def audit(documents: Iterable[Evidence]) -> list[Audited]:
    """Return the judged takeovers among documents, by formula and policy; evidence of alarms is left out.

    Raises FormulaError if a document's text is not a formula.
    """
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for document in documents:
        if document.takeover is not None:
            groups.setdefault((document.formula, document.takeover.policy), []).append(document)
    return [_audited(formula, policy, group) for (formula, policy), group in sorted(groups.items())]


def _audited(formula: str, policy: str, group: list[Evidence]) -> Audited:
    counts = Counter(document.takeover.outcome for document in group if document.takeover is not None)
    happened, deployed = ([each.verdict.quantities[n].value for each in group] for n in (0, 1))
    bounded = [each.verdict.robust for each in group if each.verdict.robust is not None]
    certain = all(_is_probability(each.text) for each in group)
    return Audited(
        formula,
        policy,
        len(group),
        {outcome: counts[outcome] for outcome in get_args(TakeoverOutcome) if outcome != "undecided"},
        sum(bounded) if bounded else None,
        math.fsum(happened),
        math.fsum(deployed),
        math.sqrt(math.fsum(value * (1.0 - value) for value in deployed)) if certain else None,
    )


def _is_probability(text: str) -> bool:
    formula = parse(text)
    goal = formula.right if isinstance(formula, And) else formula
    return isinstance(goal, Goal) and isinstance(goal.measure, Probability)
