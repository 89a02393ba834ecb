"""The monitor under the shipped unit's system-call filter: all that it does works there, and no process is left."""

from __future__ import annotations

import ctypes
import errno
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chain import publisher
from tests.deploy.confined import allowed, compiled, confined
from tests.deploy.small_world import DRIFT, EDGE, ROAD, write_world
from tests.servers import PATIENCE, Mosquitto, Sidecar, children, end, mosquitto, wait_until
from tests.tiers import slow

MONITOR = (sys.executable, "-P", "-m", "monitor")
Confine = Callable[[Sequence[str]], list[str]]


@pytest.fixture(params=[(), ("setpriority",)], ids=["as shipped", "and no priority"])
def confine(tmp_path: Path, request: pytest.FixtureRequest) -> Confine:
    """What makes the command line of a process under the filter."""
    program = tmp_path / "filter.bpf"
    program.write_bytes(compiled(without=request.param))
    return partial(confined, program)


@contextmanager
def running(confine: Confine, config: Path) -> Iterator[Sidecar]:
    """`cfmon run` under the filter, serving; ends cleanly."""
    log = config.parent / "cfmon.log"
    with log.open("wb") as output:
        process = subprocess.Popen(confine([*MONITOR, "run", str(config)]), stdout=output, stderr=subprocess.STDOUT)
    sidecar = Sidecar(process, log)
    try:
        wait_until(lambda: process.poll() is not None or "status page at" in sidecar.log, "it serves", patience=600)
        assert process.poll() is None, sidecar.log
        yield sidecar
    finally:
        assert end(process) == 0, sidecar.log


def asked(sidecar: Sidecar, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(sidecar.url + path, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def fired(sidecar: Sidecar) -> str:
    """The evidence's id of the alarm that fires."""
    alarms: list[dict[str, Any]] = json.loads(sidecar.get("/api/alarms"))
    return next((str(alarm["evidence"]["id"]) for alarm in alarms if alarm["evidence"]), "")


def drawn(sidecar: Sidecar, evidence: str) -> tuple[int, bytes]:
    """What is answered once it is drawn, or given up."""
    answers: list[tuple[int, bytes]] = []

    def answered() -> bool:
        answers.append(asked(sidecar, f"/picture/{evidence}.svg"))
        return answers[-1][0] != 202

    wait_until(answered, "a picture, or why there is none")
    return answers[-1]


def harm(broker: Mosquitto, episode: str) -> None:
    """One agent's steps into harm that a fallback would have kept it from."""
    with publisher(broker.port) as agents:
        agents.episode = episode
        agents.step("w1", ROAD, DRIFT)
        agents.step("w1", EDGE, DRIFT)


PROBE = """
import ctypes, mmap, os, socket
def refused(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
print(refused(os.sched_setaffinity, 0, {0}), refused(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0),
      refused(os.chown, "/", 0, 0), refused(socket.socket), refused(os.getpriority, os.PRIO_PROCESS, 0),
      ctypes.CDLL(None).unshare(0x20000), refused(mmap.mmap, -1, 4096, 2, 7))
"""


def test_the_filter_is_in_force(confine: Confine) -> None:
    command = confine([sys.executable, "-I", "-c", PROBE])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    executable = errno.EACCES if ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) >= 0 else None  # the kernel knows how
    expected = (errno.EPERM, errno.EAFNOSUPPORT, errno.EPERM, None, None, -1, executable)
    assert done.stdout.split() == [*map(str, expected)]
    assert {"read", "openat", "sched_getaffinity", "fsync"} < allowed()
    assert not {"mount", "ptrace", "reboot", "kexec_load", "sched_setaffinity"} & allowed()


@slow
def test_everything_works_under_the_units_filter(tmp_path: Path, confine: Confine) -> None:
    with mosquitto(tmp_path / "broker") as broker:
        config = write_world(tmp_path, broker.url, "127.0.0.1:0")
        with running(confine, config) as sidecar:
            wait_until(sidecar.ready, "it is ready")
            harm(broker, "one")
            evidence = wait_until(lambda: fired(sidecar), "an alarm")
            status, picture = drawn(sidecar, evidence)
            assert (status, picture[:4]) == (200, b"<svg"), picture
            wait_until(lambda: not children(sidecar.process.pid), "whoever drew it is gone")
            sidecar.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the configuration is in force" in sidecar.log, "it reads its configuration again")
            file = wait_until(lambda: next(iter((tmp_path / "var" / "evidence").glob("*")), None), "a file of evidence")
            verify = [*MONITOR, "verify", str(file)]
            done = subprocess.run(confine(verify), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            assert sidecar.metric("cfmon_store_ok") == 1
            evidence = fired(sidecar)  # a later step may have updated the alarm
        assert "not permitted" not in sidecar.log
        assert "Traceback" not in sidecar.log
        with running(confine, config) as sidecar:
            wait_until(lambda: sidecar.metric("cfmon_mqtt_connected") == 1, "it is connected")
            assert "restored the stored state" in sidecar.log
            assert fired(sidecar) == evidence
