"""Live table on a terminal, below the log, for `cfmon run` and `cfmon demo`.

A separate thread draws the table, and no other thread waits for it. A terminal that blocks (Ctrl-S, a dead connection)
blocks only this thread. Log lines wait in a bounded queue, and the monitor continues.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from monitor.errors import printable

REDRAW_EVERY: Final = 1.0
"""Seconds between two redraws."""

MAX_WAITING: Final = 1000
"""Largest number of pieces of the log that wait for the terminal. Further pieces are dropped and counted."""

KEPT: Final = 100
"""Number of log lines that are kept, to be written again when the terminal's size changes."""

FINISH_WITHIN: Final = 2.0
"""Seconds that the terminal has at the end for the remaining output."""

Render = Callable[[bool], RenderableType]
"""Returns the table. The argument is True for the last table, which stays on the screen."""


class Panel:
    """Table on the terminal of stdout, with stderr written above it while it is `shown`.

    The table is empty before `follow`.
    """

    def __init__(self) -> None:
        self._draw_what: Render = lambda _ended: Text("")
        self._log = _Log()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="panel", daemon=True)

    def follow(self, draw: Render) -> None:
        """From now on, show the result of `draw`, every `REDRAW_EVERY` seconds.

        `draw` is called on the panel's thread.
        """
        self._draw_what = draw

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the table during the block. Afterwards leave the last table on the screen and restore the cursor."""
        redirected = contextlib.redirect_stderr(self._log) if sys.stderr.isatty() else contextlib.nullcontext()
        self._thread.start()
        try:
            with redirected:
                yield
        finally:
            self._over.set()
            self._log.write("")  # wakes the thread
            self._thread.join(FINISH_WITHIN)
            if self._thread.is_alive():
                _discard_output()

    # ---- the thread ----

    def _work(self) -> None:
        # A separate file object, because at exit the interpreter would wait for a blocked write to stdout.
        with (
            contextlib.suppress(OSError),
            os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as terminal,
        ):
            _Screen(Console(file=terminal, highlight=False), self._log, self._draw).run(self._over)
        self._log.gone = True

    def _draw(self) -> RenderableType:
        try:
            return self._draw_what(self._over.is_set())
        except Exception as error:  # noqa: BLE001 - an outdated table would be misleading
            return Text(f"this table cannot be drawn: {error!r}", style="bold red")


def _discard_output() -> None:
    """Redirect stdout and stderr to /dev/null if they are the blocked terminal, so that no write delays the exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Log(io.TextIOBase):
    """Text stream that any thread writes to without blocking."""

    def __init__(self) -> None:
        self.gone = False
        self._waiting: queue.Queue[str] = queue.Queue(MAX_WAITING)
        self._lost = 0
        self._rest = ""

    def write(self, text: str) -> int:
        """Queue the text; count it as lost if the queue is full."""
        if not self.gone:
            try:
                self._waiting.put_nowait(text)
            except queue.Full:
                self._lost += 1
        return len(text)

    def lines(self, wait: float) -> list[str]:
        """Return whole lines; wait up to `wait` seconds for the first text."""
        with contextlib.suppress(queue.Empty):
            self._rest += self._waiting.get(timeout=wait)
            while True:
                self._rest += self._waiting.get_nowait()
        *lines, self._rest = self._rest.split("\n")
        if self._lost and lines:
            lines.append(f"... {self._lost} pieces of the log were not shown: the terminal was blocked")
            self._lost = 0
        return lines


class _Screen:
    """Terminal with log lines and, below them, the table, which is redrawn every `REDRAW_EVERY` seconds."""

    def __init__(self, console: Console, log: _Log, draw: Callable[[], RenderableType]) -> None:
        self._console = console
        self._log = log
        self._draw = draw
        self._kept: deque[str] = deque(maxlen=KEPT)

    def run(self, over: threading.Event) -> None:
        """Draw until `over` is set. Raise OSError if the terminal is closed."""
        live = self._start()
        try:
            size, due = self._console.size, time.monotonic()
            while not over.is_set():
                self._log_above(self._log.lines(max(0.0, due - time.monotonic())))
                if time.monotonic() < due:
                    continue
                due = time.monotonic() + REDRAW_EVERY
                if self._console.size != size:
                    size = self._console.size
                    live = self._restart(live)
                live.update(self._draw(), refresh=True)
            self._log_above(self._log.lines(0.0))
            live.update(self._draw())
        finally:
            live.stop()

    def _start(self) -> Live:
        live = Live(Text(""), console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        live.start()
        return live

    def _restart(self, live: Live) -> Live:
        """Clear the screen and write the last log lines again, because a new terminal size has moved the old lines."""
        live.stop()
        self._console.clear()
        self._print(list(self._kept)[-self._console.height :])
        return self._start()

    def _log_above(self, lines: list[str]) -> None:
        if lines:
            self._kept.extend(lines)
            self._print(lines)

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(Text(printable(line)), soft_wrap=True)
