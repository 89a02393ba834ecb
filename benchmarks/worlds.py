"""Models that rows are measured with, square grids, and simulated paths through any model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model import MDP
from monitor.policy import PolicyTable

__all__ = ["GRID_GOAL", "descent", "grid", "patrol", "safest", "simulate"]

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
SLIP = 0.1
GRID_GOAL = 'fallback@10.P>=0.9 [ G<=20 !"unsafe" ]'
"""Formula for the 4x4 grid; all ten offsets are evaluated."""


@cache
def grid(side: int, slip: float = SLIP) -> MDP:
    """Return a side x side grid with four actions; with probability `slip` another one is done, drawn uniformly.

    A move into a wall stays in place. `unsafe`: two cells of every 4 x 4 block (5 and 11 of the 4x4 grid); `goal`: the
    last cell.
    """
    cells = np.arange(side * side)
    at = np.stack(np.divmod(cells, side), axis=1)
    targets = np.clip(at[:, None, :] + MOVES, 0, side - 1) @ np.array([side, 1])  # [S, 4]
    probabilities = np.full((4, 4), slip / 3)
    np.fill_diagonal(probabilities, 1.0 - slip)
    rows = cells.size * 4
    row, column = at[:, 0] % 4, at[:, 1] % 4
    return MDP.from_rows(
        states=cells.size,
        actions=4,
        indptr=np.arange(rows + 1, dtype=np.int64) * 4,
        successors=np.repeat(targets, 4, axis=0).reshape(-1),
        probabilities=np.tile(probabilities, (cells.size, 1)).reshape(-1),
        labels={
            "goal": cells == cells.size - 1,
            "unsafe": ((row == 1) & (column == 1)) | ((row == 2) & (column == 3)),
        },
        source=f"grid {side}x{side}",
    )


def descent(side: int) -> PolicyTable:
    """Return the policy that goes down the first column, then right along the last row to the goal."""
    cells = np.arange(side * side)
    return PolicyTable(actions=np.where(cells >= side * (side - 1), RIGHT, DOWN))


def patrol(side: int) -> PolicyTable:
    """Return the policy that circles along the outer walls (down, right, up, left) and goes left elsewhere."""
    cells = np.arange(side * side)
    row, column = np.divmod(cells, side)
    rules = [
        ((column == 0) & (row < side - 1), DOWN),
        ((row == side - 1) & (column < side - 1), RIGHT),
        ((column == side - 1) & (row > 0), UP),
    ]
    return PolicyTable(actions=np.select([rule for rule, _ in rules], [action for _, action in rules], LEFT))


def safest(model: MDP, steps: int = 20) -> PolicyTable:
    """Return the policy most likely to avoid `unsafe` for `steps` steps; ties go to the first action.

    By backward induction: the first action of the optimum over that horizon, in every state at every time. Every
    action must be available in every state.
    """
    clear = ~model.labels["unsafe"]
    values = clear.astype(float)
    owner = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    for _ in range(steps):
        mean = np.bincount(owner, model.probabilities * values[model.successors], minlength=model.indptr.size - 1)
        by_action = mean.reshape(model.states, model.actions)
        values = clear * by_action.max(axis=1)
    # rounded, so that rounding errors break no tie
    return PolicyTable(actions=np.argmax(by_action.round(12), axis=1))


def simulate(
    model: MDP, policy: PolicyTable, steps: int, rng: np.random.Generator, start: int | Sequence[int] = 0
) -> list[tuple[int, int]]:
    """Return `steps` pairs (state, action) of the policy from a start state drawn from `start`."""
    state = int(rng.choice(np.atleast_1d(np.asarray(start))))
    pairs: list[tuple[int, int]] = []
    for _ in range(steps):
        actions, weights = zip(*policy.choices(state), strict=True)
        action = _drawn(actions, weights, rng)
        pairs.append((state, action))
        state = _drawn(*model.row(state, action), rng)
    return pairs


def _drawn(
    values: Sequence[int] | Ints,
    weights: Sequence[float] | Floats,
    rng: np.random.Generator,
) -> int:
    place = int(np.searchsorted(np.cumsum(weights), rng.random(), side="right"))
    return int(values[min(place, len(values) - 1)])
