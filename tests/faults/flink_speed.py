"""Cost of a line in the job on Flink, beside a loop of the same steps: `python -m tests.faults.flink_speed`.

Processor time of the whole TaskManager (its Java included) for many lines minus that for few, so that its start is not
counted; the same for a job that does nothing with the lines. The loop is measured before and after, because other work
on the machine changes all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cfmon_flink.arrival import read_line, write_line
from cfmon_flink.keyed import KeyedAgent

from monitor.sidecar.config.load import assemble
from tests.faults.flink_cluster import cluster
from tests.faults.world import agent_steps, write_world

FORMULA: Final = 'fallback@10.P>=0.9 [ G<=20 !"unsafe" ]'
START: Final = 1_795_259_763_700
FEW: Final = 20_000
NOTHING: Final = Path(__file__).with_name("flink_nothing.py")
TICK: Final = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=220_000)
    parser.add_argument("--agents", type=int, default=10, help="a multiple of ten")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_world(folder / "world", "mqtt://127.0.0.1:1", store={"path": None}, formulas=[WATCH])
        before = loop_cost(config, options.agents)
        few, many = (job(folder / "job", config, count, options.agents) for count in (FEW, options.lines))
        least, most = (
            job(folder / "nothing", config, count, options.agents, NOTHING) for count in (FEW, options.lines)
        )
        after = loop_cost(config, options.agents)
    lines = options.lines - FEW
    figures = {
        "agents": options.agents,
        "loop_us": [round(before, 1), round(after, 1)],
        "job_us": round((many["cpu"] - few["cpu"]) / lines * 1e6, 1),
        "nothing_us": round((most["cpu"] - least["cpu"]) / lines * 1e6, 1),
        "wall_us": round((many["wall"] - few["wall"]) / lines * 1e6, 1),
        "times_the_loop": round((many["cpu"] - few["cpu"]) / lines * 2e6 / (before + after), 2),
        "state_bytes_an_agent": round(many["state"] / options.agents),
        "resident_mib": [few["rss"], many["rss"]],
        "load": os.getloadavg(),
    }
    print(json.dumps(figures))  # noqa: T201 - it reports on stdout


WATCH: Final[dict[str, Any]] = {"name": "watch", "formula": FORMULA}


def log(count: int, agents: int) -> Iterator[str]:
    """Yield lines of so many agents, each with a step each second."""
    steps = agent_steps(5)
    copies = agents // 10
    number = 0
    while number < count:
        ten = [next(steps) for _ in range(10)]
        for copy in range(copies):
            for agent, step in ten:
                yield write_line(f"{agent}-{copy}", START + number * 1000 // agents, json.dumps(step).encode())
                number += 1


def loop_cost(config: Path, agents: int) -> float:
    """Return the processor time of a line without Flink, in microseconds."""
    monitor = assemble(config, {}).monitor
    known: dict[str, KeyedAgent] = {}
    lines = list(log(FEW * 2, agents))
    begun = 0.0
    for number, line in enumerate(lines):
        if number == FEW:
            begun = time.process_time()
        arrival = read_line(line)
        if arrival.agent not in known:
            known[arrival.agent] = KeyedAgent(monitor, arrival.agent)
        known[arrival.agent].take(arrival)
    return (time.process_time() - begun) / FEW * 1e6


def job(folder: Path, config: Path, count: int, agents: int, script: Path | None = None) -> dict[str, float]:
    """Run the job over so many lines; return processor and wall time in seconds, state in bytes, memory in MiB."""
    source, target = folder / f"in-{count}", folder / f"out-{count}"
    source.mkdir(parents=True)
    (source / "steps").write_text("".join(f"{line}\n" for line in log(count, agents)))
    with cluster(folder / f"flink-{count}", 1) as flink:
        flink.job = script or flink.job
        [worker] = flink.workers
        name = flink.submit(["--config", str(config), "--from", f"file:{source}", "--to", f"file:{target}"])
        flink.until(name, "FINISHED")
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{worker.pid}/status").read_text()
        cpu = (int(fields[11]) + int(fields[12])) / TICK
        [rss] = [int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmRSS")]
        checkpoints = flink.get(f"/jobs/{name}/checkpoints")["summary"]["state_size"]["max"]
        wall = flink.get(f"/jobs/{name}")["duration"] / 1000
    return {"cpu": cpu, "wall": wall, "state": checkpoints, "rss": rss}


if __name__ == "__main__":
    main()
