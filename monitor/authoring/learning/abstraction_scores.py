"""Comparison of state abstractions, `--abstraction auto`: which abstraction forecasts the labels best?

States of different abstractions cannot be compared, and neither can the likelihoods of their transitions. Their
forecasts can be compared: does the condition of a label hold within some steps? The condition is evaluated on the
recorded rows, so all candidates forecast the same events on the same held-out paths. The forecasts get the logarithmic
score (Good 1952). This score is proper, so an abstraction has a larger loss if its states do not separate a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.forecast_skill import ForecastSet, log_score, smoothed
from monitor.authoring.learning.holdout import Holdout
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.model_problem import ModelProblem
from monitor.authoring.learning.model_report import HORIZONS, Chain, ModelReport, reported
from monitor.authoring.learning.outcomes import Outcomes
from monitor.authoring.learning.separation import missed, unseparated
from monitor.errors import ModelError
from monitor.model.mdp import MDP


class Forecaster(Protocol):
    """A model that can be compared by its forecasts."""

    @property
    def name(self) -> str:
        """The name of the model."""
        ...

    @property
    def size(self) -> int | None:
        """The number of the model's states; None for a world with numbers."""
        ...

    def forecasts(self, label: str, horizon: int) -> ForecastSet:
        """Return P(the label holds now or within `horizon` steps) after each held-out transition, [n]; NaN: none."""
        ...

    def checks(self, names: Sequence[str]) -> tuple[float, tuple[ModelProblem, ...]]:
        """Return the largest gain in nats a step from also knowing a history, and the problems with labels `names`."""
        ...


@dataclass
class CandidateAbstraction:
    """A learner with the states of one abstraction, and the data for its report. `name`: the option that selects it.

    Use it as a `Forecaster` only after all rows were read.
    """

    name: str
    learner: Learner
    holdout: Holdout

    @property
    def size(self) -> int:
        """The number of states, without ends and `elsewhere`."""
        assert self.learner.states is not None
        return self.learner.states.size

    @cached_property
    def _model(self) -> MDP:
        return self.learner.model(self.name)

    @cached_property
    def _chain(self) -> tuple[Chain, Ints]:
        where = self.learner.where()
        return Chain(self.holdout.train, where), where.of(self.holdout.held().code)

    def forecasts(self, label: str, horizon: int) -> ForecastSet:
        """Return P(the label holds now or within `horizon` steps) after each held-out transition, [n]."""
        chain, after = self._chain
        holds = self._model.labels[label]
        said, ends = (chain.forecasts(each, horizon)[after] for each in (holds, chain.states.ended))
        return ForecastSet(said, chain.total[after].astype(np.float64), ends, chain.assumed(holds, horizon)[after])

    def checks(self, names: Sequence[str]) -> tuple[float, tuple[ModelProblem, ...]]:
        """Return the largest gain in nats a step from also knowing a history, and the problems of the abstraction."""
        learner, report = self.learner, self.report(names)
        markov = max((gain.difference for gain in report.histories), default=0.0)
        return markov, (*unseparated(missed(learner.tally, learner.labels)), *report.problems)

    def report(self, names: Sequence[str]) -> ModelReport:
        """Return the report on the model, with forecasts of the labels with these names."""
        unsafe = [label.name for label in self.learner.labels if label.unsafe]
        return reported(self._model, self.learner.where(), self.holdout, names, unsafe)


@dataclass(frozen=True)
class Scored:
    """Score of a candidate.

    Attributes:
        name: name of the abstraction.
        states: number of its states, without ends and `elsewhere`; None for a world with numbers.
        score: mean logarithmic loss of the forecasts, divided by the loss of always forecasting the frequency; 0 is
            perfect.
        markov: largest gain of predictions, in nats a step, from also knowing a history.
        problems: why the candidate is not good enough. Problems of all candidates, due to missing data, are left out
            (`separation.lacking`).
        excess: score minus the lowest score.
        error: standard error of this difference, with episodes as independent units.
    """

    name: str
    states: int | None
    score: float
    markov: float
    problems: tuple[ModelProblem, ...]
    excess: float = 0.0
    error: float = 0.0


