"""`cfmon warm`: make ahead the machine code that the first steps of `cfmon run` would need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli.output import progress, say

__all__ = ["warm"]


def warm(
    config: Annotated[
        list[Path] | None, typer.Argument(help="what to warm for; default: every kind of question")
    ] = None,
) -> None:
    """Compile now what `run` would compile at its first steps: a minute of processor time, once on this machine.

    Nothing is sent or stored but the machine code itself, where numba keeps it (NUMBA_CACHE_DIR).
    """
    import time  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.cli.warm import warm as live  # noqa: PLC0415 - likewise
    from monitor.cli.warm import worlds  # noqa: PLC0415 - likewise

    begun = time.perf_counter()
    with progress("warming") as bar:
        for name, loaded in worlds([str(file) for file in config or ()]):
            bar.at(0, f"warming for {name}")
            steps = live(loaded)
            say(f"warm: {name}, {steps} steps; {time.perf_counter() - begun:.1f} s by now")
