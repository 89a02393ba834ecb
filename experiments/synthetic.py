"""Models and realisations of the synthetic experiment of Tsirtsis & Gomez-Rodriguez, and counterfactual rows of these.

S. Tsirtsis, A. De, M. Gomez-Rodriguez: *Counterfactual Explanations in Sequential Decision Making Under Uncertainty*,
NeurIPS 2021, arXiv 2107.02776. A row of a model has one weight of 1 and the others uniform on [0, alpha], normalised.
The reward of a state is its number. The agent takes the optimal action with probability .95, else any other.

Random numbers are drawn with the seeds and in the order of the authors' code (0 is their seed).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from monitor.causal.row import counterfactual_row

__all__ = [
    "ACTIONS",
    "STATES",
    "Floats",
    "Ints",
    "Observed",
    "Realisation",
    "counterfactual_rows",
    "drawn_rows",
    "observed",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STATES: Final = 20
ACTIONS: Final = 10
STEPS: Final = 20
ERROR: Final = 0.05
"""Probability that the observed agent does not take the optimal action."""
MODELS: Final = 10
DRAWS: Final = 1_000
"""Of noise for each step of `drawn_rows`, as in the paper."""


class Realisation(NamedTuple):
    """States and actions, [T] each, and its counterfactual rows, [T, A, S, S]."""

    states: Ints
    actions: Ints
    rows: Floats

    def improvement(self, value: Any) -> Any:  # noqa: ANN401 (a number or an array of them)
        """Return by how many percent a value is above the observed outcome; a state's reward is its number."""
        return 100 * (value / self.states.sum() - 1)


class Observed(NamedTuple):
    """A realisation, its numbers, the rows of its model [A, S, S] and the agent's policy [T, S, A]."""

    model: int
    path: int
    real: Realisation
    rows: Floats
    nominal: Floats


def observed(alpha: float, seed: int, paths: int, *, models: int = MODELS) -> Iterator[Observed]:
    """Yield the realisations of a number of models."""
    for number in range(1, models + 1):
        rows = random_model(alpha, np.random.default_rng(number + 1_000 * seed))
        policy = optimal_actions(rows)
        nominal = np.full((STEPS, STATES, ACTIONS), ERROR / (ACTIONS - 1))
        np.put_along_axis(nominal, policy[:, :, None], 1 - ERROR, axis=2)
        for path in range(paths):
            states, actions = realisation(rows, policy, np.random.default_rng(path + 1_000 * seed))
            real = Realisation(states, actions, counterfactual_rows(rows, states, actions))
            yield Observed(number, path, real, rows, nominal)


def random_model(alpha: float, rng: np.random.Generator) -> Floats:
    """Return the rows of a random model, [A, S, S]."""
    weights = np.empty((ACTIONS, STATES, STATES))
    for row in weights.reshape(-1, STATES):
        row[:] = rng.uniform(0, alpha, STATES)
        row[rng.choice(STATES)] = 1.0
    weights /= weights.sum(axis=2, keepdims=True)
    return weights


def optimal_actions(rows: Floats) -> Ints:
    """Return the actions that maximise the sum of rewards, [T, S]; the lowest of equally good ones."""
    best = np.zeros((STEPS, STATES), dtype=np.int64)
    ahead = np.zeros(STATES)
    for step in reversed(range(STEPS)):
        values = np.arange(STATES) + rows @ ahead
        best[step] = values.argmax(axis=0)
        ahead = values.max(axis=0)
    return best


def realisation(rows: Floats, policy: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return states and actions, [T] each, of an agent that mostly follows a policy [T, S]."""
    states, actions = np.empty(STEPS, dtype=np.int64), np.empty(STEPS, dtype=np.int64)
    states[0] = rng.choice(STATES)
    for step in range(STEPS):
        action = optimal = policy[step, states[step]]
        if rng.binomial(1, ERROR):
            while action == optimal:
                action = rng.choice(ACTIONS)
        actions[step] = action
        if step + 1 < STEPS:
            states[step + 1] = rng.choice(STATES, p=rows[action, states[step]])
    return states, actions


def counterfactual_rows(rows: Floats, states: Ints, actions: Ints) -> Floats:
    """Return the exact distribution of the successor of each action in each state at each step, [T, A, S, S].

    The outcome of the last step was not observed, so its rows are the model's.
    """
    sparse = [(np.flatnonzero(row), row[row > 0]) for row in rows.reshape(-1, rows.shape[2])]
    result = np.zeros((len(states), *rows.shape))
    for step in range(len(states) - 1):
        seen = sparse[actions[step] * rows.shape[1] + states[step]]
        for target, row in zip(sparse, result[step].reshape(-1, rows.shape[2]), strict=True):
            row[target[0]] = counterfactual_row(seen, states[step + 1], target)
    result[-1] = rows
    return result


def drawn_rows(rows: Floats, states: Ints, actions: Ints, rng: np.random.Generator) -> Floats:
    """Return the same distributions, estimated from DRAWS noises for each step. `rows` must be positive.

    docs/semantics/worlds.md, section 4: times E of the competing exponential clocks, posterior; the smallest E / q
    wins.
    """
    result = np.zeros((len(states), *rows.shape))
    with np.errstate(divide="ignore"):
        slowness = 1 / rows.reshape(-1, rows.shape[2])
    for step in range(len(states) - 1):
        seen, outcome = rows[actions[step], states[step]], states[step + 1]
        clocks = rng.exponential(size=(DRAWS, len(seen)))
        first = clocks[:, outcome].copy()
        clocks += seen * first[:, None]
        clocks[:, outcome] = seen[outcome] * first
        for target, row in zip(slowness, result[step].reshape(-1, rows.shape[2]), strict=True):
            row[:] = np.bincount((clocks * target).argmin(axis=1), minlength=len(row)) / DRAWS
    result[-1] = rows
    return result
