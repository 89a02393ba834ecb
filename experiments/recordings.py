"""Recordings of an environment, and models learned from them: many episodes side by side, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model import MDP
from monitor.model.counts import Counts, posterior_mean

__all__ = ["Recording", "learned", "recorded"]

LONGEST = 100
"""Steps after which a recorded episode is cut off."""


class Recording(NamedTuple):
    """States, actions and successors [steps], in the order in which they were recorded."""

    states: Ints
    actions: Ints
    successors: Ints


def recorded(model: MDP, behaviour: Floats, steps: int, rng: np.random.Generator) -> Recording:
    """Return recorded steps of agents that act by `behaviour` [S, A], each in one episode after another.

    `steps` is a multiple of `LONGEST`, the number of steps of each agent.
    """
    agents, choices = steps // LONGEST, behaviour.cumsum(axis=1)
    successors, chances = _padded(model)
    first = 0 if model.initial is None else int(model.initial.argmax())
    absorbing = np.array([model.is_absorbing(state) for state in range(model.states)])
    state = np.full(agents, first)
    steps_of: list[tuple[Ints, Ints, Ints]] = []
    for _ in range(LONGEST):
        action = (rng.random((agents, 1)) > choices[state]).sum(axis=1).clip(max=model.actions - 1)
        row = state * model.actions + action
        at = (rng.random((agents, 1)) > chances[row]).sum(axis=1).clip(max=successors.shape[1] - 1)
        steps_of.append((state, action, successors[row, at]))
        state = np.where(absorbing[successors[row, at]], first, successors[row, at])
    return Recording(*(np.concatenate(column) for column in zip(*steps_of, strict=True)))


def _padded(model: MDP) -> tuple[Ints, Floats]:
    """Return the successors of each row and their cumulative probabilities, [S*A, widest row]; the last is repeated."""
    sizes = np.diff(model.indptr)
    places = model.indptr[:-1, None] + np.minimum(np.arange(sizes.max()), sizes[:, None] - 1)
    beyond = np.arange(sizes.max()) >= sizes[:, None]
    return model.successors[places], np.where(beyond, 0.0, model.probabilities[places]).cumsum(axis=1)


def learned(true: MDP, recording: Recording) -> MDP:
    """Return the model learned from a recording, with a state more, `elsewhere`; absorbing states are known."""
    states, width = true.states + 1, true.actions
    drawn = recording.states * width + recording.actions
    keys, firsts, visits = np.unique(drawn * states + recording.successors, return_index=True, return_counts=True)
    since = _draws_after(drawn, firsts)
    order = np.zeros(states * width, dtype=np.int64)
    rows, begins = np.unique(drawn, return_index=True)
    order[rows[np.argsort(begins)]] = np.arange(1, len(rows) + 1)
    known = np.array([true.is_absorbing(state) for state in range(true.states)] + [True])
    given = np.flatnonzero(order == 0)
    targets = np.where(known[given // width], given // width, true.states)
    keys = np.concatenate([keys, given * states + targets])
    sort = np.argsort(keys)
    none = np.zeros(len(given), dtype=np.int64)
    visits, since = (np.concatenate([values, none])[sort] for values in (visits, since))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // states, minlength=len(order)))])
    return MDP.from_rows(
        states=states,
        actions=width,
        indptr=indptr,
        successors=keys[sort] % states,
        probabilities=posterior_mean(visits, indptr, 1.0),
        labels={name: np.append(where, False) for name, where in true.labels.items()},
        counts=Counts(visits, since, order, true.states),
    )


def _draws_after(drawn: Ints, firsts: Ints) -> Ints:
    """Return the draws [n] of a row after each of the draws `firsts` [n]; `drawn`: the row of every draw."""
    order = np.argsort(drawn, kind="stable")
    ends = np.searchsorted(drawn[order], drawn, side="right")
    places = np.empty(len(drawn), dtype=np.int64)
    places[order] = np.arange(len(drawn))
    after: Ints = (ends - 1 - places)[firsts]
    return after
