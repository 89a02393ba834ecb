"""Codes of what a step leads to: a state, its absorbing copy, or an end whose state was not recorded."""

from __future__ import annotations

from typing import Final

import numpy as np

from monitor.arrays import Bools, Ints

MAX_LABELS: Final = 12
"""An end whose state was not recorded has a code for each set of labels that hold there, and of unknown ones."""

ENDS: Final = 1 << (2 * MAX_LABELS)
"""Codes below this: ends whose state was not recorded. A bit for each label that holds there, then one for each of
which that is unknown. Then two codes for each state: itself, and its absorbing copy for episodes that terminate
there."""


def code_of(states: Ints, ended: Bools | bool) -> Ints:  # noqa: FBT001 - a mask beside its array
    """Return the codes of states, or of their absorbing copies."""
    return ENDS + 2 * states + ended


def base_of(codes: Ints) -> Ints:
    """Return the state of a code; negative for an end that was not recorded."""
    return np.asarray(np.where(codes < ENDS, -1, (codes - ENDS) // 2), np.int64)


def is_end(codes: Ints) -> Bools:
    """Return which codes are ends of episodes."""
    return np.asarray((codes < ENDS) | ((codes - ENDS) % 2 == 1))


def unknown_at(codes: Ints, labels: int) -> Bools:
    """Return at which codes it is unknown whether each label holds, [n, labels]."""
    bits = np.asarray(codes)[:, None] >> (MAX_LABELS + np.arange(labels))
    return np.asarray((bits & 1 == 1) & (np.asarray(codes)[:, None] < ENDS) & (np.asarray(codes)[:, None] >= 0))
