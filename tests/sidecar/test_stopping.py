"""A monitor that is asked to stop does no more, however much waits; the next one does the rest, each step once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Event
from monitor.sidecar.mqtt.inbox import Arrived, Receipt
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.service import Service
from monitor.stream import decode
from monitor.types import Instant, Judged, Received
from tests.servers import PATIENCE
from tests.sidecar.by_hand import by_hand
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.running import steps
from tests.tiers import examples

AGENTS = 4


@pytest.fixture
def config(tmp_path: Path, corridor: MDP) -> Path:
    """An evaluation takes a few steps, so that most of what was accepted waits when the next one begins."""
    return write_project(tmp_path / "project", corridor, CONFIG + "limits: {deadline: 1ms}\n")


class Life:
    """One process without a broker, to which a test gives messages; counted is what it does once it was asked to stop.

    `unacknowledged`: the messages that a broker would send again, in order.
    """

    def __init__(self, config: Path, unacknowledged: dict[int, tuple[str, bytes]]) -> None:
        self.service = Service(assemble(config))
        self.stop = asyncio.Event()
        self.unacknowledged = unacknowledged
        self.service.worker.acknowledge = self._acknowledge
        self.judged: Counter[tuple[str, int]] = Counter()
        self.accepted: Counter[str] = Counter()
        self.when: Callable[[], bool] = lambda: False
        self.after = 0

    def _acknowledge(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            del self.unacknowledged[receipt.message_id]

    def has_judged(self, count: int) -> bool:
        return self.judged.total() >= count

    def _watch(self) -> None:
        pipeline = self.service.worker.pipeline
        real = pipeline.step

        def step(event: Event) -> Effects:
            self.after += self.stop.is_set()
            effects = real(event)
            for notice in effects.notices:
                if isinstance(notice, Judged) and notice.formula == "watch":
                    self.judged[notice.agent, notice.seq] += 1
                elif isinstance(notice, Received):
                    self.accepted[notice.result] += 1
            if isinstance(event, Evaluate) and self.when():
                self.stop.set()
            return effects

        pipeline.step = step  # type: ignore[method-assign] # a pipeline that counts

    def live(self) -> None:
        """Begin, get what the broker has, and work until `when` is true after an evaluation; then end."""

        async def scenario() -> None:
            begin = self.service.begin

            async def begun() -> None:
                await begin()
                self._watch()
                for number, (agent, payload) in self.unacknowledged.items():
                    now = Instant(1000.0, self.service.clock().ticks)
                    self.service.inbox.put(Arrived(now, f"agents/{agent}/steps", payload, Receipt(1, number)))

            self.service.begin = begun  # type: ignore[method-assign] # likewise
            async with asyncio.timeout(PATIENCE):
                await self.service.run(self.stop)

        asyncio.run(scenario())


def test_what_waits_when_it_is_asked_to_stop_is_done_by_the_next_one_and_once(config: Path) -> None:
    count = examples(1_000, 10_000)
    lines = steps([(0, 1)] * (count // AGENTS))
    waiting = {n * AGENTS + a: (f"a{a}", line.encode()) for n, line in enumerate(lines) for a in range(AGENTS)}
    judged: Counter[tuple[str, int]] = Counter()
    accepted: Counter[str] = Counter()
    for done in (10, count // 10, None):
        life = Life(config, waiting)
        before = judged.total()
        life.when = partial(life.has_judged, count - before if done is None else done)
        life.live()
        judged += life.judged
        accepted += life.accepted
        assert life.after == 0, "it goes on although it was asked to stop"
        if done is not None:
            assert life.judged.total() < count // 2
            assert life.service.worker.pipeline.waiting.steps > 0, "nothing waited"
    assert not waiting
    assert accepted == {"accepted": count}
    assert judged == {(f"a{a}", n): 1 for a in range(AGENTS) for n in range(count // AGENTS)}


def test_a_stop_is_heard_while_the_state_is_restored_after_each_evaluation(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = steps([(0, 1)] * 100)
    with by_hand(config) as killed:
        asyncio.run(killed.service.begin())
        for line in lines:
            killed.hear(line)
    again, evaluated, real = Life(config, {}), 0, Pipeline.step

    def step(pipeline: Pipeline, event: Event) -> Effects:
        nonlocal evaluated
        evaluated += isinstance(event, Evaluate)
        again.stop.set()
        return real(pipeline, event)

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "step", step)
        again.live()
    assert 0 < evaluated < 6  # until the loop has passed the word on
    third = Life(config, {})
    third.when = lambda: True
    third.live()
    path = third.service.worker.pipeline.monitor
    path.observe(decode("ada", steps([(0, 1)] * 101)[-1].encode()), now := Instant(1000.0, 1e6))
    [last] = [e for e in path.evaluate(now) if isinstance(e, Judged) and e.formula == "watch"]
    assert last.seq == 100  # nothing is missing before it, or it would be blind
