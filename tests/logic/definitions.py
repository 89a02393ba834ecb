"""The temporal operators, transcribed from their definitions: slow, obvious, and blind to how the monitor decides them.

A formula is a nested tuple; `text` writes it in the concrete syntax, `Paths` evaluates it on every label sequence of
a length at once: a set of sequences is a Python int, bit n standing for the n-th sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

__all__ = ["LABELS", "LOGICAL", "TIMED_BINARY", "TIMED_UNARY", "Paths", "Spec", "formulas", "text"]

Spec: TypeAlias = tuple[Any, ...]
"""("true",) ("false",) ("label", name) ("!", f) ("X", f) (op, f, g) (timed op, (a, b), f) (timed op, (a, b), f, g)."""

LABELS = ("a", "b")
LOGICAL = ("&", "|", "=>", "<=>")
TIMED_UNARY = ("F", "G")
TIMED_BINARY = ("U", "W", "R")


def text(spec: Spec) -> str:
    """In the concrete syntax, every operand in parentheses."""
    match spec:
        case ("true" | "false",):
            return str(spec[0])
        case ("label", name):
            return f'"{name}"'
        case ("!" | "X", arg):
            return f"{spec[0]} ({text(arg)})"
        case ("F" | "G", (a, b), arg):
            return f"{spec[0]}[{a},{b}] ({text(arg)})"
        case (str(operator), (int(a), int(b)), left, right):
            return f"({text(left)}) {operator}[{a},{b}] ({text(right)})"
        case (str(operator), left, right):
            return f"({text(left)}) {operator} ({text(right)})"
        case _:
            raise AssertionError(spec)


def formulas(
    arguments: Sequence[Spec], intervals: Sequence[tuple[int, int]], logical: Sequence[str] = LOGICAL
) -> Iterator[Spec]:
    """Every operator on every choice of arguments."""
    for arg in arguments:
        yield ("!", arg)
        yield ("X", arg)
        yield from ((operator, span, arg) for operator in TIMED_UNARY for span in intervals)
    for left, right in product(arguments, repeat=2):
        yield from ((operator, left, right) for operator in logical)
        yield from ((operator, span, left, right) for operator in TIMED_BINARY for span in intervals)


class Paths:
    """All sequences of `length` letters; letter n holds label k where bit k of n is set.

    Sequences are numbered with the letter at position 0 as the highest digit.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        letters = 1 << len(LABELS)
        self.everything: int = (1 << letters**length) - 1
        self._where = {
            (name, position): sum(
                1 << n
                for n, sequence in enumerate(product(range(letters), repeat=length))
                if sequence[position] >> k & 1
            )
            for k, name in enumerate(LABELS)
            for position in range(length)
        }

    def satisfying(self, spec: Spec, position: int = 0) -> int:
        """The sequences on which `spec` holds at `position`."""
        match spec:
            case ("true",):
                return self.everything
            case ("false",):
                return 0
            case ("label", name):
                return self._where[name, position]
            case ("!", arg):
                return self.everything & ~self.satisfying(arg, position)
            case ("X", arg):
                return self.satisfying(arg, position + 1)
            case ("&", left, right):
                return self.satisfying(left, position) & self.satisfying(right, position)
            case ("|", left, right):
                return self.satisfying(left, position) | self.satisfying(right, position)
            case ("=>", left, right):
                return self.everything & ~self.satisfying(left, position) | self.satisfying(right, position)
            case ("<=>", left, right):
                return self.everything & ~(self.satisfying(left, position) ^ self.satisfying(right, position))
            case _:
                return self._timed(spec, position)

    def _timed(self, spec: Spec, position: int) -> int:
        match spec:
            case ("F", (a, b), arg):
                return self._some(self.satisfying(arg, position + j) for j in range(a, b + 1))
            case ("G", (a, b), arg):
                return self._every(self.satisfying(arg, position + j) for j in range(a, b + 1))
            case ("U", (a, b), left, right):
                return self._until(a, b, left, right, position)
            case ("W", (a, b), left, right):
                throughout = self._every(self.satisfying(left, position + i) for i in range(b + 1))
                return self._until(a, b, left, right, position) | throughout
            case ("R", (a, b), left, right):
                # right at every j in [a, b], unless left released it strictly before j
                return self._every(
                    self.satisfying(right, position + j)
                    | self._some(self.satisfying(left, position + i) for i in range(j))
                    for j in range(a, b + 1)
                )
            case _:
                raise AssertionError(spec)

    def _until(self, a: int, b: int, left: Spec, right: Spec, position: int) -> int:
        """`right` at some j in [a, b], `left` at every 0 <= i < j."""
        return self._some(
            self.satisfying(right, position + j) & self._every(self.satisfying(left, position + i) for i in range(j))
            for j in range(a, b + 1)
        )

    def _some(self, sets: Iterator[int]) -> int:
        total = 0
        for one in sets:
            total |= one
        return total

    def _every(self, sets: Iterator[int]) -> int:
        total = self.everything
        for one in sets:
            total &= one
        return total
