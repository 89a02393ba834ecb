"""`cfmon warm`: compile in advance what the first steps of `cfmon run` need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.cli.output import progress, say

__all__ = ["warm"]


def warm(
    config: Annotated[
        list[Path] | None, typer.Argument(help="configuration files; default: every kind of formula")
    ] = None,
) -> None:
    """Compile now what `run` compiles at its first steps.

    Take about a minute of CPU time, once per machine. Store only the machine code, in numba's cache (NUMBA_CACHE_DIR).
    """
    import time  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.cli.warm import configurations  # noqa: PLC0415 - likewise
    from monitor.cli.warm import warm as compile_for  # noqa: PLC0415 - likewise

    start = time.perf_counter()
    with progress("compiling") as bar:
        for name, loaded in configurations([str(file) for file in config or ()]):
            bar.at(0, f"compiling for {name}")
            steps = compile_for(loaded)
            say(f"warm: {name}, {steps} steps; {time.perf_counter() - start:.1f} s so far")
