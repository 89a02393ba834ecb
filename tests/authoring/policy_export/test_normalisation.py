"""Statistics of observations, read from the files of Gymnasium's users and of stable-baselines3."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from monitor.authoring.policy_export.normalisation import read_normalisation
from monitor.errors import PolicyError

MEAN, VAR = np.array([1.0, -2.0]), np.array([4.0, 0.25])


def test_statistics_of_an_npz_file(tmp_path: Path) -> None:
    file = str(tmp_path / "seen.npz")
    np.savez(file, mean=MEAN, var=VAR)
    found = read_normalisation(file, 2)
    assert found.scale.tolist() == pytest.approx(np.sqrt(VAR + 1e-8).tolist(), rel=1e-12)
    assert found.clip.tolist() == [np.inf, np.inf]
    assert found.apply(np.array([[5.0, -2.0]])) == pytest.approx(np.array([[2.0, 0.0]]))
    np.savez(file, mean=MEAN, var=VAR, epsilon=0.75, clip=1.0)
    assert read_normalisation(file, 2).apply(np.array([[5.0, -1.5]])) == pytest.approx(np.array([[1.0, 0.5]]))


def test_statistics_of_a_pickle(tmp_path: Path) -> None:
    statistics = SimpleNamespace(mean=MEAN, var=VAR)
    held = SimpleNamespace(obs_rms=statistics, epsilon=0.75, clip_obs=10.0, norm_obs=True)
    (tmp_path / "seen.pkl").write_bytes(pickle.dumps(held))
    found = read_normalisation(str(tmp_path / "seen.pkl"), 2)
    assert found.mean.tolist() == [1, -2]
    assert found.scale.tolist() == pytest.approx([4.75**0.5, 1])
    assert found.clip.tolist() == [10, 10]


def test_statistics_of_a_dictionary_leave_other_parts_as_they_are(tmp_path: Path) -> None:
    spaces = pytest.importorskip("gymnasium.spaces")
    parts = {"depth": spaces.Box(0, 9, (2,)), "room": spaces.Discrete(3), "wind": spaces.Box(0, 1, (1, 1))}
    statistics = {
        "wind": SimpleNamespace(mean=np.array([[0.5]]), var=np.array([[0.0]])),
        "depth": SimpleNamespace(mean=MEAN, var=VAR),
    }
    held = SimpleNamespace(
        obs_rms=statistics, epsilon=0.25, clip_obs=2.0, norm_obs=True, observation_space=spaces.Dict(parts)
    )
    (tmp_path / "seen.pkl").write_bytes(pickle.dumps(held))
    found = read_normalisation(str(tmp_path / "seen.pkl"), 6)
    seen = np.array([[1.0, -1.0, 0.0, 0.0, 5.0, 0.75]])  # depth, room one-hot, wind
    assert found.apply(seen).tolist() == [[0.0, pytest.approx(2**0.5), 0.0, 0.0, 5.0, 0.5]]


class Endless:
    """As a VecNormalize of rewards is when it is read: it looks for what it lacks in an environment that it lacks."""

    def __init__(self, **held: object) -> None:
        self.__dict__.update(held)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self, name)


def test_a_normaliser_of_rewards_is_recognised_without_an_endless_search(tmp_path: Path) -> None:
    file = tmp_path / "rewards.pkl"
    file.write_bytes(pickle.dumps(Endless(norm_obs=False)))
    with pytest.raises(PolicyError, match=r"norm_obs is False\): give --normalise none"):
        read_normalisation(str(file), 2)
    file.write_bytes(pickle.dumps(Endless(training=True)))
    with pytest.raises(PolicyError, match="it holds Endless, not a VecNormalize"):
        read_normalisation(str(file), 2)


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
