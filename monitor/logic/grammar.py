"""The grammar of formulas, and the methods that build a node for each alternative. It is LALR without conflicts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import isfinite
from typing import Any

from lark import Lark, Token, Transformer, v_args

from monitor.logic.printer import print_change
from monitor.logic.syntax import (
    NOMINAL,
    RESERVED,
    TIMED,
    And,
    Const,
    Formula,
    Goal,
    InterventionRef,
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
    handover,
    iff,
    implies,
    release,
    weak_until,
)

MAX_HORIZON = 1_000_000
"""Largest offset in an interval."""

GRAMMAR = (
    r"""
?start: question | regret | expr
question: [world "."] "P" "=?" "[" expr "]"        -> ask_probability
        | [world "."] "R" "=?" "[" "C" interval "]" -> ask_reward
        | HANDOVER "(" change "," goal "," NATURAL ")" -> ask_handover
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
     | HANDOVER "(" change "," goal "," NATURAL ")" comparison NUMBER -> test_handover
goal: "P" comparison NUMBER "[" expr "]"            -> test_probability
    | "R" comparison NUMBER "[" "C" interval "]"    -> test_reward
comparison: "<" -> lt | "<=" -> le | ">=" -> ge | ">" -> gt

world: change ["@" OFFSET]                          -> world
     | "delta" "(" change "," change ")" ["@" OFFSET] -> effect
     | "@" OFFSET                                   -> bare
change: "nominal" ["[" NATURAL "]"]                 -> nominal
      | NAME ["[" NATURAL "]"]                      -> policy
      | "do" "(" (NAME | NUMBER | BEST | OPTIMAL) ")" ["[" NATURAL "]"] -> action
      | "model" ":" (NAME | BEST | OPTIMAL)         -> model
      | BEST [duration]                             -> best
      | OPTIMAL [duration]                          -> optimal
duration: "[" NATURAL "]"                           -> steps
        | "[" "<=" NATURAL "]"                      -> limit
interval: "[" NATURAL "," NATURAL "]"               -> span
        | "<=" NATURAL                              -> within
        | "=" NATURAL                               -> exactly

