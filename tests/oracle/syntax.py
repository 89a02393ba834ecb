"""The language of PCFTL as text: a recursive-descent parser written from the grammar, with nodes of its own.

Nodes made by one `Parser` are interned: equal subformulas are the same object, so they are compared by identity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar, Union

Comparison = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True, eq=False)
class Const:
    value: bool


@dataclass(frozen=True, eq=False)
class Label:
    name: str


@dataclass(frozen=True, eq=False)
class Not:
    inner: Node


@dataclass(frozen=True, eq=False)
class Binary:
    """`left op right` with op one of `&`, `|`, `=>`, `<=>`."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, eq=False)
class Next:
    inner: Node


@dataclass(frozen=True, eq=False)
class Timed:
    """`F` or `G` over offsets first..last."""

    op: str
    first: int
    last: int
    inner: Node


@dataclass(frozen=True, eq=False)
class Until:
    """`left op[first,last] right` with op one of `U`, `W`, `R`."""

    op: str
    first: int
    last: int
    left: Node
    right: Node


@dataclass(frozen=True, eq=False)
class Change:
    """What an intervention changes: nothing (`nominal`), a `policy`, an action held (`do`), or the `model`."""

    kind: Literal["nominal", "policy", "do", "model"]
    name: str
    length: int | None  # of a takeover; None: for good


@dataclass(frozen=True, eq=False)
class World:
    """`change @ offset`, or the difference of two (`baseline` set)."""

    change: Change
    baseline: Change | None
    offset: int


@dataclass(frozen=True, eq=False)
class Prob:
    world: World
    body: Node


@dataclass(frozen=True, eq=False)
class Reward:
    world: World
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Compare:
    quantity: Quantity
    op: Comparison
    bound: Fraction


@dataclass(frozen=True, eq=False)
class Ask:
    """`=?`: a number is asked for."""

    quantity: Quantity


@dataclass(frozen=True, eq=False)
class Regret:
    """`regret(W, Q)` with both comparisons spelled out: `nominal@t.Q` and `W.Q`."""

    nominal: Compare
    under: Compare


Quantity = Union[Prob, Reward]  # noqa: UP007 (its members are declared above, and this one is used before)
Node = Union[Const, Label, Not, Binary, Next, Timed, Until, Compare]  # noqa: UP007 (likewise)
Formula = Union[Node, Ask, Regret]  # noqa: UP007 (likewise)
Made = TypeVar("Made")

