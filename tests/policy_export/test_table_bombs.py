"""Policy tables that say little and hold much: refused before memory is taken for them."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from monitor.errors import PolicyError
from monitor.model import MDP
from monitor.policy_export.convert import convert
from monitor.policy_export.original import Request

ONE = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])


def declared(shape: str) -> bytes:
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def refused(file: Path, says: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PolicyError, match=says):
            convert(ONE, Request(str(file)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_an_array_that_declares_more_than_there_is(tmp_path: Path) -> None:
    (tmp_path / "p.npy").write_bytes(declared("(1152921504606846975,)"))
    refused(tmp_path / "p.npy", "cannot be read as a table")


@pytest.mark.parametrize(("name", "most"), [("p.npy", 256 << 20), ("p.json", 64 << 20), ("p.csv", 64 << 20)])
def test_a_file_beyond_the_limit_is_not_read(name: str, most: int, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(most + 1)  # it takes no space on the disk
    refused(tmp_path / name, f"it has {most + 1:,} bytes, more than the limit of {most:,}")
