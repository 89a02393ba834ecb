"""Fixtures for every room: the real servers of `tests/servers.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Mosquitto, mosquitto


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto of this test's own."""
    with mosquitto(tmp_path / "mosquitto") as running:
        yield running
