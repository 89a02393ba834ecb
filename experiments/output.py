"""What the experiments share: arguments, progress, CSV files that repeat to the byte, figures."""

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
"""As in the paper; the orange prints light, the blue dark."""
DPI = 150


def arguments(docstring: str | None, *, seed: int) -> argparse.ArgumentParser:
    """A parser that knows `--seed` and `--out`."""
    parser = argparse.ArgumentParser(description=(docstring or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=seed, help="of all that is drawn (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for CSV and figures (default: %(default)s)")
    return parser


def progress(rows: Sequence[int], what: str) -> Iterable[int]:
    """The same numbers, with a bar on stderr if that is a terminal."""
    console = Console(stderr=True)
    return track(rows, what, console=console, disable=not console.is_terminal, transient=True)


def plain(value: float) -> float:
    """To 12 decimals, so that the order in which a machine adds does not show; -0 is 0."""
    return round(value, 12) + 0.0


def write_csv(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """One line for each row, the first one's keys as the header."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches. Ends the program with a word where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - only a figure needs it
    except ImportError:
        sys.exit(f"figures need matplotlib: {to_install('experiments')}")
    return Figure(figsize=(width, height), layout="constrained")


def save(picture: Figure, file: Path) -> None:
    """As PNG, and say so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(file, dpi=DPI, metadata={"Software": None})
    print(f"-> {file}")
