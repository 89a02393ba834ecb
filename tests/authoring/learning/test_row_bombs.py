"""Small tables that ask for much: each is refused, or read in parts, within the memory that is stated."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from mcap.writer import CompressionType, Writer
from pyarrow import parquet

from monitor import memory
from monitor.authoring.learning import row_files
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.mcap_rows import McapRows
from monitor.authoring.learning.minari_rows import MinariRows
from monitor.authoring.learning.row_files import open_rows
from monitor.errors import RecordingError
from tests.bombs import at_most
from tests.tiers import slow

MEGABYTE = 1 << 20
LARGE = 400 * MEGABYTE
"""More than the limit here, and no harm to the machine if the limit should be gone."""


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit of 200 MiB in place of a gigabyte; it must be lifted again."""
    monkeypatch.setattr(memory, "MEMORY", 200 * MEGABYTE)
    before = resource.getrlimit(resource.RLIMIT_AS)
    yield
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def packed_parquet(path: Path, values: pa.Array, **how: Any) -> Path:  # noqa: ANN401 - options of pyarrow
    parquet.write_table(pa.table({"state": values, "action": [0] * len(values)}), path, compression="zstd", **how)
    return path


def one_list(folder: Path) -> Path:
    entries = pa.array(np.zeros(LARGE, np.int8))
    return packed_parquet(folder / "list.parquet", pa.ListArray.from_arrays(pa.array([0, LARGE], pa.int32()), entries))


def one_text(folder: Path) -> Path:
    return packed_parquet(
        folder / "text.parquet",
        pa.array(["y" * LARGE], pa.large_string()),
        use_dictionary=False,
        write_statistics=False,
    )


def packed_buffers(folder: Path) -> Path:
    table = pa.table({"state": pa.array(["y" * LARGE], pa.large_string()), "action": [0]})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(folder / "buffers.arrow", table.schema, options=options) as file:
        file.write_table(table)
    return folder / "buffers.arrow"


def packed_chunk(folder: Path) -> Path:
    with (folder / "chunk.mcap").open("wb") as file:
        writer = Writer(file, chunk_size=2 * LARGE, compression=CompressionType.ZSTD)
        writer.start()
        channel = writer.register_channel("/a", "json", 0)
        writer.add_message(channel, log_time=0, data=b'{"x": "' + b"y" * LARGE + b'"}', publish_time=0)
        writer.finish()  # type: ignore[no-untyped-call]
    return folder / "chunk.mcap"


BOMBS: dict[str, Callable[[Path], Path]] = {
    "a list in one row": one_list,
    "a text in one row": one_text,
    "packed buffers": packed_buffers,
    "a packed chunk": packed_chunk,
}


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    "bomb", [pytest.param(name, marks=slow if made is one_list else ()) for name, made in BOMBS.items()]
)
def test_what_unpacks_to_more_than_the_limit_is_refused(bomb: str, tmp_path: Path) -> None:
    path = BOMBS[bomb](tmp_path)
    assert path.stat().st_size < MEGABYTE
    with pytest.raises(RecordingError, match="takes more than 200 MiB of memory to read at once; store it in smaller"):
        read(McapRows(path, "/a") if path.suffix == ".mcap" else open_rows(path))


def read(rows: Any) -> list[int]:  # noqa: ANN401 - any reader
    """The rows of each batch of all columns."""
    return [len(batch) for batch in rows.batches(rows.names())]


@pytest.mark.usefixtures("little")
def test_a_dataset_that_declares_more_than_the_limit_is_refused(minari: Path) -> None:
    with h5py.File(minari / "data" / "main_data.hdf5", "a") as file:
        rewards = file["episode_0"]["rewards"]
        rewards.parent.create_dataset("more", shape=(1 << 40,), dtype="f8", chunks=(1024,))
        del file["episode_0"]["rewards"]
        file["episode_0"].move("more", "rewards")
    with pytest.raises(RecordingError, match="takes more than 200 MiB of memory"):
        MinariRows(minari).names()


