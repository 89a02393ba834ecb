"""Statistics that normalise observations, baked into an exported network: (x - mean) / sqrt(var + epsilon), clipped.

Files: `.npz` with `mean`, `var`, and optionally `epsilon` (1e-8) and `clip`, as for Gymnasium's `NormalizeObservation`
(mean and variance of its `obs_rms`); or `.pkl` of stable-baselines3's `VecNormalize`; opening one executes code.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.errors import PolicyError
from monitor.policy_export.original import Anything
from monitor.user_code import explained

__all__ = ["Normalisation", "read_normalisation"]


@dataclass(frozen=True)
class Normalisation:
    """Mean and variance [D] of each number of an observation. `clip`: largest magnitude of the result, or infinity."""

    mean: Floats
    variance: Floats
    epsilon: float
    clip: float

    def apply(self, observations: AnyArray) -> Floats:
        """Return normalised observations [n, D]."""
        scaled: Floats = (observations - self.mean) / np.sqrt(self.variance + self.epsilon)
        return np.clip(scaled, -self.clip, self.clip)


def read_normalisation(file: str, width: int) -> Normalisation:
    """Return the statistics in a file, for observations of `width` numbers. Raises PolicyError."""
    try:
        found = _of_npz(Path(file)) if file.endswith(".npz") else _of_pickle(Path(file))
    except Exception as error:  # a pickle raises anything
        raise PolicyError(f"--normalise {file}: cannot be read ({explained(error)})") from error
    shape = (width,)
    if found.mean.shape != shape or found.variance.shape != shape:
        raise PolicyError(f"--normalise {file}: it has {found.mean.size} numbers, an observation has {width}")
    if not (np.isfinite(found.mean).all() and np.isfinite(found.variance).all() and (found.variance >= 0).all()):
        raise PolicyError(f"--normalise {file}: mean and variance must be finite, the variance not negative")
    return found


def _of_npz(file: Path) -> Normalisation:
    with np.load(file, allow_pickle=False) as held:
        epsilon, clip = (float(held[name]) if name in held else default for name, default in _DEFAULTS)
        return Normalisation(_flat(held["mean"]), _flat(held["var"]), epsilon, clip)


_DEFAULTS = (("epsilon", 1e-8), ("clip", np.inf))


def _of_pickle(file: Path) -> Normalisation:
    with file.open("rb") as opened:
        held: Anything = pickle.load(opened)  # noqa: S301 - the user's own file, as the help of the command says
    if not hasattr(held, "obs_rms"):
        raise TypeError(f"it holds {type(held).__name__}, not a VecNormalize")
    if not getattr(held, "norm_obs", True):
        raise TypeError("this VecNormalize does not normalise observations (norm_obs is False); leave it out")
    mean, variance = _flat(held.obs_rms.mean), _flat(held.obs_rms.var)
    return Normalisation(mean, variance, float(held.epsilon), float(held.clip_obs))


def _flat(values: AnyArray) -> Floats:
    return np.asarray(values, dtype=np.float64).reshape(-1)
