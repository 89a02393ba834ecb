"""`kill -9` of the monitor and of mosquitto, at random moments under 500 steps a second: nothing is lost or new."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.faults.harness import Scene, scene

SEED = 20261121


def kill_monitor(staged: Scene, draw: random.Random) -> float | None:
    """At any moment of its life: while it starts, reads its store, connects, catches up or works.

    Returns how long it took to be ready again, where it lived that long.
    """
    staged.fault()
    staged.monitor.kill()
    staged.monitor.start()
    if draw.random() < 0.3:
        time.sleep(draw.uniform(0.0, 1.5))  # a random moment, no synchronisation
        return None
    took = staged.monitor.until_ready()
    time.sleep(draw.uniform(0.0, 1.5))
    return took


def kill_broker(staged: Scene, draw: random.Random) -> float | None:
    staged.fault(hops=2)
    staged.broker.kill()
    staged.broker.start()
    time.sleep(draw.uniform(0.0, 2.0))  # it may not have been connected to yet when it is killed again
    return None


@pytest.mark.parametrize(
    ("monitors", "brokers"), [(0, 0), (1, 0), (0, 1), (1, 1)], ids=["none", "monitor", "broker", "both"]
)
def test_nothing_is_lost_by_kills(
    tmp_path: Path, monitors: int, brokers: int, *, long: bool, report: Callable[..., None]
) -> None:
    draw = random.Random(SEED)
    kills = [kill_monitor] * monitors * (100 if long else 3) + [kill_broker] * brokers * (50 if long else 2)
    draw.shuffle(kills)
    with scene(tmp_path) as staged:
        time.sleep(draw.uniform(0.0, 2.0))
        restarts = [took for kill in kills if (took := kill(staged, draw)) is not None]
        staged.monitor.until_ready()
        outcome = staged.outcome()
    report(
        monitor_kills=sum(kill is kill_monitor for kill in kills),
        broker_kills=sum(kill is kill_broker for kill in kills),
        **outcome.figures(),
        restart_seconds=[round(median(restarts), 2), round(max(restarts), 2)] if restarts else None,
    )
