"""Shards: assign each agent to one of several monitors, by a hash of the agent's name.

The hash is the first eight bytes of SHA-256 (FIPS 180-4) of the name, read as a big-endian number. The hash modulo the
number of shards is the number of the agent's shard, from 0. `docs/fleets.md` has test values.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from monitor.errors import ConfigError

MOST_SHARDS: Final = 1024
"""Maximum number of shards. Each shard receives the steps of all agents, so more shards would not help."""

_BYTES: Final = 8
_TEXT: Final = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


class Shard(msgspec.Struct, frozen=True, order=True):
    """Shard `number` of `of` shards. It has the agents whose hash modulo `of` is `number`.

    >>> str(Shard(2, 8)), Shard(2, 8).has("ward-3"), Shard(3, 8).has("ward-3")
    ('2/8', True, False)
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, agent: str) -> bool:
        """Return whether an agent belongs to this shard."""
        return shard_of(agent, self.of) == self.number


def shard_of(agent: str, shards: int) -> int:
    """Return the number, from 0, of an agent's shard, if there are `shards` shards.

    >>> [shard_of(name, 8) for name in ("ada", "bob", "ward-3")]
    [6, 2, 2]
    """
    return int.from_bytes(hashlib.sha256(agent.encode()).digest()[:_BYTES]) % shards


def parse_shard(text: str) -> Shard:
    """Return the shard that a text such as `3/8` names. Raises ConfigError.

    >>> parse_shard("3/8")
    Shard(number=3, of=8)
    """
    match = _TEXT.fullmatch(text)
    shard = None if match is None else Shard(int(match[1]), int(match[2]))
    if shard is None or not 1 <= shard.of <= MOST_SHARDS:
        raise ConfigError(f"must be NUMBER/OF, such as 3/8 for number 3 of 8 shards; at most {MOST_SHARDS} shards")
    if shard.number >= shard.of:
        raise ConfigError(
            f"shards are numbered from 0: those of {shard.of} are 0/{shard.of} to {shard.of - 1}/{shard.of}"
        )
    return shard
