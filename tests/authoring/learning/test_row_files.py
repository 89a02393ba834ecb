"""Readers of rows: the same rows from every format, and bad files."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monitor.authoring.learning import row_files
from monitor.authoring.learning.mapping_rows import flat
from monitor.authoring.learning.row_files import RowFile, digest_of, open_rows
from monitor.authoring.learning.text_rows import NO_MAP
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
        ("a.csv", b"\xff\xfex\x00", "is not UTF-8 text"),
        ("a.csv", b"caf\xe9\n1\n", "is not UTF-8 text"),
        ("a.csv.gz", b"x\n1\n", "cannot be read"),
        ("a.jsonl.zst", b"x\n1\n", "cannot be read"),
        ("a.jsonl", b"", "is empty"),
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


def zstd(content: bytes) -> bytes:
    return pa.compress(content, "zstd", asbytes=True)  # type: ignore[no-any-return]


SPOILT: list[tuple[str, bytes, dict[int, str]]] = [
    ("a.csv", b"x,y\n1,2\n1\n3,4\n5,6,7\n", {2: "torn", 4: "torn"}),
    ("a.csv", b"x,y\n1,2\n1,caf\xe9\n3,4\n", {2: "not UTF-8"}),
    ("a.csv", b"x,y\n1,2\n\n3,4\nx,y\n5,6\n", {3: "the header again"}),
    ("a.csv", b"x,y\n1,2\n3,b\n" + b"4,5\n" * 9, {2: "'y' is no number"}),
    ("a.csv", b'x,y\n1,2\n3,"4\n' + b"5" * 200_000, {2: "torn", 3: "torn"}),
    ("a.csv", b'x,y\n1,2\n3,"4\n5,6\n7,8\n9,"1\n2"\n', {2: "torn"}),
    ("a.csv", b'x,y\n1,2\n3,"4\n' + b"5,6\n" * 60_000, {2: "torn"}),
    ("a.csv", b'x,y\n1,2\n3,"4"5\n6,"7\n8"\n9\n', {4: "torn"}),
    ("a.csv", b"x,y\n1\n2\n3\n", {1: "torn", 2: "torn", 3: "torn"}),
    ("a.jsonl", b'{"x": 1}\n[1]\n{"x": tru\n{"x": 2}\n', {2: NO_MAP, 3: NO_MAP}),
    ("a.jsonl", b'{"x": 1}\n{"x": "\xff"}\n{"x": 2}\n', {2: NO_MAP}),
    ("a.jsonl", b'{"x": 1}\n{"x.y": 1, "x": {"y": 2}}\n', {2: NO_MAP}),
    ("a.jsonl", b'{"x": 1}\n{"x": "b"}\n', {2: "'x' is no number"}),
    ("a.csv.gz", gzip.compress(b"x,y\n1,2\n1\n3,4\n"), {2: "torn"}),
    ("a.csv.gz", gzip.compress(b"x,y\n1,2\n1,3\n")[:-8], {3: "the packed file is cut off"}),
    ("a.jsonl.zst", zstd(b'{"x": 1}\n[1]\n'), {2: NO_MAP}),
]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("case", range(len(SPOILT)))
def test_rows_that_cannot_be_read_are_named(
    case: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, content, bad = SPOILT[case]
    path = tmp_path / name
    path.write_bytes(content)
    rows = open_rows(path)
    wanted = rows.names()
    monkeypatch.setattr(row_files, "ROWS", size)
    found: dict[int, str] = {}
    good: list[int] = []
    for batch in rows.batches(wanted):
        whole = batch.whole()
        found |= {number: reason for reason, numbers in whole.torn.items() for number in numbers.tolist()}
        good += whole.places.tolist()
        assert batch.rows == len(whole) + sum(len(numbers) for numbers in whole.torn.values())
        with pytest.raises(RecordingError, match="correct it or leave it out") if whole.torn else nullcontext():
            batch.refuse_bad()
    if size == 100 or "'" not in str(bad):  # a kind is inferred from the first batch
        assert found == bad
    assert sorted([*good, *found]) == list(range(1, 1 + len(good) + len(found)))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.arrow"])
def test_missing_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot be read|is empty"):
        open_rows(tmp_path / name).names()
    with pytest.raises(RecordingError, match="cannot be read"):
        digest_of(tmp_path / name)


def test_columns_of_parquet_files_are_asked_for_by_name(tmp_path: Path) -> None:
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
    for zero in ("5", "-0,50", "2,05"):  # no name of a cell
        path.write_text("\n".join(separator.join((level, "1")) for level in ("level", "1,5", "1,50", zero)))
        assert columns(open_rows(path))["level"] == [1.5, 1.5, float(zero.replace(",", "."))]
    path.write_text("\n".join(separator.join(row) for row in [("level", "n"), *([("3", "1")] * 3), ("1,5", "2")]))
    assert columns(open_rows(path))["level"] == [3, 3, 3, 1.5]
    monkeypatch.setattr(row_files, "ROWS", 2)
    path.write_text(f"level{separator}n\n" + "".join(f"{value}{separator}1\n" for value in ("1,5", "2", "1,5", "1,50")))
    assert columns(open_rows(path))["level"] == [1.5, 2, 1.5, 1.5], "as it is a number already"
    monkeypatch.undo()
    path.write_text("\n".join(separator.join(row) for row in [("level", "n"), *([("3", "1")] * 30), ("1.234,5", "2")]))
    (batch,) = open_rows(path).batches(("level", "n"))
    assert {name: rows.tolist() for name, rows in batch.odd.items()} == {"level": [30]}


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