_BLANK = re.compile(r"(?:\s|//[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT = re.compile(r"-?\d+")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_STRING = re.compile(r'"([^"]*)"')
_COMPARE = re.compile(r"<=|>=|<|>")
_CONNECTIVE = re.compile(r"<=>|=>|\||&")
_LEVELS = {"<=>": 0, "=>": 1, "|": 2, "&": 3}


class GrammarError(ValueError):
    """A text outside the grammar; only the tests of this parser meet it."""


class Parser:
    """Turns texts into interned nodes."""

    def __init__(self) -> None:
        self._nodes: dict[Any, Any] = {}
        self._parsed: dict[str, Formula] = {}
        self._text = ""
        self._at = 0

    def parse(self, text: str) -> Formula:
        """Return the formula of a whole text."""
        if text not in self._parsed:
            self._parsed[text] = self._whole(text)
        return self._parsed[text]

    def _whole(self, text: str) -> Formula:
        self._text, self._at = text, 0
        self._blank()
        formula = self._formula()
        if self._at != len(text):
            raise GrammarError(f"{text!r} at {self._at}")
        return formula

    def _make(self, cls: type[Made], *fields: Any) -> Made:  # noqa: ANN401 (the fields of whatever node)
        key = (cls, fields)
        if key not in self._nodes:
            self._nodes[key] = cls(*fields)
        made: Made = self._nodes[key]
        return made

    def _blank(self) -> None:
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _token(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise GrammarError(f"{pattern.pattern} expected: {self._text!r} at {self._at}")
        self._at = match.end()
        self._blank()
        return match.group(0)

    def _sees(self, symbol: str) -> bool:
        return self._text.startswith(symbol, self._at)

    def _word(self) -> str:
        match = _WORD.match(self._text, self._at)
        return match.group(0) if match else ""

    def _take(self, symbol: str) -> bool:
        if not self._sees(symbol):
            return False
        self._at += len(symbol)
        self._blank()
        return True

    def _need(self, symbol: str) -> None:
        if not self._take(symbol):
            raise GrammarError(f"{symbol!r} expected: {self._text!r} at {self._at}")

    def _formula(self) -> Formula:
        start = self._at
        if self._word() == "regret":
            return self._regret()
        if self._word() == "handover":
            asked = self._handover()
            if self._at == len(self._text):
                return self._make(Ask, asked)
            self._at = start
        if self._starts_goal():
            world = self._world()
            kind = self._token(_WORD)
            if self._take("=?"):
                return self._make(Ask, self._quantity(kind, world))
            self._at = start
        return self._expr(0)

    def _regret(self) -> Regret:
        self._token(_WORD)
        self._need("(")
        world = self._world(dot=False)
        self._need(",")
        kind, op, bound = self._token(_WORD), self._comparison(), self._bound()
        start = self._at
        under = self._make(Compare, self._quantity(kind, world), op, bound)
        self._at = start
        as_it_is = self._make(World, self._nominal(), None, world.offset)
        nominal = self._make(Compare, self._quantity(kind, as_it_is), op, bound)
        self._need(")")
        return self._make(Regret, nominal, under)

    def _handover(self) -> Quantity:
        """Return the quantity of `handover(F, Q, h)`: the probability to reach a state from which F misses Q."""
        self._token(_WORD)
        self._need("(")
        world = self._make(World, self._change(), None, 0)
        self._need(",")
        kind, op, bound = self._token(_WORD), self._comparison(), self._bound()
        goal = self._make(Compare, self._quantity(kind, world), op, bound)
        self._need(",")
        steps = int(self._token(_INT))
        self._need(")")
        too_late = self._make(Timed, "F", 0, steps, self._make(Not, goal))
        return self._make(Prob, self._make(World, self._nominal(), None, 0), too_late)

    def _starts_goal(self) -> bool:
        word = self._word()
        return self._sees("@") or (
            bool(word) and word not in {"true", "false", "F", "G", "X", "U", "W", "C", "regret", "handover"}
        )

    def _expr(self, loosest: int) -> Node:
        """Return an expression of connectives that bind at least as tightly as the level says."""
        left = self._binary()
        while (match := _CONNECTIVE.match(self._text, self._at)) and _LEVELS[match.group(0)] >= loosest:
            symbol = self._token(_CONNECTIVE)  # right-associative: only `=>` cares
            left = self._make(Binary, symbol, left, self._expr(_LEVELS[symbol]))
        return left

    def _binary(self) -> Node:
        left = self._unary()
        op = self._word()
        if op not in {"U", "W", "R"}:
            return left
        self._token(_WORD)
        first, last = self._interval()
        return self._make(Until, op, first, last, left, self._binary())

    def _unary(self) -> Node:
        if self._take("!"):
            return self._make(Not, self._unary())
        word = self._word()
        if word == "X":
            self._token(_WORD)
            return self._make(Next, self._unary())
        if word in {"F", "G"}:
            self._token(_WORD)
            first, last = self._interval()
            return self._make(Timed, word, first, last, self._unary())
        return self._atom()

    def _atom(self) -> Node:
        if self._take("("):
            inner = self._expr(0)
            self._need(")")
            return inner
        if self._sees('"'):
            return self._make(Label, self._token(_STRING).strip('"'))
        if self._word() in {"true", "false"}:
            return self._make(Const, self._token(_WORD) == "true")
        if self._word() == "handover":
            asked = self._handover()
            return self._make(Compare, asked, self._comparison(), self._bound())
        world = self._world()
        kind, op, bound = self._token(_WORD), self._comparison(), self._bound()
        return self._make(Compare, self._quantity(kind, world), op, bound)

    def _comparison(self) -> str:
        return self._token(_COMPARE)

    def _bound(self) -> Fraction:
        return Fraction(self._token(_NUMBER))

    def _quantity(self, kind: str, world: World) -> Quantity:
        self._need("[")
        made: Quantity
        if kind == "P":
            made = self._make(Prob, world, self._expr(0))
        elif kind == "R" and self._take("C"):
            made = self._make(Reward, world, *self._interval())
        else:
            raise GrammarError(f"{kind!r}: {self._text!r} at {self._at}")
        self._need("]")
        return made

    def _interval(self) -> tuple[int, int]:
        if self._take("<="):
            return 0, int(self._token(_INT))
        if self._take("="):
            only = int(self._token(_INT))
            return only, only
        self._need("[")
        first = int(self._token(_INT))
        self._need(",")
        last = int(self._token(_INT))
        self._need("]")
        return first, last

    def _nominal(self) -> Change:
        return self._make(Change, "nominal", "nominal", None)

    def _world(self, *, dot: bool = True) -> World:
        """Return the world before a goal: `nominal@0` if there is none."""
        change, baseline, offset = self._nominal(), None, 0
        word = self._word()
        if word in {"P", "R"}:
            return self._make(World, change, baseline, offset)
        if word == "delta":
            self._token(_WORD)
            self._need("(")
            change = self._change()
            self._need(",")
            baseline = self._change()
            self._need(")")
        elif word:
            change = self._change()
        if self._take("@"):
            offset = int(self._token(_INT))
        if dot:
            self._need(".")
        return self._make(World, change, baseline, offset)

    def _change(self) -> Change:
        word = self._token(_WORD)
        if word == "model":
            self._need(":")
            return self._make(Change, "model", self._token(_WORD), None)
        kind, name = "policy", word
        if word == "do":
            self._need("(")
            kind, name = "do", self._token(re.compile(r"[A-Za-z0-9_]+"))
            self._need(")")
        length = None
        if self._take("["):
            length = int(self._token(_INT))
            self._need("]")
        return self._make(Change, "nominal" if word == "nominal" else kind, name, length)
