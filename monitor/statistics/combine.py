"""Boolean combinations of tested formulas: the strength that each test needs, and the truth of the combination.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures", "Boolean combinations", after H. Younes
and R. Simmons (2006). To test a formula at <alpha, beta>, test its parts at these strengths:

- not Phi: test Phi at <beta, alpha>;
- a conjunction of N formulas: test each at <alpha/N, beta>. The conjunction is wrongly rejected only if one of the N
  formulas is wrongly rejected. It is wrongly accepted only if each false formula among them is wrongly accepted;
- a disjunction of N formulas: test each at <alpha, beta/N>, by De Morgan.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import assert_never

from monitor.errors import ConfigError
from monitor.statistics.strength import Strength


@dataclass(frozen=True)
class Leaf:
    """A tested formula, named by `key`. Leaves with the same key share one test."""

    key: Hashable


@dataclass(frozen=True)
class Negation:
    """Negation."""

    part: Tree


@dataclass(frozen=True)
class Conjunction:
    """Conjunction. A part that is itself a conjunction is replaced by its own parts. Without parts it is true."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Disjunction:
    """Disjunction. A part that is itself a disjunction is replaced by its own parts. Without parts it is false."""

    parts: tuple[Tree, ...]


Tree = Leaf | Negation | Conjunction | Disjunction


def strengths(tree: Tree, strength: Strength) -> dict[Hashable, Strength]:
    """Return, for each key, the strength that its test needs so that the combination has `strength`.

    A key that occurs more than once is tested once, at the smallest alpha and the smallest beta of its occurrences.

    >>> a, b, c = Leaf("a"), Leaf("b"), Leaf("c")
    >>> strengths(Conjunction((a, Disjunction((b, Negation(c))))), Strength(0.04, 0.02))["c"]
    Strength(alpha=0.01, beta=0.02)
    """
    needed: dict[Hashable, Strength] = {}
    _distribute(tree, strength, needed)
    return needed


def _distribute(tree: Tree, strength: Strength, needed: dict[Hashable, Strength]) -> None:
    match tree:
        case Leaf(key):
            old = needed.get(key, strength)
            needed[key] = Strength(min(old.alpha, strength.alpha), min(old.beta, strength.beta))
        case Negation(part):
            _distribute(part, strength.negated, needed)
        case Conjunction() | Disjunction():
            parts = _flat(tree)
            count = max(len(parts), 1)
            each = (
                Strength(strength.alpha / count, strength.beta)
                if isinstance(tree, Conjunction)
                else Strength(strength.alpha, strength.beta / count)
            )
            for part in parts:
                _distribute(part, each, needed)
        case _:
            assert_never(tree)


def _flat(tree: Conjunction | Disjunction) -> list[Tree]:
    """Return the parts, with parts of the same kind replaced by their own parts."""
    return [inner for part in tree.parts for inner in (_flat(part) if isinstance(part, type(tree)) else [part])]


def evaluate(tree: Tree, answers: Mapping[Hashable, bool | None]) -> bool | None:
    """Return the truth of the combination; None (undecided) if it depends on undecided answers.

    Raises ConfigError for a key without an answer.

    >>> evaluate(Disjunction((Leaf("a"), Leaf("b"))), {"a": None, "b": True})
    True
    """
    match tree:
        case Leaf(key):
            if key not in answers:
                raise ConfigError(f"no answer for {key!r}; there are answers for {sorted(map(repr, answers))}")
            return answers[key]
        case Negation(part):
            inner = evaluate(part, answers)
            return None if inner is None else not inner
        case Conjunction(parts):
            return _decisive([evaluate(part, answers) for part in parts], decisive=False)
        case Disjunction(parts):
            return _decisive([evaluate(part, answers) for part in parts], decisive=True)
        case _:
            assert_never(tree)


def _decisive(values: list[bool | None], *, decisive: bool) -> bool | None:
    """Return `decisive` if a value equals it; otherwise None if a value is undecided; otherwise `not decisive`."""
    if decisive in values:
        return decisive
    return None if None in values else not decisive
