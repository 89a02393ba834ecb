"""Random formulas as text over the whole language, from parts that come back under other operators."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import NamedTuple

from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator
from tests.oracle.setting import Setting
from tests.oracle.worlds import DEPLOYED

COMPARISONS = ("<", "<=", ">", ">=")
PLAIN = ("0", "1", "0.5", "0.25", "0.9", "0.3333333333333333", "0.6666666666666666")
CONNECTIVES = ("&", "&", "|", "|", "=>", "<=>")
UNTILS = ("U", "U", "W", "R")
MOST_PATHS = 250  # in a tree


class Piece(NamedTuple):
    """A path formula, the last offset that it may ask for, and how it binds (0: as an atom)."""

    text: str
    horizon: int
    level: int = 0


def number(value: Fraction) -> str:
    """Return a decimal that is the value to 18 digits after the point."""
    return f"{float(value):.18f}".rstrip("0").rstrip(".")


class Writer:
    """Writes formulas for one setting; keeps their parts to use them again."""

    def __init__(self, random: Random, setting: Setting, evaluator: Evaluator) -> None:
        self._random = random
        self._setting = setting
        self._evaluator = evaluator
        self._pool: list[Piece] = []
        self._pairs: list[tuple[Piece, Piece]] = []
        self._goals: list[str] = []
        self._longest = _longest(setting)
        everywhere = [a for a in range(setting.actions) if all((s, a) in setting.rows for s in range(setting.states))]
        names = setting.action_names or tuple(map(str, range(setting.actions)))
        self._held = [names[a] for a in everywhere]

    def formula(self) -> str:
        """Return a formula of the language that is valid for the setting."""
        kind = self._random.random()
        if kind < 0.6:
            return self._ask()
        if kind < 0.85:
            return self._boolean(self._random.choice((0, 0, 1, 1, 2)))
        if kind < 0.9:
            return self._handover()
        return self._regret()

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    # Whole formulas.

    def _ask(self) -> str:
        world, _ = self._world(nested=False)
        kind, body = self._quantity(2, reward=0.2)
        return f"{world}{kind}=? [ {body} ]"

    def _boolean(self, depth: int) -> str:
        if depth == 0:
            if self._chance(0.15):
                return f'"{self._random.choice(list(self._setting.labels))}"'
            return self._goal()
        left = self._boolean(depth - 1)
        if self._chance(0.2):
            return f"!({left})"
        right = left if self._chance(0.1) else self._boolean(self._random.randrange(depth))
        return f"({left}) {self._random.choice(CONNECTIVES)} ({right})"

    def _goal(self) -> str:
        if self._goals and self._chance(0.15):
            return self._random.choice(self._goals)
        world, delta = self._world(nested=False)
        kind, body = self._quantity(1, reward=0.2)
        bound = self._true_bound(f"{world}{kind}=? [ {body} ]") if self._chance(0.4) else self._bound(kind, delta=delta)
        goal = f"{world}{kind}{self._random.choice(COMPARISONS)}{bound} [ {body} ]"
        self._goals.append(goal)
        return goal

    def _regret(self) -> str:
        change = next(change for change in iter(self._change, None) if change != "nominal")
        world = f"{change}@{self._offset()}" if self._chance(0.9) else change
        kind, body = self._quantity(1, reward=0.2)
        bound = self._bound(kind, delta=False)
        if self._chance(0.5):
            arm = world if self._chance(0.5) else f"nominal@{self._offset()}"
            bound = self._true_bound(f"{arm}.{kind}=? [ {body} ]")
        return f"regret({world}, {kind}{self._random.choice(COMPARISONS)}{bound} [ {body} ])"

    def _handover(self) -> str:
        """Return the probability that handing over will be too late, as sugar or written out."""
        change = next(change for change in iter(self._change, None) if change[:5] not in ("nomin", "model"))
        kind, body = self._quantity(1, reward=0.2)
        ask = f"{change}@0.{kind}=? [ {body} ]"
        bound = self._value_somewhere(ask) if self._chance(0.6) else self._bound(kind, delta=False)
        goal = f"{kind}{self._random.choice(COMPARISONS)}{bound} [ {body} ]"
        steps = self._random.randint(0, min(self._longest, 3))
        test = "" if self._chance(0.5) else f"{self._random.choice(COMPARISONS)}{self._bound('P', delta=False)}"
        if self._chance(0.7):
            return f"handover({change}, {goal}, {steps}){test}"
        left = f"F<={steps}" if self._chance(0.5) else f"true U[0,{steps}]"
        return f"@0.P{test or '=?'} [ {left} !({change}.{goal}) ]"

    # Quantities.

    def _quantity(self, nesting: int, *, reward: float) -> tuple[str, str]:
        """Return P and a path formula, or R and an interval of rewards."""
        if self._chance(reward):
            return "R", f"C{self._interval(max(0, min(3, self._longest - 1)))[0]}"
        longest = min(self._longest, self._random.choice((1, 2, 2, 3, 3, 3, 4, 6)))
        return "P", self._path(longest, self._random.choice((1, 1, 2, 2, 3, 4)), nesting).text

    def _bound(self, kind: str, *, delta: bool) -> str:
        plain = self._random.choice(PLAIN)
        if kind == "R" and self._chance(0.3):
            plain = number(Fraction(self._random.randint(-6, 6), 2))
        if (delta or kind == "R") and Fraction(plain) > 0 and self._chance(0.3):
            return f"-{plain}"
        return plain

    def _true_bound(self, ask: str) -> str:
        """Return the value of a `=?` question: a tie."""
        value = self._evaluator.answer(ask).value
        assert value is not None
        return number(value)

    def _world(self, *, nested: bool) -> tuple[str, bool]:
        """Return the text of a world with its point, and whether it is a difference."""
        offset = self._offset() if self._chance(0.25 if nested else 0.85) else 0
        where = f"@{offset}" if offset or self._chance(0.5) else ""
        if self._chance(0.15):
            return f"delta({self._change()},{self._change()}){where}.", True
        if self._chance(0.12):
            return (f"{where}." if where else ""), False
        return f"{self._change()}{where}.", False

    def _offset(self) -> int:
        length = len(self._setting.path)
        if self._chance(0.15):
            return self._random.randint(-length - 1, length + 1)
        if self._chance(0.3):
            return -self._random.randint(1, length)
        return self._random.randrange(length)

    def _change(self) -> str:
        kinds = ["nominal", "policy", "policy", "policy", "takeover", "takeover"]
        kinds += ["do"] * bool(self._held) + ["model"] * bool(self._setting.models)
        kind = self._random.choice(kinds)
        length = f"[{self._random.randint(0, len(self._setting.path) + 1)}]"
        policy = self._random.choice([name for name in self._setting.policies if name != "nominal"])
        match kind:
            case "policy":
                return policy
            case "takeover":
                return policy + length
            case "do":
                return f"do({self._random.choice(self._held)})" + (length if self._chance(0.4) else "")
            case "model":
                return f"model:{self._random.choice(list(self._setting.models))}"
        return "nominal"

    # Path formulas.

    def _path(self, longest: int, depth: int, nesting: int) -> Piece:
        fitting = [piece for piece in self._pool if piece.horizon <= longest]
        if fitting and self._chance(0.2):
            return self._random.choice(fitting)
        piece = self._made(longest, depth, nesting)
        if depth and len(piece.text) < 160:
            self._pool.append(piece)
        return piece

    def _made(self, longest: int, depth: int, nesting: int) -> Piece:
        if depth == 0:
            return self._atom(longest, nesting)
        kind = self._random.random()
        if kind < 0.12:
            inner = self._path(longest, depth - 1, nesting)
            return Piece(f"!{self._wrapped(inner)}", inner.horizon)
        if kind < 0.4:
            left, right = self._operands(longest, depth, nesting)
            op = self._random.choice(CONNECTIVES)
            return Piece(f"{self._wrapped(left)} {op} {self._wrapped(right)}", max(left.horizon, right.horizon), 2)
        if kind < 0.5:
            left, right = self._operands(longest, depth, nesting)
            first, second, joint = (self._random.choice(CONNECTIVES) for _ in range(3))
            one, two = self._wrapped(left), self._wrapped(right)
            return Piece(f"({one} {first} {two}) {joint} ({one} {second} {two})", max(left.horizon, right.horizon), 2)
        return self._temporal(longest, depth, nesting)

    def _temporal(self, longest: int, depth: int, nesting: int) -> Piece:
        if longest and self._chance(0.2):
            inner = self._path(longest - 1, depth - 1, nesting)
            return Piece(f"X {self._wrapped(inner)}", inner.horizon + 1)
        interval, last = self._interval(longest)
        if self._chance(0.5):
            inner = self._path(longest - last, depth - 1, nesting)
            return Piece(f"{self._random.choice('FG')}{interval} {self._wrapped(inner)}", last + inner.horizon)
        left, right = self._operands(longest - last, depth, nesting)
        op = self._random.choice(UNTILS)
        text = f"{self._wrapped(left)} {op}{interval} {self._wrapped(right)}"
        return Piece(text, last + max(left.horizon, right.horizon), 1)

    def _operands(self, longest: int, depth: int, nesting: int) -> tuple[Piece, Piece]:
        """Return two parts: new ones, two that stood together before, or one and its negation."""
        fitting = [pair for pair in self._pairs if max(part.horizon for part in pair) <= longest]
        if fitting and self._chance(0.25):
            left, right = self._random.choice(fitting)
            return (right, left) if self._chance(0.3) else (left, right)
        left = self._path(longest, depth - 1, nesting)
        right = self._path(longest, depth - 1, nesting)
        if self._chance(0.1):
            right = Piece(f"!{self._wrapped(left)}", left.horizon)
        if len(left.text) + len(right.text) < 120:
            self._pairs.append((left, right))
        return left, right

    def _wrapped(self, piece: Piece) -> str:
        return piece.text if piece.level == 0 or self._chance(0.1) else f"({piece.text})"

    def _interval(self, longest: int) -> tuple[str, int]:
        last = self._random.randint(0, min(longest, 3) if self._chance(0.9) else longest)
        first = self._random.choice((0, 0, last, self._random.randint(0, last)))
        if first == last and self._chance(0.4):
            return f"={last}", last
        if first == 0 and self._chance(0.6):
            return f"<={last}", last
        return f"[{first},{last}]", last

    def _atom(self, longest: int, nesting: int) -> Piece:
        if nesting and self._chance(0.25):
            return Piece(self._nested(min(longest, 2), nesting - 1), 0)
        if self._chance(0.06):
            return Piece(self._random.choice(("true", "false")), 0)
        label = f'"{self._random.choice(list(self._setting.labels))}"'
        return Piece(f"!{label}" if self._chance(0.25) else label, 0)

    def _nested(self, longest: int, nesting: int) -> str:
        world, delta = self._world(nested=True)
        if self._chance(0.2):
            kind, body = "R", f"C{self._interval(longest)[0]}"
        else:
            kind, body = "P", self._path(longest, self._random.choice((1, 1, 2)), nesting).text
        bound = self._bound(kind, delta=delta)
        if self._chance(0.3):
            bound = self._value_somewhere(f"{world}{kind}=? [ {body} ]")
        return f"{world}{kind}{self._random.choice(COMPARISONS)}{bound} [ {body} ]"

    def _value_somewhere(self, ask: str) -> str:
        """Return the value that a `=?` question has on the path of one pair in some state: a tie there."""
        formula = self._evaluator.parser.parse(ask)
        assert isinstance(formula, ast.Ask)
        state = self._random.randrange(self._setting.states)
        return number(self._evaluator.value(formula.quantity, DEPLOYED, 0, ((state, None),)))


def _longest(setting: Setting) -> int:
    """Return the largest horizon whose trees stay small."""
    most = max(len(row) for rows in (setting.rows, *setting.models.values()) for row in rows.values())
    most *= max(len(dist) for table in setting.policies.values() for dist in table)
    longest = 1
    while longest < 8 and most ** (longest + 1) <= MOST_PATHS:
        longest += 1
    return longest
