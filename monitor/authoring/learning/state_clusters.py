"""Clusters of observations, `kmeans:50`: k-means centres (Lloyd 1982) of a sample of rows, started with k-means++."""

from __future__ import annotations

import re
import warnings
from typing import Final

import numpy as np
from scipy.cluster.vq import kmeans2

from monitor.arrays import Floats
from monitor.authoring.learning.bins import MOST, Reservoir
from monitor.errors import ModelError, RecordingError
from monitor.model.centres import Centres

ROUNDS: Final = 50
"""Iterations of Lloyd's algorithm."""


def parsed_clusters(text: str) -> int | None:
    """Return K of `kmeans:K`, or None for another text. Raises ModelError if K is not from 1 to `MOST`.

    >>> parsed_clusters("kmeans:50")
    50
    """
    if not text.startswith("kmeans:"):
        return None
    count = int(text[7:]) if re.fullmatch(r"kmeans:[0-9]{1,6}", text) else 0
    if not 1 <= count <= MOST:
        raise ModelError(f"--abstraction {text}: give 1 to {MOST:,} clusters, such as kmeans:50")
    return count


def centres_of(columns: tuple[str, ...], count: int, sample: Reservoir, rng: np.random.Generator) -> Centres:
    """Return at most `count` centres, ascending. There are fewer if rows are too few or clusters become empty.

    Columns are divided by their standard deviation, so that all columns have the same weight. Raises RecordingError if
    a number is too large.
    """
    rows = sample.rows
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        scales = np.where((sample.low < sample.high) & (spread > 0), spread, 1.0)
        scaled = (rows - mean) / scales
    if not (np.isfinite(scales).all() and np.isfinite(scaled).all()):
        worst = columns[int(np.argmax(np.maximum(np.abs(sample.low), np.abs(sample.high))))]
        raise RecordingError(f"column {worst!r}: its numbers are too large for clusters; use --bins")
    different = np.unique(rows, axis=0)
    if len(different) <= count:
        return Centres(different, scales)
    points = np.unique(_lloyd(scaled, count, rng) * scales + mean, axis=0)
    used = np.unique(Centres(points, scales).nearest(rows)[0])
    return Centres(points[used], scales)


def _started(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return `count` rows. Each is drawn in proportion to its squared distance from the rows drawn before (k-means++).

    SciPy's implementation compares all rows with all centres at each draw, which takes minutes for a thousand centres.
    """
    chosen = [int(rng.integers(len(rows)))]
    squares = np.full(len(rows), np.inf)
    while len(chosen) < count:
        squares = np.minimum(squares, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
        shares = squares.cumsum()
        drawn = int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))
        chosen.append(min(drawn, len(rows) - 1))  # rounding may make the product equal to the sum
    return rows[chosen]


def _lloyd(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # empty clusters are removed afterwards
        centres: Floats = kmeans2(rows, _started(rows, count, rng), iter=ROUNDS, minit="matrix")[0]
    return centres
