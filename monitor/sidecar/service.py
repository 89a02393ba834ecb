"""The sidecar process: it builds and starts the components, reloads the configuration and stops cleanly.

One thread processes steps in order (`worker`); HTTP has a thread of its own. First, the state of an earlier process is
restored (`recovery`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from monitor._version import __version__
from monitor.errors import ConfigError
from monitor.evidence.signing import read_signer
from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.config.reading import check_secrets
from monitor.sidecar.effects import Effects
from monitor.sidecar.gc_tuning import collector_at_ease
from monitor.sidecar.health import Health, tick_of
from monitor.sidecar.log import set_up_logging
from monitor.sidecar.mqtt.dial import SessionConfig
from monitor.sidecar.mqtt.inbox import Inbox
from monitor.sidecar.mqtt.link import BrokerLink
from monitor.sidecar.outbox import Numbers, Outbox
from monitor.sidecar.outboxes import Outboxes
from monitor.sidecar.recording import Header
from monitor.sidecar.recording_formats import new_recorder
from monitor.sidecar.recovery import Recovered, setting_of, steps_left, take_up
from monitor.sidecar.reload import Reloader, check_fixed
from monitor.sidecar.shard_filter import check_store
from monitor.sidecar.signals import when_ended
from monitor.sidecar.sinks.logbook import log_banner, log_watched
from monitor.sidecar.sinks.sinks import Sinks
from monitor.sidecar.store.journal import SnapshotSetting
from monitor.sidecar.store.store import Store
from monitor.sidecar.systemd import ServiceManager, reporting
from monitor.sidecar.tasks import end_tasks, unless
from monitor.sidecar.web.http import Sources, make_app, nothing_kept
from monitor.sidecar.web.pictures import Pictures, command_for
from monitor.sidecar.web.server import HttpServer
from monitor.sidecar.webhooks.webhooks import Webhooks
from monitor.sidecar.worker import Worker
from monitor.types.alerts import Alert

LOG: Final = logging.getLogger("monitor.service")
GOODBYE: Final = 3.5
"""Seconds for the link to end. A sidecar as a whole ends within 5 s of the signal."""

CHECK: Final = 60.0
"""Seconds between two checks of how much evidence was added."""

CHECKS: Final = 60
"""Checks between two removals of old evidence. Evidence is removed sooner if a tenth of `store.size` was added."""


def make_client_id(loaded: Loaded) -> str:
    """Return the configured client id, or else an id made of the host name and the configuration's digest."""
    if loaded.config.mqtt.session is not None:
        return loaded.config.mqtt.session
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", platform.node())[:40] or "cfmon"
    return f"{host}-{loaded.config.digest[:12]}"


