"""Policies of stable-baselines3 (PPO, A2C, DQN) in their `.zip` files. Opening one executes code: it holds pickles."""

from __future__ import annotations

import json
import warnings
import zipfile
from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.errors import PolicyError, to_install
from monitor.model.mdp import MDP
from monitor.policy.draft import OutputKind
from monitor.policy_export.normalisation import Normalisation
from monitor.policy_export.original import MEMORY, Anything, Original, Request
from monitor.policy_export.torch_modules import network_onnx, refuse_memory, torch_or_error
from monitor.user_code import explained

__all__ = ["algorithm_of", "read_zip"]

_LARGEST_DATA: Final = 64 << 20


def read_zip(model: MDP, request: Request) -> Original:
    """Return the policy of a `.zip` file of stable-baselines3, its algorithm found in the file.

    The original is what its `predict` does in every state, after normalisation.

    Raises PolicyError: not such a file, a recurrent policy, other spaces than the model's, or torch cannot export it.
    """
    where = f"policy {request.source}"
    algorithm = algorithm_of(request.source)
    torch = torch_or_error(request.source)
    agent = _loaded(algorithm, request.source)
    refuse_memory(torch, agent.policy, where)
    _check_spaces(agent, model, where)
    kind: OutputKind = "q_values" if algorithm == "DQN" else "logits"
    if request.stochastic and kind == "q_values":
        raise PolicyError(f"{where}: DQN has no probabilities; leave --stochastic out")
    exported = network_onnx(torch, _scores_of(torch, agent.policy, algorithm), model, request, kind)
    actions, scores = _evaluated(torch, agent, model, exported.normalisation, request)
    assumed = [f"the algorithm is {algorithm}, by the content of the file"]
    return Original(exported.content, kind, bool(request.stochastic), actions, scores, assumed)


def algorithm_of(source: str) -> str:
    """Return `PPO`, `A2C` or `DQN`, by the settings in the file, which are read without opening its pickles.

    Raises PolicyError: not such a file, another algorithm, or a recurrent policy.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            if archive.getinfo("data").file_size > _LARGEST_DATA:
                raise PolicyError(f"policy {source}: its settings take more than {_LARGEST_DATA:,} bytes")
            data = json.loads(archive.read("data"))
        module = str(data["policy_class"].get("__module__", ""))
    except (OSError, KeyError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise PolicyError(f"policy {source}: not a file of stable-baselines3 ({explained(error)})") from error
    if "recurrent" in module or "lstm" in json.dumps(sorted(data)).lower():
        raise PolicyError(f"policy {source}: it is recurrent, so it has memory: {MEMORY}")
    if module.startswith("stable_baselines3.dqn") or "exploration_fraction" in data:
        return "DQN"
    if not module.startswith("stable_baselines3.common"):
        raise PolicyError(f"policy {source}: its policy is of {module}; PPO, A2C and DQN can be exported")
    return "PPO" if "clip_range" in data else "A2C"


def _loaded(algorithm: str, source: str) -> Anything:
    try:
        import stable_baselines3  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - with torch a gigabyte
    except ImportError as error:
        raise PolicyError(f"policy {source}: needs stable-baselines3: {to_install('train')}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other versions
            return getattr(stable_baselines3, algorithm).load(source, device="cpu")
    except Exception as error:
        raise PolicyError(f"policy {source}: cannot be loaded ({explained(error)})") from error


def _check_spaces(agent: Anything, model: MDP, where: str) -> None:
    """Raise PolicyError unless the action space is that of the model, and observations are its flattened ones."""
    actions, seen = agent.action_space, agent.observation_space
    if int(getattr(actions, "n", -1)) != model.actions:
        raise PolicyError(f"{where}: its action space is {actions}, the model has {model.actions} actions")
    if model.observations is None:
        raise PolicyError(f"{where}: a network sees observations, and the model has none")
    width = int(model.observations.shape[1])
    if hasattr(seen, "n"):
        if int(seen.n) != width:
            raise PolicyError(f"{where}: it sees one of {seen.n} numbers, an observation of the model has {width}")
        return
    if not seen.shape or not hasattr(seen, "low") or int(np.prod(seen.shape)) != width:
        raise PolicyError(f"{where}: its observation space is {seen}, an observation of the model has {width} numbers")
    if len(seen.shape) > 1 and seen.dtype == np.uint8:
        raise PolicyError(
            f"{where}: it sees images, whose channels stable-baselines3 moves; train on flattened observations "
            "(gymnasium.wrappers.FlattenObservation)"
        )


def _scores_of(torch: Anything, policy: Anything, algorithm: str) -> Anything:
    """Return the module that maps flattened observations to logits or Q-values."""
    base: Anything = torch.nn.Module
    space = policy.observation_space

    class Scores(base):  # type: ignore[misc, unused-ignore] # torch may not be installed
        """Scores of a policy of stable-baselines3."""

        def __init__(self) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, flat: Anything) -> Anything:
            seen = flat.argmax(dim=1) if hasattr(space, "n") else flat.reshape(-1, *space.shape)
            if algorithm == "DQN":
                return self.policy.q_net(seen)
            features = self.policy.extract_features(seen, self.policy.pi_features_extractor)
            return self.policy.action_net(self.policy.mlp_extractor.forward_actor(features))

    return Scores()


def _evaluated(
    torch: Anything, agent: Anything, model: MDP, normalisation: Normalisation | None, request: Request
) -> tuple[Anything, Floats]:
    """Return the actions [S] of the agent's own `predict`, and its scores [S, A]."""
    assert model.observations is not None, "it was checked"
    space, seen = agent.observation_space, model.observations
    if normalisation is not None:
        seen = normalisation.apply(seen).astype(np.float32)
    shaped = seen.argmax(axis=1) if hasattr(space, "n") else seen.reshape(-1, *space.shape)
    try:
        actions, _ = agent.predict(shaped, deterministic=True)
        with torch.no_grad():
            given, _ = agent.policy.obs_to_tensor(shaped)
            if hasattr(agent.policy, "q_net"):
                scores = agent.policy.q_net(given)
            else:
                scores = agent.policy.get_distribution(given).distribution.logits
    except Exception as error:
        raise PolicyError(f"policy {request.source}: it cannot be evaluated ({explained(error)})") from error
    return np.asarray(actions).reshape(-1).astype(np.int64), scores.cpu().numpy().astype(np.float64)
