"""The real sidecar in a simulated world, life after life: its doors to time, threads, sockets and webhooks lead there.

Its store is real, in a folder of each life. A kill copies the folder as it is at that moment; the next life has the
copy, and what the dead process still holds is closed without any effect on the world.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

from monitor.sidecar import clock, tasks
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Event
from monitor.sidecar.mqtt import dial
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.service import Service
from monitor.sidecar.store.high_water import HighWaterMark
from monitor.sidecar.store.journal import Batch, Journal
from monitor.sidecar.webhooks import sender
from monitor.types import Judged
from tests.simulation.disk import Disk, files_of, lose_power
from tests.simulation.loop import Killed, VirtualLoop
from tests.simulation.network import Network, Socket
from tests.simulation.receivers import Receivers
from tests.simulation.world import World

NAME = "sidecar"
"""Its name in the network, and as a client of the broker."""

Moment = Literal["before", "within", "after"]
"""Of a transaction. `within`: the power fails, and what is written of it is torn."""

ENDS_WITHIN = 5.0
"""Seconds in which a sidecar ends: the promise of `monitor.sidecar.service.GOODBYE`."""


class Sidecar:
    """The sidecar of a world. `folder` has `config.yaml` and what it names; `judged` collects all verdicts.

    `run` is one life, until it ends or is killed. `between`: the life in which the store is kept goes on in a copy.
    """

    def __init__(self, world: World, network: Network, receivers: Receivers, folder: Path) -> None:
        self.world = world
        self.network = network
        self.receivers = receivers
        self.folder = folder
        self.lives = self.kills = 0
        self.service: Service | None = None
        self.judged: dict[tuple[str, str, Any, int], Judged] = {}
        self.disk = Disk()
        self.at_commit: tuple[int, Moment, Callable[[], object]] | None = None
        """After how many commits it is killed in the next, when, and what kills it."""
        self._loop: VirtualLoop | None = None
        self._stop = asyncio.Event()
        self._stopped_at: float | None = None

    @property
    def running(self) -> bool:
        return self._loop is not None and self._loop.alive

    @property
    def stored(self) -> bool:
        """Whether its state is in the store. While the store fails, the end of the process loses it, as promised."""
        return self.service is None or self.service.store is None or not self.service.store.problem

    @property
    def _database(self) -> Path:
        return self.folder / "var" / "cfmon.sqlite"

    @property
    def awake_since(self) -> float:
        """Time at which its last sleep ends or ended; 0.0 if it has not slept in this life."""
        return 0.0 if self._loop is None else self._loop.asleep_until

    def run(self) -> None:
        """Live until stopped or killed."""
        self.lives += 1
        self.world.note(f"life {self.lives}")
        loop = self._loop = VirtualLoop(self.world)
        self._stop, self._stopped_at, self.at_commit = asyncio.Event(), None, None
        try:
            service = self.service = Service(assemble(self.folder / "config.yaml"), tell=lambda _line: None)
            assert service.store is not None
            service.store.keep_objects(service._loaded.objects)  # noqa: SLF001 - as `start` does, without HTTP
            task = loop.create_task(service.run(self._stop))
            with suppress(Killed):
                loop.run_until_complete(task)
                self._ended()
        finally:
            _bury(loop)
            self.service = None

    def _ended(self) -> None:
        """Compare how long it took to end with the promise."""
        if self._stopped_at is not None:
            took = self.world.now - self._stopped_at
            self.world.note(f"ended after {took:.3f} s")
            if took > ENDS_WITHIN:
                self.world.problems.append(f"the process ends after {took:.1f} s; promised: {ENDS_WITHIN:.0f}")

    def stop(self) -> bool:
        """Signal that it should end; return False if it does not run, or is ending already."""
        if not self.running or self._loop is None or self._stop.is_set():
            return False
        self._stopped_at = max(self.world.now, self._loop.asleep_until)
        self._stop.set()
        self._loop.call_soon(lambda: None)
        return True

    def sleep(self, seconds: float) -> bool:
        """Stop the process, as SIGSTOP does, for a while; return False if it does not run."""
        if not self.running or self._loop is None:
            return False
        self._loop.asleep_until = self.world.now + seconds
        return True

    def kill(self) -> None:
        """End it as `kill -9` does. Its connections are reset by the kernel."""
        if not self.running or self._loop is None:
            return
        self.kills += 1
        after = self.folder.with_name(f"life-{self.lives + 1}")
        shutil.copytree(self.folder, after)
        self.folder = after
        self._loop.alive = False
        for end in self.network.of(NAME):
            end.reset()
        self.world.disturb()

    def commit(self, journal: Journal, batch: Batch, real: Callable[[Journal, Batch], None]) -> None:
        """Commit, unless the disk is full or this is when it is killed."""
        self.disk.take()
        if not self.running or self.at_commit is None:
            real(journal, batch)
            return
        left, moment, kill = self.at_commit
        self.at_commit = (left - 1, moment, kill)
        files = files_of(self._database)
        if left > 0 or moment != "before":
            real(journal, batch)
        if left == 0:
            kill()
            if moment == "within":
                lose_power(self._database, files, self.disk.flushed, self.world.draw)
            raise Killed

    @contextmanager
    def doors(self) -> Iterator[None]:
        """Lead the doors of the sidecar into this world while the block lasts."""
        world = self.world
        before = random.getstate()
        random.seed(world.seed)
        log = _Log(self)
        logger = logging.getLogger("monitor")
        commit, checkpoint, step = Journal.commit, Journal.checkpoint, Pipeline.step
        sync = HighWaterMark.sync
        as_before = logger.level, logger.propagate

        def heard(pipeline: Pipeline, event: Event) -> Effects:
            effects = step(pipeline, event)
            for notice in effects.notices:
                if isinstance(notice, Judged):
                    self.judged[notice.agent, notice.formula, notice.episode, notice.seq] = notice
            return effects

        def replaced(journal: Journal, *everything: Any, **more: Any) -> None:  # noqa: ANN401 - passed on
            self.disk.take()
            checkpoint(journal, *everything, **more)

        def flushed(mark: HighWaterMark) -> None:
            sync(mark)
            self.disk.flush(mark)

        with ExitStack() as stack:
            for target, name, new in (
                (clock, "time", SimpleNamespace(time=self._wall, monotonic=self._ticks, thread_time=self._work)),
                (tasks, "start_thread", self._start_thread),
                (dial, "socket", SimpleNamespace(create_connection=self._dial, IPPROTO_TCP=socket.IPPROTO_TCP)),
                (sender, "post", self.receivers.post),
                (Journal, "commit", lambda journal, batch: self.commit(journal, batch, commit)),
                (Journal, "checkpoint", replaced),
                (HighWaterMark, "sync", flushed),
                (Pipeline, "step", heard),
            ):
                stack.enter_context(mock.patch.object(target, name, new))
            logger.addHandler(log)
            logger.setLevel(logging.INFO)
            logger.propagate = False
            try:
                yield
            finally:
                logger.removeHandler(log)
                logger.level, logger.propagate = as_before
                random.setstate(before)

    def _wall(self) -> float:
        return self.world.wall

    def _ticks(self) -> float:
        return 1000.0 + self.world.now

    def _work(self) -> float:
        return 0.0 if self._loop is None else self._loop.work

    def _start_thread(self, work: Callable[[], None]) -> None:
        """Do at once, a moment later, what a thread would do meanwhile."""
        assert self._loop is not None
        self._loop.call_later(self.world.draw.uniform(0.0001, 0.005), work)

    def _dial(self, address: tuple[str, int], _timeout: float) -> Socket:
        if not self.running:
            raise ConnectionRefusedError(111, "Connection refused")
        end = self.network.connect(NAME, address[1])
        return Socket(end)


class _Log(logging.Handler):
    """Puts the log of the living into the trace."""

    def __init__(self, sidecar: Sidecar) -> None:
        super().__init__(logging.INFO)
        self._sidecar = sidecar

    def emit(self, record: logging.LogRecord) -> None:
        if self._sidecar.running:
            message = record.getMessage()
            self._sidecar.world.note(f"log {record.levelname} {message}")
            if isinstance(record.exc_info, tuple):
                error = record.exc_info[1]
                self._sidecar.world.errors.append(f"an exception is logged: {message}: {error!r}")


def _bury(loop: VirtualLoop) -> None:
    """End the tasks of a process that is gone, and close what it held open; the world does not notice."""
    loop.alive = False
    while pending := [task for task in asyncio.all_tasks(loop) if not task.done()]:
        for task in pending:
            task.cancel()
        with suppress(Killed):
            loop.run_until_complete(asyncio.wait(pending, timeout=1.0))
    loop.run_until_complete(asyncio.sleep(1.0))
    loop.close()
