"""The digest of a message that is plain: whole numbers for state and action, nothing that ends an episode. Compiled.

Nearly all messages are. It is a chain of bijections of 64-bit words, one for each field. Two contents that differ in
one field only have different digests; of the policy the first 60 bits count. The two words that mean something else are
replaced by a third.
"""

from __future__ import annotations

import numpy as np

FACTOR = 0x9FB21C651E98DF25
SEED = 0x2545F4914F6CDD1D
ALL = 0xFFFF_FFFF_FFFF_FFFF
"""All bits: the word of a conflict; 0 is that of nothing."""

REALS = np.zeros(2)
"""Two numbers, and as `WORDS` their bits."""
WORDS = np.asarray(REALS).view(np.uint64)


def policy_word(policy: str | None) -> int:
    """Return the word of a policy's sha256, from its first 15 hexadecimal digits; 0: none was sent."""
    return 0 if policy is None else 1 + int(policy[:15], 16)


def plain_digest(state: int, action: int, time: float, reward: float, policy: int) -> int:
    """Return the digest; never 0 or `ALL`, which have a meaning of their own.

    `time`, `reward`: NaN if the message has none. `policy`: as `policy_word` returns it.
    """
    REALS[0], REALS[1] = time, reward
    mixed = _mix(_mix(_mix(_mix(_mix(SEED, state), action), WORDS[0]), WORDS[1]), policy)
    return SEED if mixed in {0, ALL} else mixed


def _mix(mixed: int, word: int) -> int:
    mixed = (mixed ^ word) * FACTOR & ALL
    return mixed ^ (mixed >> 32)
