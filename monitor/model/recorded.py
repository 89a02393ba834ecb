"""What the recordings of a learned model lack, in words."""

from __future__ import annotations

from typing import Final

from monitor.model.mdp import MDP

__all__ = ["APPEND", "never_recorded"]

APPEND: Final = "`cfmon model learn --append` adds recordings"
"""What to do about anything that a learned model lacks."""


def never_recorded(model: MDP, pair: tuple[int, int], successor: int) -> str:
    """Return what was never recorded of a transition that the model lacks; empty if its row is not from data.

    >>> never_recorded(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), (0, 0), 1)
    ''
    """
    if model.counts is None:
        return ""
    state, action = pair
    row = state * model.actions + action
    if model.counts.order[row] > 0:
        return f"the transition ({state}, {action}) -> {successor}"
    without_data = model.successors[model.indptr[row]] == model.counts.elsewhere
    return f"action {action} in state {state}" if without_data else ""
