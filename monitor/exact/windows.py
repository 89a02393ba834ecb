"""Windows of a recording: where the newest pairs are the same, so are the values after them.

A value at an offset up to t depends on the newest t + 1 pairs only, so each different window of so many pairs is
evaluated once. Its forward weights need all of its pairs: what is in no window evaluated is skipped.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.exact.forward.codes import ANSWER, BEGIN, OBSERVE, SKIP

WORTHWHILE = 0.8
"""Largest part of the pairs that is evaluated this way; above it all are evaluated as they come."""
MOST_CODES = 1 << 62
"""Windows are told apart by integers below this."""


class Windows:
    """The windows of `width` pairs in a recording of states and actions [n].

    Attributes:
        plan: [n] what to do with each pair, as for `answers.push_all`; empty if windows hardly repeat: all as they
        come.
    """

    def __init__(self, pairs: tuple[Ints, Ints], width: int) -> None:
        count = len(pairs[0])
        _, first, same = np.unique(_codes(pairs, width), return_index=True, return_inverse=True)
        self._source = np.arange(count)
        self._source[width - 1 :] = first[same] + width - 1
        answered = self._source == np.arange(count)  # also the first pairs, whose window is shorter
        self.plan = _plan(answered, width)
        if np.count_nonzero(self.plan != SKIP) > WORTHWHILE * count:
            self.plan = self.plan[:0]

    def fill(self, values: Floats) -> None:
        """Copy the values [n, starts] of windows that were evaluated to those that are the same."""
        if len(self.plan):
            again = np.flatnonzero(self._source != np.arange(len(values)))
            values[again] = values[self._source[again]]


def _codes(pairs: tuple[Ints, Ints], width: int) -> Ints:
    """Return a number for each window [n - width + 1], the same for the same pairs only."""
    states, actions = pairs
    count = len(states) - width + 1
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    distinct, ids = np.unique(states * (actions.max() + 2) + actions + 1, return_inverse=True)
    codes, different = np.zeros(count, dtype=np.int64), 1
    for n in range(width):
        if different * len(distinct) >= MOST_CODES:
            found, codes = np.unique(codes, return_inverse=True)
            different = len(found)
        codes = codes * len(distinct) + ids[n : n + count]
        different *= len(distinct)
    return codes


def _plan(answered: Bools, width: int) -> Ints:
    """Return what to do with each pair [n], so that `answered` ones are, with the `width` - 1 pairs before each."""
    ends = np.flatnonzero(answered)
    change = np.zeros(len(answered) + 1, dtype=np.int64)
    np.add.at(change, np.maximum(ends - width + 1, 0), 1)
    change[ends + 1] -= 1
    needed = np.cumsum(change[:-1]) > 0
    plan = np.where(needed, np.where(answered, ANSWER, OBSERVE), SKIP)
    plan[needed & ~np.append(False, needed[:-1])] |= BEGIN
    return plan
