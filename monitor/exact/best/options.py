"""The options of a decision: the rows of a model. Actions with the same row and reward are one option. Compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model import MDP
from monitor.policy import PolicyTable

TIE = 1e-12
"""Decisions are equally good if their values differ by at most this much, times the larger of 1 and the best value."""


@dataclass(eq=False)
class Options:
    """Rows (CSR over pairs state * A + action), rewards, and the nominal policy.

    `rewards` [S, A]: rewards of the pairs. `extra` [N] (or empty): the part of the reward that depends on the
    successor. `alike` [S * A]: the lowest-numbered action of the state with the same row and rewards, -1 if the action
    is unavailable. `actions` [S]: the nominal policy if it is deterministic, else empty. `choices` [S, A]: the nominal
    policy if it is stochastic, else empty.
    """

    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats
    extra: Floats
    alike: Ints
    actions: Ints
    choices: Floats


@dataclass(eq=False)
class Acting:
    """The n policies that acted.

    `actions` [n, S]: actions of deterministic policies. `choices` [m, S, A]: probabilities of stochastic policies.
    `row` [n]: the index of a policy in `choices`, -1 if the policy is deterministic.
    """

    actions: Ints
    choices: Floats
    row: Ints


def acting_of(tables: Sequence[PolicyTable], states: int, actions: int) -> tuple[Acting, Ints]:
    """Return the distinct policies that acted, and for each pair the index of its policy."""
    different = list(dict.fromkeys(tables))
    choices = [table.probabilities for table in different if table.probabilities is not None]
    certain = [np.zeros(states, dtype=np.int64) if table.actions is None else table.actions for table in different]
    row = np.full(len(different), -1)
    row[[table.probabilities is not None for table in different]] = np.arange(len(choices))
    acting = Acting(
        np.stack(certain).astype(np.int64), np.stack(choices) if choices else np.zeros((0, states, actions)), row
    )
    return acting, np.array([different.index(table) for table in tables])


def options_of(model: MDP, nominal: PolicyTable) -> Options:
    """Return the options of a model whose deployed policy is `nominal`."""
    extra = np.zeros(0) if model.transition_rewards is None else model.transition_rewards
    alike = np.empty(model.states * model.actions, dtype=np.int64)
    find_alike(model.indptr, model.successors, model.probabilities, model.rewards, extra, alike)
    actions = np.zeros(0, dtype=np.int64) if nominal.actions is None else nominal.actions
    choices = np.zeros((0, model.actions)) if nominal.probabilities is None else nominal.probabilities
    return Options(
        model.indptr,
        model.successors,
        model.probabilities,
        model.rewards,
        extra,
        alike,
        np.ascontiguousarray(actions, dtype=np.int64),
        np.ascontiguousarray(choices),
    )


# ---- compiled ----


def find_alike(
    indptr: Ints, successors: Ints, probabilities: Floats, rewards: Floats, extra: Floats, alike: Ints
) -> None:
    """Write `Options.alike`."""
    states, actions = rewards.shape[0], rewards.shape[1]
    for state in range(states):
        for action in range(actions):
            pair = state * actions + action
            begin, end = indptr[pair], indptr[pair + 1]
            alike[pair] = action if end > begin else -1
            for earlier in range(action if end > begin else 0):
                other = state * actions + earlier
                first = indptr[other]
                if alike[other] != earlier or indptr[other + 1] - first != end - begin:
                    continue
                same = rewards[state, earlier] == rewards[state, action]
                for k in range(end - begin):
                    same = same and successors[first + k] == successors[begin + k]
                    same = same and probabilities[first + k] == probabilities[begin + k]
                    same = same and (len(extra) == 0 or extra[first + k] == extra[begin + k])
                if same:
                    alike[pair] = earlier
                    break
