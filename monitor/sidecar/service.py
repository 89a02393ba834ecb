"""The sidecar as it runs: the broker on one side, metrics and evidence on the other, the pipeline between.

One thread takes steps over, in order, one after the other; HTTP has a thread of its own. A message is acknowledged once
the pipeline has taken it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from monitor._version import __version__
from monitor.sidecar.board import Board
from monitor.sidecar.clock import read_clock
from monitor.sidecar.collector import collector_at_ease
from monitor.sidecar.config import check_secrets
from monitor.sidecar.connection import BURST, Session
from monitor.sidecar.door import Arrived, Door, Dropped
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.http import HttpServer, Sources, make_app
from monitor.sidecar.load import Loaded, assemble
from monitor.sidecar.log import set_up_logging
from monitor.sidecar.metrics import Metrics
from monitor.sidecar.mqtt import Link
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.pipeline import Effects
from monitor.sidecar.recording import Header, Recorder
from monitor.sidecar.store import Store
from monitor.sidecar.tasks import end_tasks
from monitor.types import Instant, Judged, Received

__all__ = ["Service", "make_client_id", "run", "serve"]

LOG: Final = logging.getLogger("monitor.service")
BATCH: Final = 32
"""Messages taken over before formulas are answered: enough to make it worth it, few enough to stay prompt."""

CROWDED: Final = 4 * BATCH
"""Messages waiting from which on only the newest step of each agent is answered."""


def make_client_id(loaded: Loaded) -> str:
    """The configured id, or host name and digest of the configuration: two sidecars never collide."""
    if loaded.config.mqtt.client_id is not None:
        return loaded.config.mqtt.client_id
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", platform.node())[:40] or "cfmon"
    return f"{host}-{loaded.config.digest[:12]}"


class Service:
    """One sidecar. `start` opens what can fail at start (store, recording, port); `run` works until told to stop.

    `tell` gets a line for each thing a person waits for at start; by default it is logged.
    """

    def __init__(
        self, loaded: Loaded, *, record: Path | None = None, tell: Callable[[str], None] | None = None
    ) -> None:
        self.config = loaded.config
        self.client_id = make_client_id(loaded)
        self._loaded = loaded
        self._record = record
        self._tell = tell or LOG.info
        self._door = Door(self.config.limits.queue, slack=BURST)
        self._outbox = Outbox()
        self._pipeline = loaded.pipeline(self.client_id)
        self._board = Board(loaded.formulas, self.config.mqtt.alerts)
        self._metrics = Metrics(
            loaded.formulas,
            loaded.identity,
            agents=self.config.limits.agents,
            queue_length=lambda: float(len(self._door)),
        )
        self._link = self._make_link()
        self._late = False
        self._undecided: set[str] = set()
        self._evaluated = read_clock()
        self._recorder: Recorder | None = None
        self._store: Store | None = None
        self._http: HttpServer | None = None

    def start(self) -> str:
        """Open the store, the recording and the port; returns the URL served. ConfigError or RecordingError if not."""
        check_secrets(self.config)
        try:
            self._store = Store(self.config.store.path)
            self._store.keep_objects(self._loaded.objects())
            self._http = HttpServer(make_app(self._sources(self._store)), self.config.http)
            if self._record is not None:
                self._recorder = Recorder(self._record, self._header())
            self._http.start()
        except BaseException:
            self._close()
            raise
        self._tell(f"metrics, health and status page at {self._http.url}")
        return self._http.url

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then end cleanly: nothing half done, the status `offline`, every file closed."""
        working = asyncio.create_task(self._work())
        knocking = asyncio.create_task(self._knock())
        beating = asyncio.create_task(self._beat())
        linking = asyncio.create_task(self._link.run(stop))
        stopping = asyncio.create_task(stop.wait())
        tasks = (working, knocking, beating, linking, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(linking, timeout=5.0)
        finally:
            results = await end_tasks(tasks)
            self._close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    # ---- what happens ----

    async def _work(self) -> None:
        """Take over what comes through the door; answer formulas after each batch, and at least every tick."""
        while True:
            # Else let the network in. No timeout here: it would cost a task for each message that comes alone.
            await (asyncio.sleep(0) if len(self._door) else self._door.wait())
            for _ in range(BATCH):
                if (entry := self._door.take()) is None:
                    break
                self._take_over(entry)
            self._evaluate()

    async def _knock(self) -> None:
        """Time passes also where nothing comes."""
        tick = self._tick()
        while True:
            await asyncio.sleep(tick)
            self._door.knock()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.config.heartbeat)
            self._apply(Heartbeat(read_clock()))

    def _take_over(self, entry: Arrived | Dropped) -> None:
        match entry:
            case Arrived():
                self._apply(Message(entry.now, entry.topic, entry.payload))
                receipts = [] if entry.receipt is None else [entry.receipt]
            case Dropped():
                self._apply(Lost(entry.now, entry.topic, entry.count))
                receipts = entry.receipts
        for receipt in receipts:
            self._link.acknowledge(receipt)

    def _evaluate(self) -> None:
        began = read_clock()
        # A step that is awaited may be waiting at our own door: no more time has passed for it than until it came.
        ticks = self._door.waiting_since
        now = began if ticks is None else Instant(began.wall, min(began.ticks, ticks))
        effects = self._apply(Evaluate(now, latest_only=self._late or len(self._door) > CROWDED))
        self._evaluated = read_clock()
        seconds = self._evaluated.ticks - began.ticks
        self._late = seconds > self.config.limits.deadline
        self._metrics.evaluated(seconds, effects.notices, self._evaluated)

    def _changed(self, up: bool) -> None:  # noqa: FBT001 - the one thing there is to say
        self._metrics.connected(up=up)
        self._apply(Connected(read_clock(), up))

    def _apply(self, event: Event) -> Effects:
        """Let one event happen: note it, take it over, keep evidence, then publish and show."""
        self._note(event)
        effects = self._pipeline.step(event)
        self._keep_evidence(effects)
        for publication in effects.publications:
            if self._link.up or not publication.repeats:
                self._outbox.put(publication)
        self._metrics.take(effects.notices, event.now)
        self._board.take(effects, event.now)
        for notice in effects.notices:
            if isinstance(notice, Received) and notice.detail:
                LOG.debug("message of %s %s: %s %s", notice.agent or "?", notice.result, notice.reason, notice.detail)
            if isinstance(notice, Judged) and notice.verdict.reason and notice.formula not in self._undecided:
                self._undecided.add(notice.formula)
                LOG.warning("formula %s is undecided: %s", notice.formula, notice.verdict.reason)
        return effects

    def _note(self, event: Event) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.write(event)
            if isinstance(event, Heartbeat):
                self._recorder.flush()
        except OSError as error:  # watching matters more than recording
            LOG.error("the recording ends here: %s", error)  # noqa: TRY400 - no bug, no traceback
            self._recorder.abandon()
            self._recorder = None

    def _keep_evidence(self, effects: Effects) -> None:
        for file in effects.evidence:
            try:
                assert self._store is not None, "start was called"
                self._store.keep_evidence(file)
            except OSError as error:  # the alarm goes out all the same; that its proof is missing is counted
                self._metrics.store_failed()
                LOG.error("evidence %s could not be kept: %s", file.id, error)  # noqa: TRY400 - no bug, no traceback

    # ---- how we are ----

    def _sources(self, store: Store) -> Sources:
        return Sources(
            board=self._board,
            exposition=self._metrics.exposition,
            evidence=store.read_evidence,
            health=self._health,
            readiness=self._readiness,
            status=self._status,
        )

    def _health(self) -> str:
        """What is wrong with this process: formulas are looked at every tick, so a long silence means that we hang."""
        age = read_clock().ticks - self._evaluated.ticks
        limit = 3 * self.config.heartbeat
        return f"no evaluation for {age:.1f} s, expected every {self._tick():.1f} s" if age > limit else ""

    def _readiness(self) -> str:
        if not self._link.up:
            return "not connected to the broker"
        return "" if self._board.seeing() else "every formula is blind"

    def _status(self) -> dict[str, Any]:
        identity = self._loaded.identity
        return {
            "version": __version__,
            "client_id": self.client_id,
            "broker": self.config.mqtt.broker.address,
            "connected": self._link.up,
            "queue": len(self._door),
            "unsent": len(self._outbox),
            "model": {"name": identity.model_name, "sha256": identity.model_sha256},
            "policies": [{"name": name, "sha256": sha256} for name, sha256 in sorted(identity.policies.items())],
        }

    # ---- setting up and closing ----

    def _tick(self) -> float:
        """Seconds between two looks at the clock: a quarter of the shortest time anything waits for."""
        waits = [self.config.path.reorder.wait, self.config.stream.stale_after, self.config.heartbeat]
        waits += [formula.every for formula in self.config.formulas if isinstance(formula.every, float)]
        return min(max(min(waits) / 4, 0.02), 1.0)

    def _make_link(self) -> Link:
        mqtt = self.config.mqtt
        session = Session(
            broker=mqtt.broker,
            client_id=self.client_id,
            steps=mqtt.steps,
            status_topic=self._pipeline.status_topic,
            keepalive=mqtt.keepalive,
        )
        return Link(session, self._door, self._outbox, self._changed)

    def _header(self) -> Header:
        return Header(self.client_id, self.config.digest, self._loaded.identity.model_sha256, __version__)

    def _close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        if self._http is not None:
            self._http.stop()


async def _run_until_signalled(service: Service) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, LOG.warning, "SIGHUP is ignored: restart to read the configuration again")
    try:
        with collector_at_ease():
            await service.run(stop)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def serve(loaded: Loaded, *, record: Path | None = None, tell: Callable[[str], None] | None = None) -> int:
    """Run a sidecar in this process until SIGTERM or SIGINT; returns the exit code. Errors of the user are raised."""
    set_up_logging(loaded.config.logging)
    service = Service(loaded, record=record, tell=tell)
    service.start()
    asyncio.run(_run_until_signalled(service))
    return 0


def run(config: str | Path, *, record: Path | None = None, tell: Callable[[str], None] | None = None) -> int:
    """Read a configuration and run the sidecar it describes; returns the exit code. Errors of the user are raised."""
    return serve(assemble(config), record=record, tell=tell)
