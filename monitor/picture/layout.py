"""Positions of states in a grid. The positions come from names or valuations, not from the numbers of states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from monitor.model import MDP

NAME: Final = re.compile(r"row (\d+) column (\d+)\b")
MOST_CELLS: Final = 40
"""Largest number of rows or columns of a grid in a picture. A larger grid is drawn as a timeline."""


class Grid(msgspec.Struct, frozen=True):
    """Grid of states.

    `cells`: state -> (row, column), both from 0. Several states may have the same cell, and some have none.
    """

    rows: int
    columns: int
    cells: Mapping[int, tuple[int, int]]


def grid_of(model: MDP) -> Grid | None:
    """Return the grid of a model's states, or None if they have no positions.

    States have positions if their names begin with `row 2 column 3`, or if their valuations begin with two whole
    numbers: column and row, x and y.
    """
    cells = _from_names(model) or _from_valuations(model)
    if not cells:
        return None
    first_row, first_column = (min(cell[n] for cell in cells.values()) for n in (0, 1))
    shifted = {state: (row - first_row, column - first_column) for state, (row, column) in cells.items()}
    rows, columns = (max(cell[n] for cell in shifted.values()) + 1 for n in (0, 1))
    return Grid(rows, columns, shifted) if max(rows, columns) <= MOST_CELLS else None


def _from_names(model: MDP) -> dict[int, tuple[int, int]]:
    found = ((state, NAME.match(name)) for state, name in enumerate(model.state_names))
    return {state: (int(match[1]), int(match[2])) for state, match in found if match}


def _from_valuations(model: MDP) -> dict[int, tuple[int, int]]:
    cells = {}
    for state, valuation in enumerate(model.valuations):
        match valuation:
            case (float(x), float(y), *_) if x == int(x) and y == int(y):
                cells[state] = (int(y), int(x))
            case _:
                return {}
    return cells
