"""A bad network between the broker and the monitor: nothing is lost, and every number is that of a good one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.faults import namespace
from tests.faults.harness import LONG, Broker, scene
from tests.faults.proxy import delaying
from tests.servers import wait_until
from tests.tiers import slow

SECONDS = 30.0 if LONG else 3.0
"""How long the network is bad."""

RARE = 100
"""Messages; at 500 a second a spread of 100 ms moves nearly every one."""


@pytest.mark.parametrize(
    "bad_line",
    [
        pytest.param(partial(namespace.losing, 5), id="loss", marks=slow),
        pytest.param(partial(namespace.throttled, "256kbit"), id="rate", marks=slow),
        pytest.param(namespace.severed, id="cut"),
    ],
)
def test_nothing_is_lost_on_a_bad_line(
    tmp_path: Path, bad_line: Callable[[], AbstractContextManager[namespace.Hurt]], report: Callable[..., None]
) -> None:
    hosts = ("127.0.0.1", namespace.CLEAN, namespace.BAD)
    with namespace.far_host():
        broker = Broker(tmp_path / "broker", hosts=hosts, inside=namespace.inside())
        with scene(tmp_path, broker=broker, host=namespace.CLEAN, monitor_host=namespace.BAD) as staged:
            with staged.fault():
                with bad_line() as hurt:
                    time.sleep(SECONDS)  # what is tested is a length of time
                    packets = wait_until(hurt, "the line hurts a packet")
                staged.catch_up()  # the broker may find out only now that the connection is lost
            outcome = staged.outcome()
        report(seconds=SECONDS, packets_hurt=packets, **outcome.figures())


@slow
def test_steps_out_of_order_are_put_in_order(tmp_path: Path, report: Callable[..., None]) -> None:
    broker = Broker(tmp_path / "broker")
    # A slow proxy reads many steps at once and shuffles them all, further than the monitor is configured to wait for.
    path = {"window": 64} if LONG else {"window": 64, "reorder": {"steps": 4096, "wait": "30m"}}
    with (
        delaying(broker.port, mean=0.2, width=0.1, seed=3) as (port, overtook),
        scene(tmp_path, broker=broker, through=port, path=path) as staged,
    ):
        time.sleep(SECONDS)  # likewise
        wait_until(lambda: overtook() > RARE, "the line puts steps out of order")
        outcome = staged.outcome()
        report(seconds=SECONDS, overtook=overtook(), **outcome.figures())
