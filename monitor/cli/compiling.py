"""Says on a terminal that machine code is being made: it happens once, and takes longer than anything else at start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["telling_of_machine_code"]

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
            what = f"{before}; making machine code, once on this machine ({self.count} functions so far)"
            shown.update(task, description=what)

        def on_end(self, _event: object) -> None:
            pass

    with event.install_listener(EVENT, Listener()):
        yield
