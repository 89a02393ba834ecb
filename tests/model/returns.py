"""Expected returns of converted models against the returns that Gymnasium itself pays.

Long: `python -m tests.model.returns --episodes 100000` (about ten minutes; a row is printed as soon as it is known).
Short: the same functions, with fewer episodes, in `test_returns.py`.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import monitor
from monitor.model import MDP

ENVIRONMENTS: Final = (
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "FrozenLake-v1",
    "Taxi-v4?is_rainy=true",
)
STEPS: Final = 30
"""Steps of an episode whose rewards are summed: few, and yet many falls off the cliff."""

Episode = tuple[list[tuple[int, int]], list[float]]
"""(state, action) pairs, and the reward of each step."""


@dataclass(frozen=True)
class Row:
    """One measurement: `expected` by the model, `mean` and its `error` (one standard error) by Gymnasium."""

    source: str
    episodes: int
    expected: float
    mean: float
    error: float

    @property
    def z(self) -> float:
        """How many standard errors the mean is off; normal for a true model, as there are thousands of episodes."""
        return (self.mean - self.expected) / self.error


def random_policy(model: MDP, seed: int = 0) -> NDArray[np.float64]:
    """A stochastic policy [S, A], every action possible where it is available."""
    weights = np.random.default_rng(seed).dirichlet(np.ones(model.actions), model.states) * model.availability
    policy: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return policy


def episode(environment: Any, policy: NDArray[np.float64], rng: np.random.Generator, steps: int) -> Episode:  # noqa: ANN401 - Gymnasium is optional
    """At most so many steps of Gymnasium's own, from a start that it draws."""
    state = int(environment.reset()[0])
    pairs: list[tuple[int, int]] = []
    rewards: list[float] = []
    cumulative = policy.cumsum(axis=1)
    for _ in range(steps):
        action = min(int(np.searchsorted(cumulative[state], rng.random(), side="right")), policy.shape[1] - 1)
        successor, reward, terminated, _, _ = environment.step(action)
        pairs.append((state, action))
        rewards.append(float(reward))
        state = int(successor)
        if terminated:
            break
    return pairs, rewards


def expected_return(model: MDP, policy: NDArray[np.float64], steps: int) -> float:
    """The expected sum of the first rewards, over the model's own first states."""
    text = f"R=? [ C<={steps - 1} ]"
    values = monitor.values(text, model=model, policies={"nominal": policy})
    assert model.initial is not None
    return float(model.initial @ values)


def row(source: str, episodes: int, seed: int) -> Row:
    """Run so many episodes and compare."""
    import gymnasium  # noqa: PLC0415 - an optional extra

    model = monitor.load_model(f"gymnasium:{source}")
    policy = random_policy(model)
    identifier, _, option = source.partition("?")
    environment = gymnasium.make(identifier, **({option.partition("=")[0]: True} if option else {}))
    environment.reset(seed=seed)
    rng = np.random.default_rng(seed)
    returns = np.array([sum(episode(environment, policy, rng, STEPS)[1]) for _ in range(episodes)])
    error = float(returns.std(ddof=1) / math.sqrt(episodes))
    return Row(source, episodes, expected_return(model, policy, STEPS), float(returns.mean()), error)


def main() -> None:
    """Print a row for each environment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=100_000, help="of each environment")
    parser.add_argument("--seed", type=int, default=1, help="of the episodes")
    arguments = parser.parse_args()
    for source in ENVIRONMENTS:
        found = row(source, arguments.episodes, arguments.seed)
        gave = f"{found.episodes} episodes gave {found.mean:.4f} +- {3 * found.error:.4f} (three standard errors)"
        sys.stdout.write(f"{found.source}: expected {found.expected:.4f}, {gave}, z = {found.z:+.2f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
