"""Conditions on columns that are no features, such as `trip == 1`, as rules on the features of the same state.

A world predicts features only, so its labels are conditions on features. A part of a condition that uses no feature is
replaced by a small decision tree on the features (Breiman et al. 1984). The tree is written as a condition. It is used
only if it agrees with recorded rows that it was not fitted to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.authoring.dynamics.steps import Visits
from monitor.authoring.learning.conditions import Condition, parsed
from monitor.errors import ModelError, to_install
from monitor.worlds.feature_conditions import compiled

LEAVES: Final = (2, 3, 4, 8)
"""Numbers of leaves of the trees that are compared."""
FOLDS: Final = 5
WRONG: Final = 0.1
"""Largest number of wrong rows of a rule, as a fraction of the rows in which the condition holds."""


class Rule(NamedTuple):
    """A condition on features, and a sentence on what it replaces and how often it is wrong."""

    text: str
    said: str


class Errors(NamedTuple):
    """Rows that a rule was not fitted to: `missed`: the condition holds, the rule does not; `false`: the reverse."""

    missed: int
    false: int


@dataclass(frozen=True)
class FeatureLabel:
    """The condition of a label, divided into its parts.

    `names`: names of the features. `parts`: the parts that need a rule, as conditions on recorded columns.
    """

    condition: Condition
    names: tuple[str, ...]

    @property
    def parts(self) -> list[Condition]:
        """Return the largest parts of the condition that are no conditions on features."""
        return [parsed(f"{self.condition.name}: {ast.unparse(each)}") for each in self._unknown(self._tree)]

    @property
    def _tree(self) -> ast.expr:
        return ast.parse(self.condition.text, mode="eval").body

    def _known(self, tree: ast.expr) -> bool:
        try:
            compiled(ast.unparse(tree), self.names, {}, "")
        except ModelError:
            return False
        return True

    def _mixed(self, tree: ast.expr) -> bool:
        """Return whether an `and`, `or` or `not` contains a condition on features."""
        if isinstance(tree, ast.BoolOp):
            return any(self._known(each) or self._mixed(each) for each in tree.values)
        return isinstance(tree, ast.UnaryOp) and (self._known(tree.operand) or self._mixed(tree.operand))

    def _unknown(self, tree: ast.expr) -> Iterator[ast.expr]:
        if self._known(tree):
            return
        if not self._mixed(tree):
            yield tree
        elif isinstance(tree, ast.BoolOp):
            if rest := self._rest(tree):
                yield rest
            for each in tree.values:
                if self._mixed(each):
                    yield from self._unknown(each)
        elif isinstance(tree, ast.UnaryOp):
            yield from self._unknown(tree.operand)

    def _rest(self, tree: ast.BoolOp) -> ast.expr | None:
        """Return the operands without any feature, joined as in `tree`."""
        rest = [each for each in tree.values if not self._known(each) and not self._mixed(each)]
        return ast.BoolOp(tree.op, rest) if len(rest) > 1 else next(iter(rest), None)

    def with_rules(self, rules: Mapping[str, Rule]) -> str:
        """Return the condition with its parts replaced. `rules`: the text of a part -> its rule."""
        return ast.unparse(self._replaced(self._tree, rules)) if self.parts else self.condition.text

    def _replaced(self, tree: ast.expr, rules: Mapping[str, Rule]) -> ast.expr:
        if (rule := rules.get(ast.unparse(tree))) is not None:
            return ast.parse(rule.text, mode="eval").body
        if isinstance(tree, ast.BoolOp) and not self._known(tree):
            rest = self._rest(tree)
            values = [self._replaced(each, rules) for each in tree.values if self._known(each) or self._mixed(each)] + (
                [self._replaced(rest, rules)] if rest else []
            )
            return ast.BoolOp(tree.op, values)
        if isinstance(tree, ast.UnaryOp) and not self._known(tree):
            return ast.UnaryOp(tree.op, self._replaced(tree.operand, rules))
        return tree


def rule_of(part: Condition, names: Sequence[str], visits: Visits, number: int, seed: int) -> Rule:
    """Return a rule on the features for a condition on recorded columns.

    `visits`: the visited states; `number`: index of the condition in `visits`. Raises ModelError if no rule is accurate
    enough.
    """
    known = visits.known[:, number]
    x, holds = visits.x[known], visits.holds[known, number]
    true, what = int(holds.sum()), f"label {part.name!r}: {part.text!r}"
    if true in (0, len(holds)):
        raise ModelError(
            f"{what} holds in {'no' if not true else 'each'} recorded state, so a world cannot predict it. If it is "
            "recorded with the last step of an episode, record the state after that step too, in a row without an "
            "action; or learn a table of states instead of a world"
        )
    found = {leaves: _held_out(x, holds, leaves, names, seed) for leaves in LEAVES}
    leaves = min(LEAVES, key=lambda each: (sum(found[each]), each))
    rule, (missed, false) = _rule(x, holds, leaves, names, seed), found[leaves]
    on_rows = (
        f"on held-out rows it misses {missed:,} of the {true:,} in which {part.text!r} holds, and holds in {false:,} "
        f"of the {len(holds) - true:,} others"
    )
    if missed + false > WRONG * true:
        raise ModelError(
            f"{what} is not on features ({', '.join(names)}), and no simple rule on them replaces it: the best is "
            f"{'that it never holds' if '!=' in rule else repr(rule)}; {on_rows}. Name the columns that decide it with "
            "--state (its own column, if it persists), write a condition on features, or learn a table of states "
            "instead of a world"
        )
    return Rule(rule, f"{what} is not on features; the world uses the rule {rule!r}: {on_rows}")


def _held_out(x: Floats, holds: Bools, leaves: int, names: Sequence[str], seed: int) -> Errors:
    """Return the errors on all rows, each by a rule fitted to the other parts of the recordings."""
    missed = false = 0
    for rows in np.array_split(np.arange(len(x)), FOLDS):
        fitted = np.ones(len(x), np.bool_)
        fitted[rows] = False
        if not len(rows) or holds[fitted].all() == holds[fitted].any():  # one value only
            said = np.full(len(rows), bool(holds[fitted].any()))
        else:
            said = compiled(_rule(x[fitted], holds[fitted], leaves, names, seed), names, {}, "rule")(x[rows])
        missed += int((holds[rows] & ~said).sum())
        false += int((said & ~holds[rows]).sum())
    return Errors(missed, false)


def _rule(x: Floats, holds: Bools, leaves: int, names: Sequence[str], seed: int) -> str:
    """Return a decision tree with this number of leaves as a condition on features."""
    try:
        from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415 - only where worlds are learned
    except ImportError as error:
        raise ModelError(f"--dynamics needs scikit-learn: {to_install('dynamics')}") from error
    tree: Any = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=seed).fit(x, holds).tree_
    largest = tree.value[:, 0].argmax(axis=1) == 1

    @cache
    def values(node: int) -> frozenset[bool]:
        if tree.children_left[node] < 0:
            return frozenset({bool(largest[node])})
        return values(tree.children_left[node]) | values(tree.children_right[node])

    def conditions(node: int, bounds: dict[int, tuple[float, float]]) -> Iterator[str]:
        if values(node) == {True}:
            yield " and ".join(_between(names[each], *ends) for each, ends in sorted(bounds.items()))
        elif True in values(node):
            feature = int(tree.feature[node])
            low, high = bounds.get(feature, (-np.inf, np.inf))
            cut = _short(float(tree.threshold[node]), x[:, feature])
            yield from conditions(tree.children_left[node], bounds | {feature: (low, min(high, cut))})
            yield from conditions(tree.children_right[node], bounds | {feature: (max(low, cut), high)})

    if values(0) == {True} or values(0) == {False}:  # no split helps
        return f"{names[0]} {'==' if True in values(0) else '!='} {names[0]}"
    return " or ".join(conditions(0, {}))


def _between(name: str, low: float, high: float) -> str:
    if low == -np.inf:
        return f"{name} <= {high!r}"
    return f"{name} > {low!r}" if high == np.inf else f"{low!r} < {name} <= {high!r}"


def _short(cut: float, values: Floats) -> float:
    """Return the shortest number that divides the values as `cut` does."""
    below = values <= cut
    rounded = (float(f"{cut:.{digits}g}") for digits in range(1, 17))
    return next((each for each in rounded if bool(((values <= each) == below).all())), cut)
