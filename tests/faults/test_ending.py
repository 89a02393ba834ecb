"""SIGTERM in every state a monitor can be in: it ends by itself, and the next one goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.harness import Monitor, Scene, scene, stepped, until_stepped
from tests.faults.world import write_world
from tests.servers import free_port, wait_until
from tests.tiers import slow

WAITING = 5_000
"""Steps that wait when it is asked to stop."""


def told(monitor: Monitor, what: str) -> None:
    wait_until(lambda: what in monitor.running.log, f"the monitor says {what!r}")


def test_before_it_is_connected(tmp_path: Path) -> None:
    monitor = Monitor(write_world(tmp_path, f"mqtt://127.0.0.1:{free_port()}"))
    monitor.start()
    told(monitor, "cannot connect to")
    code, _ = monitor.stop()
    assert code == 0, monitor.logs


def under_load(_staged: Scene) -> None:
    pass


def while_it_takes_up(staged: Scene) -> None:
    """In the middle of what was kept; it is asked to end as soon as it can hear that."""
    staged.monitor.kill()
    staged.monitor.start()
    told(staged.monitor, "status page at")


def with_steps_waiting(staged: Scene) -> None:
    """At the moment at which it has them: thousands, of which it has evaluated some."""
    staged.monitor.stop()
    until_stepped(staged.agents, staged.log, stepped(staged.log) + WAITING)
    staged.monitor.start()
    told(staged.monitor, "status page at")
    wait_until(lambda: staged.monitor.lags()[1] > 0, "it has the first")


def without_a_broker(staged: Scene) -> None:
    staged.broker.kill()
    told(staged.monitor, "lost the connection to mqtt")


def broker_back(staged: Scene) -> None:
    staged.broker.start()


@pytest.mark.parametrize(
    ("state", "afterwards"),
    [
        pytest.param(under_load, under_load, id="under load", marks=slow),
        pytest.param(while_it_takes_up, under_load, id="taking up", marks=slow),
        pytest.param(with_steps_waiting, under_load, id="steps waiting", marks=slow),
        pytest.param(without_a_broker, broker_back, id="broker gone", marks=slow),
    ],
)
def test_it_ends_and_loses_nothing(
    tmp_path: Path, state: Callable[[Scene], None], afterwards: Callable[[Scene], None], report: Callable[..., None]
) -> None:
    with scene(tmp_path) as staged:
        with staged.fault(of_broker=True):
            state(staged)
            code, took = staged.monitor.stop()
        assert code == 0, staged.monitor.logs
        afterwards(staged)
        staged.monitor.start()
        staged.monitor.until_ready()
        began = time.monotonic()
        outcome = staged.outcome()
    report(seconds_to_end=round(took, 2), catching_up=round(time.monotonic() - began, 2), **outcome.figures())
