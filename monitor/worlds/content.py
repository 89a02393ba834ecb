"""A world as bytes: a manifest with its graphs, or Python source. The digest of the bytes names the world in alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from monitor.errors import ModelError

MANIFEST, PYTHON = "world manifest", "world in Python"
NOT_RUN = "code that comes with evidence is not run"


def of_manifest(manifest: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a manifest and of the files that it names; `files`: sha256 -> content."""
    packed: bytes = msgpack.packb([MANIFEST, manifest, dict(sorted(files.items()))])
    return packed


def of_python(name: str, source: bytes) -> bytes:
    """Return the bytes of a world written in Python: its name and its source file, if there is one."""
    packed: bytes = msgpack.packb([PYTHON, name, source])
    return packed


def opened(content: bytes) -> tuple[bytes, Mapping[str, bytes]]:
    """Return the manifest and the files in the bytes of a world.

    Raises ModelError if the bytes are damaged, or if they are a world in Python, because code from a file is never run.
    """
    kind, first, second = _parts(content)
    if kind == PYTHON:
        raise ModelError(f"world {first}: it is written in Python, and {NOT_RUN}")
    if kind != MANIFEST or not isinstance(first, bytes) or not isinstance(second, dict):
        raise ModelError("world: its bytes are damaged")
    files: dict[str, Any] = second
    return first, files


def name_in_python(content: bytes) -> str:
    """Return the name of a world in Python, such as `tank.py:Tank`; empty if the bytes are not a world in Python.

    Raises ModelError if the bytes are damaged.
    """
    begin = of_python("", b"")[: 2 + len(PYTHON)]
    return str(_parts(content)[1]) if content.startswith(begin) else ""


def _parts(content: bytes) -> tuple[Any, Any, Any]:
    try:
        kind, first, second = msgpack.unpackb(content)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ModelError("world: its bytes are damaged") from error
    return kind, first, second
