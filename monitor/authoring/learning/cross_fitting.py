"""Cross-fitting: forecast each kept episode from the counts of other episodes, so that all episodes test a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.abstraction_scores import CandidateAbstraction
from monitor.authoring.learning.forecast_skill import Events, ForecastSet, ForecastSkill, of_ends, skill
from monitor.authoring.learning.holdout import HELD, HeldOut, Holdout, held_out, in_order
from monitor.authoring.learning.model_report import Chain
from monitor.authoring.learning.outcomes import HiddenOutcomes, Outcomes
from monitor.authoring.learning.recorded_steps import Steps
from monitor.authoring.learning.tally import Tally

FOLDS: Final = 5
"""Number of parts of the episodes.

Each part is forecast from the counts of the other parts. `Holdout` holds out the first part.
"""


@dataclass
class Collected(Holdout):
    """Holdout that also keeps all transitions, up to a limit.

    Attributes:
        unsafe, unmarked: as in `Outcomes`.
        outcomes: outcomes of all transitions, in the order of `every`. They judge the forecasts of the model.
    """

    unsafe: Bools = field(kw_only=True)
    unmarked: bool = field(default=False, kw_only=True)
    outcomes: Outcomes = field(init=False)
    _every: list[HeldOut] = field(default_factory=list)
    _size: int = 0

    def __post_init__(self) -> None:
        """Create the outcomes."""
        self.outcomes = Outcomes(self.seed, self.unsafe, fraction=1.0, unmarked=self.unmarked)

    def add(self, steps: Steps) -> None:
        """Add the transitions of a batch."""
        super().add(steps)
        self.outcomes.add(steps)
        if self._size < HELD:
            self._every.append(HeldOut.of(steps, slice(None)))
            self._size += len(steps.state)

    def every(self) -> HeldOut:
        """Return all kept transitions, one path after another."""
        return in_order(self._every)


@dataclass
class CrossFitted(CandidateAbstraction):
    """A table as a `Forecaster` of all kept transitions. Each is forecast from the counts of the other folds.

    `folds`: the folds with forecasts. `holdout` must be a `Collected`.
    """

    folds: Sequence[int] = range(FOLDS)

    @cached_property
    def _chains(self) -> list[tuple[Ints, Chain, Ints]]:
        """For each fold: its transitions, the chain of the other folds, and the states after its transitions."""
        assert isinstance(self.holdout, Collected)
        every, where = self.holdout.every(), self.learner.where()
        fold, found = folds_of(every.episode, self.holdout.seed), []
        for number in self.folds:
            mine, others = np.flatnonzero(fold == number), fold != number
            train = Tally.empty(0, 0)
            train.count(every.state[others], every.action[others], every.code[others], np.zeros(int(others.sum())))
            found.append((mine, Chain(train, where), where.of(every.code[mine])))
        return found

    def forecasts(self, label: str, horizon: int) -> ForecastSet:
        """Return P(the label holds now or within `horizon` steps) after each transition, [n]; NaN: not forecast."""
        assert isinstance(self.holdout, Collected)
        said, support, ends, assumed = np.full((4, len(self.holdout.every().path)), np.nan)
        holds = self._model.labels[label]
        for mine, chain, after in self._chains:
            said[mine] = chain.forecasts(holds, horizon)[after]
            assumed[mine] = chain.assumed(holds, horizon)[after]
            ends[mine] = chain.forecasts(chain.states.ended, horizon)[after]
            support[mine] = chain.total[after]
        return ForecastSet(said, support, ends, assumed)


def folds_of(episodes: Ints, seed: int) -> Ints:
    """Return the fold of each episode, [n]."""
    parts = [held_out(episodes, seed, 1 / FOLDS, number / FOLDS) for number in range(FOLDS)]
    return np.asarray(np.select(parts, range(FOLDS), FOLDS - 1), np.int64)


@dataclass(frozen=True)
class ForecastJudge:
    """Forecasts of labels, and the outcomes of the steps after which they were made.

    Attributes:
        forecasts: function like `Forecaster.forecasts`.
        outcomes: the outcomes.
        labels: names of the labels of the outcomes, in their order.
        fold: episodes -> fold of each episode. A simple rule for one fold is computed from the other folds.
        assumed: see `Outcomes.events`.
    """

    forecasts: Callable[[str, int], ForecastSet]
    outcomes: Outcomes | HiddenOutcomes
    labels: Sequence[str]
    fold: Callable[[Ints], Ints]
    assumed: bool = True

    def skills(self, label: str, horizons: Sequence[int]) -> list[ForecastSkill]:
        """Return the skill of the forecasts of a label for each horizon."""
        return [self._skill(label, horizon) for horizon in horizons]

    def _skill(self, label: str, horizon: int) -> ForecastSkill:
        place, episodes = self.labels.index(label), self.outcomes.episodes()
        counts, happened = (each[:, place] for each in self.outcomes.events(horizon, assumed=self.assumed))
        ended, fold = self.outcomes.ends(horizon), self.fold(episodes)
        made = self.forecasts(label, horizon)
        use = counts & np.isfinite(made.said)
        rules: Floats = np.zeros((3, len(episodes)))
        for number in np.unique(fold[use]).tolist():
            known = counts & (fold != number)
            known = known if known.any() else counts
            of = of_ends(happened[known], ended[known])
            rules[:, fold == number] = np.array([[happened[known].mean()], [of], [ended[known].mean()]])
        base, of, ends_base = rules[:, use]
        events = Events(happened[use], episodes[use], base, of, ends_base)
        return skill((label, horizon), made[use], events)
