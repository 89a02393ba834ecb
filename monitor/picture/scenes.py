"""The world itself, where it lies on a grid: what happened, what would have, and where both go from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from monitor.picture.charts import dash_of, ink_of
from monitor.picture.explanation import Branch, Explanation
from monitor.picture.layout import Grid
from monitor.picture.svg import FAINT, INK, Canvas, Pattern, Point

__all__ = ["draw_grids"]

PATTERNS: Final[tuple[Pattern, ...]] = ("hatch", "dots", "cross")
"""Labels of the formula, in its order; what lies under several is drawn with the first."""

Lanes = Sequence[tuple[str, frozenset[int]]]


class _Board:
    """One grid on the page."""

    def __init__(self, canvas: Canvas, grid: Grid, lanes: Lanes, at: Point, side: float) -> None:
        self._canvas, self._grid, self._at = canvas, grid, at
        self.cell = min(side / grid.columns, side / grid.rows, 64.0)
        for row in range(grid.rows):
            for column in range(grid.columns):
                canvas.box(self._corner(row, column), (self.cell, self.cell), fill="#fff", ink="#b0b0b0", width=0.7)
        for pattern, (label, states) in reversed(list(zip(PATTERNS, lanes, strict=False))):
            for row, column in {grid.cells[state] for state in states if state in grid.cells}:
                size = (self.cell, self.cell)
                canvas.box(
                    self._corner(row, column), size, fill=f"url(#{pattern})", ink="#b0b0b0", width=0.7, says=label
                )

    @property
    def height(self) -> float:
        return self.cell * self._grid.rows

    def centre(self, state: int) -> Point | None:
        """The middle of a state's cell, None if it has none."""
        cell = self._grid.cells.get(state)
        if cell is None:
            return None
        x, y = self._corner(*cell)
        return x + self.cell / 2, y + self.cell / 2

    def masses(self, there: Mapping[int, float], fill: str) -> None:
        """A disc in each cell, its area the probability to be there."""
        cells: dict[tuple[int, int], float] = {}
        for state, chance in there.items():
            if state in self._grid.cells:
                cells[self._grid.cells[state]] = cells.get(self._grid.cells[state], 0.0) + chance
        for (row, column), chance in sorted(cells.items()):
            x, y = self._corner(row, column)
            middle, radius = (x + self.cell / 2, y + self.cell / 2), 0.46 * self.cell * chance**0.5
            if radius >= 0.5:
                self._canvas.dot(middle, radius, fill=fill, says=f"{100 * chance:.1f} %")
            if chance >= 0.1 and self.cell >= 30:
                inside = radius > 0.3 * self.cell
                shown = f"{100 * chance:.0f} %"
                self._canvas.text(
                    (middle[0], middle[1] + (4 if inside else radius + 11)),
                    shown,
                    size=11,
                    ink="#fff" if inside else INK,
                    anchor="middle",
                    bold=True,
                    halo=not inside,
                )

    def _corner(self, row: int, column: int) -> Point:
        return self._at[0] + column * self.cell, self._at[1] + row * self.cell


def draw_grids(canvas: Canvas, story: Explanation, grid: Grid, lanes: Lanes, at: Point) -> float:
    """Three grids side by side; returns the height they take."""
    side = (canvas.width - 2 * at[0] - 60) / 3
    x, y = at
    shown = [arm for arm in story.arms if arm.spread is not None]
    canvas.text((x, y + 14), "Up to now", bold=True)
    board = _Board(canvas, grid, lanes, (x, y + 26), side)
    for arm in shown:
        _draw_routes(canvas, board, arm)
    _draw_path(canvas, board, story)
    height = board.height
    for n, arm in enumerate(shown[:2], start=1):
        left = x + n * (side + 30)
        canvas.text(
            (left, y + 14), f"{arm.name}: where it is {story.horizon} steps from now", bold=True, ink=ink_of(arm)
        )
        board = _Board(canvas, grid, lanes, (left, y + 26), side)
        assert arm.spread is not None
        board.masses(arm.spread.states[-1], ink_of(arm))
    return height + 26 + _draw_legend(canvas, lanes, (x, y + 26 + height))


def _draw_path(canvas: Canvas, board: _Board, story: Explanation) -> None:
    """The observed path, a dot a step; a ring at the last, a square where a world parts."""
    centres = [board.centre(state) for state, _ in story.evidence.path]
    points = [centre for centre in centres if centre is not None]
    canvas.track(points, ink=INK, width=3.2)
    for n, centre in enumerate(centres):
        if centre is not None:
            canvas.dot(centre, 4, says=f"step {story.first + n}")
    for arm in story.arms:
        parting = centres[arm.begins] if not arm.nominal else None
        if parting is not None:
            half = 0.36 * board.cell
            corner = (parting[0] - half, parting[1] - half)
            canvas.box(corner, (2 * half, 2 * half), ink=ink_of(arm), width=2.6, says=f"{arm.name} takes over here")
    if centres[-1] is not None:
        canvas.dot(centres[-1], 0.3 * board.cell, fill="none", ink=INK, width=2.6, says="now")


def _draw_routes(canvas: Canvas, board: _Board, arm: Branch) -> None:
    """The likeliest paths of a world, each as wide as it is likely, a little apart from one another."""
    for n, route in reversed(list(enumerate(arm.routes))):
        shift = (n % 3 - 1) * 0.09 * board.cell
        centres = [board.centre(state) for state in route.states]
        points = [(x + shift, y + shift) for x, y in (centre for centre in centres if centre is not None)]
        canvas.track(points, ink=ink_of(arm), width=1.4 + 5.0 * route.probability, dash=dash_of(arm), opacity=0.85)
        if points and len(points) > 1:
            canvas.diamond(points[-1], 3.5 + 4.0 * route.probability, fill=ink_of(arm))


def _draw_legend(canvas: Canvas, lanes: Lanes, at: Point) -> float:
    x, y = at[0], at[1] + 12
    for pattern, (label, _) in zip(PATTERNS, lanes, strict=False):
        canvas.box((x, y), (14, 14), fill=f"url(#{pattern})", ink="#b0b0b0")
        canvas.text((x + 20, y + 12), label)
        x += 40 + 8 * len(label)
    marks = ("line, dots: observed", "ring: now", "square: takes over here", "dashed: likeliest instead")
    told = " · ".join((*marks, "disc: chance to be there"))
    canvas.text((x, y + 12), told, size=12, ink=FAINT)
    return 34.0
