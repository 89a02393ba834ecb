"""Answers to PCFTL questions by the literal definitions on explicit trees of paths, in fractions.

Whether a complete path satisfies a formula is decided for all paths of a tree at once, with sets of paths as bits:
`Reading.sat(f, j)` is the set of paths that satisfy f at offset j, by the clause of the definition for f.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product

from tests.oracle import syntax as ast
from tests.oracle.race import ONE
from tests.oracle.setting import Pair, Setting
from tests.oracle.tree import Choices, Tree, Truths
from tests.oracle.worlds import Laws, Regime, World

TIE = Fraction(1, 10**12)
Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Part:
    """One quantity outside all brackets."""

    value: Fraction
    offset: int
    clipped: bool
    bounds: Interval | None = None
    threshold: Fraction | None = None
    holds: bool | None = None
    robust: bool | None = None


@dataclass(frozen=True)
class Answer:
    """What a verdict says, in fractions."""

    parts: tuple[Part, ...]
    value: Fraction | None = None
    holds: bool | None = None
    outcome: str | None = None
    bounds: Interval | None = None
    robust: bool | None = None
    cautious: bool | None = None  # robust by what is known of each comparison by itself, forgetting that some are equal
    effect: Fraction | None = None
    effect_bounds: Interval | None = None
    profile: dict[int, tuple[Fraction, Fraction]] = field(default_factory=dict)
    latest_useful: int | None = None


def compares(value: Fraction, op: str, bound: Fraction) -> bool:
    """Return the truth of a comparison; what is closer than the tie rule says is equal."""
    equal = abs(value - bound) <= TIE * max(ONE, abs(bound))
    if op in {"<=", ">="}:
        return equal or (value < bound if op == "<=" else value > bound)
    return not equal and (value < bound if op == "<" else value > bound)


def resolve(offset: int, length: int) -> tuple[int, int]:
    """Return the clipped offset and the position (from 0) it means on a path of that many pairs."""
    used = max(-(length - 1), min(length - 1, offset))
    return used, length - 1 - used if used >= 0 else -used - 1


def horizon(node: ast.Node) -> int:
    """Return the last offset that the truth of a path formula depends on."""
    match node:
        case ast.Not(inner):
            return horizon(inner)
        case ast.Next(inner):
            return 1 + horizon(inner)
        case ast.Timed(_, _, last, inner):
            return last + horizon(inner)
        case ast.Binary(_, left, right):
            return max(horizon(left), horizon(right))
        case ast.Until(_, _, last, left, right):
            return last + max(horizon(left), horizon(right))
    return 0


def looks_back(node: ast.Node | ast.Quantity) -> bool:
    """Return whether a nested quantity somewhere in a formula has an offset other than 0."""
    match node:
        case ast.Compare(quantity):
            return quantity.world.offset != 0 or looks_back(quantity)
        case ast.Prob(_, inner) | ast.Not(inner) | ast.Next(inner) | ast.Timed(inner=inner):
            return looks_back(inner)
        case ast.Binary(_, left, right) | ast.Until(left=left, right=right):
            return looks_back(left) or looks_back(right)
    return False


class Reading:
    """Which complete paths of a tree satisfy a formula, at each offset."""

    def __init__(self, evaluator: Evaluator, tree: Tree) -> None:
        self._evaluator = evaluator
        self._tree = tree
        self._regime = tree.world.regime
        self._known: dict[tuple[ast.Node, int], int] = {}

    def sat(self, node: ast.Node, at: int) -> int:
        """Return the set of paths that satisfy a formula at an offset."""
        key = node, at
        if key not in self._known:
            self._known[key] = self._sat(node, at)
        return self._known[key]

    def _sat(self, node: ast.Node, at: int) -> int:
        match node:
            case ast.Const(value):
                return self._tree.everything if value else 0
            case ast.Label(name):
                where = self._evaluator.setting.labels[name]
                return sum(place.bits for place in self._tree.levels[at] if place.state in where)
            case ast.Compare():
                return self._nested(node, at)
            case ast.Not(inner):
                return self._not(self.sat(inner, at))
            case ast.Binary(op, left, right):
                return self._connective(op, self.sat(left, at), self.sat(right, at))
            case ast.Next(inner):
                return self.sat(inner, at + 1)
            case ast.Timed("F", first, last, inner):
                return self._until(first, last, [self._tree.everything] * last, self._row(inner, at, last))
            case ast.Timed(_, first, last, inner):
                never = [self._not(paths) for paths in self._row(inner, at, last)]
                return self._not(self._until(first, last, [self._tree.everything] * last, never))
            case ast.Until():
                return self._binary(node, at)
        raise AssertionError(node)

    def _row(self, node: ast.Node, at: int, last: int) -> list[int]:
        return [self.sat(node, at + step) for step in range(last + 1)]

    def _not(self, paths: int) -> int:
        return self._tree.everything & ~paths

    def _connective(self, op: str, left: int, right: int) -> int:
        match op:
            case "&":
                return left & right
            case "|":
                return left | right
            case "=>":
                return self._not(left) | right
        return self._not(left ^ right)

    def _until(self, first: int, last: int, left: list[int], right: list[int]) -> int:
        """Return the paths with some j in first..last where right holds, and left at every i < j."""
        found, so_far = 0, self._tree.everything
        for j in range(last + 1):
            if j >= first:
                found |= so_far & right[j]
            if j < last:
                so_far &= left[j]
        return found

    def _binary(self, node: ast.Until, at: int) -> int:
        left = self._row(node.left, at, node.last)
        right = self._row(node.right, at, node.last)
        if node.op == "R":
            left, right = [self._not(paths) for paths in left], [self._not(paths) for paths in right]
            return self._not(self._until(node.first, node.last, left, right))
        found = self._until(node.first, node.last, left, right)
        if node.op == "W":
            always = self._tree.everything
            for paths in left:
                always &= paths
            found |= always
        return found

    def _nested(self, node: ast.Compare, at: int) -> int:
        """Return the paths on which a nested comparison is true: a function of the history up to the offset."""
        start = self._tree.world.start
        paths = 0
        for place in self._tree.levels[at]:
            truth = place.truths.get(node)
            if truth is None:
                truth = self._evaluator.truth(node, self._regime, start, place.history)
            if truth:
                paths |= place.bits
        return paths


class Evaluator:
    """Answers questions on one setting and keeps the trees that they share."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.laws = Laws(setting)
        self.parser = ast.Parser()
        self._trees: dict[tuple[World, int, str], Tree] = {}
        self._values: dict[tuple[ast.Quantity, Regime, int, tuple[Pair, ...]], Fraction] = {}
        self._bounds: dict[tuple[ast.Quantity, Regime, int, tuple[Pair, ...], str], Interval] = {}

    def answer(self, text: str, kind: str = "gumbel") -> Answer:
        """Return the answer to a formula on the setting's path; with bounds if kind is `any` or `stable`."""
        formula = self.parser.parse(text)
        if isinstance(formula, ast.Ask):
            part = self._part(formula.quantity, kind)
            return self._advised(Answer((part,), value=part.value, bounds=part.bounds), formula.quantity)
        if isinstance(formula, ast.Regret):
            return self._regret(formula, kind)
        answer = self._boolean(formula, kind)
        return self._advised(answer, formula.quantity) if isinstance(formula, ast.Compare) else answer

    # Quantities.

    def value(self, quantity: ast.Quantity, base: Regime, start: int, path: tuple[Pair, ...]) -> Fraction:
        """Return the Gumbel-Max value of a quantity, asked at the end of a path seen from time `start` on."""
        world = quantity.world
        _, position = resolve(world.offset, len(path))
        key = quantity, base, start + position, path[position:]
        if key not in self._values:
            value = self.value_in(quantity, self.laws.world(*key[1:], world.change))
            if world.baseline is not None:
                value -= self.value_in(quantity, self.laws.world(*key[1:], world.baseline))
            self._values[key] = value
        return self._values[key]

    def bounds(self, quantity: ast.Quantity, base: Regime, start: int, path: tuple[Pair, ...], kind: str) -> Interval:
        """Return the lowest and highest value over the causal models of a kind."""
        world = quantity.world
        _, position = resolve(world.offset, len(path))
        seen = base, start + position, path[position:]
        key = quantity, *seen, kind
        if key not in self._bounds:
            low, high = self._arm_bounds(quantity, self.laws.world(*seen, world.change), kind)
            if world.baseline is not None:
                base_low, base_high = self._arm_bounds(quantity, self.laws.world(*seen, world.baseline), kind)
                low, high = low - base_high, high - base_low
            self._bounds[key] = low, high
        return self._bounds[key]

    def truth(self, node: ast.Compare, base: Regime, start: int, path: tuple[Pair, ...]) -> bool:
        """Return the truth of a comparison of a Gumbel-Max value."""
        return compares(self.value(node.quantity, base, start, path), node.op, node.bound)

    def truths(self, node: ast.Compare, base: Regime, start: int, path: tuple[Pair, ...], kind: str) -> frozenset[bool]:
        """Return the truths of a comparison at both ends of its bounds."""
        ends = self.bounds(node.quantity, base, start, path, kind)
        return frozenset(compares(end, node.op, node.bound) for end in ends)

    def tree(self, world: World, length: int, kind: str) -> Tree:
        """Return the tree of a world's histories, made once."""
        key = world, length, kind
        if key not in self._trees:
            self._trees[key] = Tree(self.laws, world, length, kind)
        return self._trees[key]

    def value_in(self, quantity: ast.Quantity, world: World) -> Fraction:
        if isinstance(quantity, ast.Reward):
            tree = self.tree(world, quantity.last + 1, "gumbel")
            return tree.expected_reward(quantity.first, quantity.last)
        tree = self.tree(world, horizon(quantity.body), "gumbel")
        return tree.probability(Reading(self, tree).sat(quantity.body, 0))

    def _arm_bounds(self, quantity: ast.Quantity, world: World, kind: str) -> Interval:
        if isinstance(quantity, ast.Reward):
            tree = self.tree(world, quantity.last + 1, kind)
            low, high = (tree.extreme_reward(quantity.first, quantity.last, sign) for sign in (-1, 1))
            return low, high
        length = horizon(quantity.body)
        if looks_back(quantity.body):
            tree = Tree(self.laws, world, length, kind, self._choices(quantity.body, world, kind))
        else:
            tree = self.tree(world, length, kind)
        paths = Reading(self, tree).sat(quantity.body, 0)
        return tree.extreme_probability(paths, -1), tree.extreme_probability(paths, 1)

    def _choices(self, body: ast.Node, world: World, kind: str) -> Choices:
        """Return the assignments of truths that are possible at each history."""
        wanted: dict[int, list[ast.Compare]] = {}
        for node, offset in sorted(set(_occurrences(body, 0)), key=lambda item: item[1]):
            if looks_back(node):
                wanted.setdefault(offset, []).append(node)
        regime = world.regime

        def choices(offset: int, history: tuple[tuple[int, int], ...]) -> list[Truths]:
            nodes = wanted.get(offset, [])
            options = [sorted(self.truths(node, regime, world.start, history, kind)) for node in nodes]
            return [dict(zip(nodes, each, strict=True)) for each in product(*options)]

        return choices

    # Whole formulas.

    def _part(self, quantity: ast.Quantity, kind: str, compare: ast.Compare | None = None) -> Part:
        path = self.setting.path
        used, _ = resolve(quantity.world.offset, len(path))
        value = self.value(quantity, self.laws.observed, 0, path)
        bounds = None if kind == "gumbel" else self.bounds(quantity, self.laws.observed, 0, path, kind)
        holds = robust = None
        if compare is not None:
            holds = compares(value, compare.op, compare.bound)
            if bounds is not None:
                robust = all(compares(end, compare.op, compare.bound) == holds for end in bounds)
        threshold = None if compare is None else compare.bound
        return Part(value, used, used != quantity.world.offset, bounds, threshold, holds, robust)

    def _boolean(self, formula: ast.Node, kind: str) -> Answer:
        nodes = list(dict.fromkeys(_comparisons(formula)))
        parts = {node: self._part(node.quantity, kind, node) for node in nodes}
        holds = self._state(formula, {node: bool(part.holds) for node, part in parts.items()})
        robust, cautious, bounds = None, None, None
        if kind != "gumbel":
            robust = self._robust(formula, parts)
            cautious = self._open(formula, parts) is not None
        if len(nodes) == 1:
            bounds = parts[nodes[0]].bounds
        return Answer(tuple(parts.values()), holds=holds, robust=robust, cautious=cautious, bounds=bounds)

    def _robust(self, formula: ast.Node, parts: dict[ast.Compare, Part]) -> bool:
        """Return whether the truth is the same however the open comparisons come out."""
        options = [[part.holds] if part.robust else [False, True] for part in parts.values()]
        found = {
            self._state(formula, {node: bool(truth) for node, truth in zip(parts, each, strict=True)})
            for each in product(*options)
        }
        return len(found) == 1

    def _open(self, node: ast.Node, parts: dict[ast.Compare, Part]) -> bool | None:
        """Return the truth if it follows from the comparisons that are not open (Kleene's three values)."""
        match node:
            case ast.Compare():
                return parts[node].holds if parts[node].robust else None
            case ast.Not(inner):
                one = self._open(inner, parts)
                return None if one is None else not one
            case ast.Binary(op, left, right):
                sides = self._open(left, parts), self._open(right, parts)
                options = [(False, True) if side is None else (side,) for side in sides]
                found = {_connected(op, *each) for each in product(*options)}
                return found.pop() if len(found) == 1 else None
        return self._state(node, {})

    def _state(self, node: ast.Node, truths: dict[ast.Compare, bool]) -> bool:
        match node:
            case ast.Const(value):
                return value
            case ast.Label(name):
                return self.setting.path[-1][0] in self.setting.labels[name]
            case ast.Compare():
                return truths[node]
            case ast.Not(inner):
                return not self._state(inner, truths)
            case ast.Binary(op, left, right):
                return _connected(op, self._state(left, truths), self._state(right, truths))
        raise AssertionError(node)

    def _regret(self, formula: ast.Regret, kind: str) -> Answer:
        nominal = self._part(formula.nominal.quantity, kind, formula.nominal)
        under = self._part(formula.under.quantity, kind, formula.under)
        _, position = resolve(formula.under.quantity.world.offset, len(self.setting.path))
        outcome = _outcome(holds=bool(nominal.holds), helped=bool(under.holds))
        profile, latest = self._profile(formula, len(self.setting.path) - 1 - position)
        robust, effect_bounds = None, None
        if nominal.bounds is not None and under.bounds is not None:
            robust = bool(nominal.robust and (nominal.holds or under.robust))
            effect_bounds = under.bounds[0] - nominal.bounds[1], under.bounds[1] - nominal.bounds[0]
        return Answer(
            (nominal, under),
            outcome=outcome,
            bounds=under.bounds,
            robust=robust,
            effect=under.value - nominal.value,
            effect_bounds=effect_bounds,
            profile=profile,
            latest_useful=latest,
        )

    def _advised(self, answer: Answer, quantity: ast.Quantity) -> Answer:
        """Add what `handover(F, Q, h)` says besides: the values of Q now, and whether F meets it."""
        goal = _handover(quantity)
        if goal is None:
            return answer
        path = self.setting.path
        worlds = (
            self.laws.world(self.laws.observed, len(path) - 1, path[-1:], each.change)
            for each in (quantity.world, goal.quantity.world)
        )
        nominal, given = (self.value_in(goal.quantity, world) for world in worlds)
        useful = 0 if compares(given, goal.op, goal.bound) else None
        return replace(answer, profile={0: (nominal, given)}, latest_useful=useful)

    def _profile(self, formula: ast.Regret, farthest: int) -> tuple[dict[int, tuple[Fraction, Fraction]], int | None]:
        """Return both values at each offset 0..farthest, and the smallest at which the outcome is regret."""
        path, latest = self.setting.path, None
        profile = {}
        for back in range(farthest + 1):
            position = len(path) - 1 - back
            worlds = (
                self.laws.world(self.laws.observed, position, path[position:], each.quantity.world.change)
                for each in (formula.nominal, formula.under)
            )
            values = [self.value_in(formula.under.quantity, world) for world in worlds]
            profile[back] = values[0], values[1]
            truths = [compares(value, formula.under.op, formula.under.bound) for value in values]
            if latest is None and _outcome(holds=truths[0], helped=truths[1]) == "regret":
                latest = back
        return profile, latest


