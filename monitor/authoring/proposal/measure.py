"""Measure candidate formulas: recorded paths go through the same monitor as live steps.

Candidates compare the same values with different thresholds, so the monitor has one formula for each value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from monitor.alarm.machine import Alarm, assess, next_alarm
from monitor.arrays import Bools
from monitor.authoring.proposal.paths import RecordedPath, episodes_of, unsafe_events
from monitor.exact.verdict import regret_outcome
from monitor.logic.comparison import passes
from monitor.model.action_names import ActionNames
from monitor.model.mdp import MDP
from monitor.runtime.monitor import Monitor
from monitor.types.alerts import Alert
from monitor.types.notices import Judged, Notice
from monitor.types.specs import AlarmSpec, FormulaSpec, TrustSettings
from monitor.types.stream_events import Instant, Observation, RawInputs, RawState
from monitor.types.verdicts import Quantity, Verdict

Sent = tuple[RawState, RawInputs | None]
"""State and inputs of a step, as an agent sends them."""

SECOND = 0.1
"""Time between two steps on the replayed clock, in seconds. The figures do not depend on it."""


@dataclass(frozen=True)
class CandidateFormula:
    """A formula: its horizon, offset (the takeover is this many steps ago), threshold, unsafe label and alarm."""

    horizon: int
    offset: int
    threshold: float
    label: str
    alarm: AlarmSpec

    @property
    def text(self) -> str:
        """The formula."""
        goal = f'G<={self.horizon} !"{self.label}"'
        return f"regret(fallback@{self.offset}, P>={self.threshold:g} [ {goal} ])"


class PathAlarms(NamedTuple):
    """Counts of one path; see `Measured`."""

    steps: int
    alarms: int
    false: int
    events: int
    preceded: int


@dataclass(frozen=True)
class Measured:
    """Figures of a candidate on recorded paths.

    Attributes:
        candidate: the formula.
        steps, answered: number of steps of the paths, and number of verdicts on these steps.
        alarms: number of alarms.
        false: number of alarms that are not followed by an unsafe event within the horizon.
        events, preceded: number of unsafe events, and number of unsafe events with an alarm that began within the
            horizon before the event.
        lead: median number of steps from such an alarm to its event, or None.
        regret, unavoidable: number of verdicts that the requirement is violated. With `regret` the fallback would have
            met the requirement, with `unavoidable` it would not.
        first: number of the path with the first alarm that preceded an event, else with the first alarm, or None.
        leads: number of steps from each such alarm to its event.
        paths: the counts of each path.
        episodes: the counts of each episode, which gaps divide into paths.
        near: in a world with numbers, the paths on which some value is not clearly above the threshold.
    """

    candidate: CandidateFormula
    steps: int
    answered: int
    alarms: int
    false: int
    events: int
    preceded: int
    lead: float | None
    regret: int
    unavoidable: int
    first: int | None
    leads: tuple[int, ...] = ()
    paths: tuple[PathAlarms, ...] = ()
    episodes: tuple[PathAlarms, ...] = ()
    near: tuple[int, ...] = ()

    @property
    def per_thousand(self) -> float:
        """Alarms per 1,000 steps."""
        return 1000.0 * self.alarms / max(self.steps, 1)

    @property
    def balance(self) -> float:
        """F1 score: harmonic mean of the fraction of alarms that are not false and the fraction of events preceded."""
        if not self.alarms or not self.events:
            return 0.0
        precision, recall = 1 - self.false / self.alarms, self.preceded / self.events
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass
class FormulaTrace:
    """Record of one formula: for each path the first steps of its alarms, and its verdicts by outcome."""

    alarms: dict[int, list[int]] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    fires: bool = False


@dataclass
class _Candidate:
    """One candidate with its alarm and its record. `nominal`, `fallback`: the formulas of its values."""

    candidate: CandidateFormula
    nominal: str
    fallback: str
    alarm: Alarm = field(default_factory=Alarm)
    trace: FormulaTrace = field(default_factory=FormulaTrace)

    def take(self, values: Mapping[str, Quantity], number: int, seq: int) -> None:
        """Take the values at a step of a path. There is no verdict if a value that decides it is missing."""
        if self.nominal not in values:
            return
        one = self._compared(values[self.nominal])
        if self.fallback not in values and not one.holds:
            return
        other = self._compared(values.get(self.fallback, one))  # if `one` holds, `other` is not needed
        outcome = regret_outcome(one.holds, other.holds)
        verdict = Verdict("", "exact", "gumbel", (one, other), outcome=outcome)
        spec = self.candidate.alarm
        self.alarm, change = next_alarm(self.alarm, assess(verdict, spec), spec, seq, 0.0)
        self.trace.outcomes[outcome] += 1
        if change is not None and change.state == "firing":
            self.trace.alarms.setdefault(number, []).append(seq)

    def _compared(self, quantity: Quantity) -> Quantity:
        """Return a value and whether it meets the threshold; None if this depends on rows that were never recorded."""
        ends = {passes(value, ">=", self.candidate.threshold) for value in (quantity.value, *(quantity.extremes or ()))}
        return replace(quantity, holds=ends.pop() if len(ends) == 1 else None)


def measured(
    model: MDP,
    policies: Mapping[str, object],
    candidates: Sequence[CandidateFormula],
    paths: Sequence[RecordedPath],
    report: Callable[[int], None] = lambda _: None,
) -> list[Measured]:
    """Replay the paths through a monitor of all candidates. `report` is called with the number of steps done.

    If a step is impossible in `model`, the formulas have no verdict on it, as in the live monitor. Raises the errors of
    `Monitor`.
    """
    texts = dict.fromkeys(text for each in candidates for text in values_of(each))
    # no candidate uses bands, and bands cost as much as verdicts on a hundred models
    specs = [FormulaSpec(f"v{i}", text, bands="off") for i, text in enumerate(texts)]
    text_of = {spec.name: spec.text for spec in specs}
    monitor = Monitor(model, policies, specs, trust=TrustSettings(enabled=False))
    steps = (
        (
            number,
            seq,
            {
                text_of[notice.formula]: notice.verdict.quantities[0]
                for notice in notices
                if isinstance(notice, Judged) and notice.verdict.value is not None
            },
        )
        for number, seq, notices in replayed(monitor, model.named_actions, paths, lambda state: (state, None), report)
    )
    return compared(candidates, steps, paths, model.labels)


def values_of(candidate: CandidateFormula) -> tuple[str, str]:
    """Return the formulas of the two values that a candidate compares: under nominal, and under the fallback."""
    goal = f'@{candidate.offset}.P=? [ G<={candidate.horizon} !"{candidate.label}" ]'
    return goal, f"fallback{goal}"


def compared(
    candidates: Sequence[CandidateFormula],
    steps: Iterable[tuple[int, int, Mapping[str, Quantity]]],
    paths: Sequence[RecordedPath],
    labels: Mapping[str, Bools],
) -> list[Measured]:
    """Return the figures of candidates.

    `steps`: number of a path, step, and formula -> value, for each formula of `values_of` that has a value at this
    step. `labels`: [S] each, for the states of the paths.
    """
    rows = [_Candidate(each, *values_of(each)) for each in candidates]
    for number, seq, values in steps:
        for row in rows:
            if seq == 0:
                row.alarm = Alarm()
            row.take(values, number, seq)
    return [summary_of(each.candidate, each.trace, paths, labels[each.candidate.label]) for each in rows]


def replayed(
    monitor: Monitor,
    names: ActionNames,
    paths: Sequence[RecordedPath],
    sent: Callable[[int], Sent],
    report: Callable[[int], None],
) -> Iterator[tuple[int, int, list[Notice]]]:
    """Yield the number of a path, the step, and the monitor's notices at this step.

    `names`: names of the model's actions. `sent`: state -> the values that an agent sends.
    """
    clock = 0
    for number, path in enumerate(paths):
        for seq, step in enumerate(_observations(path, number, names, map(sent, path.sent.tolist()))):
            clock += 1
            now = Instant(clock * SECOND, clock * SECOND)
            yield number, seq, [*monitor.observe(step, now), *monitor.evaluate(now)]
            report(clock)


def first_firing(
    monitor: Monitor, names: ActionNames, paths: Iterable[tuple[int, RecordedPath, Sequence[RawState]]]
) -> int | None:
    """Return the number of the first path on which an alarm fires, or None.

    `paths`: each with its number, and its states as an agent sends them, perhaps without the last one.
    """
    clock = 0
    for number, path, states in paths:
        for step in _observations(path, number, names, ((state, None) for state in states)):
            clock += 1
            now = Instant(clock * SECOND, clock * SECOND)
            notices = [*monitor.observe(step, now), *monitor.evaluate(now)]
            if any(isinstance(notice, Alert) and notice.state == "firing" for notice in notices):
                return number
    return None


def _observations(path: RecordedPath, number: int, names: ActionNames, sent: Iterable[Sent]) -> list[Observation]:
    """Return the messages of a path. `sent`: its states in their order, perhaps without the last one."""
    last = len(path.actions)
    return [
        Observation(
            agent="recorded",
            episode=number + 1,
            seq=seq,
            state=numbers,
            inputs=inputs,
            action=names.sent(int(path.actions[seq])) if seq < last else None,
            terminated=seq == last and path.ended,
            truncated=seq == last and not path.ended,
        )
        for seq, (numbers, inputs) in enumerate(sent)
    ]


def take(notice: Notice, traces: Mapping[str, FormulaTrace], number: int, seq: int) -> None:
    """Add a notice to the record of its formula. `number`: number of the path. `seq`: number of the step."""
    match notice:
        case Judged(formula=name, verdict=verdict) if verdict.outcome is not None:
            traces[name].outcomes[verdict.outcome] += 1
        case Alert(formula=name, state=state):
            trace = traces[name]
            if not trace.fires:
                trace.alarms.setdefault(number, []).append(seq)
            trace.fires = state == "firing"
        case _:
            pass


def summary_of(
    candidate: CandidateFormula,
    trace: FormulaTrace,
    paths: Sequence[RecordedPath],
    unsafe: Bools,
    known: Bools | None = None,
) -> Measured:
    """Return the figures of a formula on the paths. `unsafe`: whether each state is unsafe, [S].

    `known`: if states are hidden, whether it is known that each state is safe or unsafe, [S]; `unsafe` is False where
    it is not known. A step or an alarm then counts if it is known at each step from the takeover to the horizon. An
    alarm is false if none of these states is unsafe. They include states before the alarm, because a hidden state may
    be unsafe before an alarm can know it.
    """
    leads: list[int] = []
    counts: list[PathAlarms] = []
    warned: list[int] = []
    reach = candidate.horizon
    for number, path in enumerate(paths):
        alarms, entered = trace.alarms.get(number, []), unsafe_events(path, unsafe)
        judged, steps = alarms, len(path.actions)
        if known is not None:
            here = known[path.states]
            entered = [e for e in entered if here[e - 1] and here[e]]
            settled = [bool(here[_window(t, candidate)].all()) for t in range(len(here))]
            judged, steps = [a for a in alarms if settled[a]], sum(settled[:steps])
        before = [[e - a for a in alarms if e - reach <= a < e] for e in entered]
        found = [max(each) for each in before if each]
        leads += found
        warned += [number] if any(before) else []
        if known is None:
            false = sum(not any(a - candidate.offset <= e <= a + reach for e in entered) for a in judged)
        else:
            false = sum(not unsafe[path.states[_window(a, candidate)]].any() for a in judged)
        counts.append(PathAlarms(steps, len(judged), false, len(entered), len(found)))
    of = episodes_of(paths)
    episodes = [_total([counts[n] for n in np.flatnonzero(of == one).tolist()]) for one in dict.fromkeys(of.tolist())]
    steps, fired, false, events, preceded = _total(episodes)
    return Measured(
        candidate=candidate,
        steps=steps,
        answered=trace.outcomes.total(),
        alarms=fired,
        false=false,
        events=events,
        preceded=preceded,
        lead=float(np.median(leads)) if leads else None,
        regret=trace.outcomes["regret"],
        unavoidable=trace.outcomes["unavoidable"],
        first=min(warned or trace.alarms, default=None),
        leads=tuple(leads),
        paths=tuple(counts),
        episodes=tuple(episodes),
    )


def _window(step: int, candidate: CandidateFormula) -> slice:
    """Return the steps that decide the goal of an alarm: from the takeover to the horizon."""
    return slice(max(step - candidate.offset, 0), step + candidate.horizon + 1)


def _total(counts: Sequence[PathAlarms]) -> PathAlarms:
    return PathAlarms(*(sum(each) for each in zip(PathAlarms(0, 0, 0, 0, 0), *counts, strict=True)))
