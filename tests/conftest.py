"""What every test shares: the profile of Hypothesis, and the real servers of `tests/servers.py`."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers import Mosquitto, mosquitto

TESTS = Path(__file__).parent
LONG_FILES = (
    "docs/test_commands.py",
    "deploy/test_install.py",
    "deploy/test_stack.py",
    "truth/test_truth.py",
    "docs/test_site.py",
    "cli/test_demo.py",
    "deploy/test_alert_chain.py",
    "exact/best/test_oracle.py",
    "oracle/test_recourse.py",
    "sidecar/test_pictures.py",
    "experiments/test_experiment_commands.py",
    "page/test_states.py",
    "cli/test_learned_models.py",
    "sidecar/test_service.py",
    "sidecar/test_audit.py",
    "sidecar/test_reload.py",
    "sidecar/test_damage.py",
    "faults/test_outages.py",
    "faults/test_redelivery.py",
    "logic/test_automaton.py",
    "exact/test_laws.py",
    "client/test_watching.py",
)
"""Files that take longest (see `--durations`), longest first: otherwise one process works alone in the end."""

UNTRACED = (
    "alarm/test_document.py",
    "benchmarks",
    "causal/test_bounds.py",
    "causal/test_row.py",
    "cli/test_learned_cliff.py",
    "cli/test_learned_models.py",
    "engine/test_differential.py",
    "engine/test_verdict_rates.py",
    "exact/best/test_avoidable.py",
    "exact/best/test_kept_rows.py",
    "exact/best/test_oracle.py",
    "exact/best/test_recourse_oracle.py",
    "exact/forward/test_bounds.py",
    "exact/forward/test_close.py",
    "exact/forward/test_evaluator.py",
    "exact/forward/test_rows.py",
    "exact/forward/test_twin.py",
    "exact/test_answer_bounds.py",
    "exact/test_ended_worlds.py",
    "exact/test_interval_storm.py",
    "exact/test_labelling.py",
    "exact/test_large_queries.py",
    "exact/test_laws.py",
    "exact/test_looking_back.py",
    "exact/test_noise_referee.py",
    "exact/test_storm.py",
    "exact/test_verdicts.py",
    "experiments",
    "fuzz",
    "model/test_returns.py",
    "oracle",
    "policy/test_minigrid_models.py",
    "reference",
    "runtime/test_acted.py",
    "runtime/test_terminated_episodes.py",
    "sampled/test_agreement.py",
    "statistics/test_confidence.py",
    "statistics/test_error_rates.py",
    "statistics/test_fleet.py",
    "statistics/test_interval_test.py",
    "stream/test_stream_laws.py",
    "truth",
)
"""Files and folders that compare over and over what the other tests of a package cover: tracing doubles their time.

Of files with other tests too, single tests are marked `untraced`. To choose them: run with `--cov --cov-context=test`,
then leave out the longest tests whose branches others reach.
"""

MEASURED = (
    "alarm",
    "causal",
    "engine",
    "exact",
    "learning",
    "logic",
    "model",
    "picture",
    "policy",
    "proposal",
    "runtime",
    "sampled",
    "statistics",
    "stream",
)
"""Folders of the tests of pure packages, whose coverage `make test` demands; doctests are measured too.

The tracer would take as long again as the other tests take: it slows all that they run, in processes they start apart.
`make coverage` measures them too.
"""

ALSO_MEASURED = (
    "cli/test_init_command.py",
    "cli/test_learn_command.py",
    "cli/test_learn_resumed.py",
    "policy_export",
)
"""Tests of other packages that cover what no test of a pure package reaches."""

# The time an example takes is the machine's, not the code's: a slow or busy one must not fail a test.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@contextmanager
def _without_tracer() -> Iterator[None]:
    """Run without the tracer of coverage (the marker of pytest-cov fails beside xdist)."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        threading.settrace(of_threads)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the tracer; first import what is measured, since lines outside functions run at the import."""
    if sys.gettrace() is None or not hasattr(session.config, "workerinput"):  # a process that collects all tests
        return (yield)
    for name in ("monitor", "cfmon_client"):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                with suppress(ModuleNotFoundError):  # what it is for is not installed
                    importlib.import_module(module.name)
    with _without_tracer():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, and measure no coverage where it is not wanted or shows nothing new."""
    places = {str(TESTS / name): place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))
    for item in items:
        if is_untraced(item.path):
            item.add_marker(pytest.mark.untraced)


def is_untraced(path: Path) -> bool:
    """Return whether the tests of a file run without the tracer."""
    if not path.is_relative_to(TESTS):
        return False
    inside = path.relative_to(TESTS)
    if any(inside.is_relative_to(name) for name in UNTRACED):
        return True
    measured = any(inside.is_relative_to(name) for name in (*MEASURED, *ALSO_MEASURED))
    return not (measured or os.environ.get("CFMON_MEASURE_ALL"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run what is marked as `untraced` without the tracer, its fixtures included."""
    if item.get_closest_marker("untraced") is None:
        return (yield)
    with _without_tracer():
        return (yield)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto of this test's own."""
    with mosquitto(tmp_path / "mosquitto") as running:
        yield running
