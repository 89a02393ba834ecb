"""Exit at once on Ctrl-C and SIGTERM, unless work is in progress that must be finished.

By default, Python raises an exception in the statement that runs when the signal arrives. In a library's callback this
exception is lost. During the import of a compiled module, another error replaces the exception. Signals often arrive
during these imports, because they take most of the start-up time. Files are written so that the process may end at any
moment. Incomplete files are removed, and started processes are ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:  # an import of `typing` would take a tenth of the time until signals are handled
    from collections.abc import Callable, Iterator

INTERRUPTED = 130
"""Exit code of a process that Ctrl-C ended, by the shell's convention."""

TERMINATED = 143
"""Exit code of a process that SIGTERM ended.

`cfmon run` exits with 0 instead, because SIGTERM is the way to stop it.
"""

SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
"""Clears the progress line and shows the cursor again."""


_undo: list[Callable[[], None]] = []


def exit_immediately() -> None:
    """Let SIGINT and SIGTERM end the process from now on. A signal that was ignored at the start stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit)


def exits_immediately(number: int) -> bool:
    """Return whether this signal now ends the process at once."""
    return signal.getsignal(number) is _exit


@contextmanager
def orderly() -> Iterator[None]:
    """Restore Python's signal handling inside the block, so that the block can stop its processes on Ctrl-C."""
    before = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if exits_immediately(number)
    }
    for number in before:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def at_signal(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` if a signal ends the process at once within the block."""
    _undo.append(undo)
    try:
        yield
    finally:
        _undo.remove(undo)


def _exit(number: int, _frame: object) -> None:
    for undo in reversed(_undo):
        undo()
    if "monitor.atomic" in sys.modules:
        sys.modules["monitor.atomic"].abandon_all()
    for stream in (1, 2):
        if os.isatty(stream) and select.select([], [stream], [], 0)[1]:  # a stopped terminal would block
            os.write(stream, SHOW_CURSOR)
    if number == signal.SIGINT:
        os._exit(INTERRUPTED)
    os._exit(0 if sys.argv[1:2] == ["run"] else TERMINATED)
