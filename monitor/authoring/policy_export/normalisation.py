"""Statistics that normalise observations and become part of a network: (x - mean) / sqrt(var + epsilon), clipped.

Files are `.npz` with `mean`, `var`, and optionally `epsilon` (1e-8) and `clip`, as for Gymnasium's
`NormalizeObservation` (mean and variance of its `obs_rms`), or `.pkl` of stable-baselines3's `VecNormalize`. Opening a
`.pkl` executes code.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.authoring.policy_export.original import Anything
from monitor.errors import PolicyError
from monitor.model.unpack import check_archive
from monitor.user_code import explained

AS_THEY_ARE: Final = "none"
"""The value of `--normalise` for observations that are not normalised."""

LARGEST: Final = 64 << 20
"""Largest size in bytes of a `.npz` file with statistics, packed and unpacked: 4 million numbers."""

_DEFAULTS: Final = (("epsilon", 1e-8), ("clip", np.inf))


@dataclass(frozen=True)
class Normalisation:
    """Mean, scale (positive) and clip of each number of an observation, [D].

    `clip`: each normalised number is limited to the range from -clip to clip; infinity: no limit.
    """

    mean: Floats
    scale: Floats
    clip: Floats

    def apply(self, observations: AnyArray) -> Floats:
        """Return normalised observations [n, D]."""
        scaled: Floats = (observations - self.mean) / self.scale
        return np.clip(scaled, -self.clip, self.clip)


def read_normalisation(file: str, width: int) -> Normalisation:
    """Return the statistics in a file, for observations of `width` numbers. Raises PolicyError."""
    try:
        found = _of_npz(Path(file)) if file.endswith(".npz") else _of_pickle(Path(file))
    except PolicyError as error:
        raise PolicyError(f"--normalise {file}: {error}") from error
    except Exception as error:  # a pickle raises anything
        raise PolicyError(f"--normalise {file}: cannot be read ({explained(error)})") from error
    if found.mean.shape != (width,) or found.scale.shape != (width,):
        raise PolicyError(f"--normalise {file}: it has {found.mean.size} numbers, an observation has {width}")
    if not (np.isfinite(found.mean).all() and np.isfinite(found.scale).all() and (found.scale > 0).all()):
        raise PolicyError(f"--normalise {file}: mean and variance must be finite, the variance not negative")
    return found


def _of_npz(file: Path) -> Normalisation:
    if file.stat().st_size > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    content = file.read_bytes()
    check_archive(content, LARGEST)
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        epsilon, clip = (float(held[name]) if name in held else default for name, default in _DEFAULTS)
        return _normalisation(held["mean"], held["var"], epsilon, clip)


def _of_pickle(file: Path) -> Normalisation:
    with file.open("rb") as opened:
        held: Anything = pickle.load(opened)  # noqa: S301 - the user's own file, as the command says
    found = getattr(held, "__dict__", {})  # without an environment, it searches endlessly for a missing attribute
    if "obs_rms" not in found and "norm_obs" not in found:
        raise PolicyError(f"it holds {type(held).__name__}, not a VecNormalize")
    if not found.get("norm_obs", True):
        raise PolicyError(
            f"this VecNormalize does not normalise observations (norm_obs is False): give --normalise {AS_THEY_ARE}"
        )
    statistics, epsilon, clip = held.obs_rms, float(held.epsilon), float(held.clip_obs)
    if not isinstance(statistics, Mapping):
        return _normalisation(statistics.mean, statistics.var, epsilon, clip)
    from gymnasium.spaces import flatdim  # noqa: PLC0415 - of stable-baselines3

    parts = [  # parts of a Dict, in Gymnasium's order; parts without statistics are not changed
        _normalisation(statistics[name].mean, statistics[name].var, epsilon, clip)
        if name in statistics
        else Normalisation(np.zeros(flatdim(space)), np.ones(flatdim(space)), np.full(flatdim(space), np.inf))
        for name, space in held.observation_space.spaces.items()
    ]
    return Normalisation(
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate([part.clip for part in parts]),
    )


def _normalisation(mean: AnyArray, variance: AnyArray, epsilon: float, clip: float) -> Normalisation:
    means = np.asarray(mean, dtype=np.float64).reshape(-1)
    with np.errstate(invalid="ignore"):  # a negative variance is reported
        scales = np.sqrt(np.asarray(variance, dtype=np.float64).reshape(-1) + epsilon)
    return Normalisation(means, scales, np.full(means.shape, clip))
