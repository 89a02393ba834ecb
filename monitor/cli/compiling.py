"""Says on a terminal that machine code is being made: it happens once, and takes longer than anything else at start."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["logging_of_machine_code", "telling_of_machine_code"]

LOG: Final = logging.getLogger("monitor.service")

EVENT: Final = "numba:compile"
"""What numba says when it compiles; it does not where it finds what it made before."""


@contextmanager
def telling_of_machine_code(shown: Progress, task: TaskID) -> Iterator[None]:
    """Say it under the task for as long as the block lasts, from the first function compiled on."""
    from numba.core import event  # noqa: PLC0415 - only a terminal needs it

    class Listener(event.Listener):
        def __init__(self) -> None:
            self.count = 0

        def on_start(self, _event: object) -> None:
            self.count += 1
            before = shown.tasks[0].description.partition("; making machine code")[0]
            once = "once on this machine; `cfmon warm` does it ahead"
            what = f"{before}; making machine code, {once} ({self.count} functions so far)"
            shown.update(task, description=what)

        def on_end(self, _event: object) -> None:
            pass

    with event.install_listener(EVENT, Listener()):
        yield


@contextmanager
def logging_of_machine_code() -> Iterator[None]:
    """Say it in the log, once, at the first function compiled while the block lasts: where nobody sees a terminal."""
    from numba.core import event  # noqa: PLC0415 - only a command that runs needs it

    class Listener(event.Listener):
        told = False

        def on_start(self, _event: object) -> None:
            if not self.told:
                self.told = True
                LOG.warning(
                    "making machine code, once on this machine: about a minute of processor time, in which answers are "
                    "late; `cfmon warm` does it ahead"
                )

        def on_end(self, _event: object) -> None:
            pass

    with event.install_listener(EVENT, Listener()):
        yield
