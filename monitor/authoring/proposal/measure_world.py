"""Measure candidate formulas in a world with numbers, where values are sampled.

The chosen formula is then replayed in the way that the monitor runs it.
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
from monitor.types.specs import Sampling, StreamSettings, TrustSettings
from monitor.worlds import CheckedWorld

ERROR: Final = 0.1
"""Half-width of the interval at which sampling of a value stops."""


def measured_in_world(
    world: CheckedWorld,
    policies: Mapping[str, object],
    candidates: Sequence[CandidateFormula],
    recorded: tuple[Sequence[RecordedPath], RecordedNumbers],
    report: Callable[[int], None] = lambda _: None,
) -> list[Measured]:
    """Replay the paths through a monitor of the values that the candidates compare with their thresholds.

    `recorded`: paths, and the numbers of their states. `report` is called with the number of steps done. Raises the
    errors of `Monitor`.
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
    """Return the figures of one formula, with a new monitor for each path.

    Noise depends on agent, episode, step and number of the test. So if `cfmon replay` gets such a path alone, as
    episode 1 of the same agent, it draws the same noise and raises the same alarms. `names`: names of the actions.
    `unsafe`: whether each state of the paths is unsafe.
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
