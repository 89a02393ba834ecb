"""Arrays of the compiled loops. They are allocated here, and grown when a loop reports that an array is full. Compiled.

A `Workspace` is working memory, shared by all queries on a model; its contents are not kept between two calls. A
`ForwardBuffers` has one agent's forward weights; its contents are kept when it grows.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Floats, Ints, Shorts, longer
from monitor.errors import LimitError

OFFSETS, NODES, EDGES = range(3)
"""Parts of `Levels`. OFFSETS: `first_node` and `edge_count`; NODES: the arrays over nodes; EDGES: `edges`."""

MAX_LEVELS = 8_000_000
"""Largest number of nodes, and of edges between them, for bounds over one path: 320 MB and 256 MB."""

INITIAL_NODES = 64
"""Nodes and edges that fit into a workspace before it grows."""

INITIAL_FORWARD = 2, 16
"""Segments and nodes that fit into `ForwardBuffers` before it grows."""


def too_long(count: str) -> str:
    """Return the error message for bounds that need too many rows."""
    return (
        f"bounds over causal models would have to choose {count} rows along the observed path (limit MAX_LEVELS); "
        "look back fewer steps, shorten the formula's intervals, or use causal model gumbel"
    )


class Workspace:
    """Working memory of a step, shared by all forward weights of a model of `states` states.

    `state_stamp`, `state_node` [S]: the node of a state in the current column, valid if the stamp equals the current
    stamp. `observed_stamp` [S] (empty unless `share_prior_rows`, see `Dynamics`): marks the successors of the observed
    pair in the same way. `edge_lists` [columns, 3]: stamp, first and last edge into a column. `edges` [n, 5]: source
    node, row, first and last (exclusive) start, next edge into the same column. `column`, `first_node`, `states`,
    `start_range`, `weights`, `accumulated`: the next forward weights, as in `ForwardBuffers`, but with nodes in the
    order in which they were found. `by_state`: the order of these nodes by state; `keys`: keys for sorting them.
    `edge_clock`, `node_clock`: the current stamps of edge lists and of states. Stamps only grow, because an old stamp
    must not become valid again. `missing` [2]: see `codes.py`.
    """

    def __init__(self, states: int, *, share_prior_rows: bool = False) -> None:
        self.state_stamp, self.state_node = _ints(states), _shorts(states)
        self.observed_stamp = _ints(states if share_prior_rows else 0)
        self.edge_clock = self.node_clock = 0
        self.missing = _ints(2)
        self.columns, self.starts, self.nodes = 4, 1, INITIAL_NODES
        self._levels: Levels | None = None
        self._allocate()

    @property
    def levels(self) -> Levels:
        """Levels for bounds, allocated on first use. They grow separately, because bounds have only one start."""
        if self._levels is None:
            self._levels = Levels(len(self.state_stamp))
        return self._levels

    def grow(self) -> None:
        """Double the space for nodes and edges."""
        self.nodes *= 2
        self._allocate()

    def fit(self, columns: int, starts: int) -> None:
        """Make space for at least `columns` columns and `starts` starts."""
        if columns > self.columns or starts > self.starts:
            self.columns, self.starts = max(columns, self.columns), max(starts, self.starts)
            self._allocate()

    def _allocate(self) -> None:
        nodes = self.nodes
        self.edge_lists, self.edges = _ints(self.columns, 3), _ints(nodes, 5)
        self.column, self.first_node = _ints(nodes), _ints(nodes + 1)
        self.states, self.by_state, self.keys = _shorts(nodes), _ints(nodes), np.zeros(nodes)
        self.start_range, self.weights = _ints(nodes, 2), np.zeros((nodes, self.starts))
        self.accumulated = np.zeros(nodes)


class Levels:
    """Reached nodes and the edges between them, offset by offset, for bounds over `states` states.

    Level o has the nodes `first_node[o]:first_node[o + 1]`, each with a `column`, a `state` and the bounds `low`,
    `high` of its value. `edges` [n, 4]: source node, row, next edge into the same column, whether a reward is
    collected; `edge_count[o]`: number of edges before level o. `first_edge` [nodes]: for the first node of a column in
    its level, the first edge into that column. `row_values` [2, S], for the successors of one row: in row 0 their
    `low`, in row 1 the negative of their `high`. `ranked` [2, S]: the states of one column of a level, by ascending
    `low` and by descending `high`; `by_rank` [2, S]: the values of `low` and `high` in this order. `word`, `bit` [S,
    2]: the position of each state's ranks in a set of bits. `marked` [2, S / 64]: the sets of bits of one row.
    """

    def __init__(self, states: int) -> None:
        self._allocate(OFFSETS, INITIAL_NODES)
        self._allocate(NODES, INITIAL_NODES)
        self._allocate(EDGES, INITIAL_NODES)
        self.row_values, self.by_rank, self.ranked = np.zeros((2, states)), np.zeros((2, states)), _ints(2, states)
        self.word, self.bit = _ints(states, 2), np.zeros((states, 2), dtype=np.uint64)
        self.marked = np.zeros((2, states // 64 + 1), dtype=np.uint64)

    def grow(self, part: int, length: int) -> None:
        """Make a part (OFFSETS, NODES or EDGES) twice as long as `length`; the contents of the part are lost.

        Raises LimitError beyond `MAX_LEVELS`.
        """
        if length > MAX_LEVELS:
            raise LimitError(too_long(f"more than {MAX_LEVELS:,}"))
        self._allocate(part, min(2 * length, MAX_LEVELS))

    def _allocate(self, part: int, length: int) -> None:
        if part == OFFSETS:
            self.first_node, self.edge_count = _ints(length), _ints(length)
        elif part == NODES:
            self.column, self.state, self.first_edge = _ints(length), _shorts(length), _ints(length)
            self.low, self.high = np.zeros(length), np.zeros(length)
        else:
            self.edges = _ints(length, 4)


class ForwardBuffers:
    """The forward weights after the newest observed pair, for one agent's path and one evaluator.

    Args:
        max_starts: largest number of start points; 0: only the first pair is a start point.
        queried_start: index of the start to answer, counted from the oldest; -1: all starts.
        horizon: number of offsets at which an obligation may remain; older starts need no weights.

    There are `segment_count` segments. Segment g has the nodes `first_node[g]:first_node[g + 1]` of column `column[g]`,
    by ascending `states`. `weights` [nodes, `live_starts`]: the weights of the nodes. The weights of a node are defined
    only for the starts in `start_range` [nodes, 2] (first, last exclusive); older starts are decided.
    `accumulated` [starts]: probability that the formula is decided true, or reward collected.

    `start_count`: number of starts. `last_state`, `last_action`: the newest pair. `base_offset`: the offset of start 0
    at the newest pair. `unanswered`: True if the newest pair was observed, but values that its answer needs were
    missing. `values` [starts]: the answers, newest start point first; if one start is queried, its answer is at index
    0. `answers`: the same array for the loops.
    """

    def __init__(self, max_starts: int, queried_start: int, horizon: int) -> None:
        segments, nodes = INITIAL_FORWARD
        self.max_starts, self.live_starts = max_starts, max(min(max_starts, horizon), 1)
        self.queried_start, self.last_state, self.last_action = queried_start, -1, -1
        self.restart()
        self.column, self.first_node = _ints(segments), _ints(segments + 1)
        self.states, self.start_range = _shorts(nodes), _ints(nodes, 2)
        self.weights, self.accumulated = np.zeros((nodes, self.live_starts)), np.zeros(max(max_starts, 1))
        self.values = self.answers = np.full(max(max_starts, 1), np.nan)

    def restart(self) -> None:
        """Forget the path."""
        self.start_count = self.segment_count = self.base_offset = 0
        self.unanswered = False

    def grow(self, segments: int, nodes: int) -> None:
        """Make space for at least `segments` segments and `nodes` nodes; the contents are kept."""
        if segments > len(self.column):
            self.column, self.first_node = longer(self.column, 2 * segments), longer(self.first_node, 2 * segments + 1)
        if nodes > len(self.states):
            self.states, self.start_range = longer(self.states, 2 * nodes), longer(self.start_range, 2 * nodes)
            self.weights = longer(self.weights, 2 * nodes)

    def of_start(self, start: int) -> list[tuple[int, Ints, Floats]]:
        """Return the weights of one start, as (column, states, weights) for each segment."""
        ranges, weights, found = np.asarray(self.start_range), np.asarray(self.weights), []
        for segment in range(self.segment_count):
            nodes = np.arange(self.first_node[segment], self.first_node[segment + 1])
            nodes = nodes[(ranges[nodes, 0] <= start) & (start < ranges[nodes, 1])]
            nodes = nodes[weights[nodes, start] > 0.0] if len(nodes) else nodes
            if len(nodes):
                states = np.asarray(self.states)[nodes].astype(np.int64)
                found.append((int(self.column[segment]), states, weights[nodes, start]))
        return found


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _shorts(count: int) -> Shorts:
    return np.zeros(count, dtype=np.int32)
