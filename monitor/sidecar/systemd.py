"""Telling the service manager how we are, by its own protocol (sd_notify(3)); silent where none listens.

The protocol is one datagram of lines. The packages that speak it have not been touched for years, and none judges
whether there is anything to be said: here the watchdog is fed only while `/healthz` would find nothing wrong.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = ["ServiceManager", "reporting"]

LOG: Final = logging.getLogger("monitor.systemd")
PERIOD: Final = 5.0
"""Seconds between two reports where no watchdog asks for more."""


class ServiceManager:
    """Whoever listens on `$NOTIFY_SOCKET` of `environment`. Telling never waits and never fails: it is a courtesy.

    Attributes:
        listens: whether there is one.
        watchdog: seconds without `alive` after which we are killed; None: no limit.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self.listens = name.startswith(("/", "@"))
        self.watchdog = _watchdog(environment) if self.listens else None

    def ready(self) -> None:
        """Everything that can fail at start is done, or a reload has ended."""
        self._tell("READY=1")

    def alive(self, status: str) -> None:
        """Feed the watchdog; `status` is the line that `systemctl status` shows."""
        self._tell("WATCHDOG=1", _status(status))

    def unhealthy(self, status: str) -> None:
        """Say what is wrong, and leave the watchdog hungry."""
        self._tell(_status(status))

    def reloading(self) -> None:
        """The configuration is being read again; `ready` ends that. The time is by the manager's clock, not by ours."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """We end, and mean to."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self.listens:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door:
                door.setblocking(False)  # noqa: FBT003 - the signature is the socket's
                door.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            LOG.debug("the service manager does not hear: %s", error)


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}"


def _watchdog(environment: Mapping[str, str]) -> float | None:
    """As sd_watchdog_enabled(3) reads it: microseconds, for the process with that id or for any."""
    microseconds, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not microseconds.isdigit() or int(microseconds) == 0 or process != str(os.getpid()):
        return None
    return int(microseconds) / 1e6


@contextmanager
def reporting(manager: ServiceManager, health: Callable[[], str], readiness: Callable[[], str]) -> Iterator[None]:
    """Report from a thread until the block ends: a stuck loop cannot tell that it is stuck.

    `health` and `readiness` are those of `/healthz` and `/readyz`: what is wrong, or an empty text.
    """
    if not manager.listens:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_report, args=(manager, health, readiness, ended), name="systemd", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _report(
    manager: ServiceManager, health: Callable[[], str], readiness: Callable[[], str], ended: threading.Event
) -> None:
    period = min(PERIOD, (manager.watchdog or PERIOD) / 3)
    well = True
    while True:
        if problem := health():
            manager.unhealthy(problem)
            if well:
                LOG.error("the watchdog is no longer fed: %s", problem)
        else:
            manager.alive(readiness() or "watching")
        well = not problem
        if ended.wait(period):
            return
