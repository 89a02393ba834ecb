"""Slippery 4x4 grid with one unsafe cell; the agent circles along the edge and sometimes slips inside."""

from __future__ import annotations

from monitor.model import MDP

__all__ = ["FALLBACK", "FORMULA", "NOMINAL", "grid", "outcomes"]

SIDE, SLIP, UNSAFE = 4, 0.02, 5
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
UP, RIGHT, DOWN, LEFT = range(4)

NOMINAL = (RIGHT, RIGHT, RIGHT, DOWN, UP, UP, RIGHT, DOWN, UP, LEFT, RIGHT, DOWN, UP, LEFT, LEFT, LEFT)
"""Clockwise along the edge; from inside back to it."""

FALLBACK = (DOWN, LEFT, RIGHT, DOWN, DOWN, DOWN, RIGHT, DOWN, DOWN, DOWN, DOWN, DOWN, DOWN, DOWN, RIGHT, RIGHT)
"""Down, away from the unsafe cell."""

FORMULA = 'fallback@10.P>=0.9 [ G<=20 !"unsafe" ]'


def _moved(cell: int, move: int) -> int:
    row, column = (min(max(x + d, 0), SIDE - 1) for x, d in zip(divmod(cell, SIDE), MOVES[move], strict=True))
    return row * SIDE + column


def outcomes(cell: int, action: int, slip: float = SLIP) -> list[tuple[int, float]]:
    """Return (successor, probability): the intended move, or one of the other three with probability `slip`."""
    return [(_moved(cell, move), 1 - slip if move == action else slip / 3) for move in range(4)]


def grid(slip: float = SLIP) -> MDP:
    """Return the model of the grid."""
    rows = [(s, a, t, p) for s in range(SIDE * SIDE) for a in range(4) for t, p in outcomes(s, a, slip)]
    return MDP.from_transitions(states=SIDE * SIDE, actions=4, transitions=rows, labels={"unsafe": [UNSAFE]})
