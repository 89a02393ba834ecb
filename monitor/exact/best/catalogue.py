"""Values of the best decisions for all measures on one model. Tables are computed once and shared by all paths."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, Protocol

from monitor.arrays import AnyArray, Floats
from monitor.exact.best.lanes import DecisionRule
from monitor.exact.best.layouts import NEVER, ObligationLayouts
from monitor.exact.best.options import Options, options_of
from monitor.exact.best.posteriors import Transitions
from monitor.exact.best.prior import NO_STATE, Prior
from monitor.exact.best.values import BestValues, Observed
from monitor.exact.forward.row_table import ANY, STABLE
from monitor.logic import Automaton
from monitor.logic.syntax import InterventionRef, Measure
from monitor.model import MDP
from monitor.policy import PolicyTable

MAX_MEASURES = 64
"""Largest number of measures whose tables are cached. A measure counts once for each direction (maximise or minimise)
and each state in which an episode has ended."""


class Source(Protocol):
    """Source of the automata, label sets and nominal values that the catalogue needs."""

    def automaton(self, measure: Measure) -> Automaton:
        """Return the automaton of a measure."""
        ...

    def label_sets(self, measure: Measure) -> AnyArray:
        """Return the label set of every state [S] for the automaton of a measure."""
        ...

    def nominal_values(self, measure: Measure, end: int | None, obligation: int) -> Floats:
        """Return the values [S] of an obligation under the nominal policy.

        `end`: the state in which the episode has ended; None if the episode continues.
        """
        ...


class BestCatalogue:
    """Evaluator of the best decisions on one model.

    Args:
        model: the MDP, whose rows and rewards are used.
        nominal: the deployed policy.
        source: provides the automata and the nominal values.
    """

    def __init__(self, model: MDP, nominal: PolicyTable, source: Source) -> None:
        self._model, self._nominal, self._source = model, nominal, source
        self._rows: tuple[Options, Transitions] | None = None
        self._known: OrderedDict[tuple[Measure, bool, int | None], BestValues] = OrderedDict()

    def value(self, change: InterventionRef, measure: Measure, path: Observed) -> float:
        """Return the Gumbel-Max value of a measure from the first pair on, with the decisions of an intervention.

        Raises LimitError if the tables would be too large.
        """
        return self.of(measure, path.end, largest=change.largest).value(path, _rule(change))

    def profile(self, change: InterventionRef, measure: Measure, path: Observed) -> Floats:
        """Return the values [L] from each pair of a path on. Raises LimitError as `value` does."""
        return self.of(measure, path.end, largest=change.largest).profile(path, _rule(change))

    def products(self, change: InterventionRef, measure: Measure, pairs: int, *, each: bool) -> int:
        """Return the number of multiplications on a path of `pairs` pairs for `value` or, with `each`, for `profile`.

        Raises LimitError if some path of this length would need tables that are too large.
        """
        return self.of(measure, largest=change.largest).products(pairs, _rule(change), each=each)

    def interval(
        self, change: InterventionRef, measure: Measure, path: Observed, causal_model: Literal["any", "stable"]
    ) -> tuple[float, float]:
        """Return the bounds of the value over a class of causal models. Raises LimitError as `value` does."""
        kind = STABLE if causal_model == "stable" else ANY
        return self.of(measure, path.end, largest=change.largest).interval(path, _rule(change), kind)

    def everywhere(self, change: InterventionRef, measure: Measure) -> Floats:
        """Return the value [S] in every state, without observations. Raises LimitError as `value` does."""
        return self.of(measure, largest=change.largest).everywhere(_rule(change))

    def of(self, measure: Measure, end: int | None = None, *, largest: bool = True) -> BestValues:
        """Return the `BestValues` of a measure without nested quantities; `largest`: whether decisions maximise it."""
        key = measure, largest, end
        if key not in self._known:
            if self._rows is None:
                options = options_of(self._model, self._nominal)
                self._rows = options, Transitions(options)
            options, transitions = self._rows
            state = NO_STATE if end is None else end
            layouts = ObligationLayouts(self._source.automaton(measure), self._source.label_sets(measure))

            def nominal(obligation: int) -> Floats:
                return self._source.nominal_values(measure, end, obligation)

            prior = Prior(options, layouts, nominal, state, largest=largest)
            self._known[key] = BestValues(options, transitions, self._nominal, layouts, prior, state)
            if len(self._known) > MAX_MEASURES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


def _rule(change: InterventionRef) -> DecisionRule:
    """Return the rule by which an intervention makes decisions."""
    if change.kind == "optimal":
        return DecisionRule("optimal")
    if change.limit is not None:
        return DecisionRule("few", change.limit)
    return DecisionRule("free", until=NEVER if change.steps is None else change.steps)
