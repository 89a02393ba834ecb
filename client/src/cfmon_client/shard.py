"""Which of several monitors is the one of an agent, as `mqtt.shard` of the monitor defines it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["is_elsewhere", "shard_of"]

_TEXT: Final = re.compile(r"([0-9]{1,4})/([1-9][0-9]{0,3})")


def shard_of(agent: str, shards: int) -> int:
    """Return the number, from 0, of the shard of an agent: the first 8 bytes of SHA-256 of its name, modulo `shards`.

    >>> shard_of("ward-3", 8)
    2
    """
    return int.from_bytes(hashlib.sha256(agent.encode()).digest()[:8], "big") % shards


def is_elsewhere(document: Mapping[str, Any], agent: str) -> bool:
    """Return whether a status is that of a monitor which does not monitor this agent, but those of another shard."""
    shard = document.get("shard")
    match = _TEXT.fullmatch(shard) if isinstance(shard, str) else None
    return match is not None and shard_of(agent, int(match[2])) != int(match[1])
