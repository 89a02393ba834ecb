"""What a model does not know: states of which nothing was recorded, and the labels whose truth there is open.

A pair (state, action) that was never recorded leads to `elsewhere`. What is there was not recorded either, so it is
unknown: neither safe nor unsafe (docs/semantics.md, section 13.9).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from monitor.arrays import Bools
from monitor.model.mdp import MDP

__all__ = ["leads_there", "unknown_labels", "unknown_states"]

ALWAYS_KNOWN = frozenset({"elsewhere"})
"""Labels that say where the recordings end, which is known."""


def unknown_states(*models: MDP) -> Bools:
    """Return the states [S] of which nothing is known in at least one of some models over the same states."""
    there = np.zeros(models[0].states, dtype=np.bool_)
    for model in models:
        if model.counts is not None:
            there[model.counts.elsewhere] = True
    return there


def unknown_labels(*models: MDP) -> Mapping[str, Bools]:
    """Return, for each label of the first of some models, the states [S] in which it is not known whether it holds."""
    there, nowhere = unknown_states(*models), np.zeros(models[0].states, dtype=np.bool_)
    return {name: nowhere if name in ALWAYS_KNOWN else there for name in models[0].labels}


def leads_there(there: Bools, *models: MDP) -> bool:
    """Return whether a row of a state outside `there` leads into it, in at least one of some models."""
    for model in models:
        states = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr)) // model.actions
        if bool((there[model.successors] & ~there[states]).any()):
            return True
    return False
