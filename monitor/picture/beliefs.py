"""Picture of an alarm with hidden states or policies with memory: shades are probabilities of states at each step.

There is a panel for each compared world: the factual world, and the world under the alternative. Up to the last step
of the path, the shade is the probability given all observations so far. After it, the shade is the predicted
probability.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from monitor.errors import LimitError
from monitor.evidence.document import Evidence
from monitor.hidden.course import StateWeights
from monitor.hidden.filtering import Weights
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.logic import Formula, parse
from monitor.logic.syntax import NOMINAL as OBSERVED
from monitor.logic.syntax import InterventionRef
from monitor.logic.traversal import goals
from monitor.model import MDP
from monitor.picture.charts import draw_handover, draw_history, marks_of
from monitor.picture.draw import draw_foot, draw_head, in_words, labels_of
from monitor.picture.explanation import (
    ComparedWorld,
    Explanation,
    StepAnswer,
    answers_so_far,
    explanation_of,
    what_if,
    world_name,
)
from monitor.picture.scenes import LabelStates
from monitor.picture.sheet import MARGIN, MOST_STEPS, SMALL, WIDTH, Sheet, time_axis_of
from monitor.picture.state_words import likeliest_in_words, state_in_words
from monitor.picture.svg import ALTERNATIVE, NOMINAL, RULE, Canvas, Ink, Point
from monitor.types.stream_events import ObservedPair
from monitor.types.verdicts import Quantity, Verdict

MOST_LABELS: Final = 4
MOST_STATES: Final = 12
"""Largest number of rows of a panel. The remaining states share one row."""
NAMES: Final = 150.0
"""Width of the names of states, in pixels."""
ROW: Final = 19.0
"""Height of a row, in pixels."""
WIDE: Final = 28.0
"""Smallest width of a cell with a number, in pixels."""
SHOWN: Final = 0.05
"""Smallest probability that is written in its cell."""
DARKEST: Final = 0.7
"""Opacity of the shade for probability 1. Text on it is still legible."""
OTHERS: Final = -1
"""The row of all other states, which have no row of their own."""


class WorldPanel(msgspec.Struct, frozen=True):
    """One compared world.

    `begins`: position on the path at which this world begins. `states`: state distribution at each step from `begins`
    on. `quantity`: the formula's quantity for this world, or None.
    """

    change: InterventionRef
    begins: int
    states: Sequence[StateWeights]
    quantity: Quantity | None


def draw_beliefs(
    evidence: Evidence, model: MDP, readers: Mapping[str, object], models: Mapping[str, MDP] | None = None
) -> str:
    """Return the picture as an SVG document. Equal evidence gives equal bytes.

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
    panels, end = _panels(checker, evidence, checker.horizon(goal.measure), changes, (pairs, beliefs))
    branches = tuple(_branch(evidence, panel, panel.quantity) for panel in panels if panel.quantity is not None)
    history = _history(checker, evidence, formula, pairs, beliefs)
    alarm = explanation_of(evidence, formula, branches=branches, history=history, names=model.action_names)
    words = [in_words(alarm, model), *(_panel_in_words(panel, model, alarm) for panel in panels)]
    canvas = Canvas(WIDTH, alarm.title, " ".join(words))
    begins = [panel.begins for panel in panels if panel.change.kind != "nominal"]
    time_axis = time_axis_of(evidence, [*begins, *(branch.begins for branch in branches)], end, MARGIN + NAMES)
    sheet = Sheet(canvas, time_axis, draw_head(canvas, alarm))
    sheet.marks(marks_of(alarm))
    draw_history(sheet, alarm)
    rows = _rows(panels)
    for panel in panels:
        _draw_panel(sheet, alarm, model, panel, rows)
    draw_handover(sheet, alarm)
    sheet.finish(evidence)
    more = "; shade: the probability of each state, given all that was observed"
    more += f"; {alarm.others} more quantities of the formula are not shown" if alarm.others else ""
    return canvas.document(draw_foot(canvas, alarm, more, sheet.y))


def _panels(
    checker: HiddenChecker,
    evidence: Evidence,
    horizon: int,
    changes: Sequence[InterventionRef],
    path: tuple[Sequence[ObservedPair], Sequence[Weights]],
) -> tuple[list[WorldPanel], int]:
    """Return the factual world, beginning as early as space permits, and the world of each other intervention.

    Also return the position at which the formula's horizon ends. It may be later than the last drawn step.
    """
    last, quantities = len(evidence.path) - 1, evidence.verdict.quantities
    asked = [(change, quantities[min(n, len(quantities) - 1)]) for n, change in enumerate(changes)]
    begins = [last - each.offset if each.offset >= 0 else -each.offset - 1 for _, each in asked]
    end = max(begins) + max(horizon, 1) - 1
    until = max(min(end, min(begins) + MOST_STEPS - 1), last)
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
    panels = [
        WorldPanel(change, start, states[: until + 1 - start], quantity)
        for (change, start, quantity), states in zip(worlds, courses, strict=True)
    ]
    return panels, end


def _branch(evidence: Evidence, panel: WorldPanel, quantity: Quantity) -> ComparedWorld:
    """Return the data of a world for the key and the charts."""
    nominal = panel.change.kind == "nominal"
    name = world_name(panel.change, evidence.actions)
    question = what_if(panel.change, evidence.actions)
    return ComparedWorld(name, nominal, panel.begins, quantity.value, quantity.bounds, question=question)


