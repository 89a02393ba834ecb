"""Path formulas as deterministic automata, which read label sets and whose states are obligations.

A *label set* contains the atoms (labels, nested quantities) that are true at an offset, as a bit mask: bit n is atom n.
An *obligation* is the condition that the rest of the path must satisfy. Obligations are progressed (Bacchus & Kabanza,
"Using temporal logics to express search control knowledge for planning", 2000) and kept in a disjunctive normal form
with subsumption: a conjunction drops each element that another element entails, and a disjunction drops each
conjunction that entails another conjunction. So obligations with the same meaning usually have the same form. Every
operator is bounded, so each step lowers the number of steps still needed, and the obligations form an acyclic graph.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import product
from typing import Protocol, assert_never

import msgspec

from monitor.errors import LimitError
from monitor.logic.syntax import And, Const, Formula, Goal, Label, Measure, Not, Or, Probability, Regret, Reward, Until
from monitor.logic.traversal import subformulas

FALSE, TRUE = 0, 1
"""The two final obligations: violated, satisfied."""

MAX_ATOMS = 62
"""Largest number of labels and nested quantities of one path, because a label set is a signed 64-bit mask."""

MAX_OBLIGATIONS = 200_000
"""Largest number of obligations of one formula. If a formula has more, an exact answer is refused before memory is
exhausted."""
MAX_ALTERNATIVES = 10_000
"""Largest number of conjunctions of one obligation in normal form. All pairs are compared, which takes a second. Six
operators with different intervals, joined by `<=>`, have 4,800 conjunctions; seven have 41,325.
"""


class Automaton(Protocol):
    """Deterministic automaton over label sets. Its states are obligations, as ints; FALSE and TRUE are final."""

    atoms: tuple[Label | Goal, ...]
    start: int

    def step(self, obligation: int, labels: int) -> int:
        """Return the obligation that remains after a label set."""
        ...

    def horizon(self, obligation: int) -> int:
        """Return the number of steps after which the obligation is decided at the latest; 0 if it is final."""
        ...

    def rewards(self, obligation: int) -> bool:
        """Return whether the reward of the next offset counts."""
        ...


class RewardAutomaton:
    """Automaton of `C[low,high]`. Its state is 2 + k after k label sets; rewards count at offsets low..high."""

    atoms: tuple[Label | Goal, ...] = ()
    start = 2

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def step(self, obligation: int, labels: int) -> int:
        """Return the next obligation; FALSE (no more rewards) after offset `high`."""
        del labels
        return FALSE if obligation - 2 >= self.high else obligation + 1

    def horizon(self, obligation: int) -> int:
        """Return the number of remaining offsets, including the next one."""
        return 0 if obligation in (FALSE, TRUE) else self.high - (obligation - 2) + 1

    def rewards(self, obligation: int) -> bool:
        """Return whether the next offset is in low..high."""
        return obligation >= 2 + self.low

    def rewarded_steps(self, obligation: int) -> int:
        """Return the number of remaining offsets whose reward counts."""
        return self.high - max(obligation - 2, self.low) + 1


class _Literal(msgspec.Struct, frozen=True, cache_hash=True):
    # Not a named tuple, because named tuples of different types with equal fields are equal: a conjunction and a
    # disjunction of the same operands would then be the same key.
    atom: int
    positive: bool


class _Timed(msgspec.Struct, frozen=True, cache_hash=True):
    """Until (if `until`) or its dual, release, over [low, high]; `left` and `right` negate nothing but atoms."""

    until: bool
    low: int
    high: int
    left: _Node
    right: _Node


class _All(msgspec.Struct, frozen=True, cache_hash=True):
    every: tuple[_Node, ...]


class _Any(msgspec.Struct, frozen=True, cache_hash=True):
    some: tuple[_Node, ...]


_Element = _Literal | _Timed
_Node = bool | _Literal | _Timed | _All | _Any
_Cube = frozenset[_Element]
_Sum = frozenset[_Cube]  # disjunction of conjunctions; no cube implies another

_NEVER: _Sum = frozenset()
_ALWAYS: _Sum = frozenset([frozenset[_Element]()])


class PathAutomaton:
    """Automaton of a path formula. Its states and transitions are computed when they are needed."""

    def __init__(self, formula: Formula) -> None:
        self.atoms: tuple[Label | Goal, ...] = tuple(
            dict.fromkeys(node for node in subformulas(formula, nested=False) if isinstance(node, Label | Goal))
        )
        if len(self.atoms) > MAX_ATOMS:
            problem = f"a path formula has {len(self.atoms)} different labels and nested quantities"
            raise LimitError(
                f"{problem}; at most {MAX_ATOMS} (limit MAX_ATOMS) are possible: define a label for their union"
            )
        self._index = {atom: n for n, atom in enumerate(self.atoms)}
        self._sums: list[_Sum] = [_NEVER, _ALWAYS]
        self._numbers: dict[_Sum, int] = {_NEVER: FALSE, _ALWAYS: TRUE}
        self._steps: dict[tuple[int, int], int] = {}
        self._progressed: dict[tuple[_Element, int], _Sum] = {}
        self._horizons: list[int] = [0, 0]
        self.start = self._number(_unread(self._negation_free(formula, positive=True)))

    def step(self, obligation: int, labels: int) -> int:
        """Return the obligation that remains after a label set (bit n set: atom n holds)."""
        key = (obligation, labels)
        if key not in self._steps:
            self._steps[key] = self._number(self._progress_sum(self._sums[obligation], labels))
        return self._steps[key]

    def horizon(self, obligation: int) -> int:
        """Return the number of steps after which the obligation is decided at the latest."""
        return self._horizons[obligation]

    def rewards(self, obligation: int) -> bool:
        """Return False, because a probability has no rewards."""
        del obligation
        return False

    def _number(self, total: _Sum) -> int:
        if total not in self._numbers:
            if len(self._sums) >= MAX_OBLIGATIONS:
                msg = (
                    f"the formula unfolds to more than {MAX_OBLIGATIONS} obligations (limit MAX_OBLIGATIONS); "
                    "shorten its intervals or split it"
                )
                raise LimitError(msg)
            self._numbers[total] = len(self._sums)
            self._sums.append(total)
            self._horizons.append(max(_horizon(e) for cube in total for e in cube))
        return self._numbers[total]

    def _negation_free(self, formula: Formula, *, positive: bool) -> _Node:
        """Return the node of a formula, or of its negation if not `positive`, with negations only at atoms."""
        match formula:
            case Const(value):
                return value == positive
            case Label() | Goal():
                return _Literal(self._index[formula], positive)
            case Not(arg):
                return self._negation_free(arg, positive=not positive)
            case And(left, right) | Or(left, right):
                parts = (self._negation_free(left, positive=positive), self._negation_free(right, positive=positive))
                return _All(parts) if isinstance(formula, And) == positive else _Any(parts)
            case Until(low, high, left, right):
                first = self._negation_free(left, positive=positive)
                second = self._negation_free(right, positive=positive)
                return _Timed(positive, low, high, first, second)
            case Regret():
                raise AssertionError("the parser keeps regret out of paths")
            case _:
                assert_never(formula)

    def _progress_sum(self, total: _Sum, labels: int) -> _Sum:
        found: set[_Cube] = set()  # compared with each other at the end, not after each addition
        for cube in total:
            part = _ALWAYS
            for element in cube:
                part = _both(part, self._progress(element, labels))
                if part == _NEVER:
                    break
            if part == _ALWAYS:
                return _ALWAYS
            if len(found) + len(part) > MAX_ALTERNATIVES:
                found = set(_weakest(found))
            found |= part
        return _weakest(found)

    def _progress(self, element: _Element, labels: int) -> _Sum:
        key = (element, labels)
        if key not in self._progressed:
            self._progressed[key] = self._progress_element(element, labels)
        return self._progressed[key]

    def _progress_node(self, node: _Node, labels: int) -> _Sum:
        match node:
            case bool():
                return _ALWAYS if node else _NEVER
            case _Literal() | _Timed():
                return self._progress(node, labels)
            case _All(every):
                total = _ALWAYS
                for part in every:
                    total = _both(total, self._progress_node(part, labels))
                return total
            case _Any(some):
                total = _NEVER
                for part in some:
                    total = _either(total, self._progress_node(part, labels))
                return total
            case _:
                assert_never(node)

    def _progress_element(self, element: _Element, labels: int) -> _Sum:
        match element:
            case _Literal(atom, positive):
                return _ALWAYS if bool(labels >> atom & 1) == positive else _NEVER
            case _Timed(until, low, high, left, right):
                held = self._progress_node(left, labels)
                met = self._progress_node(right, labels)
                # until: `right` now, or (`left` now and the rest); release: `right` now, and (`left` now or the rest).
                join, meet, nothing = (_either, _both, _NEVER) if until else (_both, _either, _ALWAYS)
                if high == 0:
                    return met
                later = _unread(_Timed(until, max(low - 1, 0), high - 1, left, right))
                further = meet(held, later)
                return join(met if low == 0 else nothing, further)
            case _:
                assert_never(element)


def automaton_of(measure: Measure) -> Automaton:
    """Return the automaton of a measure."""
    match measure:
        case Probability(path):
            return PathAutomaton(path)
        case Reward(low, high):
            return RewardAutomaton(low, high)
        case _:
            assert_never(measure)


def _horizon(node: _Node) -> int:
    match node:
        case bool():
            return 0
        case _Literal():
            return 1
        case _Timed(_, _, 0, _, right):
            return _horizon(right)  # decided by `right` alone
        case _Timed(_, _, high, left, right):
            return max(high + _horizon(right), high - 1 + _horizon(left))
        case _All(parts) | _Any(parts):
            return max(map(_horizon, parts))
        case _:
            assert_never(node)


def _unread(node: _Node) -> _Sum:
    """Return the obligation to satisfy `node`, before any label set was read."""
    match node:
        case bool():
            return _ALWAYS if node else _NEVER
        case _Timed(_, _, 0, _, right):
            return _unread(right)  # decided by `right` alone
        case _Literal() | _Timed():
            return frozenset([frozenset([node])])
        case _All(every):
            total = _ALWAYS
            for part in every:
                total = _both(total, _unread(part))
            return total
        case _Any(some):
            total = _NEVER
            for part in some:
                total = _either(total, _unread(part))
            return total
        case _:
            assert_never(node)


def _implies(one: _Timed, other: _Timed) -> bool:
    """Return whether `one` entails `other`, if only their intervals differ; otherwise False (sound, not complete)."""
    if (one.until, one.left, one.right) != (other.until, other.left, other.right):
        return False
    inner, outer = (one, other) if one.until else (other, one)
    return outer.low <= inner.low and inner.high <= outer.high


def _either(one: _Sum, other: _Sum) -> _Sum:
    if _ALWAYS in (one, other):
        return _ALWAYS
    if not one or not other:
        return one or other
    return _weakest(one | other)


def _weakest(cubes: AbstractSet[_Cube]) -> _Sum:
    """Return the conjunctions that entail no other conjunction."""
    if len(cubes) < 2:
        return frozenset(cubes)
    basis = _Basis(cubes)
    return basis.absorb(set(map(basis.mask, cubes)))


def _both(one: _Sum, other: _Sum) -> _Sum:
    if one == _ALWAYS:
        return other
    if other == _ALWAYS:
        return one
    if not one or not other:
        return _NEVER
    if len(one) == len(other) == 1:  # the usual case
        (left,), (right,) = one, other
        return frozenset([_shortest(left | right)])
    _check_alternatives(len(one) * len(other), MAX_ALTERNATIVES)
    basis = _Basis(one | other)
    pairs = product(map(basis.mask, one), map(basis.mask, other))
    return basis.absorb({basis.reduce(left | right) for left, right in pairs})


def _shortest(cube: _Cube) -> _Cube:
    """Return the conjunction without the elements that another of its elements entails."""
    timed = [element for element in cube if isinstance(element, _Timed)]
    if len(timed) < 2:
        return cube
    return cube.difference(other for one in timed for other in timed if other is not one and _implies(one, other))


class _Basis:
    """The elements of some conjunctions.

    A conjunction is a bit mask over these elements, so that comparing all pairs is fast.
    """

    def __init__(self, cubes: AbstractSet[_Cube]) -> None:
        elements = frozenset[_Element]().union(*cubes)
        self._bits = {element: 1 << n for n, element in enumerate(elements)}
        timed = [element for element in elements if isinstance(element, _Timed)]
        weaker = [
            (self._bits[one], sum(self._bits[other] for other in timed if other is not one and _implies(one, other)))
            for one in timed
        ]
        self._weaker = [(bit, entailed) for bit, entailed in weaker if entailed]

    def mask(self, cube: _Cube) -> int:
        return sum(self._bits[element] for element in cube)

    def reduce(self, mask: int) -> int:
        """Drop the elements that another element of the conjunction entails."""
        return mask & ~self._entailed(mask)

    def absorb(self, masks: set[int]) -> _Sum:
        """Return the conjunctions that entail no other conjunction. Their disjunction equals the disjunction of all.

        `masks` may have 2 * MAX_ALTERNATIVES conjunctions, of which at most MAX_ALTERNATIVES may remain. So two large
        disjunctions can be joined if they have many conjunctions in common.
        """
        _check_alternatives(len(masks), 2 * MAX_ALTERNATIVES)
        every = tuple(self._bits.values())
        # A set of conjunctions is a bit mask over their places in `ordered`, so that each conjunction is compared with
        # all others at once. `stronger`: conjunctions that entail an element which they do not contain. For each
        # element: `having`: kept conjunctions that contain it; `entailing`: conjunctions of `stronger` that entail it.
        ordered, kept, stronger = sorted(masks, key=int.bit_count), 0, 0
        having, entailing = dict.fromkeys(every, 0), dict.fromkeys(every, 0)
        for place, mask in enumerate(ordered):
            entailed, here = mask | self._entailed(mask), 1 << place
            # others: conjunctions with an element that this conjunction does not entail; gone: those that entail it
            others, gone = 0, stronger
            for bit in every:
                if not entailed & bit:
                    others |= having[bit]
                if mask & bit:
                    gone &= entailing[bit]
            if kept & ~others:
                continue
            kept, stronger = kept & ~gone | here, stronger & ~gone
            for bit in every:
                if mask & bit:
                    having[bit] |= here
            if entailed != mask:
                stronger |= here
                for bit in every:
                    if entailed & bit:
                        entailing[bit] |= here
        _check_alternatives(kept.bit_count(), MAX_ALTERNATIVES)
        return frozenset(self._cube(mask) for place, mask in enumerate(ordered) if kept >> place & 1)

    def _entailed(self, mask: int) -> int:
        """Return the elements that another element of the conjunction entails."""
        found = 0
        for bit, weaker in self._weaker:
            if mask & bit:
                found |= weaker
        return found

    def _cube(self, mask: int) -> _Cube:
        return frozenset([element for element, bit in self._bits.items() if mask & bit])


def _check_alternatives(count: int, most: int) -> None:
    if count > most:
        raise LimitError(
            f"the formula unfolds to an obligation of {count} alternatives; at most {MAX_ALTERNATIVES} (limit "
            "MAX_ALTERNATIVES) can be compared: evaluate its parts separately, or define a label for a combination"
        )
