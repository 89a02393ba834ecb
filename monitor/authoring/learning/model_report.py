"""Numbers of the report on a learned model: is the state abstraction good enough, and where are too few data?

All numbers are computed on held-out episodes, which are predicted from the counts of the other episodes. Predictions
mix the counts of a row with the distribution of all successors, so that a successor that was never seen has a positive
probability:

p(c | s, a) = (visits + K m(c)) / (n + K), where m is the distribution of all successors and K = `CONCENTRATION`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtri

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.forecast_skill import mostly_assumed, too_many_assumed
from monitor.authoring.learning.holdout import HISTORIES, HeldOut, Holdout, mixed_histories
from monitor.authoring.learning.model_problem import ModelProblem
from monitor.authoring.learning.states import States
from monitor.authoring.learning.tally import ACTION_BITS, CODE_BITS, Table, Tally, mixed
from monitor.model.mdp import MDP

CONCENTRATION: Final = 1.0
HISTORY_CONCENTRATION: Final = 10.0
HORIZONS: Final = (1, 5, 20)
EDGES: Final = (1, 2, 10, 100, 1000, 10_000)
"""Lower bounds of the classes of the histogram of visits."""

ENOUGH: Final = 10
"""A row with fewer visits is thin."""

WORTH: Final = 0.01
"""Smallest gain of a history, in nats a step, that counts against the abstraction."""

NOT_MARKOV: Final = "the states are not Markov"
"""Beginning of the text of the problem that the past predicts more than the states do."""

POWER: Final = 0.9

Z: Final = 3.0
"""A difference of at least this number of standard errors is real: error rate 0.0027 for each difference."""


@dataclass(frozen=True)
class Gain:
    """Mean log likelihood of held-out steps under a prediction, against the prediction from state and action.

    All numbers are in nats a step. `name`: the data that the prediction uses. `difference`, `error`: mean of the
    difference and its standard error by episodes. `detects`: for a history, the size of an effect that would be found
    `real` with probability `POWER`.
    """

    name: str
    value: float
    difference: float = 0.0
    error: float = 0.0
    detects: float = np.inf

    @property
    def real(self) -> bool:
        """True if the difference is positive beyond chance, and large enough to matter."""
        return self.difference > Z * self.error and self.difference > WORTH


@dataclass(frozen=True)
class Coverage:
    """Fractions of the state space and of the held-out steps that have data.

    `classes`: number of pairs by visits, with the bounds `EDGES`. `thin`: fraction of held-out steps in rows with fewer
    than `ENOUGH` visits. `unseen`: fraction of held-out steps to a successor that was never seen in their row.
    """

    pairs: int
    seen: int
    classes: tuple[int, ...]
    thin: float
    unseen: float


@dataclass(frozen=True)
class LabelCalibration:
    """Forecasts of a label within `horizon` steps under the recorded behaviour, and the outcomes.

    `bins`: (number, mean forecast, frequency) of the forecasts in each tenth. `gap`: mean forecast minus frequency.
    `error`: standard error of the gap, assuming that the forecasts are right. `cut`: number of forecasts left out
    because the recording ends too early. `assumed`: number of forecasts left out because they rest mostly on what was
    never recorded.
    """

    label: str
    horizon: int
    count: int
    gap: float
    error: float
    bins: tuple[tuple[int, float, float], ...]
    cut: int
    assumed: int = 0

    @property
    def unjudged(self) -> bool:
        """True if there is no forecast, or if more than a tenth of the forecasts were cut off."""
        return not self.count or self.cut * 10 > self.count + self.cut

    @property
    def wrong(self) -> bool:
        """True if the forecasts are wrong."""
        return bool(self.fault)

    @property
    def fault(self) -> str:
        """How forecasts and outcomes differ, if the difference is beyond chance and large; else "".

        Large is over 0.02 for all forecasts, or over 0.05 in a tenth.
        """
        if self.unjudged:
            return ""
        if abs(self.gap) > Z * self.error and abs(self.gap) > 0.02:
            said = sum(count * predicted for count, predicted, _ in self.bins) / self.count
            return f"they say {said:.1%} on average, and {said - self.gap:.1%} of {self.count:,} came true"
        far = [tenth for tenth in self.bins if _far(*tenth)]
        if not far:
            return ""
        count, said, came = max(far, key=lambda tenth: abs(tenth[1] - tenth[2]))
        low = min(int(said * 10), 9) * 10
        others = "no other tenth is shown to be wrong" if len(far) == 1 else f"{len(far)} tenths are wrong"
        which = f"of the {count:,} forecasts from {low} % to {low + 10} %"
        return f"{which}, which say {said:.1%} on average, {came:.1%} came true; {others}"


@dataclass(frozen=True)
class Scarce:
    """A row with large influence and few visits. `score`: estimate of its contribution to the answer's uncertainty."""

    state: str
    action: str
    visits: int
    score: float


