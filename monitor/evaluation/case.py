"""Test one formula on one path with one noise, and make the verdict from the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import assert_never

import numpy as np
from msgspec.structs import replace

from monitor.arrays import Floats
from monitor.evaluation.procedures import (
    DRAWS,
    NESTED_DRAWS,
    NESTED_LIMIT,
    Draw,
    SampledMean,
    check_outcomes,
    decided,
    decided_by_range,
    decision,
    estimate,
    first_look,
    span,
    summary,
)
from monitor.exact.verdict import regret_outcome, resolve
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import And, Const, Goal, Label, Not, Or, Regret, Temporal
from monitor.logic.traversal import goals, regret_goals
from monitor.sampled.handover import ERROR, TooLate
from monitor.sampled.sampler import AnyPath, AnyQuestion, Sampler
from monitor.statistics import combine
from monitor.statistics.combine import Leaf, Tree, evaluate, strengths
from monitor.statistics.strength import Strength
from monitor.types.verdicts import Drawn, Outcome, Quantity, Verdict

TRUE, FALSE = combine.Conjunction(()), combine.Disjunction(())
"""Known truth values, which need no test and no share of the error rates."""


class Case:
    """One formula on one path. Every quantity is sampled with the same noise, particle by particle.

    Args:
        sampler: sampler with this verdict's seed.
        rewards: smallest and largest reward of a step, if known.
        path: pairs (state, action), oldest first.
        drawn: settings, and error rates of the test of the whole formula.
        terminated: whether the episode has ended in the last state.
        acted: names of the policies that acted at the pairs; empty if nominal acted at all pairs.
        spare: do not sample a quantity that is the same in all samples; its value is exact.
    """

    def __init__(
        self,
        sampler: Sampler,
        rewards: tuple[float, float] | None,
        path: AnyPath,
        drawn: Drawn,
        *,
        terminated: bool,
        spare: bool = False,
        acted: Sequence[str] = (),
    ) -> None:
        self._sampler, self._rewards, self._path = sampler, rewards, path
        self._drawn, self._terminated, self._spare, self._acted = drawn, terminated, spare, acted
        self._short: list[str] = []
        self._questions: dict[Goal, AnyQuestion] = {}

    def plain(self, formula: Formula) -> Verdict:
        """Return the verdict of a Boolean combination.

        With several quantities, the verdict has the offset of the last quantity.
        """
        tree = self._tree(formula)
        tested = self._tested(tree, [goal for goal, _, _ in goals(formula)])
        holds = evaluate(tree, {quantity.text: quantity.holds for quantity in tested.values()})
        quantities = tuple((tested if holds else self._drawn_on(tested)).values())
        return self._verdict(
            quantities,
            holds=holds,
            bounds=quantities[0].bounds if len(quantities) == 1 else None,
            offset=quantities[-1].offset if quantities else 0,
        )

    def regret(self, formula: Regret) -> Verdict:
        """Return the verdict of `regret` (docs/semantics/regret.md, section 8).

        The tested hypothesis is that the outcome is not *regret*: `nominal meets the goal or the alternative does not`.
        So alpha is the probability of a false *regret*. The bounds of the effect come from two intervals, so they fail
        with at most twice the probability of one interval.
        """
        pair = regret_goals(formula)
        meets, would_meet = (self._tree(one) for one in pair)
        tested = self._tested(combine.Disjunction((meets, combine.Negation(would_meet))), pair)
        if not tested[pair[0]].holds:
            tested = self._drawn_on(tested)
        nominal, alternative = (tested[one] for one in pair)
        ends, others = _interval(nominal), _interval(alternative)
        effect_bounds = None
        if ends is not None and others is not None and self._was_drawn(nominal, alternative):
            effect_bounds = others[0] - ends[1], others[1] - ends[0]
        return self._verdict(
            (nominal, alternative),
            outcome=regret_outcome(nominal.holds, alternative.holds),
            bounds=alternative.bounds,
            effect=alternative.value - nominal.value,
            effect_bounds=effect_bounds,
            offset=nominal.offset,
        )

    def value(self, goal: Goal, text: str) -> Verdict:
        """Return the verdict of a query with `=?`."""
        if (certain := self._certain(goal)) is not None:
            quantity = self._quantity(goal, text, SampledMean(certain, 0, None))
            return self._verdict((quantity,), value=certain, offset=quantity.offset)
        within, drawn = span(goal, self._rewards), self._limited(goal)
        found = estimate(goal, self._draw(goal), within, drawn)
        if self._is_nested(goal):
            found = between(found, estimate(goal, self._draw(goal, most=True), within, drawn))
        if found.short:
            self._short.append(
                f"{found.samples} samples ({self._limit_of(goal)}) leave a wider interval than sampling.error asks for"
            )
        quantity = self._quantity(goal, text, found)
        return self._verdict((quantity,), value=found.mean, bounds=found.bounds, offset=quantity.offset)

    def _tested(self, tree: Tree, queried: Sequence[Goal]) -> dict[Goal, Quantity]:
        """Return the quantity of each goal, each tested at the error rates that the whole formula needs."""
        needed = strengths(tree, Strength(self._drawn.alpha, self._drawn.beta))
        texts = {goal: print_formula(goal) for goal in queried}
        return {goal: self._test(goal, text, needed.get(text)) for goal, text in texts.items()}

    def _drawn_on(self, tested: Mapping[Goal, Quantity]) -> dict[Goal, Quantity]:
        """Return quantities with the tests' truth values, and with means of at least `DRAWS` samples for readers.

        A test ends when the mean of its samples is far from the bound. So on average this mean is too far from the
        bound, and readers need a mean of more samples.
        """
        found = dict(tested)
        for goal, quantity in tested.items():
            count = min(NESTED_DRAWS if self._is_nested(goal) else DRAWS, self._drawn.sampling.limit)
            if 0 < quantity.samples < count:
                mean = self._mean_of(goal, count)
                found[goal] = self._quantity(goal, quantity.text, mean, holds=quantity.holds)
        return found

    def _test(self, goal: Goal, text: str, strength: Strength | None) -> Quantity:
        """Test one goal; return its truth value and numbers. `strength`: None if no test is needed."""
        assert goal.test is not None
        if strength is None:
            certain = self._certain(goal)
            assert certain is not None
            return self._quantity(goal, text, SampledMean(certain, 0, None), holds=goal.test.holds(certain))
        within, draw, sampling = span(goal, self._rewards), self._draw(goal), self._drawn.sampling
        negates = goal.test.comparison in ("<", "<=")  # `< theta` is the negation of `>= theta`, which is tested
        if negates:
            strength = strength.negated
        above = decided_by_range(goal.test, within)
        if above is not None:
            found = first_look(draw, within, sampling)
        elif self._is_nested(goal):
            found, above = self._test_between(goal, strength)
        else:
            found, above = decided(decision(goal, strength, within, self._drawn), draw, within, sampling)
        if above is None:
            near = f"{text} is open after {found.samples} samples ({self._limit_of(goal)})"
            self._short.append(f"{near}: at about {found.mean:.6g} it is too near its bound")
        return self._quantity(goal, text, found, holds=None if above is None else above != negates)

    def _test_between(self, goal: Goal, strength: Strength) -> tuple[SampledMean, bool | None]:
        """Test a goal whose samples have a least and a greatest outcome. A value must pass the bound by `ERROR`."""
        within, drawn, samples = span(goal, self._rewards), self._limited(goal), 0
        assert goal.test is not None
        for wanted, apart in ((True, ERROR), (False, -ERROR)):
            test = dataclasses.replace(goal.test, bound=goal.test.bound + apart)
            farther = dataclasses.replace(goal, test=test)
            if decided_by_range(test, within) is not None:
                continue
            draw = self._draw(goal, most=not wanted)
            found, above = decided(decision(farther, strength, within, drawn), draw, within, drawn.sampling)
            samples = max(samples, found.samples)
            if above is wanted:
                return self._mean_of(goal, samples), wanted
        return self._mean_of(goal, max(samples, 1)), None

    def _mean_of(self, goal: Goal, count: int) -> SampledMean:
        """Return the mean of `count` samples, with a confidence sequence."""
        within, sampling = span(goal, self._rewards), self._drawn.sampling
        least = summary(self._draw(goal)(range(count)), within, sampling)
        if not self._is_nested(goal):
            return least
        return between(least, summary(self._draw(goal, most=True)(range(count)), within, sampling))

    def _is_nested(self, goal: Goal) -> bool:
        return isinstance(self._question(goal), TooLate)

    def _limited(self, goal: Goal) -> Drawn:
        """Return the settings with the goal's limit of samples."""
        sampling = self._drawn.sampling
        limit = min(sampling.limit, NESTED_LIMIT) if self._is_nested(goal) else sampling.limit
        return replace(self._drawn, sampling=replace(sampling, limit=limit))

    def _limit_of(self, goal: Goal) -> str:
        """Return the name of the goal's limit of samples."""
        return "sampling.limit" if self._limited(goal) == self._drawn else "limit NESTED_LIMIT"

    def _quantity(self, goal: Goal, text: str, found: SampledMean, *, holds: bool | None = None) -> Quantity:
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

    def _question(self, goal: Goal) -> AnyQuestion:
        if goal not in self._questions:
            self._questions[goal] = self._sampler.question(
                goal, self._path, first_seq=self._drawn.first, terminated=self._terminated, acted=self._acted
            )
        return self._questions[goal]

    def _certain(self, goal: Goal) -> float | None:
        """Return the value of a goal that needs no samples; None if it needs samples."""
        return self._question(goal).certain if self._spare else None

    def _draw(self, goal: Goal, *, most: bool = False) -> Draw:
        """Return a function that samples outcomes.

        `most`: sample greatest outcomes, if a goal has a least and a greatest.
        """
        within, question = span(goal, self._rewards), self._question(goal)

        def draw(particles: range) -> Floats:
            outcomes = question.most if most and isinstance(question, TooLate) else question.outcomes
            values = outcomes(particles)
            check_outcomes(goal, values, within)
            return values

        return draw

    def _tree(self, formula: Formula) -> Tree:
        """Return the formula as a tree of tests and known truth values."""
        match formula:
            case Goal(test=test):
                certain = self._certain(formula)
                if certain is None:
                    return Leaf(print_formula(formula))
                assert test is not None
                return TRUE if test.holds(certain) else FALSE
            case Const(value):
                return TRUE if value else FALSE
            case Label(name):
                return TRUE if self._sampler.scene.holds(name, np.array([self._path[-1][0]]))[0] else FALSE
            case Not(arg):
                return combine.Negation(self._tree(arg))
            case And(left, right):
                return combine.Conjunction((self._tree(left), self._tree(right)))
            case Or(left, right):
                return combine.Disjunction((self._tree(left), self._tree(right)))
            case Temporal() | Regret():
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
        drawn = self._was_drawn(*quantities)
        return Verdict(
            "",
            "sampled" if drawn else "exact",
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
            drawn=self._drawn if drawn else None,
        )

    def _was_drawn(self, *quantities: Quantity) -> bool:
        return not self._spare or any(quantity.samples for quantity in quantities)


def between(least: SampledMean, most: SampledMean) -> SampledMean:
    """Return the estimate of a probability in [0, 1] whose samples have a least and a greatest outcome."""
    assert least.bounds is not None
    assert most.bounds is not None
    ends = max(least.bounds[0] - ERROR, 0.0), min(most.bounds[1] + ERROR, 1.0)
    return SampledMean((least.mean + most.mean) / 2.0, least.samples, ends, least.short or most.short)


def _interval(quantity: Quantity) -> tuple[float, float] | None:
    """Return an interval that contains a quantity; for an exact quantity, its value twice."""
    return quantity.bounds if quantity.samples else (quantity.value, quantity.value)
