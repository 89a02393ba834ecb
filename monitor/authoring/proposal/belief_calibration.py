"""Calibration of the belief: if a state has some probability under the belief, how often is it the true state?

The belief at a step is filtered, not smoothed: it is the distribution of the state given all observations and actions
up to this step, as in `Verdict.belief`. True states are only compared with the belief.

Each true state depends on the previous state, so the outcomes of one episode are not independent. Given the
observations, they are no martingale either. For this reason, only the first state of each episode whose probability is
in a given tenth is used. The observations alone determine which state this is, so it is the true state with its
probability under the belief. These first states, one for each episode, are independent, so the exact interval of
Clopper & Pearson (1934) holds for them. The interval is conservative, because the probabilities of these states differ
a little (W. Hoeffding, "On the distribution of the number of successes in independent trials", 1956).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from monitor.authoring.learning.forecast_skill import CLOSE
from monitor.errors import InputError
from monitor.hidden.filtering import NOTHING
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.model.encode import encode_state
from monitor.statistics.calibration import BINS, CalibrationCounts, ReliabilityBin, bin_of
from monitor.statistics.clusters import ERROR
from monitor.stream.hidden_adapter import HiddenAdapter
from monitor.stream.session import Session
from monitor.types.specs import StreamSettings
from monitor.types.stream_events import UNKNOWN_POLICY, Episode, Instant, Observation, Step

EACH: Final = ERROR / BINS
"""Error rate of the interval of one tenth, so that all tenths together have the rate `ERROR`."""


@dataclass(frozen=True)
class BeliefTenth:
    """The states whose probability was in one tenth of [0, 1].

    `every`: the states at all steps. Neighbouring steps depend on each other, so an interval for `every` has no
    meaning. `first`: the first such state of each episode.
    """

    every: ReliabilityBin
    first: ReliabilityBin

    @property
    def agrees(self) -> bool:
        """True if the mean probability is within the interval of `first`, or within `CLOSE` of the frequency."""
        return self.first.agrees or self.off <= CLOSE

    @property
    def off(self) -> float:
        """Difference between the mean probability of `first` and the frequency of the true state."""
        return abs(self.first.forecast - self.first.frequency)


@dataclass(frozen=True)
class BeliefCalibration:
    """The belief compared with true states.

    Attributes:
        steps: number of steps with a known true state and a belief.
        episodes: number of episodes with such steps.
        unknown: number of other steps.
        impossible: number of steps with a known true state whose true state had probability 0.
        tenths: the states that had a positive probability, by tenth of the probability.
    """

    steps: int
    episodes: int
    unknown: int
    impossible: int
    tenths: tuple[BeliefTenth, ...]

    @property
    def calibrated(self) -> bool:
        """False if a true state had probability 0, or if a tenth disagrees with the true states."""
        return not self.impossible and self.worst is None

    @property
    def worst(self) -> BeliefTenth | None:
        """The tenth that disagrees most with the true states; None if all agree."""
        return max((each for each in self.tenths if not each.agrees), key=lambda each: each.off, default=None)


class BeliefRecord:
    """The beliefs at recorded steps, beside their true states.

    Args:
        checker: checker of the model with hidden states and of its policies.
        settings: settings of the stream.
    """

    def __init__(self, checker: HiddenChecker, settings: StreamSettings) -> None:
        self._filter, self._policies, self._settings = checker.filter, checker.policies, settings
        self._adapter, self._model = HiddenAdapter(checker.filter, checker.policies, settings), checker.model
        self._sessions: dict[str, Session] = {}
        self._known: dict[tuple[str, Episode, int], int] = {}
        self._every, self._first = CalibrationCounts(), CalibrationCounts()
        self._begun: dict[tuple[str, Episode], set[int]] = {}
        self._steps = self._unknown = self._impossible = 0

    def take(self, steps: Iterable[tuple[Observation, Instant]]) -> None:
        """Take steps in the order of their arrival."""
        for step, now in steps:
            if (true := self._true(step)) is not None:
                self._known.setdefault((step.agent, step.episode, step.seq), true)
            if step.agent not in self._sessions:
                self._sessions[step.agent] = Session(step.agent, self._adapter, self._settings)
            session = self._sessions[step.agent]
            session.arrive(step, now)
            while session.pending:
                event = session.advance()
                if isinstance(event, Step):
                    self._compare(step.agent, event)

    def read(self, step: Observation) -> tuple[int | None, object]:
        """Return the true state of a step and its observation; None for an unknown one.

        Raises InputError if the model does not have the step's observation.
        """
        return self._true(step), self._adapter.read(self._adapter.without_truth(step))[0]

    def _true(self, step: Observation) -> int | None:
        """Return the true state that a step has beside its observation; None if there is none or the model lacks it."""
        if step.truth is None:
            return None
        try:
            return encode_state(self._model, "name" if isinstance(step.truth, str) else "index", step.truth)
        except InputError:
            return None

    def calibration(self) -> BeliefCalibration:
        """Return the comparison for all steps so far."""
        points = zip(self._every.reliability(EACH), self._first.reliability(EACH), strict=True)
        tenths = tuple(BeliefTenth(*pair) for pair in points)
        return BeliefCalibration(self._steps, len(self._begun), self._unknown, self._impossible, tenths)

    def _compare(self, agent: str, step: Step) -> None:
        true = self._known.pop((agent, step.episode, step.seq), None)
        if true is None or step.inputs == NOTHING:
            self._unknown += 1
            return
        acting = None if step.policy == UNKNOWN_POLICY else self._policies[step.policy]
        given = self._filter.given(step.inputs, (step.state, step.action), acting)
        assert given is not None, "the adapter drops an observation that is impossible"
        states, chances = (part.tolist() for part in given)
        self._steps += 1
        self._impossible += true not in states
        begun = self._begun.setdefault((agent, step.episode), set())
        for state, chance in zip(states, chances, strict=True):
            tenth = bin_of(chance)
            self._every.add(chance, came_true=state == true)
            if tenth not in begun:
                begun.add(tenth)
                self._first.add(chance, came_true=state == true)
