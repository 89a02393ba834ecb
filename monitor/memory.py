"""Limit the memory that reading a file may take."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from monitor.errors import RecordingError

MEMORY: Final = 1 << 30
"""Maximum bytes of address space that reading a batch may add to the process."""


@contextmanager
def bounded(path: Path, memory: int | None = None) -> Iterator[None]:
    """Limit the bytes that the block may add to the process's memory. Raises RecordingError if it needs more.

    `memory`: None means `MEMORY`. Readers allocate the sizes that a file declares. The limit is on the address space of
    the whole process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    memory = MEMORY if memory is None else memory
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(soft, most), hard))
    try:
        yield
    except MemoryError as error:
        raise RecordingError(
            f"{path}: takes more than {memory >> 20} MiB of memory to read at once; store it in smaller parts (shorter "
            "lists and texts, smaller pages or chunks), or leave out its largest columns"
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
