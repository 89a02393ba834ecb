"""Readers of rows: the same rows from every format, and bad files."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.authoring.learning import row_files
from monitor.authoring.learning.row_files import RowFile, digest_of, flat, open_rows
from monitor.errors import RecordingError
from tests.bombs import at_most

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
    monkeypatch.setattr(row_files, "ROWS", size)
    rows = open_rows(written(kind, tmp_path))
    assert rows.names() == NAMES
    assert columns(rows) == {name: [flat(row)[name] for row in ROWS] for name in NAMES}
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
        ("a.jsonl", b'{"x": 1}\n{"x.y": 1, "x": {"y": 2}}\n', "line 2: not a JSON map .two values get the same name"),
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
    monkeypatch.setattr(row_files, "ROWS", 1)
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


def test_columns_of_parquet_files_are_asked_for_by_name(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    table = pa.table(
        {
            "d": pa.array(["x", "y", None]).dictionary_encode(),
            "l": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
        }
    )
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    assert columns(open_rows(path)) == {"d": ["x", "y", ""], "l[0]": [1, 3, 5], "l[1]": [2, 4, 6]}
    with pytest.raises(RecordingError, match="no column 'z'"):
        list(open_rows(path).batches(("z",)))
    parquet.write_table(pa.table({"l": [[1], [1, 2]]}), path)
    with pytest.raises(RecordingError, match="differ in length"):
        columns(open_rows(path))
    parquet.write_table(pa.table({"l": pa.array([], pa.int64())}), path)
    with pytest.raises(RecordingError, match="is empty"):
        columns(open_rows(path))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_numbers_may_have_a_decimal_comma_where_no_comma_separates(
    separator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("level", "cell", "name", "n"), ("1,5", "3,4", "a,b", "1"), ("-2", "3,40", "c", "2"), ("", "", "", "3")]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(separator.join(row) for row in rows))
    assert columns(open_rows(path)) == {
        "level": [1.5, -2.0, None],
        "cell": ["3,4", "3,40", ""],  # as numbers they would be one
        "name": ["a,b", "c", ""],
        "n": [1, 2, 3],
    }
    path.write_text("\n".join(separator.join(row) for row in [("level", "n"), *([("3", "1")] * 3), ("1,5", "2")]))
    assert columns(open_rows(path))["level"] == [3, 3, 3, 1.5]
    monkeypatch.setattr(row_files, "ROWS", 2)
    path.write_text(f"level{separator}n\n" + "".join(f"{value}{separator}1\n" for value in ("1,5", "2", "1,5", "1,50")))
    assert columns(open_rows(path))["level"] == [1.5, 2, 1.5, 1.5], "as it is a number already"
    monkeypatch.undo()
    path.write_text("\n".join(separator.join(row) for row in [("level", "n"), *([("3", "1")] * 30), ("1.234,5", "2")]))
    with pytest.raises(RecordingError, match=r"row 31: column 'level' holds '1\.234,5', others hold numbers"):
        columns(open_rows(path))


def test_lists_of_lists_in_json_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1, "eye": [[1, 2], [3]]}\n{"x": 2, "eye": [[1, 2], [3]], "parts": [{"a": 1}]}\n')
    rows = open_rows(path)
    assert rows.names() == ("x",)
    assert rows.left_out == {"eye": "lists of lists or maps", "parts": "lists of lists or maps"}


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RecordingError, match=r"needs pyarrow: pip install '\.\[learn\]'"):
        open_rows(Path("a.parquet"))


def test_a_long_file_is_read_in_constant_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "ROWS", 1 << 10)
    path = tmp_path / "long.csv"
    path.write_text("x,y\n" + "123456,0.25\n" * 64_000)
    with at_most(2 << 20):  # in one batch they take 15 MB
        total = sum(len(batch) for batch in open_rows(path).batches(("x",)))
    assert total == 64_000
