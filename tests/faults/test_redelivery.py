"""A broker that comes back with what it had long ago: the monitor knows it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.faults.harness import LONG, Broker, scene, stepped, until_stepped

WAITING = 2_000 if LONG else 500
"""Steps that the broker has written down and delivers twice, at least."""


def test_what_a_broker_delivers_twice_is_taken_once(tmp_path: Path, report: Callable[..., None]) -> None:
    broker = Broker(tmp_path / "broker", saves="when asked")
    with scene(tmp_path, broker=broker) as staged:
        with staged.fault():
            staged.monitor.stop()
        before = stepped(staged.log)
        until_stepped(staged.agents, staged.log, before + WAITING)
        with staged.pause() as sent:  # so that the broker has all of them
            broker.save()
        staged.monitor.start()
        staged.catch_up()
        with staged.pause():
            staged.until_quiet()  # an alert that the broker has acknowledged and not delivered would be lost with it
            with staged.fault(of_broker=True):
                broker.kill()
            broker.start()
        staged.catch_up()
        outcome = staged.outcome()
        again = staged.monitor.running.metric('cfmon_messages_total{result="duplicate"}') or 0.0
        metrics = staged.monitor.running.get("/metrics").decode()
    doubts = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("cfmon_agent_doubt{")]
    assert again >= sent - before >= WAITING
    assert set(doubts) == {0.0}
    report(delivered_again=int(again), **outcome.figures())
