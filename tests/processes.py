"""Commands of the monitor as processes of their own, forked from one that has imported the monitor already.

A new interpreter takes 1.7 s of processor time to import the sidecar; a fork takes none. Only a test that is about the
start itself (the interpreter's options, the command line, what is imported) starts `python -m monitor`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Final

__all__ = ["Forked", "fork_monitor"]

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["monitor.cli.app", "monitor.cli.run", "monitor.sidecar.service"])


class Forked:
    """A running `cfmon` command, with the interface of `subprocess.Popen` as far as the tests use it."""

    def __init__(self, arguments: Sequence[str], log: Path, cwd: Path | None, env: Mapping[str, str] | None) -> None:
        self.args = ["cfmon", *arguments]
        given = (self.args, str(log), str(cwd or Path.cwd()), dict(os.environ if env is None else env))
        self._process = _CONTEXT.Process(target=_be, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_monitor(*arguments: str, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Forked:
    """Start `cfmon` with these arguments; what it prints is appended to the file `log`."""
    return Forked(arguments, log, cwd, env)


def _be(argv: list[str], log: str, cwd: str, env: dict[str, str]) -> None:
    """Be the command; runs in the new process."""
    from monitor.cli import main  # noqa: PLC0415 - has been imported by the process this one is forked from

    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    sys.argv = argv
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
