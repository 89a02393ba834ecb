"""Limit of the memory that reading a file may take. Impure."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from monitor.errors import RecordingError

MEMORY: Final = 1 << 30
"""Bytes of memory that may be taken to read a batch, in address space, beyond what the process has."""


@contextmanager
def bounded(path: Path, memory: int | None = None) -> Iterator[None]:
    """Limit the memory that reading takes to so many bytes more than there are now; RecordingError if it takes more.

    `memory`: None: `MEMORY`.

    Readers that trust a file's sizes allocate what it declares. The limit is one of the address space, of the process.
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
