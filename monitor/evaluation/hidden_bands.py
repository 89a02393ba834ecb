"""A learned model with hidden states, or with policies that remember, whose values are computed on drawn models.

Transitions and emissions are drawn together. So each draw has its own belief, which follows from the pairs since the
start of the episode (docs/semantics/hidden.md, section 16.9).
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.errors import LimitError, PathError
from monitor.evaluation.credible import DrawValues, ObservedPath
from monitor.exact.sides import Sides
from monitor.hidden.filtering import Weights
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.hidden.observation_values import ObservedValues
from monitor.logic import Automaton
from monitor.logic.syntax import InterventionRef, Measure
from monitor.model import MDP


class LearnedHidden:
    """A learned model with hidden states, or with policies that remember, as `credible.LearnedModel`.

    `checker`: checker of the learned model, whose policies the draws share.
    """

    def __init__(self, checker: HiddenChecker) -> None:
        self._policies, self.constant = checker.policies, checker.constant
        self.model, self.models = checker.model, checker.models
        self._tables, self._automata = checker.table_bytes, dict[Measure, Automaton]()

    @property
    def table_bytes(self) -> int:
        """Size of the value tables so far."""
        return self._tables()

    def on(self, sides: Sides, models: Mapping[str, MDP]) -> tuple[DrawValues, DrawValues]:
        """As in `LearnedModel`."""
        low, high = (
            _HiddenValues(HiddenChecker(side, self._policies, models, automata=self._automata)) for side in sides
        )
        return low, high


class _HiddenValues:
    """Values on one drawn model. The newest path is kept, so if a path grows, only its new pairs cost time."""

    def __init__(self, checker: HiddenChecker) -> None:
        self._checker = checker
        self._kept: dict[int, tuple[ObservedPath, ObservedValues]] = {}
        self._same: dict[tuple[InterventionRef, Measure], tuple[InterventionRef, Measure]] = {}

    def value(self, change: InterventionRef, measure: Measure, observed: ObservedPath, first: int) -> float:
        """Return the value under an intervention at pair `first`. Raises LimitError if the path is impossible."""
        offset = len(observed.path) - 1 - first
        asked = self._same.setdefault((change, measure), (change, measure))  # values are cached by these objects' ids
        try:
            return self._along(observed, offset).value(*asked, first)
        except PathError as error:
            raise LimitError(f"on a drawn model, {error}") from None

    def _along(self, observed: ObservedPath, offset: int) -> ObservedValues:
        """Return the values along a path, for an intervention at an offset."""
        held, values = self._kept.pop(offset, (None, self._checker.values(offset)))
        path, known = tuple(observed.path), 0
        observed = observed._replace(path=path, acted=tuple(observed.acted))
        if held is not None and _continues(held, observed):
            known = len(held.path)
        if held != observed:
            values.beliefs = self._beliefs(observed, list(values.beliefs[:known]))
            values.terminated = observed.terminated
            values.advance(path, len(path) - known, None, observed.acted)
        self._kept[offset] = observed, values
        return values

    def _beliefs(self, observed: ObservedPath, known: list[Weights]) -> list[Weights]:
        """Return the belief before each pair. `known`: the beliefs before the first pairs."""
        path, acted, at = observed.path, observed.acted, max(len(known) - 1, 0)
        before = known[at] if known else tuple(observed.before) or None
        return known[:at] + self._checker.beliefs(path[at:], acted[at:], before)


def _continues(held: ObservedPath, observed: ObservedPath) -> bool:
    """Return whether a path is longer than another, and begins with it."""
    count = len(held.path)
    return (
        count < len(observed.path)
        and not held.terminated
        and held.before == observed.before
        and held.path == observed.path[:count]
        and held.acted == observed.acted[:count]
    )
