"""The table on the terminal, the JSON document, and the plot."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.rows import Point, Row
from benchmarks.timing import Timing
from monitor._version import __version__
from monitor.errors import ConfigError, to_install

__all__ = ["document", "machine", "notes", "plot", "shown", "table"]

SCHEMA = 1
AXES = {"states": "|S|", "offset": "offset", "horizon": "horizon", "agents": "agents"}


def table(rows: Sequence[Row]) -> Table:
    """Return the table for the terminal, without notes (see `notes`)."""
    made = Table(title="median (99th percentile)", show_lines=True)
    for name in ("row", "measures", "ours", "peer", "ratio", "target", "met"):
        made.add_column(name, justify="right" if name in ("ours", "peer", "ratio") else "left")
    for row in rows:
        peer = "\n".join(filter(None, [row.peer, "" if row.theirs is None else shown(row.theirs, row.unit)]))
        ratio = "-" if row.ratio is None else f"{row.ratio:,.3g}x" if row.ratio < 100 else f"{row.ratio:,.0f}x"
        met = "-" if row.met is None else "met" if row.met else "missed"
        ours = "-" if row.ours is None else shown(row.ours, row.unit)
        made.add_row(row.key, row.title, ours, peer or "-", ratio, row.target, met)
    return made


def notes(rows: Sequence[Row]) -> list[str]:
    """Return one line for each row with a note."""
    return [f"{row.key}: {row.note}" for row in rows if row.note]


def shown(timing: Timing, unit: str) -> str:
    """Return median and 99th percentile as text; seconds are scaled to s, ms, us or ns.

    >>> shown(Timing(6.2e-6, 1.1e-5, 1000), "s")
    '6.2 us (11 us)'
    >>> shown(Timing(51.0, 51.0, 1), "KB an agent")
    '51 KB an agent'
    """
    if unit == "s":
        median, p99 = _seconds(timing.median), _seconds(timing.p99)
    else:
        median, p99 = f"{timing.median:,.3g} {unit}", f"{timing.p99:,.3g} {unit}"
    return median if timing.n == 1 else f"{median} ({p99})"


def _seconds(value: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def machine() -> dict[str, object]:
    """Return the versions and the hardware that the numbers depend on."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def _cpu() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        for line in facts.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def document(rows: Sequence[Row], *, now: str, quick: bool, seed: int) -> dict[str, object]:
    """Return the JSON document. `now`: time of the measurement, ISO 8601."""
    return {
        "v": SCHEMA,
        "version": __version__,
        "time": now,
        "quick": quick,
        "seed": seed,
        "machine": machine(),
        "rows": [asdict(row) for row in rows],
    }


def plot(rows: Sequence[Row], file: Path) -> None:
    """Plot the cost of a step against |S|, offset, horizon and agents; the file's suffix sets the format.

    Raises:
        ConfigError: matplotlib is missing, or cannot write this format.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - only a plot needs it
    except ImportError as error:
        raise ConfigError(f"--plot needs matplotlib: {to_install('bench')}") from error
    figure = Figure(figsize=(10, 7), layout="constrained")
    points = [point for row in rows for point in row.points]
    for place, (axis, name) in zip(figure.subplots(2, 2).flat, AXES.items(), strict=True):
        here = [point for point in points if point.axis == axis]
        place.set(xlabel=name, ylabel="microseconds a step", title="" if here else "not measured in this run")
        for series in dict.fromkeys(point.series for point in here):
            place.plot(*_line(here, series), marker="o", label=series)
        if here:
            place.set_yscale("log")
            place.set_xscale("linear" if axis in ("offset", "horizon") else "log")
            place.legend(fontsize="small")
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {file}: {error}") from error


def _line(points: Sequence[Point], series: str) -> tuple[list[float], list[float]]:
    line = sorted((point.size, point.seconds * 1e6) for point in points if point.series == series)
    return [size for size, _ in line], [cost for _, cost in line]
