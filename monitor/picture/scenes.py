"""Grid worlds: the observed path, the counterfactual paths, and possible continuations of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from monitor.picture.charts import dash_of, ink_of
from monitor.picture.explanation import ComparedWorld, Explanation
from monitor.picture.layout import Grid
from monitor.picture.sheet import SMALL
from monitor.picture.svg import FAINT, INK, PAPER, RULE, Canvas, Pattern, Point, width_of

PATTERNS: Final[tuple[Pattern, ...]] = ("hatch", "dots", "cross")
"""Patterns of the formula's labels, in their order. A cell with several labels has the pattern of the first."""

LabelStates = Sequence[tuple[str, frozenset[int]]]


class _GridView:
    """One drawn grid of the model."""

    def __init__(self, canvas: Canvas, grid: Grid, labels: LabelStates, at: Point, side: float) -> None:
        self._canvas, self._grid, self._at = canvas, grid, at
        self.cell = min(side / grid.columns, side / grid.rows, 64.0)
        for row in range(grid.rows):
            for column in range(grid.columns):
                canvas.box(self._corner(row, column), (self.cell, self.cell), fill=PAPER, ink=RULE, width=0.7)
        for pattern, (label, states) in reversed(list(zip(PATTERNS, labels, strict=False))):
            for row, column in {grid.cells[state] for state in states if state in grid.cells}:
                size = (self.cell, self.cell)
                canvas.box(self._corner(row, column), size, fill=f"url(#{pattern})", ink=RULE, width=0.7, says=label)

    @property
    def height(self) -> float:
        return self.cell * self._grid.rows

    def centre(self, state: int) -> Point | None:
        """Return the middle of a state's cell, or None if the state has no cell."""
        cell = self._grid.cells.get(state)
        if cell is None:
            return None
        x, y = self._corner(*cell)
        return x + self.cell / 2, y + self.cell / 2

    def masses(self, there: Mapping[int, float], fill: str) -> None:
        """Draw a disc in each cell. Its area is the probability of being in the cell."""
        cells: dict[tuple[int, int], float] = {}
        for state, chance in there.items():
            if state in self._grid.cells:
                cells[self._grid.cells[state]] = cells.get(self._grid.cells[state], 0.0) + chance
        for (row, column), chance in sorted(cells.items()):
            x, y = self._corner(row, column)
            middle, radius = (x + self.cell / 2, y + self.cell / 2), 0.46 * self.cell * chance**0.5
            if radius >= 0.5:
                self._canvas.dot(middle, radius, fill=fill, says=f"{chance:.3f}")
            if chance >= 0.1 and self.cell >= 26:
                shown = f"{chance:.2f}"
                fits = 2 * radius >= width_of(shown, SMALL, bold=True)
                self._canvas.text(
                    (middle[0], middle[1] + (4 if radius > 0.3 * self.cell else radius + 11)),
                    shown,
                    size=SMALL,
                    ink=PAPER if fits else INK,
                    anchor="middle",
                    bold=True,
                    halo=not fits,
                )

    def _corner(self, row: int, column: int) -> Point:
        return self._at[0] + column * self.cell, self._at[1] + row * self.cell


def draw_grids(canvas: Canvas, alarm: Explanation, grid: Grid, labels: LabelStates, at: Point) -> float:
    """Draw three grids side by side. Return their height in pixels."""
    side = (canvas.width - 2 * at[0] - 60) / 3
    x, y = at
    shown = [branch for branch in alarm.branches if branch.distribution is not None]
    canvas.text((x, y + 14), "Up to now", bold=True)
    view = _GridView(canvas, grid, labels, (x, y + 26), side)
    for branch in shown:
        _draw_routes(canvas, view, branch)
    _draw_path(canvas, view, alarm)
    height = view.height
    for n, branch in enumerate(shown[:2], start=1):
        left = x + n * (side + 30)
        canvas.text((left, y + 14), f"{branch.name}, {alarm.horizon} steps later", bold=True, ink=ink_of(branch))
        view = _GridView(canvas, grid, labels, (left, y + 26), side)
        assert branch.distribution is not None
        view.masses(branch.distribution.states[-1], ink_of(branch))
    return height + 26 + _draw_legend(canvas, labels, (x, y + 26 + height))


def _draw_path(canvas: Canvas, view: _GridView, alarm: Explanation) -> None:
    """Draw the observed path: a dot for each step, a ring at the last step, a square where an intervention begins."""
    centres = [view.centre(state) for state, _ in alarm.evidence.path]
    points = [centre for centre in centres if centre is not None]
    canvas.polyline(points, ink=INK, width=3.2)
    for n, centre in enumerate(centres):
        if centre is not None:
            canvas.dot(centre, 4, says=f"step {alarm.first + n}")
    for branch in alarm.branches:
        parting = centres[branch.begins] if not branch.nominal else None
        if parting is not None:
            half = 0.36 * view.cell
            corner = (parting[0] - half, parting[1] - half)
            canvas.box(corner, (2 * half, 2 * half), ink=ink_of(branch), width=2.6, says=branch.question)
    if centres[-1] is not None:
        canvas.dot(centres[-1], 0.3 * view.cell, fill="none", ink=INK, width=2.6, says="now")


def _draw_routes(canvas: Canvas, view: _GridView, branch: ComparedWorld) -> None:
    """Draw the most likely paths of a world, slightly apart. Their width grows with their probability."""
    for n, route in reversed(list(enumerate(branch.routes))):
        shift = (n % 3 - 1) * 0.09 * view.cell
        centres = [view.centre(state) for state in route.states]
        points = [(x + shift, y + shift) for x, y in (centre for centre in centres if centre is not None)]
        canvas.polyline(
            points, ink=ink_of(branch), width=1.4 + 5.0 * route.probability, dash=dash_of(branch), opacity=0.85
        )
        if points and len(points) > 1:
            canvas.diamond(points[-1], 3.5 + 4.0 * route.probability, fill=ink_of(branch))


def _draw_legend(canvas: Canvas, labels: LabelStates, at: Point) -> float:
    x, y = at[0], at[1] + 12
    for pattern, (label, _) in zip(PATTERNS, labels, strict=False):
        canvas.box((x, y), (14, 14), fill=f"url(#{pattern})", ink=RULE)
        canvas.text((x + 20, y + 12), label)
        x += 40 + 8 * len(label)
    legend = "line: observed · ring: the alarm · square, dashed: what if, and the likeliest path · disc: probability"
    canvas.text((x, y + 12), legend, size=SMALL, ink=FAINT)
    return 34.0
