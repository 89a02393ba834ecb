"""`kill -9` of the monitor and of mosquitto, at random moments under a stream of steps: nothing is lost or new."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.faults.expected import said_again
from tests.faults.harness import LONG, Broker, Scene, scene
from tests.faults.proxy import tapped
from tests.tiers import slow

SEED = 20261121
TABLE = [  # of what; in the long form, and in the short one
    ("none", (0, 0), (0, 0)),
    ("monitor", (25, 0), (3, 0)),
    ("broker", (0, 25), (0, 2)),
    ("both", (100, 50), (1, 1)),
    ("numbers", (25, 0), (2, 0)),
    ("hidden", (25, 10), (2, 1)),
]
KILLS = {of: many if LONG else few for of, many, few in TABLE}
"""Numbers of kills of the monitor and of the broker."""

LULL = 1.0 if LONG else 0.3
"""Seconds between two of them, at most twice or three times as long."""


def kill_monitor(staged: Scene, draw: random.Random) -> float | None:
    """At any moment of its life: while it starts, reads its store, connects, catches up or works.

    Returns how long it took to be ready again, where it lived that long.
    """
    with staged.fault():
        staged.monitor.kill()
    staged.monitor.start()
    if draw.random() < 0.3:
        time.sleep(LULL * draw.uniform(0.0, 1.5))  # a random moment, no synchronisation
        return None
    took = staged.monitor.until_ready()
    time.sleep(LULL * draw.uniform(0.0, 3.0))
    return took


def kill_broker(staged: Scene, draw: random.Random) -> float | None:
    with staged.fault(of_broker=True):
        staged.broker.kill()
    staged.broker.start()
    time.sleep(LULL * draw.uniform(0.0, 2.0))  # it may not have been connected to yet when it is killed again
    return None


@pytest.mark.parametrize(
    "of", ["both", *(pytest.param(of, marks=slow) for of in ("none", "monitor", "broker", "numbers", "hidden"))]
)
def test_nothing_is_lost_by_kills(tmp_path: Path, of: str, report: Callable[..., None]) -> None:
    monitors, brokers = KILLS[of]
    draw = random.Random(SEED)
    kills = [kill_monitor] * monitors + [kill_broker] * brokers
    draw.shuffle(kills)
    broker = Broker(tmp_path / "broker")
    kind = of if of in {"numbers", "hidden"} else "grid"  # what is drawn or remembered, too, is what it would have been
    with tapped(broker.port) as (port, said), scene(tmp_path, broker=broker, through=port, kind=kind) as staged:
        time.sleep(LULL * draw.uniform(0.0, 2.0))
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
