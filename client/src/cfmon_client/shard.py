"""Find the monitor of an agent among several monitors, as the monitor's setting `mqtt.shard` defines it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["is_elsewhere", "shard_of"]

_TEXT: Final = re.compile(r"([0-9]{1,4})/([1-9][0-9]{0,3})")


def shard_of(agent: str, shards: int) -> int:
    """Return the number, from 0, of an agent's shard: the first 8 bytes of the name's SHA-256, modulo `shards`.

    >>> shard_of("ward-3", 8)
    2
    """
    return int.from_bytes(hashlib.sha256(agent.encode()).digest()[:8], "big") % shards


def is_elsewhere(document: Mapping[str, Any], agent: str) -> bool:
    """Return whether a status comes from the monitor of a shard to which this agent does not belong."""
    shard = document.get("shard")
    match = _TEXT.fullmatch(shard) if isinstance(shard, str) else None
    return match is not None and shard_of(agent, int(match[2])) != int(match[1])