NEXT: "X"
HANDOVER: "handover"
BEST: "best" | "max" | "min"
OPTIMAL: "optimal"
LABEL: /"[A-Za-z0-9_.-]{1,64}"/
NATURAL: /[0-9]+/
OFFSET: /-?[0-9]+/
NUMBER: /-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/
%ignore /\s+/
%ignore /\/\/[^\n]*/
"""
    + "".join(f'{name}: "{letter}"\n' for name, letter in TIMED.items())
    + rf"NAME: /(?!({'|'.join(RESERVED)})\b)"
    r"[A-Za-z_][A-Za-z0-9_]*/"
)


class Problem(Exception):  # noqa: N818 - never leaves this package
    """A mistake found at a token while a formula is built; `at`: position of the token in the text (from 0)."""

    def __init__(self, problem: str, token: Token) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = _place(token)


def _place(token: Token) -> int:
    return token.start_pos or 0


def _bound(token: Token) -> float:
    if not isfinite(float(token)):
        raise Problem(f"{token[:20]} is too large for a number", token)
    return float(token)


def _natural(token: Token) -> int:
    if len(token) > len(str(MAX_HORIZON)) or int(token) > MAX_HORIZON:
        raise Problem(f"{token[:20]} is larger than {MAX_HORIZON}", token)
    return int(token)


def _aimed(world: WorldRef, goal: Goal) -> WorldRef:
    """Return the world in which `best` or `optimal` maximises for a lower bound, and minimises for an upper bound."""
    change, test = world.change, goal.test
    if test is None or change.name not in ("best", "optimal") or not change.decides:
        return world
    return replace(world, change=replace(change, largest=test.comparison in (">=", ">")))


@v_args(inline=True)
class _Build(Transformer[Token, Any]):
    """Builds nodes bottom up; each method is an alternative of the grammar."""

    def ask_probability(self, world: WorldRef | None, path: Formula) -> Goal:
        return Goal(world or WorldRef(), Probability(path))

    def ask_reward(self, world: WorldRef | None, interval: tuple[int, int]) -> Goal:
        return Goal(world or WorldRef(), Reward(*interval))

    def test_probability(self, comparison: Any, number: Token, path: Formula) -> Goal:  # noqa: ANN401 - a Lark value
        return Goal(WorldRef(), Probability(path), Test(comparison, _bound(number), _place(number)))

    def test_reward(self, comparison: Any, number: Token, interval: tuple[int, int]) -> Goal:  # noqa: ANN401 - likewise
        return Goal(WorldRef(), Reward(*interval), Test(comparison, _bound(number), _place(number)))

    def goal_in(self, world: WorldRef, goal: Goal) -> Goal:
        return Goal(_aimed(world, goal), goal.measure, goal.test)

    def ask_handover(self, word: Token, change: InterventionRef, goal: Goal, steps: Token) -> Goal:
        if change.kind not in ("policy", "action"):
            raise Problem(f"handover needs a policy or an action to hand over to, not {print_change(change)}", word)
        return handover(change, goal, _natural(steps), _place(word))

    def test_handover(self, word: Token, change: InterventionRef, goal: Goal, steps: Token, *test: Any) -> Goal:  # noqa: ANN401 - likewise
        comparison, number = test
        asked = self.ask_handover(word, change, goal, steps)
        return Goal(asked.world, asked.measure, Test(comparison, _bound(number), _place(number)))

    def regret(self, world: WorldRef, goal: Goal) -> Regret:
        return Regret(_aimed(world, goal), goal)

    def lt(self) -> str:
        return "<"

    def le(self) -> str:
        return "<="

    def ge(self) -> str:
        return ">="

    def gt(self) -> str:
        return ">"

    def world(self, change: InterventionRef, offset: Token | None) -> WorldRef:
        return WorldRef(change, None, self._offset(offset))

    def effect(self, change: InterventionRef, baseline: InterventionRef, offset: Token | None) -> WorldRef:
        return WorldRef(change, baseline, self._offset(offset))

    def bare(self, offset: Token) -> WorldRef:
        return WorldRef(NOMINAL, None, self._offset(offset))

    def _offset(self, token: Token | None) -> int:
        if token is None:
            return 0
        if len(token) > len(str(MAX_HORIZON)) + 1 or abs(int(token)) > MAX_HORIZON:
            raise Problem(f"offset {token[:20]} is larger than {MAX_HORIZON}", token)
        return int(token)

    def nominal(self, steps: Token | None) -> InterventionRef:
        if steps is not None:
            raise Problem("nominal takes no number of steps: it is what happens without an intervention", steps)
        return NOMINAL

    def policy(self, name: Token, steps: Token | None) -> InterventionRef:
        return InterventionRef("policy", str(name), None if steps is None else _natural(steps), _place(name))

    def action(self, name: Token, steps: Token | None) -> InterventionRef:
        return InterventionRef("action", str(name), None if steps is None else _natural(steps), _place(name))

    def model(self, name: Token) -> InterventionRef:
        return InterventionRef("model", str(name), None, _place(name))

    def best(self, word: Token, duration: tuple[int | None, int | None] | None) -> InterventionRef:
        steps, limit = duration or (None, None)
        return InterventionRef("best", str(word), steps, _place(word), limit, largest=word != "min")

    def optimal(self, word: Token, duration: tuple[int | None, int | None] | None) -> InterventionRef:
        if duration is not None:
            raise Problem("optimal takes no number of steps; best[k] and best[<=k] do", word)
        return InterventionRef("optimal", str(word), None, _place(word))

    def steps(self, count: Token) -> tuple[int | None, int | None]:
        return _natural(count), None

    def limit(self, count: Token) -> tuple[int | None, int | None]:
        return None, _natural(count)

    def span(self, low: Token, high: Token) -> tuple[int, int]:
        if _natural(low) > _natural(high):
            raise Problem(f"reversed interval [{low},{high}]: the lower bound comes first", low)
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
        return Label(token[1:-1], _place(token))

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
        return eventually(1, 1, arg, _place(token))

    def eventually(self, token: Token, interval: tuple[int, int], arg: Formula) -> Formula:
        return eventually(*interval, arg, _place(token))

    def always(self, token: Token, interval: tuple[int, int], arg: Formula) -> Formula:
        return always(*interval, arg, _place(token))

    def until(self, left: Formula, token: Token, interval: tuple[int, int], right: Formula) -> Formula:
        return Until(*interval, left, right, at=_place(token))

    def weak_until(self, left: Formula, token: Token, interval: tuple[int, int], right: Formula) -> Formula:
        return weak_until(*interval, left, right, _place(token))

    def release(self, left: Formula, token: Token, interval: tuple[int, int], right: Formula) -> Formula:
        return release(*interval, left, right, _place(token))


@cache
def grammar() -> Lark:
    """Return the grammar, which is compiled once; its parser builds the formula while it reads the text."""
    return Lark(GRAMMAR, parser="lalr", lexer="contextual", transformer=_Build(), maybe_placeholders=True)
