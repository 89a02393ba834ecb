"""SIGSTOP, as a machine that swaps or a debugger does: nothing is lost, and a monitor that stands still is noticed."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.harness import HEARTBEAT, LONG, scene
from tests.servers import Sidecar, wait_until
from tests.tiers import slow

SECONDS = 10.0 if LONG else 2.5


@contextmanager
def stopped(send: Callable[[int], None], seconds: float) -> Iterator[float]:
    """From now on; gives the moment it began."""
    began = time.monotonic()
    send(signal.SIGSTOP)
    try:
        yield began
        time.sleep(max(0.0, began + seconds - time.monotonic()))  # what is tested is a length of time
    finally:
        send(signal.SIGCONT)


def alive(monitor: Sidecar) -> bool:
    """What a probe of the orchestrator finds."""
    try:
        with urllib.request.urlopen(f"{monitor.url}/healthz", timeout=HEARTBEAT) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_stopped_monitor_is_noticed_and_loses_nothing(tmp_path: Path, report: Callable[..., None]) -> None:
    with scene(tmp_path) as staged:
        wait_until(lambda: staged.listener.states, "it says that it is there")
        process = staged.monitor.running.process
        with staged.fault():
            with stopped(process.send_signal, SECONDS) as began:
                wait_until(lambda: not alive(staged.monitor.running), "a probe notices it")
                probe = time.monotonic() - began
            wait_until(lambda: alive(staged.monitor.running), "a probe finds it back")
            staged.monitor.until_ready()
        outcome = staged.outcome()
    report(
        **outcome.figures(),
        heartbeat=HEARTBEAT,
        noticed_by_a_probe=round(probe, 2),
    )


@slow
def test_a_stopped_broker_loses_nothing(tmp_path: Path, report: Callable[..., None]) -> None:
    with scene(tmp_path) as staged:
        process = staged.broker.process
        assert process is not None
        with staged.fault(of_broker=True):
            with stopped(process.send_signal, SECONDS):
                pass
            staged.catch_up()  # the connection may be lost only now, when the broker has noticed our silence
        report(**staged.outcome().figures())
