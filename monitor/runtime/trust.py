"""Model trust: tests of the model on each agent's transitions and on all agents together, and the tests' state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from monitor.evaluation.uniform_rows import UniformRows
from monitor.model import MDP
from monitor.model.allowed_rows import allowed_rows
from monitor.statistics.betting_odds import Departure
from monitor.statistics.fleet import FleetState, FleetTest, wrong_agents
from monitor.statistics.model_betting import ModelTest, ModelTestState
from monitor.statistics.row_tests import RejectedRow as Rejected
from monitor.types.notices import Contradictions, Departing, Notice, Trust, WrongAgent, WrongRow
from monitor.types.specs import TrustSettings
from monitor.types.stream_events import Step

EVERYBODY: Final = "*"
"""Key of an acknowledgement for all agents."""

REPORT_EVERY: Final = 16
"""Minimum number of transitions between two combinations of all tests."""

STEPS_EVERY: Final = 4
"""Minimum average number of transitions per agent between two combinations. The time of a combination is proportional
to the number of agents."""

MOST_NAMED: Final = 10
"""Maximum number of rows, and of agents, that a report names."""

DESCRIBE_EVERY: Final = 256
"""Number of transitions between two reports on the same rows and agents."""


class ModelTrustState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `ModelTrust` as plain data, with its settings. If the settings change, the tests start again.

    `reported`: number of transitions at the last report. `delta`: error probability of the bounds of the rows; 0 if the
    model was not learned. `contradictions`: contradictions as last reported, after `described_at` transitions.
    """

    settings: TrustSettings
    encoder: str
    fleet: FleetState
    reported: int
    delta: float = 0.0
    contradictions: Contradictions = Contradictions()
    described_at: int = 0


