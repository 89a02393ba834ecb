"""Evidence altered by somebody who knows its form."""

from __future__ import annotations

import hashlib
from typing import Any

from monitor.evidence.canonical import pack_plain, plain

__all__ = ["with_digest"]


def with_digest(document: dict[str, Any]) -> tuple[str, bytes]:
    """The id and the bytes of an altered document whose digest fits."""
    rest = {name: value for name, value in document.items() if name != "digest"}
    digest = hashlib.sha256(pack_plain(plain(rest))).hexdigest()
    return digest[:32], pack_plain(plain({**rest, "digest": digest}))
