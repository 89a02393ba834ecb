"""Text to formula. The grammar is conflict-free as LALR with a contextual lexer (Lark)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from math import isfinite
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from monitor.errors import FormulaError
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Change,
    Const,
    Formula,
    Goal,
    Label,
    Not,
    Or,
    Probability,
    Regret,
    Reward,
    Test,
    Until,
    WorldRef,
    always,
    eventually,
    iff,
    implies,
    release,
    weak_until,
)

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "parse"]

MAX_LENGTH = 10_000
"""Characters a formula may have; a written formula has a few hundred."""
MAX_DEPTH = 150
"""Nesting a formula may have, well below what Python's own stack allows."""
MAX_NODES = 20_000
"""Nodes a formula may have once its sugar (`<=>` repeats its operands) is written out."""
MAX_HORIZON = 1_000_000
"""Largest offset in an interval."""

GRAMMAR = r"""
?start: question | regret | expr
question: [world "."] "P" "=?" "[" expr "]"        -> ask_probability
        | [world "."] "R" "=?" "[" "C" interval "]" -> ask_reward
regret: "regret" "(" world "," goal ")"

?expr: imply | expr "<=>" imply                     -> iff
?imply: disjunction | disjunction "=>" imply        -> implies
?disjunction: conjunction | disjunction "|" conjunction -> disjunction
?conjunction: binary | conjunction "&" binary       -> conjunction
?binary: unary
       | unary UNTIL interval binary                -> until
       | unary WEAK interval binary                 -> weak_until
       | unary RELEASE interval binary              -> release
?unary: "!" unary                                   -> negation
      | NEXT unary                                  -> next
      | EVENTUALLY interval unary                   -> eventually
      | ALWAYS interval unary                       -> always
      | atom
?atom: "true"                                       -> true
     | "false"                                      -> false
     | LABEL                                        -> label
     | "(" expr ")"
     | world "." goal                               -> goal_in
     | goal
goal: "P" comparison NUMBER "[" expr "]"            -> test_probability
    | "R" comparison NUMBER "[" "C" interval "]"    -> test_reward
comparison: "<" -> lt | "<=" -> le | ">=" -> ge | ">" -> gt

world: change ["@" OFFSET]                          -> world
     | "delta" "(" change "," change ")" ["@" OFFSET] -> effect
     | "@" OFFSET                                   -> bare
change: "nominal" ["[" NATURAL "]"]                 -> nominal
      | NAME ["[" NATURAL "]"]                      -> policy
      | "do" "(" (NAME | NATURAL) ")" ["[" NATURAL "]"] -> action
      | "model" ":" NAME                            -> model
interval: "[" NATURAL "," NATURAL "]"               -> span
        | "<=" NATURAL                              -> within
        | "=" NATURAL                               -> exactly

NEXT: "X"
EVENTUALLY: "F"
ALWAYS: "G"
UNTIL: "U"
WEAK: "W"
RELEASE: "R"
NAME: /(?!(P|R|C|F|G|X|U|W|true|false|nominal|do|model|delta|regret)\b)[A-Za-z_][A-Za-z0-9_]*/
LABEL: /"[A-Za-z0-9_.-]{1,64}"/
NATURAL: /[0-9]+/
OFFSET: /-?[0-9]+/
NUMBER: /-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/
%ignore /\s+/
%ignore /\/\/[^\n]*/
"""

WORDS = {
    "$END": "the end of the formula",
    "<END-OF-FILE>": "the end of the formula",
    "LABEL": 'a "label"',
    "NATURAL": "a whole number",
    "OFFSET": "an offset",
    "NUMBER": "a number",
    "NAME": "a name",
}


class _Problem(Exception):  # noqa: N818 - never leaves this module
    """A mistake found while building, at a token."""

    def __init__(self, problem: str, at: Token) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at


def _bound(token: Token) -> float:
    if not isfinite(float(token)):
        raise _Problem(f"{token[:20]} is too large for a number", token)
    return float(token)


def _natural(token: Token) -> int:
    if len(token) > len(str(MAX_HORIZON)) or int(token) > MAX_HORIZON:
        raise _Problem(f"{token[:20]} is larger than {MAX_HORIZON}", token)
    return int(token)


