"""The digest of a message that is plain: whole numbers for state and action, nothing that ends an episode.

Nearly all messages are, and compiled code makes the digests of most (`monitor.runtime.lanes`), so it is compiled: a
chain of bijections of 64-bit words, one for each field. Contents that differ in one field only, have different ones;
of the policy the first 60 bits count. The two words with a meaning of their own become a third.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from monitor.jit import compiled

__all__ = ["plain_digest", "policy_word"]

FACTOR: Final = np.uint64(0x9FB21C651E98DF25)
HALF: Final = np.uint64(32)
SEED: Final = np.uint64(0x2545F4914F6CDD1D)
NOTHING: Final = np.uint64(0)
CONFLICTED: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def policy_word(policy: str | None) -> int:
    """Return the word of a policy's sha256, from its first 15 hexadecimal digits; 0: none was sent."""
    return 0 if policy is None else 1 + int(policy[:15], 16)


@compiled
def plain_digest(state: int, action: int, time: float, reward: float, policy: int) -> int:
    """Return the digest as a signed 64-bit number; never 0 or -1, which have a meaning of their own.

    `time`, `reward`: NaN if the message has none. `policy`: as `policy_word` returns it.
    """
    mixed = SEED
    words = (
        np.uint64(state),
        np.uint64(action),
        np.float64(time).view(np.uint64),
        np.float64(reward).view(np.uint64),
        np.uint64(policy),
    )
    for word in words:
        mixed = (mixed ^ word) * FACTOR
        mixed = mixed ^ (mixed >> HALF)
    if mixed in (NOTHING, CONFLICTED):
        mixed = SEED
    return np.int64(mixed)  # type: ignore[return-value] # signed; `int` of this would be unsigned in Python


def number_or_nan(value: float | None) -> float:
    """Return a number that a message may lack as `plain_digest` expects it."""
    return math.nan if value is None else value