@dataclass(frozen=True)
class ModelReport:
    """All numbers of the report.

    `problems`: reasons why the abstraction is not good enough; empty if it is good enough. `earlier`: number of
    transitions counted before this run, which the report does not cover. `distances`, `farthest`: as in the numbering
    of states, if it uses nearest centres.
    """

    transitions: int
    held: int
    paths: int
    coverage: Coverage
    simpler: tuple[Gain, ...]
    histories: tuple[Gain, ...]
    calibrations: tuple[LabelCalibration, ...]
    scarce: tuple[Scarce, ...]
    full: bool
    problems: tuple[ModelProblem, ...] = ()
    earlier: int = 0
    distances: tuple[int, ...] = ()
    farthest: float = 0.0


def reported(model: MDP, states: States, holdout: Holdout, labels: Sequence[str], unsafe: Sequence[str]) -> ModelReport:
    """Return the report on a model.

    Args:
        model: model learned from all recordings, for its labels and names.
        states: states of the model.
        holdout: counts of the training episodes, and the held-out episodes.
        labels: labels whose forecasts are checked.
        unsafe: the most important of these labels.
    """
    held, train = holdout.held(), holdout.train
    likely = _Likely(train)
    own = likely.of_pair(held)
    chain = Chain(train, states)
    calibrations = tuple(
        _calibration(chain, model.labels[label], label, horizon, held) for label in labels for horizon in HORIZONS
    )
    first = next(iter([*unsafe, *labels]), None)
    report = ModelReport(
        transitions=train.draws,
        held=len(held.state),
        paths=len(np.unique(held.path)),
        coverage=_coverage(train, held, states.base * model.actions),
        simpler=tuple(_gain(name, values, own, held.episode) for name, values in _simpler(likely, held).items()),
        histories=_histories(holdout, held, own),
        calibrations=tuple(each for each in calibrations if each.count or each.assumed),
        scarce=() if first is None else _scarce(chain, model, model.labels[first]),
        full=holdout.full,
    )
    return replace(report, problems=problems_of(report))


class _Likely:
    """Probabilities of outcomes under the counts of the training episodes."""

    def __init__(self, train: Tally) -> None:
        self._train = train
        codes = train.transitions.keys & ((1 << CODE_BITS) - 1)
        self._codes, places = np.unique(codes, return_inverse=True)
        self._counts = np.bincount(places, train.transitions["visits"], len(self._codes))
        by_state = train.transitions.keys >> (ACTION_BITS + CODE_BITS)
        self._states = Table({"n": 0})
        self._from_state = Table({"n": 0})
        _add(self._states, by_state, train.transitions["visits"])
        _add(self._from_state, (by_state << CODE_BITS) + codes, train.transitions["visits"])

    def anywhere(self, held: HeldOut) -> Floats:
        """Return the probability of each outcome given neither state nor action, [n], with a uniform prior."""
        at = np.minimum(np.searchsorted(self._codes, held.code), max(len(self._codes) - 1, 0))
        known = self._codes[at] == held.code if len(self._codes) else np.zeros(len(held.code), np.bool_)
        seen = np.where(known, self._counts[at], 0.0) if len(self._codes) else np.zeros(len(held.code))
        total, kinds = self._counts.sum(), len(self._codes) + 1
        return np.asarray((seen + 1 / kinds) / (total + 1))

    def of_state(self, held: HeldOut) -> Floats:
        """Return the probability of each outcome given the state alone, [n]."""
        visits = _looked_up(self._from_state, (held.state << CODE_BITS) + held.code)
        return _smoothed(visits, _looked_up(self._states, held.state), self.anywhere(held), CONCENTRATION)

    def of_pair(self, held: HeldOut) -> Floats:
        """Return the probability of each outcome given state and action, [n]."""
        row = (held.state << ACTION_BITS) + held.action
        visits = _looked_up(self._train.transitions, (row << CODE_BITS) + held.code, "visits")
        draws = _looked_up(self._train.rows, row, "draws")
        return _smoothed(visits, draws, self.anywhere(held), CONCENTRATION)


