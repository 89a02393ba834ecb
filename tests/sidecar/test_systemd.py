"""What the service manager hears, on a real datagram socket: readiness, life, reloading, the end."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from monitor.sidecar.systemd import ServiceManager, reporting
from tests.servers import PATIENCE


class Manager:
    """The other end: receives datagrams as systemd does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self._socket.settimeout(PATIENCE)

    def hear(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def hear_until(self, line: str) -> list[str]:
        """Datagrams until one holds `line`; that one."""
        deadline = time.monotonic() + PATIENCE
        while line not in (heard := self.hear()):
            assert time.monotonic() < deadline, f"{line} is never said"
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = str(tmp_path / "notify") if request.param == "file" else f"@cfmon-test-{os.getpid()}-{tmp_path.name}"
    with Manager(name) as there:
        yield there


def test_every_word_of_the_protocol(manager: Manager) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": manager.name})
    told.ready()
    assert manager.hear() == ["READY=1"]
    told.alive("watching\nREADY=1")
    assert manager.hear() == ["WATCHDOG=1", "STATUS=watching READY=1"]
    told.unhealthy("no evaluation for 31.0 s")
    assert manager.hear() == ["STATUS=no evaluation for 31.0 s"]
    before = time.monotonic_ns() // 1000
    told.reloading()
    first, second = manager.hear()
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
    told.stopping()
    assert manager.hear() == ["STOPPING=1"]


def test_the_watchdog_is_fed_only_while_health_finds_nothing_wrong(manager: Manager) -> None:
    problem, reason = "", ""
    environment = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())}
    with reporting(ServiceManager(environment), lambda: problem, lambda: reason):
        assert manager.hear() == ["WATCHDOG=1", "STATUS=watching"]
        reason = "not connected to the broker"  # that is no reason to be killed
        assert manager.hear_until("STATUS=not connected to the broker")[0] == "WATCHDOG=1"
        problem = "no evaluation for 31.0 s"
        assert manager.hear_until("STATUS=no evaluation for 31.0 s") == ["STATUS=no evaluation for 31.0 s"]
        for _ in range(5):
            assert manager.hear() == ["STATUS=no evaluation for 31.0 s"]
        problem = ""
        manager.hear_until("WATCHDOG=1")


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdogs_patience_is_read_from_the_environment(
    environment: dict[str, str], seconds: float | None
) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/run/nobody", **environment}).watchdog == seconds


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_where_nobody_listens_nothing_happens(environment: dict[str, str]) -> None:
    told = ServiceManager(environment)
    told.ready()
    told.stopping()
    with reporting(told, lambda: "", lambda: ""):
        pass


def test_a_manager_that_reads_nothing_does_not_hold_us_up(manager: Manager) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": manager.name})
    for _ in range(2000):  # far more than a socket of datagrams holds: it would wait for ever
        told.ready()
    assert manager.hear() == ["READY=1"]
