"""Report compilation to machine code: it happens once per machine and is the longest part of the first start."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["log_compilation", "show_compilation"]

LOG: Final = logging.getLogger("monitor.service")

EVENT: Final = "numba:compile"
"""numba's event when it compiles a function; a function loaded from its cache causes none."""


@contextmanager
def show_compilation(shown: Progress, task: TaskID) -> Iterator[None]:
    """While the block lasts, count compiled functions in the description of the progress task."""
    from numba.core import event  # noqa: PLC0415 - only a terminal needs it

    class Listener(event.Listener):
        def __init__(self) -> None:
            self.count = 0

        def on_start(self, _event: object) -> None:
            self.count += 1
            before = shown.tasks[0].description.partition("; compiling")[0]
            once = "once per machine; `cfmon warm` does it in advance"
            description = f"{before}; compiling, {once} ({self.count} functions so far)"
            shown.update(task, description=description)

        def on_end(self, _event: object) -> None:
            pass

    with event.install_listener(EVENT, Listener()):
        yield


@contextmanager
def log_compilation() -> Iterator[None]:
    """Log a warning when the first function is compiled while the block lasts."""
    from numba.core import event  # noqa: PLC0415 - only a command that runs needs it

    class Listener(event.Listener):
        reported = False

        def on_start(self, _event: object) -> None:
            if not self.reported:
                self.reported = True
                LOG.warning(
                    "compiling, once per machine: verdicts are late for about a minute of CPU time; "
                    "`cfmon warm` compiles in advance"
                )

        def on_end(self, _event: object) -> None:
            pass

    with event.install_listener(EVENT, Listener()):
        yield
