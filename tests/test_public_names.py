"""The names promised to users: each is there, and none costs anything before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import monitor


@pytest.mark.parametrize("name", monitor.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(monitor, name) is getattr(monitor, name)
    assert name in dir(monitor)


def test_a_name_never_promised_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'monitor' has no attribute 'chekc'"):
        monitor.chekc  # noqa: B018 - that is the point


def test_a_function_is_never_taken_for_a_room() -> None:
    assert callable(monitor.check)
    assert callable(monitor.load)


def test_the_import_loads_nothing_heavy() -> None:
    code = "import monitor, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "scipy", "onnxruntime", "pydantic", "lark", "paho", "starlette", "prometheus_client"}
    assert "monitor" in loaded
    assert not heavy & set(loaded)
