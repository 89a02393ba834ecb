"""Python's garbage collector, told what it need not look at. For a process that is all ours."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

__all__ = ["collector_at_ease"]

COLLECT: Final = (20_000, 10, 10)
"""When it looks: after so many more objects than were freed, and every tenth time one generation deeper."""


@contextlib.contextmanager
def collector_at_ease() -> Iterator[None]:
    """To be entered once everything is loaded.

    What was loaded stays: 170,000 objects of modules and compiled code. To go through them stops every thread for a
    tenth of a second, so they are frozen. What a message leaves is freed by counting references, so that a search each
    700 objects, Python's own setting, finds nothing and costs each message some two microseconds.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
