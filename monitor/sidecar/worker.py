"""What happens in a sidecar, in order: taken over, answered, noted, and only then acknowledged, published and shown.

So nothing leaves the process, and no step is acknowledged, before a restart would know of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from monitor.sidecar.board import Board
from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.door import Arrived, Door, Dropped, Receipt
from monitor.sidecar.effects import Effects, Publication
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.journal import Setting
from monitor.sidecar.log import Seldom
from monitor.sidecar.metrics import Metrics
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.recording import Recorder
from monitor.sidecar.settings import Config
from monitor.sidecar.store import Store
from monitor.types import Blind, Instant, Judged, Notice, Received, RewardMismatch, Trust

__all__ = ["Worker"]

LOG: Final = logging.getLogger("monitor.service")
BATCH: Final = 64
"""Messages taken over before formulas are answered: enough to make a write to the disk worth it, and still prompt."""

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
"""Weight of the newest evaluation in the running estimate of what an answer takes."""


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
        door: Door,
        outbox: Outbox,
        metrics: Metrics,
        board: Board,
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
        self._unfinished = False
        self._failures = 0
        self._undecided: set[str] = set()
        self._seldom = Seldom(LOG)

    async def run(self) -> None:
        """Take over what comes through the door; answer formulas after each batch, and at each knock."""
        while True:
            # Else let the network in. No timeout here: it would cost a task for each message that comes alone.
            await (asyncio.sleep(0) if len(self._door) or self._unfinished else self._door.wait())
            self.turn()

    def turn(self) -> None:
        """One batch."""
        receipts: list[Receipt] = []
        for _ in range(BATCH):
            if (entry := self._door.take()) is None:
                break
            receipts += self._take_over(entry)
        self._evaluate()
        self._settle(receipts)

    def beat(self) -> None:
        """Say that we are alive; try again what could not be kept."""
        self._step(Heartbeat(self._clock()))
        self._settle()
        if self._store is not None and self._store.problem:
            self.keep_everything()

    def connected(self, up: bool) -> None:  # noqa: FBT001 - the one thing there is to say
        """The broker was reached or lost."""
        self._up = up
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
        self._pace = 0.0
        self._undecided.clear()
        self._outbox.put(self._outbox.number(publications))
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
            self._store.mend(self._setting(self._clock().ticks), snapshot, self._outbox.waiting())
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
                self._step(Message(entry.now, entry.topic, payload))
                return () if entry.receipt is None else (entry.receipt,)
            case Dropped():
                self._step(Lost(entry.now, entry.topic, entry.count))
                return entry.receipts

    def _evaluate(self) -> None:
        """Answer what is due, for as many agents as fit the deadline; only the newest steps if too old ones wait."""
        before, began, since = read_clock(), self._clock(), self._door.waiting_since
        late = since is not None and began.ticks - since > self._config.stream.max_lag / 2
        # A step that is awaited may be waiting at our own door: no more time has passed for it than until it came.
        now = began if since is None else Instant(began.wall, min(began.ticks, since))
        agents = max(1, int(self._config.limits.deadline / self._pace)) if self._pace else 0
        effects = self._step(Evaluate(now, latest_only=late, agents=agents))
        self.evaluated = read_clock()
        seconds = self.evaluated.ticks - before.ticks
        answered = len({notice.agent for notice in effects.notices if type(notice) is Judged})
        if answered:
            self._pace += (1.0 if not self._pace else MEMORY) * (seconds / answered - self._pace)
        self._unfinished = 0 < agents <= answered
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
        self._keep(outcomes, numbered, receipts)
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
        self._store.commit(lasting, evidence, self._outbox.settled())
        if self._store.long:
            self.keep_changes()
        self._tell_store()

    # ---- telling ----

    def show(self, effects: Effects) -> None:
        """Bring metrics and board up to date after a restart: nothing of it is new."""
        now = self._clock()
        self._metrics.recall(effects.notices, now)
        self._board.take(effects, now)

    def _show(self, effects: Effects, now: Instant) -> None:
        self._metrics.take(effects.notices, now)
        self._board.take(effects, now)
        for notice in effects.notices:
            self._log(notice, now)

    def _log(self, notice: Notice, now: Instant) -> None:
        if isinstance(notice, Received) and notice.result in LOST:
            what = (notice.result, notice.reason)
            self._seldom.warn(what, now, "message of %s %s: %s %s", notice.agent or "?", *what, notice.detail)
        if isinstance(notice, Blind) and notice.reason == "impossible_step":
            where = (notice.formula, notice.agent)
            self._seldom.warn(notice.reason, now, "%s is blind for %s: %s", *where, notice.detail)
        if isinstance(notice, RewardMismatch):
            self._seldom.warn("reward", now, "a reward of %s contradicts the model: %s", notice.agent, notice.detail)
        if isinstance(notice, Judged) and notice.verdict.reason and notice.formula not in self._undecided:
            self._undecided.add(notice.formula)
            LOG.warning("formula %s is undecided: %s", notice.formula, notice.verdict.reason)
        if isinstance(notice, Trust) and notice.doubted:  # told once, for with it the test has ended
            LOG.error("what happens does not follow the model: e-value 1e%.1f", notice.log10_e)

    def _tell_store(self) -> None:
        assert self._store is not None, "there is something to tell of"
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
