"""Terminal for tests: runs a process on a pseudo-terminal and emulates the screen that a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pyte

from tests.processes import Forked, fork_monitor
from tests.servers import interruptible

__all__ = ["Terminal"]

LEADER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"

PATIENCE = 300.0
"""Timeout in seconds for all waits."""


class Terminal:
    """Runs `command` on a screen of `lines` by `columns`; kills it at the end of the block.

    A command that begins with `cfmon` is forked from a process that has imported the monitor.
    """

    def __init__(
        self, command: Sequence[str], *, lines: int = 30, columns: int = 110, env: Mapping[str, str] | None = None
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._hung_up = False
        self._ours, theirs = pty.openpty()
        self._set_size(lines, columns)
        plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = _begun(command, theirs, {**plain, "TERM": "xterm-256color", **(env or {})})
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self._hung_up:
            os.close(self._ours)

    @property
    def text(self) -> str:
        """Text on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def cursor_shown(self) -> bool:
        """Return whether the cursor is visible."""
        return not bool(self._screen.cursor.hidden)

    def resize(self, lines: int, columns: int) -> None:
        """Resize the window."""
        self._screen.resize(lines, columns)
        self._set_size(lines, columns)

    def press_ctrl_c(self) -> None:
        """Interrupt through the terminal, which signals its foreground process group."""
        os.write(self._ours, b"\x03")

    def until(self, *words: str) -> str:
        """Wait until all of them are on the screen at once; return the screen."""
        deadline = time.monotonic() + PATIENCE
        while not all(word in self.text for word in words):
            assert self._take(), f"ended with {self.process.wait()} without {words}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {words} on the screen:\n{self.text}"
        return self.text

    def until_drawn(self, what: bytes, since: int) -> None:
        """Wait until these bytes are drawn, ignoring the first `since` bytes."""
        deadline = time.monotonic() + PATIENCE
        while what not in self.raw[since:]:
            assert self._take(), f"ended with {self.process.wait()} without {what!r}"
            assert time.monotonic() < deadline, f"{what!r} is not drawn"

    def stop_taking(self) -> None:
        """Stop the output, as Ctrl-S: writers block."""
        os.write(self._ours, b"\x13")

    def hang_up(self) -> None:
        """Close the connection to the terminal."""
        os.close(self._ours)
        self._hung_up = True

    def end(self) -> int:
        """Read the remaining output until the process ends; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._take():
            assert time.monotonic() < deadline, f"does not end:\n{self.text}"
        return self.process.wait(PATIENCE)

    def _take(self) -> bool:
        """Read new output; return False once the process has ended and all of it is read."""
        if not select.select([self._ours], [], [], 0.1)[0]:
            return True
        try:
            drawn = os.read(self._ours, 1 << 16)
        except OSError:  # on Linux: nobody has the other end open, no longer or not yet
            time.sleep(0.02)
            return self.process.poll() is None
        self.raw += drawn
        self._stream.feed(drawn)
        return True

    def _set_size(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _begun(command: Sequence[str], terminal: int, env: Mapping[str, str]) -> subprocess.Popen[bytes] | Forked:
    """Start a command in its own session on a terminal, so that it gets Ctrl-C and hang-ups."""
    if command[0] == "cfmon":
        return fork_monitor(*command[1:], log=Path(os.ttyname(terminal)), env=env)
    return subprocess.Popen(
        [sys.executable, "-c", LEADER, *command],
        env=env,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=interruptible,  # noqa: PLW1509 - no other thread can hold a lock
    )