def _handover(quantity: ast.Quantity) -> ast.Compare | None:
    """Return `F@0.Q` of `nominal@0.P [ F<=h !(F@0.Q) ]`; None if the quantity is another."""
    match quantity:
        case ast.Prob(
            ast.World(ast.Change("nominal"), None, 0),
            ast.Timed("F", 0, _, ast.Not(ast.Compare() as goal))
            | ast.Until("U", 0, _, ast.Const(True), ast.Not(ast.Compare() as goal)),
        ):
            world = goal.quantity.world
            fits = world.baseline is None and world.offset == 0 and world.change.kind in {"policy", "do"}
            return goal if fits else None
    return None


def _connected(op: str, left: bool, right: bool) -> bool:  # noqa: FBT001 (the sides of a connective)
    return {"&": left and right, "|": left or right, "=>": not left or right, "<=>": left == right}[op]


def _outcome(*, holds: bool, helped: bool) -> str:
    if holds:
        return "safe"
    return "regret" if helped else "unavoidable"


def _comparisons(node: ast.Node) -> Iterator[ast.Compare]:
    """Yield the comparisons of a state formula, in the order of the text."""
    match node:
        case ast.Compare():
            yield node
        case ast.Not(inner):
            yield from _comparisons(inner)
        case ast.Binary(_, left, right):
            yield from _comparisons(left)
            yield from _comparisons(right)


def _occurrences(node: ast.Node, at: int) -> Iterator[tuple[ast.Compare, int]]:
    """Yield each nested comparison with each offset at which a formula read at `at` may ask for it."""
    match node:
        case ast.Compare():
            yield node, at
        case ast.Not(inner):
            yield from _occurrences(inner, at)
        case ast.Next(inner):
            yield from _occurrences(inner, at + 1)
        case ast.Binary(_, left, right):
            yield from _occurrences(left, at)
            yield from _occurrences(right, at)
        case ast.Timed(_, first, last, inner):
            for step in range(first, last + 1):
                yield from _occurrences(inner, at + step)
        case ast.Until(_, _, last, left, right):
            for step in range(last + 1):
                yield from _occurrences(left, at + step)
                yield from _occurrences(right, at + step)
