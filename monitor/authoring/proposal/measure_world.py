"""Candidate formulas measured in a world with numbers, where values are drawn: one value serves all thresholds.

The formula that is chosen is then replayed as the monitor runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from monitor.alarm.machine import Alarm, assess, next_alarm
from monitor.arrays import Bools
from monitor.authoring.proposal.measure import CandidateFormula, Measured, Trace, replayed, summary_of, take
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.model.action_names import ActionNames
from monitor.runtime.monitor import Monitor
from monitor.types import FormulaSpec, Judged, Notice, Outcome, Sampling, StreamSettings, TrustSettings, Verdict
from monitor.worlds import CheckedWorld

ERROR: Final = 0.1
"""Half-width of the interval of a value, when no more is drawn. Values near 0 and 1 are more precise."""


@dataclass
class _Replay:
    """What one candidate does. `nominal`, `fallback`: names of the formulas of its values."""

    candidate: CandidateFormula
    nominal: str
    fallback: str
    alarm: Alarm = field(default_factory=Alarm)
    trace: Trace = field(default_factory=Trace)

    def take(self, values: Mapping[str, float], number: int, seq: int) -> None:
        """Take the values at a step of a path; without both there is no verdict."""
        if not {self.nominal, self.fallback} <= values.keys():
            return
        outcome = self._outcome(values)
        verdict = Verdict("", "sampled", "world", (), outcome=outcome)
        spec = self.candidate.alarm
        self.alarm, change = next_alarm(self.alarm, assess(verdict, spec), spec, seq, 0.0)
        self.trace.outcomes[outcome] += 1
        if change is not None and change.state == "firing":
            self.trace.alarms.setdefault(number, []).append(seq)

    def _outcome(self, values: Mapping[str, float]) -> Outcome:
        if values[self.nominal] >= self.candidate.threshold:
            return "safe"
        return "regret" if values[self.fallback] >= self.candidate.threshold else "unavoidable"


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
    names: dict[str, str] = {}
    replays = []
    for each in candidates:
        goal = f'@{each.offset}.P=? [ G<={each.horizon} !"{each.label}" ]'
        nominal, fallback = (names.setdefault(text, f"v{len(names)}") for text in (goal, f"fallback{goal}"))
        replays.append(_Replay(each, nominal, fallback))
    monitor = Monitor(
        world,
        policies,
        [FormulaSpec(name, text, bands="off") for text, name in names.items()],
        StreamSettings(encoder="features"),
        sampling=Sampling(error=ERROR),
        trust=TrustSettings(enabled=False),
    )
    for number, seq, notices in replayed(monitor, world.named_actions, paths, numbers.sent, report):
        values = dict(_values(notices))
        for replay in replays:
            if seq == 0:
                replay.alarm = Alarm()
            replay.take(values, number, seq)
    marks = {each.label: world.holds(each.label, numbers.states) for each in candidates}
    return [summary_of(each.candidate, each.trace, paths, marks[each.candidate.label]) for each in replays]


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
    trace, done = Trace(), 0
    for number, path in enumerate(paths):
        monitor, trace.fires = new_monitor(), False
        traces = {query.spec.name: trace for query in monitor.queries}
        for _, seq, notices in replayed(monitor, names, [path], numbers.sent, lambda _: None):
            for notice in notices:
                take(notice, traces, number, seq)
            done += 1
            report(done)
    return summary_of(candidate, trace, paths, unsafe)


def _values(notices: Sequence[Notice]) -> Iterator[tuple[str, float]]:
    for notice in notices:
        if isinstance(notice, Judged) and notice.verdict.value is not None:
            yield notice.formula, notice.verdict.value