class Service:
    """One sidecar. `start` opens the recording and the port, and can fail; `run` works until `stop` is set.

    To drive a service without a network: call `begin`, put messages into `inbox`, process a batch with each
    `worker.turn`, take the published messages from `outbox`, and call `close`.

    `tell` gets a line for each step of the start that takes time; by default the lines are logged. `again` reads the
    configuration again, for `reload`; `manager` is notified of reloads. Raises ConfigError if the store cannot be
    opened. Without the store, the client id under which the broker keeps messages for the monitor is unknown.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        record: Path | None = None,
        tell: Callable[[str], None] | None = None,
        again: Callable[[], Loaded] | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        self.config = loaded.config
        check_secrets(self.config)
        self._loaded = loaded
        self._record = record
        self._tell = tell or LOG.info
        key = self.config.store.signing_key
        self._signer = None if key is None else read_signer(key)
        self.store = None if self.config.store.path is None else Store(self.config.store.path, self._signer)
        if self.store is not None:
            self._check_shard(self.store)
        self.client_id = self._choose_client_id()
        self.clock = Clock()
        self.inbox = Inbox(self.config.limits.queue)
        self.sinks = Sinks(loaded.watched, queue_length=lambda: float(len(self.inbox)))
        numbers = Numbers()
        self.outbox = Outbox(numbers=numbers)
        self.webhooks = self._make_webhooks(numbers)
        self._outgoing = Outboxes(self.outbox, self.webhooks)
        if self.store is not None:
            self.sinks.view.history.load(self.store.kept.alarms)
        self.worker = Worker(
            loaded.pipeline(self.client_id),
            config=self.config,
            clock=self.clock,
            inbox=self.inbox,
            outbox=self._outgoing,
            sinks=self.sinks,
            store=self.store,
            setting=self._setting,
        )
        self._link = self._make_link()
        self.worker.acknowledge = self._link.acknowledge
        self.health = self._make_health()
        self._reloader = None if again is None else self._make_reloader(again, manager or ServiceManager({}))
        self.sources = self._make_sources()
        self._http: HttpServer | None = None

    def start(self, before: HttpServer | None = None) -> str:
        """Open the recording and the port, and return the URL served.

        Raises ConfigError or RecordingError if this fails.

        `before`: the server that has used the port until now.
        """
        try:
            if self.store is not None:
                self.store.keep_objects(self._loaded.objects)
            self._http = HttpServer(make_app(self.sources), self.config.http, before)
            if self._record is not None:
                self.worker.recorder = new_recorder(self._record, self._header(), self.config.mqtt.steps)
            self._http.start()
        except BaseException:
            self.close()
            raise
        log_banner(self._loaded, self.client_id)
        self._tell(f"metrics, health and status page at {self._http.url}")
        if self._http.open:
            LOG.warning(
                "http.listen: everyone who can reach %s can read it. Set http.token_file, or at least http.hosts "
                "to the names it is requested under, which keeps other web pages out",
                self._http.url,
            )
        if self.store is None:
            LOG.warning(
                "store.path is null: a restart loses paths, alarms and unsent alerts; set store.path to keep them"
            )
        if self._signer is not None:
            LOG.info("evidence is signed; the public key's fingerprint is %s", self._signer.fingerprint)
            if self._signer.exposed:
                key = self.config.store.signing_key
                LOG.warning("store.signing_key: everyone on this machine can read %s; chmod 600 keeps it private", key)
        return self._http.url

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. Then stop cleanly: publish the status `offline` and close all files."""
        try:
            if await unless(stop, self.begin()):
                await self._work(stop)
                await self.worker.end()
        finally:
            self.close()

    async def _work(self, stop: asyncio.Event) -> None:
        linking = asyncio.create_task(self._link.run(stop))
        stopping = asyncio.create_task(stop.wait())
        others = [
            self.worker.run(stop),
            self._wake(),
            self._beat(),
            *(sender.run() for sender in self.webhooks.senders),
        ]
        others += [] if self.store is None else [self._tidy(self.store), self._write_files()]
        others += [] if self._reloader is None else [self._reloader.run()]
        tasks = (linking, stopping, *(asyncio.create_task(other) for other in others))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(linking, timeout=GOODBYE)
        finally:
            results = await end_tasks(tasks)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _wake(self) -> None:
        """Wake the worker regularly, so that time passes even if no message arrives."""
        while True:
            await asyncio.sleep(tick_of(self._loaded))
            self.inbox.wake()

    async def _write_files(self) -> None:
        """Write new evidence to files, in a task of its own, so that a slow disk does not delay the worker."""
        while True:
            await asyncio.sleep(tick_of(self._loaded))
            await self.worker.tidy()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.config.heartbeat)
            self.worker.beat()

    async def _tidy(self, store: Store) -> None:
        while True:
            kept, needed = self.config.store, self.worker.pipeline.proofs()
            await store.prune(keep=kept.keep, size=kept.size, needed=needed)
            for _ in range(CHECKS):
                await asyncio.sleep(CHECK)
                if store.filed_bytes > kept.size / 10:
                    break

    # ---- another configuration ----

    def reload(self) -> None:
        """Read the configuration again in a thread, and log its mistakes. Call this on the loop."""
        if self._reloader is None:
            LOG.warning("the configuration cannot be reloaded: this monitor was not started from a file")
        else:
            self._reloader.request()

    def _adopt(self, loaded: Loaded) -> None:
        """Continue with another configuration. If this raises, nothing has changed."""
        pipeline = loaded.pipeline(self.client_id)
        state = self.worker.pipeline.snapshot(everything=True)
        try:
            effects = pipeline.restore(state.common, state.agents, state.pages)
        except Exception:
            self.worker.keep_everything()  # the snapshot above cleared the list of changed agents
            raise
        if loaded.config.logging != self.config.logging:
            set_up_logging(loaded.config.logging)
        self._loaded, self.config = loaded, loaded.config
        log_watched(loaded)
        self.worker.adopt(pipeline, loaded.config, effects.publications)
        self.health.adopt(loaded)
        now = self.clock()
        self.sinks.take_all([(effects, now)])
        self.sinks.adopt(loaded.watched, now)
        self.sinks.recall(pipeline.standing(), now)

    def _make_reloader(self, again: Callable[[], Loaded], manager: ServiceManager) -> Reloader:
        def read() -> Loaded:
            loaded = again()
            check_fixed(self.config, loaded.config)
            if self.store is not None:
                self.store.keep_objects(loaded.objects)
            return loaded

        return Reloader(read, adopt=self._adopt, report=lambda ok: self.sinks.metrics.reloaded(ok=ok), manager=manager)

    # ---- recovery ----

    async def begin(self) -> None:
        """Restore the state of an earlier process. If this fails, set the state aside and begin anew."""
        if self.store is not None:
            kept = self.store.kept
            self._outgoing.put(kept.publications)
            if kept.setting is not None and kept.setting.common is not None:
                try:
                    recovered = await take_up(
                        *(kept, kept.setting, self._loaded, self.client_id, self._progress),
                        incomplete=self.store.incomplete,
                    )
                except Exception as error:
                    LOG.exception("the state in the store cannot be restored; the monitor begins anew")
                    self.store.start_over(str(error))
                    self.worker.pipeline = self._loaded.with_formulas(self._loaded.formulas).pipeline(self.client_id)
                else:
                    self._continue(recovered)
            self.worker.close_unknown_alarms()
            if self.store.incomplete:
                self.worker.missed(f"the store was damaged: {self.store.incomplete}")
            else:
                self.worker.keep_everything()
        self.health.starting = ""
        self.worker.connected(False)  # noqa: FBT003 - the broker is not reached yet

    def _progress(self, count: int) -> None:
        self.worker.evaluated = now = read_clock()
        self.sinks.metrics.evaluated(0.0, (), now)
        self.health.starting = f"restoring stored state: {count} events so far"

    def _continue(self, recovered: Recovered) -> None:
        self.clock.resume(recovered.ticks)
        self.worker.evaluated = read_clock()
        self.worker.pipeline = recovered.pipeline
        now, standing = self.clock(), recovered.pipeline.standing()
        known = frozenset(standing.publications)  # published earlier, on a former topic
        self._outgoing.put(self._outgoing.number(recovered.publications, known=known))
        self.sinks.view.history.note(recovered.publications)
        self.sinks.take_all([(Effects(recovered.publications), now)])
        self.sinks.recall(standing, now)
        if self.worker.recorder is not None:
            LOG.warning("the recording begins in the middle: a replay of it starts without the restored state")
        firing = sum(isinstance(notice, Alert) for notice in standing.notices)
        LOG.info(
            "restored the stored state; alarms firing: %d, messages still to be sent: %d",
            firing,
            len(self._outgoing.waiting()),
        )

    # ---- setting up and closing ----

    def _check_shard(self, store: Store) -> None:
        try:
            check_store(store.kept, self.config.mqtt)
        except ConfigError:
            store.close()
            raise

    def _choose_client_id(self) -> str:
        """Return the configured client id, else the id in the store, else a new id (`make_client_id`).

        Under the id in the store, the broker keeps messages that the monitor has not seen.
        """
        setting = None if self.store is None else self.store.kept.setting
        if self.config.mqtt.client_id is not None or setting is None:
            return make_client_id(self._loaded)
        return setting.client_id

    def _setting(self, ticks: float) -> SnapshotSetting:
        return setting_of(self._loaded, self.client_id, ticks)

    def _make_link(self) -> BrokerLink:
        mqtt = self.config.mqtt
        session = SessionConfig(
            broker=mqtt.broker,
            client_id=self.client_id,
            steps=mqtt.steps,
            status_topic=self.worker.pipeline.status_topic,
            keepalive=mqtt.keepalive,
            left=None if self.store is None else steps_left(self.store.kept.setting, mqtt.steps),
            version=mqtt.version,
        )
        return BrokerLink(session, self.inbox, self.outbox, self.worker.connected, self.clock)

    def _make_webhooks(self, numbers: Numbers) -> Webhooks:
        metrics = self.sinks.metrics
        webhooks = Webhooks(
            self.config.webhooks, self.client_id, numbers, settled=self.inbox.wake, report=metrics.count_posts
        )
        for name, outbox in webhooks.outboxes.items():
            metrics.watch_posts(name, partial(len, outbox))
        return webhooks

    def _make_health(self) -> Health:
        return Health(
            self._loaded,
            self.client_id,
            clock=read_clock,
            evaluated=lambda: self.worker.evaluated,
            inbox=self.inbox,
            outbox=self.outbox,
            link=self._link,
            webhooks=self.webhooks,
            view=self.sinks.view,
            store=self.store,
        )

    def _make_sources(self) -> Sources:
        place = self.config.store.path
        evidence: Callable[[str], bytes | None] = _nothing if self.store is None else self.store.read_evidence
        return Sources(
            view=self.sinks.view,
            exposition=self.sinks.metrics.exposition,
            evidence=evidence,
            signature=_nothing if self.store is None else self.store.read_signature,
            objects=nothing_kept if self.store is None else self.store.read_object,
            health=self.health.health,
            readiness=self.health.readiness,
            status=self.health.status,
            starting=lambda: self.health.starting,
            pictures=Pictures(
                evidence,
                Path("objects") if place is None else place.parent / "objects",
                command_for([self.config.model, *self.config.models.values()]),
                failed=self.sinks.metrics.picture_failed,
            ),
        )

    def _header(self) -> Header:
        return Header(self.client_id, self.config.digest, self._loaded.identity.model_sha256, __version__)

    def close(self) -> None:
        """End the recording, and close the store and the port."""
        self.worker.end_recording()
        if self.store is not None:
            self.store.close()
        if self._http is not None:
            self._http.stop()


