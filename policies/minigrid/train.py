"""Train the two policies of each MiniGrid model by PPO and write them as ONNX: `python -m policies.minigrid.train`.

`nominal` is trained until the greedy policy fulfils its mission within 50 steps with a probability close to the optimum
of the model (`SHORTFALL`). `undertrained` is the same with 200 steps of training.

Needs torch and stable-baselines3 (the extra `train`). Training is reproducible on one machine; on another,
torch may sum in another order and get other weights. The manifests have the SHA-256 of the shipped networks.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Discrete
from scipy.sparse import csr_matrix
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from monitor.model.io import load_model
from monitor.model.mdp import MDP
from monitor.policy.export import manifest_yaml, perceptron_onnx
from monitor.policy.manifest import Input, Manifest, Output

HERE = Path(__file__).parent
HORIZON = 50
FEW, BLOCK, COPIES, MAX_STEPS = 200, 16_384, 64, 10_000_000
HIDDEN, SEED = 32, 1
LIMITS = {"empty": 144, "doorkey": 360, "gotodoor": 144, "fetch": 180}
"""Environment -> number of steps after which MiniGrid truncates an episode."""
SHORTFALL = {"empty": 0.01, "doorkey": 0.01, "gotodoor": 0.02, "fetch": 0.01}
"""Allowed distance of a nominal policy from the optimum; larger in GoToDoor, where the reward favours haste."""

Floats = npt.NDArray[np.float64]


def main() -> None:
    """Train and write all policies, or those of the given environments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worlds", nargs="*", help=f"of {', '.join(LIMITS)} (default: all)")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.worlds or LIMITS:
        model = load_model(HERE / f"{name}.npz")
        for policy, train in (("nominal", until_it_succeeds), ("undertrained", briefly)):
            agent = train(model, name)
            layers = weights(agent)
            fulfilled = success(model, greedy(model, layers))
            description = (
                f"PPO, {agent.num_timesteps:,} steps; mission fulfilled within {HORIZON} steps: {fulfilled:.4f}"
            )
            write(given.out, f"{name}-{policy}", layers, description)
            print(f"{name}-{policy}: {description} (best: {best(model):.4f})", flush=True)


class Rooms(VecEnv):  # type: ignore[misc] # stable-baselines3 is not there where types are checked
    """Vector environment of many copies of a model, with automatic reset.

    The models equal the real environments, state for state (tests compare both), and are a hundred times as fast.
    The reward is that of MiniGrid: 1 - .9 steps / limit for a fulfilled mission; episodes are truncated at the limit.
    """

    def __init__(self, model: MDP, copies: int, limit: int) -> None:
        assert model.observations is not None
        width = model.observations.shape[1]
        super().__init__(copies, Box(0.0, 1.0, (width,), np.float32), Discrete(model.actions))
        self._seen, self._goal, self._ended = model.observations, model.labels["goal"], model.labels["terminal"]
        self._actions, self._limit = model.actions, limit
        self._cumulated = matrix(model).toarray().cumsum(axis=1)
        self._chance = np.random.default_rng(SEED)
        self._chosen = self._steps = np.zeros(copies, dtype=np.int64)
        self._states = np.zeros(copies, dtype=np.int64)

    def reset(self) -> Any:  # noqa: ANN401 - as the base class
        """Reset all copies to the start."""
        self._states, self._steps = np.zeros_like(self._states), np.zeros_like(self._steps)
        return self._seen[self._states]

    def step_async(self, actions: npt.NDArray[np.int64]) -> None:
        """Store the actions of the next step."""
        self._chosen = actions

    def step_wait(self) -> Any:  # noqa: ANN401 - as the base class
        """Advance all copies by the stored actions."""
        rows = self._cumulated[self._states * self._actions + self._chosen]
        after = np.minimum((self._chance.random(len(rows))[:, np.newaxis] >= rows).sum(axis=1), rows.shape[1] - 1)
        steps = self._steps + 1
        rewards = np.where(self._goal[after], 1 - 0.9 * steps / self._limit, 0.0).astype(np.float32)
        ended, late = self._ended[after], steps >= self._limit
        over = ended | late
        infos: list[dict[str, Any]] = [
            {"terminal_observation": self._seen[s], "TimeLimit.truncated": not e} if o else {}
            for s, e, o in zip(after, ended, over, strict=True)
        ]
        self._states, self._steps = np.where(over, 0, after), np.where(over, 0, steps)
        return self._seen[self._states], rewards, over, infos

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ANN401
        """Return None for each copy: there are no attributes."""
        del attr_name, indices
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ANN401
        """Do nothing: there are no attributes."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ANN401
        """Raise NotImplementedError: there are no methods."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ANN401
        """Return False for each copy."""
        del wrapper_class, indices
        return [False] * self.num_envs


