"""Which columns a function of the state reads, however it reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.learning.state_functions import columns_read
from monitor.errors import ModelError

COLUMNS = {"a": np.arange(5), "b": np.arange(5.0), "c": np.array(["x"] * 5)}

SOURCE = """
def one(c):
    return c["a"] + (c.get("b") is None)

def unpacked(c):
    return (lambda **named: [0] * len(named["a"]))(**c)

def every(c):
    return [0 for _ in range(5) for name in sorted(c)][:5]

def items(c):
    return [len(str(value)) for name, value in c.items()]

def copied(c):
    return dict(c)["c"]

def unknown(c):
    return c.get("z", c["b"])

def counted(c):
    return [len(c)] * 5 if "a" in c else []

def failing(c):
    return c["a"] / c["nothing"]
"""


@pytest.mark.parametrize(
    ("name", "read"),
    [("one", "ab"), ("unpacked", "abc"), ("every", "abc"), ("items", "abc"), ("copied", "abc"), ("unknown", "b"),
     ("counted", ""), ("failing", "abc")],
)  # fmt: skip
def test_the_columns_that_are_read_are_noted(name: str, read: str, tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text(SOURCE, "utf-8")
    assert columns_read(f"{tmp_path}/reading.py:{name}", COLUMNS) == set(read)


def test_no_function_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        columns_read(f"{tmp_path}/nowhere.py:one", COLUMNS)
