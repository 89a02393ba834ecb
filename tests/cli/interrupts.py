"""Signals at random moments of a command's start: `python -m tests.cli.interrupts --shots 2000 --jobs 2`.

Each shot starts `cfmon run` and sends it SIGINT or SIGTERM; every one must end it, with 130 or 0 and without a
traceback. A signal that arrives before Python has handed over to the command is told apart: `unheard`.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from monitor.cli.input_files import data_file
from tests.servers import interruptible

ENDS: Final = (130, 0)
PATIENCE: Final = 300.0
"""Seconds that a process has to end: a machine may be slow, but it may not forget the signal."""


class Shot(NamedTuple):
    """`code`: what the process ended with, None if it did not. `heard`: our handler was there when it was sent."""

    number: signal.Signals
    after: float
    heard: bool
    code: int | None
    said: str

    @property
    def fine(self) -> bool:
        return self.code in ENDS and "Traceback" not in self.said and "a bug" not in self.said


def shoot(number: signal.Signals, after: float, *, wait: bool = False) -> Shot:
    """Start a sidecar, and send it the signal `after` so many seconds; `wait`: counted from when it can hear it."""
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "CFMON_MQTT__URL": "mqtt://127.0.0.1:9",
            "CFMON_HTTP__LISTEN": "127.0.0.1:0",
            "CFMON_STORE__PATH": str(Path(folder) / "cfmon.sqlite"),
        }
        said = Path(folder) / "said"
        with (
            said.open("wb") as stream,
            subprocess.Popen(
                [sys.executable, "-m", "monitor", "run", str(data_file("config/frozen-lake.yaml"))],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                preexec_fn=interruptible,  # noqa: PLW1509 - it is thread-safe: one system call
            ) as process,
        ):
            while wait and not hears(process.pid) and process.poll() is None:
                time.sleep(0.005)
            time.sleep(after)
            heard = hears(process.pid)
            process.send_signal(number)
            try:
                code: int | None = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                code = None
        return Shot(number, after, heard, code, said.read_text(errors="replace"))


def hears(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM, which Python itself does not set."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--within", type=float, default=3.0, help="seconds after the start")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    plan = [
        (chance.choice((signal.SIGINT, signal.SIGTERM)), chance.uniform(0, arguments.within))
        for _ in range(arguments.shots)
    ]
    counts: collections.Counter[str] = collections.Counter()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for shot in pool.map(lambda one: shoot(*one), plan):
            kind = "fine" if shot.fine else "WRONG" if shot.heard else "unheard"
            counts[f"{kind} {shot.number.name} {shot.code}"] += 1
            if kind == "WRONG":
                sys.stdout.write(f"{shot}\n")
    for what, count in sorted(counts.items()):
        sys.stdout.write(f"{count:6} {what}\n")
    return int(any(what.startswith("WRONG") for what in counts))


if __name__ == "__main__":
    sys.exit(main())
