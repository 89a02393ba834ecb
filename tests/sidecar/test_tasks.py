"""Work beside the loop, where the system has no thread for it: an error like any other of the system's."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.mqtt.broker import parse_broker
from monitor.sidecar.mqtt.dial import SessionConfig
from monitor.sidecar.mqtt.inbox import Inbox
from monitor.sidecar.mqtt.link import BrokerLink
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.store.store import Store
from monitor.sidecar.tasks import in_thread
from tests.servers import PATIENCE


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_no_thread_to_be_had_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(OSError, match="no thread can be started: can't start new thread") as raised:
        asyncio.run(in_thread(lambda: done.append(1)))
    assert raised.value.errno == errno.EAGAIN
    monkeypatch.undo()
    asyncio.run(in_thread(lambda: done.append(2)))
    assert done == [2]


def test_the_link_tries_again_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, asked = threading.Thread.start, 0

    async def scenario() -> None:
        stop = asyncio.Event()

        def scarce(thread: threading.Thread) -> None:
            nonlocal asked
            asked += 1
            if asked <= 2:
                refuse(thread)
            stop.set()
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", scarce)
        session = SessionConfig(parse_broker("mqtt://127.0.0.1:1"), "me", "agents/+/steps", "status/me", 5.0)
        link = BrokerLink(session, Inbox(10), Outbox(), lambda _up: None)
        await asyncio.wait_for(link.run(stop), PATIENCE)

    asyncio.run(scenario())
    assert asked == 3
    told = [record.getMessage() for record in caplog.records]
    assert sum("no thread can be started" in line for line in told) == 2


def test_evidence_waits_until_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "cfmon.sqlite")
    store.commit(evidence=[EvidenceFile("e1", b"proof")])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    asyncio.run(store.file_evidence())
    assert store.failures == 1
    assert store.read_evidence("e1") == b"proof"
    assert not (tmp_path / "evidence" / "e1").exists()
    monkeypatch.undo()
    asyncio.run(store.file_evidence())
    assert store.ok
    assert (tmp_path / "evidence" / "e1").read_bytes() == b"proof"
    store.close()
