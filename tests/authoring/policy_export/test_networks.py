"""Networks of torch and stable-baselines3 as ONNX; skipped without these packages (extra `train`, a gigabyte)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.policy_export.agreement import compare
from monitor.authoring.policy_export.convert import convert
from monitor.authoring.policy_export.original import ExportRequest
from monitor.errors import PolicyError
from monitor.model import MDP
from monitor.policy.draft import draft_manifest
from monitor.policy.onnx_policy import table_from_onnx
from monitor.policy.table import PolicyTable

torch: Any = pytest.importorskip("torch")
pytest.importorskip("onnx")

STATES, WIDTH = 20, 4
SEEN = np.random.default_rng(2).normal(size=(STATES, WIDTH)).astype(np.float32)
MODEL = MDP.from_transitions(
    states=STATES,
    actions=3,
    transitions=[(s, a, (s + a) % STATES, 1.0) for s in range(STATES) for a in range(3)],
    observations=SEEN,
)
MODULES = '''
import torch
from torch import nn

def plain():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

class Agent(nn.Module):
    """As in CleanRL: an actor and a critic, without forward."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.critic = nn.Linear(4, 1)
        self.actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.network = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.actor = nn.Linear(8, 3)

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3)

    def forward(self, x):
        return self.lstm(x)[0]

class Headless(nn.Module):
    pass

def wide():
    return nn.Linear(4, 5)

def narrow():
    return nn.Linear(3, 3)
'''


@pytest.fixture
def modules(tmp_path: Path) -> str:
    (tmp_path / "my_networks.py").write_text(MODULES)
    return str(tmp_path / "my_networks.py")


def exported(request: ExportRequest, model: MDP = MODEL) -> PolicyTable:
    original = convert(model, request)
    manifest, _ = draft_manifest(
        original.content, Path("p.onnx"), model, kind=original.kind, stochastic=original.stochastic
    )
    agreement = compare(original, manifest, model, "here")
    assert (agreement.states, agreement.differences) == (model.states, [])
    assert manifest.input.kind == "observation"
    return table_from_onnx(original.content, manifest, model, "here")


@pytest.mark.parametrize("name", ["plain", "Agent", "Shared"])
def test_a_module_takes_its_own_actions(modules: str, name: str) -> None:
    table = exported(ExportRequest(f"{modules}:{name}"))
    import my_networks  # type: ignore[import-not-found]  # noqa: PLC0415 - it was just loaded

    module = getattr(my_networks, name)()
    parts = [getattr(module, part) for part in ("network", "actor") if hasattr(module, part)]
    with torch.no_grad():
        scores = (torch.nn.Sequential(*parts) if parts else module)(torch.as_tensor(SEEN)).numpy()
    assert table.actions is not None
    assert table.actions.tolist() == scores.argmax(axis=1).tolist()
    assert len(set(table.actions.tolist())) > 1


def test_weights_and_normalisation_are_baked_in(modules: str, tmp_path: Path) -> None:
    other = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    torch.save(other.state_dict(), tmp_path / "weights.pt")
    mean, var = np.array([1.0, -1, 0, 2]), np.array([4.0, 0.25, 1, 9])
    np.savez(tmp_path / "seen.npz", mean=mean, var=var, epsilon=1e-4, clip=0.5)
    request = ExportRequest(
        f"{modules}:plain", weights=str(tmp_path / "weights.pt"), normalise=str(tmp_path / "seen.npz"), stochastic=True
    )
    table = exported(request)
    with torch.no_grad():
        scaled = np.clip((SEEN - mean) / np.sqrt(var + 1e-4), -0.5, 0.5).astype(np.float32)
        chances = torch.softmax(other(torch.as_tensor(scaled)), dim=1).numpy()
    assert table.probabilities is not None
    np.testing.assert_allclose(table.probabilities, chances, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("Recurrent", {}, "it contains LSTM, so it has memory.*FrameStackObservation"),
        ("Headless", {}, "no forward and no actor"),
        ("wide", {}, r"shape \[20, 5\], not \[20, 3\]"),
        ("narrow", {}, "torch cannot export it"),
        ("plain", {"weights": "absent.pt"}, "cannot be loaded into the module"),
        ("plain", {"normalise": "absent.npz"}, "cannot be read"),
    ],
)
def test_a_network_that_does_not_fit_is_explained(modules: str, name: str, more: dict[str, str], why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        convert(MODEL, ExportRequest(f"{modules}:{name}", **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "DQN"])
@pytest.mark.parametrize("normalised", [False, True])
def test_policies_of_stable_baselines(tmp_path: Path, algorithm: str, *, normalised: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        baselines: Any = pytest.importorskip("stable_baselines3")
        environments: Any = pytest.importorskip("stable_baselines3.common.vec_env")
        import gymnasium  # noqa: PLC0415 - skipped without it

        torch.manual_seed(1)
        venv: Any = environments.DummyVecEnv([lambda: gymnasium.make("Acrobot-v1")])  # 6 numbers, 3 actions
        if normalised:
            venv = environments.VecNormalize(venv, clip_obs=1.5)
        settings: dict[str, Any] = {"learning_starts": 10} if algorithm == "DQN" else {"n_steps": 16}
        if algorithm == "PPO":
            settings["batch_size"] = 16
        agent = getattr(baselines, algorithm)("MlpPolicy", venv, seed=1, device="cpu", **settings).learn(64)
        agent.save(tmp_path / "agent.zip")
        seen = np.random.default_rng(0).normal(size=(STATES, 6)).astype(np.float32)
        model = MDP.from_transitions(
            states=STATES,
            actions=3,
            transitions=[(s, a, s, 1.0) for s in range(STATES) for a in range(3)],
            observations=seen,
        )
        request = ExportRequest(str(tmp_path / "agent.zip"))
        if normalised:
            venv.save(str(tmp_path / "seen.pkl"))
            request = ExportRequest(str(tmp_path / "agent.zip"), normalise=str(tmp_path / "seen.pkl"))
        table = exported(request, model)
        expected, _ = agent.predict(venv.normalize_obs(seen) if normalised else seen, deterministic=True)
    assert table.actions is not None
    assert table.actions.tolist() == expected.tolist()
    with pytest.raises(PolicyError, match="the model has none"):
        convert(MDP.from_transitions(states=1, actions=3, transitions=[(0, a, 0, 1.0) for a in range(3)]), request)
    with pytest.raises(PolicyError, match="an observation of the model has 4 numbers"):
        convert(MODEL, request)
