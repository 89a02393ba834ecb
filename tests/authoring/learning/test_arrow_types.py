"""Every type of Arrow: its values, or a name among the columns left out; and columns with odd names."""

from __future__ import annotations

import decimal
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from monitor.authoring.learning.columns import guessed
from monitor.authoring.learning.row_files import open_rows
from monitor.errors import RecordingError

DAY = 86400
NAN = None
D = decimal.Decimal


def number(scale: int, kind: Any, *values: str | None) -> pa.Array:  # noqa: ANN401 - a type of Arrow
    return pa.array([None if value is None else D(value) for value in values], kind(12, scale))


TYPES: dict[str, tuple[pa.Array, dict[str, list[Any]]]] = {
    "null": (pa.nulls(3), {"": [NAN] * 3}),
    "bool": (pa.array([True, False, True]), {"": [True, False, True]}),
    "bool with none": (pa.array([True, False, None]), {"": [1, 0, NAN]}),
    "int8": (pa.array([1, -2, None], pa.int8()), {"": [1, -2, NAN]}),
    "int64": (pa.array([1, -2, 2**62]), {"": [1, -2, 2**62]}),
    "uint64": (pa.array([1, 2, 2**63], pa.uint64()), {"": [1, 2, 2.0**63]}),
    "half": (pa.array(np.array([1, 2.5, 3], np.float16)), {"": [1, 2.5, 3]}),
    "float32": (pa.array([1, 2, None], pa.float32()), {"": [1, 2, NAN]}),
    "decimal32": (pa.array([D(1), D(2), None], pa.decimal32(5)), {"": [1, 2, NAN]}),
    "decimal64": (number(2, pa.decimal64, "1.5", "2", "3"), {"": [1.5, 2, 3]}),
    "decimal128": (number(0, pa.decimal128, "1", "2", "3"), {"": [1, 2, 3]}),
    "decimal128 with digits": (number(3, pa.decimal128, "1.125", None, "3"), {"": [1.125, NAN, 3]}),
    "decimal128, large": (pa.array([D(10**30), D(2), D(3)], pa.decimal128(38)), {"": [1e30, 2, 3]}),
    "decimal256": (number(0, pa.decimal256, "1", "2", "3"), {"": [1, 2, 3]}),
    "date32": (pa.array([date(1970, 1, 2), None, date(1970, 1, 3)]), {"": [DAY, NAN, 2 * DAY]}),
    "date64": (pa.array([date(1970, 1, 2)] * 3, pa.date64()), {"": [DAY] * 3}),
    "time32 s": (pa.array([1, 2, 3], pa.time32("s")), {"": [1, 2, 3]}),
    "time32 ms": (pa.array([1500, 2, 3], pa.time32("ms")), {"": [1.5, 0.002, 0.003]}),
    "time64 us": (pa.array([1_500_000, 2, 3], pa.time64("us")), {"": [1.5, 2e-6, 3e-6]}),
    "timestamp s": (pa.array([1, 2, 3], pa.timestamp("s")), {"": [1, 2, 3]}),
    "timestamp ms": (pa.array([1500, 2, None], pa.timestamp("ms")), {"": [1.5, 0.002, NAN]}),
    "timestamp with a zone": (pa.array([10**9, 2, 3], pa.timestamp("ns", tz="Asia/Tokyo")), {"": [1, 2e-9, 3e-9]}),
    "duration": (pa.array([1500, 2, 3], pa.duration("ms")), {"": [1.5, 0.002, 0.003]}),
    "string": (pa.array(["a", None, "é"]), {"": ["a", "", "é"]}),
    "large_string": (pa.array(["a", None, "é"], pa.large_string()), {"": ["a", "", "é"]}),
    "string_view": (pa.array(["a", None, "c" * 20], pa.string_view()), {"": ["a", "", "c" * 20]}),
    "binary that is text": (pa.array([b"a", None, "é".encode()]), {"": ["a", "", "é"]}),
    "large_binary": (pa.array([b"a", b"b", b"c"], pa.large_binary()), {"": ["a", "b", "c"]}),
    "binary_view": (pa.array([b"a", b"b", b"c"], pa.binary_view()), {"": ["a", "b", "c"]}),
    "fixed_size_binary": (pa.array([b"\x01\xff"] * 3, pa.binary(2)), {"": ["01ff"] * 3}),
    "uuid": (pa.array([uuid.UUID(int=5).bytes] * 3, pa.uuid()), {"": [uuid.UUID(int=5).hex] * 3}),
    "bool8": (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1], pa.int8())), {"": [1, 0, 1]}),
    "dictionary of text": (pa.array(["x", "y", None]).dictionary_encode(), {"": ["x", "y", ""]}),
    "dictionary of numbers": (pa.array([5, 7, 5]).dictionary_encode(), {"": [5, 7, 5]}),
    "run ends": (pa.array([5, 5, 7], pa.run_end_encoded(pa.int32(), pa.int64())), {"": [5, 5, 7]}),
    "run ends of text": (pa.array(["x", "x", None], pa.run_end_encoded(pa.int32(), pa.string())), {"": ["x", "x", ""]}),
    "list": (pa.array([[1, 2], [3, 4], None]), {"[0]": [1, 3, NAN], "[1]": [2, 4, NAN]}),
    "fixed_size_list": (pa.array([[1], None, [5]], pa.list_(pa.float32(), 1)), {"[0]": [1, NAN, 5]}),
    "large_list": (pa.array([[1], [3], [5]], pa.large_list(pa.int8())), {"[0]": [1, 3, 5]}),
    "list_view": (pa.array([[1], [3], [5]], pa.list_view(pa.int8())), {"[0]": [1, 3, 5]}),
    "large_list_view": (pa.array([[1], [3], [5]], pa.large_list_view(pa.int8())), {"[0]": [1, 3, 5]}),
    "list of text": (pa.array([["a"], ["b"], None]), {"[0]": ["a", "b", ""]}),
    "list of decimals": (pa.array([[D(1)], [D(2)], [D(3)]], pa.list_(pa.decimal128(5))), {"[0]": [1, 2, 3]}),
    "struct": (pa.array([{"k": 1, "z": ["a"]}, None]), {".k": [1, NAN], ".z[0]": ["a", ""]}),
    "struct in a struct": (pa.array([{"k": {"q": 1}, "m": [[1]]}] * 3), {".k.q": [1, 1, 1]}),
}  # fmt: skip
LEFT_OUT: dict[str, tuple[pa.Array, str]] = {
    "list of lists": (pa.array([[[1]], [[2]], [[3]]]), "lists of lists"),
    "list of structs": (pa.array([[{"a": 1}]] * 3), "lists of lists or structs"),
    "empty lists": (pa.array([[], [], []], pa.list_(pa.int8())), "lists of 0 entries"),
    "lists that are missing": (pa.array([None] * 3, pa.list_(pa.int8())), "lists, all of them missing at first"),
    "map": (pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())), "map<string, int64"),
    "union": (pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [pa.array([1, 2, 3])]), "sparse_union"),
    "interval": (pa.array([pa.MonthDayNano([1, 2, 3])] * 3), "month_day_nano_interval"),
    "bytes": (pa.array([b"\xff", b"b", b"c"]), "bytes that are no text"),
    "long bytes": (pa.array([bytes(100)] * 3, pa.binary(100)), "100 bytes each"),
}
NOT_IN_PARQUET = ("run ends", "run ends of text", "union", "interval")


