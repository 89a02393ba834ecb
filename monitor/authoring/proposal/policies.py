"""Policies proposed from a model: the deployed policy from frequencies, and a fallback by backward induction."""

from __future__ import annotations

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError
from monitor.model.mdp import MDP

TIE = 1e-9
"""Probabilities that differ by less than this count as equal. The action that the agent takes more often is then
preferred."""


def draws_of(model: MDP) -> Ints:
    """Return the number of observations of each (state, action), [S, A]; 0 if the model was not learned."""
    if model.counts is None:
        return np.zeros((model.states, model.actions), np.int64)
    return model.counts.draws(model.indptr).reshape(model.states, model.actions)


def action_frequencies(model: MDP) -> tuple[Floats, Bools]:
    """Return the frequency of each action in each state as a policy [S, A], and which states have data [S].

    In a state without data, all actions have the same probability.
    """
    draws = draws_of(model)
    total = draws.sum(axis=1)
    uniform = np.full(draws.shape, 1.0 / model.actions)
    frequencies = draws / np.maximum(total, 1)[:, None]
    return np.where(total[:, None] > 0, frequencies, uniform), np.asarray(total > 0)


def constant_policy(model: MDP, action: int) -> Ints:
    """Return the policy [S] that always takes `action`. Raises ModelError if some state lacks the action."""
    missing = np.flatnonzero(~model.availability[:, action])
    if missing.size:
        taken = f"fallback do({model.named_actions.sent(action)})"
        raise ModelError(f"{taken}: the action is not available in state {missing[0]}; give a policy")
    return np.full(model.states, action)


def safest_policy(model: MDP, unsafe: Bools, horizon: int, usual: Floats | None = None) -> Ints:
    """Return actions [S] that maximise the probability of avoiding `unsafe` [S] for `horizon` steps.

    The actions are the best actions at the first step of backward induction. They are used at every step. Each learned
    row gets one additional visit that leads to an unsafe state, so that one lucky observation does not make an action
    look safe. Among equally good actions, the one with the highest probability under `usual` [S, A] is chosen, then the
    lowest number.
    """
    trusted = np.ones((model.states, model.actions))
    if model.counts is not None:
        draws = draws_of(model)
        estimated = model.counts.order.reshape(draws.shape) > 0
        trusted = np.where(estimated, draws / (draws + 1.0), 1.0)
    values = np.where(unsafe, 0.0, 1.0)
    scores = np.zeros_like(trusted)
    for _ in range(horizon):
        scores = np.where(model.availability, trusted * expected(model, values), -1.0)
        values = np.where(unsafe, 0.0, scores.max(axis=1))
    best = scores >= scores.max(axis=1, keepdims=True) - TIE
    preference = np.zeros_like(scores) if usual is None else usual
    actions: Ints = np.where(best, preference, -1.0).argmax(axis=1)
    return actions


def expected(model: MDP, values: Floats) -> Floats:
    """Return the expected value after each (state, action), [S, A]; 0 for unavailable actions."""
    rows = np.repeat(np.arange(model.states * model.actions), np.diff(model.indptr))
    means = np.bincount(rows, model.probabilities * values[model.successors], model.states * model.actions)
    return np.asarray(means.reshape(model.states, model.actions), np.float64)
