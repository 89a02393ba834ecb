"""Bands of a picture: the value at each step, the counterfactual values, and when handing over still helped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, Protocol

from msgspec.structs import replace

from monitor.alarm.figures import SAME
from monitor.picture.explanation import ComparedWorld, Explanation
from monitor.picture.sheet import Sheet, figure, interval, scale_of
from monitor.picture.single_decisions import Decided
from monitor.picture.svg import ALTERNATIVE, INK, NOMINAL, PAPER, Ink, Point

BAND: Final = {"any": "every causal model", "stable": "every counterfactually stable model"}
MOST_RUNS: Final = 3
"""Maximum number of ranges of steps in a sentence."""
TALL: Final = 112.0
"""Height of a chart, in pixels."""


class Compared(Protocol):
    """The properties of a compared world that its line needs."""

    @property
    def nominal(self) -> bool:
        """Whether the nominal policy acts in this world."""
        ...


def ink_of(branch: Compared) -> str:
    """Return the colour of a world."""
    return NOMINAL if branch.nominal else ALTERNATIVE


def dash_of(branch: Compared) -> str:
    """Return the dash of a world: solid for nominal, dashed for an alternative."""
    return "" if branch.nominal else "7 4"


def marks_of(alarm: Explanation) -> list[tuple[float, str, Ink]]:
    """Return positions with a text and a colour: where each alternative begins, and where the alarm fires."""
    found: list[tuple[float, str, Ink]] = [
        (branch.begins - 0.5, branch.question, ALTERNATIVE)
        for branch in alarm.branches
        if not branch.nominal and branch.begins < alarm.now
    ]
    ended = ", the episode has ended" if alarm.evidence.terminated else ""
    return [*found, (alarm.now + 0.5, f"the alarm fires{ended}", INK)]


def draw_history(sheet: Sheet, alarm: Explanation) -> None:
    """Draw the value at each step so far, its bounds over causal models, and the threshold."""
    moments, time_axis, canvas = alarm.history, sheet.time_axis, sheet.canvas
    other = next((branch for branch in alarm.branches if not branch.nominal), alarm.branches[-1])
    banded = [m for m in moments if m.bounds is not None]
    numbers = [m.value for m in moments] + [m.nominal for m in moments if m.nominal is not None]
    numbers += [] if alarm.threshold is None else [alarm.threshold]
    what, whose = ("difference", "difference") if alarm.difference else ("value", other.name)
    ends = [end for m in banded for end in m.bounds or ()]
    disagreeing = [m.seq for m in banded if m.bounds and m.bounds[1] - m.bounds[0] > SAME]
    scale = scale_of(numbers or [branch.value for branch in alarm.branches], ends, reward=alarm.reward)
    aside = ""
    if disagreeing:
        models = BAND.get(alarm.evidence.causal_model, "its bounds")
        spread = interval((min(ends), max(ends)), reward=alarm.reward)
        reach = f" ({spread}, beyond the axis)" if scale.clipped else ""
        until = "where the alarm fired" if banded[-1].seq == time_axis.seq else f"step {banded[-1].seq}"
        disagree = "disagree" if alarm.evidence.verdict.belief is None else "may disagree"
        aside = (
            f"shaded: {whose} over {models}{reach}, from step {banded[0].seq} to {until}. "
            f"On {whose}, they {disagree} at {_listed(disagreeing)}."
        )
    sheet.heading(f"What happened: the {what} at each step", aside)
    chart = sheet.chart(TALL, scale)
    sheet.threshold(chart, alarm.comparison, alarm.threshold)
    if not moments:
        sheet.unknown(chart, time_axis.first - 0.5, time_axis.now + 0.5, "not answered exactly, so not derived again")
        return
    known = {time_axis.now + m.seq - time_axis.seq: m for m in moments}
    known = {position: m for position, m in known.items() if position in time_axis.positions}
    sheet.unknown(chart, time_axis.first - 0.5, min(known) - 0.5)
    if banded:
        low = [chart.at(position, m.bounds[0]) for position, m in known.items() if m.bounds]
        high = [chart.at(position, m.bounds[1]) for position, m in known.items() if m.bounds]
        canvas.tint([*high, *reversed(low)], ALTERNATIVE, 0.12)
        for edge in (low, high):
            canvas.polyline(edge, ink=ALTERNATIVE, opacity=0.5)
    nominal = [chart.at(position, m.nominal) for position, m in known.items() if m.nominal is not None]
    _line(sheet, [chart.at(position, m.value) for position, m in known.items()], other)
    if nominal:
        canvas.polyline(nominal, ink=NOMINAL, width=2.4)
        for point in nominal:
            canvas.dot(point, 3, fill=NOMINAL)
    for position, m in known.items():
        said = f"{whose} {figure(m.value, reward=alarm.reward)}"
        said += f" ({interval(m.bounds, reward=alarm.reward)})" if m.bounds and m.bounds[0] < m.bounds[1] else ""
        own = [] if m.nominal is None else [f"nominal {figure(m.nominal, reward=alarm.reward)}"]
        sheet.notes[position].append(f"Value at this step: {', '.join([*own, said])}")


def _listed(seqs: Sequence[int]) -> str:
    """Return ascending numbers of steps in words.

    >>> _listed([4]), _listed([1, 2, 3, 7]), _listed([1, 3, 5, 7])
    ('step 4', 'steps 1 to 3, 7', '4 of the steps')
    """
    runs = [[each[1] for each in run] for _, run in groupby(enumerate(seqs), key=lambda each: each[1] - each[0])]
    if len(runs) > MOST_RUNS:
        return f"{len(seqs)} of the steps"
    shown = ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    return f"step{'' if len(seqs) == 1 else 's'} {shown}"


def draw_outlook(sheet: Sheet, alarm: Explanation) -> None:
    """Draw the goal's probability in each world, step by step. The last probability is the world's value."""
    branches = [branch for branch in alarm.branches if branch.distribution is not None]
    heading, curves = _outlook(alarm, branches)
    if alarm.difference:
        own = zip(branches, curves, strict=True)  # these bounds and bands belong to the difference
        shown = [replace(e, value=c[-1], bounds=None, credible=None, guaranteed=None, extremes=None) for e, c in own]
    else:
        shown = list(alarm.branches)
    required = [] if alarm.threshold is None or alarm.difference else [alarm.threshold]
    numbers = [number for curve in curves for number in curve] + [branch.value for branch in shown] + required
    ends = [end for branch in shown for each in _intervals(branch) for end in each]
    time_axis = sheet.time_axis
    end = f"marks at the right: after step {time_axis.step(time_axis.ends)}" if time_axis.ends > time_axis.last else ""
    sheet.heading(f"What would have happened: {heading}", end)
    chart = sheet.chart(TALL, scale_of(numbers or [0.0], ends, reward=alarm.reward))
    sheet.threshold(chart, alarm.comparison, None if alarm.difference else alarm.threshold)
    missing = [f"no curve for {branch.name}: {branch.problem}" for branch in alarm.branches if branch.problem]
    if missing:
        begins = min(branch.begins for branch in alarm.branches) - 0.5
        sheet.unknown(chart, begins, time_axis.last + 0.5, "; ".join(missing))
    for branch, curve in zip(branches, curves, strict=True):
        line = [(branch.begins + n, y) for n, y in enumerate(curve) if branch.begins + n in time_axis.positions]
        points = [chart.at(position, y) for position, y in line]
        sheet.canvas.polyline(points, ink=ink_of(branch), width=2.4, dash=dash_of(branch))
        for position, y in line:
            sheet.notes[position].append(f"{branch.name}, {heading}: {figure(y, reward=alarm.reward)}")
    highest = chart.top + chart.height + 14
    for n, branch in enumerate(sorted(shown, key=lambda branch: branch.value)):  # from the lowest value up
        x, y = time_axis.right + 8 + 9 * n, chart.y(branch.value)
        intervals = _intervals(branch)
        for k, (low, high) in enumerate(intervals):
            sheet.canvas.line((x, chart.y(low)), (x, chart.y(high)), ink=ink_of(branch), width=1.6 + 3 * k)
        _mark(sheet, (x, y), branch)
        words = [figure(branch.value, reward=alarm.reward)]
        words += [interval(each, reward=alarm.reward) for each in intervals]
        highest = min(y + 4, highest - 14 * len(words))
        for k, text in enumerate(words):
            at = time_axis.right + 28, highest + 14 * k
            sheet.canvas.text(at, text, size=12 - min(k, 1), ink=ink_of(branch), bold=k == 0, halo=True)


def _outlook(alarm: Explanation, branches: Sequence[ComparedWorld]) -> tuple[str, list[Sequence[float]]]:
    """Return a title, and a curve for each world with a distribution. Each curve ends at the world's value."""
    known = [branch.distribution for branch in branches if branch.distribution is not None]
    if alarm.reward:
        return "reward collected by then", [each.reward for each in known]
    if sum(sum(each.violated[:-1]) - sum(each.satisfied[:-1]) for each in known) >= 0:
        return alarm.kept, [[1.0 - lost for lost in each.violated] for each in known]
    return alarm.reached, [each.satisfied for each in known]


