"""Commands of the monitor as processes of their own, forked from one that has imported the monitor already.

A new interpreter takes 1.7 s of processor time to import the sidecar; a fork takes none. Only a test that is about the
start itself (the interpreter's options, the command line, what is imported) starts `python -m monitor`.

A forked command cannot start processes of `multiprocessing`, and runs no `atexit` functions at its end.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Final

import pytest

__all__ = ["Forked", "fork_monitor"]

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["monitor.cli.app", "monitor.sidecar.service"])

_ENVIRONMENT: Final = dict(os.environ)
"""That of the tests when this is imported: what the monitor reads when it is imported must not be up to one test."""


@cache
def _start_server() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - _ENVIRONMENT.keys():
            patch.delenv(name)
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        forkserver.ensure_running()


@dataclass(frozen=True)
class _Place:
    """Where a command runs. `log`, `errors`: files for stdout and stderr, or one terminal for both and stdin."""

    log: str
    errors: str
    cwd: str
    env: dict[str, str]
    network: int | None


class Forked:
    """A running `cfmon` command, with the interface of `subprocess.Popen` as far as the tests use it."""

    def __init__(self, arguments: Sequence[str], place: _Place) -> None:
        _start_server()
        self.args = ["cfmon", *arguments]
        self._process = _CONTEXT.Process(target=_be, args=(self.args, place), daemon=True)
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
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_monitor(
    *arguments: str,
    log: Path,
    errors: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    network: int | None = None,
) -> Forked:
    """Start `cfmon` with these arguments; what it prints is appended to the file `log`.

    `errors`: a file for stderr alone. `network`: a process; the command runs on its network. If `log` is a terminal, it
    is the terminal of the command, which then has its own session: it gets Ctrl-C and hang-ups.
    """
    place = _Place(
        log=str(log),
        errors=str(errors or log),
        cwd=str(cwd or Path.cwd()),
        env=dict(os.environ if env is None else env),
        network=network,
    )
    return Forked(arguments, place)


def _be(argv: list[str], place: _Place) -> None:
    """Be the command; runs in the new process."""
    from monitor.cli import main  # noqa: PLC0415 - has been imported by the process this one is forked from

    os.environ.clear()
    os.environ.update(place.env)
    os.chdir(place.cwd)
    if place.network is not None:
        _enter_network(place.network)
    if Path(place.log).is_char_device():
        os.setsid()
        outputs = dict.fromkeys((0, 1, 2), os.open(place.log, os.O_RDWR))  # which makes it the session's terminal
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file
    else:
        outputs = {
            standard: os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for standard, name in ((1, place.log), (2, place.errors))
        }
    for standard, output in outputs.items():
        os.dup2(output, standard)
    for output in set(outputs.values()):
        os.close(output)
    sys.argv = argv
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _enter_network(process: int) -> None:
    """Join the network of a process, and its users unless they are ours."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        theirs = Path(f"/proc/{process}/ns/{kind}")
        if theirs.readlink() == Path(f"/proc/self/ns/{kind}").readlink():
            continue
        with theirs.open("rb") as namespace:
            if libc.setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {theirs}")