def _add(table: Table, keys: Ints, counts: Ints) -> None:
    different, places = np.unique(keys, return_inverse=True)
    at = table.places(different)
    table["n"][at] += np.bincount(places, counts, len(different)).astype(np.int64)


def _looked_up(table: Table, keys: Ints, column: str = "n") -> Floats:
    at = table.find(keys)
    values = np.append(table[column], 0)
    return values[at].astype(np.float64)


def _smoothed(visits: Floats, draws: Floats, before: Floats, concentration: float) -> Floats:
    return (visits + concentration * before) / (draws + concentration)


def _simpler(likely: _Likely, held: HeldOut) -> dict[str, Floats]:
    return {"the state, without the action": likely.of_state(held), "nothing": likely.anywhere(held)}


def _histories(holdout: Holdout, held: HeldOut, own: Floats) -> tuple[Gain, ...]:
    """Return the gains of predictions that also use a history, on steps with a known history."""
    found = []
    contexts = mixed_histories(held.earlier, held.state, held.action)
    kinds = _kinds(holdout.train, held)
    for name, (rows, outcomes), context in zip(HISTORIES, holdout.histories, contexts, strict=True):
        visits = _looked_up(outcomes, mixed(context, held.code))
        draws = np.where(context >= 0, _looked_up(rows, context), 0.0)
        values = _smoothed(visits, draws, own, HISTORY_CONCENTRATION)
        gain = _gain(name, np.where(context >= 0, values, own), own, held.episode)
        found.append(replace(gain, detects=detectable(gain.error, draws, kinds)))
    return tuple(found)


def _kinds(train: Tally, held: HeldOut) -> Floats:
    """Return the number of different successors in the row of each held-out step, [n]."""
    rows, counts = np.unique(train.transitions.keys >> CODE_BITS, return_counts=True)
    row = (held.state << ACTION_BITS) + held.action
    at = np.minimum(np.searchsorted(rows, row), max(len(rows) - 1, 0))
    return np.where(rows[at] == row, counts[at], 1).astype(np.float64) if len(rows) else np.ones(len(row))


def detectable(error: float, draws: Floats, kinds: Floats) -> float:
    """Return the information, in nats a step, that a history needs for a gain that is real with probability `POWER`.

    Let the history have I nats of information, and let C be `HISTORY_CONCENTRATION`. If the effect is so small that
    information is quadratic in it, the counts of `draws` steps like a held-out step give I (1 - (C / (draws + C))^2)
    nats. Learning the counts costs draws (kinds - 1) / 2 (draws + C)^2. This is the variance of the estimated
    distribution, in relative entropy. The variance of a log likelihood ratio is twice its mean (Kullback 1959, chapter
    5). The result is found by bisection.

    Args:
        error: standard error of the gain without an effect.
        draws: number of training steps with the same history, state and action, for each held-out step [n].
        kinds: number of different successors in the row of each held-out step, [n].
    """
    if not len(draws):
        return np.inf
    after = draws + HISTORY_CONCENTRATION
    kept = float((1 - (HISTORY_CONCENTRATION / after) ** 2).mean())
    cost = float((draws * (kinds - 1) / (2 * after**2)).mean())

    def found(information: float) -> bool:
        spread = np.sqrt(error**2 + 2 * information * kept / len(draws))
        return bool(information * kept - cost > max(Z * spread, WORTH) + ndtri(POWER) * spread)

    low, high = 0.0, 16.0
    if not found(high):
        return np.inf
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def _gain(name: str, values: Floats, own: Floats, episodes: Ints) -> Gain:
    """Compare log likelihoods. Steps of one episode are dependent, so the error is computed from sums over episodes."""
    if not len(values):
        return Gain(name, 0.0)
    differences = np.log(values) - np.log(own)
    mean = float(differences.mean())
    _, places = np.unique(episodes, return_inverse=True)
    sums = np.bincount(places, differences - mean)
    return Gain(name, float(np.log(values).mean()), mean, float(np.sqrt((sums**2).sum()) / len(values)))


