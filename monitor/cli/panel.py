"""A live table on a terminal, as `cfmon run` and `cfmon demo` show it, below the log.

It is drawn by a thread of its own, and nobody waits for it: a terminal that takes nothing (Ctrl-S, a dead connection)
holds up this thread alone. Log lines wait in a queue of bounded length, and the sidecar goes on.
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

from monitor.cli.output import printable

__all__ = ["Panel"]

EVERY: Final = 1.0
"""Seconds between two looks."""

MOST_WAITING: Final = 1000
"""Pieces of log that wait for the terminal; those beyond are counted."""

KEPT: Final = 100
"""Log lines written again when the terminal's size changes, as many as fit."""

PATIENCE: Final = 2.0
"""Seconds that a terminal has, at the end, to take what is left."""

Draw = Callable[[bool], RenderableType]
"""What to show; with True for the last time, to stay on the screen when nobody watches any more."""


class Panel:
    """A table on stdout's terminal, and above it what is written to stderr while it is `shown`.

    Nothing is drawn before `follow`.
    """

    def __init__(self) -> None:
        self._draw_what: Draw = lambda _ended: Text("")
        self._log = _Log()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="panel", daemon=True)

    def follow(self, draw: Draw) -> None:
        """Show this from now on, anew every `EVERY`; it is called on the panel's thread."""
        self._draw_what = draw

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show while the block lasts; then the last table stays, and the cursor is back."""
        aside = contextlib.redirect_stderr(self._log) if sys.stderr.isatty() else contextlib.nullcontext()
        self._thread.start()
        try:
            with aside:
                yield
        finally:
            self._over.set()
            self._log.write("")  # wakes it
            self._thread.join(PATIENCE)
            if self._thread.is_alive():
                _leave_terminal()

    # ---- the thread ----

    def _work(self) -> None:
        # A file of its own: at exit the interpreter waits for nobody who writes to a terminal that takes nothing.
        with (
            contextlib.suppress(OSError),
            os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as terminal,
        ):
            _Screen(Console(file=terminal, highlight=False), self._log, self._draw).run(self._over)
        self._log.gone = True

    def _draw(self) -> RenderableType:
        try:
            return self._draw_what(self._over.is_set())
        except Exception as error:  # noqa: BLE001 - a table that stands still would be believed
            return Text(f"this table cannot be drawn: {error!r}", style="bold red")


def _leave_terminal() -> None:
    """It takes nothing; what is still written to it on the way out, by whichever library, would hold up our end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Log(io.TextIOBase):
    """Takes what any thread writes, at once."""

    def __init__(self) -> None:
        self.gone = False
        self._waiting: queue.Queue[str] = queue.Queue(MOST_WAITING)
        self._lost = 0
        self._rest = ""

    def write(self, text: str) -> int:
        """Hand it on; it is counted as lost where too much waits."""
        if not self.gone:
            try:
                self._waiting.put_nowait(text)
            except queue.Full:
                self._lost += 1
        return len(text)

    def lines(self, wait: float) -> list[str]:
        """Whole lines, waiting so many seconds for something to come."""
        with contextlib.suppress(queue.Empty):
            self._rest += self._waiting.get(timeout=wait)
            while True:
                self._rest += self._waiting.get_nowait()
        *lines, self._rest = self._rest.split("\n")
        if self._lost and lines:
            lines.append(f"... {self._lost} pieces of the log were not shown: the terminal took nothing")
            self._lost = 0
        return lines


class _Screen:
    """The terminal: log lines, and below them what `draw` gives, drawn anew every `EVERY`."""

    def __init__(self, console: Console, log: _Log, draw: Callable[[], RenderableType]) -> None:
        self._console = console
        self._log = log
        self._draw = draw
        self._kept: deque[str] = deque(maxlen=KEPT)

    def run(self, over: threading.Event) -> None:
        """Until `over` is set. OSError if the terminal goes away."""
        live = self._begin()
        try:
            size, due = self._console.size, time.monotonic()
            while not over.is_set():
                self._tell(self._log.lines(max(0.0, due - time.monotonic())))
                if time.monotonic() < due:
                    continue
                due = time.monotonic() + EVERY
                if self._console.size != size:
                    size = self._console.size
                    live = self._begin_again(live)
                live.update(self._draw(), refresh=True)
            self._tell(self._log.lines(0.0))
            live.update(self._draw())
        finally:
            live.stop()

    def _begin(self) -> Live:
        live = Live(Text(""), console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        live.start()
        return live

    def _begin_again(self, live: Live) -> Live:
        """In another size the lines of before lie otherwise: an empty screen, the end of the log, a new table."""
        live.stop()
        self._console.clear()
        self._tell_lines(list(self._kept)[-self._console.height :])
        return self._begin()

    def _tell(self, lines: list[str]) -> None:
        if lines:
            self._kept.extend(lines)
            self._tell_lines(lines)

    def _tell_lines(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(Text(printable(line)), soft_wrap=True)
