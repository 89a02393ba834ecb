"""`Checker`: exact verdicts on formulas over one model and its policies, for any number of paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError
from monitor.exact.avoidable import prepare_recourse, with_recourse
from monitor.exact.evaluators import DELTA, Evaluators
from monitor.exact.path_values import Stepper
from monitor.exact.verdict import IncrementalCheck
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import Goal, Regret
from monitor.logic.traversal import goals, largest_offset
from monitor.model import MDP
from monitor.policy import PolicyTable
from monitor.types.specs import CausalModel
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import Verdict

SHORT = range(3)
"""Has one element for each pair of `Checker.some_path`."""


class Checker:
    """Exact verdicts on formulas over one model and its policies. Caches the data that paths and formulas share.

    Args:
        model: the MDP.
        policies: name -> table; `nominal` is the deployed policy.
        models: name -> other dynamics over the same states and actions, for `model:name`.
        delta: probability that any guaranteed band on learned models misses its value, for all verdicts together.

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
        """Compute in advance the tables that a formula needs on any path, so that the first message is not delayed.

        `window`: the largest number of pairs of a path; None for as many as the formula looks back.

        Raises LimitError if a table or bounds would be too large, so that this error occurs before the stream begins.
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
        with suppress(LimitError):  # if nested quantities look back, each verdict reports this error
            rehearsal.verdict(self.some_path())  # later verdicts share the tables and buffers

    def products(self, formula: Formula, window: int) -> int:
        """Return the number of multiplications per pair that `best` and `optimal` decisions of a formula need.

        The number is 0 if the formula has no such decisions. `window`: the largest number of pairs of a path. Raises
        LimitError if there are too many multiplications.
        """
        total = 0
        for goal, changes, offset in goals(formula):
            pairs = offset + 1 if offset >= 0 else window
            for change in changes:
                if change.decides:
                    each = isinstance(formula, Regret)
                    total += self._evaluators.decided_products(change, goal.measure, pairs, each=each)
        return total

    def some_path(self) -> PathPairs:
        """Return a possible path, on which `prepare` evaluates formulas."""
        pairs, state = [], 0
        for _ in SHORT:
            action = int(np.argmax(self.model.available(state)))
            pairs.append((state, action))
            state = int(self.model.row(state, action)[0][0])
        return pairs

    def check(
        self,
        formula: Formula,
        path: PathPairs,
        *,
        causal_model: CausalModel = "gumbel",
        terminated: bool = False,
        start_observed: bool = True,
        text: str | None = None,
        acted: Sequence[str] = (),
        recourse: bool = False,
    ) -> Verdict:
        """Return the verdict of a validated formula on a possible path (oldest pair first).

        See `monitor.check` for the arguments.
        """
        check = IncrementalCheck(self._evaluators, formula, causal_model, text or print_formula(formula), len(path))
        verdict = check.verdict(tuple(path), terminated=terminated, start_observed=start_observed, acted=acted)
        return self.with_recourse(verdict, formula, path, terminated=terminated, acted=acted) if recourse else verdict

    def with_recourse(
        self,
        verdict: Verdict,
        formula: Formula,
        path: PathPairs,
        *,
        terminated: bool = False,
        acted: Sequence[str] = (),
    ) -> Verdict:
        """Add to a verdict on a missed goal whether other decisions could have met the goal.

        Any other verdict is returned unchanged.
        """
        return with_recourse(verdict, formula, self._evaluators, path, terminated=terminated, acted=acted)

    def prepare_recourse(self, formula: Formula, causal_model: CausalModel) -> None:
        """Compute in advance the tables that `with_recourse` needs, so that the first missed goal is not delayed."""
        prepare_recourse(formula, self._evaluators, self.some_path(), causal_model)

    def incremental_check(
        self, formula: Formula, causal_model: CausalModel = "gumbel", text: str | None = None, *, window: int
    ) -> IncrementalCheck:
        """Return the check of a validated formula along one path of at most `window` pairs.

        With `window` 0 every verdict is about a new path, so nothing is kept between verdicts.
        """
        return IncrementalCheck(self._evaluators, formula, causal_model, text or print_formula(formula), window)

    def stepper(self, goal: Goal) -> Stepper:
        """Return a stepper that evaluates a goal pair by pair, at every offset up to the goal's own (@t, t >= 0)."""
        return Stepper(self._evaluators, goal)

    def along(self, goal: Goal, pairs: PathPairs) -> Floats:
        """Evaluate a goal along a whole recording.

        Returns:
            [n, t + 1]: the value after each of the n pairs, at every offset up to the goal's; NaN if the path is too
            short for the offset.
        """
        return Stepper(self._evaluators, goal).along(pairs)