def _nothing(_name: str) -> None:
    """Return None, because no evidence is kept without a store."""


async def _run_until_signalled(service: Service, manager: ServiceManager) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        manager.stopping()
        stop.set()

    loop.add_signal_handler(signal.SIGHUP, service.reload)
    try:
        with (
            when_ended(end),
            collector_at_ease(),
            reporting(manager, service.health.health, service.health.readiness),
        ):
            await service.run(stop)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def serve(
    loaded: Loaded,
    *,
    record: Path | None = None,
    tell: Callable[[str], None] | None = None,
    again: Callable[[], Loaded] | None = None,
    started: Callable[[Sources, str], None] | None = None,
    before: HttpServer | None = None,
) -> int:
    """Run a sidecar until one of `ending_signals` arrives; return the exit code. Raises errors that the user caused.

    `again` reads the configuration again at each SIGHUP; without `again` there is no reload. `started` is called once,
    with the sources of the served pages and the URL. `before`: the server that has answered probes until now; it is
    stopped.
    """
    set_up_logging(loaded.config.logging)
    manager = ServiceManager(os.environ)
    service = Service(loaded, record=record, tell=tell, again=again, manager=manager)
    url = service.start(before)
    if before is not None:
        before.stop()
    if started is not None:
        started(service.sources, url)
    manager.ready()
    asyncio.run(_run_until_signalled(service, manager))
    return 0


def run(config: str | Path, *, record: Path | None = None, tell: Callable[[str], None] | None = None) -> int:
    """Read a configuration and run the sidecar that it describes; return the exit code.

    Raises errors that the user caused.
    """
    return serve(assemble(config), record=record, tell=tell, again=partial(assemble, config))
