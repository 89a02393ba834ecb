"""Comparison of state abstractions, `--abstraction auto`: which one forecasts the labels best.

States of different abstractions are not comparable, and neither are the likelihoods of their transitions. What they
forecast is: whether the condition of a label holds within some steps, evaluated on the recorded rows. So each candidate
forecasts the same events on the same held-out paths, as a model with its states would, and is scored by squared errors
(Brier 1950), a proper score: an abstraction whose states do not separate a label pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.episodes import Steps, is_end, unknown_at
from monitor.authoring.learning.holdout import HELD, Holdout, held_out
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.model_report import HORIZONS, Chain, reported
from monitor.authoring.learning.separation import missed, unseparated
from monitor.errors import ModelError


@dataclass
class CandidateAbstraction:
    """A learner with the states of one abstraction, and what its report needs. `name`: as in the options."""

    name: str
    learner: Learner
    holdout: Holdout


@dataclass(frozen=True)
class Scored:
    """Score of a candidate.

    Attributes:
        name: of the abstraction. states: their number, without ends and `elsewhere`.
        score: mean squared error of its forecasts, over that of always forecasting the frequency; 0 is perfect.
        markov: largest gain of a history in nats a step. problems: why it is not good enough, apart from
            what the recordings lack for all of them (`separation.lacking`).
        excess: score minus that of the best, among those that are good enough if there are any. error: standard error
            of that difference, by paths.
    """

    name: str
    states: int
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
    _parts: list[tuple[Bools, Bools, Bools, Ints]] = field(default_factory=list)
    _kept: int = 0

    def add(self, steps: Steps) -> None:
        """Take the transitions of a batch."""
        out = held_out(steps.segment, self.seed, self.fraction)
        if self._kept < HELD:
            code = steps.code[out]
            arrived = steps.arrived[out] | (unknown_at(code, len(self.unsafe)) & self.unsafe)
            self._parts.append((arrived, steps.unmeasured[out], is_end(code), steps.segment[out]))
            self._kept += int(out.sum())

    def events(self, horizon: int) -> tuple[Bools, Bools]:
        """Return which forecasts after each transition count, [n, L], and which of them came true, [n, L].

        A forecast counts if the label does not hold yet and the recording goes on for `horizon` steps, or ends with the
        episode. None counts where a value that the label needs is missing, now or before it holds. Paths one after
        another, as `Holdout.held` has them.
        """
        arrived, unmeasured, ended, path = self._joined()
        number = np.arange(len(path))
        last = np.searchsorted(path, path, side="right") - 1
        following, blind = _following(arrived), _following(unmeasured)
        until = np.minimum(number + horizon, last)[:, None]
        whole = ended[last] | (number + horizon <= last)
        known = ~unmeasured & (blind > np.minimum(following, until))
        return ~arrived & known & (whole & ~ended)[:, None], following <= until

    def paths(self) -> Ints:
        """Return the path of each transition."""
        return self._joined()[3]

    def _joined(self) -> tuple[Bools, Bools, Bools, Ints]:
        arrived, unmeasured, ended, path = (np.concatenate([part[i] for part in self._parts]) for i in range(4))
        order = np.argsort(path, kind="stable")
        return arrived[order], unmeasured[order], ended[order], path[order]


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
    events = {horizon: outcomes.events(horizon) for horizon in HORIZONS}
    names = [label.name for label in candidates[0].learner.labels]
    weights = _weights(events, len(names))
    if not weights:
        raise ModelError(
            "--abstraction auto compares forecasts of labels, but in the held-out episodes none of "
            f"{', '.join(names)} sometimes happens and sometimes not; record more, or choose an abstraction"
        )
    judged = [_judged(candidate, names, events, weights) for candidate in candidates]
    best = min(judged, key=lambda each: (bool(each[0].problems), each[0].score))[1]
    paths = np.unique(outcomes.paths(), return_inverse=True)[1]
    found = []
    for each, errors in judged:
        excess = np.bincount(paths, errors - best)
        spread = float(np.sqrt(((excess - excess.mean()) ** 2).sum()))
        found.append(replace(each, excess=float(excess.sum()), error=spread))
    return found


def judged(candidate: CandidateAbstraction, outcomes: Outcomes, label: str) -> tuple[Scored, bool]:
    """Return the score of one model by forecasts of one label, and whether that label can be judged.

    It can if it sometimes happens and sometimes not on the held-out paths; else the score is 0.
    """
    place = [each.name for each in candidate.learner.labels].index(label)
    events = {h: (counts[:, [place]], happened[:, [place]]) for h in HORIZONS
              for counts, happened in [outcomes.events(h)]}  # fmt: skip
    weights = _weights(events, 1)
    return _judged(candidate, [label], events, weights)[0], bool(weights)


def chosen(table: Sequence[Scored]) -> Scored:
    """Return the best of those that are good enough, or of all if none is.

    Of those within one standard error of the lowest score it is the one with the fewest states.
    """
    eligible = [each for each in table if not each.problems] or table
    return min((each for each in eligible if each.excess <= each.error), key=lambda each: (each.states, each.score))


def _weights(events: Mapping[int, tuple[Bools, Bools]], labels: int) -> dict[tuple[int, int], float]:
    """Return (horizon, label) -> weight of a squared error, for those that happen sometimes.

    The weighted errors of always forecasting the frequency sum to 1.
    """
    variance = {}
    for horizon, (counts, happened) in events.items():
        for label in range(labels):
            outcomes = happened[counts[:, label], label]
            if len(outcomes) and 0 < outcomes.mean() < 1:
                variance[horizon, label] = float(((outcomes - outcomes.mean()) ** 2).sum())
    return {key: 1 / (value * len(variance)) for key, value in variance.items()}


def _judged(
    candidate: CandidateAbstraction,
    names: Sequence[str],
    events: Mapping[int, tuple[Bools, Bools]],
    weights: Mapping[tuple[int, int], float],
) -> tuple[Scored, Floats]:
    """Return the score of a candidate, and the weighted squared errors of its forecasts after each transition, [n]."""
    learner, holdout = candidate.learner, candidate.holdout
    assert learner.states is not None
    where, model = learner.where(), learner.model(candidate.name)
    chain, after = Chain(holdout.train, where), where.of(holdout.held().code)
    errors = np.zeros(len(after))
    for (horizon, label), weight in weights.items():
        counts, happened = events[horizon]
        forecasts = chain.forecasts(model.labels[names[label]], horizon)[after]
        errors += np.where(counts[:, label], weight * (forecasts - happened[:, label]) ** 2, 0.0)
    unsafe = [label.name for label in learner.labels if label.unsafe]
    report = reported(model, where, holdout, names, unsafe)
    scored = Scored(
        name=candidate.name,
        states=learner.states.size,
        score=float(errors.sum()),
        markov=max((gain.difference for gain in report.histories), default=0.0),
        problems=(*unseparated(missed(learner.tally, learner.labels)), *report.problems),
    )
    return scored, errors
