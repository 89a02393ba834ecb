"""States of a learned model: the number of each code, also after the model has learned more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from monitor.arrays import Bools, Ints
from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.state_codes import base_of, code_of, is_end
from monitor.authoring.learning.tally import CODE_BITS, Tally

ELSEWHERE: Final = -1
"""Code of the state `elsewhere`, which is never recorded."""


@dataclass(frozen=True)
class States:
    """States of a model.

    In the usual order, the states of the numbering come first, then the ends of episodes, and `elsewhere` comes last. A
    new model has this order. A model that has learned more keeps its earlier numbers, and new states follow in the
    usual order.

    Attributes:
        base: number of states of the numbering.
        ends: codes of the ends, ascending.
        kept: codes of the earlier states in the order of their numbers; empty for a new model.
        actions: `Numbering.places` of the actions; None: actions have the same numbers in the model.
    """

    base: int
    ends: Ints
    kept: tuple[int, ...] = ()
    actions: Ints | None = None

    @cached_property
    def codes(self) -> Ints:
        """Codes of all states in the order of their numbers, [S]."""
        usual = np.concatenate([code_of(np.arange(self.base), ended=False), self.ends, [ELSEWHERE]])
        kept = np.array(self.kept, np.int64)
        return np.concatenate([kept, usual[~np.isin(usual, kept)]])

    @property
    def count(self) -> int:
        """Number of all states."""
        return len(self.codes)

    @cached_property
    def elsewhere(self) -> int:
        """Number of the state `elsewhere`."""
        return int(np.flatnonzero(self.codes == ELSEWHERE)[0])

    @cached_property
    def ended(self) -> Bools:
        """Whether each state is an end of an episode, [S]."""
        return np.asarray(is_end(self.codes) & (self.codes != ELSEWHERE))

    @cached_property
    def live(self) -> Bools:
        """Whether each state is a state of the numbering, [S]."""
        return ~is_end(self.codes)

    @cached_property
    def names(self) -> Ints:
        """Base state of each state, [S]; negative for `elsewhere` and for ends that were not recorded."""
        return base_of(self.codes)

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.codes)
        return self.codes[order], order

    def of(self, codes: Ints) -> Ints:
        """Return the states of codes; `elsewhere` for an unknown end."""
        known, order = self._sorted
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.asarray(np.where(known[at] == codes, order[at], self.elsewhere), np.int64)

    def of_base(self, states: Ints) -> Ints:
        """Return the states of the model for states of the numbering."""
        return self.of(code_of(states, ended=False))

    def of_action(self, actions: Ints) -> Ints:
        """Return the actions of the model for actions of the numbering."""
        return actions if self.actions is None else self.actions[actions]


def numbered(tally: Tally, states: Numbering, kept: Sequence[int] = (), actions: Numbering | None = None) -> States:
    """Return the states of the model of these counts. `kept`, `actions`: see `States`.

    States that are indices keep the agent's numbers. So if there are more indices than before, ends and `elsewhere` get
    new numbers.
    """
    codes = np.unique(np.concatenate([tally.transitions.keys & ((1 << CODE_BITS) - 1), tally.visited.keys]))
    before = int((~is_end(np.array(kept, np.int64))).sum())
    places = None if actions is None else actions.places
    return States(states.size, codes[is_end(codes)], () if moved(states, before) else tuple(kept), places)


def moved(states: Numbering, before: int) -> bool:
    """Return whether new states take numbers of other states: states are indices, and there are more than `before`."""
    return states.kind == "index" and states.size > before
