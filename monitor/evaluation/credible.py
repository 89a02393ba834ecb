"""Values over models drawn from the posterior of a learned model: the samples behind a credible band.

A drawn model (`posterior.py`) has the states of the learned model, so policies and automata fit the drawn model, and
every answer on a drawn model is exact. Outcomes that were never observed lead to a state of which nothing is known, so
each draw has a low and a high value. All models are drawn once and shared by all formulas and agents
(docs/semantics.md, section 13.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats
from monitor.causal import CounterfactualWorld
from monitor.errors import ConfigError, LimitError
from monitor.evaluation.posterior import drawn_probabilities, opened
from monitor.evaluation.seeding import SEEDS
from monitor.exact.evaluators import Evaluators
from monitor.exact.forward.row_table import RowBudget
from monitor.exact.sides import Sides, both_sides
from monitor.logic import Automaton
from monitor.logic.polarity import split_labels
from monitor.logic.syntax import InterventionRef, Measure, Probability
from monitor.model import MDP
from monitor.model.unknown import unknown_labels, unknown_states
from monitor.types.specs import BandSettings
from monitor.types.stream_events import PathPairs

MAX_DRAWS = 10_000
"""Maximum number of models drawn from the posterior."""
MAX_DRAWN = 16_000_000
"""Maximum total number of probabilities of all drawn models: 128 MB."""
MAX_TABLES = 512 << 20
"""Maximum total bytes of the value tables of all drawn models."""


def check_band_settings(settings: BandSettings) -> BandSettings:
    """Return the settings. Raises ConfigError if the draws are too few for the level."""
    if not (isinstance(settings.draws, int) and settings.draws <= MAX_DRAWS):
        raise ConfigError(f"bands.draws counts models, at most {MAX_DRAWS:,}, not {settings.draws}")
    if not (isinstance(settings.seed, int) and 0 <= settings.seed < SEEDS):
        raise ConfigError(f"bands.seed must be a whole number from 0 to 2**53 - 1, not {settings.seed}")
    if not 0.0 < settings.level < 1.0:
        raise ConfigError(f"bands.level must lie strictly between 0 and 1, not {settings.level:g}")
    fewest = _fewest(settings.level)
    if settings.draws < fewest:
        raise ConfigError(
            f"bands.draws: {settings.draws} models do not have quantiles at level {settings.level:g}; "
            f"draw at least {fewest}, or lower bands.level"
        )
    return settings


def _fewest(level: float) -> int:
    """Return the smallest number of draws for which the outer quantiles lie between the extremes."""
    return int(np.ceil(2.0 / (1.0 - level) - 1.0 - 1e-9))


class Samples(NamedTuple):
    """The least and the greatest value [M] on each drawn model."""

    low: Floats
    high: Floats

    def minus(self, other: Samples) -> Samples:
        """Return the differences.

        The unknown outcomes in one world may differ from the unknown outcomes in the other.
        """
        return Samples(self.low - other.high, self.high - other.low)

    def band(self, level: float) -> tuple[float, float]:
        """Return the equal-tailed band, from a quantile of the least values to a quantile of the greatest.

        The ends are Weibull quantiles, at positions p (M + 1) of the order statistics. If low and high values agree,
        the value on one more drawn model lies in the band with probability `level`.
        """
        tail = (1.0 - level) / 2.0
        low = float(np.quantile(self.low, tail, method="weibull"))
        return low, float(np.quantile(self.high, 1.0 - tail, method="weibull"))


class DrawnModel(NamedTuple):
    """The evaluators of one drawn model, with the worst and the best case for unknown outcomes."""

    low: Evaluators
    high: Evaluators


class SharedByDraws(NamedTuple):
    """State shared by all draws: the budget of cached rows, and the automata, which depend on no model."""

    budget: RowBudget
    automata: dict[Measure, Automaton]


class PosteriorValues:
    """Exact values over M drawn models.

    Args:
        evaluators: evaluators of the learned model, whose policies the draws share.
        settings: number of draws, seed and level.
    """

    def __init__(self, evaluators: Evaluators, settings: BandSettings) -> None:
        self._evaluators, self.settings = evaluators, settings

    @cached_property
    def draws(self) -> list[DrawnModel]:
        """The evaluators of the drawn models, made when they are first needed.

        Raises LimitError if all drawn models together would be too large.
        """
        given, settings = self._evaluators, self.settings
        models = {"": given.model, **{name: given.models[name] for name in sorted(given.models)}}
        wide = {name: opened(model) for name, model in models.items()}
        size = settings.draws * sum(wide[name].probabilities.size for name, m in models.items() if m.counts is not None)
        if size > MAX_DRAWN:
            raise LimitError(
                f"{settings.draws} posterior models have {size:,} probabilities (limit MAX_DRAWN, {MAX_DRAWN:,}); "
                "draw fewer models"
            )
        streams = {
            name: drawn_probabilities(model, np.random.default_rng((settings.seed, number)))
            for number, (name, model) in enumerate(models.items())
        }
        there, unknown = unknown_states(*models.values()), unknown_labels(*models.values())
        sides, shared = both_sides(wide.pop(""), there, unknown), SharedByDraws(RowBudget(), {})
        return [self._drawn(sides, wide, streams, shared) for _ in range(settings.draws)]

    def values(
        self, change: InterventionRef, measure: Measure, path: PathPairs, *, terminated: bool, acted: Sequence[str] = ()
    ) -> Samples:
        """Return the Gumbel-Max values under the intervention `change` at the path's first pair.

        `acted`: names of the policies that acted at the pairs; empty if nominal acted.

        Raises LimitError if their value tables would be too large, if a nested quantity has no worst and best case, or
        if the intervention makes decisions for the goal.
        """
        if change.decides:
            raise LimitError(f"{change.name} is not evaluated on posterior models: each would need tables of its own")
        end = path[-1][0] if terminated else None
        constant = self._evaluators.constant(measure)
        if constant is not None:
            return Samples(*np.full((2, self.settings.draws), constant))
        if isinstance(measure, Probability):
            measure = Probability(split_labels(measure.path))
        given = change, measure, path, end, acted
        pairs = [[_value(side, *given) for side in drawn] for drawn in self._affordable()]
        return Samples(*np.array(pairs).T)

    def _affordable(self) -> Sequence[DrawnModel]:
        size = self._evaluators.table_bytes * len(DrawnModel._fields) * self.settings.draws
        if size > MAX_TABLES:
            raise LimitError(
                f"the value tables of {self.settings.draws} posterior models have {size >> 20} MiB (limit MAX_TABLES); "
                "draw fewer models, or shorten the formula's intervals"
            )
        return self.draws

    def _drawn(
        self, sides: Sides, others: Mapping[str, MDP], streams: Mapping[str, Iterator[Floats]], shared: SharedByDraws
    ) -> DrawnModel:
        """Return the evaluators of one draw."""
        rows = {name: next(stream) for name, stream in streams.items()}
        models = {name: replace(other, probabilities=rows[name]) for name, other in others.items()}
        policies = self._evaluators.policies
        drawn = (replace(side, probabilities=rows[""]) for side in sides)
        return DrawnModel(*(Evaluators(m, policies, models, shared.budget, automata=shared.automata) for m in drawn))


def _value(  # noqa: PLR0917 - the evaluators, and what the value is a function of
    evaluators: Evaluators,
    change: InterventionRef,
    measure: Measure,
    path: PathPairs,
    end: int | None,
    acted: Sequence[str],
) -> float:
    """Return the value under the intervention `change` at the first pair of a path.

    `end`: the state in which the path terminated, if it did.
    """
    ended = None if end is None or evaluators.stays(end) else end
    nominal = evaluators.nominal(ended, until=len(path) - 1, acted=acted)
    world = CounterfactualWorld.at(path, 0, nominal, evaluators.intervention(change, ended), evaluators.rows)
    return evaluators.value(world, measure)
