"""Whether the model is in doubt, for one agent or altogether: the tests, how they stand, and what of them is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from monitor.model import MDP
from monitor.statistics.betting_odds import Departure
from monitor.statistics.fleet import Fleet, FleetState
from monitor.statistics.model_test import ModelTest, ModelTestState
from monitor.types import Departing, Notice, Trust, TrustSettings

__all__ = ["EVERYBODY", "ModelTrust", "ModelTrustState"]

EVERYBODY: Final = "*"
"""Who is meant by an acknowledgement that is for all agents."""

OFTEN: Final = 16
"""Transitions after which all tests are looked at together, or as many as there are agents if they are more."""


class ModelTrustState(msgspec.Struct, frozen=True, array_like=True):
    """A `ModelTrust` as plain data, and on what it depends beside the model: if that changes, it begins anew.

    `told`: transitions when it was last told how the model stands.
    """

    settings: TrustSettings
    encoder: str
    fleet: FleetState
    told: int


class ModelTrust:
    """One test for each agent, and what they come to together.

    `encoder`: how states are read; read otherwise, they are another model's.

    Where the settings switch it off there is no test and nothing is kept, and it is told as one that tested nothing,
    since a reload that switches it off must take back a doubt that was shown.
    """

    def __init__(self, model: MDP, settings: TrustSettings, encoder: str) -> None:
        self._settings, self._encoder = settings, encoder
        self._actions = model.actions
        self._told = 0
        self._fleet: Fleet | None = None
        if settings.enabled:
            rows = model.indptr.data, model.successors.data, model.probabilities.data
            self._fleet = Fleet(*rows, alpha=settings.alpha, impossible=settings.impossible)

    @property
    def stands(self) -> bool:
        """Whether the model is doubted now, for every agent; never where it is not tested."""
        return self._fleet is not None and self._fleet.doubted

    def join(self) -> ModelTest | None:
        """The test of an agent that is new; None where nothing is tested."""
        return None if self._fleet is None else self._fleet.join()

    def due(self, agents: int) -> bool:
        """Whether enough was tested since the last `look`, which costs as much as there are agents."""
        if self._fleet is None or self._fleet.doubted:
            return False
        return self._fleet.transitions - self._told >= max(OFTEN, agents)

    def look(self, tests: Iterable[ModelTest | None]) -> Iterator[Notice]:
        """See what all agents' tests come to; tell how the model stands, if anything was tested since that was told."""
        if self._fleet is not None and not self._fleet.doubted and self._fleet.transitions > self._told:
            self._fleet.look(test for test in tests if test is not None)
            self._told = self._fleet.transitions
            yield from self.again()

    def forget(self, test: ModelTest | None) -> None:
        """An agent is forgotten."""
        if self._fleet is not None and test is not None:
            self._fleet.forget(test)

    def again(self) -> Iterator[Notice]:
        """How the model stands."""
        if self._fleet is None:
            yield Trust(doubted=False, log10_e=0.0, transitions=0)
        else:
            fleet = self._fleet
            where = self._named(fleet.departures()) if fleet.doubted else ()
            yield Trust(fleet.doubted, fleet.log10_e, fleet.transitions, departing=where)

    def of(self, agent: str, test: ModelTest | None) -> Trust:
        """How the model stands for one agent."""
        if test is None:
            return Trust(doubted=False, log10_e=0.0, transitions=0, agent=agent)
        where = self._named(test.departures()) if test.doubted else ()
        return Trust(test.doubted, test.log10_e, test.transitions, agent, where)

    def take_up(
        self, test: ModelTest | None, agent: str, before: ModelTestState | None, state: ModelTrustState | None
    ) -> None:
        """Have an agent's new test go on where it stood; not if its doubt was acknowledged since: it begins anew."""
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
        """What is kept beside the agents' tests; None where nothing is tested."""
        if self._fleet is None:
            return None
        return ModelTrustState(self._settings, self._encoder, self._fleet.dump(), self._told)

    def load(self, state: ModelTrustState | None, *, same_model: bool) -> bool:
        """Go on where a former fleet stood; False if that was of something else, or another test: all begin anew."""
        if self._fleet is None or state is None:
            return self._fleet is None and state is None
        if not same_model or (_tested(state.settings), state.encoder) != (_tested(self._settings), self._encoder):
            return False
        self._fleet.load(state.fleet)
        self._told = state.told
        return True


def _tested(settings: TrustSettings) -> tuple[object, ...]:
    """What a test must share with a former one to go on where that stood."""
    everybody = settings.acknowledged.get(EVERYBODY)
    return settings.alpha, settings.impossible, settings.enabled, everybody
