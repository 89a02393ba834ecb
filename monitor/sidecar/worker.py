"""One batch at a time: accept steps, answer formulas, write to the store; then acknowledge, publish and show.

Nothing leaves the process, and no step is acknowledged, before it is in the store: a restart loses nothing of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from monitor.errors import RecordingError
from monitor.runtime.monitor import Waiting
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
from monitor.stream.session import is_late
from monitor.types import Alert, Instant, Received

LOG: Final = logging.getLogger("monitor.service")
BACKLOG_MESSAGES: Final = 32
"""Old messages in one batch from which on more are expected to follow; so many steps without a time, of one agent, are
its own backlog, which it sends at once."""

BACKLOG_SECONDS: Final = 60.0
"""Seconds after connecting, or after this process stood still, in which steps may have waited at the broker; and how
long an agent may send its own backlog of steps without a time."""

STOOD_STILL: Final = 2.0
"""Seconds without work between two batches, at least, after which this process must have been suspended."""

BACKLOG_BUDGET: Final = 0.005
"""Seconds an evaluation may take during a backlog. What waits at the broker is fetched first: there a live agent's
steps come after another's backlog, here agents take turns.
"""

RECONNECT_GRACE: Final = 3.0
"""Seconds after connecting in which no time passes for missing steps: agents that lost the broker too are reconnecting,
and what they could not deliver comes after what the broker had. Until then, few messages do not show that all came.
"""

MAX_TOTAL_GRACE: Final = 30.0
"""Total seconds of grace for connections that are lost before it ends. After that, time passes whenever the broker is
reached; else an unstable broker would keep silence from being noticed.
"""

FINAL_WRITE_SECONDS: Final = 0.5
"""Seconds at the end for writing evidence files; the rest stays in the database."""

EVALUATION_PAUSE: Final = 0.02
"""Seconds without an evaluation while only messages of other shards arrive."""

PACE_WEIGHT: Final = 0.1
"""Weight of the newest evaluation in the running estimate of the seconds that one step takes."""


class Worker:
    """Passes one batch after the other through the pipeline, on the loop's thread, each without a pause.

    `acknowledge` tells the broker not to send messages again; the link sets it. `setting` returns what a snapshot
    depends on, at given ticks. Without a store nothing is kept.
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
        self._going: asyncio.TimerHandle | None = None
        self._spared = 0.0
        self._outcomes: list[tuple[Event, Effects]] = []
        self._pace = 0.0
        self._waiting = Waiting(0, None)  # after the last evaluation
        self._live_since = math.inf  # ticks at which what waited at the broker had come, as far as can be seen
        self._reached = 0.0
        self._turned = read_clock().ticks, read_work()  # after the last batch
        self._live = self._late = 0  # steps of this batch: that came as they happened; that have an old time
        self._untimed: Counter[str] = Counter()  # live ones without a time, of each agent
        self._burst_began = self._burst_seen = -math.inf  # ticks
        self._pressure = OverloadDetector(config.stream.max_lag / 2)
        self._failures = self._damages = 0
        self._shard = ShardFilter(config.mqtt)

    async def run(self, stop: asyncio.Event) -> None:
        """Accept what arrives; answer formulas after each batch, and whenever the inbox wakes us; nothing after `stop`.

        What waits then is not lost, however much it is: `end` writes accepted steps to the store, and the broker has
        the others, which are not acknowledged. The next process goes on with both.
        """
        while True:
            # `sleep(0)` lets the network run. `wait` has no timeout: that would cost a task for each single message.
            await (asyncio.sleep(0) if len(self._inbox) or self._waiting.steps else self._inbox.wait())
            if stop.is_set():
                return
            self.turn()

    def turn(self) -> None:
        """Process one batch."""
        self._look_for_pause()
        receipts: list[Receipt] = []
        taken = others = self._live = self._late = 0
        self._untimed.clear()
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
        burst = self._burst()
        if burst or (self._up and self._live_since == math.inf and self._has_fetched(taken)):
            self._live -= burst
            self._live_since = self._clock().ticks + self._config.path.reorder.wait  # so long some may be held back
        if others:
            self._sinks.metrics.others_seen(others)
        if taken > others or not others or self._waiting.steps or self._evaluation_due():
            self._evaluate(backlog=taken - others - self._live >= BACKLOG_MESSAGES)
        self._finish(receipts)
        self._turned = read_clock().ticks, read_work()

    def beat(self) -> None:
        """Publish the heartbeat; try again to write what could not be written."""
        self._step(Heartbeat(self._clock()))
        self._finish()
        if self._store is not None:
            self._store.check_files()
            self._report_store()
            if self._store.problem:
                self.keep_everything()

    def missed(self, why: str) -> None:
        """Begin the paths of all known agents anew, because some of their steps were lost (`why`)."""
        for agent in self.pipeline.agents():
            self._step(Lost(self._clock(), self.pipeline.topic_of(agent), 1, why))
        self.keep_everything()  # at once, so that a crash now does not hide the loss
        self._finish()

    def connected(self, up: bool) -> None:  # noqa: FBT001 - the one thing there is to say
        """Note that the broker was reached or lost."""
        self._up, self._live_since, self._reached = up, math.inf, read_clock().ticks
        loop = asyncio.get_running_loop()
        if self._going is not None:  # the connection before did not last
            self._going.cancel()
            self._spared += RECONNECT_GRACE - max(self._going.when() - loop.time(), 0.0)
        self._going = loop.call_later(RECONNECT_GRACE, self._lasts) if up else None
        self._clock.stop()
        if up and self._spared >= MAX_TOTAL_GRACE:
            self._clock.go()
        self._sinks.metrics.connected(up=up)
        self._step(Connected(self._clock(), up))
        self._finish()

    def _lasts(self) -> None:
        self._going, self._spared = None, 0.0
        self._clock.go()

    async def tidy(self) -> None:
        """Write the evidence in the store to files."""
        if self._store is not None:
            await self._store.file_evidence()
            self._report_store()

    def adopt(self, pipeline: Pipeline, config: Config, publications: Sequence[Publication]) -> None:
        """Go on with another pipeline, which has the state of this one, under another configuration.

        `publications`: what follows from the change. All of it is in the store before any of it is sent.
        """
        self.pipeline, self._config = pipeline, config
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
        except (OSError, RecordingError) as error:  # what it still held does not fit on the disk
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
        """Write the state, so that the next process need not replay events; files only if the disk is quick enough."""
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
                self._count(self._step(Message(entry.now, entry.topic, payload)), entry.now.ticks)
            case Dropped():
                self._step(Lost(entry.now, entry.topic, entry.count))
        return _receipts(entry)

    def _evaluation_due(self) -> bool:
        """Return whether time has to pass although only messages of other shards arrived."""
        return read_clock().ticks - self.evaluated.ticks >= EVALUATION_PAUSE

    def _count(self, effects: Effects, ticks: float) -> None:
        """Count a step that arrived when it happened; a backlog comes all at once and says nothing about the agent.

        The steps of an agent that sends no time count as live once nothing waits at the broker, unless they are many.
        """
        for notice in effects.notices:
            if isinstance(notice, Received):
                if notice.result == "accepted":
                    if notice.lag is None:
                        live = ticks > self._live_since
                        self._untimed[notice.agent] += live
                    else:
                        live = not is_late(notice.lag, self._config.stream.max_lag)
                        self._late += not live
                    self._live += live
                return

    def _has_fetched(self, taken: int) -> bool:
        """Return whether what waited at the broker has come: few messages do, or steps with a time, and none is old.

        Right after connecting few come because the broker has not begun yet. Until all has come, only a step with a
        time is live.
        """
        waited = read_clock().ticks - self._reached
        few = taken < BACKLOG_MESSAGES and waited > RECONNECT_GRACE
        return few or (self._live > 0 and not self._late) or waited > BACKLOG_SECONDS

    def _burst(self) -> int:
        """Return how many steps of this batch are the backlog of agents that send no time; 0: none.

        An agent that goes on like that for `BACKLOG_SECONDS` is just fast.
        """
        steps = sum(count for count in self._untimed.values() if count >= BACKLOG_MESSAGES)
        if not steps:
            return 0
        now = read_clock().ticks
        if now - self._burst_seen > self._config.path.reorder.wait + RECONNECT_GRACE:  # none is noticed for that wait
            self._burst_began = now
        self._burst_seen = now
        return steps if now - self._burst_began <= BACKLOG_SECONDS else 0

    def _look_for_pause(self) -> None:
        """If this process was suspended, what comes next has waited meanwhile."""
        ticks, work = self._turned
        now = read_clock().ticks
        if now - ticks - (read_work() - work) > max(self._config.stream.max_lag, STOOD_STILL):
            self._live_since, self._reached = math.inf, now

    def _evaluate(self, *, backlog: bool) -> None:
        """Answer what is due, as far as the deadline allows; in overload, of live steps only the newest."""
        before, began, since = read_clock(), self._clock(), self._inbox.waiting_since
        # What was left over is older than what came since, and to ask each agent takes long in a backlog.
        oldest = self._waiting.since if self._waiting.steps else self.pipeline.waiting.since
        waited = 0.0 if oldest is None else began.ticks - oldest
        skips = self._live_since < math.inf and self._pressure.overloaded(waited)
        # A missing step may be in our own inbox: no more time has passed for it than until it arrived.
        now = began if since is None else Instant(began.wall, min(began.ticks, since))
        deadline = min(self._config.limits.deadline, BACKLOG_BUDGET) if backlog else self._config.limits.deadline
        steps = max(1, int(deadline / self._pace)) if self._pace else BACKLOG_MESSAGES
        since_when = self._live_since if skips else -math.inf
        effects = self._step(Evaluate(now, latest_only=skips, steps=steps, live_since=since_when))
        self.evaluated = read_clock()
        seconds = self.evaluated.ticks - before.ticks
        self._waiting = self.pipeline.waiting
        answered = self.pipeline.monitor.spent
        if answered and not skips:
            self._pace += (1.0 if not self._pace else PACE_WEIGHT) * (seconds / answered - self._pace)
        fully = not (skips or backlog)  # else the number answered says nothing about capacity
        self._pressure.record_batch(
            self.evaluated.ticks,
            read_work(),
            live=self._live,
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
        """Write what has happened to the store; only then acknowledge, publish and show it."""
        outcomes, self._outcomes = self._outcomes, []
        messages = [message for event, effects in outcomes for message in effects.publications]
        numbered = self._outbox.number(message for message in messages if self._up or not message.repeats)
        evidence = [file for _, effects in outcomes for file in effects.evidence]
        if self._store is not None:
            self._store.hold(evidence)  # before the page lists an alarm, whose evidence somebody may ask for at once
        # The alarm history changes before the commit, which stores its changed rows. If the commit never happens, the
        # broker delivers these messages again, as they are not acknowledged: the same alarms with the same ids follow.
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
        """An evaluation without effect is written with whatever comes next."""
        if self._store is None:
            self._outbox.finished()  # nobody needs them, and they would accumulate
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
        """After a restart, close the listed alarms that are not known to fire any more."""
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
    """Return what acknowledges the messages of an entry of the inbox."""
    if isinstance(entry, Dropped):
        return entry.receipts
    return () if entry.receipt is None else (entry.receipt,)
