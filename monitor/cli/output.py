"""What every command says in the same way: exit codes, one JSON document, progress on a terminal's stderr."""

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
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TextIO

import typer

from monitor.cli.compiling import telling_of_machine_code
from monitor.cli.leaving import left_at_once
from monitor.errors import ModelWarning

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = [
    "Bar",
    "ExitCode",
    "ended_by_sigterm",
    "finish",
    "on_terminal",
    "print_json",
    "printable",
    "progress",
    "say",
    "show_warning",
    "warned",
]

SIGNALLED: Final = 128
"""What a shell adds to the number of the signal that ended a command."""

BAR_EVERY: Final = 0.1
"""Seconds between two notes of how far a bar is."""


class ExitCode(IntEnum):
    """What a command's exit status means; the other two, 2 and 70, are given where exceptions arrive."""

    FINE = 0
    NO = 1
    UNDECIDED = 3


def finish(code: ExitCode) -> NoReturn:
    """End the command with this code."""
    raise typer.Exit(int(code))


def say(line: str = "") -> None:
    """One line on stdout, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def printable(text: str) -> str:
    """Without anything that could steer a terminal: what strangers name and say is shown on one."""
    return "".join(character if character.isprintable() or character == "\t" else "?" for character in text)


def print_json(document: object) -> None:
    """The one JSON document of `--json`. NaN and infinity, which JSON lacks, become null."""
    say(json.dumps(_plain(document), indent=2, ensure_ascii=False))


class Bar(Protocol):
    """How far a piece of work is."""

    def at(self, done: float, what: str | None = None) -> None:
        """So much of `total` is done, and this comes now. Cheap: it may be called for every event of millions."""


class _NoBar:
    """Where nobody looks."""

    def at(self, done: float, what: str | None = None) -> None:
        """Say nothing."""


class _Drawn:
    """A bar on a terminal; `still`: drawn only when it has something new to say."""

    def __init__(self, shown: Progress, task: TaskID, *, still: bool) -> None:
        self._shown = shown
        self._task = task
        self._still = still
        self._next = 0.0

    def at(self, done: float, what: str | None = None) -> None:
        """Note it, at most every `BAR_EVERY`; a new description at once."""
        now = time.monotonic()
        if what is not None:
            self._shown.update(self._task, completed=done, description=what, refresh=self._still)
        elif now >= self._next:
            self._next = now + BAR_EVERY
            self._shown.update(self._task, completed=done, refresh=self._still)


@contextmanager
def progress(what: str, total: float | None = None, *, still: bool = False) -> Iterator[Bar]:
    """Show on stderr, if it is a terminal, what is being done and how far it is; leaves no trace.

    `total`: what `Bar.at` counts up to; None: nobody knows, and a spinner turns. Where machine code has to be made
    first, it says so. `still`: nothing turns meanwhile, where time is measured.
    """
    if not on_terminal(sys.stderr):
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
    with ended_by_sigterm(), shown, telling_of_machine_code(shown, task):
        yield _Drawn(shown, task, still=still)


def on_terminal(stream: TextIO) -> bool:
    """Whether it is a terminal on which something can be drawn in place."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown", "")


@contextmanager
def warned() -> Iterator[list[str]]:
    """Collect what is wrong with a model that is read in the block; each is a line on stderr at its end."""
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
    """Write a warning on stderr; one about a model as a person reads it. In place of `warnings.showwarning`."""
    if issubclass(category, ModelWarning):
        sys.stderr.write(f"cfmon: warning: {message}\n")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that the terminal gets its cursor back."""

    def end(number: int, _frame: object) -> NoReturn:
        sys.exit(SIGNALLED + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    if left_at_once(signal.SIGTERM):
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
