"""What `cfmon init` writes to stderr where that is no terminal."""

from __future__ import annotations


def faults(err: str) -> str:
    """Return stderr without the lines that say what is being done."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("init: "))