@v_args(inline=True)
class _Build(Transformer[Token, Any]):
    """Builds nodes bottom up; each method is an alternative of the grammar."""

    def ask_probability(self, world: WorldRef | None, path: Formula) -> Goal:
        return Goal(world or WorldRef(), Probability(path))

    def ask_reward(self, world: WorldRef | None, interval: tuple[int, int]) -> Goal:
        return Goal(world or WorldRef(), Reward(*interval))

    def test_probability(self, comparison: Any, number: Token, path: Formula) -> Goal:  # noqa: ANN401 - a Lark value
        return Goal(WorldRef(), Probability(path), Test(comparison, _bound(number), number.start_pos or 0))

    def test_reward(self, comparison: Any, number: Token, interval: tuple[int, int]) -> Goal:  # noqa: ANN401 - likewise
        return Goal(WorldRef(), Reward(*interval), Test(comparison, _bound(number), number.start_pos or 0))

    def goal_in(self, world: WorldRef, goal: Goal) -> Goal:
        return Goal(world, goal.measure, goal.test)

    def regret(self, world: WorldRef, goal: Goal) -> Regret:
        return Regret(world, goal)

    def lt(self) -> str:
        return "<"

    def le(self) -> str:
        return "<="

    def ge(self) -> str:
        return ">="

    def gt(self) -> str:
        return ">"

    def world(self, change: Change, offset: Token | None) -> WorldRef:
        return WorldRef(change, None, self._offset(offset))

    def effect(self, change: Change, baseline: Change, offset: Token | None) -> WorldRef:
        return WorldRef(change, baseline, self._offset(offset))

    def bare(self, offset: Token) -> WorldRef:
        return WorldRef(NOMINAL, None, self._offset(offset))

    def _offset(self, token: Token | None) -> int:
        if token is None:
            return 0
        if len(token) > len(str(MAX_HORIZON)) + 1 or abs(int(token)) > MAX_HORIZON:
            raise _Problem(f"offset {token[:20]} is larger than {MAX_HORIZON}", token)
        return int(token)

    def nominal(self, steps: Token | None) -> Change:
        if steps is not None:
            raise _Problem("nominal takes no number of steps: it is what happens without an intervention", steps)
        return NOMINAL

    def policy(self, name: Token, steps: Token | None) -> Change:
        return Change("policy", str(name), None if steps is None else _natural(steps), name.start_pos or 0)

    def action(self, name: Token, steps: Token | None) -> Change:
        if name.type == "NATURAL":
            _natural(name)
        return Change("action", str(name), None if steps is None else _natural(steps), name.start_pos or 0)

    def model(self, name: Token) -> Change:
        return Change("model", str(name), None, name.start_pos or 0)

    def span(self, low: Token, high: Token) -> tuple[int, int]:
        if _natural(low) > _natural(high):
            raise _Problem(f"reversed interval [{low},{high}]: the lower bound comes first", low)
        return int(low), int(high)

    def within(self, high: Token) -> tuple[int, int]:
        return 0, _natural(high)

    def exactly(self, at: Token) -> tuple[int, int]:
        return _natural(at), int(at)

    def true(self) -> Const:
        return Const(value=True)

    def false(self) -> Const:
        return Const(value=False)

    def label(self, token: Token) -> Label:
        return Label(token[1:-1], token.start_pos or 0)

    def negation(self, arg: Formula) -> Formula:
        return Not(arg)

    def conjunction(self, left: Formula, right: Formula) -> Formula:
        return And(left, right)

    def disjunction(self, left: Formula, right: Formula) -> Formula:
        return Or(left, right)

    def implies(self, left: Formula, right: Formula) -> Formula:
        return implies(left, right)

    def iff(self, left: Formula, right: Formula) -> Formula:
        return iff(left, right)

    def next(self, token: Token, arg: Formula) -> Formula:
        return eventually(1, 1, arg, token.start_pos or 0)

    def eventually(self, token: Token, interval: tuple[int, int], arg: Formula) -> Formula:
        return eventually(*interval, arg, token.start_pos or 0)

    def always(self, token: Token, interval: tuple[int, int], arg: Formula) -> Formula:
        return always(*interval, arg, token.start_pos or 0)

    def until(self, left: Formula, token: Token, interval: tuple[int, int], right: Formula) -> Formula:
        return Until(*interval, left, right, token.start_pos or 0)

    def weak_until(self, left: Formula, token: Token, interval: tuple[int, int], right: Formula) -> Formula:
        return weak_until(*interval, left, right, token.start_pos or 0)

    def release(self, left: Formula, token: Token, interval: tuple[int, int], right: Formula) -> Formula:
        return release(*interval, left, right, token.start_pos or 0)


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="contextual", transformer=_Build(), maybe_placeholders=True)


