"""Sinks get every effect once it is in the store; one that fails does not keep it from the others."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.mqtt.inbox import Arrived
from monitor.sidecar.service import Service
from monitor.sidecar.sinks.sink import Watched
from monitor.sidecar.sinks.sinks import Sinks
from monitor.sidecar.store.journal import Batch, Journal
from monitor.types import Instant, Received
from tests.sidecar.conftest import RASH
from tests.sidecar.project import write_project
from tests.sidecar.watched import NOW, watched


class Toy:
    """A sink as small as it can be: it remembers the kinds of what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def take(self, effects: Effects, _now: Instant) -> None:
        self.heard += [type(notice).__name__ for notice in effects.notices]

    def recall(self, effects: Effects, now: Instant) -> None:
        self.take(effects, now)

    def adopt(self, watched: Watched) -> None:
        self.heard += [query.spec.name for query in watched.queries]


class Broken(Toy):
    def take(self, _effects: Effects, _now: Instant) -> None:
        raise OSError("the webhook is away")


def test_a_toy_sink_hears_of_what_happens(tmp_path: Path, corridor: MDP) -> None:
    loaded = assemble(write_project(tmp_path / "project", corridor), {})
    service, toy = Service(loaded), Toy()
    service.sinks.add(toy)
    step = {"v": 1, "episode": "one", "seq": 0, "state": 0, "action": RASH}
    service.inbox.put(Arrived(service.clock(), "agents/ada/steps", json.dumps(step).encode(), None))
    service.worker.turn()
    assert toy.heard[0] == "Received"
    assert "Judged" in toy.heard
    service.sinks.adopt(loaded.watched, NOW)
    assert toy.heard[-2:] == ["watch", "chance"]
    service.close()


def test_a_sink_hears_of_an_event_after_it_is_in_the_store(
    tmp_path: Path, corridor: MDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(assemble(write_project(tmp_path / "project", corridor), {}))
    order: list[str] = []
    commit = Journal.commit

    def noted(journal: Journal, batch: Batch) -> None:
        commit(journal, batch)
        if batch.events:
            order.append("stored")

    monkeypatch.setattr(Journal, "commit", noted)

    class Late(Toy):
        def take(self, effects: Effects, _now: Instant) -> None:
            if any(isinstance(notice, Received) for notice in effects.notices):
                order.append("heard")

    service.sinks.add(Late())
    step = {"v": 1, "episode": "one", "seq": 0, "state": 0, "action": RASH}
    service.inbox.put(Arrived(service.clock(), "agents/ada/steps", json.dumps(step).encode(), None))
    service.worker.turn()
    assert order == ["stored", "heard"]
    service.close()


def test_a_sink_that_fails_is_logged_and_counted_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    sinks, toy = Sinks(watched([])), Toy()
    sinks.add(Broken())
    sinks.add(toy)
    assert 'cfmon_sink_errors_total{sink="Broken"} 0.0' in sinks.metrics.exposition().decode()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            sinks.take(Effects(notices=(Received("ada", "accepted"),)), NOW)
    assert toy.heard == ["Received"] * 3
    shown = sinks.metrics.exposition().decode()
    assert 'cfmon_sink_errors_total{sink="Broken"} 3.0' in shown
    assert 'cfmon_messages_total{result="accepted"} 3.0' in shown
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().startswith("the sink Broken failed")
    assert record.exc_info is not None, "with its traceback"
