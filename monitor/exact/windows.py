"""Find equal windows of pairs in a recording. They have equal values, so each distinct window is evaluated once.

A value at an offset up to t depends only on the newest t + 1 pairs, so a window has t + 1 pairs. All of these must be
observed, because the forward weights depend on them. Pairs that are in no evaluated window are skipped.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.exact.forward.codes import ANSWER, BEGIN, OBSERVE, SKIP

WORTHWHILE = 0.8
"""If more than this fraction of the pairs must be observed, all pairs are evaluated instead."""
MOST_CODES = 1 << 62
"""Upper limit of the numbers that `_codes` gives to windows."""


class Windows:
    """The windows of `width` pairs in a recording of states and actions [n].

    Attributes:
        plan: [n] bits for each pair, as in `answers.push_all`; empty if windows hardly repeat, so that all pairs are
            evaluated in order.
    """

    def __init__(self, pairs: tuple[Ints, Ints], width: int) -> None:
        count = len(pairs[0])
        _, first, same = np.unique(_codes(pairs, width), return_index=True, return_inverse=True)
        self._source = np.arange(count)
        self._source[width - 1 :] = first[same] + width - 1
        answered = self._source == np.arange(count)  # includes the first pairs, whose windows are shorter
        self.plan = _plan(answered, width)
        if np.count_nonzero(self.plan != SKIP) > WORTHWHILE * count:
            self.plan = self.plan[:0]

    def fill(self, values: Floats) -> None:
        """Copy the values [n, starts] of evaluated windows to the equal windows that were skipped."""
        if len(self.plan):
            again = np.flatnonzero(self._source != np.arange(len(values)))
            values[again] = values[self._source[again]]


def _codes(pairs: tuple[Ints, Ints], width: int) -> Ints:
    """Return a number for each window [n - width + 1]; windows have equal numbers only if their pairs are equal."""
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
    """Return the plan [n]: answer the `answered` pairs, and observe the `width` - 1 pairs before each of them."""
    ends = np.flatnonzero(answered)
    change = np.zeros(len(answered) + 1, dtype=np.int64)
    np.add.at(change, np.maximum(ends - width + 1, 0), 1)
    change[ends + 1] -= 1
    needed = np.cumsum(change[:-1]) > 0
    plan = np.where(needed, np.where(answered, ANSWER, OBSERVE), SKIP)
    plan[needed & ~np.append(False, needed[:-1])] |= BEGIN
    return plan
