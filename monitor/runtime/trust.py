"""Model trust: the tests of the model on each agent's transitions and on all agents together, and their state."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from monitor.model import MDP
from monitor.model.allowed_rows import allowed_rows
from monitor.statistics.betting_odds import Departure
from monitor.statistics.fleet import Fleet, FleetState
from monitor.statistics.model_test import ModelTest, ModelTestState
from monitor.types import Departing, Notice, Trust, TrustSettings

__all__ = ["EVERYBODY", "ModelTrust", "ModelTrustState"]

EVERYBODY: Final = "*"
"""Key of an acknowledgement for all agents."""

REPORT_EVERY: Final = 16
"""Transitions between two combinations of all tests; the number of agents, if that is larger."""


class ModelTrustState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `ModelTrust` as plain data, with the settings it was made under: if they change, it starts again.

    `told`: transitions at the last report. `delta`: error probability of the bounds of the rows; 0 if all are given.
    """

    settings: TrustSettings
    encoder: str
    fleet: FleetState
    told: int
    delta: float = 0.0


class ModelTrust:
    """One test of the model per agent, and their combination.

    Of a learned model, half of `trust.alpha` is the error probability of the bounds of its rows, half that of the test.

    Args:
        model: the model under test.
        settings: error rate and tolerance; switched off, nothing is tested, and the reports say so.
        encoder: how states are encoded; with another encoder the tests start again.
    """

    def __init__(self, model: MDP, settings: TrustSettings, encoder: str) -> None:
        self._settings, self._encoder = settings, encoder
        self._actions = model.actions
        self._delta = 0.0 if model.counts is None else settings.alpha / 2
        self._start(_fleet(model, settings, self._delta) if settings.enabled else None)

    def _start(self, fleet: Fleet | None) -> None:
        """Begin with a fleet in which nothing was tested; None: nothing is."""
        self._reported = 0
        self._fleet = fleet

    def alone(self) -> ModelTrust:
        """Return the test of a fleet of one agent, in which nothing was tested; the model's odds are shared."""
        other = copy.copy(self)
        other._start(None if self._fleet is None else self._fleet.alone())  # noqa: SLF001 - a copy of this object
        return other

    @property
    def contradicted(self) -> bool:
        """True if the transitions of all agents together contradict the model; False if it is not tested."""
        return self._fleet is not None and self._fleet.doubted

    def join(self) -> ModelTest | None:
        """Return the test for a new agent; None if nothing is tested."""
        return None if self._fleet is None else self._fleet.join()

    def due(self, agents: int) -> bool:
        """Return whether to call `combine`, which takes time proportional to the number of agents."""
        if self._fleet is None or self._fleet.doubted:
            return False
        return self._fleet.transitions - self._reported >= max(REPORT_EVERY, agents)

    def combine(self, tests: Iterable[ModelTest | None]) -> Iterator[Notice]:
        """Combine the tests of all agents; report the result if anything was tested since the last report."""
        if self._fleet is not None and not self._fleet.doubted and self._fleet.transitions > self._reported:
            self._fleet.combine(test for test in tests if test is not None)
            self._reported = self._fleet.transitions
            yield from self.current_state()

    def forget(self, test: ModelTest | None) -> None:
        """Leave out the test of a forgotten agent."""
        if self._fleet is not None and test is not None:
            self._fleet.forget(test)

    def current_state(self) -> Iterator[Notice]:
        """Report the combined test as it is now."""
        if self._fleet is None:
            yield Trust(doubted=False, log10_e=0.0, transitions=0)
        else:
            fleet = self._fleet
            where = self._named(fleet.departures()) if fleet.doubted else ()
            yield Trust(fleet.doubted, fleet.log10_e, fleet.transitions, departing=where)

    def for_agent(self, agent: str, test: ModelTest | None) -> Trust:
        """Return the result of the test for one agent."""
        if test is None:
            return Trust(doubted=False, log10_e=0.0, transitions=0, agent=agent)
        where = self._named(test.departures()) if test.doubted else ()
        return Trust(test.doubted, test.log10_e, test.transitions, agent, where)

    def resume(
        self, test: ModelTest | None, agent: str, before: ModelTestState | None, state: ModelTrustState | None
    ) -> None:
        """Restore an agent's test, unless an acknowledgement was added since: then it starts again."""
        if self._fleet is None or test is None or before is None or state is None:
            return
        if state.settings.acknowledged.get(agent) == self._settings.acknowledged.get(agent):
            test.load(before)
        else:
            former = self._fleet.join()
            former.load(before)
            self._fleet.forget(former)

    def _named(self, departures: Iterable[Departure]) -> tuple[Departing, ...]:
        return tuple(
            Departing(*divmod(each.row, self._actions), each.successor, each.seen, each.of, each.expected)
            for each in departures
        )

    def dump(self) -> ModelTrustState | None:
        """Return the state beside the agents' tests; None if nothing is tested."""
        if self._fleet is None:
            return None
        return ModelTrustState(self._settings, self._encoder, self._fleet.dump(), self._reported, self._delta)

    def load(self, state: ModelTrustState | None, *, same_model: bool) -> bool:
        """Restore the combined test; False if model, encoder or settings changed, and then all tests start again."""
        if self._fleet is None or state is None:
            return self._fleet is None and state is None
        before = _settings_of_test(state.settings), state.encoder, state.delta
        if not same_model or before != (_settings_of_test(self._settings), self._encoder, self._delta):
            return False
        self._fleet.load(state.fleet)
        self._reported = state.told
        return True


def _fleet(model: MDP, settings: TrustSettings, delta: float) -> Fleet:
    """Return the test of a model; `delta`: as in `ModelTrustState`."""
    if model.counts is None:
        rows = model.indptr.data, model.successors.data, model.probabilities.data
        return Fleet(*rows, alpha=settings.alpha, impossible=settings.impossible)
    allowed = allowed_rows(model, model.counts, delta, settings.impossible)
    alpha = settings.alpha - delta
    return Fleet(*allowed[:3], alpha=alpha, impossible=settings.impossible, bounds=allowed.bounds)


def _settings_of_test(settings: TrustSettings) -> tuple[object, ...]:
    """Return the settings that must be equal for a test to go on."""
    everybody = settings.acknowledged.get(EVERYBODY)
    return settings.alpha, settings.impossible, settings.enabled, everybody