def parse(text: str) -> Formula:
    """Read a formula; raises `FormulaError` with line, column and a caret.

    Labels and policies are names here; `monitor.decide` looks them up in a model.

    >>> parse('fallback@5.P>=0.95 [ G<=20 !"unsafe" ]').world
    WorldRef(change=Change(kind='policy', name='fallback', steps=None), baseline=None, offset=5)
    """
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"longer than {MAX_LENGTH} characters", text[:80], 1, 81)
    try:
        formula: Formula = _parser().parse(text)  # type: ignore[assignment] # the transformer makes the tree a Formula
    except UnexpectedInput as error:
        raise _unexpected(error, text) from None
    except VisitError as error:
        if isinstance(error.orig_exc, _Problem):
            raise error_at(error.orig_exc.problem, text, error.orig_exc.at.start_pos or 0) from None
        raise
    except _Problem as error:
        raise error_at(error.problem, text, error.at.start_pos or 0) from None
    _check_shape(formula, text)
    return formula


def error_at(problem: str, text: str, at: int) -> FormulaError:
    """A FormulaError at a character position (from 0)."""
    line = text.count("\n", 0, at) + 1
    return FormulaError(problem, text, line, at - (text.rfind("\n", 0, at) + 1) + 1)


def _unexpected(error: UnexpectedInput, text: str) -> FormulaError:
    if isinstance(error, UnexpectedToken):
        at = len(text.rstrip()) if error.token.type == "$END" else error.token.start_pos or 0
        found = "the formula ends here" if error.token.type == "$END" else f"unexpected {str(error.token)!r}"
        expected = error.expected
    else:
        assert isinstance(error, UnexpectedCharacters)
        at = error.pos_in_stream or 0
        found, expected = f"unexpected {text[at]!r}", error.allowed
    if text[at:].startswith(("=?", "= ?")):
        return error_at("'=?' may only stand as the whole formula; inside, compare with a bound", text, at)
    operator = re.search(r"\b([FGUWR])\s*\Z", text[:at])
    if operator and text[at : at + 1] != "[":
        return error_at(f"{operator[1]} needs an interval such as <=10 or [2,5]: every formula is bounded", text, at)
    wanted = ", ".join(sorted(_in_words(word) for word in expected or ())[:8])
    return error_at(f"{found}; expected {wanted}" if wanted else found, text, at)


def _in_words(terminal: str) -> str:
    return WORDS.get(terminal) or f"'{_parser().get_terminal(terminal).pattern.value}'"


def _children(formula: Formula) -> Iterator[Formula]:
    match formula:
        case Const() | Label():
            pass
        case Not(arg):
            yield arg
        case And(left, right) | Or(left, right) | Until(_, _, left, right):
            yield left
            yield right
        case Goal(_, Probability(path), _):
            yield path
        case Goal():
            pass
        case Regret(_, goal):
            yield goal


def _check_shape(formula: Formula, text: str) -> None:
    """What the grammar alone cannot say."""
    level: list[tuple[Formula, bool]] = [(formula, False)]
    depth = nodes = 0
    while level:
        depth, nodes = depth + 1, nodes + len(level)
        if depth > MAX_DEPTH:
            raise error_at(f"nested deeper than {MAX_DEPTH}", text, 0)
        if nodes > MAX_NODES:
            raise error_at(f"more than {MAX_NODES} parts once written out (each <=> doubles its operands)", text, 0)
        deeper: list[tuple[Formula, bool]] = []
        for node, inside in level:
            _check_node(node, text, inside=inside)
            deeper += [(child, inside or isinstance(node, Goal)) for child in _children(node)]
        level = deeper


def _check_node(node: Formula, text: str, *, inside: bool) -> None:
    match node:
        case Until(at=at) if not inside:
            raise error_at("a temporal operator outside the brackets of P; write P=? [ ... ] around it", text, at)
        case Goal(WorldRef(_, None, _), Probability(), Test(_, bound, at)) if not 0.0 <= bound <= 1.0:
            raise error_at(f"{bound:g} is not a probability: it must lie in [0, 1]", text, at)
        case Goal(WorldRef(), Probability(), Test(_, bound, at)) if not -1.0 <= bound <= 1.0:
            raise error_at(f"{bound:g} is not an effect on a probability: it must lie in [-1, 1]", text, at)
        case Regret(WorldRef(change, baseline, _), goal):
            if baseline is not None or change.kind == "nominal":
                raise error_at(
                    "regret compares nominal with one alternative, such as fallback@5", text, text.find("regret")
                )
            if goal.world != WorldRef():
                raise error_at(
                    "the goal of regret has no world of its own: regret asks it in both worlds",
                    text,
                    text.find("regret"),
                )
        case _:
            pass
