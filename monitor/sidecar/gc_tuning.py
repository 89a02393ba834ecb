"""Settings that keep the pauses of Python's garbage collector short, for a process that runs only the monitor."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

COLLECT: Final = (500, 1, 500_000)
"""Thresholds of the collector's three generations.

The youngest generation is searched when 500 more objects were created than freed. The middle generation is searched at
every second search of the youngest. All objects are searched after 500,000 searches of the middle generation. Each
freed old object lowers the difference too, so many more than 500 objects may be young. With a threshold of 20,000, a
search of the young objects of a thousand agents took up to 140 ms; with 500 it takes up to 3 ms. A search of all
280,000 objects of a thousand agents takes 0.2 s; at 10,000 steps a second it happens once an hour.
"""


@contextlib.contextmanager
def collector_at_ease() -> Iterator[None]:
    """Use short pauses inside the block. Enter it when everything is loaded.

    The loaded modules have more than a hundred thousand objects, which are never freed. A search of these objects stops
    every thread for a tenth of a second, so they are frozen (left out of searches). Reference counting frees the
    objects of a processed message or of a forgotten agent, so searches find almost nothing.
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
