"""Where the commands of a page are run: a folder like a fresh clone, on a network of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import ROOT, Command, Save, agrees
from tests.processes import Forked, fork_monitor
from tests.servers import interruptible

CLONED: Final = (
    "Makefile",
    "hatch_build.py",
    "pyproject.toml",
    "mkdocs.yml",
    ".ci",
    "client",
    "config",
    "converters",
    "policies",
    "deploy",
    "docs",
    "monitor",
)
PATIENCE: Final = 600.0
"""Seconds for one command; only a command that hangs ever takes them."""

LOOKING: Final = ("curl ", "ls ", "cfmon explain ")
"""Beginnings of commands that only look at what a started one has done so far."""
WRONG_INPUT: Final = 2
_USERS_TOO: Final = os.geteuid() != 0
"""Only root may make a network without making users."""


@dataclass
class Stage:
    """`network`: a process on the stage's own network, if it has one. `running`: what waits for its Ctrl-C.

    `looks_for`: seconds for which a command that looks is repeated.
    """

    folder: Path
    network: int | None = None
    running: list[subprocess.Popen[bytes] | Forked] = field(default_factory=list)
    looks_for: float = PATIENCE

    def do(self, told: Command | Save) -> None:
        """As a reader would, and see that what comes out is what the page shows."""
        match told:
            case Save(name, content):
                (self.folder / name).write_text(content, encoding="utf-8")
            case Command(forever=True):
                self._start(told)
            case Command():
                self._run(told)

    def _run(self, command: Command) -> None:
        """Run it, and see that it prints what the page shows.

        A command that only looks is repeated until it does: what it looks at, such as the evidence of an alarm that was
        just shown, may be a moment away.
        """
        limit = time.monotonic() + self.looks_for
        expected = WRONG_INPUT if command.shown.startswith("cfmon: ") else 0
        looks = bool(self.running) and command.text.startswith(LOOKING)
        while True:
            code, printed = self._ran(command)
            if code == expected and (not command.shown or agrees(command.shown, printed)):
                return
            again = looks and time.monotonic() < limit
            assert again, f"$ {command.text}\n{printed}"
            time.sleep(0.1)

    def _ran(self, command: Command) -> tuple[int, str]:
        """Run it to its end; return its exit code and what it printed."""
        log = self.folder / "ran.log"
        log.write_bytes(b"")
        process = self._begun(command, log)
        try:
            return process.wait(timeout=PATIENCE), log.read_text(encoding="utf-8")
        finally:
            process.kill()

    def _start(self, command: Command) -> None:
        """Start it, and wait until what the page shows has come: only then it is sure to hear an interrupt."""
        assert command.shown.strip(" .\n"), f"$ {command.text}: show what it prints once it runs"
        log = self.folder / f"started-{len(self.running)}.log"
        log.write_bytes(b"")
        process = self._begun(command, log)
        self.running.append(process)
        limit = time.monotonic() + PATIENCE
        while not agrees(f"{command.shown} ...", log.read_text(encoding="utf-8")):
            assert process.poll() is None, f"$ {command.text} ended:\n{log.read_text()}"
            assert time.monotonic() < limit, f"$ {command.text}\n{log.read_text()}"
            time.sleep(0.1)

    def interrupt(self) -> None:
        """Ctrl-C for all that was started: each must end by itself."""
        for process in self.running:
            if isinstance(process, Forked):
                process.send_signal(signal.SIGINT)
            else:
                os.killpg(process.pid, signal.SIGINT)
        for process in self.running:
            process.wait(timeout=PATIENCE)

    def _begun(self, command: Command, log: Path) -> subprocess.Popen[bytes] | Forked:
        """Start a command. A shell starts what only a shell can, and the monitor is forked for what it need not."""
        if words := plain(command.text):
            return fork_monitor(*words, log=log, cwd=self.folder, env=self._environment(), network=self.network)
        with log.open("ab") as out:
            return subprocess.Popen(
                [*entering(self.network), "bash", "-c", command.text],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=interruptible,  # noqa: PLW1509 - no thread of ours could hold a lock meanwhile
            )

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("CFMON_", "COV_", "MAKE"))}
        path = f"{self.folder / '.venv/bin'}:{ours['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
        return {**ours, "PATH": path, "COLUMNS": "200"}


def plain(text: str) -> list[str]:
    """Return the arguments of a command line that only calls `cfmon`; of one that takes a shell, an empty list.

    >>> plain("cfmon model info 'a|b'"), plain("cfmon run x | head"), plain('cfmon explain "$(ls)"')
    (['model', 'info', 'a|b'], [], [])
    """
    words = shlex.shlex(text, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    program, *arguments = words
    shell = "$" in text or "*" in text or any(set(word) <= set(words.punctuation_chars) for word in arguments)
    return [] if shell or program != "cfmon" else arguments


def entering(network: int | None) -> list[str]:
    """Return what stands before a command to put it on the network of a process."""
    if network is None:
        return []
    users = ["--user", "--preserve-credentials"] if _USERS_TOO else []
    return ["nsenter", f"--target={network}", *users, "--net"]


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A stage in an empty folder; what was started on it is gone afterwards. Skips where no network can be made."""
    for name in CLONED:
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").mkdir()
    for part in ("bin", "lib", "pyvenv.cfg"):
        (folder / ".venv" / part).symlink_to(Path(sys.executable).parent.parent / part)
    for stamp in (".demo", ".dev"):
        (folder / ".venv" / stamp).touch()
    with _network() as holder:
        made = Stage(folder, holder)
        try:
            yield made
            made.interrupt()
        finally:
            _clear(holder)
            for process in made.running:
                process.wait()


@contextmanager
def _network() -> Iterator[int]:
    """A process that holds a network with loopback only."""
    user = ["--user", "--map-root-user"] if _USERS_TOO else []
    if any(shutil.which(tool) is None for tool in ("unshare", "nsenter", "ip")):
        pytest.skip("a network of its own takes unshare, nsenter and ip (Debian: util-linux, iproute2)")
    command = ["unshare", *user, "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"up\n":
            pytest.skip("no network of its own can be made here")
        try:
            yield holder.pid
        finally:
            holder.kill()


def _clear(holder: int) -> None:
    """End what is still on the holder's network, daemons among it."""
    network = Path(f"/proc/{holder}/ns/net").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) != holder and (process / "ns/net").readlink() == network:
                os.kill(int(process.name), signal.SIGKILL)
