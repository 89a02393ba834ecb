"""The monitor of one agent as a pure function (state, event) -> (state, notices), for engines that keep state by key.

A sidecar, a job of such an engine and an audit run the same code: `AgentStep` holds a `Monitor` of one agent. The state
is stored as bytes with a version and a checksum. A program with enough memory keeps an `AgentStep` for each agent and
writes bytes only at checkpoints. The function `step` starts from the bytes of the previous step instead; the results
are bit-identical.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from monitor.errors import InputError
from monitor.runtime.agent_monitor import AgentMonitorState
from monitor.runtime.monitor import Monitor, MonitorState, Saved
from monitor.stream import seal, unseal
from monitor.types.notices import Notice
from monitor.types.stream_events import Instant, Observation

__all__ = ["AgentEvent", "AgentState", "AgentStep", "Link", "Loss", "Stepped", "step"]


class Loss(msgspec.Struct, frozen=True):
    """Messages of the agent were lost on the way; it is unknown which messages.

    `why`: a sentence that replaces the usual sentence.
    """

    why: str = ""


class Link(msgspec.Struct, frozen=True):
    """The source of the messages is connected (`up`), or not."""

    up: bool


AgentEvent = bytes | Observation | Loss | Link | None
"""A message of the agent, as bytes or decoded; a loss of messages; a change of the connection; None if only time
passed."""


class AgentState(msgspec.Struct, frozen=True):
    """State of one agent.

    `content`: bytes that change with each step. `pages`: number -> page of 4 KiB with hashes of ended episodes. A page
    never changes, and an agent with fewer than 576 ended episodes has no page.
    """

    content: bytes
    pages: Mapping[int, bytes] = {}


class Stepped(msgspec.Struct, frozen=True):
    """Result of a step.

    `due`: ticks at which to call `step` with the event None, unless another event comes first; None if there is no such
    time.
    """

    state: AgentState
    notices: list[Notice]
    due: float | None


class _Content(msgspec.Struct, frozen=True, array_like=True):
    """Content of `AgentState.content`. `agent`: None before the agent's first message, and after it was forgotten.

    `same_counts`: whether the counts of the fleet's test equal the counts of the agent's test, so that only the agent's
    counts are stored.
    """

    common: MonitorState
    agent: AgentMonitorState | None
    same_counts: bool


_NO_PAGES: Final[Mapping[int, bytes]] = MappingProxyType({})


class AgentStep:
    """Monitor of one agent, in memory.

    Args:
        monitor: model, policies and formulas. One monitor serves any number of agents. The agents share computed
            tables, so all of them must be stepped in one thread.
        agent: the agent's name.
        state: state of an earlier `AgentStep`; None for a new agent. The formulas may have changed since then;
            `restored` has the notices about the changes.

    Raises:
        InputError: `bad_snapshot` if the state is damaged, of another version, or of another agent.

    >>> import monitor
    >>> model = monitor.MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], labels={"bad": [0]})
    >>> formulas = ['P>=0.9 [ G<=3 !"bad" ]']
    >>> agent = AgentStep(monitor.Monitor(model, {"nominal": [0]}, formulas), "ada")
    >>> message = b'{"v": 1, "episode": 1, "seq": 0, "state": 0, "action": 0}'
    >>> notices = agent.step(message, monitor.Instant(wall=1000.0, ticks=0.0))
    >>> print(*(type(notice).__name__ for notice in notices))
    Received Judged AlarmMoved Alert
    """

    def __init__(self, monitor: Monitor, agent: str, state: AgentState | None = None) -> None:
        self._agent = agent
        self._monitor = monitor.alone()
        self.restored: list[Notice] = []
        if state is not None:
            self._restore(state)

    def step(self, event: AgentEvent, now: Instant) -> list[Notice]:
        """Process an event, evaluate due formulas, and return the notices.

        No content of a message makes this method raise. Raises ValueError for an observation of another agent.
        """
        match event:
            case Observation():
                notices = self._monitor.observe(self._own(event), now)
            case bytes():
                notices = self._monitor.receive(self._agent, event, now)
            case None:
                notices = []
            case Loss():
                notices = self._monitor.lost(self._agent, now, event.why)
            case Link():
                notices = self._monitor.connected(event.up, now)
            case _:
                assert_never(event)
        return notices + self._monitor.evaluate(now)

    @property
    def due(self) -> float | None:
        """Ticks at which to call `step` with None, unless another event comes first; None if there is no such time."""
        return self._monitor.due

    def checkpoint(self) -> AgentState:
        """Return the state after the last step."""
        saved = self._monitor.save(everything=True)
        agent, common = saved.agents.get(self._agent), saved.common
        own = None if agent is None else agent.trust
        same = common.trust is not None and own is not None and common.trust.fleet.counts == own.counts
        content = _Content(_with_counts(common, {}) if same else common, agent, same)
        pages = saved.pages.get(self._agent, {})
        return AgentState(seal(content), {number: page for number, page in pages.items() if page is not None})

    def current_state(self) -> Iterator[Notice]:
        """Yield notices that describe the current state, for sinks after a restart."""
        return self._monitor.current_state()

    def _own(self, observation: Observation) -> Observation:
        if observation.agent != self._agent:
            raise ValueError(f"an observation of {observation.agent!r} was given to the step of {self._agent!r}")
        return observation

    def _restore(self, state: AgentState) -> None:
        content = unseal(state.content, _Content)
        found = {} if content.agent is None else {content.agent.session.agent: content.agent}
        if found.keys() - {self._agent}:
            raise InputError("bad_snapshot", f"the state is that of {', '.join(found)}, not of {self._agent}")
        own = None if content.agent is None else content.agent.trust
        common = _with_counts(content.common, own.counts) if own is not None and content.same_counts else content.common
        self.restored = self._monitor.load(Saved(common, found, {self._agent: state.pages}))


def step(monitor: Monitor, agent: str, state: AgentState | None, event: AgentEvent, now: Instant) -> Stepped:
    """Return the state and the notices after an event. `state`: None at the beginning.

    Raises the same errors as `AgentStep`.
    """
    live = AgentStep(monitor, agent, state)
    notices = [*live.restored, *live.step(event, now)]
    return Stepped(live.checkpoint(), notices, live.due)


def _with_counts(common: MonitorState, counts: dict[int, int]) -> MonitorState:
    """Return the state with `counts` as the counts of the fleet's test."""
    assert common.trust is not None, "the model is tested"
    return replace(common, trust=replace(common.trust, fleet=replace(common.trust.fleet, counts=counts)))
