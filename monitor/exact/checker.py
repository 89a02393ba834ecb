"""Answers formulas over one model and its policies, on any number of paths."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from monitor.arrays import Floats
from monitor.exact.evaluators import Evaluators
from monitor.exact.path_values import PathValues, Stepper
from monitor.exact.verdict import IncrementalCheck, Path
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import Goal
from monitor.logic.traversal import goals, largest_offset
from monitor.model import MDP
from monitor.policy import PolicyTable
from monitor.types import CausalModel, Verdict

__all__ = ["Checker"]

WARM_UP = range(3)
"""Pairs of a rehearsal: enough for every loop of the kernel to be entered."""


class Checker:
    """Answers formulas over one model and its policies, keeping what paths and formulas share.

    Args:
        model: the world.
        policies: name -> table; `nominal` is the deployed one.
        models: name -> other dynamics over the same states and actions, for `model:name`.

    Raises:
        ConfigError: no policy is called nominal, or another model has other states or actions.
    """

    def __init__(
        self, model: MDP, policies: Mapping[str, PolicyTable], models: Mapping[str, MDP] | None = None
    ) -> None:
        self.model = model
        self.policies = dict(policies)
        self._worlds = Evaluators(model, policies, models)

    @property
    def models(self) -> Mapping[str, MDP]:
        """The other dynamics, with the main model's labels and rewards."""
        return self._worlds.models

    @property
    def worlds(self) -> Evaluators:
        """What can be asked about."""
        return self._worlds

    @property
    def table_bytes(self) -> int:
        """What the tables of what lies ahead take up: obligations times states, for each law and formula."""
        return self._worlds.table_bytes

    def prepare(self, formula: Formula, causal_model: CausalModel = "gumbel", *, window: int | None = None) -> None:
        """Compute and compile what a formula needs on any path, so that the first message meets nothing cold.

        `window`: pairs a path holds at most; None: no more than the formula looks back.

        Raises LimitError where a table or bounds would be too large: at start, not on the stream.
        """
        for goal, changes, offset in goals(formula):
            steps = offset if offset >= 0 else (window or -offset) - 1
            for change in changes:
                self._worlds.prepare(goal, change)
                if causal_model != "gumbel":
                    self._worlds.prepare_bounds(goal, change, steps)
        window = max(largest_offset(formula) + 1, len(WARM_UP))
        PathValues(self._worlds, formula, window).rehearse(self.some_path(), causal_model)

    def some_path(self) -> Path:
        """A possible path, for rehearsals."""
        pairs, state = [], 0
        for _ in WARM_UP:
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
    ) -> Verdict:
        """Answer a validated formula on a possible path (oldest pair first); see `monitor.check` for the arguments."""
        track = IncrementalCheck(self._worlds, formula, causal_model, text or print_formula(formula), len(path))
        return track.verdict(tuple(path), terminated=terminated, start_observed=start_observed)

    def track(
        self, formula: Formula, causal_model: CausalModel = "gumbel", text: str | None = None, *, window: int
    ) -> IncrementalCheck:
        """Return the check of a validated formula along one path of at most `window` pairs."""
        return IncrementalCheck(self._worlds, formula, causal_model, text or print_formula(formula), window)

    def stepper(self, goal: Goal) -> Stepper:
        """One quantity followed pair by pair, answered at every offset up to its own (@t, t >= 0)."""
        return Stepper(self._worlds, goal)

    def along(self, goal: Goal, pairs: Path) -> Floats:
        """A whole recording in one call.

        Returns:
            [n, t + 1]: after each of the n pairs, the value at every offset up to the goal's; NaN before there is one.
        """
        return Stepper(self._worlds, goal).push_all(pairs)
