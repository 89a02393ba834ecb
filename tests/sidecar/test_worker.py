"""The worker on its own: a clock that cannot be kept from going on, a recording that cannot be finished."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.model import MDP
from monitor.runtime.monitor import Waiting
from monitor.sidecar import worker as worker_module
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Publication
from monitor.sidecar.mqtt.inbox import Arrived
from monitor.sidecar.service import Service
from monitor.sidecar.store.alarm_history import Changes
from monitor.types import Instant
from tests.servers import PATIENCE
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.running import steps


class Handle:
    """What a loop gives for something that is to happen later."""

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop whose time is what the test says; everybody's clock follows."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.later: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], object]) -> Handle:
        self.later.append(Handle(self.now + seconds, call))
        return self.later[-1]

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        for handle in [handle for handle in self.later if handle.at <= end]:
            self.later.remove(handle)
            self.now = handle.at
            if not handle.cancelled:
                handle.call()
        self.now = end


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(time, "monotonic", loop.time)
    return loop


@pytest.fixture
def service(tmp_path: Path, corridor: MDP) -> Iterator[Service]:
    service = Service(assemble(write_project(tmp_path / "project", corridor)))
    yield service
    service.close()


def ticks_while(service: Service, loop: Loop, *, up: bool, seconds: float) -> float:
    before = service.clock().ticks
    service.worker.connected(up)
    loop.advance(seconds)
    return service.clock().ticks - before


def test_time_stands_still_while_the_broker_is_away_and_a_little_longer(service: Service, loop: Loop) -> None:
    assert ticks_while(service, loop, up=False, seconds=3600.0) == 0.0
    assert ticks_while(service, loop, up=True, seconds=worker_module.RECONNECT_GRACE + 10.0) == pytest.approx(10.0)
    assert ticks_while(service, loop, up=False, seconds=5.0) == 0.0
    assert ticks_while(service, loop, up=True, seconds=worker_module.RECONNECT_GRACE / 2) == 0.0


def test_a_broker_that_comes_and_goes_does_not_stop_time_for_ever(service: Service, loop: Loop) -> None:
    went = 0.0
    for _ in range(40):
        assert ticks_while(service, loop, up=False, seconds=0.5) == 0.0
        went += ticks_while(service, loop, up=True, seconds=worker_module.RECONNECT_GRACE / 2)
    reached = 40 * worker_module.RECONNECT_GRACE / 2
    assert went == pytest.approx(reached - worker_module.MAX_TOTAL_GRACE)
    loop.advance(worker_module.RECONNECT_GRACE)  # it lasts: from now on it is spared again
    assert ticks_while(service, loop, up=False, seconds=0.5) == 0.0
    assert ticks_while(service, loop, up=True, seconds=worker_module.RECONNECT_GRACE / 2) == 0.0


def test_a_recording_that_cannot_be_finished_stops_nothing(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def close(self) -> None:
            raise OSError(28, "No space left on device")

    service.worker.recorder = Full()  # type: ignore[assignment] # all of a recorder that is used here
    service.worker.end_recording()
    assert service.worker.recorder is None
    assert "the end of the recording could not be written" in caplog.text


def test_evidence_that_no_disk_takes_in_time_does_not_hold_up_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "FINAL_WRITE_SECONDS", 0.01)
    never = asyncio.Event()

    async def slow() -> None:
        await never.wait()

    monkeypatch.setattr(service.store, "file_evidence", slow)

    async def scenario() -> None:
        await service.begin()
        await asyncio.wait_for(service.worker.end(), PATIENCE)

    asyncio.run(scenario())


def test_of_a_message_that_is_too_large_no_more_is_noted_than_shows_it(service: Service, loop: Loop) -> None:
    payload = bytes(1 << 20)
    service.inbox.put(Arrived(Instant(1.0, loop.now), "agents/ada/steps", payload, None))
    service.worker.turn()
    assert service.store is not None
    assert service.store._size < 100_000
    assert 'cfmon_rejected_total{reason="too_large"} 1.0' in service.sinks.metrics.exposition().decode()


def heard(service: Service, loop: Loop, *payloads: str) -> None:
    for payload in payloads:
        service.inbox.put(Arrived(Instant(1.0, loop.now), "agents/ada/steps", payload.encode(), None))
    service.worker.turn()


def test_what_an_evaluation_leaves_is_evaluated_in_the_next_turns(
    service: Service, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, batches = service.worker, list[tuple[int | None, bool]]()

    def record(_ticks: float, *, answered: int | None, left: bool, **_rest: object) -> None:
        batches.append((answered, left))

    monkeypatch.setattr(worker._pressure, "record_batch", record)
    worker._pace = 1e9  # seconds a step: each evaluation takes one
    heard(service, loop, *steps([(0, 1)] * 5))
    while len(batches) < 5:
        loop.now += 0.1
        worker.turn()
    assert batches == [(1, True)] * 4 + [(1, False)]


def test_what_waits_in_a_new_pipeline_is_what_that_says(service: Service, loop: Loop) -> None:
    worker = service.worker
    worker._waiting = Waiting(5000, loop.now)
    worker.adopt(worker.pipeline, service._loaded.config, [])
    assert worker._waiting == Waiting(0, None)


def test_the_log_names_what_was_refused_once_a_minute_of_each_kind(
    service: Service, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    """The runbooks send whoever is paged there."""

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    caplog.set_level("DEBUG", logger="monitor.service")
    ticks_while(service, loop, up=True, seconds=60.0)  # from now on time passes
    heard(service, loop, "no step", "no step either")
    [only] = warnings()
    assert only.startswith("message of ada rejected: ")
    assert sum("message of ada rejected" in record.getMessage() for record in caplog.records) == 2
    loop.advance(61.0)
    heard(service, loop, "again")
    assert len(warnings()) == 2


def test_the_log_names_an_impossible_step(service: Service, loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    heard(service, loop, *steps([(0, 0), (5, 0)]))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    why = "impossible_step: the model has no transition (0, 0) -> 5"
    assert f"ada: blind ({why}): watch, chance" in told


def test_the_log_names_a_reward_that_contradicts_the_model_once_a_minute(
    tmp_path: Path, corridor: MDP, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    paid = replace(corridor, rewards=np.full((6, 2), -1.0))
    service = Service(assemble(write_project(tmp_path / "paid", paid)))
    sent = [json.loads(step) for step in steps([(0, 1)] * 4)]
    heard(service, loop, *(json.dumps({**step, "reward": -1 if step["seq"] == 1 else 5}) for step in sent))
    told = [
        record.getMessage()
        for record in caplog.records
        if (record.levelname, record.name) == ("WARNING", "monitor.service")
    ]
    why = "seq 2 of episode 'one': (0, 1) -> 0 earned 5, the model says -1"
    assert told == [f"ada reports a reward that contradicts the model: {why}"]
    assert 'cfmon_reward_mismatch_total{agent="ada"} 2.0' in service.sinks.metrics.exposition().decode()
    service.close()


def test_without_a_store_nothing_is_remembered_of_what_the_broker_has(
    tmp_path: Path, corridor: MDP, loop: Loop
) -> None:
    config = CONFIG.replace("path: var/cfmon.sqlite", "path: null")
    service = Service(assemble(write_project(tmp_path / "project", corridor, config)))
    outbox = service.outbox
    outbox.put(outbox.number([Publication("cfmon/alerts/ada/watch", b"{}")]))
    outbox.done(0)
    assert outbox.unsettled
    loop.advance(1.0)
    service.worker.turn()
    assert outbox.settled() == []
    service.close()


def test_an_alarm_is_listed_only_once_its_evidence_can_be_had(
    service: Service, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, history = service.store, service.sinks.view.history
    assert store is not None
    note = history.note
    listed: list[bool] = []

    def noted(publications: Sequence[Publication]) -> Changes:
        named = [(json.loads(each.payload).get("evidence") or {}).get("id") for each in publications if each.payload]
        listed.extend(store.read_evidence(each) is not None for each in named if each is not None)
        return note(publications)

    monkeypatch.setattr(history, "note", noted)
    heard(service, loop, *steps([(0, 0), (1, 0), (2, 0)]))
    assert listed
    assert all(listed)
