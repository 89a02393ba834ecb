"""Sinks get every effect once it is in the store; one that fails does not keep it from the others."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import get_args

import pytest

from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects, Publication
from monitor.sidecar.mqtt.inbox import Arrived
from monitor.sidecar.service import Service
from monitor.sidecar.sinks.sink import Sink, Watched
from monitor.sidecar.sinks.sinks import Sinks
from monitor.sidecar.store.journal import Batch, Journal
from monitor.types import (
    AlarmMoved,
    Blind,
    Calibrated,
    Calibration,
    Contradictions,
    Deviates,
    Ended,
    Forecast,
    Forgotten,
    FormulaSpec,
    Instant,
    Notice,
    OffPolicy,
    Received,
    Refreshed,
    RewardMismatch,
    Skipped,
    TakenOver,
    Trust,
    WrongAgent,
    WrongRow,
)
from tests.sidecar.conftest import RASH
from tests.sidecar.project import write_project
from tests.sidecar.watched import NOW, alert, judged, take, watched

SPECS = [FormulaSpec("watch", 'P>=0.5 [ X "a" ]'), FormulaSpec("chance", 'P=? [ X "a" ]')]
NOTICES: tuple[Notice, ...] = (
    Received("ada", "accepted", lag=0.5),
    Received("", "rejected", "malformed", "no map"),
    judged(),
    Refreshed(judged(), SPECS[0], 3),
    Blind("ada", "watch", "gap"),
    Blind("ada", "watch", None),
    AlarmMoved("ada", "watch", "pending"),
    alert("firing", 1),
    alert("firing", 2, blind="gap"),
    alert("ended", 3),
    OffPolicy("ada"),
    Deviates("ada", 0.5, 100),
    RewardMismatch("ada", "seq 1: 2 instead of 1"),
    Skipped("ada", "watch", 2),
    Trust(doubted=True, log10_e=7.0, transitions=9),
    Trust(doubted=True, log10_e=7.0, transitions=9, agent="ada"),
    Contradictions((WrongRow("1", "go", 4.0, "2", 3, 9, 0.1, 0),), (WrongAgent("ada", 7.0),), 1, 1, 2),
    Forecast("ada", "watch", 0.5, came_true=True),
    Calibrated("watch", Calibration(), "ada"),
    TakenOver("ada", "watch", "safe", "undecided", 0, 1, 0.0, 3, 0.0, "cut off"),
    Ended("ada", 0),
    Forgotten("ada", 60.0, open=True),
)
CLEARED = Publication("cfmon/alerts/ada/watch", b"")


@pytest.fixture(params=[type(each).__name__ for each in Sinks(watched([])).all])
def sink(request: pytest.FixtureRequest) -> Sink:
    """Each sink that `Sinks` lists: what all of them promise is tested here, what one shows in its own tests."""
    [found] = [each for each in Sinks(watched(SPECS)).all if type(each).__name__ == request.param]
    return found


def test_it_takes_every_notice_about_whomever(sink: Sink) -> None:
    assert {type(notice) for notice in NOTICES} == set(get_args(Notice))
    for notices in (NOTICES, NOTICES[::-1]):
        for notice in notices:
            take(sink, notice)
    sink.take(Effects(notices=NOTICES, publications=(CLEARED,)), NOW)


def test_what_is_recalled_is_not_new(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        sink.recall(Effects(notices=NOTICES, publications=(CLEARED,)), NOW)
    assert not caplog.records


def test_it_goes_on_under_another_configuration(sink: Sink) -> None:
    take(sink, *NOTICES[:-1])
    for specs in ([SPECS[1]], [], SPECS):
        sink.adopt(watched(specs))
        sink.recall(Effects(), NOW)
    take(sink, *NOTICES)


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
            sinks.take_all([(Effects(notices=(Received("ada", "accepted"),)), NOW)])
    assert toy.heard == ["Received"] * 3
    shown = sinks.metrics.exposition().decode()
    assert 'cfmon_sink_errors_total{sink="Broken"} 3.0' in shown
    assert 'cfmon_messages_total{result="accepted"} 3.0' in shown
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().startswith("the sink Broken failed")
    assert record.exc_info is not None, "with its traceback"
