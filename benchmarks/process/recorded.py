"""A recording of the grid, audited by one process and by two, and replayed event by event.

`python -m benchmarks.process.recorded [STEPS]` prints what `audits` returns. Each task runs in a separate process
(`python -m benchmarks.process.recorded TASK FOLDER BUCKET...`): it prepares, prints that it is ready, and waits for a
line on standard input before it starts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgpack

from benchmarks.process.harness import child, printed, write_world
from benchmarks.process.publisher import grid_steps
from benchmarks.process.spin import measure
from monitor.audit.partition import run_partition
from monitor.audit.plan import DONE, Partition, days_of, opened, partitions
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Message
from monitor.sidecar.parquet_recorder import ParquetRecorder
from monitor.sidecar.parquet_recording import ParquetRecording
from monitor.sidecar.recording import Header
from monitor.types import Instant

__all__ = ["Audited", "audits"]

AGENTS, LONGEST, BATCH, PACE = 200, 200, 50, 2000.0
"""Agents; steps of an episode; steps between two evaluations, as of a busy sidecar; steps a second."""

START = 1_790_000_000.0
BUCKETS = 16
REPLAYED = 20_000
"""Events of a replay: each costs several times a step of an audit."""


@dataclass(frozen=True)
class Audited:
    """Costs of a step, in each round.

    Attributes:
        alone: CPU seconds of an audit by one process, reading and writing included.
        replay: the same of `cfmon replay`, which evaluates event by event.
        rate: steps a second of one process.
        both: the same of two processes side by side, together.
        cores: rate of two processes that only count, over that of one: what the machine's cores give.
    """

    alone: list[float]
    replay: list[float]
    rate: list[float]
    both: list[float]
    cores: list[float]

    @property
    def share(self) -> list[float]:
        """Rate of two processes over that of one."""
        return [both / rate for both, rate in zip(self.both, self.rate, strict=True)]


def record(folder: Path, steps: int) -> None:
    """Write the project of the grid and a recording of so many steps, `grid.parquet`."""
    config = write_world(folder, "mqtt://127.0.0.1:1")
    loaded = assemble(config, {})
    header = Header("bench", loaded.config.digest, loaded.inputs_digest, "0")
    recorder = ParquetRecorder(folder / "grid.parquet", header, loaded.topics.steps, buckets=BUCKETS, live=False)
    for event in _events(steps):
        recorder.write(event)
    recorder.close()


def _events(steps: int) -> Iterator[Event]:
    """Yield what a monitor of the agents records; their episodes end after `LONGEST` steps."""
    yield Connected(Instant(START, 0.0), up=True)
    for n, (agent, fields) in enumerate(grid_steps(AGENTS, steps)):
        now = Instant(START + n / PACE, n / PACE)
        episode, seq = divmod(n // AGENTS, LONGEST)
        step = {**fields, "episode": f"e{episode}", "seq": seq, "time": now.wall}
        step |= {"truncated": True} if seq == LONGEST - 1 else {}
        yield Message(now, f"agents/{agent}/steps", msgpack.packb(step))
        if n % BATCH == BATCH - 1:
            yield Evaluate(now, steps=1000)
        if n % int(PACE) == 0:
            yield Heartbeat(now)


def audits(steps: int = 800_000, rounds: int = 3) -> Audited:
    """Measure audits and a replay of a recording of so many steps, in turns."""
    found = Audited([], [], [], [], [])
    halves = range(1, BUCKETS // 2 + 1), range(BUCKETS // 2 + 1, BUCKETS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder, steps)
        for _ in range(rounds):
            [one] = _side_by_side(("recorded", "audit", folder, *halves[0]))
            two = _side_by_side(*(("recorded", "audit", folder, *half) for half in halves))
            [replay] = _side_by_side(("recorded", "replay", folder))
            [spin] = _side_by_side(("spin",))
            spins = _side_by_side(("spin",), ("spin",))
            found.alone.append(one["busy"] / one["steps"])
            found.replay.append(replay["busy"] / replay["steps"])
            found.rate.append(_rate(one))
            found.both.append(sum(map(_rate, two)))
            found.cores.append(sum(map(_rate, spins)) / _rate(spin))
    return found


def _rate(measured: dict[str, Any]) -> float:
    return float(measured["steps"] / measured["seconds"])


def _side_by_side(*tasks: tuple[object, ...]) -> list[dict[str, Any]]:
    """Let a process prepare for each task, a module and its arguments, then begin all at once; return the results."""
    with ExitStack() as running:
        processes = [
            running.enter_context(child(f"benchmarks.process.{module}", *arguments, writable=True))
            for module, *arguments in tasks
        ]
        for process in processes:
            assert printed(process) == {"ready": True}
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [printed(process) for process in processes]


# ---- in the processes ----


def _audit(folder: Path, buckets: list[int]) -> Callable[[], int]:
    """Evaluate bucket 0 beforehand, which reads the configuration, the code and what the buckets have in common."""
    config = folder / "config.yaml"
    loaded = assemble(config, {})
    out = folder / f"audit-{os.getpid()}"
    plan = partitions(days_of(opened([folder / "grid.parquet"], loaded), loaded), loaded, config, out, in_order=False)
    _evaluate(plan[0])

    def work() -> int:
        return sum(_evaluate(plan[bucket]) for bucket in buckets)

    return work


def _evaluate(days: list[Partition]) -> int:
    steps = 0
    for partition in days:
        run_partition(partition)
        steps += json.loads((Path(partition.folder) / DONE).read_bytes())["accepted"]
    return steps


def _replay(folder: Path, _buckets: list[int]) -> Callable[[], int]:
    """Evaluate the first events, so that what they teach is known, then the next ones."""
    pipeline = assemble(folder / "config.yaml", {}).pipeline("bench")
    events = iter(ParquetRecording(folder / "grid.parquet"))
    for event in islice(events, REPLAYED):
        pipeline.step(event)

    def work() -> int:
        steps = 0
        for event in islice(events, REPLAYED):
            pipeline.step(event)
            steps += isinstance(event, Message)
        return steps

    return work


def main() -> None:
    """Do a task in a process of its own, or print all figures."""
    if len(sys.argv) < 3:
        sys.stdout.write(f"{audits(*map(int, sys.argv[1:]))}\n")
        return
    task, folder, *buckets = sys.argv[1:]
    measure({"audit": _audit, "replay": _replay}[task](Path(folder), [int(each) for each in buckets]))


if __name__ == "__main__":
    main()
