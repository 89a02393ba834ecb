"""Compute the digest of a plain message. Compiled.

In a plain message, state and action are whole numbers and no episode ends. Nearly all messages are plain. The digest is
a chain of bijections of 64-bit words, one for each field, so two contents that differ in only one field have different
digests. Only the first 60 bits of the policy's digest count. The words 0 and `ALL` have a special meaning, so a digest
with one of these values is replaced by a third word.
"""

from __future__ import annotations

import numpy as np

FACTOR = 0x9FB21C651E98DF25
SEED = 0x2545F4914F6CDD1D
ALL = 0xFFFF_FFFF_FFFF_FFFF
"""All bits set: the word for a conflict. The word 0 means no digest."""

REALS = np.zeros(2)
"""Two floating-point numbers; `WORDS` is a view of their bits."""
WORDS = np.asarray(REALS).view(np.uint64)


def policy_word(policy: str | None) -> int:
    """Return the word for a policy's SHA-256, made of its first 15 hexadecimal digits; 0 if no policy was sent."""
    return 0 if policy is None else 1 + int(policy[:15], 16)


def plain_digest(state: int, action: int, time: float, reward: float, policy: int) -> int:
    """Return the digest. It is never 0 or `ALL`.

    `time`, `reward`: NaN if the message has none. `policy`: result of `policy_word`.
    """
    REALS[0], REALS[1] = time, reward
    mixed = _mix(_mix(_mix(_mix(_mix(SEED, state), action), WORDS[0]), WORDS[1]), policy)
    return SEED if mixed in {0, ALL} else mixed


def _mix(mixed: int, word: int) -> int:
    mixed = (mixed ^ word) * FACTOR & ALL
    return mixed ^ (mixed >> 32)