@pytest.mark.usefixtures("little")
def test_wide_tables_and_long_texts_are_read_in_small_parts(tmp_path: Path) -> None:
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1000 * 20_000, np.int8)), 20_000)
    parts = read(open_rows(packed_parquet(tmp_path / "wide.parquet", wide)))
    assert sum(parts) == 1000
    assert max(parts) <= 256, "all of them as numbers take 160 MB"
    texts = pa.array(["x" * (64 << 10)] * 5000).dictionary_encode()
    parts = read(open_rows(packed_parquet(tmp_path / "texts.parquet", texts)))
    assert sum(parts) == 5000
    with (tmp_path / "texts.jsonl").open("w") as file:
        file.writelines(json.dumps({"a": "y" * (64 << 10 if n % 500 == 0 else 1)}) + "\n" for n in range(5000))
    parts = read(open_rows(tmp_path / "texts.jsonl"))
    assert sum(parts) == 5000
    assert max(parts) <= row_files.TEXT // (4 * (64 << 10)), "as wide as the longest, all of them take 1.3 GB"


def test_a_text_that_is_a_state_is_short(tmp_path: Path) -> None:
    rows = open_rows(packed_parquet(tmp_path / "a.parquet", pa.array(["a", "x" * 2000])))
    learner = Learner.new(Roles(("state",), "action"), None, [], 1.0)
    (batch,) = rows.batches(("state", "action"))
    learner.read(batch)
    assert learner.left_out.first == {"'state' has over 1,024 characters": [(batch.source, 2)]}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("head", [b"", b'x,y\n1,"2"\n', b'{"x": 1}\n'])
def test_a_line_without_end_is_refused_before_it_is_read(
    name: str, head: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "LINE", 64 << 10)
    path = tmp_path / name
    path.write_bytes(head + b"1" * 16 * MEGABYTE)
    with at_most(MEGABYTE), pytest.raises(RecordingError, match=r"line [123]: is longer than 0 MiB"):
        read(open_rows(path))


def test_a_message_is_no_longer_than_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "LINE", 64 << 10)
    monkeypatch.setattr("monitor.authoring.learning.mcap_rows.LINE", 64 << 10)
    with (tmp_path / "a.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/a", "json", 0)
        writer.add_message(channel, log_time=0, data=b'{"x": "' + b"y" * (64 << 10) + b'"}', publish_time=0)
        writer.finish()  # type: ignore[no-untyped-call]
    with pytest.raises(RecordingError, match="message 1 of /a: is longer than"):
        McapRows(tmp_path / "a.mcap", "/a").names()


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_columns_have_a_limit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "COLUMNS", 100)
    path, columns = tmp_path / name, {f"c{n}": n for n in range(101)}
    match path.suffix:
        case ".csv":
            path.write_text("\n".join([",".join(columns), ",".join(map(str, columns.values()))]))
        case ".jsonl":
            path.write_text(json.dumps(columns))
        case _:
            parquet.write_table(pa.Table.from_pylist([columns]), path)
    with pytest.raises(RecordingError, match="has 101 columns; at most 100 are read"):
        open_rows(path).names()


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_rows_that_take_no_bytes_have_a_limit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "FREE_ROWS", 1000)
    monkeypatch.setattr(row_files, "ROWS_A_BYTE", 1)
    table = pa.table({"state": pa.nulls(MEGABYTE), "action": pa.nulls(MEGABYTE)})
    path = tmp_path / name
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    with pytest.raises(RecordingError, match=r"has 1,048,576 rows or more in [\d,]+ bytes; at most 1 for each byte"):
        open_rows(path).names()


def test_offsets_that_point_elsewhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    batch = pa.record_batch([pa.array(["a", "b"])], names=["state"])
    with pa.ipc.new_file(path, batch.schema) as file:
        file.write_batch(batch)
    content = path.read_bytes()
    at = content.rindex(np.array([0, 1, 2], np.int32).tobytes())
    path.write_bytes(content[:at] + np.array([0, 1, 1 << 30], np.int32).tobytes() + content[at + 12 :])
    with pytest.raises(RecordingError, match="cannot be read"):
        open_rows(path).names()


