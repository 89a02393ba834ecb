"""The digests as they were stored, and comparison with them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from tests.bits.parts import FOUNDATIONS, PARTS

__all__ = ["different", "foreign", "stored", "write"]

STORED: Final = Path(__file__).with_name("digests.json")


@cache
def stored() -> dict[str, list[str]]:
    """Return part -> the digest of each batch; and foundation -> its digest."""
    found: dict[str, list[str]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def write(digests: dict[str, list[str]]) -> None:
    """Replace the digests of some parts, and of all foundations."""
    names = *FOUNDATIONS, *PARTS
    found = stored() | {name: [made()] for name, made in FOUNDATIONS.items()} | digests
    STORED.write_text(json.dumps({name: found[name] for name in names if name in found}, indent=1) + "\n")
    stored.cache_clear()


@cache
def foreign() -> frozenset[str]:
    """Return the foundations that round in another way here than where the digests were made."""
    return frozenset(name for name, made in FOUNDATIONS.items() if stored().get(name) != [made()])


def different(part: str, batches: Iterable[int]) -> list[int]:
    """Return the batches of a part whose digests are not the stored ones."""
    made, known = PARTS[part].made, stored().get(part, [])
    return [number for number in batches if known[number : number + 1] != [made(number)]]
