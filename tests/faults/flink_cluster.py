"""A Flink cluster of processes on loopback: one JobManager, some TaskManagers, and the monitor's job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.servers import PATIENCE, end, free_port, wait_until

__all__ = ["ENVIRONMENT", "Cluster", "cluster", "job_python"]

ROOT: Final = Path(__file__).parents[2]
JOB: Final = ROOT / "deploy" / "flink"
ENVIRONMENT: Final = Path(os.environ.get("FLINK_VENV", ROOT / ".flink"))
"""Made by `make flink`."""


def job_python() -> Path:
    """Return the interpreter of the job's environment."""
    return ENVIRONMENT / "bin" / "python"


@dataclass
class Cluster:
    """Processes of a cluster; a folder holds its configuration, logs and checkpoints. `job`: what is submitted."""

    folder: Path
    settings: dict[str, object] = field(default_factory=dict)
    job: Path = JOB / "job.py"
    manager: subprocess.Popen[str] | None = None
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        home = job_python().parent.parent / "lib"
        [site] = home.glob("python3.*/site-packages")
        self.home = site / "pyflink"
        self.rest = free_port()
        text = (JOB / "conf" / "config.yaml").read_text()
        config = {**_flat(yaml.safe_load(text)), **_flat(self.settings)}
        config |= {"rest.port": self.rest, "jobmanager.rpc.port": free_port(), "blob.server.port": 0}
        config |= {"execution.checkpointing.dir": self.checkpoints.as_uri()}
        config |= {"io.tmp.dirs": str(self.folder / "tmp")}
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        (conf / "config.yaml").write_text(yaml.safe_dump(config))
        for name in ("log4j-console.properties", "log4j-cli.properties"):
            (conf / name).write_text((self.home / "conf" / name).read_text())
        environment = {
            **os.environ,
            "FLINK_HOME": str(self.home),
            "FLINK_CONF_DIR": str(conf),
            "FLINK_LOG_DIR": str(self.folder / "log"),
            "FLINK_PID_DIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(site), str(ROOT), str(JOB)]),
            "PATH": os.pathsep.join([str(job_python().parent), os.environ["PATH"]]),
        }
        self.how: dict[str, Any] = {"env": environment, "text": True}
        self._logs = 0

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / "checkpoints"

    def start(self, workers: int) -> None:
        """Start the processes, and wait until all slots are there."""
        self.start_manager()
        for _ in range(workers):
            self.add_worker()
        wait_until(lambda: self.get("/overview", {}).get("slots-total") == workers, "slots")

    def add_worker(self) -> None:
        """Start another TaskManager."""
        self.workers.append(self._run("taskmanager.sh"))

    def stop(self) -> None:
        """End all processes."""
        for process in [*self.workers, *([] if self.manager is None else [self.manager])]:
            end(process)

    def command(self, arguments: Sequence[str], *, parallelism: int) -> list[str]:
        """Return the command that submits the job."""
        client = ["--parallelism", str(parallelism), "-pyclientexec", str(job_python())]
        return [str(self.home / "bin" / "flink"), "run", *client, "-py", str(self.job), *arguments]

    def submit(self, arguments: Sequence[str], *, parallelism: int = 1) -> str:
        """Submit the job; return its id."""
        flink, run, *rest = self.command(arguments, parallelism=parallelism)
        done = subprocess.run([flink, run, "--detached", *rest], **self.how, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout.split("JobID")[1].split()[0])

    def supervised(self, arguments: Sequence[str], *, parallelism: int) -> subprocess.Popen[str]:
        """Start the program that submits the job, again and again."""
        options = ["--checkpoints", str(self.checkpoints), "--rest", f"http://localhost:{self.rest}", "--"]
        command = [sys.executable, str(JOB / "supervise.py"), *options]
        command += self.command(arguments, parallelism=parallelism)
        with (self.folder / "supervise.log").open("w") as log:
            return subprocess.Popen(command, **self.how, stdout=log, stderr=subprocess.STDOUT)

    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs that the JobManager knows, oldest first."""
        jobs = self.get("/jobs/overview", {}).get("jobs", [])
        return sorted(jobs, key=lambda job: job["start-time"])

    def get(self, path: str, otherwise: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return what the JobManager answers, or `otherwise` if it does not."""
        try:
            with urllib.request.urlopen(f"http://localhost:{self.rest}{path}", timeout=PATIENCE) as response:
                return json.load(response)
        except OSError:
            return otherwise

    def state(self, job: str) -> str:
        """Return the state of a job."""
        return str(self.get(f"/jobs/{job}", {}).get("state"))

    def until(self, job: str, state: str, *, patience: float = PATIENCE) -> None:
        """Wait for a state of a job."""
        wait_until(lambda: self.state(job) in {state, "FAILED"}, f"the job is {state}", patience=patience)
        assert self.state(job) == state, self.get(f"/jobs/{job}/exceptions")

    def completed(self, job: str) -> int:
        """Return the number of completed checkpoints."""
        return int(self.get(f"/jobs/{job}/checkpoints", {}).get("counts", {}).get("completed", 0))

    def restored(self, job: str) -> int:
        """Return how often the JobManager has restarted the job from a checkpoint."""
        return int(self.get(f"/jobs/{job}/checkpoints", {}).get("counts", {}).get("restored", 0))

    def start_manager(self) -> None:
        """Start the JobManager."""
        self.manager = self._run("jobmanager.sh")

    def _run(self, script: str) -> subprocess.Popen[str]:
        self._logs += 1
        command = [str(self.home / "bin" / script), "start-foreground"]
        with (self.folder / f"{script}-{self._logs}.log").open("w") as log:
            return subprocess.Popen(command, **self.how, stdout=log, stderr=subprocess.STDOUT)


@contextmanager
def cluster(folder: Path, workers: int, **settings: object) -> Iterator[Cluster]:
    """Run a cluster."""
    running = Cluster(folder, settings)
    try:
        running.start(workers)
        yield running
    finally:
        running.stop()


def _flat(settings: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Return settings with full keys."""
    flat: dict[str, object] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return flat
