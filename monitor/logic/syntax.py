"""The nodes of a PCFTL formula. They are frozen, hashable and few; everything else is sugar.

Kazemi & Paoletti, Section 3 (syntax of PCFTL); the concrete syntax is in `monitor.logic.grammar`.

To add sugar: add a function here, and its text in `grammar`. To add a temporal operator: add a `Temporal` here and in
`Formula`, its text in `grammar` and `printer`, and its meaning in `automaton` and, independently, in
`monitor.referee.residual` and `monitor.referee.numbers`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from monitor.logic.comparison import passes

Comparison = Literal["<", "<=", ">=", ">"]


@dataclass(frozen=True, slots=True)
class Const:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Label:
    """A label of the state. `at`: its position in the text (from 0), for error messages."""

    name: str
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    arg: Formula


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction."""

    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction."""

    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Temporal:
    """Base of the operators over the interval of offsets [low, high]; the parser accepts them only inside `P[...]`.

    Every operator is monotone: if it is true, it stays true when `left` or `right` holds at more offsets.
    `monitor.logic.polarity` relies on this. `at`: the operator's position in the text (from 0), for error messages.
    """

    low: int
    high: int
    left: Formula
    right: Formula
    at: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Until(Temporal):
    """Bounded until: `right` holds at some offset j in [low, high], and `left` at every offset 0 <= i < j."""


@dataclass(frozen=True, slots=True)
class InterventionRef:
    """An intervention. `name`: name of the policy, action or model; `steps`: its duration (None: unlimited).

    The kinds `best` (`name` is then the word `best`, `max` or `min`) and `optimal` make decisions for the goal. These
    decisions maximise the value of the goal's measure if `largest`, else they minimise it. `limit`: number of decisions
    that `best` may change (None: all).
    """

    kind: Literal["nominal", "policy", "action", "model", "best", "optimal"]
    name: str = ""
    steps: int | None = None
    at: int = field(default=0, compare=False, repr=False)
    limit: int | None = None
    largest: bool = True

    @property
    def decides(self) -> bool:
        """True if the decisions are made for the goal, so that they depend on it."""
        return self.kind in ("best", "optimal")


NOMINAL = InterventionRef("nominal")

DECIDING = ("best", "max", "min", "optimal")
"""Words for decisions that are made for the goal."""

TIMED = {"EVENTUALLY": "F", "ALWAYS": "G", "UNTIL": "U", "WEAK": "W", "RELEASE": "R"}
"""Operators that need an interval: name in the grammar -> letter in the text."""

RESERVED = (
    *("P", "C", "X", *TIMED.values(), "true", "false"),
    *("nominal", "do", "model", "delta", "regret", "handover", *DECIDING),
)
"""Words that cannot be names in a formula. Of these, only `nominal` is a policy: the deployed one."""


@dataclass(frozen=True, slots=True)
class WorldRef:
    """The world of a goal: `change` at `offset`. With a `baseline`: the causal effect of `change` over `baseline`."""

    change: InterventionRef = NOMINAL
    baseline: InterventionRef | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Probability:
    """The probability that a path satisfies `path`."""

    path: Formula


@dataclass(frozen=True, slots=True)
class Reward:
    """The expected reward collected at offsets `low..high`, both included."""

    low: int
    high: int


Measure = Probability | Reward
"""Quantity that a goal computes in its world."""


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison with a bound. `at`: the bound's position in the text (from 0), for error messages."""

    comparison: Comparison
    bound: float
    at: int = field(default=0, compare=False, repr=False)

    __test__ = False  # not a test case, despite its name

    def holds(self, value: float) -> bool:
        """Return whether `value` passes (`monitor.logic.comparison`)."""
        return passes(value, self.comparison, self.bound)


@dataclass(frozen=True, slots=True)
class Goal:
    """A measure in a world, compared with a threshold; `test` is None for `=?`."""

    world: WorldRef
    measure: Measure
    test: Test | None = None


@dataclass(frozen=True, slots=True)
class Regret:
    """Regret: `goal` is missed under nominal and met in `world` (Kazemi & Paoletti, Section 3.2, examples)."""

    world: WorldRef
    goal: Goal


Formula = Const | Label | Not | And | Or | Until | Goal | Regret


def eventually(low: int, high: int, arg: Formula, at: int = 0) -> Formula:
    """`F[low,high] arg`."""
    return Until(low, high, Const(value=True), arg, at=at)


def always(low: int, high: int, arg: Formula, at: int = 0) -> Formula:
    """`G[low,high] arg`."""
    return Not(eventually(low, high, Not(arg), at))


def weak_until(low: int, high: int, left: Formula, right: Formula, at: int = 0) -> Formula:
    """`left W[low,high] right`: until, or `left` at every offset 0..high."""
    return Or(Until(low, high, left, right, at=at), always(0, high, left, at))


def release(low: int, high: int, left: Formula, right: Formula, at: int = 0) -> Formula:
    """`left R[low,high] right`: the dual of until."""
    return Not(Until(low, high, Not(left), Not(right), at=at))


def implies(left: Formula, right: Formula) -> Formula:
    """`left => right`."""
    return Or(Not(left), right)


def iff(left: Formula, right: Formula) -> Formula:
    """`left <=> right`."""
    return And(implies(left, right), implies(right, left))


def handover(change: InterventionRef, goal: Goal, steps: int, at: int = 0) -> Goal:
    """`handover(change, goal, steps)`: the probability that `change` misses `goal` from some step 0..`steps`."""
    in_time = Goal(WorldRef(change), goal.measure, goal.test)
    return Goal(WorldRef(), Probability(eventually(0, steps, Not(in_time), at)))
