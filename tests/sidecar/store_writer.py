"""What other processes do with a store, for tests: forked from one that has imported the monitor already."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from monitor.errors import ConfigError
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.events import Message
from monitor.sidecar.pipeline import Snapshot
from monitor.sidecar.store.journal import SnapshotSetting
from monitor.sidecar.store.store import Store
from monitor.types import Instant

__all__ = ["open_store", "process", "write"]


@contextmanager
def process(do: Callable[[Path, Connection], None], path: Path) -> Iterator[tuple[BaseProcess, Connection]]:
    """Do something with a store in another process until the block ends; what it says comes on the connection."""
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    other = context.Process(target=do, args=(path, there), daemon=True)
    with here:
        with there:
            other.start()
        try:
            yield other, here
        finally:
            other.kill()
            other.join()
            other.close()


def open_store(path: Path, said: Connection) -> None:
    """Open the store, and say what comes of it."""
    try:
        Store(path).close()
    except ConfigError as error:
        said.send(str(error))
    else:
        said.send("")


def write(path: Path, said: Connection) -> None:
    """Write to a new store for ever; say how many pieces of evidence are kept by now."""
    store, n = Store(path), 0
    assert store.damages == 0, store.damage
    store.replace(SnapshotSetting("me"), Snapshot(b"common", {"ada": b"state"}), [])
    while True:
        n += 1
        store.note(Message(Instant(float(n), float(n)), "agents/ada/steps", b"%d" % n + bytes(n % 5000)))
        store.commit(evidence=[EvidenceFile(f"{n:032x}", bytes(100))])
        if n % 50 == 0:
            store.check_files()
            store.checkpoint(SnapshotSetting("me"), Snapshot(b"later", {"ada": b"%d" % n}))
        assert store.ok, store.problem
        said.send(n)
