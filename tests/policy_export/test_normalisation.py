"""Statistics of observations, read from the files of Gymnasium's users and of stable-baselines3."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.policy_export.normalisation import read_normalisation

MEAN, VAR = np.array([1.0, -2.0]), np.array([4.0, 0.25])


def test_statistics_of_an_npz_file(tmp_path: Path) -> None:
    file = str(tmp_path / "seen.npz")
    np.savez(file, mean=MEAN, var=VAR)
    found = read_normalisation(file, 2)
    assert (found.epsilon, found.clip) == (1e-8, np.inf)
    assert found.apply(np.array([[5.0, -2.0]])) == pytest.approx(np.array([[2.0, 0.0]]))
    np.savez(file, mean=MEAN, var=VAR, epsilon=0.75, clip=1.0)
    assert read_normalisation(file, 2).apply(np.array([[5.0, -1.5]])) == pytest.approx(np.array([[1.0, 0.5]]))


def test_statistics_of_a_pickle(tmp_path: Path) -> None:
    statistics = SimpleNamespace(mean=MEAN, var=VAR)
    held = SimpleNamespace(obs_rms=statistics, epsilon=0.75, clip_obs=10.0, norm_obs=True)
    (tmp_path / "seen.pkl").write_bytes(pickle.dumps(held))
    found = read_normalisation(str(tmp_path / "seen.pkl"), 2)
    assert (found.mean.tolist(), found.variance.tolist(), found.epsilon, found.clip) == ([1, -2], [4, 0.25], 0.75, 10)


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({"mean": 1}, "it holds dict, not a VecNormalize"),
        (SimpleNamespace(obs_rms=1, norm_obs=False), "does not normalise observations"),
        (SimpleNamespace(obs_rms=SimpleNamespace(mean=MEAN, var=-VAR), epsilon=0.0, clip_obs=1.0), "not negative"),
        (SimpleNamespace(obs_rms=SimpleNamespace(mean=MEAN[:1], var=VAR), epsilon=0.0, clip_obs=1.0), "has 1 numbers"),
    ],
)
def test_what_holds_no_statistics_is_explained(tmp_path: Path, held: object, why: str) -> None:
    (tmp_path / "seen.pkl").write_bytes(pickle.dumps(held))
    with pytest.raises(PolicyError, match=why):
        read_normalisation(str(tmp_path / "seen.pkl"), 2)
