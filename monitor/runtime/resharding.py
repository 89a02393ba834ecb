"""Move agents between monitors: join the states of several monitors, or divide the state of one monitor by agents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from monitor.runtime.agent_monitor import AgentMonitorState
from monitor.runtime.formula import FormulaMonitorState
from monitor.runtime.monitor import MonitorState
from monitor.runtime.trust import ModelTrustState
from monitor.statistics.calibration import CalibrationCounts
from monitor.statistics.fleet import joined_fleets, joined_number
from monitor.types.notices import Calibration, Contradictions


class MonitorParts(msgspec.Struct, frozen=True):
    """State of a monitor, and agent -> state of each of its agents."""

    common: MonitorState
    agents: Mapping[str, AgentMonitorState]


def joined(monitors: Sequence[MonitorParts]) -> MonitorParts:
    """Return the state of one monitor with all agents, and with the formulas and the identity of the first monitor.

    The clocks of the monitors must agree (`later`), and no agent may be in two of them.
    """
    agents = {
        name: _renumbered(state, place, len(monitors))
        for place, parts in enumerate(monitors)
        for name, state in parts.agents.items()
    }
    all_common = [parts.common for parts in monitors]
    newcomers = {name: count for common in all_common for name, count in common.newcomers.items()}
    return MonitorParts(
        replace(
            all_common[0],
            agents=tuple(agents),
            ready=tuple(name for common in all_common for name in common.ready),
            connected=all(common.connected for common in all_common),
            swept=None,
            trust=_joined_trust([common.trust for common in all_common]),
            newcomers={name: newcomers[name] for name in sorted(newcomers, key=lambda name: _heard(agents[name]))},
            former=_joined_counts(common.former for common in all_common),
        ),
        agents,
    )


def divided(monitor: MonitorParts, shard_of: Callable[[str], int], shards: int) -> list[MonitorParts]:
    """Return the states of `shards` monitors. Monitor n gets the agents for which `shard_of` returns n.

    Only the first monitor gets the counts of forgotten agents' forecasts, so that the sum of these counts over all
    monitors stays the same. Every monitor gets the whole evidence of the model test and the losses of forgotten agents.
    So each test stays valid (`joined_fleets`).
    """
    parts = []
    for number in range(shards):
        agents = {name: state for name, state in monitor.agents.items() if shard_of(name) == number}
        common = replace(
            monitor.common,
            agents=tuple(agents),
            ready=tuple(name for name in monitor.common.ready if name in agents),
            swept=None,
            trust=_part_of_trust(monitor.common.trust, agents),
            newcomers={name: count for name, count in monitor.common.newcomers.items() if name in agents},
            former=monitor.common.former if number == 0 else {},
        )
        parts.append(MonitorParts(common, agents))
    return parts


def later(state: AgentMonitorState, seconds: float) -> AgentMonitorState:
    """Return the state of an agent on a clock whose ticks are `seconds` ahead."""

    def moved(ticks: float | None) -> float | None:
        return None if ticks is None else ticks + seconds

    session, order = state.session, state.session.order
    held = [replace(entry, arrived=entry.arrived + seconds) for entry in order.held]
    return replace(
        state,
        session=replace(
            session,
            since=[ticks + seconds for ticks in session.since],
            last_heard=moved(session.last_heard),
            last_message=moved(session.last_message),
            old=None if session.old is None else (session.old[0] + seconds, session.old[1] + seconds),
            order=replace(order, held=held, progress=order.progress + seconds),
        ),
        formulas={name: _later_formula(formula, seconds) for name, formula in state.formulas.items()},
    )


def _later_formula(state: FormulaMonitorState, seconds: float) -> FormulaMonitorState:
    published = state.published
    return replace(
        state,
        asked=None if state.asked is None else state.asked + seconds,
        skipped=None if state.skipped is None else state.skipped + seconds,
        published=None if published is None else replace(published, ticks=published.ticks + seconds),
    )


def _heard(state: AgentMonitorState) -> float:
    """Return the ticks of an agent's last message."""
    return -math.inf if state.session.last_message is None else state.session.last_message


def _joined_counts(counts: Iterable[Mapping[str, Calibration]]) -> dict[str, Calibration]:
    found: dict[str, CalibrationCounts] = {}
    for each in counts:
        for name, one in each.items():
            found.setdefault(name, CalibrationCounts()).merge(one)
    return {name: total.dump() for name, total in found.items()}


def _joined_trust(states: Sequence[ModelTrustState | None]) -> ModelTrustState | None:
    """Return the joined tests of the model of several monitors.

    `reported` is 0, so that the next sweep combines the tests.
    """
    tested = [state for state in states if state is not None]
    if len(tested) < len(states):
        return None
    fleet = joined_fleets([state.fleet for state in tested])
    return replace(tested[0], fleet=fleet, reported=0, contradictions=Contradictions(), described_at=0)


def _renumbered(state: AgentMonitorState, monitor: int, monitors: int) -> AgentMonitorState:
    """Return the state of an agent of one monitor; its model test gets a number that is unique in the joined fleet."""
    if state.trust is None or state.trust.number == 0:
        return state
    return replace(state, trust=replace(state.trust, number=joined_number(state.trust.number, monitor, monitors)))


def _part_of_trust(state: ModelTrustState | None, agents: Mapping[str, AgentMonitorState]) -> ModelTrustState | None:
    if state is None:
        return None
    transitions = sum(agent.trust.transitions for agent in agents.values() if agent.trust is not None)
    fleet = replace(state.fleet, transitions=transitions, observed=transitions)
    return replace(state, fleet=fleet, reported=0, contradictions=Contradictions(), described_at=0)
