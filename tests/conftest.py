"""What every test shares: the tier, the profile of Hypothesis, and the real servers of `tests/servers.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings

from tests import tiers
from tests.leaks import leaves_no_task, leaves_nothing_open
from tests.servers import Mosquitto, mosquitto

__all__ = ["broker", "leaves_no_task", "leaves_nothing_open"]

# The time an example takes is the machine's, not the code's: a slow or busy one must not fail a test. The examples are
# the same in each run: what varies is found by the long suites (`make soak-truth`, `make fuzz`), which keep what fails.
settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=tiers.examples(25, 100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that the tier runs; SHUFFLE, a seed, puts files, and the tests of each, in another order."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(tiers.scaled)
    left_out = [item for item in items if not tiers.runs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if tiers.runs(item)]
    if seed := os.environ.get("SHUFFLE"):
        draw = Random(seed).random
        files = {path: draw() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (files[item.path], draw()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Accept a package or file that has no tests in the tier."""
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and os.environ.get("TIER"):
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto of this test's own."""
    with mosquitto(tmp_path / "mosquitto") as running:
        yield running
