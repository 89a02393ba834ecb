"""Plants whose steps are known, recorded by a loop of their own: a tank with a valve and rain, and how warm it is."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

__all__ = ["COLUMNS", "NOISE", "PLANTS", "Plant", "linear", "record", "recorded", "spread"]

COLUMNS: Final = ("episode", "step", "level", "warmth", "rain", "valve", "reward", "done")
NOISE: Final = (0.2, 0.5)
"""Standard deviations of the noise of a step, of all plants but `curved` and `whole`."""

Numbers = tuple[float, float]
Plant = Callable[..., Numbers]
"""(level, warmth, valve, rain, standard normal noise of each, hidden leak) -> the next level and warmth."""


def linear(*now: float) -> Numbers:
    level, warmth, valve, rain, z1, z2, _ = now
    return 0.9 * level + 0.5 * rain - 0.8 * valve + 0.2 * z1, 4 + 0.8 * warmth + 0.3 * level + 0.5 * z2


def curved(*now: float) -> Numbers:
    """The valve lets out as Torricelli says, the warmth turns, and a full tank is noisier."""
    level, warmth, valve, rain, z1, z2, _ = now
    out = 0.6 * valve * math.sqrt(max(level, 0.0))
    return level + 0.5 * rain - out - 0.05 * level + spread(level) * z1, 20 + 4 * math.sin(warmth / 3) + 0.5 * z2


def spread(level: float) -> float:
    return 0.1 + 0.04 * max(level, 0.0)


def hidden(*now: float) -> Numbers:
    level, warmth = linear(*now)
    return level + now[-1], warmth


def whole(*now: float) -> Numbers:
    """A tank that overflows at 10, and a warmth in whole degrees that does not fall below 0."""
    level, warmth, valve, rain, z1, z2, _ = now
    full = min(level + 0.8 * rain - 1.2 * valve - 0.2 + 0.4 * z1, 10.0)
    return full, float(math.floor(max(0.7 * warmth + 0.5 * level - 1.5 + 1.5 * z2, 0.0) + 0.5))


PLANTS: Final[dict[str, Plant]] = {"linear": linear, "curved": curved, "hidden": hidden, "whole": whole}


def record(plant: Plant, seed: int, episodes: int, steps: int = 50, full: float = 6.0) -> list[list[object]]:
    """Rows of `COLUMNS`. The operator opens the valve above `full`, but in a fifth of the steps does anything."""
    rng = random.Random(seed)
    rows: list[list[object]] = []
    for episode in range(episodes):
        level, warmth, leak = rng.uniform(3, 7), float(rng.randint(15, 25)), 0.0
        for step in range(steps):
            rain = rng.gammavariate(2, 0.5)
            valve = int(level > full) if rng.random() < 0.8 else rng.randrange(2)
            rows.append([episode, step, level, warmth, rain, ("shut", "open")[valve], -level, step == steps - 1])
            leak = 0.95 * leak + 0.2 * rng.gauss(0, 1)
            level, warmth = plant(level, warmth, valve, rain, rng.gauss(0, 1), rng.gauss(0, 1), leak)
    return rows


def recorded(path: Path, rows: Sequence[Sequence[object]], columns: Sequence[str] = COLUMNS) -> Path:
    """Write rows as a CSV file; return its path."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path
