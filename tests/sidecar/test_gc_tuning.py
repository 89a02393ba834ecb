"""The garbage collector: what is loaded is frozen, settings come back, and nothing that it must free accumulates."""

from __future__ import annotations

import gc
from collections.abc import Callable

import msgpack

from monitor.runtime.agent_monitor import AgentMonitor
from monitor.sidecar.events import Evaluate, Message
from monitor.sidecar.gc_tuning import COLLECT, collector_at_ease
from monitor.sidecar.pipeline import Pipeline
from monitor.types import Instant


def test_what_is_loaded_is_frozen_and_the_settings_come_back() -> None:
    before = gc.get_threshold()
    with collector_at_ease():
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == COLLECT
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_an_agent_that_is_forgotten_is_freed_without_a_search(make_pipeline: Callable[[], Pipeline]) -> None:
    """Else hours would pass until its memory is."""
    pipeline = make_pipeline()

    def agents() -> int:
        return sum(type(each) is AgentMonitor for each in gc.get_objects())

    def send(agent: str, at: float) -> None:
        for seq, state in enumerate((0, 1, 2, 3)):
            now = Instant(1000.0 + at + seq, at + seq)
            fields = {"v": 1, "episode": 0, "seq": seq, "state": state, "action": 1, "time": now.wall}
            pipeline.step(Message(now, f"agents/{agent}/steps", msgpack.packb(fields)))
            pipeline.step(Evaluate(now))

    gc.collect()
    others = agents()
    gc.disable()
    try:
        for number in range(5):
            send(f"a{number}", 0.0)
        assert agents() == others + 5
        pipeline.step(Evaluate(Instant(2000.0, 1000.0)))
        assert pipeline.agents() == ()
        assert agents() == others
    finally:
        gc.enable()
