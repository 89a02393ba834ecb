"""The arrays the compiled loops work in: made here, and made anew where they are too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from monitor.arrays import Floats, Ints, Shorts
from monitor.errors import LimitError
from monitor.exact.forward import step
from monitor.exact.forward.bounds import Levels
from monitor.jit import held

__all__ = ["MAX_LEVELS", "ForwardBuffers", "Workspace", "too_long"]


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _shorts(count: int) -> Shorts:
    return np.zeros(count, dtype=np.int32)


MAX_LEVELS = 8_000_000
"""Nodes, and moves between them, that bounds over one path may take in: 320 MB and 256 MB at most."""


FIRST_NODES = 64
"""Nodes and items that there is room for before anything grows, for answers and for bounds."""

FIRST_WALK = 2, 16
"""Segments and nodes of a walk before it grows."""


def too_long(count: str) -> str:
    """The refusal of bounds over a path that reaches too much."""
    return (
        f"bounds over causal models would have to choose {count} rows along the observed path (limit MAX_LEVELS); "
        "look back fewer steps, shorten the formula's intervals, or use causal model gumbel"
    )


class Workspace:
    """Room to work in, for models of `states` states, shared by all that ask; its arrays are others as it grows."""

    def __init__(self, states: int, *, local: bool = False) -> None:
        self._mark, self._where, self._evidence = _ints(states), _shorts(states), _ints(states if local else 0)
        self.no_table = np.zeros((1, states))  # the kernel reads some row where a weight is 0, so there must be one
        self._clock = _ints(2)  # runs on: marks of the arrays before must not be met again
        self.strands, self.lanes, self._nodes = 4, 1, FIRST_NODES
        self.scratch = self._scratch()
        self._levels: tuple[Levels, Any] | None = None
        self._sizes = [FIRST_NODES] * 3

    @property
    def levels(self) -> Levels:
        """For bounds, made when first asked for. Sized for themselves: bounds are those of one start point."""
        return self._both_levels()[0]

    @property
    def lent_levels(self) -> Any:  # noqa: ANN401 - numba's box
        """The same for compiled code, until they grow."""
        return self._both_levels()[1]

    def _both_levels(self) -> tuple[Levels, Any]:
        if self._levels is None:
            places, nodes, items = self._sizes
            levels = Levels(
                node_first=_ints(places),
                item_count=_ints(places),
                strand=_ints(nodes),
                state=_shorts(nodes),
                entry=_ints(nodes),
                low=np.zeros(nodes),
                high=np.zeros(nodes),
                items=_ints(items, 4),
                below=np.zeros(len(self._mark)),
                above=np.zeros(len(self._mark)),
            )
            self._levels = levels, held(levels)
        return self._levels

    def grow_levels(self, which: int, wanted: int) -> None:
        """Have room for `wanted` of what bounds lack (`interval.PLACES`, NODES or ITEMS), and as many again.

        Raises LimitError beyond `MAX_LEVELS`.
        """
        if wanted > MAX_LEVELS:
            raise LimitError(too_long(f"more than {MAX_LEVELS:,}"))
        self._sizes[which] = min(2 * wanted, MAX_LEVELS)
        self._levels = None

    def grow(self) -> None:
        """Twice the room."""
        self._nodes *= 2
        self.scratch = self._scratch()

    def fit(self, strands: int, lanes: int) -> None:
        """Have room for so many strands and lanes at least."""
        self.strands, self.lanes = max(strands, self.strands), max(lanes, self.lanes)
        self.scratch = self._scratch()

    def _scratch(self) -> step.Scratch:
        nodes = self._nodes
        return step.Scratch(
            mark=self._mark,
            where=self._where,
            evidence=self._evidence,
            ends=_ints(self.strands, 3),
            items=_ints(nodes, 5),
            strand=_ints(nodes),
            first=_ints(nodes + 1),
            states=_shorts(nodes),
            places=_ints(nodes),
            lanes=_ints(nodes, 2),
            weights=np.zeros((nodes, self.lanes)),
            gained=np.zeros(nodes),
            rows=_ints(self.lanes),
            clock=self._clock,
            lacks=_ints(2),
        )


class ForwardBuffers:
    """What one agent's path has come to under an arm: a `step.Forward` that grows.

    Args:
        keep: start points to hold at most; 0: the first pair alone.
        only: the one asked about, counted from the oldest; -1: all.
        horizon: offsets at which anything can be owed.
    """

    def __init__(self, keep: int, only: int, horizon: int) -> None:
        self.keep, self.lanes = keep, max(min(keep, horizon), 1)
        self.fits: step.Scratch | None = None
        """The room an arm has seen to be large enough for it."""
        self.arrays = self._walk(max(keep, 1), *FIRST_WALK)
        self.arrays.now[step.KEEP], self.arrays.now[step.ONLY] = keep, only
        self.held = held(self.arrays)

    @property
    def now(self) -> Ints:
        """See `step.Forward`."""
        return self.arrays.now

    @property
    def values(self) -> Floats:
        """The answers, newest start point first; the one asked about at 0."""
        return self.arrays.values

    def restart(self) -> None:
        """Forget the path."""
        self.arrays.now[: step.KEEP] = 0
        self.arrays.now[step.UNANSWERED] = 0

    def grow(self, segments: int, nodes: int) -> None:
        """Room for at least so many, keeping what is held."""
        old = self.arrays
        sizes = zip((len(old.strand), len(old.states)), (segments, nodes), strict=True)
        new = self._walk(len(old.gained), *(2 * wanted if wanted > size else size for size, wanted in sizes))
        for name in step.Forward._fields:
            source: npt.NDArray[np.generic] = getattr(old, name)
            getattr(new, name)[: len(source)] = source
        self.arrays, self.held = new, held(new)

    def spreads(self, lane: int) -> list[tuple[int, Ints, Floats]]:
        """Of one start point: (strand, states, weights) of what is owed."""
        walk, found = self.arrays, []
        for g in range(walk.now[step.SEGMENTS]):
            nodes = np.arange(walk.first[g], walk.first[g + 1])
            nodes = nodes[(walk.lanes[nodes, 0] <= lane) & (lane < walk.lanes[nodes, 1])]
            nodes = nodes[walk.weights[nodes, lane] > 0.0] if len(nodes) else nodes
            if len(nodes):
                found.append((int(walk.strand[g]), walk.states[nodes].astype(np.int64), walk.weights[nodes, lane]))
        return found

    def _walk(self, starts: int, segments: int, nodes: int) -> step.Forward:
        return step.Forward(
            now=_ints(8),
            strand=_ints(segments),
            first=_ints(segments + 1),
            states=_shorts(nodes),
            lanes=_ints(nodes, 2),
            weights=np.zeros((nodes, self.lanes)),
            gained=np.zeros(starts),
            values=np.full(starts, np.nan),
        )
