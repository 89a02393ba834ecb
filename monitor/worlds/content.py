"""A world as bytes, whose digest is its name in alerts and evidence: a manifest with its graphs, or Python's source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from monitor.errors import ModelError

MANIFEST, PYTHON = "world manifest", "world in Python"
NOT_RUN = "code that comes with evidence is not run"


def of_manifest(manifest: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a manifest and of the files it names, by their sha256."""
    packed: bytes = msgpack.packb([MANIFEST, manifest, dict(sorted(files.items()))])
    return packed


def of_python(name: str, source: bytes) -> bytes:
    """Return the bytes of a world written in Python: its name and the file it is in, if there is one."""
    packed: bytes = msgpack.packb([PYTHON, name, source])
    return packed


def opened(content: bytes) -> tuple[bytes, Mapping[str, bytes]]:
    """Return the manifest and the files in the bytes of a world.

    Raises ModelError: they are damaged, or of a world in Python, whose code is not run just because a file contains it.
    """
    kind, first, second = _parts(content)
    if kind == PYTHON:
        raise ModelError(f"world {first}: it is written in Python, and {NOT_RUN}")
    if kind != MANIFEST or not isinstance(first, bytes) or not isinstance(second, dict):
        raise ModelError("world: its bytes are damaged")
    files: dict[str, Any] = second
    return first, files


def name_in_python(content: bytes) -> str:
    """Return the name of a world in Python, such as `tank.py:Tank`; empty if the bytes are of something else.

    Raises ModelError: they are damaged.
    """
    begin = of_python("", b"")[: 2 + len(PYTHON)]
    return str(_parts(content)[1]) if content.startswith(begin) else ""


def _parts(content: bytes) -> tuple[Any, Any, Any]:
    try:
        kind, first, second = msgpack.unpackb(content)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ModelError("world: its bytes are damaged") from error
    return kind, first, second
