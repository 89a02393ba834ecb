"""A bad network between the broker and the monitor: nothing is lost, and every number is that of a good one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.faults import namespace
from tests.faults.harness import Broker, only_long, scene
from tests.faults.proxy import delaying
from tests.servers import wait_until


@pytest.mark.parametrize(
    "bad_line",
    [
        pytest.param(partial(namespace.losing, 5), id="loss"),
        pytest.param(partial(namespace.throttled, "256kbit"), id="rate", marks=only_long),
        pytest.param(namespace.severed, id="cut", marks=only_long),
    ],
)
def test_nothing_is_lost_on_a_bad_line(
    tmp_path: Path,
    bad_line: Callable[[], AbstractContextManager[namespace.Hurt]],
    *,
    long: bool,
    report: Callable[..., None],
) -> None:
    seconds = 30.0 if long else 3.0
    hosts = ("127.0.0.1", namespace.CLEAN, namespace.BAD)
    with namespace.far_host():
        broker = Broker(tmp_path / "broker", hosts=hosts, inside=namespace.inside())
        with scene(tmp_path, broker=broker, host=namespace.CLEAN, monitor_host=namespace.BAD) as staged:
            staged.fault()
            with bad_line() as hurt:
                time.sleep(seconds)  # what is tested is a length of time
                packets = hurt()
            assert packets, "the line was good"
            staged.fault()  # the broker may find out only now
            wait_until(staged.monitor.running.ready, "the monitor is back", patience=120.0)
            outcome = staged.outcome()
        report(seconds=seconds, packets_hurt=packets, **outcome.figures())


def test_steps_out_of_order_are_put_in_order(tmp_path: Path, *, long: bool, report: Callable[..., None]) -> None:
    seconds = 30.0 if long else 3.0
    broker = Broker(tmp_path / "broker")
    with (
        delaying(broker.port, mean=0.2, width=0.1, seed=3) as (port, overtook),
        scene(tmp_path, broker=broker, through=port) as staged,
    ):
        time.sleep(seconds)  # likewise
        outcome = staged.outcome()
        assert overtook() > RARE, "the line put nothing out of order"
        report(seconds=seconds, overtook=overtook(), **outcome.figures())


RARE = 100
"""Messages; at 500 a second a spread of 100 ms moves nearly every one."""
