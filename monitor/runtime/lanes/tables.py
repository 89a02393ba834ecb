"""What all lanes of a monitor share: the model, the nominal policy, and the tables of each formula."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.jit import specialized
from monitor.model import MDP
from monitor.policy.table import PolicyTable
from monitor.runtime.lanes.accept import accept
from monitor.runtime.lanes.layout import (
    ACTIONS,
    DECISIONS,
    EXTRA_REWARDS,
    FIXED,
    FOR,
    FORMULAS,
    LARGEST,
    LIKELY,
    MAX_LAG,
    MAY_WAIT,
    NOMINAL_KIND,
    NONE,
    QUEUED,
    RANDOM,
    REPEATS,
    REWARDED,
    REWARDS,
    RING,
    ROWS,
    SPREAD,
    STALE_AFTER,
    STARTS,
    SUCCESSORS,
    TRANSITIONS,
    WINDOW,
)
from monitor.runtime.lanes.obligations import ObligationTable
from monitor.runtime.lanes.payload import accept_message
from monitor.runtime.lanes.take import step, take
from monitor.runtime.query import Query
from monitor.statistics.betting_odds import DENSE
from monitor.types import StreamSettings

__all__ = ["LaneTables"]

_STEP: Final = (1, 1, 1, 1, 1.0, 1.0, 1, 1.0, 1.0)
"""Arguments of the types of a step: its lane, numbers and times."""

LONGEST: Final = 1024
"""Largest window, in pairs, and largest horizon, in steps, for which there are lanes: each holds as many."""


class LaneTables:
    """Tables of the lanes of one monitor, and the functions that read them.

    Attributes:
        words, reals: place in the layout -> value, the same in all lanes. Arrays whose addresses are among them live as
            long as this object.
        obligations: of each formula; None where no forecast is followed.
        pairs: of each row, its state and action.
    """

    def __init__(self, model: MDP, nominal: PolicyTable, queries: Sequence[Query], settings: StreamSettings) -> None:
        self.model, self.queries = model, tuple(queries)
        self.pairs = [(state, action) for state in range(model.states) for action in range(model.actions)]
        self._arrays: list[AnyArray] = []
        self.obligations = [None if query.target is None else ObligationTable(query.target) for query in queries]
        least, most = model.reward_range
        self.reals = {MAX_LAG: settings.max_lag, STALE_AFTER: settings.stale_after, LARGEST: max(-least, most)}
        self.words = {
            ACTIONS: model.actions,
            TRANSITIONS: len(model.successors),
            ROWS: model.states * model.actions,
            WINDOW: settings.window,
            RING: settings.window + 1,
            REWARDED: int(self.reals[LARGEST] != 0.0),
            FORMULAS: len(self.queries),
            MAY_WAIT: min(QUEUED, settings.pending),
            **self._model_words(model),
            **self._nominal_words(nominal),
        }
        self.accept = specialized(accept, *_STEP)
        self.accept_message = specialized(accept_message, 1, 1, 1, 1.0, 1.0)
        self.take = specialized(take, 1, 1.0)

    @cached_property
    def step(self) -> Callable[..., int]:
        """`take.step`; a sidecar never calls it."""
        return specialized(step, *_STEP)

    @staticmethod
    def serve(model: MDP, queries: Sequence[Query], settings: StreamSettings) -> bool:
        """Return whether there can be lanes: on small models, whose rows are given, for exact answers at each step."""
        small = len(model.successors) <= DENSE and model.states * model.actions < DENSE and model.counts is None
        plain = settings.encoder == "index" and settings.window <= LONGEST and model.ended_as is None
        return small and plain and bool(queries) and all(map(_is_ordinary, queries))

    def words_of(self, place: int) -> dict[int, int]:
        """Return the words in the block of a formula that are the same in all lanes."""
        query, obligations = self.queries[place], self.obligations[place]
        verdicts = query.shared.numbers(self.model.actions)
        found = {FOR: query.spec.alarm.for_}
        if verdicts is not None:
            found |= verdicts.words()
        return found if obligations is None else found | obligations.words()

    def _model_words(self, model: MDP) -> dict[int, int]:
        zeros = np.zeros(len(model.successors))
        extra, spread = model.transition_rewards, model.reward_spread
        return {
            STARTS: self._address(model.indptr.astype(np.int64)),
            SUCCESSORS: self._address(model.successors.astype(np.int64)),
            REWARDS: self._address(model.rewards.reshape(-1).astype(np.float64)),
            EXTRA_REWARDS: self._address(zeros if extra is None else extra.astype(np.float64)),
            SPREAD: self._address(zeros if spread is None else spread.astype(np.float64)),
        }

    def _nominal_words(self, nominal: PolicyTable) -> dict[int, int]:
        if nominal.actions is not None:
            return {NOMINAL_KIND: FIXED, DECISIONS: self._address(nominal.actions.astype(np.int64))}
        if nominal.probabilities is None:
            return {NOMINAL_KIND: NONE}
        likely, repeats = nominal.probabilities.reshape(-1), nominal.repeats.reshape(-1)
        return {NOMINAL_KIND: RANDOM, LIKELY: self._address(likely.copy()), REPEATS: self._address(repeats.copy())}

    def _address(self, values: AnyArray) -> int:
        self._arrays.append(values)
        return int(values.ctypes.data)


def _is_ordinary(query: Query) -> bool:
    """Return whether a formula is answered exactly and at each step; its forecasts, if any, are not far ahead."""
    every = query.spec.every  # 1.0 would be each second
    near = query.target is None or query.target.horizon <= LONGEST
    return not query.sampled and type(every) is int and every == 1 and near


def address(values: array[int] | array[float]) -> int:
    """Return where the numbers of an array are."""
    return values.buffer_info()[0]
