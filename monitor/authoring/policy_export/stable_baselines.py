"""Policies of stable-baselines3 and sb3-contrib in their `.zip` files. Opening a file executes code in its pickles.

An observation of the model is the agent's observation, flattened by Gymnasium's rule. The input that stable-baselines3
gives to a network is almost the same. In both, discrete parts are one-hot; but in stable-baselines3, boxes keep their
shape, and a Dict is a dictionary of its parts. The export therefore cuts the flat vector into these parts. The original
agent gets the observations that Gymnasium makes from the flat vector.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.authoring.policy_export.normalisation import AS_THEY_ARE, Normalisation
from monitor.authoring.policy_export.original import MEMORY, Anything, ExportRequest, Original
from monitor.authoring.policy_export.torch_modules import network_onnx, refuse_memory, torch_or_error
from monitor.errors import PolicyError, to_install
from monitor.model.mdp import MDP
from monitor.policy.draft import OutputKind
from monitor.user_code import explained

_LARGEST_DATA: Final = 64 << 20
_LARGEST_ONE_HOT: Final = 1 << 26
"""Largest number of values in the observations of all states."""


@dataclass(frozen=True)
class _Algorithm:
    """An algorithm whose policies can be exported.

    Attributes:
        package: package of the algorithm.
        kind: kind of its scores.
        module: beginning of the name of the module of its policies; empty: any module, also one of the user.
        setting: a setting that is in the files of this algorithm, but not in the files of algorithms that come later in
            the list.
    """

    package: str
    kind: OutputKind
    module: str
    setting: str


_ALGORITHMS: Final = {
    "MaskablePPO": _Algorithm("sb3_contrib", "logits", "sb3_contrib.common.maskable", "clip_range"),
    "QRDQN": _Algorithm("sb3_contrib", "q_values", "sb3_contrib.qrdqn", "exploration_fraction"),
    "RecurrentPPO": _Algorithm("sb3_contrib", "logits", "sb3_contrib.common.recurrent", "clip_range"),
    "ARS": _Algorithm("sb3_contrib", "q_values", "sb3_contrib.ars", "n_delta"),
    "TRPO": _Algorithm("sb3_contrib", "logits", "", "cg_max_steps"),
    "PPO": _Algorithm("stable_baselines3", "logits", "", "clip_range"),
    "A2C": _Algorithm("stable_baselines3", "logits", "", "normalize_advantage"),
    "DQN": _Algorithm("stable_baselines3", "q_values", "", "exploration_fraction"),
}
"""The algorithms in the order in which they are tried."""

RECURRENT: Final = "RecurrentPPO"
"""The algorithm whose policies have memory. `recurrent_agents` exports them."""

_EXPORTED: Final = f"{', '.join(sorted(_ALGORITHMS))} can be exported; a policy of continuous actions fits no model"


def read_zip(model: MDP, request: ExportRequest) -> Original:
    """Return the policy of a `.zip` file of stable-baselines3. The algorithm is found in the file.

    Raises PolicyError if it is not such a file, or as `of_agent`.
    """
    algorithm = algorithm_of(request.source)
    if algorithm == RECURRENT:
        raise PolicyError(f"policy {request.source}: it is recurrent, so it has memory: {MEMORY}")
    torch_or_error(request.source)
    found = of_agent(loaded_agent(algorithm, request.source), model, request)
    return found.assuming(f"the algorithm is {algorithm}, by the content of the file")


def is_agent(value: object) -> bool:
    """Return whether a value is an agent of stable-baselines3, judged by its attributes."""
    return all(hasattr(value, name) for name in ("predict", "policy", "observation_space", "action_space"))


def of_agent(agent: Anything, model: MDP, request: ExportRequest) -> Original:
    """Return the policy of an agent. The original is the agent's `predict` in every state, after normalisation.

    Raises PolicyError if the policy is recurrent, if the algorithm or a space is not supported, or if torch cannot
    export the policy. Also raises PolicyError if the policy was trained on normalised observations and the request does
    not say how.
    """
    where = f"policy {request.source}"
    torch = torch_or_error(request.source)
    refuse_memory(torch, agent.policy, where)
    algorithm = next((each.__name__ for each in type(agent).__mro__ if each.__name__ in _ALGORITHMS), "")
    if not algorithm:
        raise PolicyError(f"{where}: it is an agent of {type(agent).__name__}; {_EXPORTED}")
    model = seeing(agent, model)
    check_spaces(agent, model, where)
    kind = _ALGORITHMS[algorithm].kind
    if request.stochastic and kind == "q_values":
        raise PolicyError(f"{where}: {algorithm} has no probabilities; leave --stochastic out")
    exported = network_onnx(torch, _scores_of(torch, agent.policy, algorithm, where), model, request, kind)
    assumed = [*model.named_actions.order, *as_trained(agent, model, exported.normalisation, request)]
    mask = algorithm == "MaskablePPO"
    if mask:
        lacking = "" if not model.availability.all() else ", and none is unavailable in this model"
        assumed.append(f"its action masks rule out what is unavailable in the model (mask: true){lacking}")
    actions, scores = _evaluated(torch, agent, model, exported.normalisation, request, mask=mask)
    return Original(exported.content, kind, bool(request.stochastic), actions, scores, assumed, mask)


def algorithm_of(source: str) -> str:
    """Return the name of the algorithm, found in the file's settings without opening its pickles.

    Raises PolicyError if it is not such a file, or if the algorithm cannot be exported.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            if archive.getinfo("data").file_size > _LARGEST_DATA:
                raise PolicyError(f"policy {source}: its settings take more than {_LARGEST_DATA:,} bytes")
            data = json.loads(archive.read("data"))
        module = str(data["policy_class"].get("__module__", ""))
    except (OSError, KeyError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise PolicyError(f"policy {source}: not a file of stable-baselines3 ({explained(error)})") from error
    if "recurrent" in module or "lstm" in json.dumps(sorted(data)).lower():  # for any name of the policy's class
        return RECURRENT
    for name, algorithm in _ALGORITHMS.items():
        if module.startswith(algorithm.module) and algorithm.setting in data:
            return name
    raise PolicyError(f"policy {source}: its policy is of {module}; {_EXPORTED}")


def loaded_agent(algorithm: str, source: str) -> Anything:
    """Return the agent in a file. This opens its pickles. Raises PolicyError."""
    try:
        package = import_module(_ALGORITHMS[algorithm].package)
    except ImportError as error:
        name = _ALGORITHMS[algorithm].package.replace("_", "-")
        raise PolicyError(f"policy {source}: needs {name}: {to_install('train')}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about other versions
            return getattr(package, algorithm).load(source, device="cpu")
    except Exception as error:
        raise PolicyError(f"policy {source}: cannot be loaded ({explained(error)})") from error


def seeing(agent: Anything, model: MDP) -> MDP:
    """Return the model with one-hot observations if it has no observations and the agent sees the state's number."""
    from gymnasium.spaces import Discrete  # noqa: PLC0415 - of stable-baselines3

    space, states = agent.observation_space, model.states
    numbered = isinstance(space, Discrete) and (int(space.n), int(space.start)) == (states, 0)
    if model.observations is not None or not numbered or states * states > _LARGEST_ONE_HOT:
        return model
    return replace(model, observations=np.eye(states, dtype=np.float32))


def check_spaces(agent: Anything, model: MDP, where: str) -> None:
    """Raise PolicyError unless the action space and the flattened observations are those of the model."""
    from gymnasium import spaces  # noqa: PLC0415 - of stable-baselines3
    from stable_baselines3.common.preprocessing import is_image_space  # noqa: PLC0415 - likewise

    actions, seen = agent.action_space, agent.observation_space
    if not isinstance(actions, spaces.Discrete) or int(actions.n) != model.actions or int(actions.start) != 0:
        raise PolicyError(f"{where}: its action space is {actions}, the model has {model.actions} actions from 0")
    if model.observations is None:
        raise PolicyError(f"{where}: a network sees observations, and the model has none")
    width = int(model.observations.shape[1])
    if _width(seen) != width:
        raise PolicyError(
            f"{where}: its observation space is {seen}, flattened {_width(seen)} numbers; an observation of the model "
            f"has {width} numbers"
        )
    if any(is_image_space(space) for space, _, _ in _parts(seen)):
        raise PolicyError(
            f"{where}: it sees images, whose channels stable-baselines3 moves; train on flattened observations "
            "(gymnasium.wrappers.FlattenObservation)"
        )


def _width(space: Anything) -> int:
    from gymnasium.spaces import flatdim  # noqa: PLC0415 - of stable-baselines3

    return int(flatdim(space))


def _parts(space: Anything) -> Iterator[tuple[Anything, int, int]]:
    """Yield each part of a space that has no parts itself, with its range [begin, end) in the flat vector."""
    end = 0
    for each in _members(space).values() or (space,):
        for part, first, last in _parts(each) if _members(each) else ((each, 0, _width(each)),):
            yield part, end + first, end + last
        end += _width(each)


def _members(space: Anything) -> dict[str, Anything]:
    """Return the parts of a Dict by name, in Gymnasium's order; no parts for another space."""
    from gymnasium.spaces import Dict  # noqa: PLC0415 - of stable-baselines3

    return dict(space.spaces) if isinstance(space, Dict) else {}


def _cut(space: Anything, flat: Anything) -> Anything:
    """Return the parts of flat observations [n, D], a tensor, in the form that a policy's features extractor takes."""
    from gymnasium.spaces import Box  # noqa: PLC0415 - of stable-baselines3

    members, end, found = _members(space), 0, {}
    for name, each in members.items():
        found[name] = _cut(each, flat[:, end : end + _width(each)])
        end += _width(each)
    if members:
        return found
    return flat.reshape(-1, *space.shape) if isinstance(space, Box) else flat


def unflattened(space: Anything, flat: Floats, where: str) -> Anything:
    """Return flat observations [n, D] in the form that the agent's `predict` takes: an array or a dictionary of arrays.

    Numbers of boxes are not converted, because they may be normalised. Raises PolicyError if an observation is not in
    the space.
    """
    from gymnasium import spaces  # noqa: PLC0415 - of stable-baselines3

    members, end, found = _members(space), 0, {}
    for name, each in members.items():
        found[name] = unflattened(each, flat[:, end : end + _width(each)], where)
        end += _width(each)
    if members:
        return found
    if isinstance(space, spaces.Box):
        return flat.reshape(-1, *space.shape).astype(np.float32)
    values: list[Anything] = []
    for state, row in enumerate(flat):
        back: Anything
        try:
            values.append(spaces.unflatten(space, row))
            back = spaces.flatten(space, values[-1])
        except (ValueError, IndexError):
            back = None
        if not np.array_equal(back, row):
            raise PolicyError(
                f"{where}: state {state}: the numbers {row.tolist()!r:.80} of its observation are none of {space}, "
                "flattened; explore the environment that the agent was trained in"
            )
    return np.stack(values)


def _scores_of(torch: Anything, policy: Anything, algorithm: str, where: str) -> Anything:
    """Return the module that maps flattened observations to logits or other scores of the actions."""
    actions = int(policy.action_space.n)

    def dqn(seen: Anything) -> Anything:
        return policy.q_net.q_net(policy.q_net.features_extractor(seen))

    def quantiles(seen: Anything) -> Anything:
        network = policy.quantile_net
        found = network.quantile_net(network.features_extractor(seen))
        return found.reshape(-1, network.n_quantiles, actions).mean(dim=1)

    def linear(seen: Anything) -> Anything:
        return policy.action_net(policy.features_extractor(seen))

    def actor(seen: Anything) -> Anything:
        return policy.action_net(policy.mlp_extractor.forward_actor(policy.pi_features_extractor(seen)))

    scores = {"DQN": dqn, "QRDQN": quantiles, "ARS": linear}.get(algorithm, actor)
    if scores is actor and not hasattr(policy, "mlp_extractor"):
        raise PolicyError(f"{where}: its policy is a {type(policy).__name__} of its own; export the scores of that")

    return module_of(torch, policy, scores)


def module_of(torch: Anything, policy: Anything, scores: Callable[..., Anything]) -> Anything:
    """Return a torch module whose inputs are flattened observations and the further arguments of `scores`."""
    base: Anything = torch.nn.Module
    space = policy.observation_space

    class Scores(base):  # type: ignore[misc, unused-ignore] # torch may not be installed
        """Scores of a policy of stable-baselines3."""

        def __init__(self) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, flat: Anything, *remembered: Anything) -> Anything:
            return scores(_cut(space, flat), *remembered)

    return Scores()


def as_trained(agent: Anything, model: MDP, normalisation: Normalisation | None, request: ExportRequest) -> list[str]:
    """Return a sentence on the assumed normalisation of observations, or nothing if the agent shows how it was trained.

    An agent keeps the last observation of its training, and also the raw observation of the environment. On-policy
    algorithms keep the raw observation only under VecNormalize. Raises PolicyError if the request lacks the statistics
    of an agent that learned under VecNormalize, or gives statistics for another agent.
    """
    from gymnasium.spaces import Box  # noqa: PLC0415 - of stable-baselines3
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # noqa: PLC0415 - likewise

    assert model.observations is not None, "it was checked"
    space = agent.observation_space
    last, raw = getattr(agent, "_last_obs", None), getattr(agent, "_last_original_obs", None)
    if request.normalise == AS_THEY_ARE or not any(isinstance(part, Box) for part, _, _ in _parts(space)):
        return []
    rows = None if last is None else _flattened(space, last)
    seen = model.observations if normalisation is None else normalisation.apply(model.observations)
    shown = "" if rows is None else f"{np.round(rows[0][:6], 4).tolist()}{' ...' if rows.shape[1] > 6 else ''}"
    under = raw is not None and isinstance(agent, OnPolicyAlgorithm)
    if rows is not None and _among(rows, seen):
        fact = f"under VecNormalize the agent saw observations as they are (the last one, {shown}, is a state's)"
        return [fact] if under and normalisation is None else []
    if normalisation is not None:
        if rows is not None and raw is None and _among(rows, model.observations.astype(np.float64)):
            raise PolicyError(
                f"policy {request.source}: it was trained on observations as they are: the last one, {shown}, is a "
                "state's; leave --normalise out"
            )
        fact = "the file does not say" if rows is None else f"its last observation, {shown}, is no state's, normalised"
        return [f"the agent was trained with the statistics of {request.normalise} ({fact})"]
    if under or (raw is not None and _among(_flattened(space, raw), seen)):
        raise PolicyError(
            f"policy {request.source}: it was trained under VecNormalize; give its file to `cfmon policy export`: "
            f"--normalise vecnormalize.pkl, or --normalise {AS_THEY_ARE} if that left observations as they are"
        )
    if rows is None:
        return ["the agent saw observations as they are (the file does not say); if not, give --normalise"]
    fact = f"although the last one of its training, {shown}, is no state's in the model"
    return [f"the agent saw observations as they are, {fact}; if they were normalised, give --normalise"]


def _among(rows: Floats, seen: AnyArray) -> bool:
    """Return whether each row [n, D] is one of the observations [S, D], up to rounding."""
    return all((np.abs(seen - row) <= 1e-5 * (1 + np.abs(row))).all(axis=1).any() for row in rows)


def _flattened(space: Anything, batch: Anything) -> Floats:
    """Return a batch of the agent's observations as flat vectors [n, D]. Numbers of boxes are not converted."""
    from gymnasium import spaces  # noqa: PLC0415 - of stable-baselines3

    members = _members(space)
    if members:
        return np.concatenate([_flattened(each, batch[name]) for name, each in members.items()], axis=1)
    values: AnyArray = np.asarray(batch)
    if isinstance(space, spaces.Box):
        return values.reshape(len(values), -1).astype(np.float64)
    return np.stack([np.asarray(spaces.flatten(space, each), dtype=np.float64) for each in values])


def _evaluated(
    torch: Anything,
    agent: Anything,
    model: MDP,
    normalisation: Normalisation | None,
    request: ExportRequest,
    *,
    mask: bool,
) -> tuple[Anything, Floats]:
    """Return the actions [S] of the agent's own `predict`, and its scores [S, A]. `mask`: give masks to the agent."""
    assert model.observations is not None, "it was checked"
    flat = model.observations.astype(np.float64)
    if normalisation is not None:
        flat = normalisation.apply(flat)
    seen = unflattened(agent.observation_space, flat, f"policy {request.source}")
    masks = {"action_masks": model.availability.copy()} if mask else {}
    try:
        actions, _ = agent.predict(seen, deterministic=True, **masks)
        with torch.no_grad():
            given, _ = agent.policy.obs_to_tensor(seen)
            scores = _own_scores(agent.policy, given)
    except Exception as error:
        raise PolicyError(f"policy {request.source}: it cannot be evaluated ({explained(error)})") from error
    return np.asarray(actions).reshape(-1).astype(np.int64), scores.cpu().numpy().astype(np.float64)


def _own_scores(policy: Anything, given: Anything) -> Anything:
    """Return the scores of a policy, computed by its own methods, which preprocess observations."""
    if hasattr(policy, "q_net"):
        return policy.q_net(given)
    if hasattr(policy, "quantile_net"):
        return policy.quantile_net(given).mean(dim=1)
    if hasattr(policy, "get_distribution"):
        return policy.get_distribution(given).distribution.logits
    return policy.action_net(policy.extract_features(given, policy.features_extractor))
