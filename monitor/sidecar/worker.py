"""Process one batch at a time: accept steps, evaluate formulas, write to the store; then acknowledge, publish and show.

Messages are sent and steps are acknowledged only after they are in the store, so a restart does not lose them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from monitor.errors import RecordingError
from monitor.runtime.monitor import Waiting
from monitor.sidecar.backlog import BACKLOG_MESSAGES, RECONNECT_GRACE, BacklogDetector
from monitor.sidecar.clock import Clock, read_clock, read_work
from monitor.sidecar.config.load import BATCH
from monitor.sidecar.config.settings import Config
from monitor.sidecar.effects import Effects, EvidenceFile, Publication
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.mqtt.inbox import Arrived, Dropped, Inbox, Receipt
from monitor.sidecar.outboxes import Outboxes
from monitor.sidecar.overload import OverloadDetector
from monitor.sidecar.parquet_recorder import ParquetRecorder
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.recording import Recorder
from monitor.sidecar.shard_filter import ShardFilter
from monitor.sidecar.sinks.sinks import Sinks
from monitor.sidecar.store.alarm_history import HistoryChanges
from monitor.sidecar.store.journal import SnapshotSetting
from monitor.sidecar.store.store import Store
from monitor.types.alerts import Alert
from monitor.types.stream_events import Instant

LOG: Final = logging.getLogger("monitor.service")
BACKLOG_BUDGET: Final = 0.005
"""Seconds that an evaluation may take during a backlog. The time is short, so that waiting messages are soon fetched
from the broker. At the broker, a live agent's steps wait behind another agent's backlog; here, agents take turns."""

MAX_TOTAL_GRACE: Final = 30.0
"""Maximum sum of `RECONNECT_GRACE` over connections that were lost before their grace ended. After this sum is used up,
time passes whenever the broker is reached. Otherwise an unstable broker would hide that agents are silent."""

FINAL_WRITE_SECONDS: Final = 0.5
"""Seconds at the end for writing evidence files. Evidence that is not written by then stays in the database."""

EVALUATION_PAUSE: Final = 0.02
"""Seconds without an evaluation while only messages of other shards arrive."""

PACE_WEIGHT: Final = 0.1
"""Weight of the newest evaluation in the running estimate of the seconds that one step takes."""


class Worker:
    """Passes one batch after the other through the pipeline, on the loop's thread.

    Other tasks do not run during a batch.

    `acknowledge` acknowledges messages to the broker; the link sets it. `setting` returns the `SnapshotSetting` at
    given ticks.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        config: Config,
        clock: Clock,
        inbox: Inbox,
        outbox: Outboxes,
        sinks: Sinks,
        store: Store | None,
        setting: Callable[[float], SnapshotSetting],
    ) -> None:
        self.pipeline = pipeline
        self.acknowledge: Callable[[Sequence[Receipt]], None] = lambda _receipts: None
        self.recorder: Recorder | ParquetRecorder | None = None
        self.evaluated = read_clock()
        self._config = config
        self._clock = clock
        self._inbox = inbox
        self._outbox = outbox
        self._sinks = sinks
        self._store = store
        self._setting = setting
        self._up = False
        self._grace_timer: asyncio.TimerHandle | None = None
        self._grace_spent = 0.0
        self._outcomes: list[tuple[Event, Effects]] = []
        self._pace = 0.0
        self._waiting = Waiting(0, None)  # after the last evaluation
        self._backlog = BacklogDetector(config, clock)
        self._pressure = OverloadDetector(config.stream.max_lag / 2)
        self._failures = self._damages = 0
        self._shard = ShardFilter(config.mqtt)

    async def run(self, stop: asyncio.Event) -> None:
        """Process batches of messages, and evaluate whenever the inbox is woken, until `stop` is set.

        Waiting steps are not lost: `end` writes accepted steps to the store, and the broker still has the other steps,
        which are not acknowledged.
        """
        while True:
            # `sleep(0)` lets the network run. `wait` has no timeout, because a timeout would cost a task for each
            # message.
            await (asyncio.sleep(0) if len(self._inbox) or self._waiting.steps else self._inbox.wait())
            if stop.is_set():
                return
            self.turn()

    def turn(self) -> None:
        """Process one batch."""
        self._backlog.begin_batch()
        receipts: list[Receipt] = []
        taken = others = 0
        most = min(BATCH, self._config.limits.queue - self._waiting.steps)
        while taken < most:
            if (entry := self._inbox.take()) is None:
                break
            taken += 1
            if not self._shard.takes(entry.topic):
                others += 1
                receipts += _receipts(entry)  # acknowledged in order, as MQTT requires
                continue
            receipts += self._accept(entry)
        self._backlog.all_counted(taken, up=self._up)
        if others:
            self._sinks.metrics.others_seen(others)
        if taken > others or not others or self._waiting.steps or self._evaluation_due():
            self._evaluate(backlog=taken - others - self._backlog.live >= BACKLOG_MESSAGES)
        self._finish(receipts)
        self._backlog.end_batch()

    def beat(self) -> None:
        """Publish the heartbeat. If a write failed before, write the whole state again."""
        self._step(Heartbeat(self._clock()))
        self._finish()
        if self._store is not None:
            self._store.check_files()
            self._report_store()
            if self._store.problem:
                self.keep_everything()

    def missed(self, why: str) -> None:
        """Begin new paths for all known agents, because some of their steps were lost (`why`)."""
        for agent in self.pipeline.agents():
            self._step(Lost(self._clock(), self.pipeline.topic_of(agent), 1, why))
        self.keep_everything()  # at once, so that a crash now does not hide the loss
        self._finish()

    def connected(self, up: bool) -> None:  # noqa: FBT001 - the only argument
        """Record that the broker was reached or lost."""
        self._up = up
        self._backlog.expect()
        loop = asyncio.get_running_loop()
        if self._grace_timer is not None:  # the former connection was lost early
            self._grace_timer.cancel()
            self._grace_spent += RECONNECT_GRACE - max(self._grace_timer.when() - loop.time(), 0.0)
        self._grace_timer = loop.call_later(RECONNECT_GRACE, self._end_grace) if up else None
        self._clock.stop()
        if up and self._grace_spent >= MAX_TOTAL_GRACE:
            self._clock.go()
        self._sinks.metrics.connected(up=up)
        self._step(Connected(self._clock(), up))
        self._finish()

    def _end_grace(self) -> None:
        self._grace_timer, self._grace_spent = None, 0.0
        self._clock.go()

    async def tidy(self) -> None:
        """Write the evidence in the store to files."""
        if self._store is not None:
            await self._store.file_evidence()
            self._report_store()

    def adopt(self, pipeline: Pipeline, config: Config, publications: Sequence[Publication]) -> None:
        """Continue with another pipeline and configuration. The new pipeline has the state of the former pipeline.

        `publications`: messages that the change requires. All of them are in the store before one is sent.
        """
        self.pipeline, self._config, self._backlog.config = pipeline, config, config
        self._waiting = pipeline.waiting
        self._pressure = OverloadDetector(config.stream.max_lag / 2)
        self._pace = 0.0
        self._outbox.put(self._outbox.number(publications))
        self._sinks.view.history.note(publications)
        self.keep_everything()
        if self.recorder is not None:
            LOG.warning("the recording ends here, because another configuration is in force")
            self.end_recording()

    def end_recording(self) -> None:
        """Finish the recording, if there is one."""
        if self.recorder is None:
            return
        try:
            self.recorder.close()
        except (OSError, RecordingError) as error:  # the last events do not fit on the disk
            LOG.error("the end of the recording could not be written: %s", error)  # noqa: TRY400 - no bug, no traceback
        self.recorder = None

    def keep_everything(self) -> None:
        """Write the whole state, replacing everything in the store."""
        if self._store is not None:
            snapshot = self.pipeline.snapshot(everything=True)
            self._outbox.finished()
            setting, alarms = self._setting(self._clock().ticks), self._sinks.view.history.rows()
            self._store.replace(setting, snapshot, self._outbox.waiting(), alarms)
            self._report_store()

    def keep_changes(self) -> None:
        """Write the state of the agents that changed, replacing the events since the last snapshot."""
        if self._store is not None:
            setting, finished = self._setting(self._clock().ticks), self._outbox.finished()
            self._store.checkpoint(setting, self.pipeline.snapshot(), finished)
            self._report_store()

    async def end(self) -> None:
        """Write the state, so that the next process need not replay events.

        Write evidence files if the disk is fast enough.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.tidy(), FINAL_WRITE_SECONDS)
        if self._store is not None and self._store.problem:
            self.keep_everything()
        else:
            self.keep_changes()

    # ---- one batch ----

    def _accept(self, entry: Arrived | Dropped) -> Sequence[Receipt]:
        match entry:
            case Arrived():
                # A longer payload is rejected; one byte more than the limit is enough to see that.
                payload = entry.payload[: self._config.limits.message_bytes + 1]
                self._backlog.count(self._step(Message(entry.now, entry.topic, payload)).notices, entry.now.ticks)
            case Dropped():
                self._step(Lost(entry.now, entry.topic, entry.count))
        return _receipts(entry)

    def _evaluation_due(self) -> bool:
        """Return whether to evaluate although only messages of other shards arrived."""
        return read_clock().ticks - self.evaluated.ticks >= EVALUATION_PAUSE

    def _evaluate(self, *, backlog: bool) -> None:
        """Evaluate due formulas as far as the deadline allows.

        In overload, evaluate only each agent's newest live step.
        """
        before, began, since = read_clock(), self._clock(), self._inbox.waiting_since
        # Steps left over from the last evaluation are older than new steps, so a search of all agents is not needed.
        # Such a search takes long in a backlog.
        oldest = self._waiting.since if self._waiting.steps else self.pipeline.waiting.since
        waited = 0.0 if oldest is None else began.ticks - oldest
        skips = self._backlog.live_since < math.inf and self._pressure.overloaded(waited)
        # A missing step may be in the inbox. For missing steps, time therefore passes only until the arrival of the
        # oldest entry of the inbox.
        now = began if since is None else Instant(began.wall, min(began.ticks, since))
        deadline = min(self._config.limits.deadline, BACKLOG_BUDGET) if backlog else self._config.limits.deadline
        steps = max(1, int(deadline / self._pace)) if self._pace else BACKLOG_MESSAGES
        since_when = self._backlog.live_since if skips else -math.inf
        effects = self._step(Evaluate(now, latest_only=skips, steps=steps, live_since=since_when))
        self.evaluated = read_clock()
        seconds = self.evaluated.ticks - before.ticks
        self._waiting = self.pipeline.waiting
        answered = self.pipeline.monitor.spent
        if answered and not skips:
            self._pace += (1.0 if not self._pace else PACE_WEIGHT) * (seconds / answered - self._pace)
        fully = not (skips or backlog)  # otherwise the number of evaluated steps says nothing about capacity
        self._pressure.record_batch(
            self.evaluated.ticks,
            read_work(),
            live=self._backlog.live,
            answered=answered if fully else None,
            left=self._waiting.steps > 0,
        )
        self._sinks.metrics.evaluated(seconds, effects.notices, self.evaluated)

    def _step(self, event: Event) -> Effects:
        self._record(event)
        effects = self.pipeline.step(event)
        self._outcomes.append((event, effects))
        if self._store is not None:
            self._store.note(event)
        return effects

    def _finish(self, receipts: Sequence[Receipt] = ()) -> None:
        """Write events and effects to the store; only then acknowledge, publish and show them."""
        outcomes, self._outcomes = self._outcomes, []
        messages = [message for event, effects in outcomes for message in effects.publications]
        numbered = self._outbox.number(message for message in messages if self._up or not message.repeats)
        evidence = [file for _, effects in outcomes for file in effects.evidence]
        if self._store is not None:
            self._store.hold(evidence)  # before the page lists the alarm and its evidence is requested
        # The alarm history changes before the commit, and the commit stores the changed rows. If the commit never
        # happens, the broker delivers the unacknowledged messages again, and they lead to the same alarms with the same
        # ids.
        self._keep(outcomes, numbered, evidence, self._sinks.view.history.note(messages))
        if receipts:
            self.acknowledge(receipts)
        self._outbox.put(numbered)
        self._sinks.take_all([(effects, event.now) for event, effects in outcomes])

    def _keep(
        self,
        outcomes: Sequence[tuple[Event, Effects]],
        numbered: Sequence[tuple[int, Publication]],
        evidence: Sequence[EvidenceFile],
        alarms: HistoryChanges,
    ) -> None:
        """Commit the outcomes. Evaluations without effect wait for the next commit."""
        if self._store is None:
            self._outbox.finished()  # without a store nobody needs these numbers, and they would accumulate
            return
        relevant = any(effects.notices or not isinstance(event, Evaluate) for event, effects in outcomes)
        if not (numbered or relevant or self._outbox.has_finished):
            return
        lasting = [(number, message) for number, message in numbered if not message.repeats]
        self._store.commit(lasting, evidence, self._outbox.finished(), alarms)
        if self._store.snapshot_due:
            self.keep_changes()
        self._report_store()

    # ---- reporting ----

    def close_unknown_alarms(self) -> None:
        """After a restart, close the listed alarms that are not known to fire."""
        standing = self.pipeline.standing()
        self._sinks.view.history.mark_unknown({notice.id for notice in standing.notices if isinstance(notice, Alert)})

    def _report_store(self) -> None:
        assert self._store is not None, "called with a store only"
        if self._store.damages > self._damages:
            self._sinks.metrics.store_damaged(self._store.damages - self._damages, self._clock())
            self._damages = self._store.damages
        if self._store.failures > self._failures:
            self._failures = self._store.failures
            self._sinks.metrics.store_failed()
        elif self._store.ok:
            self._sinks.metrics.store_works()

    def _record(self, event: Event) -> None:
        if self.recorder is None:
            return
        try:
            self.recorder.write(event)
            if isinstance(event, Heartbeat):
                self.recorder.flush()
        except (OSError, RecordingError) as error:  # watching matters more than recording
            LOG.error("the recording ends here: %s", error)  # noqa: TRY400 - no bug, no traceback
            self.recorder.abandon()
            self.recorder = None


def _receipts(entry: Arrived | Dropped) -> Sequence[Receipt]:
    """Return the receipts that acknowledge the messages of an inbox entry."""
    if isinstance(entry, Dropped):
        return entry.receipts
    return () if entry.receipt is None else (entry.receipt,)
