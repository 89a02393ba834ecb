"""The transport problem: the largest mean gain over all couplings of two distributions.

The method is the transportation simplex: begin with the coupling of the north-west corner, and move probability around
cycles of its cells, as long as this increases the gain. `monitor.hidden.transport` sends probability along shortest
paths instead.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

Cell = tuple[int, int]
"""A row and a column."""
ROUNDING = 1e-14
"""An increase, relative to the numbers whose difference it is, up to which it counts as rounding."""


def largest_gain(p: Sequence[float], q: Sequence[float], gain: Sequence[Sequence[float]]) -> float:
    """Return the largest sum of J * gain over the couplings J of `p` and `q`; `gain`: one row for each entry of `p`."""
    most = [max(row) for row in gain]
    certain = sum(chance * best for chance, best in zip(p, most, strict=True))
    p, gain = _different(p, [[each - best for each in row] for row, best in zip(gain, most, strict=True)])
    q, columns = _different(q, zip(*gain, strict=True))
    gain = [*zip(*columns, strict=True)]
    sent, amount = _corner(p, q), 1.0
    while improving := _improving(sent, gain):
        # the steepest cell, but after a change of nothing the first one (Bland's rule), so that no cycle repeats
        enters = max(improving)[1] if amount > 0.0 else improving[0][1]
        path = _path(sent, enters)
        gives = path[1::2]  # the entering cell gains probability, and every second cell of the cycle loses as much
        amount = min(sent[cell] for cell in gives)
        leaves = min(cell for cell in gives if sent[cell] == amount)
        sent[enters] = 0.0
        for n, cell in enumerate(path):
            sent[cell] += amount if n % 2 == 0 else -amount
        del sent[leaves]
    return certain + sum(chance * gain[i][j] for (i, j), chance in sent.items())


def _different(p: Sequence[float], rows: Iterable[Sequence[float]]) -> tuple[list[float], list[tuple[float, ...]]]:
    """Return the different rows by ascending probability, so that rounding concerns the largest ones."""
    total = defaultdict[tuple[float, ...], float](float)
    for chance, row in zip(p, rows, strict=True):
        total[tuple(row)] += chance
    found = sorted(total, key=total.__getitem__)
    return [total[row] for row in found], found


def _corner(p: Sequence[float], q: Sequence[float]) -> dict[Cell, float]:
    """Return the coupling of the north-west corner: len(p) + len(q) - 1 cells, which form a tree."""
    i, j, left, lacking = 0, 0, p[0], q[0]
    sent: dict[Cell, float] = {}
    while True:
        amount = min(left, lacking)
        sent[i, j] = amount
        left, lacking = left - amount, lacking - amount
        if i == len(p) - 1 and j == len(q) - 1:
            return sent
        if j == len(q) - 1 or (i < len(p) - 1 and left <= lacking):
            i, left = i + 1, p[i + 1]
        else:
            j, lacking = j + 1, q[j + 1]


def _improving(sent: dict[Cell, float], gain: Sequence[Sequence[float]]) -> list[tuple[float, Cell]]:
    """Return the cells that increase the gain, each with the increase for each unit of probability."""
    rows, columns = {len(gain) - 1: 0.0}, dict[int, float]()
    while len(rows) + len(columns) <= len(sent):
        for i, j in sent:
            if i in rows:
                columns[j] = gain[i][j] - rows[i]
            elif j in columns:
                rows[i] = gain[i][j] - columns[j]
    found = []
    for i, row in enumerate(gain):
        for j, each in enumerate(row):
            increase = each - rows[i] - columns[j]
            if increase > ROUNDING * max(abs(each), abs(rows[i]), abs(columns[j])) and (i, j) not in sent:
                found.append((increase, (i, j)))
    return found


def _path(sent: dict[Cell, float], enters: Cell) -> list[Cell]:
    """Return the cycle that a cell closes in the tree of the other cells, beginning with this cell."""
    cells = {*sent, enters}
    while True:
        rows, columns = Counter(i for i, _ in cells), Counter(j for _, j in cells)
        kept = {(i, j) for i, j in cells if rows[i] > 1 and columns[j] > 1}
        if kept == cells:
            break
        cells = kept
    path = [enters]
    while len(path) < len(cells):
        here, along = path[-1], (len(path) - 1) % 2  # along the row first, then along the column
        path.append(next(cell for cell in cells if cell != here and cell[along] == here[along]))
    return path
