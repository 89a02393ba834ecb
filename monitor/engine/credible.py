"""Values over models drawn from the posterior of a learned model: the samples behind a credible band.

Each learned row is drawn from its Dirichlet posterior, of which the model's row is the mean; given rows stay. A drawn
model has the same support, so policies, labels and automata fit it, and every answer on it is exact. All draws are made
once and shared by all formulas and agents (docs/semantics.md, section 13.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from monitor.arrays import Floats
from monitor.causal import World
from monitor.engine.seeding import SEEDS
from monitor.errors import ConfigError, LimitError
from monitor.exact.evaluators import Evaluators
from monitor.exact.forward.row_table import Budget
from monitor.exact.verdict import Path
from monitor.logic.syntax import Change, Probability, Reward
from monitor.model import MDP
from monitor.model.rows import frozen
from monitor.types import BandSettings

__all__ = ["MAX_DRAWN", "MAX_TABLES", "PosteriorValues", "band_of", "check_band_settings", "posterior_draws"]

MAX_DRAWS = 10_000
"""Most models drawn from the posterior."""
MAX_DRAWN = 16_000_000
"""Probabilities of all drawn models together: 128 MB."""
MAX_TABLES = 512 << 20
"""Bytes of the value tables of all drawn models together."""

Measure = Probability | Reward


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
    """Return the fewest draws of which the outer quantiles lie between the extremes."""
    return int(np.ceil(2.0 / (1.0 - level) - 1.0 - 1e-9))


def band_of(values: Floats, level: float) -> tuple[float, float]:
    """Return the equal-tailed band of values [M] over posterior models.

    Its ends are the Weibull quantiles, at positions p (M + 1) of the order statistics: a further draw lies inside
    with probability `level`.
    """
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail], method="weibull").tolist()
    return low, high


def posterior_draws(model: MDP, rng: np.random.Generator) -> Iterator[MDP]:
    """Yield models drawn from the posterior of a learned model, without end; a given model yields itself."""
    counts = model.counts
    if counts is None:
        while True:
            yield model
    sizes = np.diff(model.indptr)
    learned = np.repeat(counts.order > 0, sizes)
    at = np.flatnonzero(learned)
    rows = np.flatnonzero(counts.order > 0)
    of = np.repeat(np.arange(len(rows)), sizes[rows])
    shape = counts.visits[at] + counts.prior / sizes[rows][of]
    while True:
        masses = rng.standard_gamma(shape)
        probabilities = model.probabilities.copy()
        probabilities[at] = masses / np.bincount(of, masses, len(rows))[of]
        yield replace(model, probabilities=frozen(probabilities), counts=None)


class PosteriorValues:
    """Exact values over M drawn models.

    Args:
        evaluators: of the learned model, whose policies the draws share.
        settings: number of draws, seed and level.
    """

    def __init__(self, evaluators: Evaluators, settings: BandSettings) -> None:
        self._evaluators, self.settings = evaluators, settings

    @cached_property
    def draws(self) -> list[Evaluators]:
        """The evaluators of the drawn models, made when they are first needed.

        Raises LimitError if all of them would be too large.
        """
        given, settings = self._evaluators, self.settings
        models = {"": given.model, **{name: given.models[name] for name in sorted(given.models)}}
        size = settings.draws * sum(m.probabilities.size for m in models.values() if m.counts is not None)
        if size > MAX_DRAWN:
            raise LimitError(
                f"{settings.draws} posterior models have {size:,} probabilities (limit MAX_DRAWN, {MAX_DRAWN:,}); "
                "draw fewer models"
            )
        streams = [
            posterior_draws(model, np.random.default_rng((settings.seed, number)))
            for number, model in enumerate(models.values())
        ]
        budget = Budget()
        return [self._drawn(list(models), streams, budget) for _ in range(settings.draws)]

    def values(self, change: Change, measure: Measure, path: Path, *, terminated: bool) -> Floats:
        """Return the Gumbel-Max values [M] under a change at the path's first pair.

        Raises LimitError if their value tables would be too large.
        """
        end = path[-1][0] if terminated else None
        return np.array([_value(drawn, change, measure, path, end) for drawn in self._affordable()])

    def _affordable(self) -> Sequence[Evaluators]:
        size = self._evaluators.table_bytes * self.settings.draws
        if size > MAX_TABLES:
            raise LimitError(
                f"the value tables of {self.settings.draws} posterior models have {size >> 20} MiB (limit MAX_TABLES); "
                "draw fewer models, or shorten the formula's intervals"
            )
        return self.draws

    def _drawn(self, names: Sequence[str], streams: Sequence[Iterator[MDP]], budget: Budget) -> Evaluators:
        """Return the evaluators of one draw; all draws share one budget of cached rows."""
        model, *others = [next(stream) for stream in streams]
        return Evaluators(model, self._evaluators.policies, dict(zip(names[1:], others, strict=True)), budget)


def _value(evaluators: Evaluators, change: Change, measure: Measure, path: Path, end: int | None) -> float:
    """Return the value under a change at the first pair of a path that ended in `end`, if it did."""
    ended = None if end is None or evaluators.stays(end) else end
    nominal = evaluators.nominal(ended, until=len(path) - 1)
    world = World.at(path, 0, nominal, evaluators.intervention(change, ended), evaluators.rows)
    return evaluators.value(world, measure)