class ModelTrust:
    """One test of the model per agent, and the combination of these tests.

    For a learned model, one half of `trust.alpha` is the error probability of the bounds of its rows. The other half is
    the error probability of the test.

    Args:
        model: the tested rows: the rows of a table, or of the noise of a world with numbers.
        settings: error rate and tolerance. If the test is disabled, the reports say that nothing is tested.
        encoder: name of the state encoder. With another encoder the tests start again.

    Attributes:
        rejected: True if the transitions of all agents together contradict the model; False if the model is not tested.
    """

    def __init__(self, model: MDP | UniformRows, settings: TrustSettings, encoder: str) -> None:
        self._settings, self._encoder = settings, encoder
        self._actions = model.actions
        self._state_names, self._action_names = model.state_names, model.action_names
        self._noises = model if isinstance(model, UniformRows) else None
        self._successor_names = model.successor_names if isinstance(model, UniformRows) else model.state_names
        self._delta = 0.0 if model.counts is None else settings.alpha / 2
        self._start(_fleet(model, settings, self._delta) if settings.enabled else None)

    def _start(self, fleet: FleetTest | None) -> None:
        """Begin with a fleet without tested transitions. `fleet`: None if nothing is to be tested."""
        self._described_at = 0
        self._fleet = fleet
        self.rejected = fleet is not None and fleet.rejected
        self._contradictions = Contradictions(rows_tested=0 if fleet is None else fleet.rows_tested)

    def alone(self) -> ModelTrust:
        """Return a new test for a fleet of one agent. It shares the model's odds with this test."""
        other = ModelTrust.__new__(ModelTrust)  # `copy` cannot copy a compiled object
        other._settings, other._encoder, other._actions = self._settings, self._encoder, self._actions  # noqa: SLF001
        other._state_names, other._action_names = self._state_names, self._action_names  # noqa: SLF001
        other._noises, other._successor_names = self._noises, self._successor_names  # noqa: SLF001
        other._delta = self._delta  # noqa: SLF001
        other._start(None if self._fleet is None else self._fleet.alone())  # noqa: SLF001
        return other

    def join(self) -> ModelTest | None:
        """Return the test for a new agent; None if nothing is tested."""
        return None if self._fleet is None else self._fleet.join()

    def due(self, agents: int) -> bool:
        """Return whether to call `combine`. Its time is proportional to the numbers of agents and rejected rows."""
        fleet = self._fleet
        return fleet is not None and fleet.observed >= fleet.reported + self._every(agents)

    def _every(self, agents: int) -> int:
        rejected, often = self._contradictions.rows_rejected, STEPS_EVERY * agents
        return max(REPORT_EVERY, often, rejected)

    def combine(self, tests: Mapping[str, ModelTest | None]) -> Iterator[Notice]:
        """Combine the tests of all agents (name -> test).

        Report the result if transitions were observed since the last report.
        """
        fleet = self._fleet
        if fleet is None or fleet.observed <= fleet.reported:
            return
        fleet.reported = fleet.observed
        if not fleet.rejected:
            fleet.combine(test for test in tests.values() if test is not None)
            self.rejected = fleet.rejected
            yield self._trust(fleet)
        yield from self._rejections(fleet, {name: test for name, test in tests.items() if test is not None})

    def forget(self, test: ModelTest | None) -> None:
        """Leave out the test of a forgotten agent."""
        if self._fleet is not None and test is not None:
            self._fleet.forget(test)
            if self._contradictions.agents:
                self._fleet.reported = -1  # the agent may be one of the reported agents

    def current_state(self) -> Iterator[Notice]:
        """Yield notices with the current result of the combined test."""
        yield Trust(doubted=False, log10_e=0.0, transitions=0) if self._fleet is None else self._trust(self._fleet)
        yield self._contradictions

    def _trust(self, fleet: FleetTest) -> Trust:
        where = self._named(fleet.departures()) if fleet.rejected else ()
        return Trust(fleet.rejected, fleet.log10_e, fleet.transitions, departing=where)

    def _rejections(self, fleet: FleetTest, tests: Mapping[str, ModelTest]) -> Iterator[Contradictions]:
        """Report the rejected rows and agents if they differ from the last report, or if the last report is old."""
        before, rows, wrong = self._contradictions, fleet.rejected_rows(), wrong_agents(list(tests.values()))
        if not (rows or wrong or before.rows or before.agents) and self._described_at > 0:
            return  # the usual case; the first report says that rows are tested
        names = list(tests)
        agents = [(names[place], e) for place, e in wrong]
        places = {self._place(row) for row in rows[:MOST_NAMED]}
        same = (
            (len(rows), len(agents)) == (before.rows_rejected, before.agents_rejected)
            and places == {(row.state, row.action) for row in before.rows}
            and {name for name, _ in agents[:MOST_NAMED]} == {each.agent for each in before.agents}
        )
        often = fleet.observed - self._described_at < DESCRIBE_EVERY
        if same and often and self._described_at > 0:
            return
        self._described_at = fleet.observed
        self._contradictions = Contradictions(
            rows=tuple(self._described(row) for row in fleet.wrong_rows(MOST_NAMED)),
            agents=tuple(WrongAgent(name, math.log10(e)) for name, e in agents[:MOST_NAMED]),
            rows_rejected=len(rows),
            agents_rejected=len(agents),
            rows_tested=fleet.rows_tested,
        )
        yield self._contradictions

    def _place(self, row: int) -> tuple[str, str]:
        """Return the names of the state and the action of a row."""
        state, action = divmod(row, self._actions)
        return _name(self._state_names, state), _name(self._action_names, action)

    def _described(self, row: Rejected) -> WrongRow:
        state, action = self._place(row.row)
        return WrongRow(
            state=state,
            action=action,
            log10_e=math.log10(row.evidence),
            successor=_name(self._successor_names, row.successor),
            seen=row.seen,
            visits=row.visits,
            probability=row.probability,
            impossible=row.impossible,
        )

    def for_agent(self, agent: str, test: ModelTest | None) -> Trust:
        """Return the result of the test for one agent."""
        if test is None:
            return Trust(doubted=False, log10_e=0.0, transitions=0, agent=agent)
        where = self._named(test.departures()) if test.rejected else ()
        return Trust(test.rejected, test.log10_e, test.transitions, agent, where)

    def resume(
        self, test: ModelTest | None, agent: str, before: ModelTestState | None, state: ModelTrustState | None
    ) -> None:
        """Restore an agent's test. If the acknowledgement of its rejection has changed, the test starts again."""
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
            Departing(*self._transition(each.row, each.successor), each.seen, each.of, each.expected)
            for each in departures
        )

    def _transition(self, row: int, successor: int) -> tuple[int | str, int | str, int | str]:
        if self._noises is None:
            return *divmod(row, self._actions), successor
        return *self._place(row), self._successor_names[successor]

    def step(self, test: ModelTest, agent: str, before: Step, after: Step) -> None:
        """Test an observed transition."""
        if self._noises is None:
            test.step(before.state * self._actions + before.action, after.state)
            return
        for row, cell in self._noises.transitions(agent, before, after):
            test.step(row, cell)

    def row(self, before: Step | None) -> int | None:
        """Return the row of a step on a table; None if there is no row."""
        if before is None or before.action is None or self._noises is not None:
            return None
        row: int = before.state * self._actions + before.action
        return row

    def dump(self) -> ModelTrustState | None:
        """Return the state without the agents' tests; None if nothing is tested."""
        if self._fleet is None:
            return None
        return ModelTrustState(
            settings=self._settings,
            encoder=self._encoder,
            fleet=self._fleet.dump(),
            reported=self._fleet.reported,
            delta=self._delta,
            contradictions=self._contradictions,
            described_at=self._described_at,
        )

    def load(self, state: ModelTrustState | None, *, same_model: bool) -> bool:
        """Restore the combined test.

        Return False if model, encoder or settings changed, so that all tests start again.
        """
        if self._fleet is None or state is None:
            return self._fleet is None and state is None
        before = _settings_of_test(state.settings), state.encoder, state.delta
        if not same_model or before != (_settings_of_test(self._settings), self._encoder, self._delta):
            return False
        self._fleet.load(state.fleet)
        self.rejected = self._fleet.rejected
        self._fleet.reported = min(state.reported, self._fleet.observed)
        self._described_at = state.described_at
        self._contradictions = replace(state.contradictions, rows_tested=self._fleet.rows_tested)
        return True


def _fleet(model: MDP | UniformRows, settings: TrustSettings, delta: float) -> FleetTest:
    """Return the test of a model. `delta`: as in `ModelTrustState`."""
    if isinstance(model, UniformRows) or model.counts is None:
        rows = model.indptr.data, model.successors.data, model.probabilities.data
        return FleetTest(*rows, alpha=settings.alpha, impossible=settings.impossible)
    allowed = allowed_rows(model, model.counts, delta, settings.impossible)
    alpha = settings.alpha - delta
    return FleetTest(*allowed[:3], alpha=alpha, impossible=settings.impossible, bounds=allowed.bounds)


def _name(names: Sequence[str], index: int) -> str:
    return names[index] if index < len(names) else str(index)


def _settings_of_test(settings: TrustSettings) -> tuple[object, ...]:
    """Return the settings that must be equal for a test to continue."""
    everybody = settings.acknowledged.get(EVERYBODY)
    return settings.alpha, settings.impossible, settings.enabled, everybody
