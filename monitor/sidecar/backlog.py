"""Backlog detection: which steps arrive when they happen, and which steps have waited at the broker or at their agent.

*Live* steps arrive when they happen. Their rate shows overload, and in overload some of them are skipped. Steps of a
backlog are all evaluated. A step with a time is live if it is not late. A step without a time is live if no backlog is
expected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from monitor.sidecar.clock import Clock, read_clock, read_work
from monitor.sidecar.config.settings import Config
from monitor.stream.session import is_late
from monitor.types.notices import Notice, Received

BACKLOG_MESSAGES: Final = 32
"""If a batch has at least this many old messages, more are expected. If it has at least this many steps from one agent,
without a time, they are the agent's own backlog, which the agent sends all at once."""

BACKLOG_SECONDS: Final = 60.0
"""Seconds after connecting, or after a suspension of this process, in which arriving steps may have waited at the
broker. Also the longest time that an agent's own backlog of steps without a time may take."""

STOOD_STILL: Final = 2.0
"""If a pause between two batches has at least this many seconds without work, this process was suspended."""

RECONNECT_GRACE: Final = 3.0
"""Seconds after connecting that do not count as waiting for missing steps. Agents that also lost the broker are still
reconnecting, and their undelivered steps arrive after the broker's queue. During this time, a small batch does not mean
that all messages have arrived."""


class BacklogDetector:
    """Counts the live steps of each batch, and decides whether a backlog is expected.

    `config`: the configuration in force. `clock`: the clock of the arrival times. `live`: number of live steps in this
    batch. `live_since`: ticks since which no backlog is expected from the broker; infinite while one is expected.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self.live = 0
        self.live_since = math.inf
        self._clock = clock
        self._late = 0  # number of steps of this batch with an old time
        self._untimed: Counter[str] = Counter()  # agent -> number of its live steps without a time, in this batch
        self._expected_since = 0.0  # ticks of the newest connection or suspension; the times below are ticks too
        self._ended = read_clock().ticks, read_work()  # after the last batch
        self._burst_began = self._burst_seen = -math.inf

    def expect(self) -> None:
        """Expect a backlog from now on, because the broker or this process was away."""
        self.live_since, self._expected_since = math.inf, read_clock().ticks

    def begin_batch(self) -> None:
        """Begin a batch. If this process was suspended since the last batch, steps have waited: expect a backlog."""
        ticks, work = self._ended
        if read_clock().ticks - ticks - (read_work() - work) > max(self.config.stream.max_lag, STOOD_STILL):
            self.expect()
        self.live = self._late = 0
        self._untimed.clear()

    def count(self, notices: Iterable[Notice], ticks: float) -> None:
        """Count the step of a message that arrived at `ticks`, if it was accepted. `notices`: those of the message.

        A step without a time counts as live if no backlog is expected from the broker. If one agent sends many such
        steps in a batch, they are its own backlog (`_burst`).
        """
        for notice in notices:
            if isinstance(notice, Received):
                if notice.result == "accepted":
                    if notice.lag is None:
                        live = ticks > self.live_since
                        self._untimed[notice.agent] += live
                    else:
                        live = not is_late(notice.lag, self.config.stream.max_lag)
                        self._late += not live
                    self.live += live
                return

    def all_counted(self, taken: int, *, up: bool) -> None:
        """Finish counting a batch of `taken` messages; decide whether a backlog is still expected.

        `up`: whether the broker is connected.
        """
        burst = self._burst()
        if burst or (up and self.live_since == math.inf and self._has_fetched(taken)):
            self.live -= burst
            self.live_since = self._clock().ticks + self.config.path.reorder.wait  # steps may still wait until then

    def end_batch(self) -> None:
        """Note when the batch ended, so that a suspension is seen."""
        self._ended = read_clock().ticks, read_work()

    def _has_fetched(self, taken: int) -> bool:
        """Return whether the broker's backlog has arrived: few messages come, or none of the steps is old.

        Directly after connecting, few messages come because the broker has not started to send. Until the backlog has
        arrived, only steps with a recent time are live.
        """
        waited = read_clock().ticks - self._expected_since
        few = taken < BACKLOG_MESSAGES and waited > RECONNECT_GRACE
        return few or (self.live > 0 and not self._late) or waited > BACKLOG_SECONDS

    def _burst(self) -> int:
        """Return the number of steps of this batch that are the backlog of agents that send no time.

        An agent that sends so many steps for longer than `BACKLOG_SECONDS` is fast, and has no backlog.
        """
        steps = sum(count for count in self._untimed.values() if count >= BACKLOG_MESSAGES)
        if not steps:
            return 0
        now = read_clock().ticks
        if now - self._burst_seen > self.config.path.reorder.wait + RECONNECT_GRACE:  # after a pause, a new burst
            self._burst_began = now
        self._burst_seen = now
        return steps if now - self._burst_began <= BACKLOG_SECONDS else 0
