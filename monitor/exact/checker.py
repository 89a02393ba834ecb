"""`Checker`: exact answers over one model and its policies, on any number of paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError
from monitor.exact.avoidable import prepare_recourse, with_recourse
from monitor.exact.evaluators import DELTA, Evaluators
from monitor.exact.path_values import Stepper
from monitor.exact.verdict import IncrementalCheck, Path
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import Goal, Regret
from monitor.logic.traversal import goals, largest_offset
from monitor.model import MDP
from monitor.policy import PolicyTable
from monitor.types import CausalModel, Verdict

SHORT = range(3)
"""Pairs of `Checker.some_path`."""


class Checker:
    """Exact answers to formulas over one model and its policies; keeps what paths and formulas share.

    Args:
        model: the MDP.
        policies: name -> table; `nominal` is the deployed one.
        models: name -> other dynamics over the same states and actions, for `model:name`.
        delta: probability that guaranteed bands on learned models miss, for all answers together.

    Raises:
        ConfigError: no policy is called nominal, another model has other states or actions, or `delta` is not within
            (0, 1).
    """

    def __init__(
        self,
        model: MDP,
        policies: Mapping[str, PolicyTable],
        models: Mapping[str, MDP] | None = None,
        *,
        delta: float = DELTA,
    ) -> None:
        self.model = model
        self.policies = dict(policies)
        self._evaluators = Evaluators(model, policies, models, delta=delta)

    @property
    def models(self) -> Mapping[str, MDP]:
        """The other dynamics, with the main model's labels and rewards."""
        return self._evaluators.models

    @property
    def evaluators(self) -> Evaluators:
        """Evaluators, shared by all formulas of this model."""
        return self._evaluators

    @property
    def table_bytes(self) -> int:
        """Bytes of all value tables: obligations x states, for each law and measure."""
        return self._evaluators.table_bytes

    def prepare(self, formula: Formula, causal_model: CausalModel = "gumbel", *, window: int | None = None) -> None:
        """Compute what a formula needs on any path, so that the first message is not delayed.

        `window`: pairs a path holds at most; None: no more than the formula looks back.

        Raises LimitError if a table or bounds would be too large: at start, not on the stream.
        """
        for goal, changes, offset in goals(formula):
            steps = offset if offset >= 0 else (window or -offset) - 1
            for change in changes:
                self._evaluators.prepare(goal, change)
                if causal_model != "gumbel":
                    self._evaluators.prepare_bounds(goal, change, steps)
        window = window or largest_offset(formula) + 1
        self.products(formula, window)
        rehearsal = IncrementalCheck(self._evaluators, formula, causal_model, "", max(window, len(SHORT)))
        with suppress(LimitError):  # of nested quantities that look back: the stream reports it with each verdict
            rehearsal.verdict(self.some_path())  # what it computes and allocates is shared from now on

    def products(self, formula: Formula, window: int) -> int:
        """Return how many products the decisions that a formula makes for its goal cost at each pair; 0: it makes none.

        `window`: pairs a path holds at most. Raises LimitError if they are too many.
        """
        total = 0
        for goal, changes, offset in goals(formula):
            pairs = offset + 1 if offset >= 0 else window
            for change in changes:
                if change.decides:
                    each = isinstance(formula, Regret)
                    total += self._evaluators.decided_products(change, goal.measure, pairs, each=each)
        return total

    def some_path(self) -> Path:
        """Return a possible path, to prepare what is computed on paths."""
        pairs, state = [], 0
        for _ in SHORT:
            action = int(np.argmax(self.model.available(state)))
            pairs.append((state, action))
            state = int(self.model.row(state, action)[0][0])
        return pairs

    def check(
        self,
        formula: Formula,
        path: Path,
        *,
        causal_model: CausalModel = "gumbel",
        terminated: bool = False,
        start_observed: bool = True,
        text: str | None = None,
        acted: Sequence[str] = (),
        recourse: bool = False,
    ) -> Verdict:
        """Answer a validated formula on a possible path (oldest pair first); see `monitor.check` for the arguments."""
        check = IncrementalCheck(self._evaluators, formula, causal_model, text or print_formula(formula), len(path))
        verdict = check.verdict(tuple(path), terminated=terminated, start_observed=start_observed, acted=acted)
        return self.with_recourse(verdict, formula, path, terminated=terminated, acted=acted) if recourse else verdict

    def with_recourse(
        self,
        verdict: Verdict,
        formula: Formula,
        path: Path,
        *,
        terminated: bool = False,
        acted: Sequence[str] = (),
    ) -> Verdict:
        """Return a verdict on `path`; if it is about a missed goal, with whether that could have been met."""
        return with_recourse(verdict, formula, self._evaluators, path, terminated=terminated, acted=acted)

    def prepare_recourse(self, formula: Formula, causal_model: CausalModel) -> None:
        """Compute and compile what `with_recourse` needs, so that the first missed goal is not delayed."""
        prepare_recourse(formula, self._evaluators, self.some_path(), causal_model)

    def incremental_check(
        self, formula: Formula, causal_model: CausalModel = "gumbel", text: str | None = None, *, window: int
    ) -> IncrementalCheck:
        """Return the check of a validated formula along one path of at most `window` pairs; 0: each is another path."""
        return IncrementalCheck(self._evaluators, formula, causal_model, text or print_formula(formula), window)

    def stepper(self, goal: Goal) -> Stepper:
        """Return one goal to be evaluated pair by pair, at every offset up to its own (@t, t >= 0)."""
        return Stepper(self._evaluators, goal)

    def along(self, goal: Goal, pairs: Path) -> Floats:
        """Evaluate a goal along a whole recording.

        Returns:
            [n, t + 1]: after each of the n pairs, the value at every offset up to the goal's; NaN before there is one.
        """
        return Stepper(self._evaluators, goal).along(pairs)