def _coverage(train: Tally, held: HeldOut, pairs: int) -> Coverage:
    draws = train.rows["draws"]
    row = (held.state << ACTION_BITS) + held.action
    visits = _looked_up(train.rows, row, "draws")
    found = _looked_up(train.transitions, (row << CODE_BITS) + held.code, "visits")
    classes = np.histogram(draws, [*EDGES, np.inf])[0]
    return Coverage(
        pairs=pairs,
        seen=len(draws),
        classes=tuple(int(count) for count in classes),
        thin=float(np.mean(visits < ENOUGH)) if len(row) else 0.0,
        unseen=float(np.mean((found == 0) & (visits > 0))) if len(row) else 0.0,
    )


class Chain:
    """Markov chain of the training episodes under the recorded behaviour, over the states of the model."""

    def __init__(self, train: Tally, states: States) -> None:
        keys, visits = train.transitions.keys, train.transitions["visits"].astype(np.float64)
        self.train, self.states = train, states
        self.row = keys >> CODE_BITS
        self.source, self.target = states.of_base(self.row >> ACTION_BITS), states.of(keys & ((1 << CODE_BITS) - 1))
        self.total = np.bincount(self.source, visits, states.count)
        stays = np.flatnonzero(self.total == 0)
        goes = np.where(states.live[stays], states.elsewhere, stays)
        weights = np.concatenate([visits / self.total[self.source], np.ones(len(stays))])
        places = np.concatenate([self.source, stays]), np.concatenate([self.target, goes])
        self.matrix = csr_array((weights, places), shape=(states.count, states.count))

    def forecasts(self, label: Bools, horizon: int) -> Floats:
        """Return P(the label holds now or within `horizon` steps) in each state, [S]."""
        values = label.astype(np.float64)
        for _ in range(horizon):
            values = np.where(label, 1.0, self.matrix @ values)
        return values

    def assumed(self, label: Bools, horizon: int) -> Floats:
        """Return the part of each forecast that comes from states that were never left in the recordings, [S].

        It is unknown what follows these states. If the label holds in `elsewhere`, the label is assumed to follow.
        """
        known = label & (np.arange(len(label)) != self.states.elsewhere)
        return self.forecasts(label, horizon) - self.forecasts(known, horizon)


def _calibration(chain: Chain, label: Bools, name: str, horizon: int, held: HeldOut) -> LabelCalibration:
    """Compare forecasts with outcomes. Each forecast begins where the previous one ended, so they do not overlap."""
    forecasts = chain.forecasts(label, horizon)
    unknown = mostly_assumed(forecasts, chain.assumed(label, horizon))
    predicted: list[float] = []
    happened: list[bool] = []
    cut = assumed = 0
    for path, ended in _paths(held, chain.states):
        holds = label[path]
        for begin in range(0, len(path) - 1, horizon):
            if holds[begin]:
                continue
            if not ended and begin + horizon >= len(path):
                cut += 1
                continue
            if unknown[path[begin]]:
                assumed += 1
                continue
            predicted.append(float(forecasts[path[begin]]))
            happened.append(bool(holds[begin : begin + horizon + 1].any()))
    return replace(_compared(name, horizon, np.array(predicted), np.array(happened, np.bool_), cut), assumed=assumed)


