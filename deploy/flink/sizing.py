"""Estimate what a fleet needs: `python deploy/flink/sizing.py --agents 100000 --steps 1`.

docs/flink.md has the assumptions and the measurements. This script needs only Python.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MEASURED", "Costs", "Need", "main", "need"]


@dataclass(frozen=True)
class Costs:
    """Measured costs of one step or agent.

    `line`, `timer`: microseconds of processor time for a step in the job, and for a check for silence. `resident`: KiB
    of an agent in memory. `state`: bytes of an agent in a checkpoint. `log`: bytes of a line in Kafka.
    `connection`: messages a second that one MQTT connection delivers at QoS 1.
    """

    line: float
    timer: float
    resident: float
    state: float
    log: float
    connection: float


MEASURED = Costs(line=52.0, timer=35.0, resident=26.0, state=12_600.0, log=135.0, connection=20_000.0)
"""The 4x4 grid with one formula, in thread mode on RocksDB; for the connection see docs/performance.md. A line and a
timer take the 40 and 27 us of a loop on idle cores, times 1.3: on busy cores the job took at most 1.3 times as long as
a loop. This is with `--metrics`, which needs each step in Python."""

PLANNED = 0.6
"""Planned load of a core, and of a connection; the rest is for restoring and for peaks."""

REPLAYED = 32
"""Lines that are evaluated again when an agent is restored, on average."""


@dataclass(frozen=True)
class Need:
    """Need of a fleet.

    `lines`, `timers`: number in a second. `managers`: TaskManagers of one core each. `memory`: GiB of agents in memory,
    in all TaskManagers together. `state`: GiB in a checkpoint. `log`: GiB an hour in Kafka. `bridges`: MQTT connections
    (and brokers, if each serves one connection). `restore`: seconds until all agents are restored, if all send at once.
    """

    lines: float
    timers: float
    managers: int
    memory: float
    state: float
    log: float
    bridges: int
    restore: float


def need(agents: int, steps: float, *, costs: Costs = MEASURED, stale_after: float = 10.0) -> Need:
    """Return the need of `agents` that send `steps` a second each. `stale_after`: `stream.stale_after` in seconds.

    >>> unit = Costs(line=100, timer=10, resident=128, state=8192, log=1024, connection=20_000)
    >>> found = need(60_000, 1.0, costs=unit)
    >>> found.managers, found.bridges, found.timers
    (11, 5, 24000.0)
    """
    lines, timers = agents * steps, agents * 4 / stale_after
    cores = (lines * costs.line + timers * costs.timer) / 1e6
    managers = max(1, math.ceil(cores / PLANNED))
    return Need(
        lines=lines,
        timers=timers,
        managers=managers,
        memory=agents * costs.resident / 2**20,
        state=agents * costs.state / 2**30,
        log=lines * costs.log * 3600 / 2**30,
        bridges=max(1, math.ceil(lines / (costs.connection * PLANNED))),
        restore=agents / managers * REPLAYED * costs.line / 1e6,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the need of a fleet; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, required=True)
    parser.add_argument("--steps", type=float, default=1.0, help="of each agent, a second (default 1)")
    parser.add_argument("--stale-after", type=float, default=10.0, help="stream.stale_after in seconds (default 10)")
    options = parser.parse_args(arguments)
    if options.agents < 1 or not options.steps >= 0 or not options.stale_after > 0:
        parser.error("agents and stale-after must be positive, and steps not negative")
    found = need(options.agents, options.steps, stale_after=options.stale_after)
    print(f"{found.lines:,.0f} steps and {found.timers:,.0f} checks for silence a second")
    print(f"{found.managers:,} TaskManagers of one core, {found.memory / found.managers:.1f} GiB of agents in each")
    print(f"{found.bridges:,} MQTT connections of a bridge")
    print(f"{found.state:.1f} GiB in a checkpoint, {found.log:.1f} GiB an hour in Kafka")
    print(f"{found.restore:.0f} s until all agents are back after a restart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
