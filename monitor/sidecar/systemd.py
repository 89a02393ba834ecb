"""Status reports to the service manager (sd_notify(3)), if there is one.

The protocol is one datagram of lines. The watchdog is notified only while `/healthz` reports no problem.
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

LOG: Final = logging.getLogger("monitor.systemd")
PERIOD: Final = 5.0
"""Maximum number of seconds between two reports."""


class ServiceManager:
    """Client of the service manager at `$NOTIFY_SOCKET` of `environment`. The methods neither block nor raise.

    `listens`: True if there is a service manager. `watchdog`: number of seconds without `alive` after which the manager
    kills this process; None if it never does.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self.listens = name.startswith(("/", "@"))
        self.watchdog = _watchdog(environment) if self.listens else None

    def ready(self) -> None:
        """Report that the start, or a reload, is complete."""
        self._send("READY=1")

    def alive(self, status: str) -> None:
        """Notify the watchdog; `systemctl status` shows `status`."""
        self._send("WATCHDOG=1", _status(status))

    def unhealthy(self, status: str) -> None:
        """Report a problem, without notifying the watchdog."""
        self._send(_status(status))

    def reloading(self) -> None:
        """Report that the configuration is being reread, until `ready`. The reported time is of the manager's clock."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report an intended shutdown."""
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self.listens:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)  # noqa: FBT003 - the signature is the socket's
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            LOG.debug("the service manager cannot be notified: %s", error)


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}"


def _watchdog(environment: Mapping[str, str]) -> float | None:
    """Return the watchdog's timeout in seconds, as sd_watchdog_enabled(3) does; None if there is no watchdog."""
    microseconds, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not microseconds.isdigit() or int(microseconds) == 0 or process != str(os.getpid()):
        return None
    return int(microseconds) / 1e6


@contextmanager
def reporting(manager: ServiceManager, health: Callable[[], str], readiness: Callable[[], str]) -> Iterator[None]:
    """Report from a separate thread until the block ends, so that a stuck event loop is detected.

    `health` and `readiness` return the texts of `/healthz` and `/readyz`: the problem, or an empty text.
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
    healthy = True
    while True:
        if problem := health():
            manager.unhealthy(problem)
            if healthy:
                LOG.error("the watchdog is no longer notified: %s", problem)
        else:
            manager.alive(readiness() or "watching")
        healthy = not problem
        if ended.wait(period):
            return
