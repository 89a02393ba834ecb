"""Measure candidate formulas in a world with numbers, where values are sampled.

The chosen formula is then replayed in the way that the monitor runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from scipy.stats import binom

from monitor.arrays import Bools, Floats
from monitor.authoring.proposal.drawn_values import DRAWS, DrawnValues
from monitor.authoring.proposal.measure import (
    CandidateFormula,
    FormulaTrace,
    Measured,
    compared,
    replayed,
    summary_of,
    take,
    values_of,
)
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.model.action_names import ActionNames
from monitor.runtime.monitor import Monitor
from monitor.types.verdicts import Quantity
from monitor.worlds import CheckedWorld

CLEAR: Final = 0.001
"""A value is clearly above a threshold if a value equal to the threshold more rarely gives so high an estimate."""


def measured_in_world(
    world: CheckedWorld,
    policies: Mapping[str, object],
    candidates: Sequence[CandidateFormula],
    recorded: tuple[Sequence[RecordedPath], RecordedNumbers],
    report: Callable[[int], None] = lambda _: None,
) -> list[Measured]:
    """Return the figures of candidates from the values at each step of the paths (`DrawnValues`).

    `recorded`: paths, and the numbers of their states. `report` is called with the number of steps done.
    """
    paths, numbers = recorded
    drawn, found = DrawnValues(world, policies, recorded), dict[str, Floats]()
    for label, offset in dict.fromkeys((each.label, each.offset) for each in candidates):
        mine = [each for each in candidates if (each.label, each.offset) == (label, offset)]
        horizons = list(dict.fromkeys(each.horizon for each in mine))
        values = drawn.values(label, horizons, offset, max(each.threshold for each in mine), report)
        for each in mine:
            found |= zip(values_of(each), (part[:, horizons.index(each.horizon)] for part in values), strict=True)
    marks = {each.label: numbers.unsafe(world, each.label) for each in candidates}
    rows = compared(candidates, _by_step(found, paths), paths, marks)
    return [
        replace(row, near=_near(found[values_of(row.candidate)[0]], row.candidate.threshold, paths)) for row in rows
    ]


def _near(values: Floats, threshold: float, paths: Sequence[RecordedPath]) -> tuple[int, ...]:
    """Return the paths on which some value [n] is not clearly above the threshold.

    Let k be the number of draws that meet the goal. The value is clearly above the threshold if a value equal to the
    threshold gives k or more such draws with a probability below `CLEAR`.
    """
    few = binom.sf(values * DRAWS - 0.5, DRAWS, threshold) >= CLEAR
    ends = np.cumsum([len(path.sent) for path in paths])[:-1]
    return tuple(n for n, part in enumerate(np.split(few | np.isnan(values), ends)) if part.any())


def _by_step(
    found: Mapping[str, Floats], paths: Sequence[RecordedPath]
) -> Iterator[tuple[int, int, dict[str, Quantity]]]:
    """Yield the number of a path, the step, and the values there. `found`: formula -> values at all steps, [n]."""
    places = ((number, seq) for number, path in enumerate(paths) for seq in range(len(path.sent)))
    for (number, seq), *values in zip(places, *(part.tolist() for part in found.values()), strict=True):
        yield (
            number,
            seq,
            {
                text: Quantity(text, value, 0, clipped=False)
                for text, value in zip(found, values, strict=True)
                if value == value  # noqa: PLR0124 - NaN: no value
            },
        )


def replayed_alone(
    new_monitor: Callable[[], Monitor],
    candidate: CandidateFormula,
    recorded: tuple[Sequence[RecordedPath], RecordedNumbers],
    unsafe: Bools,
    report: Callable[[int], None] = lambda _: None,
    *,
    names: ActionNames,
    only: Collection[int],
) -> Measured:
    """Return the figures of one formula, with a new monitor for each path of `only`.

    On all other paths no value is near the threshold (`Measured.near`), so each step counts as meeting the requirement.

    Noise depends on agent, episode, step and number of the test. If `cfmon replay` gets a path alone, as episode 1 of
    the same agent, it therefore draws the same noise and raises the same alarms. `names`: names of the actions.
    `unsafe`: whether each state of the paths is unsafe.
    """
    paths, numbers = recorded
    trace, done = FormulaTrace(), 0
    for number, path in enumerate(paths):
        if number not in only:
            trace.outcomes["safe"] += len(path.sent)
            done += len(path.sent)
            continue
        monitor, trace.fires = new_monitor(), False
        traces = {query.spec.name: trace for query in monitor.queries}
        for _, seq, notices in replayed(monitor, names, [path], numbers.sent, lambda _: None):
            for notice in notices:
                take(notice, traces, number, seq)
            done += 1
            report(done)
    return summary_of(candidate, trace, paths, unsafe)
