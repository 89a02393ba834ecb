"""Archives that say little and hold much: refused before memory is taken for what they hold."""

from __future__ import annotations

import io
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable

import numpy as np
import pytest

from monitor.errors import ModelError
from monitor.model.npz import read_model

MEGABYTE = 1 << 20


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def array(value: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(value))
    return buffer.getvalue()


def header(descr: str, shape: str) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def lying() -> bytes:
    """Says that a member has 100 bytes; it unpacks to 200 megabytes."""
    content = bytearray(archive({"format": bytes(200 * MEGABYTE)}))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", content, content.index(signature) + offset, 100)
    return bytes(content)


def many_members() -> bytes:
    return archive({f"bin_edges_{n}": b"" for n in range(20_000)})


def object_array() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, format=np.array([pickle.dumps], dtype=object))
    return buffer.getvalue()


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "unpacks to more than the limit": (lambda: archive({"format": bytes(200 * MEGABYTE)}), "more than the limit"),
    "says less than it holds": (lying, "is not a NumPy array|not a readable"),
    "many members": (many_members, "far more members than a model has"),
    "a declared shape without content": (lambda: archive({"format": header("<i8", "(1000000000,)")}), "do not fit"),
    "a declared shape that overflows": (
        lambda: archive({"format": header("<i8", "(4294967296, 4294967296)")}),
        "do not fit",
    ),
    "text of a gigabyte each": (lambda: archive({"state_names": header("<U999999999", "(1000,)")}), "."),
    "a pickle": (object_array, "its header is not that of a plain array"),
    "states beyond memory": (
        lambda: archive(
            {
                "format": array(1),
                "states": array(1 << 40),
                "actions": array(1 << 20),
                "indptr": array([0]),
                "successors": array(np.zeros(0, np.int64)),
                "probabilities": array(np.zeros(0)),
            }
        ),
        ".",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_archive_bomb_is_refused_with_little_memory_taken(bomb: str) -> None:
    make, says = BOMBS[bomb]
    content = make()
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=says):
            read_model(content, "bomb.npz", limit=100 * MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * MEGABYTE
