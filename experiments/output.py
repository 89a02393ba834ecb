"""Common parts of the experiments: arguments, progress, reproducible CSV files, figures."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track

from monitor.errors import to_install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BLUE", "ORANGE", "arguments", "figure", "plain", "progress", "save", "write_csv"]

OUT = Path("var/experiments")
ORANGE, BLUE = "#e08214", "#2a5caa"
"""Colours of the paper; in greyscale, orange is light and blue is dark."""
DPI = 150


def arguments(docstring: str | None, *, seed: int) -> argparse.ArgumentParser:
    """Return a parser with `--seed` and `--out`."""
    parser = argparse.ArgumentParser(description=(docstring or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=seed, help="seed of all random numbers (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for CSV and figures (default: %(default)s)")
    return parser


def progress(rows: Sequence[int], what: str) -> Iterable[int]:
    """Yield the same numbers, with a progress bar on stderr if it is a terminal."""
    console = Console(stderr=True)
    return track(rows, what, console=console, disable=not console.is_terminal, transient=True)


def plain(value: float) -> float:
    """Round to 12 decimals, so that the order of summation has no effect; turn -0 into 0."""
    return round(value, 12) + 0.0


def write_csv(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write one line for each row, with the keys of the first row as header."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def figure(width: float, height: float) -> Figure:
    """Return an empty figure, sizes in inches. Exit with a message if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - only a figure needs it
    except ImportError:
        sys.exit(f"figures need matplotlib: {to_install('experiments')}")
    return Figure(figsize=(width, height), layout="constrained")


def save(picture: Figure, file: Path) -> None:
    """Save a figure as PNG and print its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(file, dpi=DPI, metadata={"Software": None})
    print(f"-> {file}")
