"""Archives and arrays of NumPy that declare more than they hold, and the memory that refusing them takes."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = ["archive", "array", "at_most", "header"]


def archive(members: dict[str, bytes]) -> bytes:
    """An archive of these arrays, packed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def array(value: object) -> bytes:
    """An array as it is in an archive."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(value))
    return buffer.getvalue()


def header(descr: str, shape: str) -> bytes:
    """The header of an array, without content."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """The block takes less than so many bytes of Python's memory at once."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most