def of_both(cases: dict[str, Any]) -> list[tuple[str, str]]:
    """The cases with each kind of file that has the type."""
    kinds = ("parquet", "arrow")
    return [(name, kind) for name in cases for kind in kinds if kind == "arrow" or name not in NOT_IN_PARQUET]


def written(path: Path, columns: dict[str, pa.Array] | list[tuple[str, pa.Array]]) -> Path:
    pairs = list(columns.items()) if isinstance(columns, dict) else columns
    table = pa.Table.from_arrays([values for _, values in pairs], names=[name for name, _ in pairs])
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    return path


def read(path: Path) -> dict[str, list[Any]]:
    rows = open_rows(path)
    found: dict[str, list[Any]] = {}
    for batch in rows.batches(rows.names()):
        for name, values in batch.columns.items():
            found.setdefault(name, []).extend(None if value != value else value for value in values.tolist())  # noqa: PLR0124
    return found


@pytest.mark.parametrize(("name", "kind"), of_both(TYPES))
def test_every_type_has_its_values(name: str, kind: str, tmp_path: Path) -> None:
    values, expected = TYPES[name]
    path = written(tmp_path / f"a.{kind}", {"before": pa.array([7] * len(values)), "x": values})
    assert read(path) == {"before": [7] * len(values)} | {f"x{part}": column for part, column in expected.items()}