def _history(
    checker: HiddenChecker,
    evidence: Evidence,
    formula: Formula,
    pairs: Sequence[ObservedPair],
    beliefs: Sequence[Weights],
) -> tuple[StepAnswer, ...]:
    """Return the answers after each step of the stored path."""
    check = checker.check(formula, evidence.text, evidence.causal_model)

    def ask(n: int, **ended: Any) -> Verdict:  # noqa: ANN401 - as `answers_so_far` calls it
        return check.verdict(pairs[:n], beliefs[:n], None if n == 1 else 1, **ended)

    return answers_so_far(evidence, formula, ask)


def _rows(panels: Sequence[WorldPanel]) -> list[int]:
    """Return the states that get a row, the likeliest at some step. Add `OTHERS` if there are more states."""
    peak: dict[int, float] = defaultdict(float)
    for panel in panels:
        for there in panel.states:
            for state, chance in there.items():
                peak[state] = max(peak[state], chance)
    most = sorted((state for state in peak if peak[state] > 0.0), key=lambda state: (-peak[state], state))
    return sorted(most) if len(most) <= MOST_STATES else [*sorted(most[: MOST_STATES - 1]), OTHERS]


def _heading(panel: WorldPanel, alarm: Explanation) -> str:
    if panel.change.kind == "nominal":
        return "Where it was, and where it may go"
    name, step = world_name(panel.change, alarm.evidence.actions), alarm.first + panel.begins
    if panel.change.kind == "model":
        return f"What would have happened under {name} from step {step} on"
    return f"What would have happened had {name} acted from step {step} on"


def _draw_panel(sheet: Sheet, alarm: Explanation, model: MDP, panel: WorldPanel, rows: Sequence[int]) -> None:
    """Draw the probability of each state at each step of one world.

    The factual world also has its observations and actions.
    """
    canvas, time_axis, labels = sheet.canvas, sheet.time_axis, labels_of(alarm, model)[:MOST_LABELS]
    observed = panel.change.kind == "nominal"
    ink, left, right = NOMINAL if observed else ALTERNATIVE, time_axis.left, time_axis.right
    sheet.heading(_heading(panel, alarm), ink=ink)
    names = [f"“{name}”" for name, _ in labels]
    names += ["other states" if state == OTHERS else state_in_words(model, state) for state in rows]
    for n, name in enumerate(names):
        y = sheet.y + n * ROW
        canvas.text((left - 8, y + 14), name, size=SMALL, anchor="end", bold=n < len(labels), room=NAMES - 8)
        canvas.line((left, y + ROW), (right, y + ROW), ink=RULE, width=0.6)
    for k, there in enumerate(panel.states):
        if (position := panel.begins + k) not in time_axis.positions:
            continue
        corner = time_axis.x(position - 0.5)
        for n, chance in enumerate(_chances(there, labels, rows)):
            _draw_cell(canvas, (corner, sheet.y + n * ROW), time_axis.cell, chance, ink)
        said = likeliest_in_words(model, there)
        own = "is in" if position <= alarm.now else "may be in"
        name = world_name(panel.change, alarm.evidence.actions)
        sheet.notes[position].append(f"It {own}: {said}" if observed else f"With {name} it would be in: {said}")
    sheet.y += len(names) * ROW + 4
    if observed:
        _draw_observed(sheet, alarm, model)


def _chances(there: StateWeights, labels: LabelStates, rows: Sequence[int]) -> list[float]:
    """Return the probabilities of the labels, and of the states of the rows."""
    rest = sum(chance for state, chance in there.items() if state not in rows)
    held = [sum(chance for state, chance in there.items() if state in states) for _, states in labels]
    return [*held, *(rest if state == OTHERS else there.get(state, 0.0) for state in rows)]


def _draw_cell(canvas: Canvas, at: Point, wide: float, chance: float, ink: Ink) -> None:
    """Draw one probability as a shade, and as a number if there is space for it."""
    if chance <= 0.0:
        return
    x, y = at
    corners = [(x, y), (x + wide, y), (x + wide, y + ROW), (x, y + ROW)]
    canvas.tint(corners, ink, round(DARKEST * chance, 3))
    if wide >= WIDE and chance >= SHOWN:
        canvas.text((x + wide / 2, y + 14), f"{chance:.2f}", size=SMALL, anchor="middle")


def _draw_observed(sheet: Sheet, alarm: Explanation, model: MDP) -> None:
    """Write the observation and the action at each step of the path."""
    path, seen = alarm.evidence.path, {}
    called = model.state_names if model.emissions is None else model.signal_names
    for position, (shown, action) in enumerate(path):
        seen[position] = "?" if shown is None else called[shown] if called else str(shown)
        done = "an action that is not known" if action is None else alarm.action(action)
        sheet.notes[position].insert(0, f"Seen: {'nothing' if shown is None else seen[position]}; did {done}")
    sheet.lane("seen" if model.emissions is not None else "state seen", seen)
    sheet.lane("action", {n: "?" if each is None else alarm.action_in_brief(each) for n, (_, each) in enumerate(path)})


def _panel_in_words(panel: WorldPanel, model: MDP, alarm: Explanation) -> str:
    """Return the likeliest states of a world now and at its last step, for screen readers."""
    parts = []
    for position in dict.fromkeys((max(alarm.now, panel.begins), panel.begins + len(panel.states) - 1)):
        there = panel.states[position - panel.begins]
        parts.append(f"step {alarm.first + position}: {likeliest_in_words(model, there)}")
    return f"{_heading(panel, alarm)}: {'; '.join(parts)}."
