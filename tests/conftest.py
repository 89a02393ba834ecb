"""What every test shares: the profile of Hypothesis, and the real servers of `tests/servers.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import monitor
from tests.servers import Mosquitto, mosquitto

# The time an example takes is the machine's, not the code's: a slow or busy one must not fail a test.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Throw away machine code older than the newest source.

    numba keeps it by the time stamp of the function called, and does not see a change in one that this calls.
    """
    root = Path(monitor.__file__).parent
    newest = max(source.stat().st_mtime for room in ("causal", "decide") for source in (root / room).glob("*.py"))
    for index in root.rglob("*.nbi"):
        if index.stat().st_mtime < newest:
            index.unlink(missing_ok=True)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto of this test's own."""
    with mosquitto(tmp_path / "mosquitto") as running:
        yield running
