"""Arrays of the compiled loops: allocated here, and replaced by larger ones when a loop reports that one is full.

A `Workspace` is scratch memory, one for all queries on a model; its contents mean nothing between two calls. A
`ForwardBuffers` has one agent's forward weights; it keeps its contents when it grows. Compiled code is handed the
arrays lent (`jit.lend`), so whoever replaces them lends them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from monitor.arrays import Floats, Ints, Shorts
from monitor.errors import LimitError
from monitor.exact.forward import step
from monitor.exact.forward.bounds import WORD, Levels
from monitor.jit import lend

__all__ = ["MAX_LEVELS", "ForwardBuffers", "Workspace", "too_long"]


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _shorts(count: int) -> Shorts:
    return np.zeros(count, dtype=np.int32)


MAX_LEVELS = 8_000_000
"""Limit on the nodes, and on the edges between them, of bounds over one path: at most 320 MB and 256 MB."""


INITIAL_NODES = 64
"""Nodes and edges that fit into a workspace before it grows."""

INITIAL_FORWARD = 2, 16
"""Segments and nodes that fit into `ForwardBuffers` before it grows."""


def too_long(count: str) -> str:
    """Return the message of the error for bounds that need too many rows."""
    return (
        f"bounds over causal models would have to choose {count} rows along the observed path (limit MAX_LEVELS); "
        "look back fewer steps, shorten the formula's intervals, or use causal model gumbel"
    )


class Workspace:
    """Scratch memory for models of `states` states, shared by all queries; arrays are replaced when it grows.

    `share_prior_rows`: see `Dynamics`.
    """

    def __init__(self, states: int, *, share_prior_rows: bool = False) -> None:
        self._state_stamp, self._state_node = _ints(states), _shorts(states)
        self._observed_stamp = _ints(states if share_prior_rows else 0)
        self.zero_values = np.zeros((1, states))  # with weight 0 some vector of values is read, so there must be one
        self._clock = _ints(2)  # never reset: old stamps must not become valid again
        self.columns, self.starts, self._nodes = 4, 1, INITIAL_NODES
        self.scratch = self._scratch()
        self._levels: tuple[Levels, Any] | None = None
        self._sizes = [INITIAL_NODES] * 3

    @property
    def levels(self) -> Levels:
        """Levels for bounds, allocated on first use; their sizes grow separately, as bounds are of one start."""
        return self._both_levels()[0]

    @property
    def lent_levels(self) -> Any:  # noqa: ANN401 - numba's box
        """The same, lent to compiled code until they grow."""
        return self._both_levels()[1]

    def _both_levels(self) -> tuple[Levels, Any]:
        if self._levels is None:
            offsets, nodes, edges = self._sizes
            levels = Levels(
                first_node=_ints(offsets),
                edge_count=_ints(offsets),
                column=_ints(nodes),
                state=_shorts(nodes),
                first_edge=_ints(nodes),
                low=np.zeros(nodes),
                high=np.zeros(nodes),
                edges=_ints(edges, 4),
                row_values=np.zeros((2, len(self._state_stamp))),
                rank=_ints(len(self._state_stamp), 2),
                by_rank=np.zeros((2, len(self._state_stamp))),
                marked=_ints(2, len(self._state_stamp) // WORD + 1),
                place=_ints(2, len(self._state_stamp)),
            )
            self._levels = levels, lend(levels)
        return self._levels

    def grow_levels(self, part: int, length: int) -> None:
        """Make a part of the levels (OFFSETS, NODES or EDGES) twice as long as needed.

        Raises LimitError beyond `MAX_LEVELS`.
        """
        if length > MAX_LEVELS:
            raise LimitError(too_long(f"more than {MAX_LEVELS:,}"))
        self._sizes[part] = min(2 * length, MAX_LEVELS)
        self._levels = None

    def grow(self) -> None:
        """Double the number of nodes and edges that fit."""
        self._nodes *= 2
        self.scratch = self._scratch()

    def fit(self, columns: int, starts: int) -> None:
        """Make space for at least so many columns and starts."""
        self.columns, self.starts = max(columns, self.columns), max(starts, self.starts)
        self.scratch = self._scratch()

    def _scratch(self) -> step.Scratch:
        nodes = self._nodes
        return step.Scratch(
            state_stamp=self._state_stamp,
            state_node=self._state_node,
            observed_stamp=self._observed_stamp,
            edge_lists=_ints(self.columns, 3),
            edges=_ints(nodes, 5),
            column=_ints(nodes),
            first_node=_ints(nodes + 1),
            states=_shorts(nodes),
            by_state=_ints(nodes),
            start_range=_ints(nodes, 2),
            weights=np.zeros((nodes, self.starts)),
            accumulated=np.zeros(nodes),
            vectors=_ints(self.starts),
            clock=self._clock,
            missing=_ints(2),
        )


class ForwardBuffers:
    """Forward weights (`step.Forward`) in arrays that grow: one agent's path under one evaluator.

    Args:
        max_starts: start points to hold at most; 0: the first pair alone.
        queried_start: the start to answer, counted from the oldest; -1: all.
        horizon: number of offsets at which an obligation may remain; older starts need no weights.
    """

    def __init__(self, max_starts: int, queried_start: int, horizon: int) -> None:
        self.max_starts, self.live_starts = max_starts, max(min(max_starts, horizon), 1)
        self.fitted: step.Scratch | None = None
        """The scratch memory that an evaluator has found large enough for these weights."""
        self.arrays = self._allocate(max(max_starts, 1), *INITIAL_FORWARD)
        self.scalars[step.MAX_STARTS], self.scalars[step.QUERIED_START] = max_starts, queried_start
        self.lent = lend(self.arrays)

    @property
    def scalars(self) -> Ints:
        """See `step.Forward`."""
        return self.arrays.scalars

    @property
    def values(self) -> Floats:
        """The answers, newest start point first; that of the queried one at 0."""
        return self.arrays.values

    def restart(self) -> None:
        """Forget the path."""
        self.scalars[: step.MAX_STARTS] = 0
        self.scalars[step.UNANSWERED] = 0

    def grow(self, segments: int, nodes: int) -> None:
        """Make space for at least so many segments and nodes, keeping the contents."""
        old = self.arrays
        sizes = zip((len(old.column), len(old.states)), (segments, nodes), strict=True)
        new = self._allocate(len(old.accumulated), *(2 * needed if needed > size else size for size, needed in sizes))
        for name in step.Forward._fields:
            source: npt.NDArray[np.generic] = getattr(old, name)
            getattr(new, name)[: len(source)] = source
        self.arrays, self.lent = new, lend(new)

    def of_start(self, start: int) -> list[tuple[int, Ints, Floats]]:
        """Return the weights of one start: (column, states, weights) of each segment."""
        arrays, found = self.arrays, []
        for segment in range(arrays.scalars[step.SEGMENT_COUNT]):
            nodes = np.arange(arrays.first_node[segment], arrays.first_node[segment + 1])
            nodes = nodes[(arrays.start_range[nodes, 0] <= start) & (start < arrays.start_range[nodes, 1])]
            nodes = nodes[arrays.weights[nodes, start] > 0.0] if len(nodes) else nodes
            if len(nodes):
                states, weights = arrays.states[nodes].astype(np.int64), arrays.weights[nodes, start]
                found.append((int(arrays.column[segment]), states, weights))
        return found

    def _allocate(self, starts: int, segments: int, nodes: int) -> step.Forward:
        return step.Forward(
            scalars=_ints(8),
            column=_ints(segments),
            first_node=_ints(segments + 1),
            states=_shorts(nodes),
            start_range=_ints(nodes, 2),
            weights=np.zeros((nodes, self.live_starts)),
            accumulated=np.zeros(starts),
            values=np.full(starts, np.nan),
        )
