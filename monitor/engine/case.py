"""One formula on one path with one noise: which tests it comes to, and what their answers come to together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from monitor.arrays import Floats
from monitor.engine.procedures import (
    Draw,
    Estimate,
    check_outcomes,
    decided,
    decision,
    estimate,
    given,
    settled,
    span,
)
from monitor.exact.verdict import Path, resolve
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import And, Const, Goal, Label, Not, Or, Regret, Until
from monitor.logic.traversal import goals, regret_goals
from monitor.sampled import Sampler
from monitor.sampled.rows import Rows
from monitor.statistics import Leaf, Strength, Tree, combine, evaluate, strengths
from monitor.types import Drawn, Outcome, Quantity, Verdict

__all__ = ["Case"]

TRUE, FALSE = combine.And(()), combine.Or(())
"""What is known needs no test, and no share of the strength."""


class Case:
    """See the module. Every quantity is drawn with the same noise, particle by particle.

    Args:
        sampler: with this verdict's seed.
        rows: of the model.
        rewards: the smallest and the largest of a step, if known.
        path: pairs (state, action), oldest first.
        drawn: the settings, and the strength of the whole formula.
        terminated: the episode has ended in the last state.
    """

    def __init__(
        self,
        sampler: Sampler,
        rows: Rows,
        rewards: tuple[float, float] | None,
        path: Path,
        drawn: Drawn,
        *,
        terminated: bool,
    ) -> None:
        self._sampler, self._rows, self._rewards, self._path = sampler, rows, rewards, path
        self._drawn, self._terminated = drawn, terminated
        self._short: list[str] = []

    def plain(self, formula: Formula) -> Verdict:
        """A Boolean combination of tests; of quantities at several offsets, the last one's is told."""
        tree = self._tree(formula)
        told = self._tested(tree, [goal for goal, _, _ in goals(formula)])
        quantities = tuple(told.values())
        return self._verdict(
            quantities,
            holds=evaluate(tree, {text: quantity.holds for text, quantity in told.items()}),
            bounds=quantities[0].bounds if len(quantities) == 1 else None,
            offset=quantities[-1].offset if quantities else 0,
        )

    def regret(self, formula: Regret) -> Verdict:
        """The goal under nominal and under the alternative (docs/semantics.md, section 8).

        What is tested is that there is nothing to regret: `nominal meets it or the alternative does not`. So alpha is
        the probability to say *regret* of what is none. The effect's bounds come of two intervals, so they miss with
        twice the probability of one at most.
        """
        asked = regret_goals(formula)
        meets, would_meet = (print_formula(one) for one in asked)
        told = self._tested(combine.Or((Leaf(meets), combine.Not(Leaf(would_meet)))), asked)
        nominal, alternative = told[meets], told[would_meet]
        effect_bounds = None
        if nominal.bounds is not None and alternative.bounds is not None:
            effect_bounds = alternative.bounds[0] - nominal.bounds[1], alternative.bounds[1] - nominal.bounds[0]
        return self._verdict(
            (nominal, alternative),
            outcome=_outcome(nominal.holds, alternative.holds),
            bounds=alternative.bounds,
            effect=alternative.value - nominal.value,
            effect_bounds=effect_bounds,
            offset=nominal.offset,
        )

    def figure(self, goal: Goal, text: str) -> Verdict:
        """A `=?`."""
        found = estimate(goal, self._draw(goal), span(goal, self._rewards), self._drawn)
        if found.short:
            self._short.append(
                f"{found.samples} samples (sampling.limit) leave a wider interval than sampling.error asks for"
            )
        quantity = self._quantity(goal, text, found)
        return self._verdict((quantity,), value=found.mean, bounds=found.bounds, offset=quantity.offset)

    def _tested(self, tree: Tree, asked: Sequence[Goal]) -> dict[str, Quantity]:
        """Text -> quantity of each goal, tested as strongly as the whole needs it."""
        needed = strengths(tree, Strength(self._drawn.alpha, self._drawn.beta))
        told: dict[str, Quantity] = {}
        for goal in asked:
            text = print_formula(goal)
            if text not in told:
                told[text] = self._test(goal, text, needed[text])
        return told

    def _test(self, goal: Goal, text: str, strength: Strength) -> Quantity:
        """One goal's truth, and the numbers it was seen from."""
        assert goal.test is not None
        within, draw, sampling = span(goal, self._rewards), self._draw(goal), self._drawn.sampling
        negates = goal.test.comparison in ("<", "<=")  # `< theta` is not `>= theta`, and that is what is tested
        if negates:
            strength = strength.negated
        above = given(goal.test, within)
        if above is not None:
            found = settled(draw, within, sampling)
        else:
            found, above = decided(decision(goal, strength, within, self._drawn), draw, within, sampling)
        if above is None:
            near = f"{text} is open after {found.samples} samples (sampling.limit)"
            self._short.append(f"{near}: at about {found.mean:.6g} it is too near its bound")
        return self._quantity(goal, text, found, holds=None if above is None else above != negates)

    def _quantity(self, goal: Goal, text: str, found: Estimate, *, holds: bool | None = None) -> Quantity:
        offset, _, clipped = resolve(goal.world.offset, len(self._path))
        return Quantity(
            text,
            found.mean,
            offset,
            clipped,
            None if found.bounds is None else (float(found.bounds[0]), float(found.bounds[1])),
            None if goal.test is None else goal.test.bound,
            holds,
            samples=found.samples,
            confidence=None if found.bounds is None else 1.0 - self._drawn.sampling.error_alpha,
        )

    def _draw(self, goal: Goal) -> Draw:
        within = span(goal, self._rewards)

        def draw(particles: range) -> Floats:
            values = self._sampler.outcomes(
                goal, self._path, particles, first_seq=self._drawn.first, terminated=self._terminated
            )
            check_outcomes(goal, values, within)
            return values

        return draw

    def _tree(self, formula: Formula) -> Tree:
        """The formula over tests, with what is known already in its place."""
        match formula:
            case Goal():
                return Leaf(print_formula(formula))
            case Const(value):
                return TRUE if value else FALSE
            case Label(name):
                return TRUE if self._rows.holds(name, np.array([self._path[-1][0]]))[0] else FALSE
            case Not(arg):
                return combine.Not(self._tree(arg))
            case And(left, right):
                return combine.And((self._tree(left), self._tree(right)))
            case Or(left, right):
                return combine.Or((self._tree(left), self._tree(right)))
            case Until() | Regret():
                raise AssertionError("the parser keeps these out of Boolean combinations")
            case _:
                assert_never(formula)

    def _verdict(
        self,
        quantities: tuple[Quantity, ...],
        *,
        offset: int,
        value: float | None = None,
        holds: bool | None = None,
        outcome: Outcome | None = None,
        bounds: tuple[float, float] | None = None,
        effect: float | None = None,
        effect_bounds: tuple[float, float] | None = None,
    ) -> Verdict:
        return Verdict(
            "",
            "sampled",
            "gumbel",
            quantities,
            value=value,
            holds=holds,
            outcome=outcome,
            bounds=bounds,
            effect=effect,
            effect_bounds=effect_bounds,
            offset=offset,
            clipped=any(quantity.clipped for quantity in quantities),
            reason="; ".join(self._short),
            drawn=self._drawn,
        )


def _outcome(nominal: bool | None, alternative: bool | None) -> Outcome:  # noqa: FBT001 - two truths
    if nominal:
        return "safe"
    if nominal is None or alternative is None:
        return "undecided"
    return "regret" if alternative else "unavoidable"
