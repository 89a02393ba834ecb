"""The whole sidecar as `cfmon run` runs it, with a sink that records the time of each verdict.

`python -m benchmarks.process.probe CONFIG COUNT [--core N] [--every]`: after COUNT messages prints the measurement as
JSON, and continues. N is the only core it may use. With `--every`, every step is evaluated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time

from monitor.sidecar import service as sidecar
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.log import set_up_logging
from monitor.sidecar.sinks.sink import Watched
from monitor.sidecar.systemd import ServiceManager
from monitor.types import Alert, Instant, Judged, Received, Skipped

__all__ = ["Probe"]


class Probe:
    """Sink that gets every notice after the other sinks."""

    def __init__(self, service: sidecar.Service, count: int) -> None:
        self._count = count
        self._worker = service.worker
        service.sinks.add(self)
        self._begin()

    def _begin(self) -> None:
        self._lags: list[float] = []
        self._accepted = self._other = self._skipped = self._alerts = 0
        self._begun = self._ended = self._busy = 0.0

    def take(self, effects: Effects, now: Instant) -> None:
        at, evaluated = time.time(), False
        for notice in effects.notices:
            if type(notice) is Judged:
                evaluated = True
                self._lags.append(at - notice.time)
            elif type(notice) is Received:
                if self._begun == 0.0:
                    self._begun, self._busy = now.wall, time.process_time()
                self._accepted += notice.result == "accepted"
                self._other += notice.result != "accepted"
            elif type(notice) is Skipped:
                evaluated = True
                self._skipped += notice.count
            elif type(notice) is Alert:
                self._alerts += 1
        if evaluated and self._accepted + self._other >= self._count and not self._worker.pipeline.waiting.steps:
            self._ended = at
            self.report()

    def recall(self, effects: Effects, now: Instant) -> None:
        pass

    def adopt(self, watched: Watched) -> None:
        pass

    def report(self) -> None:
        rate = (self._count - 1) / (self._ended - self._begun) if self._ended else 0.0
        busy = (time.process_time() - self._busy) / self._count
        counts = {"accepted": self._accepted, "other": self._other, "skipped": self._skipped, "alerts": self._alerts}
        measured = {"rate": rate, "busy": busy, "lags": self._lags, "answered": len(self._lags), **counts}
        sys.stdout.write(json.dumps(measured) + "\n")
        sys.stdout.flush()
        self._begin()


def main(config: str, count: int, core: int | None, *, every: bool) -> None:
    """Run until signalled to stop."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    if every:
        os.environ["CFMON_LIMITS__DEADLINE"] = os.environ["CFMON_STREAM__MAX_LAG"] = "1h"
    loaded = assemble(config)
    set_up_logging(loaded.config.logging)
    service = sidecar.Service(loaded)
    service.start()
    Probe(service, count)
    asyncio.run(sidecar._run_until_signalled(service, ServiceManager({})))  # noqa: SLF001 - the probe is the process, and measures the loop that `run` starts


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("count", type=int)
    parser.add_argument("--core", type=int)
    parser.add_argument("--every", action="store_true")
    given = parser.parse_args()
    main(given.config, given.count, given.core, every=given.every)
