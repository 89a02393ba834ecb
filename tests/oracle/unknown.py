"""Values where nothing is known of one state: the least and the greatest, by three-valued truth on explicit trees.

In the unknown state a label may hold or not, each time anew. A formula is *surely* true if it is whatever these are,
by the rules of Kleene for each connective, and *perhaps* true if it is not surely false. Steps there, and into it, earn
the extreme reward.
"""

from __future__ import annotations

from fractions import Fraction

from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator, Reading, compares, horizon, resolve
from tests.oracle.setting import Pair, Setting
from tests.oracle.tree import Tree
from tests.oracle.worlds import Laws, Regime, World


class UnknownLaws(Laws):
    """Laws under which every step in the unknown state, and into it, earns `earned`."""

    def __init__(self, setting: Setting, unknown: int, earned: Fraction) -> None:
        super().__init__(setting)
        self._unknown, self._earned = unknown, earned

    def reward(self, time: int, state: int, action: int, successor: int) -> Fraction:
        """Return the reward of a transition."""
        if successor == self._unknown and not self.absorbed(time, state):
            return self._earned
        return super().reward(time, state, action, successor)


class UnknownReading(Reading):
    """The paths on which a formula is surely (`perhaps`: perhaps) true."""

    def __init__(self, evaluator: UnknownEvaluator, tree: Tree, *, perhaps: bool) -> None:
        super().__init__(evaluator, tree)
        self._one, self._perhaps = evaluator, perhaps
        self.other: UnknownReading = self

    def _sat(self, node: ast.Node, at: int) -> int:
        match node:
            case ast.Label():
                unknown = sum(p.bits for p in self._tree.levels[at] if p.state == self._one.unknown)
                known = super()._sat(node, at)
                return known | unknown if self._perhaps else known & ~unknown
            case ast.Not(inner):
                return self._not(self.other.sat(inner, at))
            case ast.Binary("=>", left, right):
                return self._implied(left, right, at)
            case ast.Binary("<=>", left, right):
                return self._implied(left, right, at) & self._implied(right, left, at)
        return super()._sat(node, at)

    def _implied(self, left: ast.Node, right: ast.Node, at: int) -> int:
        return self._not(self.other.sat(left, at)) | self.sat(right, at)

    def _nested(self, node: ast.Compare, at: int) -> int:
        assert node.quantity.world.baseline is None
        one = self._one if node.op in {">", ">="} else self._one.other
        paths = 0
        for place in self._tree.levels[at]:
            value = one.value(node.quantity, self._regime, self._tree.world.start, place.history)
            paths |= place.bits if compares(value, node.op, node.bound) else 0
        return paths


class UnknownEvaluator(Evaluator):
    """Answers on one setting with what is unknown as bad as can be (`best`: as good). Make both with `both_values`."""

    def __init__(self, setting: Setting, unknown: int, earned: Fraction, *, best: bool) -> None:
        super().__init__(setting)
        self.unknown, self.best = unknown, best
        self.laws = UnknownLaws(setting, unknown, earned)
        self.other: UnknownEvaluator = self

    def value_in(self, quantity: ast.Quantity, world: World) -> Fraction:
        if isinstance(quantity, ast.Reward):
            return super().value_in(quantity, world)
        tree = self.tree(world, horizon(quantity.body), "gumbel")
        surely, perhaps = (UnknownReading(self._of(best=best), tree, perhaps=best) for best in (False, True))
        surely.other, perhaps.other = perhaps, surely
        return tree.probability((perhaps if self.best else surely).sat(quantity.body, 0))

    def value(self, quantity: ast.Quantity, base: Regime, start: int, path: tuple[Pair, ...]) -> Fraction:
        """Return the value on this side; of an effect, the baseline is taken from the other."""
        _, position = resolve(quantity.world.offset, len(path))
        seen = base, start + position, path[position:]
        value = self.value_in(quantity, self.laws.world(*seen, quantity.world.change))
        if quantity.world.baseline is not None:
            other = self.other
            value -= other.value_in(quantity, other.laws.world(*seen, quantity.world.baseline))
        return value

    def _of(self, *, best: bool) -> UnknownEvaluator:
        return self if self.best == best else self.other


def both_values(
    setting: Setting, unknown: int, text: str, earned: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest value of a `=?` query. `earned`: least and greatest reward of a step."""
    low = UnknownEvaluator(setting, unknown, earned[0], best=False)
    high = UnknownEvaluator(setting, unknown, earned[1], best=True)
    low.other, high.other = high, low
    least, greatest = low.answer(text).value, high.answer(text).value
    assert least is not None
    assert greatest is not None
    return least, greatest
