"""What a fault test measured is printed; `make faults` also writes it to var/faults.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.harness import LONG

FIGURES = Path("var/faults.json")

collect_ignore = ["flink_nothing.py"]  # Flink is in an environment of its own


@pytest.fixture
def report(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Print what was measured, and with `make faults` keep it."""

    def tell(**figures: object) -> None:
        name = request.node.name
        with capsys.disabled():
            print(f"\n{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items()))  # noqa: T201
        if LONG:
            FIGURES.parent.mkdir(exist_ok=True)
            kept = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
            FIGURES.write_text(json.dumps({**kept, name: figures}, indent=2) + "\n")

    return tell
