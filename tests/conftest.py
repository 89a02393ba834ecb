"""What every test shares: the profile of Hypothesis, and the real servers of `tests/servers.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers import Mosquitto, mosquitto

# The time an example takes is the machine's, not the code's: a slow or busy one must not fail a test.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto of this test's own."""
    with mosquitto(tmp_path / "mosquitto") as running:
        yield running