def untrained(model: MDP, name: str, copies: int, steps: int) -> PPO:
    """Return an agent that learns after every `steps` steps in each of the copies."""
    return PPO(
        "MlpPolicy",
        Rooms(model, copies, LIMITS[name]),
        n_steps=steps,
        batch_size=min(copies * steps, 512),
        learning_rate=1e-3,
        ent_coef=0.01,
        policy_kwargs={"net_arch": {"pi": [HIDDEN], "vf": [64]}},
        seed=SEED,
        device="cpu",
    )


def briefly(model: MDP, name: str) -> PPO:
    """Return an agent after 200 steps."""
    return untrained(model, name, 1, FEW).learn(FEW)


def until_it_succeeds(model: MDP, name: str) -> PPO:
    """Return an agent whose success probability is close to the optimum."""
    agent, aim = untrained(model, name, COPIES, BLOCK // COPIES), best(model) - SHORTFALL[name]
    while (reached := success(model, greedy(model, weights(agent)))) < aim:
        if agent.num_timesteps >= MAX_STEPS:
            raise SystemExit(f"no success after {MAX_STEPS:,} steps")
        agent.learn(BLOCK, reset_num_timesteps=False)
        print(f"{agent.num_timesteps:,} steps: {reached:.4f}, target {aim:.4f}", end="\r", flush=True)
    return agent


Layers = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]


def weights(agent: PPO) -> Layers:
    """Return the policy network as ((W1, b1), (W2, b2)), rounded as shipped."""
    hidden, last = agent.policy.mlp_extractor.policy_net[0], agent.policy.action_net
    first, second = (
        (np.round(part.weight.detach().numpy().T.astype(np.float64), 4), np.round(part.bias.detach().numpy(), 4))
        for part in (hidden, last)
    )
    return first, second


def greedy(model: MDP, layers: Layers) -> npt.NDArray[np.int64]:
    """Return the highest-scoring action in every state, [S]."""
    (w1, b1), (w2, b2) = layers
    assert model.observations is not None
    actions: npt.NDArray[np.int64] = np.argmax(np.tanh(model.observations @ w1 + b1) @ w2 + b2, axis=1)
    return actions


def success(model: MDP, actions: npt.NDArray[np.int64]) -> float:
    """Return the exact probability of fulfilling the mission within the horizon from the start under `actions` [S]."""
    chain = matrix(model)[np.arange(model.states) * model.actions + actions]
    values = model.labels["goal"].astype(np.float64)
    for _ in range(HORIZON):
        values = np.where(model.labels["goal"], 1.0, chain @ values)
    return float(values[0])


def best(model: MDP) -> float:
    """Return the largest `success` of all policies, including time-dependent ones."""
    rows, values = matrix(model), model.labels["goal"].astype(np.float64)
    for _ in range(HORIZON):
        values = np.where(model.labels["goal"], 1.0, (rows @ values).reshape(model.states, model.actions).max(axis=1))
    return float(values[0])


def matrix(model: MDP) -> Any:  # noqa: ANN401 - scipy ships no types
    """Return all rows as a sparse matrix, [S * A, S]."""
    shape = (model.states * model.actions, model.states)
    return csr_matrix((model.probabilities, model.successors, model.indptr), shape=shape)


def write(out: Path, name: str, layers: Layers, description: str) -> None:
    """Write `name`.onnx and its manifest."""
    content = perceptron_onnx(layers, "logits")
    (out / f"{name}.onnx").write_bytes(content)
    manifest = Manifest(
        name=name,
        description=description,
        file=f"{name}.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        input=Input(name="observation", kind="observation"),
        output=Output(name="logits", kind="logits"),
        mode="greedy",
        provenance="train.py; see PROVENANCE.md",
    )
    (out / f"{name}.yaml").write_text(manifest_yaml(manifest))


if __name__ == "__main__":
    main()
