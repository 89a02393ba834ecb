"""Both engines over one enumerated model, for streams."""

from __future__ import annotations

from functools import cached_property

from monitor.errors import LimitError
from monitor.evaluation.bands import LearnedBands
from monitor.evaluation.credible import check_band_settings
from monitor.evaluation.sampled_checker import SampledChecker
from monitor.evaluation.seeding import alone, check_sampling
from monitor.exact import Checker
from monitor.exact.value_table import is_large
from monitor.logic import Formula
from monitor.sampled import Enumerated
from monitor.types import BandSettings, FormulaSpec, Sampling

__all__ = ["NOT_EXACT", "Engines", "neither"]

BANDS = BandSettings()
NOT_EXACT = "sampled, because the exact engine refused: "
"""How a verdict's `reason` begins where `auto` could not answer exactly."""


def neither(exact: LimitError, sampled: LimitError) -> LimitError:
    """Return the error of a formula that both engines refuse: the reason of the exact one comes first.

    What the sampled engine advises after its reason is left out: often the exact engine, which has refused.
    """
    return LimitError(f"{exact}; nor by sampling: {str(sampled).partition('; ')[0]}")


class Engines:
    """The exact engine and the sampled one, over the same model and policies.

    Args:
        checker: answers exactly.
        sampling: error rates and limits of a sampled answer; ConfigError if they are not allowed.
        bands: how the credible band of a learned model is computed; likewise.

    `learned`: computes the bands of a learned model; None for a given one.
    """

    def __init__(self, checker: Checker, sampling: Sampling, bands: BandSettings = BANDS) -> None:
        self.checker, self.sampling = checker, check_sampling(sampling)
        check_band_settings(bands)
        self.learned = LearnedBands(checker, bands) if checker.evaluators.learned else None

    @cached_property
    def sampled_checker(self) -> SampledChecker:
        """The sampled engine, made when it is first needed."""
        return SampledChecker(Enumerated(self.checker.evaluators), self.checker.model)

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Prepare what a formula needs, so that the first message is not delayed.

        `window`: pairs a path holds at most.

        Returns:
            True if it will always be sampled, and why; no reason if the user chose sampling.

        Raises:
            LimitError: the requested engine cannot answer it, or `auto` by neither: at start, not on the stream.
        """
        if spec.engine == "sampled":
            self._warm_up(formula)
            return True, ""
        try:
            self.checker.prepare(formula, spec.causal_model, window=window)
        except LimitError as error:
            if spec.engine == "exact" or spec.causal_model != "gumbel":
                raise
            try:
                self._warm_up(formula)
            except LimitError as other:
                raise neither(error, other) from error
            return True, NOT_EXACT + str(error)
        if spec.engine == "auto" and spec.causal_model == "gumbel" and is_large(self.checker.model):
            self._try_to_warm_up(formula)
        if spec.recourse != "off":
            self.checker.prepare_recourse(formula, spec.causal_model)
        if self.learned is not None and spec.bands != "off":
            self.learned.prepare(formula, self.checker.some_path())
        return False, ""

    def _warm_up(self, formula: Formula) -> None:
        self.sampled_checker.warm_up(formula, self.checker.some_path(), alone(self.sampling))

    def _try_to_warm_up(self, formula: Formula) -> None:
        """Warm up for states from which exact answers need too much; where samples fail too, the stream reports it."""
        try:
            self._warm_up(formula)
        except LimitError:
            return
