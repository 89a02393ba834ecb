"""A loop that only counts, in a process of its own: what a core gives while others are busy too."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

__all__ = ["measure"]

COUNT, TIMES = 200_000, 20


def measure(work: Callable[[], int]) -> None:
    """Say that we are ready, wait for a line, and print what the work took. `work`: returns its number of steps."""
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    sys.stdin.readline()
    began, busy = time.perf_counter(), time.process_time()
    steps = work()
    measured = {"steps": steps, "seconds": time.perf_counter() - began, "busy": time.process_time() - busy}
    sys.stdout.write(json.dumps(measured) + "\n")


def _spin() -> int:
    for _ in range(TIMES):
        sum(n * n for n in range(COUNT))
    return COUNT * TIMES


if __name__ == "__main__":
    measure(_spin)
