"""What happens in a sidecar, in order: taken over, answered, noted, and only then acknowledged, published and shown.

So nothing leaves the process, and no step is acknowledged, before a restart would know of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from monitor.alarm.summary import departing_text
from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.config.load import BATCH
from monitor.sidecar.config.settings import Config
from monitor.sidecar.effects import Effects, Publication
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.log import Seldom
from monitor.sidecar.mqtt.inbox import (
    Arrived,
    Dropped,
    Inbox,
    Receipt,
)
from monitor.sidecar.mqtt.outbox import Outbox
from monitor.sidecar.overload import OverloadDetector
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.recording import Recorder
from monitor.sidecar.sinks.logbook import Logbook
from monitor.sidecar.sinks.metrics import Metrics
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.store.alarm_history import Changes
from monitor.sidecar.store.journal import Setting
from monitor.sidecar.store.store import Store
from monitor.types import Alert, Forgotten, Instant, Judged, Notice, Received, RewardMismatch, Skipped, Trust

__all__ = ["Worker"]

LOG: Final = logging.getLogger("monitor.service")
FLOOD: Final = 32
"""Old messages in one batch that show that more of them are on their way."""

FETCHING: Final = 60.0
"""Seconds after the broker is reached in which steps without a time may be such as waited there."""

BRIEF: Final = 0.005
"""Seconds an evaluation may take then. First what waits at the broker is fetched, for there a live agent's steps stand
behind another's backlog; here agents take turns.
"""

GRACE: Final = 3.0
"""Seconds after the broker is reached in which no time passes for steps that are awaited: agents that lost it too are
still finding back, and what they could not deliver comes after what the broker had."""

MERCY: Final = 30.0
"""Seconds of that, all together, for connections that are lost before it is over. After that time passes whenever the
broker is reached, or one that comes and goes would keep silence from being noticed for ever.
"""

FILING: Final = 0.5
"""Seconds at the end for evidence to become files; what does not, stands in the database."""

LOST: Final = frozenset({"gap", "conflict", "stale", "dropped", "rejected"})
"""What a message can come to of which no step is taken over, or before which one is missing."""

MEMORY: Final = 0.1
"""Weight of the newest evaluation in the running estimate of what the answers to a step take."""


class Worker:
    """One batch after the other through the pipeline. All of it runs on the loop's thread, a batch without a pause.

    `acknowledge` tells the broker that a message is taken over; the link sets it. `setting` says under which
    circumstances a snapshot is taken. Without a store nothing is kept.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        config: Config,
        clock: Clock,
        door: Inbox,
        outbox: Outbox,
        metrics: Metrics,
        board: StatusView,
        store: Store | None,
        setting: Callable[[float], Setting],
    ) -> None:
        self.pipeline = pipeline
        self.acknowledge: Callable[[Receipt], None] = lambda _receipt: None
        self.recorder: Recorder | None = None
        self.evaluated = read_clock()
        self._config = config
        self._clock = clock
        self._door = door
        self._outbox = outbox
        self._metrics = metrics
        self._board = board
        self._store = store
        self._setting = setting
        self._up = False
        self._going: asyncio.TimerHandle | None = None
        self._spared = 0.0
        self._outcomes: list[tuple[Event, Effects]] = []
        self._pace = 0.0
        self._left = 0  # steps that waited for answers after the last evaluation
        self._caught_up = False  # what waited at the broker when it was reached is taken over, as far as can be seen
        self._reached = 0.0
        self._live = 0  # steps of this batch that came as they happened
        self._pressure = OverloadDetector(config.stream.max_lag / 2)
        self._failures = self._damages = 0
        self._undecided: set[str] = set()
        self._seldom = Seldom(LOG)
        self.logbook = Logbook(config.mqtt.alerts)

    async def run(self) -> None:
        """Take over what comes through the door; answer formulas after each batch, and at each knock."""
        while True:
            # Else let the network in. No timeout here: it would cost a task for each message that comes alone.
            await (asyncio.sleep(0) if len(self._door) or self._left else self._door.wait())
            self.turn()

    def turn(self) -> None:
        """One batch."""
        receipts: list[Receipt] = []
        taken = self._live = 0
        room = self._config.limits.queue - self._left
        while taken < min(BATCH, room):
            if (entry := self._door.take()) is None:
                break
            taken += 1
            receipts += self._take_over(entry)
        fetched = taken < FLOOD or read_clock().ticks - self._reached > FETCHING
        self._caught_up = self._caught_up or (self._up and fetched)
        self._evaluate(flood=taken - self._live >= FLOOD)
        self._settle(receipts)

    def beat(self) -> None:
        """Say that we are alive; try again what could not be kept."""
        self._step(Heartbeat(self._clock()))
        self._settle()
        if self._store is not None:
            self._store.look()
            self._tell_store()
            if self._store.problem:
                self.keep_everything()

    def missed(self, why: str) -> None:
        """What happened to the agents we know is not known from some time on: their paths begin anew."""
        for agent in self.pipeline.agents():
            self._step(Lost(self._clock(), self.pipeline.topic_of(agent), 1, why))
        self.keep_everything()  # at once with what was taken up: what is missing must not be forgotten in between
        self._settle()

    def connected(self, up: bool) -> None:  # noqa: FBT001 - the one thing there is to say
        """The broker was reached or lost."""
        self._up, self._caught_up, self._reached = up, False, read_clock().ticks
        loop = asyncio.get_running_loop()
        if self._going is not None:  # the connection before did not last
            self._going.cancel()
            self._spared += GRACE - max(self._going.when() - loop.time(), 0.0)
        self._going = loop.call_later(GRACE, self._lasts) if up else None
        self._clock.stop()
        if up and self._spared >= MERCY:
            self._clock.go()
        self._metrics.connected(up=up)
        self._step(Connected(self._clock(), up))
        self._settle()

    def _lasts(self) -> None:
        self._going, self._spared = None, 0.0
        self._clock.go()

    async def tidy(self) -> None:
        """Make files of the evidence that was noted."""
        if self._store is not None:
            await self._store.file_evidence()
            self._tell_store()

    def adopt(self, pipeline: Pipeline, config: Config, publications: Sequence[Publication]) -> None:
        """Go on with another pipeline that has taken up where this one stands, under another configuration.

        `publications`: what that changes for others. All of it is noted before any of it is sent.
        """
        self.pipeline, self._config = pipeline, config
        self._pressure = OverloadDetector(config.stream.max_lag / 2)
        self._pace = 0.0
        self._undecided.clear()
        self._outbox.put(self._outbox.number(publications))
        self.logbook.publish(publications)
        self._board.history.note(publications)
        self.keep_everything()
        if self.recorder is not None:
            LOG.warning("the recording ends here: what comes now is answered under another configuration")
            self.end_recording()

    def end_recording(self) -> None:
        """Finish the file, if there is one."""
        if self.recorder is None:
            return
        try:
            self.recorder.close()
        except OSError as error:  # what it still held does not fit on the disk
            LOG.error("the end of the recording is missing: %s", error)  # noqa: TRY400 - no bug, no traceback
        self.recorder = None

    def keep_everything(self) -> None:
        """Note the whole state, in place of whatever was noted before."""
        if self._store is not None:
            snapshot = self.pipeline.snapshot(everything=True)
            self._outbox.settled()
            setting, alarms = self._setting(self._clock().ticks), self._board.history.rows()
            self._store.mend(setting, snapshot, self._outbox.waiting(), alarms)
            self._tell_store()

    def keep_changes(self) -> None:
        """Note the state of those that changed, in place of what happened to them."""
        if self._store is not None:
            setting, settled = self._setting(self._clock().ticks), self._outbox.settled()
            self._store.checkpoint(setting, self.pipeline.snapshot(), settled)
            self._tell_store()

    async def end(self) -> None:
        """Leave nothing behind that the next process would have to go through again, if the disk is quick enough."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.tidy(), FILING)
        if self._store is not None and self._store.problem:
            self.keep_everything()
        else:
            self.keep_changes()

    # ---- one batch ----

    def _take_over(self, entry: Arrived | Dropped) -> Sequence[Receipt]:
        match entry:
            case Arrived():
                # What is longer than a message may be is refused, so no more than shows it need be noted.
                payload = entry.payload[: self._config.limits.message_bytes + 1]
                self._count(self._step(Message(entry.now, entry.topic, payload)))
                return () if entry.receipt is None else (entry.receipt,)
            case Dropped():
                self._step(Lost(entry.now, entry.topic, entry.count))
                return entry.receipts

    def _count(self, effects: Effects) -> None:
        """Count a step that came as it happened; what waited elsewhere comes in a rush that says nothing of its agent.

        An agent that sends no time is believed to be live once nothing waits at the broker.
        """
        received = next((notice for notice in effects.notices if isinstance(notice, Received)), None)
        if received is not None and received.result == "accepted":
            lag = received.lag
            self._live += self._caught_up if lag is None else lag <= self._config.stream.max_lag

    def _evaluate(self, *, flood: bool) -> None:
        """Answer what is due, as far as fits the deadline; only the newest steps if more come than can be answered."""
        before, began, since = read_clock(), self._clock(), self._door.waiting_since
        waiting = self.pipeline.waiting
        waited = 0.0 if waiting.since is None else began.ticks - waiting.since
        late = self._pressure.overloaded(waited)
        # A step that is awaited may be waiting at our own door: no more time has passed for it than until it came.
        now = began if since is None else Instant(began.wall, min(began.ticks, since))
        deadline = min(self._config.limits.deadline, BRIEF) if flood else self._config.limits.deadline
        steps = max(1, int(deadline / self._pace)) if self._pace else FLOOD
        effects = self._step(Evaluate(now, latest_only=late, steps=steps))
        self.evaluated = read_clock()
        seconds = self.evaluated.ticks - before.ticks
        self._left = self.pipeline.waiting.steps
        # More may wait than before: where a step that was awaited is given up, those behind it come in.
        answered = max(0, waiting.steps - self._left)
        if answered and not late:
            self._pace += (1.0 if not self._pace else MEMORY) * (seconds / answered - self._pace)
        fully = not (late or flood)  # else how much was answered does not say how much could be
        self._pressure.turned(
            self.evaluated.ticks, live=self._live, answered=answered if fully else None, left=self._left > 0
        )
        self._metrics.evaluated(seconds, effects.notices, self.evaluated)

    def _step(self, event: Event) -> Effects:
        self._record(event)
        effects = self.pipeline.step(event)
        self._outcomes.append((event, effects))
        if self._store is not None:
            self._store.note(event)
        return effects

    def _settle(self, receipts: Sequence[Receipt] = ()) -> None:
        """Note what has happened; only then acknowledge, publish and show it."""
        outcomes, self._outcomes = self._outcomes, []
        said = [message for event, effects in outcomes for message in effects.publications]
        numbered = self._outbox.number(message for message in said if self._up or not message.repeats)
        self._keep(outcomes, numbered, receipts, self._board.history.note(said))
        for receipt in receipts:
            self.acknowledge(receipt)
        self._outbox.put(numbered)
        for event, effects in outcomes:
            self._show(effects, event.now)

    def _keep(
        self,
        outcomes: Sequence[tuple[Event, Effects]],
        numbered: Sequence[tuple[int, Publication]],
        receipts: Sequence[Receipt],
        alarms: Changes,
    ) -> None:
        """Looking at the clock in vain has no effect and is noted with whatever comes next."""
        if self._store is None:
            self._outbox.settled()  # nobody needs them, and they would be kept for ever
            return
        matter = any(effects.notices or not isinstance(event, Evaluate) for event, effects in outcomes)
        if not (receipts or numbered or matter or self._outbox.unsettled):
            return
        evidence = [file for _, effects in outcomes for file in effects.evidence]
        lasting = [(number, message) for number, message in numbered if not message.repeats]
        self._store.commit(lasting, evidence, self._outbox.settled(), alarms)
        if self._store.long:
            self.keep_changes()
        self._tell_store()

    # ---- telling ----

    def settle(self) -> None:
        """After a restart: alarms that are not known to fire any more must not be listed as if they did."""
        standing = self.pipeline.standing()
        self._board.history.settle({notice.id for notice in standing.notices if isinstance(notice, Alert)})

    def show(self, effects: Effects) -> None:
        """Bring metrics and board up to date after a restart: nothing of it is new."""
        now = self._clock()
        self._metrics.recall(effects.notices, now)
        self._board.take(effects, now)

    def _show(self, effects: Effects, now: Instant) -> None:
        self._metrics.take(effects.notices, now)
        self._board.take(effects, now, listed=True)
        self.logbook.take(effects.notices, effects.publications, now)
        for notice in effects.notices:
            self._log(notice, now)

    def _log(self, notice: Notice, now: Instant) -> None:
        if isinstance(notice, Received) and notice.result in LOST:
            what = (notice.result, notice.reason)
            self._seldom.warn(what, now, "message of %s %s: %s %s", notice.agent or "?", *what, notice.detail)
        if isinstance(notice, RewardMismatch):
            self._seldom.warn("reward", now, "a reward of %s contradicts the model: %s", notice.agent, notice.detail)
        if isinstance(notice, Judged) and notice.verdict.reason and notice.formula not in self._undecided:
            self._undecided.add(notice.formula)
            LOG.warning("formula %s is undecided: %s", notice.formula, notice.verdict.reason)
        if isinstance(notice, Trust) and notice.doubted:  # told once, for with it the test has ended
            LOG.error(
                "observed transitions%s contradict the model: e-value 1e%.1f after %d%s",
                f" of {notice.agent}" if notice.agent else "",
                notice.log10_e,
                notice.transitions,
                "".join(f"; {departing_text(each)}" for each in notice.departing),
            )
        if isinstance(notice, Skipped):
            topic = f"{self._config.mqtt.alerts}/{notice.agent}/{notice.formula}"
            says = "overload: answers of %s for %s are skipped; alarms on %s may be missing"
            self._seldom.warn(("skipped", topic), now, says, notice.formula, notice.agent, topic)
        if isinstance(notice, Forgotten):
            where = "in the middle of an episode" if notice.open else "between episodes"
            LOG.warning("%s is forgotten: silent for %.0f s, %s", notice.agent, notice.silent, where)

    def _tell_store(self) -> None:
        assert self._store is not None, "there is something to tell of"
        if self._store.damages > self._damages:
            self._metrics.store_damaged(self._store.damages - self._damages, self._clock())
            self._damages = self._store.damages
        if self._store.failures > self._failures:
            self._failures = self._store.failures
            self._metrics.store_failed()
        elif self._store.ok:
            self._metrics.store_works()

    def _record(self, event: Event) -> None:
        if self.recorder is None:
            return
        try:
            self.recorder.write(event)
            if isinstance(event, Heartbeat):
                self.recorder.flush()
        except OSError as error:  # watching matters more than recording
            LOG.error("the recording ends here: %s", error)  # noqa: TRY400 - no bug, no traceback
            self.recorder.abandon()
            self.recorder = None
