"""The worker on its own: a clock that cannot be kept from going on, a recording that cannot be finished."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.model import MDP
from monitor.sidecar import worker as worker_module
from monitor.sidecar.backlog import RECONNECT_GRACE
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects, Publication
from monitor.sidecar.events import Evaluate, Event
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.store.alarm_history import HistoryChanges
from tests.servers import PATIENCE
from tests.sidecar.by_hand import ByHand, Time, by_hand, stopped_time
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.running import steps


@pytest.fixture
def loop() -> Iterator[Time]:
    with stopped_time() as loop:
        yield loop


@pytest.fixture
def config(tmp_path: Path, corridor: MDP) -> Path:
    return write_project(tmp_path / "project", corridor)


@pytest.fixture
def there(config: Path) -> Iterator[ByHand]:
    with by_hand(config) as there:
        yield there


def ticks_while(there: ByHand, loop: Time, *, up: bool, seconds: float) -> float:
    before = there.service.clock().ticks
    there.worker.connected(up)
    loop.advance(seconds)
    return there.service.clock().ticks - before


def test_time_stands_still_while_the_broker_is_away_and_a_little_longer(there: ByHand, loop: Time) -> None:
    assert ticks_while(there, loop, up=False, seconds=3600.0) == 0.0
    assert ticks_while(there, loop, up=True, seconds=RECONNECT_GRACE + 10.0) == pytest.approx(10.0)
    assert ticks_while(there, loop, up=False, seconds=5.0) == 0.0
    assert ticks_while(there, loop, up=True, seconds=RECONNECT_GRACE / 2) == 0.0


def test_a_broker_that_comes_and_goes_does_not_stop_time_for_ever(there: ByHand, loop: Time) -> None:
    went = 0.0
    for _ in range(40):
        assert ticks_while(there, loop, up=False, seconds=0.5) == 0.0
        went += ticks_while(there, loop, up=True, seconds=RECONNECT_GRACE / 2)
    reached = 40 * RECONNECT_GRACE / 2
    assert went == pytest.approx(reached - worker_module.MAX_TOTAL_GRACE)
    loop.advance(RECONNECT_GRACE)  # it lasts: from now on it is spared again
    assert ticks_while(there, loop, up=False, seconds=0.5) == 0.0
    assert ticks_while(there, loop, up=True, seconds=RECONNECT_GRACE / 2) == 0.0


def test_a_recording_that_cannot_be_finished_stops_nothing(there: ByHand, caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def close(self) -> None:
            raise OSError(28, "No space left on device")

    there.worker.recorder = Full()  # type: ignore[assignment] # all of a recorder that is used here
    there.worker.end_recording()
    assert there.worker.recorder is None
    assert "the end of the recording could not be written" in caplog.text


def test_evidence_that_no_disk_takes_in_time_does_not_hold_up_the_end(
    there: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "FINAL_WRITE_SECONDS", 0.01)
    never = asyncio.Event()

    async def slow() -> None:
        await never.wait()

    monkeypatch.setattr(there.service.store, "file_evidence", slow)

    async def scenario() -> None:
        await there.service.begin()
        await asyncio.wait_for(there.worker.end(), PATIENCE)

    asyncio.run(scenario())


def test_of_a_message_that_is_too_large_no_more_is_noted_than_shows_it(there: ByHand, config: Path) -> None:
    def stored() -> int:
        return sum(file.stat().st_size for file in (config.parent / "var").iterdir() if file.is_file())

    before = stored()
    there.hear(bytes(1 << 20))
    assert there.metric('cfmon_rejected_total{reason="too_large"}') == 1
    assert 0 < stored() - before < 200_000


@pytest.fixture
def slow(config: Path, loop: Time, monkeypatch: pytest.MonkeyPatch) -> Iterator[ByHand]:
    """An answer takes longer than a whole evaluation may, which is known; four steps may wait."""
    config.write_text(config.read_text() + "limits: {queue: 4}\n")
    with by_hand(config) as there:
        monkeypatch.setattr(there.worker, "pipeline", Slow(there.worker.pipeline, loop))
        there.hear(step(0))
        yield there


def step(seq: int) -> str:
    return steps([(0, 1)] * (seq + 1))[-1]


class Slow:
    """A pipeline that takes its time to evaluate."""

    def __init__(self, pipeline: Pipeline, loop: Time) -> None:
        self._pipeline, self._loop = pipeline, loop

    def step(self, event: Event) -> Effects:
        self._loop.now += isinstance(event, Evaluate)
        return self._pipeline.step(event)

    def __getattr__(self, name: str) -> object:
        return getattr(self._pipeline, name)


def test_what_an_evaluation_leaves_is_evaluated_in_the_next_turns(slow: ByHand) -> None:
    slow.hear(*map(step, range(1, 5)))
    waiting = [slow.worker.pipeline.waiting.steps]
    while waiting[-1]:
        slow.worker.turn()
        waiting.append(slow.worker.pipeline.waiting.steps)
    assert waiting == [3, 2, 1, 0], "one step a turn"


def test_what_waits_in_a_new_pipeline_is_what_that_says(slow: ByHand, config: Path) -> None:
    """Only so many are taken that no more wait than may; in another pipeline nothing waits."""
    accepted = 'cfmon_messages_total{result="accepted"}'
    slow.hear(*map(step, range(1, 5)))
    slow.hear(step(5), step(6))
    assert slow.metric(accepted) == 6
    loaded = assemble(config, {})
    slow.worker.adopt(loaded.pipeline(slow.service.client_id), loaded.config, [])
    slow.hear(step(7), step(8))
    assert slow.metric(accepted) == 9


def test_the_log_names_what_was_refused_once_a_minute_of_each_kind(
    there: ByHand, loop: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """The runbooks send whoever is paged there."""

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    caplog.set_level("DEBUG", logger="monitor.service")
    ticks_while(there, loop, up=True, seconds=60.0)  # from now on time passes
    there.hear("no step", "no step either")
    [only] = warnings()
    assert only.startswith("message of ada rejected: ")
    assert sum("message of ada rejected" in record.getMessage() for record in caplog.records) == 2
    loop.advance(61.0)
    there.hear("again")
    assert len(warnings()) == 2


def test_the_log_names_an_impossible_step(there: ByHand, caplog: pytest.LogCaptureFixture) -> None:
    there.hear(*steps([(0, 0), (5, 0)]))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    why = "impossible_step: the model has no transition (0, 0) -> 5"
    assert f"ada: blind ({why}): watch, chance" in told


def test_the_log_names_a_reward_that_contradicts_the_model_once_a_minute(
    tmp_path: Path, corridor: MDP, caplog: pytest.LogCaptureFixture
) -> None:
    paid = replace(corridor, rewards=np.full((6, 2), -1.0))
    sent = [json.loads(step) for step in steps([(0, 1)] * 4)]
    with by_hand(write_project(tmp_path / "paid", paid)) as there:
        there.hear(*(json.dumps({**step, "reward": -1 if step["seq"] == 1 else 5}) for step in sent))
        assert there.metric('cfmon_reward_mismatch_total{agent="ada"}') == 2
    told = [
        record.getMessage()
        for record in caplog.records
        if (record.levelname, record.name) == ("WARNING", "monitor.service")
    ]
    why = "seq 2 of episode 'one': (0, 1) -> 0 earned 5, the model says -1"
    assert told == [f"ada reports a reward that contradicts the model: {why}"]


def test_without_a_store_nothing_is_remembered_of_what_the_broker_has(tmp_path: Path, corridor: MDP) -> None:
    config = CONFIG.replace("path: var/cfmon.sqlite", "path: null")
    with by_hand(write_project(tmp_path / "project", corridor, config)) as there:
        outbox = there.service.outbox
        outbox.put(outbox.number([Publication("cfmon/alerts/ada/watch", b"{}")]))
        outbox.done(0)
        assert outbox.has_finished
        there.worker.turn()
        assert outbox.finished() == []


def test_an_alarm_is_listed_only_once_its_evidence_can_be_had(there: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    store, history = there.service.store, there.service.sinks.view.history
    assert store is not None
    note = history.note
    listed: list[bool] = []

    def noted(publications: Sequence[Publication]) -> HistoryChanges:
        named = [(json.loads(each.payload).get("evidence") or {}).get("id") for each in publications if each.payload]
        listed.extend(store.read_evidence(each) is not None for each in named if each is not None)
        return note(publications)

    monkeypatch.setattr(history, "note", noted)
    there.hear(*steps([(0, 0), (1, 0), (2, 0)]))
    assert listed
    assert all(listed)
