"""Find the unknown parts of a model: states about which nothing is known, and states in which a label is unknown.

A pair (state, action) that was never recorded leads to `elsewhere`, about which nothing is known. An episode whose last
state was not recorded leads to `unseen_end`, where the labels of the last state are unknown. What is unknown is neither
safe nor unsafe (docs/semantics/learned-models.md, section 13.9).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from monitor.arrays import Bools
from monitor.model.mdp import MDP

ALWAYS_KNOWN = frozenset({"elsewhere", "unseen_end"})
"""Labels of the states that stand for what was not recorded. It is known in every state whether these labels hold."""


def unknown_states(*models: MDP) -> Bools:
    """Return the states [S] about which nothing is known in at least one of the models, which have the same states."""
    there = np.zeros(models[0].states, dtype=np.bool_)
    for model in models:
        if model.counts is not None:
            there[model.counts.elsewhere] = True
    return there


def unknown_labels(*models: MDP) -> Mapping[str, Bools]:
    """Return, for each label of the first model, the states [S] in which its truth is unknown.

    These include the states about which nothing is known in at least one of the models.
    """
    there, nowhere = unknown_states(*models), np.zeros(models[0].states, dtype=np.bool_)
    counted = {} if models[0].counts is None else models[0].counts.unknown
    return {
        name: nowhere if name in ALWAYS_KNOWN else np.asarray(counted.get(name, nowhere) | there)
        for name in models[0].labels
    }


def never_recorded(model: MDP) -> Bools:
    """Return which pairs (state, action) of a learned model, [S*A], were never recorded; these lead to `elsewhere`."""
    counts = model.counts
    sizes = np.diff(model.indptr)
    if counts is None:
        return np.zeros(len(sizes), dtype=np.bool_)
    first = model.successors[np.minimum(model.indptr[:-1], len(model.successors) - 1)]
    states = np.arange(len(sizes)) // model.actions
    alone = (counts.order == 0) & (sizes == 1) & (first == counts.elsewhere)
    return np.asarray(alone & (states != counts.elsewhere))


def leads_there(there: Bools, *models: MDP) -> bool:
    """Return whether at least one of the models has a transition into a state of `there` from another state."""
    for model in models:
        states = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr)) // model.actions
        if bool((there[model.successors] & (model.successors != states)).any()):
            return True
    return False
