"""Submit the monitor to Flink as a job: `flink run -py deploy/flink/job.py --config fleet.yaml --from ... --to ...`.

docs/flink.md describes the sources and sinks, and what must be installed on each TaskManager.
"""

from __future__ import annotations

import argparse
import sys

from cfmon_flink.graph import build, read_end


def main() -> int:
    """Build the job from the command line and submit it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="the monitor's configuration, a path on every TaskManager")
    parser.add_argument(
        "--from", dest="source", required=True, help="kafka:BROKERS/TOPIC, file:FOLDER or socket:HOST:PORT"
    )
    parser.add_argument(
        "--to", action="append", required=True, help="mqtt, kafka:BROKERS/TOPIC or file:FOLDER; repeatable"
    )
    parser.add_argument(
        "--metrics", help="HOST:PORT of /metrics; each TaskManager takes the first free port from PORT on"
    )
    parser.add_argument("--hydrated", type=int, default=20_000, help="agents in memory at most, for each TaskManager")
    parser.add_argument(
        "--buckets",
        type=int,
        default=128,
        help="parts into which agents are divided, TaskManagers at most; a state keeps its number (default 128)",
    )
    arguments = parser.parse_args()
    try:
        source, targets = (
            read_end(arguments.source, {"kafka", "file", "socket"}),
            [read_end(each, {"kafka", "file", "mqtt"}) for each in arguments.to],
        )
    except ValueError as error:
        parser.error(str(error))
    build(
        config=arguments.config,
        source=source,
        targets=targets,
        metrics=arguments.metrics,
        hydrated=arguments.hydrated,
        buckets=arguments.buckets,
    ).execute("cfmon")
    return 0


if __name__ == "__main__":
    sys.exit(main())
