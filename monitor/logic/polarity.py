"""Split labels by polarity, so that a state can be given the labels that make a path formula false, or true.

An occurrence of a label is positive under an even number of negations (a nested `P<p` counts as a negation), otherwise
negative. If a label becomes true, its positive occurrences can only make the formula true, and its negative occurrences
can only make the formula false. So in a state about which nothing is known, the worst case is that no positive
occurrence and every negative occurrence is true. The best case is the opposite.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from monitor.errors import LimitError
from monitor.logic.syntax import (
    And,
    Const,
    Formula,
    Goal,
    Label,
    Measure,
    Not,
    Or,
    Probability,
    Regret,
    Reward,
    Temporal,
)


def negative(name: str) -> str:
    """Return the name that stands for the negative occurrences of a label; no label can have this name."""
    return f"~{name}"


def split_measure(measure: Measure) -> Measure:
    """Return a measure with a split path formula; a reward has no labels. Raises LimitError as `split_labels` does."""
    return Probability(split_labels(measure.path)) if isinstance(measure, Probability) else measure


def split_labels(formula: Formula, *, positive: bool = True) -> Formula:
    """Return a path formula in which the negative occurrences of each label have a separate name.

    Raises LimitError for a nested quantity that is not a monotone function of the labels: an effect, a regret, or a
    reward under a negation.

    >>> from monitor.logic import parse, print_formula
    >>> print_formula(split_labels(parse('"a" & !"b"')))
    '"a" & !"~b"'
    """
    match formula:
        case Const():
            return formula
        case Label(name):
            return formula if positive else Label(negative(name))
        case Not(arg):
            return Not(split_labels(arg, positive=not positive))
        case And(left, right) | Or(left, right) | Temporal(left=left, right=right):
            split = partial(split_labels, positive=positive)
            return replace(formula, left=split(left), right=split(right))
        case Goal() | Regret():
            return _nested(formula, positive=positive)


def _nested(goal: Goal | Regret, *, positive: bool) -> Goal:
    if isinstance(goal, Regret) or goal.world.baseline is not None or goal.test is None:
        raise LimitError("a difference of two worlds is nested in another quantity")
    rises = positive == (goal.test.comparison in (">=", ">"))
    match goal.measure:
        case Reward() if rises:
            return goal
        case Reward():
            raise LimitError("an upper bound of a reward is nested in another quantity")
        case Probability(path):
            return Goal(goal.world, Probability(split_labels(path, positive=rises)), goal.test)
