"""After an outage every alarm is raised: the run of alarms is that of a monitor that was never away."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.harness import LONG, Broker, Scene, scene
from tests.servers import end
from tests.tiers import slow

RATES = {"slow": 50.0 if LONG else 200.0, "fast": 500.0}
LENGTHS = (10.0, 60.0, 120.0, 600.0) if LONG else (2.0,)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many processes that want a core each."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.callback(end, subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        yield


def down(staged: Scene, *, clean: bool, seconds: float) -> float:
    """Have no monitor for so long; returns how long it then took to be up to date."""
    with staged.fault():
        if clean:
            staged.monitor.stop()
        else:
            staged.monitor.kill()
    time.sleep(seconds)  # the outage itself
    began = time.monotonic()
    staged.monitor.start()
    staged.catch_up()
    return time.monotonic() - began


@slow
@pytest.mark.parametrize("busy", [0, 2], ids=["idle", "busy"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("seconds", LENGTHS)
def test_after_an_outage_every_alarm_is_raised(
    tmp_path: Path, seconds: float, rate: str, report: Callable[..., None], *, clean: bool, busy: int
) -> None:
    broker = Broker(tmp_path / "broker", saves="each second")
    # The last values are compared when the agents are gone. The rest is as shipped, if the machine is known to be fast.
    stream = {"stale_after": "30m", **({} if LONG else {"max_lag": "30m"})}
    with scene(tmp_path, broker=broker, rate=RATES[rate], stream=stream) as staged, busy_loops(busy):
        time.sleep(2.0 if LONG else 0.5)  # a while of the usual
        took = down(staged, clean=clean, seconds=seconds)
        outcome = staged.outcome(late=True)
    report(outage=seconds, steps_a_second=RATES[rate], seconds_to_catch_up=round(took, 1), **outcome.figures())
