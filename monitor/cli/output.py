"""Output of all commands: exit codes, the JSON document of `--json`, and progress on stderr."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, Protocol, TextIO

import typer

from monitor.cli.interrupts import exits_immediately
from monitor.errors import ModelWarning

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]
SIGNALLED: Final = 128
"""If a signal ends a process, the exit code is this number plus the signal's number, by the shell's convention."""

BAR_EVERY: Final = 0.1
"""Seconds between two updates of a progress bar."""


class ExitCode(IntEnum):
    """Exit codes of commands. `monitor.cli.main` sets two further codes, 2 and 70."""

    FINE = 0
    NO = 1
    UNDECIDED = 3


def finish(code: ExitCode) -> NoReturn:
    """Exit the command with this code."""
    raise typer.Exit(int(code))


def say(line: str = "") -> None:
    """Write one line to stdout and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_json(document: object) -> None:
    """Print the one JSON document of `--json`. NaN and infinity, which JSON lacks, become null."""
    say(json.dumps(_plain(document), indent=2, ensure_ascii=False))


class Bar(Protocol):
    """Progress of one piece of work."""

    def at(self, done: float, what: str | None = None) -> None:
        """Report how much of the `total` given to `progress` is done, and the name of the next part.

        It is cheap enough to call for every event.
        """


class _NoBar:
    """Progress without a terminal."""

    def at(self, done: float, what: str | None = None) -> None:
        """Show nothing."""


class _Drawn:
    """Progress bar on a terminal. `still`: redraw it only when `at` is called."""

    def __init__(self, shown: Progress, task: TaskID, *, still: bool) -> None:
        self._shown = shown
        self._task = task
        self._still = still
        self._next = 0.0

    def at(self, done: float, what: str | None = None) -> None:
        """Update the bar, at most every `BAR_EVERY`; show a new description at once."""
        now = time.monotonic()
        if what is not None:
            self._shown.update(self._task, completed=done, description=what, refresh=self._still)
        elif now >= self._next:
            self._next = now + BAR_EVERY
            self._shown.update(self._task, completed=done, refresh=self._still)


_command: ContextVar[str] = ContextVar("command", default="")


@contextmanager
def stages(command: str) -> Iterator[None]:
    """Let `progress` write a line for each task if stderr is not a terminal.

    `command`: the first word of these lines.
    """
    token = _command.set(command)
    try:
        yield
    finally:
        _command.reset(token)


@contextmanager
def progress(what: str, total: float | None = None, *, still: bool = False) -> Iterator[Bar]:
    """Show a task and its progress on stderr if stderr is a terminal; remove both at the end. Otherwise see `stages`.

    `total`: the value of `Bar.at` at the end; None: unknown, shown as a spinner. `still`: no animation, for commands
    that measure time.
    """
    if not on_terminal(sys.stderr):
        if _command.get():
            sys.stderr.write(f"{_command.get()}: {what}\n")
            sys.stderr.flush()
        yield _NoBar()
        return
    import rich.progress as bars  # noqa: PLC0415 - only a terminal needs it
    from rich.console import Console  # noqa: PLC0415 - likewise

    far = () if total is None else (bars.BarColumn(), bars.TaskProgressColumn(), bars.TimeRemainingColumn())
    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}", markup=False),
        bars.TimeElapsedColumn(),
        *far,
    )
    console = Console(stderr=True)
    shown = bars.Progress(
        *columns, console=console, transient=True, redirect_stdout=False, auto_refresh=not still, refresh_per_second=8
    )
    task = shown.add_task(what, total=total)
    with ended_by_sigterm():
        try:
            shown.start()
            yield _Drawn(shown, task, still=still)
        finally:  # also if a signal arrives while the bar starts
            shown.stop()


def on_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can redraw lines in place."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown", "")


@contextmanager
def warned() -> Iterator[list[str]]:
    """Collect the warnings about a model that is read in the block, and print each to stderr at the end."""
    problems: list[str] = []
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always", ModelWarning)
        yield problems
        problems += [str(warning.message) for warning in noticed if issubclass(warning.category, ModelWarning)]
    for warning in noticed:
        show_warning(warning.message, warning.category, warning.filename, warning.lineno)


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    """Write a warning to stderr, without a code position if it is about a model. Replaces `warnings.showwarning`."""
    if issubclass(category, ModelWarning):
        sys.stderr.write(f"cfmon: warning: {message}\n")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit inside the block, so that the terminal's cursor is restored."""

    def end(number: int, _frame: object) -> NoReturn:
        sys.exit(SIGNALLED + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return
    if exits_immediately(signal.SIGTERM):
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _plain(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
