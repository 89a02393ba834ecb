"""`cfmon bench`: the benchmark table, beside the peers where they are at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monitor.cli.output import progress, say
from monitor.cli.signals import orderly

if TYPE_CHECKING:
    from monitor.bench.rows import Bench, Row

__all__ = ["bench"]

PEERS = Path("tests/bench")
WIDTH = 160
"""Of the table in a file, in characters."""


def bench(
    row: Annotated[
        list[str] | None, typer.Option("--row", metavar="KEY", help="this row alone; may be repeated")
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="seconds instead of minutes; rough numbers")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write the table as JSON")] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg|.png", help="plot cost against size")
    ] = None,
    peers: Annotated[
        Path | None, typer.Option(metavar="DIR", help=f"where the peers are  [default: {PEERS}, if it is there]")
    ] = None,
    seed: Annotated[int, typer.Option(help="of all that is drawn")] = 0,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="the time to write down  [default: now]")] = None,
) -> None:
    """Measure what steps and questions cost, beside other tools in the same run, against the targets."""
    from rich.console import Console  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.bench.peers import Peers  # noqa: PLC0415 - likewise
    from monitor.bench.rows import Bench  # noqa: PLC0415 - likewise
    from monitor.bench.table import document, notes, plot, table  # noqa: PLC0415 - likewise

    folder = peers if peers is not None else PEERS if PEERS.is_dir() else None
    with orderly():  # peers are processes
        rows = measured(Bench(Peers(folder), quick=quick, seed=seed, tell=_tell), row or [])
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(rows))
    for line in notes(rows):
        say(line)
    if json_file is not None:
        when = now or datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps(document(rows, now=when, quick=quick, seed=seed), indent=2, ensure_ascii=False)
        json_file.write_text(text + "\n", encoding="utf-8")
    if plot_file is not None:
        plot(rows, plot_file)


def measured(bench: Bench, keys: list[str]) -> list[Row]:
    """The rows of these keys, or all; one whose own conditions were not met says so, and the others go on.

    Raises:
        ConfigError: there is no such row.
        DisagreementError: we and a peer got different values.
    """
    from monitor.bench.rows import DisagreementError, failed, load  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.errors import ConfigError  # noqa: PLC0415 - likewise

    known = load()
    for key in keys:
        if key not in known:
            raise ConfigError(f"--row {key}: no such row; there are {', '.join(known)}")
    rows: list[Row] = []
    chosen = keys or list(known)
    with progress("measuring", total=len(chosen), still=True) as bar:
        for done, key in enumerate(chosen):
            bar.at(done, f"measuring {key}")
            try:
                rows += known[key](bench)
            except DisagreementError:
                raise  # two values of the same thing: no time is worth reading then
            except (AssertionError, OSError, subprocess.SubprocessError) as problem:  # the others are still worth it
                rows.append(failed(key, problem))
            bench.tell(f"{key}: measured")
    return rows


def _tell(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(line + "\n")
