"""Train the two policies of each MiniGrid model by PPO and write them as ONNX: `python -m policies.minigrid.train`.

`nominal` is trained until it succeeds: until the greedy policy, in the model, fulfils its mission within 50 steps with
a probability just below the best that any policy can do (`SHORTFALL`). `undertrained` is the same with 200 steps of
training.

Needs torch and stable-baselines3 (the extra `train`). Training repeats itself on one machine; on another,
torch may add in another order and end with other weights. What is shipped is what the manifests' SHA-256 say.
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
FEW, BLOCK, COPIES, MOST = 200, 16_384, 64, 10_000_000
HIDDEN, SEED = 32, 1
LIMITS = {"empty": 144, "doorkey": 360, "gotodoor": 144, "fetch": 180}
"""Environment -> steps after which MiniGrid cuts an episode off."""
SHORTFALL = {"empty": 0.01, "doorkey": 0.01, "gotodoor": 0.02, "fetch": 0.01}
"""How far below the best a nominal policy may stay. In GoToDoor a reward that shrinks with time pays for haste."""

Floats = npt.NDArray[np.float64]


def main() -> None:
    """Train and write all policies, or those of the worlds named."""
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
            worth = success(model, greedy(model, layers))
            told = f"PPO, {agent.num_timesteps:,} steps; mission fulfilled within {HORIZON} steps: {worth:.4f}"
            write(given.out, f"{name}-{policy}", layers, told)
            print(f"{name}-{policy}: {told} (best: {best(model):.4f})", flush=True)


class Rooms(VecEnv):  # type: ignore[misc] # stable-baselines3 is not there where types are checked
    """Many copies of a model, stepped at once; an episode that has ended starts again.

    The models are the real environments, state for state (tests walk both), and a hundred times as fast. Rewarded as
    MiniGrid does: 1 - .9 steps / limit for a mission fulfilled; cut off at its limit.
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
        """All at the start."""
        self._states, self._steps = np.zeros_like(self._states), np.zeros_like(self._steps)
        return self._seen[self._states]

    def step_async(self, actions: npt.NDArray[np.int64]) -> None:
        """Remember what to do."""
        self._chosen = actions

    def step_wait(self) -> Any:  # noqa: ANN401 - as the base class
        """Do it."""
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
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ANN401
        """There is nothing to show but that there is nothing to show."""
        del attr_name, indices
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ANN401
        """There is nothing to set."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ANN401
        """There is nothing to call."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ANN401
        """It is not."""
        del wrapper_class, indices
        return [False] * self.num_envs


def untrained(model: MDP, name: str, copies: int, steps: int) -> PPO:
    """An agent that learns after every `steps` steps in each of the copies."""
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
    """An agent after 200 steps."""
    return untrained(model, name, 1, FEW).learn(FEW)


def until_it_succeeds(model: MDP, name: str) -> PPO:
    """An agent that fulfils its mission about as surely as can be."""
    agent, aim = untrained(model, name, COPIES, BLOCK // COPIES), best(model) - SHORTFALL[name]
    while (reached := success(model, greedy(model, weights(agent)))) < aim:
        if agent.num_timesteps >= MOST:
            raise SystemExit(f"no success after {MOST:,} steps")
        agent.learn(BLOCK, reset_num_timesteps=False)
        print(f"{agent.num_timesteps:,} steps: {reached:.4f}, wanted {aim:.4f}", end="\r", flush=True)
    return agent


Layers = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]


def weights(agent: PPO) -> Layers:
    """The policy's network as ((W1, b1), (W2, b2)), rounded as it is shipped."""
    hidden, last = agent.policy.mlp_extractor.policy_net[0], agent.policy.action_net
    first, second = (
        (np.round(part.weight.detach().numpy().T.astype(np.float64), 4), np.round(part.bias.detach().numpy(), 4))
        for part in (hidden, last)
    )
    return first, second


def greedy(model: MDP, layers: Layers) -> npt.NDArray[np.int64]:
    """The action that the network scores highest in every state."""
    (w1, b1), (w2, b2) = layers
    assert model.observations is not None
    actions: npt.NDArray[np.int64] = np.argmax(np.tanh(model.observations @ w1 + b1) @ w2 + b2, axis=1)
    return actions


def success(model: MDP, actions: npt.NDArray[np.int64]) -> float:
    """Exact probability to fulfil the mission within the horizon from the start, doing `actions` [S]."""
    chain = matrix(model)[np.arange(model.states) * model.actions + actions]
    values = model.labels["goal"].astype(np.float64)
    for _ in range(HORIZON):
        values = np.where(model.labels["goal"], 1.0, chain @ values)
    return float(values[0])


def best(model: MDP) -> float:
    """The largest `success` of all policies, also of those that look at the clock."""
    moves, values = matrix(model), model.labels["goal"].astype(np.float64)
    for _ in range(HORIZON):
        values = np.where(model.labels["goal"], 1.0, (moves @ values).reshape(model.states, model.actions).max(axis=1))
    return float(values[0])


def matrix(model: MDP) -> Any:  # noqa: ANN401 - scipy ships no types
    """All rows, [S * A, S] sparse."""
    shape = (model.states * model.actions, model.states)
    return csr_matrix((model.probabilities, model.successors, model.indptr), shape=shape)


def write(out: Path, name: str, layers: Layers, told: str) -> None:
    """`name`.onnx and its manifest."""
    content = perceptron_onnx(layers, "logits")
    (out / f"{name}.onnx").write_bytes(content)
    manifest = Manifest(
        name=name,
        description=told,
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
