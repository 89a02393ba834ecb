"""Where the commands of a page are run: a folder like a fresh clone, on a network of its own."""

from __future__ import annotations

import os
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
from tests.servers import interruptible

CLONED: Final = (
    "Makefile",
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
"""Seconds for one command, its compiling included; only a command that hangs ever takes them."""

LOOKING: Final = ("curl ", "ls ", "cfmon explain ")
"""Beginnings of commands that only look at what a started one has done so far."""
WRONG_INPUT: Final = 2


@dataclass
class Stage:
    """`enter`: what puts a command on the stage's network. `running`: what waits for its Ctrl-C.

    `looks_for`: seconds for which a command that looks is repeated.
    """

    folder: Path
    enter: list[str]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
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
            ran = self._ran(command)
            if ran.returncode == expected and (not command.shown or agrees(command.shown, ran.stdout)):
                return
            again = looks and time.monotonic() < limit
            assert again, f"$ {command.text}\n{ran.stdout}"
            time.sleep(0.1)

    def _ran(self, command: Command) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._line(command),
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def _start(self, command: Command) -> None:
        """Start it, and wait until what the page shows has come: only then it is sure to hear an interrupt."""
        assert command.shown.strip(" .\n"), f"$ {command.text}: show what it prints once it runs"
        log = self.folder / f"started-{len(self.running)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._line(command),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=interruptible,  # noqa: PLW1509 - no thread of ours could hold a lock meanwhile
            )
        self.running.append(process)
        limit = time.monotonic() + PATIENCE
        while not agrees(f"{command.shown} ...", log.read_text(encoding="utf-8")):
            assert process.poll() is None, f"$ {command.text} ended:\n{log.read_text()}"
            assert time.monotonic() < limit, f"$ {command.text}\n{log.read_text()}"
            time.sleep(0.1)

    def interrupt(self) -> None:
        """Ctrl-C for all that was started: each must end by itself."""
        for process in self.running:
            os.killpg(process.pid, signal.SIGINT)
        for process in self.running:
            process.wait(timeout=PATIENCE)

    def _line(self, command: Command) -> list[str]:
        return [*self.enter, "bash", "-c", command.text]

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("CFMON_", "COV_", "MAKE"))}
        path = f"{self.folder / '.venv/bin'}:{ours['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
        return {**ours, "PATH": path, "COLUMNS": "200"}


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
    with _network() as (holder, enter):
        made = Stage(folder, enter)
        try:
            yield made
            made.interrupt()
        finally:
            _clear(holder)
            for process in made.running:
                process.wait()


@contextmanager
def _network() -> Iterator[tuple[int, list[str]]]:
    """A process that holds a network with loopback only, and what enters it."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if any(shutil.which(tool) is None for tool in ("unshare", "nsenter", "ip")):
        pytest.skip("a network of its own takes unshare, nsenter and ip (Debian: util-linux, iproute2)")
    command = ["unshare", *user, "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"up\n":
            pytest.skip("no network of its own can be made here")
        into = ["--user", "--preserve-credentials"] if user else []
        try:
            yield holder.pid, ["nsenter", f"--target={holder.pid}", *into, "--net"]
        finally:
            holder.kill()


def _clear(holder: int) -> None:
    """End what is still on the holder's network, daemons among it."""
    network = Path(f"/proc/{holder}/ns/net").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) != holder and (process / "ns/net").readlink() == network:
                os.kill(int(process.name), signal.SIGKILL)
