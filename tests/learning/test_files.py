"""Readers of rows: the same rows from every format, and bad files."""

from __future__ import annotations

import importlib
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import RecordingError
from monitor.learning import files
from monitor.learning.files import RowFile, digest_of, flat, open_rows

ROWS: list[dict[str, Any]] = [
    {"episode": "a", "t": i, "state": [i * 0.5, -1.0], "action": i % 2, "ok": i > 2, "reward": None if i == 4 else 1.5}
    for i in range(7)
]
NAMES = ("episode", "t", "state[0]", "state[1]", "action", "ok", "reward")


def columns(rows: RowFile) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for batch in rows.batches(rows.names()):
        for name, values in batch.columns.items():
            found.setdefault(name, []).extend(None if value != value else value for value in values.tolist())  # noqa: PLR0124
    return found


def written(kind: str, folder: Path) -> Path:
    path = folder / f"rows.{kind}"
    flattened = [flat(row) for row in ROWS]
    match kind:
        case "csv" | "tsv":
            mark = "," if kind == "csv" else "\t"
            lines = [mark.join(NAMES)]
            lines += [mark.join("" if v is None else str(v) for v in row.values()) for row in flattened]
            path.write_text("\n".join(lines), encoding="utf-8-sig")
        case "jsonl":
            path.write_text("\n\n".join(json.dumps(row) for row in ROWS))
        case _:
            pa = pytest.importorskip("pyarrow")
            table = pa.Table.from_pylist(ROWS)
            if kind == "parquet":
                parquet = importlib.import_module("pyarrow.parquet")
                parquet.write_table(table, path)
            else:
                with pa.ipc.new_file(path, table.schema) as sink:
                    sink.write_table(table)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("size", [2, 1000])
def test_every_format_gives_the_same_rows(
    kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS", size)
    rows = open_rows(written(kind, tmp_path))
    assert rows.names() == NAMES
    assert columns(rows) == {name: [flat(row)[name] for row in ROWS] for name in NAMES}
    if kind != "arrow":  # whose batches are those of the file
        assert [batch.first for batch in rows.batches(("t",))][:2] == ([1, 3] if size == 2 else [1])
    assert list(next(rows.batches(("state[1]",))).columns) == ["state[1]"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"x,x\n1,2\n", "column 'x' is named twice"),
        ("a.csv", b"1,2\n3,4\n", "the first line has numbers only"),
        ("a.csv", b"x,y\n1,2\n1\n", "row 2: 1 fields for 2 columns"),
        ("a.csv", b"x,y\n1,2\n1,caf\xe9\n", "is not UTF-8 text"),
        ("a.csv", b"\xff\xfex\x00", "is not UTF-8 text"),
        ("a.csv", b"x,y\n1,2\n3,b\n", "row 2: column 'y' holds 'b', others hold numbers"),
        ("a.csv", b'x,y\n1,"2\n' + b"3" * 200_000, "not a CSV file"),
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b'{"x": 1}\n[1]\n', "line 2: not a JSON map"),
        ("a.jsonl", b'{"x": 1}\n{"x": tru\n', "line 2: not a JSON map"),
        ("a.jsonl", b'{"x": "\xff"}\n', "line 1: not a JSON map"),
        ("a.jsonl", b'{"x": 1}\n{"x": "b"}\n', "row 2: column 'x' holds 'b', others hold numbers"),
        ("a.jsonl", b'{"x": true}\n{"x": 2}\n', "row 2: column 'x' holds '2', others hold true or false"),
        ("a.parquet", b"PAR1", "cannot be read"),
        ("a.arrow", b"nothing", "cannot be read"),
        ("a.txt", b"x", "is neither a recording"),
    ],
)
def test_bad_files_are_refused(
    name: str, content: bytes, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith(("parquet", "arrow")):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(files, "ROWS", 1)
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=problem) as told:
        columns(open_rows(path))
    assert str(path) in str(told.value)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.arrow"])
def test_missing_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot be read|is empty"):
        open_rows(tmp_path / name).names()
    with pytest.raises(RecordingError, match="cannot be read"):
        digest_of(tmp_path / name)


def test_arrow_types_become_numbers_text_and_flags(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    table = pa.table(
        {
            "d": pa.array(["x", "y", None]).dictionary_encode(),
            "s": pa.array([1, 2, 3], pa.timestamp("ms")),
            "f": pa.array([True, None, False]),
            "u": pa.array([1, 2, 3], pa.uint8()),
            "l": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
            "text": pa.array([["a"], ["b"], ["c"]]),
            "m": pa.array([{"k": 1}, {"k": 2}, {"k": 3}]),
            "n": pa.array([[[1]], [[2]], [[3]]]),
        }
    )
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    assert columns(open_rows(path)) == {
        "d": ["x", "y", ""], "s": [1, 2, 3], "f": [1.0, None, 0.0], "u": [1, 2, 3],
        "l[0]": [1, 3, 5], "l[1]": [2, 4, 6], "text[0]": ["a", "b", "c"],
    }  # fmt: skip
    with pytest.raises(RecordingError, match="no column 'z'"):
        list(open_rows(path).batches(("z",)))
    parquet.write_table(pa.table({"l": [[1], [1, 2]]}), path)
    with pytest.raises(RecordingError, match="differ in length"):
        columns(open_rows(path))
    parquet.write_table(pa.table({"l": pa.array([], pa.int64())}), path)
    with pytest.raises(RecordingError, match="is empty"):
        columns(open_rows(path))


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RecordingError, match=r"needs pyarrow: pip install '\.\[learn\]'"):
        open_rows(Path("a.parquet"))


def test_a_long_file_is_read_in_constant_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS", 1 << 10)
    path = tmp_path / "long.csv"
    path.write_text("x,y\n" + "123456,0.25\n" * 64_000)
    tracemalloc.start()
    try:
        total = sum(len(batch) for batch in open_rows(path).batches(("x",)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 64_000
    assert peak < 2 << 20, "in one batch they take 15 MB"
