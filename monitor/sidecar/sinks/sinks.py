"""List all the sinks of a sidecar, and pass effects to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from monitor.sidecar.effects import Effects
from monitor.sidecar.log import RateLimitedLog
from monitor.sidecar.sinks.logbook import Logbook
from monitor.sidecar.sinks.metrics import Metrics
from monitor.sidecar.sinks.sink import Sink, Watched
from monitor.sidecar.sinks.status_view import StatusView
from monitor.types.stream_events import Instant

LOG: Final = logging.getLogger("monitor.service")


class Sinks:
    """Passes effects on to every sink, in order.

    If a sink raises an exception, this is logged and counted, and the other sinks continue.

    HTTP serves `metrics` and `view`. `all`: every sink, in this order. `queue_length`: returns the number of messages
    received and not yet processed.
    """

    def __init__(self, watched: Watched, queue_length: Callable[[], float] = lambda: 0.0) -> None:
        self.metrics = Metrics(watched, queue_length)
        self.view = StatusView(watched)
        self.all: list[Sink] = []
        self._log = RateLimitedLog(LOG)
        for sink in (self.metrics, self.view, Logbook(watched)):
            self.add(sink)

    def add(self, sink: Sink) -> None:
        """Add a sink, which gets effects after the others."""
        self.all.append(sink)
        self.metrics.sink_failed(type(sink).__name__, 0)

    def take_all(self, outcomes: Sequence[tuple[Effects, Instant]]) -> None:
        """Pass on the effects of several events, in order, to one sink after the other."""
        for sink in self.all:
            for effects, now in outcomes:
                try:
                    sink.take(effects, now)
                except Exception:  # noqa: BLE001 - as in `_try`; a call of `_try` would take longer than many sinks
                    self._report(sink, now)

    def recall(self, effects: Effects, now: Instant) -> None:
        """Pass on the whole state after a restart or a reload."""
        for sink in self.all:
            self._try(sink, now, lambda each: each.recall(effects, now))

    def adopt(self, watched: Watched, now: Instant) -> None:
        """Continue with another configuration."""
        for sink in self.all:
            self._try(sink, now, lambda each: each.adopt(watched))

    def _try(self, sink: Sink, now: Instant, call: Callable[[Sink], None]) -> None:
        try:
            call(sink)
        except Exception:  # noqa: BLE001 - the others, and the monitor itself, do not depend on it
            self._report(sink, now)

    def _report(self, sink: Sink, now: Instant) -> None:
        """Log and count the exception that is being handled."""
        name = type(sink).__name__
        self.metrics.sink_failed(name)
        words = "the sink %s failed; what it shows or sends is incomplete. This is a bug, please report it"
        self._log.write(logging.ERROR, name, now, words, name, traceback=True)
