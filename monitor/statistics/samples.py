"""Check samples. Each function raises InputError unless all samples are valid, because NaN must not decide a test."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats, Ints
from monitor.errors import InputError

SLACK = 1e-9
"""Fraction of the range by which a sample may be outside the range, because of rounding in a long sum of rewards."""


def outcome_array(outcomes: ArrayLike) -> Ints:
    """Return outcomes as integers. Raises InputError unless each is 0 or 1."""
    values = np.asarray(outcomes)
    if not (values.dtype == np.bool_ or bool(np.isin(values, (0, 1)).all())):
        raise InputError("bad_sample", "outcomes must be 0 or 1 (false or true)")
    return values.astype(np.int64)


def sample_array(values: ArrayLike) -> Floats:
    """Return samples as floats. Raises InputError unless all are finite."""
    seen = np.asarray(values, dtype=np.float64)
    if not np.isfinite(seen).all():
        raise InputError("bad_sample", "samples must be finite numbers")
    return seen


def unit_array(values: ArrayLike, lo: float, hi: float) -> Floats:
    """Return samples rescaled from [lo, hi] to [0, 1]. Raises InputError if a sample is outside [lo, hi]."""
    scaled = (sample_array(values) - lo) / (hi - lo)
    if scaled.size and not (scaled.min() >= -SLACK and scaled.max() <= 1.0 + SLACK):
        raise InputError("bad_sample", f"samples must lie in [{lo}, {hi}]")
    return np.asarray(np.clip(scaled, 0.0, 1.0))
