"""`kill -9` of the monitor and of mosquitto, at random moments under 500 steps a second: nothing is lost or new."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.faults.expected import said_again
from tests.faults.harness import Broker, Scene, only_long, scene
from tests.faults.proxy import tapped

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
    time.sleep(draw.uniform(0.0, 3.0))
    return took


def kill_broker(staged: Scene, draw: random.Random) -> float | None:
    staged.fault(of_broker=True)
    staged.broker.kill()
    staged.broker.start()
    time.sleep(draw.uniform(0.0, 2.0))  # it may not have been connected to yet when it is killed again
    return None


@pytest.mark.parametrize(
    ("monitors", "brokers"),
    [
        pytest.param(0, 0, id="none", marks=only_long),
        pytest.param(25, 0, id="monitor", marks=only_long),
        pytest.param(0, 25, id="broker", marks=only_long),
        pytest.param(100, 50, id="both", marks=only_long),
        pytest.param(1, 1, id="each"),
    ],
)
def test_nothing_is_lost_by_kills(tmp_path: Path, monitors: int, brokers: int, report: Callable[..., None]) -> None:
    draw = random.Random(SEED)
    kills = [kill_monitor] * monitors + [kill_broker] * brokers
    draw.shuffle(kills)
    broker = Broker(tmp_path / "broker")
    with tapped(broker.port) as (port, said), scene(tmp_path, broker=broker, through=port) as staged:
        time.sleep(draw.uniform(0.0, 2.0))
        restarts: list[float] = []
        for kill in kills:
            if (took := kill(staged, draw)) is not None:
                restarts.append(took)
            staged.catch_up()  # mosquitto gets slow where much waits, and would never be done with it
        staged.monitor.until_ready()
        outcome = staged.outcome()
        copies, problems = said_again(said, staged.faults)
        assert problems == []
    report(
        monitor_kills=monitors,
        broker_kills=brokers,
        **outcome.figures(),
        duplicates_of_the_monitor=copies,
        restart_seconds=[round(median(restarts), 2), round(max(restarts), 2)] if restarts else None,
    )