def _intervals(branch: ComparedWorld) -> list[tuple[float, float]]:
    """Return the intervals of a world's value, the widest kind first. Intervals of a single number are left out."""
    found = (branch.extremes, branch.guaranteed, branch.credible, branch.bounds)
    return [each for each in found if each is not None and each[0] < each[1]]


def draw_handover(sheet: Sheet, alarm: Explanation, decided: Sequence[Decided] = ()) -> None:
    """Draw for each step the values of a takeover by the alternative, and of one different decision."""
    profile = {alarm.now - offset: both for offset, both in sorted(alarm.profile.items(), reverse=True)}
    profile = {position: both for position, both in profile.items() if position in sheet.time_axis.positions}
    if not profile and not decided:
        return
    numbers = [number for both in profile.values() for number in both] + [each.value for each in decided]
    numbers += [] if alarm.threshold is None else [alarm.threshold]
    aside = "triangles: one other action at that step, with hindsight" if decided else ""
    sheet.heading(f"When handing over helped: {_verdict(alarm)}" if profile else "Had one action been another", aside)
    chart = sheet.chart(TALL, scale_of(numbers, reward=alarm.reward))
    sheet.threshold(chart, alarm.comparison, alarm.threshold)
    other = next((branch for branch in alarm.branches if not branch.nominal), alarm.branches[-1])
    if profile:
        _line(sheet, [chart.at(position, both[1]) for position, both in profile.items()], other)
        nominal = [chart.at(position, both[0]) for position, both in profile.items()]
        sheet.canvas.polyline(nominal, ink=NOMINAL, width=2.4)
        for point in nominal:
            sheet.canvas.dot(point, 3, fill=NOMINAL)
    for each in decided:
        x, y = chart.at(each.position, each.value)
        sheet.canvas.triangle((x, y), 5, fill=PAPER, ink=INK)
        what = f"{each.instead} (with hindsight): {figure(each.value, reward=alarm.reward)}"
        sheet.notes[each.position].append(what)
    for position, (own, given) in profile.items():
        took = f"Had {other.name} taken over here: {figure(given, reward=alarm.reward)}"
        sheet.notes[position].append(f"{took} instead of {figure(own, reward=alarm.reward)}")


def _verdict(alarm: Explanation) -> str:
    """Return a phrase that says when handing over last sufficed, according to the verdict."""
    if alarm.latest_useful is None:
        return "at none of these steps"
    if alarm.latest_useful == 0:
        return "when the alarm fired it still did"
    ago = f"{alarm.latest_useful} step{'' if alarm.latest_useful == 1 else 's'} before"
    return f"last at step {alarm.first + alarm.now - alarm.latest_useful}, {ago}"


def _line(sheet: Sheet, points: Sequence[Point], branch: ComparedWorld) -> None:
    sheet.canvas.polyline(points, ink=ink_of(branch), width=2.4, dash=dash_of(branch))
    for point in points:
        _mark(sheet, point, branch)


def _mark(sheet: Sheet, at: Point, branch: ComparedWorld) -> None:
    """Draw the mark of a world: a disc for nominal, a diamond for an alternative."""
    if branch.nominal:
        sheet.canvas.dot(at, 3.5, fill=NOMINAL)
    else:
        sheet.canvas.diamond(at, 4.5, fill=ALTERNATIVE)