@pytest.mark.parametrize(("name", "kind"), of_both(LEFT_OUT))
def test_what_cannot_be_read_is_named_and_an_error_where_it_counts(name: str, kind: str, tmp_path: Path) -> None:
    values, held = LEFT_OUT[name]
    several = {"state": pa.array([0, 1, 2]), "action": pa.array([0, 0, 0])}
    rows = open_rows(written(tmp_path / f"a.{kind}", several | {"x": values}))
    assert rows.names() == ("state", "action")
    assert rows.left_out["x"].startswith(held)
    with pytest.raises(RecordingError, match="column 'x' cannot be read: it holds "):
        list(rows.batches(("state", "x")))
    for given in ({"state": "x"}, {"action": "x"}, {"reward": "x"}, {"observation": "x"}):
        with pytest.raises(RecordingError, match="column 'x' cannot be read: it holds "):
            guessed(rows.names(), given, "f", rows.left_out)
    assert guessed(rows.names(), {}, "f", rows.left_out).state == ("state",)
    for role in ("episode", "done", "Reward", "t"):
        rows = open_rows(written(tmp_path / f"b.{kind}", several | {role: values}))
        with pytest.raises(RecordingError, match=f"column '{role}' cannot be read: .*; give another one by --"):
            guessed(rows.names(), {}, "f", rows.left_out)
        names = {"episode": "", "terminated": "", "reward": "", "order": ""}
        assert guessed(rows.names(), names, "f", rows.left_out).state == ("state",)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_lists_keep_their_length(kind: str, tmp_path: Path) -> None:
    for later in ([[1, 2, 3]], [[1]]):
        path = written(tmp_path / f"a.{kind}", {"x": pa.array([[1, 2]] * 300 + later)})
        with pytest.raises(RecordingError, match="row 301: the lists of column 'x' differ in length"):
            read(path)


def test_batches_of_a_file_are_joined(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array(range(100))})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        for at in range(100):
            file.write_table(table.slice(at, 1))
    (batch,) = open_rows(tmp_path / "a.arrow").batches(("x",))
    assert batch.columns["x"].tolist() == list(range(100))


ODD: dict[str, list[str]] = {
    "empty": [""],
    "dots": [".", "..", "a.b", "list.element"],
    "control characters": ["\x1b[31m\n\r\0x"],
    "brackets": ["x[0", "[", "]", "x[0]"],
    "long": ["y" * 100_000],
    "other directions": ["é\u202e"],
}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_names(name: str, kind: str, tmp_path: Path) -> None:
    names = ["state", "action", *ODD[name]]
    path = written(tmp_path / f"a.{kind}", [(each, pa.array([n])) for n, each in enumerate(names)])
    assert read(path) == {each: [n] for n, each in enumerate(names)}
    assert guessed(open_rows(path).names(), {}, "f").state == ("state",)


ONE = pa.array([1])
TWICE: dict[str, tuple[list[tuple[str, pa.Array]], str]] = {
    "columns": ([("x", ONE), ("x", pa.array(["a"]))], "x"),
    "empty names": ([("", ONE), ("", ONE)], ""),
    "an entry of a list": ([("x[0]", ONE), ("x", pa.array([[1]]))], "x[0]"),
    "a field": ([("a.b", ONE), ("a", pa.array([{"b": 1}]))], "a.b"),
    "fields": ([("n", pa.StructArray.from_arrays([ONE, ONE], ["k", "k"]))], "n.k"),
}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("case", TWICE)
def test_a_name_given_twice_is_refused(case: str, kind: str, tmp_path: Path) -> None:
    columns, name = TWICE[case]
    with pytest.raises(RecordingError) as told:
        read(written(tmp_path / f"a.{kind}", columns))
    assert str(told.value).endswith(f"column {name!r} is named twice")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_name_that_is_not_text_is_refused(kind: str, tmp_path: Path) -> None:
    table = pa.table({"state": [0], "QQQQ": [1]})
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path, store_schema=False)
    else:
        written(path, {"state": pa.array([0]), "QQQQ": ONE})
    path.write_bytes(path.read_bytes().replace(b"QQQQ", b"\xff\xfe\xff\xfe"))
    with pytest.raises(RecordingError, match="cannot be read: 'utf-8' codec can't decode"):
        open_rows(path).names()