def _compared(name: str, horizon: int, predicted: Floats, happened: Bools, cut: int) -> LabelCalibration:
    count = len(predicted)
    tenth = np.minimum((predicted * 10).astype(np.int64), 9)
    bins = tuple(
        (int((tenth == i).sum()), float(predicted[tenth == i].mean()), float(happened[tenth == i].mean()))
        for i in range(10)
        if bool((tenth == i).any())
    )
    error = float(np.sqrt((predicted * (1 - predicted)).sum())) / max(count, 1)
    gap = float(predicted.mean() - happened.mean()) if count else 0.0
    return LabelCalibration(name, horizon, count, gap, error, bins, cut)


def _far(count: int, predicted: float, frequency: float) -> bool:
    error = np.sqrt(max(predicted * (1 - predicted), 1 / (4 * count)) / count)
    return bool(abs(predicted - frequency) > (Z + 1) * error and abs(predicted - frequency) > 0.05)


def _paths(held: HeldOut, states: States) -> list[tuple[Ints, bool]]:
    """Return the states of each held-out path, and whether the path ends with the end of an episode.

    A path is cut where a step begins in another state than the one in which the previous step ended.
    """
    if not len(held.state):
        return []
    before, after = states.of_base(held.state), states.of(held.code)
    follows = (held.path[1:] == held.path[:-1]) & (after[:-1] == before[1:])
    begins = np.concatenate([[0], np.flatnonzero(~follows) + 1, [len(held.state)]])
    found = []
    for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        last = int(after[end - 1])
        path = np.append(before[begin:end], last)
        found.append((path, not states.live[last]))
    return found


def _scarce(chain: Chain, model: MDP, label: Bools) -> tuple[Scarce, ...]:
    """Return the ten rows with the largest score: occupancy times spread of later values, divided by sqrt(visits)."""
    values = chain.forecasts(label, HORIZONS[-1])[chain.target]
    keys, places = np.unique(chain.row, return_inverse=True)
    visits = chain.train.transitions["visits"].astype(np.float64)
    draws = np.bincount(places, visits)
    mean = np.bincount(places, visits * values) / draws
    spread = np.bincount(places, visits * (values - mean[places]) ** 2) / draws
    score = draws / draws.sum() * np.sqrt((spread + 0.25 / draws) / draws)
    best = np.argsort(-score, kind="stable")[:10]
    return tuple(
        Scarce(
            _named(model.state_names, int(chain.states.of_base(keys[i : i + 1] >> ACTION_BITS)[0])),
            _named(model.action_names, int(chain.states.of_action(keys[i : i + 1] & ((1 << ACTION_BITS) - 1))[0])),
            int(draws[i]),
            float(score[i]),
        )
        for i in best
    )


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if names else str(number)


def problems_of(report: ModelReport) -> tuple[ModelProblem, ...]:
    """Return the problems that the numbers of a report show, most important first."""
    found: list[ModelProblem] = []
    cover = report.coverage
    if not report.held:
        found.append(ModelProblem("no path was held out: there are too few episodes to test the model"))
    history = max((gain for gain in report.histories if gain.real), key=lambda gain: gain.difference, default=None)
    if history is not None:
        why = (
            f"{NOT_MARKOV}: {history.name} improves predictions by {history.difference:.3f} nats a step "
            f"(standard error {history.error:.3f})"
        )
        found.append(ModelProblem(why, "; add columns to the state, or use finer bins"))
    wrong: Mapping[str, LabelCalibration] = {each.label: each for each in report.calibrations if each.wrong}
    for each in wrong.values():
        why = f"forecasts of '{each.label}' within {each.horizon} step{'s' * (each.horizon > 1)} are wrong"
        found.append(ModelProblem(why, f": {each.fault}"))
    assumed = {
        each.label: problem
        for each in report.calibrations
        if (problem := too_many_assumed(each.label, each.horizon, each.assumed, each.count + each.assumed))
    }
    found += assumed.values()
    if cover.thin > 0.05:
        why = f"{cover.thin:.0%} of held-out steps are in rows with fewer than {ENOUGH} visits"
        found.append(ModelProblem(why, "; use coarser bins"))
    if cover.unseen > 0.01:
        why = f"{cover.unseen:.1%} of held-out steps lead to a successor that was never seen in their row"
        found.append(ModelProblem(why))
    return tuple(found)
