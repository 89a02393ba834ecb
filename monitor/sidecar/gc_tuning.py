"""Settings of Python's garbage collector that keep its pauses short. For a process that is all ours."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

COLLECT: Final = (500, 1, 500_000)
"""When it searches: the youngest objects once 500 more were made than freed, the young ones every second time, all of
them after 500,000 of these searches.

The count falls with each old object that is freed, so many more than 500 may be young: with 20,000, the young of a
thousand agents took up to 140 ms, with 500 up to 3 ms, and each survivor is looked at twice either way. All 280,000
objects of a thousand agents take .2 s: at 10,000 steps a second once an hour.
"""


@contextlib.contextmanager
def collector_at_ease() -> Iterator[None]:
    """To be entered once everything is loaded.

    What was loaded stays: more than a hundred thousand objects of modules. To go through them stops every thread for a
    tenth of a second, so they are frozen. What a message leaves is freed by counting references, and so is a forgotten
    agent: searches find next to nothing, so only their pauses matter.
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
