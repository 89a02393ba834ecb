"""Values beyond the observed path on a model with hidden states, by the tables of the fully observed engine.

Nothing is observed there, so a policy's observations are drawn anew and may be summed out: a policy without memory is
then one that sees the state, and a controller is a policy over pairs (state, memory) of a larger model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError
from monitor.exact.evaluators import Evaluators
from monitor.logic.syntax import NOMINAL, Probability, Reward
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader
from monitor.policy.table import PolicyTable

MAX_PRODUCT = 4_000_000
"""Transitions that a model over pairs (state, memory) may have."""


def averaged(reader: Reader, model: MDP) -> PolicyTable:
    """Return a policy without memory as one that sees the state: its choice, averaged over what it may read there."""
    return PolicyTable(probabilities=reader.blind_choice(model)[0, :, 0, :])


def with_memory(reader: Reader, model: MDP) -> tuple[MDP, PolicyTable]:
    """Return the model over pairs, state * M + memory, and the policy on it; an action is a pair with a new memory."""
    count, actions = reader.memories, model.actions
    if model.successors.size * count * count > MAX_PRODUCT:
        raise LimitError(
            f"{model.states} states with {count} memories of a policy have more than {MAX_PRODUCT:,} transitions "
            "(limit MAX_PRODUCT); use a policy that remembers less"
        )
    lengths = np.diff(model.indptr).reshape(model.states, actions)
    # row ((s, m), (m', a)): that of (s, a), to states (s', m')
    order = [(s, m, after, a) for s in range(model.states) for m in range(count) for after in range(count) for a in range(actions)]
    counts = np.array([lengths[s, a] for s, _, _, a in order])
    parts = [slice(model.indptr[s * actions + a], model.indptr[s * actions + a + 1]) for s, _, _, a in order]
    successors = np.concatenate([model.successors[p] * count + after for p, (_, _, after, _) in zip(parts, order, strict=True)])
    extra = None if model.transition_rewards is None else np.concatenate([model.transition_rewards[p] for p in parts])
    product = MDP(
        states=model.states * count,
        actions=actions * count,
        indptr=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        successors=successors,
        probabilities=np.concatenate([model.probabilities[p] for p in parts]),
        rewards=np.repeat(np.tile(model.rewards, (1, count)), count, axis=0),
        transition_rewards=extra,
        labels={name: np.repeat(there, count) for name, there in model.labels.items()},
    )
    joint = reader.blind_choice(model).transpose(1, 0, 2, 3).reshape(product.states, product.actions)
    return product, PolicyTable(probabilities=joint)


class Beyond:
    """Values of one measure beyond the path, under a policy or the deployed one.

    Args:
        model: whose rows are in force.
        reader: the policy; `deployed`: the one that acts after so many `steps`, None: never.
    """

    def __init__(self, model: MDP, reader: Reader, deployed: Reader, measure: Probability | Reward) -> None:
        self._memories, self._measure = reader.memories, measure
        if reader.memories == 1:
            table = model, averaged(reader, model)
        else:
            table = with_memory(reader, model)
        self._evaluators = Evaluators(replace(table[0], emissions=None, counts=None), {"nominal": table[1]})

    def values(self, memory: int, obligation: int, states: Ints, end: int | None) -> Floats:
        """Return the values [n] of an obligation in n states; `end`: the state that is absorbing."""
        law = self._evaluators.nominal()
        del end
        table = self._evaluators.value_table(law, self._measure)
        return table.values(0, obligation, states * self._memories + memory)