def scored(candidates: Sequence[CandidateAbstraction], outcomes: Outcomes) -> list[Scored]:
    """Return the scores of candidates that have read the same rows, in the order of the candidates.

    Raises ModelError if nothing can be compared, because each event always or never happens.
    """
    labels = [label.name for label in candidates[0].learner.labels]
    found, errors = _forecast(candidates, outcomes, labels, labels)
    if not errors.any():
        raise ModelError(
            "--abstraction auto compares forecasts of labels, but in the held-out episodes none of "
            f"{', '.join(labels)} sometimes happens and sometimes not; record more, or choose an abstraction"
        )
    return _apart(found, errors, outcomes)


def judged(
    candidates: Sequence[Forecaster], outcomes: Outcomes, labels: Sequence[str], label: str
) -> tuple[list[Scored], bool]:
    """Return the scores by forecasts of `label`, and whether this label can be judged.

    The label can be judged if it holds at some steps of the held-out paths and not at others. Otherwise all scores are
    0.
    """
    found, errors = _forecast(candidates, outcomes, labels, [label])
    return _apart(found, errors, outcomes), bool(errors.any())


def chosen(table: Sequence[Scored]) -> Scored:
    """Return the best candidate.

    It is one of the candidates within one standard error of the lowest score. Among these, a candidate that is good
    enough is preferred, then a table (because its values need no sampling), then a small number of states.
    """
    near = (each for each in table if each.excess <= each.error)
    return min(near, key=lambda each: (bool(each.problems), each.states is None, each.states or 0, each.score))


def _forecast(
    candidates: Sequence[Forecaster], outcomes: Outcomes, labels: Sequence[str], names: Sequence[str]
) -> tuple[list[Scored], Floats]:
    """Return the scores by forecasts of `names`, and the weighted losses [candidates, n].

    Only steps for which all candidates have a forecast count. If all candidates are tables, unsafe labels are assumed
    to hold at ends whose state was not recorded.
    """
    places = [labels.index(name) for name in names]
    assumed = all(each.size is not None for each in candidates)
    events = {}
    for horizon in HORIZONS:
        counts, happened = outcomes.events(horizon, assumed=assumed)
        for name, place in zip(names, places, strict=True):
            made = [each.forecasts(name, horizon) for each in candidates]
            counted = counts[:, place] & np.isfinite([each.said for each in made]).all(axis=0)
            events[horizon, name] = counted, happened[:, place], made
    weights = _weights(events)
    errors = np.zeros((len(candidates), len(outcomes.paths())))
    for key, weight in weights.items():
        counted, happened, made = events[key]
        frequency = float(happened[counted].mean())
        losses = [-log_score(smoothed(each.said, each.support, frequency), happened) for each in made]
        errors += np.where(counted, weight * np.array(losses), 0.0)
    found = [
        Scored(each.name, each.size, float(error.sum()), *each.checks(names))
        for each, error in zip(candidates, errors, strict=True)
    ]
    return found, errors


def _apart(found: Sequence[Scored], errors: Floats, outcomes: Outcomes) -> list[Scored]:
    """Return the scores with their difference from the lowest score, and its standard error by episodes."""
    best = min(range(len(found)), key=lambda n: found[n].score)
    episodes = np.unique(outcomes.episodes(), return_inverse=True)[1]
    return [
        replace(each, excess=float(excess.sum()), error=float(np.sqrt(((excess - excess.mean()) ** 2).sum())))
        for each, error in zip(found, errors, strict=True)
        for excess in [np.bincount(episodes, error - errors[best], minlength=1)]  # there may be none
    ]


def _weights(events: Mapping[tuple[int, str], tuple[Bools, Bools, object]]) -> dict[tuple[int, str], float]:
    """Return (horizon, label) -> weight of a loss, for events that sometimes happen and sometimes not.

    The weighted losses of always forecasting the frequency sum to 1.
    """
    entropy = {}
    for key, (counts, happened, _) in events.items():
        outcomes = happened[counts]
        if len(outcomes) and 0 < outcomes.mean() < 1:
            entropy[key] = -float(log_score(np.full(len(outcomes), outcomes.mean()), outcomes).sum())
    return {key: 1 / (value * len(entropy)) for key, value in entropy.items()}
