"""Functions shared by the runs of `cfmon demo`: configure and run the monitor, and handle Ctrl-C."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.service import Service
from monitor.sidecar.signals import when_ended

PREFERRED_PORT: Final = 9108
TIMEOUT: Final = 60.0
"""Seconds to wait for the monitor to start, to catch up and to finish, before the demo reports a problem."""


def load(config: Path, folder: Path, url: str, port: int) -> Loaded:
    """Read a configuration for a run with its store in `folder`, a broker at `url`, and the status page at `port`.

    The configuration's webhooks are left out, because alarms of a simulated agent must page nobody.

    Raises:
        ConfigError, ModelError, PolicyError: an input is missing or invalid, and nothing was started.
    """
    store = folder / "cfmon.sqlite"
    for suffix in ("", "-wal", "-shm", "-mark"):  # start afresh, because an earlier run has the same episode names
        store.with_name(store.name + suffix).unlink(missing_ok=True)
    broker = {"CFMON_MQTT__URL": url, "CFMON_MQTT__VERSION": "3.1.1"}  # the embedded broker supports no other version
    settings = {**broker, "CFMON_HTTP__LISTEN": f"127.0.0.1:{port}", "CFMON_STORE__PATH": str(store)}
    return assemble(load_config(config, settings).model_copy(update={"webhooks": {}}))


@contextmanager
def interrupted() -> Iterator[asyncio.Event]:
    """Yield an event that Ctrl-C and SIGTERM set inside the block."""
    stop = asyncio.Event()
    with when_ended(stop.set):
        yield stop


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Run the monitor inside the block, then stop it cleanly. Raises the error that stopped it early."""
    stop = asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def ended(process: Process) -> None:
    """Wait for the end of a process."""
    await process.wait()


async def eventually(condition: Callable[[], bool]) -> bool:
    """Return whether the condition becomes true within `TIMEOUT`."""
    for _ in range(int(TIMEOUT / 0.05)):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False
