"""An audit on several workers, some of them killed: the alarms of one process, to the byte."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.audit.plan import days_of, opened, partitions
from monitor.audit.results import findings
from monitor.audit.schedule import run_all
from monitor.sidecar.config.load import assemble
from tests.faults.harness import LONG
from tests.hidden import robot
from tests.sidecar.audited import events, recorded, replayed, world
from tests.sidecar.test_audit import alerts, by_agent
from tests.tiers import slow
from tests.worlds import plant

distributed: Any = pytest.importorskip("distributed")

STEPS, KILLS = (6000, 4) if LONG else (300, 1)


@slow
@pytest.mark.parametrize("states", ["table", "numbers", "hidden"])
@pytest.mark.filterwarnings("ignore")  # those of Dask, when workers die
def test_an_audit_with_killed_workers_gives_what_one_process_published(
    tmp_path: Path, report: Callable[..., None], monkeypatch: pytest.MonkeyPatch, states: str
) -> None:
    monkeypatch.delenv("CFMON_FAULTS", raising=False)  # to the workers it would be a setting
    if states == "table":
        config, many = world(tmp_path), events(steps=STEPS)
    elif states == "numbers":
        config, many = plant.write_plant(tmp_path), plant.events(tmp_path, STEPS // 5, days=1.2)
    else:
        config, many = robot.write_robot(tmp_path), robot.events(tmp_path, STEPS // 5, days=1.2)
    loaded = assemble(config, {})
    days = days_of(opened([recorded(tmp_path / "r.parquet", many)], loaded), loaded)
    plan = partitions(days, loaded, config, tmp_path / "out", in_order=False)
    total = sum(map(len, plan.values()))
    killed: list[int] = []
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:

        def kill(done: int) -> None:
            """Kill a worker after some partitions, while the others are computed."""
            if done > len(killed) * total // (KILLS + 1) and len(killed) < KILLS and done < total:
                worker = next(nanny.pid for nanny in cluster.workers.values() if nanny.pid not in {None, *killed})
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

        run_all(plan, kill, scheduler=cluster.scheduler_address)
    assert len(killed) == KILLS
    expected = replayed(config, many)
    assert by_agent(alerts(plan)) == by_agent(expected)
    assert len(expected) > 10
    report(partitions=total, kills=len(killed), alerts=len(expected), alarms=len(findings(plan).raised))
