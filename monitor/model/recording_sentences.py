"""Sentences about what the recordings of a learned model contain and lack."""

from __future__ import annotations

from typing import Final

import numpy as np

from monitor.model.mdp import MDP

APPEND: Final = "`cfmon model learn --append` adds recordings"
"""Advice about anything that a learned model lacks."""


def never_recorded(model: MDP, pair: tuple[int, int], successor: int) -> str:
    """Return what was never recorded: a transition, or the action in this state. Empty if the row is not from data.

    >>> never_recorded(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), (0, 0), 1)
    ''
    """
    if model.counts is None:
        return ""
    state, action = pair
    row, sent = state * model.actions + action, model.named_actions.sent(action)
    if model.counts.order[row] > 0:
        return f"the transition ({state}, {sent}) -> {successor}"
    without_data = model.successors[model.indptr[row]] == model.counts.elsewhere
    return f"action {sent} in state {state}" if without_data else ""


def recorded_inputs(model: MDP) -> str:
    """Describe how a policy chooses in a state with several recorded inputs; empty if each state has one input."""
    if model.samples is None or model.sample_states is None:
        return ""
    counts = np.bincount(model.sample_states, minlength=model.states)
    said = f"in a state it chooses as often as in {counts.max()} or fewer observations that were recorded there"
    lacking = model.states - int((counts > 0).sum())
    if not lacking:
        return said
    return f"{said}; in {lacking:,} of {model.states:,} states none was, so there it sees the mean of all"
