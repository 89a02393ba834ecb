"""Both engines over one enumerated model, as a stream needs them."""

from __future__ import annotations

from functools import cached_property

from monitor.engine.sampled_checker import SampledChecker
from monitor.engine.seeding import alone, check_sampling
from monitor.errors import LimitError
from monitor.exact import Checker
from monitor.exact.value_table import is_large
from monitor.logic import Formula
from monitor.sampled import Enumerated
from monitor.types import FormulaSpec, Sampling

__all__ = ["NOT_EXACT", "Engines"]

NOT_EXACT = "sampled, for the exact engine says: "
"""How a verdict's `reason` begins where `auto` could not answer exactly."""


class Engines:
    """The exact engine and the sampled one, over the same model and policies.

    Args:
        checker: answers exactly.
        sampling: how well a sampled answer must be founded; else ConfigError.
    """

    def __init__(self, checker: Checker, sampling: Sampling) -> None:
        self.checker, self.sampling = checker, check_sampling(sampling)

    @cached_property
    def drawer(self) -> SampledChecker:
        """Answers by sampling; made when it is first needed."""
        return SampledChecker(Enumerated(self.checker.evaluators), self.checker.model)

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Make ready what a formula needs, so that the first message meets nothing cold.

        `window`: pairs a path holds at most.

        Returns:
            Whether it will always be sampled, and why, where that is not simply what its user wants.

        Raises:
            LimitError: the engine asked for cannot answer it: at start, not on the stream.
        """
        if spec.engine == "sampled":
            self._rehearse(formula)
            return True, ""
        try:
            self.checker.prepare(formula, spec.causal_model, window=window)
        except LimitError as error:
            if spec.engine == "exact" or spec.causal_model != "gumbel":
                raise
            self._rehearse(formula)
            return True, NOT_EXACT + str(error)
        if spec.engine == "auto" and spec.causal_model == "gumbel" and is_large(self.checker.model):
            self._rehearse_if_it_can(formula)
        return False, ""

    def _rehearse(self, formula: Formula) -> None:
        self.drawer.rehearse(formula, self.checker.some_path(), alone(self.sampling))

    def _rehearse_if_it_can(self, formula: Formula) -> None:
        """A large model may have states from which exact answers reach too far; what samples cannot either, is told."""
        try:
            self._rehearse(formula)
        except LimitError:
            return
