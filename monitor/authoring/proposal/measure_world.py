"""Candidate formulas measured in a world with numbers, where values are drawn.

The formula that is chosen is then replayed as the monitor runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from monitor.arrays import Bools
from monitor.authoring.proposal.measure import (
    CandidateFormula,
    FormulaTrace,
    Measured,
    compared,
    replayed,
    summary_of,
    take,
    value_formulas,
)
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.model.action_names import ActionNames
from monitor.runtime.monitor import Monitor
from monitor.types import Sampling, StreamSettings, TrustSettings
from monitor.worlds import CheckedWorld

ERROR: Final = 0.1
"""Half-width of the interval of a value, when no more is drawn. Values near 0 and 1 are more precise."""


def measured_in_world(
    world: CheckedWorld,
    policies: Mapping[str, object],
    candidates: Sequence[CandidateFormula],
    recorded: tuple[Sequence[RecordedPath], RecordedNumbers],
    report: Callable[[int], None] = lambda _: None,
) -> list[Measured]:
    """Replay the paths through a monitor of the values that the candidates compare with their thresholds.

    `recorded`: paths, and what the numbers of their states are. `report` gets the number of steps done. Raises what
    `Monitor` raises.
    """
    paths, numbers = recorded
    specs = value_formulas(candidates)
    monitor = Monitor(
        world,
        policies,
        list(specs.values()),
        StreamSettings(encoder="features"),
        sampling=Sampling(error=ERROR),
        trust=TrustSettings(enabled=False),
    )
    marks = {each.label: world.holds(each.label, numbers.states) for each in candidates}
    steps = replayed(monitor, world.named_actions, paths, numbers.sent, report)
    return compared(candidates, specs, steps, paths, marks)


def replayed_alone(
    new_monitor: Callable[[], Monitor],
    candidate: CandidateFormula,
    recorded: tuple[Sequence[RecordedPath], RecordedNumbers],
    unsafe: Bools,
    report: Callable[[int], None] = lambda _: None,
    *,
    names: ActionNames,
) -> Measured:
    """Return what a monitor of one formula does on each path, as the first that it sees.

    Noise depends on agent, episode, step and number of the test, so `cfmon replay` of such a path alone, by the same
    agent in its episode 1, draws the same numbers and raises the same alarms. `names`: of the actions. `unsafe`: which
    states of the paths are.
    """
    paths, numbers = recorded
    trace, done = FormulaTrace(), 0
    for number, path in enumerate(paths):
        monitor, trace.fires = new_monitor(), False
        traces = {query.spec.name: trace for query in monitor.queries}
        for _, seq, notices in replayed(monitor, names, [path], numbers.sent, lambda _: None):
            for notice in notices:
                take(notice, traces, number, seq)
            done += 1
            report(done)
    return summary_of(candidate, trace, paths, unsafe)
