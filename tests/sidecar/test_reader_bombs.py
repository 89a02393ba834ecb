"""Small files that ask for much: recordings, evidence and configurations are refused with little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.errors import MonitorError
from monitor.evidence.document import read_evidence
from monitor.sidecar.recording import Recording
from monitor.stream.encoding import unpack
from monitor.yamltext import parse_yaml

MEGABYTE = 1 << 20
ARRAYS = b"\xdd\x00\x00\xff\xff" * 2000
"""Lists in lists, each said to have 65,535 entries."""

HUGE = b"\xdd\xff\xff\xff\xff" * 2000
MAPS = b"\xdf\x00\x00\xff\xff\xa1a" * 2000
BYTES = b"\xc6\xff\xff\xff\xff"
PACKED = {"lists": ARRAYS, "huge lists": HUGE, "maps": MAPS, "bytes": BYTES, "extension": b"\xc9\xff\xff\xff\xff\x01"}


def read_recording(content: bytes, folder: Path) -> None:
    (folder / "recording").write_bytes(content)
    with Recording(folder / "recording") as events:
        list(events)


READERS: dict[str, Callable[[bytes, Path], object]] = {
    "step": lambda content, _: unpack(content),
    "evidence": lambda content, _: read_evidence(content),
    "recording": read_recording,
}
TEXTS = {
    "depth": b"a: " + b"[" * 100_000,
    "aliases": b"a: &a [x, x]\nb: [*a, *a]\n",
    "merge": b"a: &a {x: 1}\nb: {<<: [*a, *a]}\n",
    "base 60": b"a: 1" + b":59" * 300_000,
    "digits": b"a: " + b"9" * 900_000,
    "values": b"a: [" + b"x," * 500_000 + b"]",
    "size": b"a: " + b"x" * (2 * MEGABYTE),
}


def refused(read: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MonitorError):
            read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * MEGABYTE


@pytest.mark.parametrize("bomb", PACKED)
@pytest.mark.parametrize("reader", READERS)
def test_a_packed_bomb_is_refused(reader: str, bomb: str, tmp_path: Path) -> None:
    refused(lambda: READERS[reader](PACKED[bomb], tmp_path))


@pytest.mark.parametrize("bomb", TEXTS)
def test_a_yaml_bomb_is_refused(bomb: str) -> None:
    refused(lambda: parse_yaml(TEXTS[bomb], "bomb.yaml"))


@pytest.mark.parametrize("content", [b"[" * 60_000, b'{"a":' * 10_000, b'{"v": ' + b"9" * 60_000 + b"}"])
def test_a_json_bomb_is_refused(content: bytes) -> None:
    refused(lambda: unpack(content))
