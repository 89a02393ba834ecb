"""Codes of the successors of steps: a state, its absorbing copy, or an end whose state was not recorded."""

from __future__ import annotations

from typing import Final

import numpy as np

from monitor.arrays import Bools, Ints

MAX_LABELS: Final = 12
"""Largest number of labels.

The code of an end whose state was not recorded says which labels hold there, and which are unknown.
"""

ENDS: Final = 1 << (2 * MAX_LABELS)
"""Codes below this number are ends whose state was not recorded.

These codes have a bit for each label that holds at the end, then a bit for each label that is unknown at the end. From
this number on, each state has two codes: the state itself, and its absorbing copy for episodes that terminate in it.
"""


def code_of(states: Ints, ended: Bools | bool) -> Ints:  # noqa: FBT001 - a mask beside its array
    """Return the codes of states, or of their absorbing copies."""
    return ENDS + 2 * states + ended


def base_of(codes: Ints) -> Ints:
    """Return the state of each code; negative for an end whose state was not recorded."""
    return np.asarray(np.where(codes < ENDS, -1, (codes - ENDS) // 2), np.int64)


def is_end(codes: Ints) -> Bools:
    """Return which codes are ends of episodes."""
    return np.asarray((codes < ENDS) | ((codes - ENDS) % 2 == 1))


def unknown_at(codes: Ints, labels: int) -> Bools:
    """Return for each code and label whether it is unknown if the label holds, [n, labels]."""
    bits = np.asarray(codes)[:, None] >> (MAX_LABELS + np.arange(labels))
    return np.asarray((bits & 1 == 1) & (np.asarray(codes)[:, None] < ENDS) & (np.asarray(codes)[:, None] >= 0))
