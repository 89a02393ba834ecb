"""Values over models drawn from the posterior of a learned model: the samples behind a credible band.

A drawn model (`posterior.py`) has the states of the learned model, so policies and automata fit the drawn model. Every
answer on a drawn model is exact. Outcomes that were never observed lead to a state about which nothing is known, so
each draw has a low and a high value. All models are drawn once and shared by all formulas and agents
(docs/semantics/learned-models.md, section 13.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple, Protocol

import numpy as np

from monitor.arrays import Floats
from monitor.causal import CounterfactualWorld
from monitor.errors import ConfigError, LimitError
from monitor.evaluation.posterior import drawn_emissions, drawn_probabilities, opened
from monitor.evaluation.seeding import SEEDS
from monitor.exact.evaluators import Evaluators
from monitor.exact.forward.row_table import RowBudget
from monitor.exact.sides import Sides, both_sides
from monitor.logic import Automaton
from monitor.logic.polarity import split_labels
from monitor.logic.syntax import InterventionRef, Measure, Probability
from monitor.model import MDP
from monitor.model.emissions import Emissions
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


class ObservedPath(NamedTuple):
    """The observed path of a verdict.

    `acted`: names of the policies that acted at its pairs; empty if nominal acted. `before`: the belief before its
    first pair (`monitor.hidden.filtering`); empty if states are seen, or if the episode begins there.
    """

    path: PathPairs
    terminated: bool
    acted: Sequence[str] = ()
    before: Sequence[float] = ()

    def since(self, first: int) -> ObservedPath:
        """Return the part of the path from pair `first` on."""
        return ObservedPath(self.path[first:], self.terminated, self.acted[first:])


class DrawValues(Protocol):
    """Exact values on one drawn model, with the worst or the best case for unknown outcomes."""

    def value(self, change: InterventionRef, measure: Measure, observed: ObservedPath, first: int) -> float:
        """Return the Gumbel-Max value under the intervention `change` at pair `first` of a path."""
        ...


class LearnedModel(Protocol):
    """A learned model with its policies.

    `model`, `models`: the model and other models by name. `table_bytes`: size of its value tables so far.
    """

    @property
    def model(self) -> MDP: ...  # noqa: D102
    @property
    def models(self) -> Mapping[str, MDP]: ...  # noqa: D102
    @property
    def table_bytes(self) -> int: ...  # noqa: D102

    def constant(self, measure: Measure) -> float | None:
        """Return the value of a measure if it is the same on every path, else None."""
        ...

    def on(self, sides: Sides, models: Mapping[str, MDP]) -> tuple[DrawValues, DrawValues]:
        """Return the values on a drawn model in the worst and in the best case. `models`: the drawn other models."""
        ...


class LearnedTable:
    """A learned model whose states are seen, as `LearnedModel`.

    `evaluators`: evaluators of the learned model. The draws share the policies, the budget of cached rows, and the
    automata of these evaluators; automata do not depend on a model.
    """

    def __init__(self, evaluators: Evaluators) -> None:
        self.evaluators, self.constant = evaluators, evaluators.constant
        self.model, self.models = evaluators.model, evaluators.models
        self._budget, self._automata = RowBudget(), dict[Measure, Automaton]()

    @property
    def table_bytes(self) -> int:
        """Size of the value tables so far."""
        return self.evaluators.table_bytes

    def on(self, sides: Sides, models: Mapping[str, MDP]) -> tuple[DrawValues, DrawValues]:
        """As in `LearnedModel`."""
        policies = self.evaluators.policies
        low, high = (
            _TableValues(Evaluators(side, policies, models, self._budget, automata=self._automata)) for side in sides
        )
        return low, high


class _TableValues(NamedTuple):
    evaluators: Evaluators

    def value(self, change: InterventionRef, measure: Measure, observed: ObservedPath, first: int) -> float:
        evaluators = self.evaluators
        path, terminated, acted, _ = observed.since(first)  # the value does not depend on earlier pairs
        end = path[-1][0] if terminated else None
        ended = None if end is None or evaluators.stays(end) else end
        nominal = evaluators.nominal(ended, until=len(path) - 1, acted=acted)
        world = CounterfactualWorld.at(path, 0, nominal, evaluators.intervention(change, ended), evaluators.rows)
        return evaluators.value(world, measure)


class PosteriorValues:
    """Exact values over M drawn models.

    Args:
        learned: the learned model.
        settings: number of draws, seed and level.
    """

    def __init__(self, learned: LearnedModel, settings: BandSettings) -> None:
        self._learned, self.settings = learned, settings
        self._split: dict[Measure, Measure] = {}

    @cached_property
    def draws(self) -> list[tuple[DrawValues, DrawValues]]:
        """The values on the drawn models, in the worst and in the best case. They are made when they are first needed.

        Raises LimitError if all drawn models together would be too large.
        """
        given, settings = self._learned, self.settings
        models = {"": given.model, **{name: given.models[name] for name in sorted(given.models)}}
        wide = {name: opened(model) for name, model in models.items()}
        size = settings.draws * sum(wide[name].probabilities.size for name, m in models.items() if m.counts is not None)
        emissions = drawn_emissions(given.model.emissions, self._generator(len(models)))
        shown = next(emissions)
        if shown is not None and shown is not given.model.emissions:
            size += settings.draws * shown.probabilities.size
        if size > MAX_DRAWN:
            raise LimitError(
                f"{settings.draws} posterior models have {size:,} probabilities (limit MAX_DRAWN, {MAX_DRAWN:,}); "
                "draw fewer models"
            )
        streams = {
            name: drawn_probabilities(model, self._generator(number))
            for number, (name, model) in enumerate(models.items())
        }
        there, unknown = unknown_states(*models.values()), unknown_labels(*models.values())
        sides = both_sides(wide.pop(""), there, unknown)
        every = islice(chain([shown], emissions), settings.draws)
        return [self._drawn(sides, wide, streams, each) for each in every]

    def _generator(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self.settings.seed, number))

    def values(self, change: InterventionRef, measure: Measure, observed: ObservedPath, first: int = 0) -> Samples:
        """Return the Gumbel-Max values under the intervention `change` at pair `first` of a path.

        Raises LimitError if the value tables would be too large, if a nested quantity has no worst and best case, or if
        the intervention makes decisions for the goal.
        """
        if change.decides:
            raise LimitError(f"{change.name} is not evaluated on posterior models: each would need tables of its own")
        constant = self._learned.constant(measure)
        if constant is not None:
            return Samples(*np.full((2, self.settings.draws), constant))
        if isinstance(measure, Probability) and measure not in self._split:
            self._split[measure] = Probability(split_labels(measure.path))
        given = change, self._split.get(measure, measure), observed, first
        pairs = [[side.value(*given) for side in drawn] for drawn in self._affordable()]
        return Samples(*np.array(pairs).T)

    def _affordable(self) -> Sequence[tuple[DrawValues, DrawValues]]:
        size = self._learned.table_bytes * len(Sides._fields) * self.settings.draws
        if size > MAX_TABLES:
            raise LimitError(
                f"the value tables of {self.settings.draws} posterior models have {size >> 20} MiB (limit MAX_TABLES); "
                "draw fewer models, or shorten the formula's intervals"
            )
        return self.draws

    def _drawn(
        self,
        sides: Sides,
        others: Mapping[str, MDP],
        streams: Mapping[str, Iterator[Floats]],
        emissions: Emissions | None,
    ) -> tuple[DrawValues, DrawValues]:
        """Return the values on one draw."""
        rows = {name: next(stream) for name, stream in streams.items()}
        models = {name: replace(other, probabilities=rows[name]) for name, other in others.items()}
        low, high = (replace(side, probabilities=rows[""], emissions=emissions) for side in sides)
        return self._learned.on(Sides(low, high), models)
