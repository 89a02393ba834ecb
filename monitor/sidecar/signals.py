"""Handle the signals that end a process with a running event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end this process: SIGTERM, and SIGINT unless it was ignored when the process started.

    A shell without job control starts `cfmon run ... &` with SIGINT ignored (POSIX.1-2017, Shell Command Language,
    2.11), so that Ctrl-C ends the script in the foreground and not the processes in the background. A handler for
    SIGINT would let this Ctrl-C end a background monitor by mistake.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)


@contextmanager
def when_ended(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` on the running loop at each of `ending_signals` inside the block; then restore the handlers."""
    loop, before = asyncio.get_running_loop(), {number: signal.getsignal(number) for number in ending_signals()}
    for number in before:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, before)  # asyncio sets Python's own handler for a moment
        try:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
