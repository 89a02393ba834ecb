r"""Submit the monitor's job, and submit it again from its newest checkpoint whenever the cluster has lost it.

This is for a standalone cluster, whose JobManager forgets its jobs when it dies. With high availability by Kubernetes
or ZooKeeper, Flink submits the job again itself.

    python deploy/flink/supervise.py --checkpoints /var/lib/cfmon-flink/checkpoints -- \
        flink run -py deploy/flink/job.py ...

The script exits with 0 when the job has finished or was cancelled. It needs only Python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["checkpoints_in", "main", "next_move"]

NAME: Final = "cfmon"
PAUSE: Final = 1.0
ALIVE: Final = {"INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "FAILING", "CANCELLING", "RECONCILING", "SUSPENDED"}


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the complete checkpoints of all jobs below a folder, newest first.

    This includes a checkpoint whose `_metadata` was cut off by the fault. Flink refuses such a checkpoint, and the next
    one is tried. No sink was notified of that checkpoint, so nothing is sent twice or lost.
    """
    found = [path.parent for path in folder.glob("*/chk-*/_metadata")]
    return sorted(found, key=lambda path: (path / "_metadata").stat().st_mtime_ns, reverse=True)


def next_move(jobs: Sequence[Mapping[str, object]]) -> str:
    """Return what to do about the jobs that the JobManager knows: `wait`, `submit` or `end`."""
    states = [str(job["state"]) for job in jobs if job["name"] == NAME]
    if ALIVE.intersection(states):
        return "wait"
    return "end" if states and states[-1] in {"FINISHED", "CANCELED"} else "submit"


def main(arguments: Sequence[str] | None = None) -> int:
    """Submit the job whenever the cluster has lost it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, required=True, help="execution.checkpointing.dir, as a path here")
    parser.add_argument("--rest", default="http://localhost:8081", help="address of the JobManager")
    parser.add_argument("command", nargs="+", help="the command that submits the job, beginning with: flink run")
    options = parser.parse_args(arguments)
    while True:
        jobs = _jobs(options.rest)
        move = "wait" if jobs is None else next_move(jobs)
        if move == "end":
            return 0
        if move == "submit":
            _submit(options.command, checkpoints_in(options.checkpoints))
        time.sleep(PAUSE)


def _jobs(rest: str) -> list[dict[str, Any]] | None:
    """Return the jobs by age, oldest first; None if the JobManager does not answer, or has no slot yet."""
    try:
        with urllib.request.urlopen(f"{rest}/overview", timeout=10) as answer:  # noqa: S310 - ours
            slots = json.load(answer)["slots-total"]
        with urllib.request.urlopen(f"{rest}/jobs/overview", timeout=10) as answer:  # noqa: S310 - ours
            jobs = json.load(answer)["jobs"]
    except OSError:
        return None
    return sorted(jobs, key=lambda job: job["start-time"]) if slots else None


def _submit(submission: Sequence[str], checkpoints: Sequence[Path]) -> None:
    """Submit from the newest checkpoint that Flink accepts; if there is no checkpoint, from the beginning."""
    flink, run, *rest = submission
    for start in [["--fromSavepoint", str(checkpoint)] for checkpoint in checkpoints] or [[]]:
        print("submit from", *(start[1:] or ["the beginning"]), flush=True)
        command = [flink, run, "--detached", *start, *rest]
        if subprocess.run(command, check=False).returncode == 0:  # noqa: S603 - the user's own command
            return


if __name__ == "__main__":
    sys.exit(main())
