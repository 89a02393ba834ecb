"""The packages of which the Makefile demands coverage are those that the import contract calls pure."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_MEASURED = {"yamltext", "referee"}
"""A reader that its fuzzing covers, and a program of its own."""
ONLY_DATA = {"types"}
"""Packages without behaviour: the tests of their users cover them."""


def test_every_pure_package_is_measured_by_its_own_tests() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (pure,) = re.findall(r"^PURE := (.*)$", makefile, flags=re.MULTILINE)
    (measured,) = re.findall(r"^MEASURED := \$\(addprefix tests/,(.*?)\)", makefile, flags=re.MULTILINE | re.DOTALL)
    names = re.findall(r"monitor/([^,]+)", pure)
    packages = {name.removesuffix("/*").removesuffix(".py").replace("/", ".") for name in names}
    packages -= {name for name in packages if name.rpartition(".")[0] in packages}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (rooms,) = (each["source_modules"] for each in contracts if each["name"].startswith("Pure rooms"))
    assert packages == {room.removeprefix("monitor.") for room in rooms} - NOT_MEASURED
    folders = {name.partition(".")[0] for name in packages if (ROOT / "monitor" / name.replace(".", "/")).is_dir()}
    assert folders - ONLY_DATA <= set(measured.split())
    assert all((ROOT / "tests" / name).exists() for name in measured.split() if name != "\\")
