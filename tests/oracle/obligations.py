"""What remains of a path formula once the labels up to some offset were read, as a decision diagram.

A bounded path formula is a Boolean function of atoms (offset, label): does the label hold in the state at this offset?
As an ordered diagram, by offset first, reading the labels of a state is a descent by one level, two formulas that mean
the same are one object, and what can no longer change is True or False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from tests.oracle import syntax as ast

Atom = tuple[int, str]


class Fork:
    """A function that is `no` where its atom is false and `yes` where it is true. Compared by identity."""

    __slots__ = ("atom", "no", "yes")

    def __init__(self, atom: Atom, no: Rest, yes: Rest) -> None:
        self.atom, self.no, self.yes = atom, no, yes


Rest = Union[bool, Fork]  # noqa: UP007 (used before it is declared)
Truth = Callable[[bool, bool], bool]
CONNECTIVES: dict[str, Truth] = {
    "&": lambda a, b: a and b,
    "|": lambda a, b: a or b,
    "=>": lambda a, b: not a or b,
    "<=>": lambda a, b: a == b,
}


class Obligations:
    """Makes diagrams; equal ones are the same object."""

    def __init__(self) -> None:
        self._forks: dict[tuple[Atom, int, int], Fork] = {}
        self._joined: dict[tuple[str, Rest, Rest], Rest] = {}

    def fork(self, atom: Atom, no: Rest, yes: Rest) -> Rest:
        """Return the function that decides an atom first."""
        if no is yes:
            return no
        return self._forks.setdefault((atom, id(no), id(yes)), Fork(atom, no, yes))

    def join(self, op: str, left: Rest, right: Rest) -> Rest:
        """Return `left op right`."""
        if isinstance(left, bool) and isinstance(right, bool):
            return CONNECTIVES[op](left, right)
        key = op, left, right
        if key not in self._joined:
            self._joined[key] = self._join(op, left, right)
        return self._joined[key]

    def _join(self, op: str, left: Rest, right: Rest) -> Rest:
        first = min(side.atom for side in (left, right) if isinstance(side, Fork))
        no, yes = (self.join(op, _decided(left, first, truth), _decided(right, first, truth)) for truth in TRUTHS)
        return self.fork(first, no, yes)

    def opposite(self, rest: Rest) -> Rest:
        """Return the negation."""
        return self.join("<=>", rest, False)  # noqa: FBT003 (the constant of the logic)

    def of(self, node: ast.Node, at: int) -> Rest:
        """Return the diagram of a path formula read at offset `at`."""
        match node:
            case ast.Const(value):
                return value
            case ast.Label(name):
                return self.fork((at, name), *TRUTHS)
            case ast.Not(inner):
                return self.opposite(self.of(inner, at))
            case ast.Binary(op, left, right):
                return self.join(op, self.of(left, at), self.of(right, at))
            case ast.Next(inner):
                return self.of(inner, at + 1)
            case ast.Timed(op, first, last, inner):
                return self._all("|" if op == "F" else "&", inner, range(at + first, at + last + 1))
            case ast.Until():
                return self._until(node, at)
        raise ValueError(f"not a formula of labels: {node}")

    def _until(self, node: ast.Until, at: int) -> Rest:
        """Return whether some j in [first, last] has right at j and left at every i < j; W and R from it."""
        if node.op == "R":
            dual = ast.Until("U", node.first, node.last, ast.Not(node.left), ast.Not(node.right))
            return self.opposite(self._until(dual, at))
        found: Rest = False
        for j in range(node.first, node.last + 1):
            before = self._all("&", node.left, range(at, at + j))
            found = self.join("|", found, self.join("&", before, self.of(node.right, at + j)))
        if node.op == "W":
            return self.join("|", found, self._all("&", node.left, range(at, at + node.last + 1)))
        return found

    def _all(self, op: str, node: ast.Node, offsets: range) -> Rest:
        result: Rest = op == "&"
        for offset in offsets:
            result = self.join(op, result, self.of(node, offset))
        return result


TRUTHS = False, True


def read(rest: Rest, offset: int, labels: frozenset[str]) -> Rest:
    """Return what remains after the labels that hold at an offset; nothing earlier may remain."""
    while isinstance(rest, Fork) and rest.atom[0] == offset:
        rest = rest.yes if rest.atom[1] in labels else rest.no
    return rest


def _decided(rest: Rest, atom: Atom, truth: bool) -> Rest:  # noqa: FBT001 (the truth of the atom)
    if isinstance(rest, Fork) and rest.atom == atom:
        return rest.yes if truth else rest.no
    return rest
