"""Bounds of a value over causal models, along a path of observations (docs/semantics/hidden.md, section 16.10).

A later observation changes the likelihood of every earlier true state, and with it the worst coupling. So bounds are
not carried forward: each new pair needs a new pass from the last pair back to the intervention.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import LimitError
from monitor.hidden.pair_bounds import Level, Means
from monitor.hidden.pair_chain import Change, Remaining, remain
from monitor.hidden.shared_tables import Tables
from monitor.hidden.tails import Column, Tail
from monitor.hidden.trace import Trace
from monitor.logic import Automaton

MAX_EFFORT: Final = 50_000_000
"""Largest effort of one bound (`monitor.hidden.pair_bounds.solve`): about a second."""
MAX_NODES: Final = 1_000_000
"""Largest number of nodes, and of values at the last pair, of one bound for which there is space."""
NO_NETWORK: Final = "no bounds over causal models: a recurrent network acts in the counterfactual world"
TOO_MUCH: Final = (
    "bounds over causal models take too much effort, for too many pairs of what may have happened and what would have "
    f"happened (limit MAX_EFFORT = {MAX_EFFORT:,} or MAX_NODES = {MAX_NODES:,}); use a smaller offset, a model with "
    "fewer states, or causal_model: gumbel"
)


class CausalBounds:
    """Bounds of one measure under one change over all causal models; the arguments are those of `PairChain`.

    Raises LimitError if a network acts in the counterfactual world.
    """

    def __init__(
        self, trace: Trace, change: Change, *, automaton: Automaton, masks: AnyArray, tables: Tables, tail: Tail
    ) -> None:
        if not trace.filter.readings(change.reader or trace.filter.nominal).listed:
            raise LimitError(NO_NETWORK)
        self._trace, self._change, self._automaton, self._masks = trace, change, automaton, masks
        self._tables, self._tail = tables, tail
        sets, kinds = np.unique(masks, return_inverse=True)
        self._sets, self._kinds = sets.tolist(), kinds.astype(np.int32)
        self._dynamics = change.dynamics or trace.model
        self._stages: list[Remaining] = []
        """What remains of the obligations at each offset from the intervention."""
        self._answered: tuple[tuple[int, int, bool] | None, tuple[float, float] | None] = None, None

    def bounds(self, start: int, *, terminated: bool) -> tuple[float, float]:
        """Return the lowest and the highest value for an intervention at pair number `start`, or wider bounds.

        Raises LimitError beyond `MAX_EFFORT` or `MAX_NODES`.
        """
        asked = self._trace.last, start, terminated
        if self._answered[0] != asked:
            self._answered = asked, self._bounds(start, terminated=terminated)
        if self._answered[1] is None:
            raise LimitError(TOO_MUCH)
        return self._answered[1]

    def _bounds(self, start: int, *, terminated: bool) -> tuple[float, float] | None:
        """Return what `bounds` returns; None if this is too much effort."""
        levels, emissions = self._levels(start), self._trace.model.emissions
        shows = 1 if emissions is None else int(np.diff(emissions.indptr).max())
        means, count = Means(levels[0].table, shows, MAX_EFFORT), 0
        states, trues, memories, weights = self._trace[start].starts(self._change.reader)
        others = states * levels[0].table.memories + memories
        nodes = [levels[0].add(*each) for each in zip(trues.tolist(), others.tolist(), strict=True)]
        for level in levels:
            level.find(means, MAX_NODES)
            count += level.count
            if means.left < 0 or count > MAX_NODES:
                return None
        columns, _ = self._stages[len(levels) - 1].before
        if level.is_last and level.count and not self._close(level, columns, terminated=terminated):
            return None
        for level in reversed(levels):
            level.evaluate(means)
        return float(weights @ np.asarray(level.low)[nodes]), float(weights @ np.asarray(level.high)[nodes])

    def _levels(self, start: int) -> list[Level]:
        """Return the levels from pair `start` on, to the last one or to one at which all obligations are decided."""
        later, stages, levels = self._trace.hindsight(start), self._stages, list[Level]()
        while len(stages) < len(later) and (not stages or stages[-1].columns):
            offset = len(stages)
            columns = [(offset, rest) for _, rest in stages[-1].columns] if stages else [(0, self._automaton.start)]
            stages.append(remain(self._automaton, self._sets, columns, offset + 1))
        for offset, stage in reversed([*enumerate(stages[: len(later)])]):
            reader = self._change.reader if self._change.takes_over(offset) else None
            table, then = self._tables.couplings(reader, self._dynamics), levels[-1] if levels else None
            following = later[offset + 1] if offset + 1 < len(later) else np.zeros(0)
            true, steps, rewarded = self._trace.true_side(start + offset), stage.steps, stage.rewarded
            levels.append(Level(true, later[offset], following, table, self._kinds, steps, rewarded, then))
        return levels[::-1]

    def _close(self, level: Level, columns: list[Column], *, terminated: bool) -> bool:
        """Set the values at the last pair, whose level this is; return whether there is space."""
        trace, table, ends = self._trace, level.table, list[int | None]([None])
        true, _ = trace[trace.last].split()
        which = np.zeros(len(true), np.int64)
        if terminated:  # in the state of each true place
            ended, which = np.unique(true, return_inverse=True)
            ends = ended.tolist()
        states = np.asarray(level.nodes)[: level.count] // level.columns % level.places // table.memories
        states, position = self._tables.positions(states, table.memories)
        if len(ends) * len(states) * table.memories * table.actions * level.columns > MAX_NODES:
            return False
        level.close(
            np.stack([self._tail.worths(columns, self._masks[states], states, end) for end in ends]), position, which
        )
        return True