def test_the_limit_is_no_larger_than_one_that_is_set_already() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 46, hard))
        with memory.bounded(Path("a")):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] < 1 << 46
        assert resource.getrlimit(resource.RLIMIT_AS)[0] == 1 << 46
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def minari(tmp_path: Path) -> Path:
    """A Minari dataset of one episode of three steps, in HDF5, as minari 0.5 writes it."""
    data = tmp_path / "tiny" / "data"
    data.mkdir(parents=True)
    space = json.dumps({"type": "Discrete", "dtype": "int64", "start": 0, "n": 3})
    about = {
        "total_episodes": 1, "total_steps": 3, "data_format": "hdf5", "observation_space": space,
        "action_space": space, "minari_version": "0.5.3", "dataset_id": "tiny-v0",
    }  # fmt: skip
    (data / "metadata.json").write_text(json.dumps(about))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        episode = file.create_group("episode_0")
        episode.attrs["id"] = 0
        episode.attrs["total_steps"] = 3
        columns = {"observations": [0, 1, 2, 1], "actions": [0, 1, 0], "rewards": [0.0, 1.0, 2.0]}
        columns |= {"terminations": [False, False, True], "truncations": [False] * 3}
        for name, values in columns.items():
            episode.create_dataset(name, data=values)
    return tmp_path / "tiny"


def test_the_dataset_of_these_tests_is_one(minari: Path) -> None:
    (batch,) = MinariRows(minari).batches(("observation", "next_observation", "reward"))
    assert batch.columns["next_observation"].tolist() == [1, 2, 1]


def _soft(file: h5py.File, _: Path) -> None:
    file["episode_0"]["observations"] = h5py.SoftLink("/secret")


def _external(file: h5py.File, other: Path) -> None:
    file["episode_0"]["observations"] = h5py.ExternalLink(other, "/x")


def _raw(file: h5py.File, other: Path) -> None:
    file["episode_0"].create_dataset("observations", shape=(4,), dtype="i8", external=[(str(other), 0, 32)])


def _virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="i8")
    layout[:] = h5py.VirtualSource(other, "x", shape=(4,))
    file["episode_0"].create_virtual_dataset("observations", layout)


def _whole(file: h5py.File, other: Path) -> None:
    del file["episode_0"]
    file["episode_0"] = h5py.ExternalLink(other, "/")


@pytest.mark.parametrize("link", [_soft, _external, _raw, _virtual, _whole])
def test_data_of_other_files_are_not_read(
    link: Callable[[h5py.File, Path], None], minari: Path, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "other.hdf5", "w") as other:
        other["x"] = np.arange(4)
    with h5py.File(minari / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0"]["observations"]
        link(file, tmp_path / "other.hdf5")
    with pytest.raises(RecordingError, match=r"main_data.hdf5: /.*episode_0.* is a link, or keeps its data elsewhere"):
        MinariRows(minari)


def test_groups_that_contain_themselves_end(minari: Path) -> None:
    with h5py.File(minari / "data" / "main_data.hdf5", "a") as file:
        file["episode_0"]["again"] = file["episode_0"]
    assert "observation" in MinariRows(minari).names()


@pytest.mark.parametrize("nested", ["[" * 100_000, '{"a":' * 100_000, '"' + "x" * 5 * MEGABYTE + '"'])
def test_nested_and_large_metadata_are_one_error(minari: Path, nested: str) -> None:
    (minari / "data" / "metadata.json").write_text(nested)
    with pytest.raises(RecordingError, match=r"nested too deeply|is larger than 4 MiB|cannot be read"):
        MinariRows(minari)


def test_nested_spaces_are_one_error(minari: Path) -> None:
    metadata = minari / "data" / "metadata.json"
    about = json.loads(metadata.read_text())
    space = '{"type": "Tuple", "subspaces": [' * 400 + about["observation_space"] + "]}" * 400
    metadata.write_text(json.dumps(about | {"observation_space": space}))
    with pytest.raises(RecordingError, match=r"nested too deeply|cannot be read"):
        MinariRows(minari).names()
