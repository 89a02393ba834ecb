"""Comparison of state abstractions, `--abstraction auto`: which one forecasts the labels best.

States of different abstractions are not comparable, and neither are the likelihoods of their transitions. What they
forecast is: whether the condition of a label holds within some steps, evaluated on the recorded rows. So each candidate
forecasts the same events on the same held-out paths, as a model with its states would, and is scored by squared errors
(Brier 1950), a proper score: an abstraction whose states do not separate a label pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.episodes import Steps, is_end, unknown_at
from monitor.authoring.learning.holdout import HELD, Holdout, held_out
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.model_report import HORIZONS, Chain, reported
from monitor.authoring.learning.separation import missed, unseparated
from monitor.errors import ModelError
from monitor.model.mdp import MDP


class Forecaster(Protocol):
    """A model to compare by its forecasts."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def size(self) -> int | None:
        """The number of its states; None: a world with numbers."""
        ...

    def forecasts(self, label: str, horizon: int) -> Floats:
        """Return P(the label holds now or within `horizon` steps) after each held-out transition, [n]; NaN: none."""
        ...

    def checks(self, names: Sequence[str]) -> tuple[float, tuple[str, ...]]:
        """Return the largest gain of a history in nats a step, and why the model is not good enough for the labels."""
        ...


@dataclass
class CandidateAbstraction:
    """A learner with the states of one abstraction, and what its report needs. `name`: as in the options.

    As a `Forecaster` it is used when all rows were read.
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

    def forecasts(self, label: str, horizon: int) -> Floats:
        """Return P(the label holds now or within `horizon` steps) after each held-out transition, [n]."""
        chain, after = self._chain
        return chain.forecasts(self._model.labels[label], horizon)[after]

    def checks(self, names: Sequence[str]) -> tuple[float, tuple[str, ...]]:
        """Return the largest gain of a history in nats a step, and why the abstraction is not good enough."""
        learner = self.learner
        unsafe = [label.name for label in learner.labels if label.unsafe]
        report = reported(self._model, learner.where(), self.holdout, names, unsafe)
        markov = max((gain.difference for gain in report.histories), default=0.0)
        return markov, (*unseparated(missed(learner.tally, learner.labels)), *report.problems)


@dataclass(frozen=True)
class Scored:
    """Score of a candidate.

    Attributes:
        name: of the abstraction. states: their number, without ends and `elsewhere`; None: a world with numbers.
        score: mean squared error of its forecasts, over that of always forecasting the frequency; 0 is perfect.
        markov: largest gain of a history in nats a step. problems: why it is not good enough, apart from
            what the recordings lack for all of them (`separation.lacking`).
        excess: score minus that of the best, among those that are good enough if there are any. error: standard error
            of that difference, by paths.
    """

    name: str
    states: int | None
    score: float
    markov: float
    problems: tuple[str, ...]
    excess: float = 0.0
    error: float = 0.0


@dataclass
class Outcomes:
    """Labels after each held-out transition, whatever the states. `seed`, `fraction`: as those of `Holdout`.

    `unsafe` [L]: labels that count as holding where that is unknown, as in the models.
    """

    seed: int
    unsafe: Bools
    fraction: float = 0.2
    _parts: list[tuple[Bools, Bools, Bools, Bools, Ints]] = field(default_factory=list)
    _kept: int = 0

    def add(self, steps: Steps) -> None:
        """Take the transitions of a batch."""
        lost = unknown_at(steps.code, len(self.unsafe))
        self.add_labels((steps.arrived, steps.unmeasured, lost), is_end(steps.code), steps.segment)

    def add_labels(self, labels: tuple[Bools, Bools, Bools], ended: Bools, path: Ints) -> None:
        """Take transitions [n]: their labels, [n, L] each, which of them end an episode, and their paths.

        `labels`: which hold afterwards, where a value for them is missing, and where the last state is.
        """
        out = held_out(path, self.seed, self.fraction)
        if self._kept < HELD:
            arrived, unmeasured, lost = (each[out] for each in labels)
            self._parts.append((arrived, unmeasured, lost, ended[out], path[out]))
            self._kept += int(out.sum())

    def events(self, horizon: int, *, assumed: bool = True) -> tuple[Bools, Bools]:
        """Return which forecasts after each transition count, [n, L], and which of them came true, [n, L].

        A forecast counts if the label does not hold yet and the recording goes on for `horizon` steps, or ends with the
        episode. None counts where a value that the label needs is missing, now or before it holds. Paths one after
        another, as `Holdout.held` has them. At an end whose state was not recorded an unsafe label holds, as in tables;
        without `assumed` it is missing there.
        """
        arrived, unmeasured, lost, ended, path = self._joined()
        arrived, unmeasured = (arrived | (lost & self.unsafe), unmeasured) if assumed else (arrived, unmeasured | lost)
        number = np.arange(len(path))
        last = np.searchsorted(path, path, side="right") - 1
        following, blind = _following(arrived), _following(unmeasured)
        until = np.minimum(number + horizon, last)[:, None]
        whole = ended[last] | (number + horizon <= last)
        known = ~unmeasured & (blind > np.minimum(following, until))
        return ~arrived & known & (whole & ~ended)[:, None], following <= until

    def paths(self) -> Ints:
        """Return the path of each transition."""
        return self._joined()[-1]

    def _joined(self) -> tuple[Bools, Bools, Bools, Bools, Ints]:
        arrived, unmeasured, lost, ended, path = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        order = np.argsort(path, kind="stable")
        return arrived[order], unmeasured[order], lost[order], ended[order], path[order]


def _following(marks: Bools) -> Ints:
    """Return for each row the next one after it that is marked, [n, L]; n if there is none."""
    count = len(marks)
    later = np.vstack([np.where(marks, np.arange(count)[:, None], count)[1:], np.full((1, marks.shape[1]), count)])
    following: Ints = np.minimum.accumulate(later[::-1])[::-1]
    return following


def scored(candidates: Sequence[CandidateAbstraction], outcomes: Outcomes) -> list[Scored]:
    """Return the scores of candidates that have read the same rows, in their order.

    Raises ModelError: no event can be forecast, or only some that always or never happen.
    """
    labels = [label.name for label in candidates[0].learner.labels]
    found, errors = _forecast(candidates, outcomes, labels, labels)
    if not errors.any():
        raise ModelError(
            "--abstraction auto compares forecasts of labels, but in the held-out episodes none of "
            f"{', '.join(labels)} sometimes happens and sometimes not; record more, or choose an abstraction"
        )
    best = min(range(len(found)), key=lambda n: (bool(found[n].problems), found[n].score))
    return _apart(found, errors, best, outcomes)


def judged(
    candidates: Sequence[Forecaster], outcomes: Outcomes, labels: Sequence[str], label: str
) -> tuple[list[Scored], bool]:
    """Return the scores by forecasts of one of the labels, and whether that label can be judged.

    It can if it sometimes happens and sometimes not on the held-out paths; else the scores are 0. `excess` is that over
    the lowest score.
    """
    found, errors = _forecast(candidates, outcomes, labels, [label])
    best = min(range(len(found)), key=lambda n: found[n].score)
    return _apart(found, errors, best, outcomes), bool(errors.any())


def chosen(table: Sequence[Scored]) -> Scored:
    """Return the best of those that are good enough, or of all if none is.

    Of those within one standard error of the lowest score it is the one with the fewest states.
    """
    eligible = [each for each in table if not each.problems] or table
    return min(
        (each for each in eligible if each.excess <= each.error), key=lambda each: (each.states or 0, each.score)
    )


def better(judged: Sequence[Scored]) -> Scored:
    """Return the one with the lowest score.

    Of those within one standard error of it, one that is good enough, then a table: its values need not be drawn.
    """
    near = (each for each in judged if each.excess <= each.error)
    return min(near, key=lambda each: (bool(each.problems), each.states is None))


def _forecast(
    candidates: Sequence[Forecaster], outcomes: Outcomes, labels: Sequence[str], names: Sequence[str]
) -> tuple[list[Scored], Floats]:
    """Return the scores by forecasts of `names`, and the weighted squared errors [candidates, n].

    The forecasts that all have made count. Only tables have labels that are assumed to hold where an episode ended.
    """
    places = [labels.index(name) for name in names]
    assumed = all(each.size is not None for each in candidates)
    events = {}
    for horizon in HORIZONS:
        counts, happened = outcomes.events(horizon, assumed=assumed)
        for name, place in zip(names, places, strict=True):
            made = np.array([each.forecasts(name, horizon) for each in candidates])
            counted = counts[:, place] & np.isfinite(made).all(axis=0)
            events[horizon, name] = counted, happened[:, place], made
    weights = _weights(events)
    errors = np.zeros((len(candidates), len(outcomes.paths())))
    for key, weight in weights.items():
        counted, happened, made = events[key]
        errors += np.where(counted, weight * (made - happened) ** 2, 0.0)
    found = [
        Scored(each.name, each.size, float(error.sum()), *each.checks(names))
        for each, error in zip(candidates, errors, strict=True)
    ]
    return found, errors


def _apart(found: Sequence[Scored], errors: Floats, best: int, outcomes: Outcomes) -> list[Scored]:
    """Return the scores with their difference to the best, and its standard error by paths."""
    paths = np.unique(outcomes.paths(), return_inverse=True)[1]
    return [
        replace(each, excess=float(excess.sum()), error=float(np.sqrt(((excess - excess.mean()) ** 2).sum())))
        for each, error in zip(found, errors, strict=True)
        for excess in [np.bincount(paths, error - errors[best], minlength=1)]  # there may be no path
    ]


def _weights(events: Mapping[tuple[int, str], tuple[Bools, Bools, Floats]]) -> dict[tuple[int, str], float]:
    """Return (horizon, label) -> weight of a squared error, for those that happen sometimes.

    The weighted errors of always forecasting the frequency sum to 1.
    """
    variance = {}
    for key, (counts, happened, _) in events.items():
        outcomes = happened[counts]
        if len(outcomes) and 0 < outcomes.mean() < 1:
            variance[key] = float(((outcomes - outcomes.mean()) ** 2).sum())
    return {key: 1 / (value * len(variance)) for key, value in variance.items()}
