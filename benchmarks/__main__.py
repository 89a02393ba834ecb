"""`python -m benchmarks`: measure, print the table, and write the requested files."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.loading import Peers
from benchmarks.rows import Bench, DisagreementError, Row, failed, load
from benchmarks.table import document, notes, plot, table
from monitor.cli.output import progress, say
from monitor.errors import ConfigError

__all__ = ["main"]

WIDTH = 160
"""Width in characters of a table that is not printed on a terminal."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the rows named in `arguments` (default: the command line), or all of them.

    Raises:
        ConfigError: a row does not exist, or the plot cannot be written.
        DisagreementError: our value differs from a peer's.
    """
    given = _parser().parse_args(arguments)
    peers = Peers(None) if given.alone else Peers()
    rows = measured(Bench(peers, quick=given.quick, seed=given.seed, report=_report), given.row)
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(rows))
    for line in notes(rows):
        say(line)
    if given.json is not None:
        now = given.now or datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps(document(rows, now=now, quick=given.quick, seed=given.seed), indent=2, ensure_ascii=False)
        given.json.write_text(text + "\n", encoding="utf-8")
    if given.plot is not None:
        plot(rows, given.plot)


def measured(bench: Bench, keys: Sequence[str]) -> list[Row]:
    """Return the rows of these keys, or all rows; a failed measurement becomes a row with a note.

    Raises:
        ConfigError: a row does not exist.
        DisagreementError: our value differs from a peer's.
    """
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
                raise  # different values: the times mean nothing
            except (AssertionError, OSError, subprocess.SubprocessError) as problem:  # measure the others
                rows.append(failed(key, problem))
            bench.report(f"{key}: measured")
    return rows


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the cost of steps and queries, in the same run as other tools, against the targets.",
    )
    parser.add_argument("--row", action="append", default=[], metavar="KEY", help="only this row; may be repeated")
    parser.add_argument("--quick", action="store_true", help="take seconds instead of minutes; numbers are rough")
    parser.add_argument("--alone", action="store_true", help="skip the peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg|.png", help="plot cost against size")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default: 0)")
    parser.add_argument("--now", metavar="TIME", help="time of the measurement, ISO 8601 (default: now)")
    return parser


def _report(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(line + "\n")


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(f"python -m benchmarks: {error}")
