"""Picture of an alarm where states are hidden, or policies remember: how likely each state is at each step, as shade.

There is a panel for each compared world: the one that was observed, and the one under the alternative. Up to the last
step of the path the shade is what is known of it now, with all that was observed; beyond, what may come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any, Final

import msgspec

from monitor.errors import LimitError
from monitor.evidence.document import Evidence
from monitor.hidden.checker import HiddenChecker
from monitor.hidden.course import States
from monitor.hidden.filtering import Weights
from monitor.hidden.glances import Pair
from monitor.logic import Formula, parse
from monitor.logic.syntax import NOMINAL as OBSERVED
from monitor.logic.syntax import InterventionRef
from monitor.logic.traversal import goals
from monitor.model import MDP
from monitor.picture.axes import ChartFrame
from monitor.picture.charts import draw_history, draw_profile
from monitor.picture.draw import MARGIN, MOST_LABELS, WIDTH, draw_foot, draw_head, draw_key, in_words, labels_of
from monitor.picture.explanation import (
    ComparedWorld,
    Explanation,
    StepAnswer,
    answers_so_far,
    explanation_of,
    world_name,
)
from monitor.picture.routes import state_in_words
from monitor.picture.scenes import LabelStates
from monitor.picture.svg import ALTERNATIVE, FAINT, INK, NOMINAL, RULE, Canvas, Ink, Point
from monitor.types import Quantity, Verdict

MOST_STATES: Final = 12
"""Rows of a panel; the other states share one."""
MOST_STEPS: Final = 60
"""Columns of a panel: steps of the path before the intervention are left out first, then the last ones."""
NAMES: Final = 210.0
"""Width of the names of states, in pixels."""
ROW: Final = 22.0
"""Height of a row, in pixels."""
WIDE: Final = 26.0
"""Narrowest cell with a number in it, in pixels."""
SHOWN: Final = 0.05
"""Least probability that is written in its cell."""
DARKEST: Final = 0.7
"""Opacity of the shade of a certain state: text in it stays legible."""
OTHERS: Final = -1
"""The row of states that have none of their own."""


class Panel(msgspec.Struct, frozen=True):
    """One compared world. `begins`: position of its first step on the path; `states`: its course from there on.

    `quantity`: what the formula says of it; None: nothing.
    """

    change: InterventionRef
    begins: int
    states: Sequence[States]
    quantity: Quantity | None


class _Chart(msgspec.Struct, frozen=True):
    """What the panels share: the first and the last position drawn, labels, and the states that have rows."""

    first: int
    last: int
    labels: LabelStates
    rows: Sequence[int]

    @property
    def left(self) -> float:
        return MARGIN + NAMES

    @property
    def cell(self) -> float:
        """Width of a step, in pixels."""
        return (WIDTH - 2 * MARGIN - NAMES) / (self.last - self.first + 1)

    def x(self, position: float) -> float:
        """Return where a step begins, in pixels."""
        return self.left + (position - self.first) * self.cell


def draw_beliefs(
    evidence: Evidence, model: MDP, readers: Mapping[str, object], models: Mapping[str, MDP] | None = None
) -> str:
    """Return the picture as an SVG document; equal evidence gives equal bytes.

    Raises:
        LimitError: the formula has no quantity, or too many states and memories are possible.
        PathError: the path is impossible.
    """
    formula = parse(evidence.text)
    found = list(goals(formula))
    if not found:
        raise LimitError(f"alarm {evidence.alert}: its formula asks for no probability or reward, so nothing is drawn")
    goal, changes, _ = found[0]
    checker = HiddenChecker(model, readers, models or {})
    first, *others = evidence.path
    pairs, before = checker.check_path([(*first, *evidence.inputs[:1]), *others])
    beliefs = checker.beliefs(pairs, evidence.acted, before)
    panels = _panels(checker, evidence, checker.horizon(goal.measure), changes, (pairs, beliefs))
    branches = tuple(_branch(panel, panel.quantity) for panel in panels if panel.quantity is not None)
    history = _history(checker, evidence, formula, pairs, beliefs)
    alarm = explanation_of(evidence, formula, branches=branches, history=history)
    end = panels[0].begins + len(panels[0].states) - 1
    chart = _Chart(panels[0].begins, end, labels_of(alarm, model)[:MOST_LABELS], _rows(panels))
    words = [in_words(alarm, model), *(_panel_in_words(panel, model, alarm) for panel in panels)]
    canvas = Canvas(WIDTH, alarm.title, " ".join(words))
    y = draw_head(canvas, alarm.title, alarm.told, evidence.text)
    y = draw_key(canvas, alarm, y + 6)
    for panel in panels:
        y = _draw_panel(canvas, alarm, model, (panel, chart), y + 8)
    half = (WIDTH - 2 * MARGIN - 30) / 2
    wide = WIDTH - 2 * MARGIN if not alarm.profile else half
    draw_history(canvas, alarm, ChartFrame(MARGIN, y + 12, wide, 256, 0, 1))
    draw_profile(canvas, alarm, ChartFrame(MARGIN + half + 30, y + 12, half, 256, 0, 1))
    more = "; shade: the probability of each state, given all that was observed"
    more += f"; {alarm.others} more quantities of the formula are not shown" if alarm.others else ""
    return canvas.document(draw_foot(canvas, evidence, more, y + 288))


def _panels(
    checker: HiddenChecker,
    evidence: Evidence,
    horizon: int,
    changes: Sequence[InterventionRef],
    path: tuple[Sequence[Pair], Sequence[Weights]],
) -> list[Panel]:
    """Return what was observed, from as far back as there is space for, and the world of each other intervention."""
    last, quantities = len(evidence.path) - 1, evidence.verdict.quantities
    asked = [(change, quantities[min(n, len(quantities) - 1)]) for n, change in enumerate(changes)]
    begins = [last - each.offset if each.offset >= 0 else -each.offset - 1 for _, each in asked]
    until = max(min(max(begins) + max(horizon, 1), min(begins) + MOST_STEPS) - 1, last)
    first = max(min(*begins, until + 1 - MOST_STEPS), 0) if until + 1 > MOST_STEPS else 0
    worlds: list[tuple[InterventionRef, int, Quantity | None]] = [(OBSERVED, first, None)]
    for (change, quantity), start in zip(asked, begins, strict=True):
        if change.kind == "nominal":
            worlds[0] = OBSERVED, first, quantity
        else:
            worlds.append((change, start, quantity))
    courses = checker.courses(
        [(change, start) for change, start, _ in worlds],
        *path,
        steps=until + 1 - first,
        acted=evidence.acted,
        terminated=evidence.terminated,
    )
    return [
        Panel(change, start, states[: until + 1 - start], quantity)
        for (change, start, quantity), states in zip(worlds, courses, strict=True)
    ]


def _branch(panel: Panel, quantity: Quantity) -> ComparedWorld:
    """Return what the key and the charts say of a world."""
    nominal = panel.change.kind == "nominal"
    return ComparedWorld(world_name(panel.change), nominal, panel.begins, quantity.value, quantity.bounds)


def _history(
    checker: HiddenChecker, evidence: Evidence, formula: Formula, pairs: Sequence[Pair], beliefs: Sequence[Weights]
) -> tuple[StepAnswer, ...]:
    """Return the answers after each step of the held path."""
    check = checker.check(formula, evidence.text)

    def ask(n: int, **ended: Any) -> Verdict:  # noqa: ANN401 - as `answers_so_far` gives it
        return check.verdict(pairs[:n], beliefs[:n], None if n == 1 else 1, **ended)

    return answers_so_far(evidence, formula, ask)


def _rows(panels: Sequence[Panel]) -> list[int]:
    """Return the states that have rows, those that are likeliest at some step, and `OTHERS` if there are more."""
    peak: dict[int, float] = defaultdict(float)
    for panel in panels:
        for there in panel.states:
            for state, chance in there.items():
                peak[state] = max(peak[state], chance)
    most = sorted((state for state in peak if peak[state] > 0.0), key=lambda state: (-peak[state], state))
    return sorted(most) if len(most) <= MOST_STATES else [*sorted(most[: MOST_STATES - 1]), OTHERS]


def _heading(panel: Panel, alarm: Explanation) -> str:
    if panel.change.kind == "nominal":
        return "What happened, and what may come"
    name, step = world_name(panel.change), alarm.first + panel.begins
    if panel.change.kind == "model":
        return f"Under {name} from step {step} on"
    return f"Had {name} acted from step {step} on"


def _draw_panel(canvas: Canvas, alarm: Explanation, model: MDP, drawn: tuple[Panel, _Chart], y: float) -> float:
    """Draw how likely each state is at each step of one world; return where it ends."""
    panel, chart = drawn
    observed = panel.change.kind == "nominal"
    ink, left, right = NOMINAL if observed else ALTERNATIVE, chart.left, chart.x(chart.last + 1)
    canvas.text((MARGIN, y + 14), _heading(panel, alarm), bold=True, ink=ink)
    top = y + 42.0
    names = [f"“{name}”" for name, _ in chart.labels]
    names += ["other states" if state == OTHERS else state_in_words(model, state) for state in chart.rows]
    for n, name in enumerate(names):
        shown = shorten(name, 32, placeholder=" …")
        canvas.text((left - 8, top + n * ROW + 15), shown, size=12, anchor="end", bold=n < len(chart.labels))
    for k, there in enumerate(panel.states):
        for n, chance in enumerate(_chances(there, chart)):
            _draw_cell(canvas, (chart.x(panel.begins + k), top + n * ROW), chart.cell, chance, ink)
    bottom = top + len(names) * ROW
    for n in range(len(names) + 1):
        canvas.line((left, top + n * ROW), (right, top + n * ROW), ink=RULE, width=0.6)
    for position in range(chart.first, chart.last + 1, int(WIDE // chart.cell) + 1):
        at = chart.x(position + 0.5), top - 6
        canvas.text(at, str(alarm.first + position), size=12, ink=FAINT, anchor="middle")
    now = chart.x(alarm.now + 1)
    canvas.line((now, y + 4), (now, bottom), ink=INK, width=1.4, dash="2 4")
    canvas.text((now - 5, y + 14), "step: observed", size=12, ink=FAINT, anchor="end")
    canvas.text((now + 5, y + 14), "ahead", size=12, ink=FAINT)
    return _draw_observed(canvas, alarm, model, chart, bottom) if observed else bottom + 6


def _chances(there: States, chart: _Chart) -> list[float]:
    """Return the probabilities of the labels, and of the states of the rows."""
    rest = sum(chance for state, chance in there.items() if state not in chart.rows)
    labels = [sum(chance for state, chance in there.items() if state in states) for _, states in chart.labels]
    return [*labels, *(rest if state == OTHERS else there.get(state, 0.0) for state in chart.rows)]


def _draw_cell(canvas: Canvas, at: Point, wide: float, chance: float, ink: Ink) -> None:
    """Draw one probability as shade, and as a number of percent if there is space for it."""
    if chance <= 0.0:
        return
    x, y = at
    corners = [(x, y), (x + wide, y), (x + wide, y + ROW), (x, y + ROW)]
    canvas.tint(corners, ink, round(DARKEST * chance, 3))
    if wide >= WIDE and chance >= SHOWN:
        canvas.text((x + wide / 2, y + 15), f"{100 * chance:.0f}", size=12, anchor="middle")


def _draw_observed(canvas: Canvas, alarm: Explanation, model: MDP, chart: _Chart, y: float) -> float:
    """Draw what was seen and done at each step of the path, as numbers; what they are called is below."""
    path, emissions = alarm.evidence.path, model.emissions
    what = "state seen" if emissions is None else "observation"
    names: list[str] = []
    for row, (kind, called) in enumerate(((what, _observation_names(model)), ("action", model.action_names))):
        height = y + 16 + 17 * row
        canvas.text((chart.left - 8, height), kind, size=12, ink=FAINT, anchor="end")
        used: set[int] = set()
        for position in range(chart.first, len(path)):
            part = path[position][row]
            if isinstance(part, int):
                used.add(part)
            shown = "?" if part is None else str(part)
            canvas.text((chart.x(position + 0.5), height), shown, size=12, anchor="middle")
        named = [f"{number} {called[number]}" for number in sorted(used) if called]
        names += [f"{kind}s: {', '.join(named)}"] if named else []
    names += ["?: nothing was seen, or the action is not known"] if _lacks(alarm.evidence) else []
    y += 42
    return y + canvas.paragraph((MARGIN, y + 6), "; ".join(names) + ".", size=12, ink=FAINT) if names else y


def _observation_names(model: MDP) -> tuple[str, ...]:
    return model.state_names if model.emissions is None else model.signal_names


def _lacks(evidence: Evidence) -> bool:
    return any(seen is None or action is None for seen, action in evidence.path)


def _panel_in_words(panel: Panel, model: MDP, alarm: Explanation) -> str:
    """Return the likeliest states of a world now and at its last step, for screen readers."""
    parts = []
    for position in dict.fromkeys((max(alarm.now, panel.begins), panel.begins + len(panel.states) - 1)):
        there = panel.states[position - panel.begins]
        likeliest = sorted(there, key=lambda state: (-there[state], state))[:3]
        said = ", ".join(f"{state_in_words(model, state)} {100 * there[state]:.0f} %" for state in likeliest)
        parts.append(f"step {alarm.first + position}: {said}")
    return f"{_heading(panel, alarm)}: {'; '.join(parts)}."
