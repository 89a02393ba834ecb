"""Ctrl-C and SIGTERM while nothing is half done: the process is left at once.

Python's own way, an exception at whatever statement runs just then, is lost where that statement is a library's
callback, and becomes another error where it is the import of a compiled module; at start nearly all time is spent in
such places. What is kept on disk is written so that it may end at any moment.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes a tenth of the time in which a signal is not heard yet
    from collections.abc import Iterator

__all__ = ["leave_at_once", "left_at_once", "orderly"]

INTERRUPTED = 130
"""The shell's word for Ctrl-C."""

TERMINATED = 143
"""The shell's word for SIGTERM; `cfmon run` is ended by SIGTERM, so to it that is 0."""

SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
"""Clears the line on which progress is shown, and shows the cursor again."""


def leave_at_once() -> None:
    """From now on SIGINT and SIGTERM end the process; one that was ignored when it was started stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def left_at_once(number: int) -> bool:
    """Whether this signal ends the process at once as things stand."""
    return signal.getsignal(number) is _leave


@contextmanager
def orderly() -> Iterator[None]:
    """Let the block hear Ctrl-C as KeyboardInterrupt and SIGTERM as before: it has processes to end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if left_at_once(number)}
    for number in before:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> None:
    for stream in (1, 2):
        if os.isatty(stream) and select.select([], [stream], [], 0)[1]:  # a stopped terminal takes nothing
            os.write(stream, SHOW_CURSOR)
    if number == signal.SIGINT:
        os._exit(INTERRUPTED)
    os._exit(0 if sys.argv[1:2] == ["run"] else TERMINATED)
