"""Recordings as Parquet that say little and hold much: refused with little memory, in bounded time."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.errors import RecordingError
from monitor.sidecar.parquet_recording import PART, ParquetRecording, read_part
from tests.sidecar.audited import events, recorded

LARGE, REPEATED = 64 << 20, 20


@pytest.fixture
def part(tmp_path: Path) -> tuple[Path, Path]:
    """A recording and one of its parts."""
    folder = recorded(tmp_path / "r.parquet", events(steps=10, agents=1))
    return folder, ParquetRecording(folder).parts[0].path


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit of 200 MiB, which is taken off again."""
    monkeypatch.setattr("monitor.sidecar.parquet_recording.MEMORY", 200 << 20)
    before = resource.getrlimit(resource.RLIMIT_AS)
    yield
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def changed(path: Path, **columns: pa.Array) -> None:
    """Replace columns of a part, all at once: other numbers of rows, other contents."""
    table = pq.read_table(path)
    rows = len(next(iter(columns.values())))
    kept = {name: columns.get(name, pa.nulls(rows, table.schema.field(name).type)) for name in table.column_names}
    pq.write_table(pa.table(kept), path, compression="zstd", dictionary_pagesize_limit=2 * LARGE, store_schema=False)


@pytest.mark.usefixtures("little")
def test_a_part_that_unpacks_to_more_than_the_limit_is_refused(part: tuple[Path, Path]) -> None:
    folder, path = part
    payload = pa.DictionaryArray.from_arrays(pa.array([0] * REPEATED, pa.int32()), pa.array([b"x" * LARGE]))
    changed(path, payload=payload, number=pa.array(range(REPEATED)))
    assert path.stat().st_size < 1 << 20
    for read in (lambda: read_part(path, ("payload",)), lambda: list(ParquetRecording(folder))):
        with pytest.raises(RecordingError, match="takes more than 200 MiB of memory to read at once"):
            read()


def test_a_part_with_events_without_end_is_refused(part: tuple[Path, Path]) -> None:
    folder, path = part
    changed(path, number=pa.array([0]).take(pa.array([0] * (PART + 1))))
    assert path.stat().st_size < 1 << 20
    for read in (lambda: read_part(path, ("number",)), lambda: list(ParquetRecording(folder))):
        with pytest.raises(RecordingError, match=r"has 1,048,577 events; a part has 1,048,576 at most"):
            read()
