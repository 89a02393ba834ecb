"""Latent steps: the possible explanations of an observed pair when the state is hidden.

A *latent step* specifies everything that an observed pair leaves open: the hidden state, what the sensor showed, what
the policy read, the policy's memory before and after, and the action.

A *place* is a pair: a hidden state, and the memories of all policies that act or only observe. The weight of a place is
its probability given all observations so far. This is the filter of a hidden Markov model. A policy, which may see more
than the monitor, chooses the actions (docs/semantics/hidden.md, section 16.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.hidden.readings import Readings
from monitor.model.mdp import MDP
from monitor.types.stream_events import ObservedPair


class LatentSteps(NamedTuple):
    """The G possible latent steps of a pair in some places, by ascending place, as arrays [G].

    `place`: index of the place; `state`: its state; `before`: the memory of the acting policy. `shown`: the observation
    of the sensor. `reading`: the row of what the policy read; `after`: the policy's memory after reading. `action`: the
    action taken, -1 if not yet taken. `weight`: the probability of the step given the place.
    """

    place: Ints
    state: Ints
    before: Ints
    shown: Ints
    reading: Ints
    after: Ints
    action: Ints
    weight: Floats

    def only(self, kept: Ints) -> LatentSteps:
        """Return the steps with the indices `kept`."""
        place, state, before, shown, reading, after, action, weight = self
        return LatentSteps(
            place[kept], state[kept], before[kept], shown[kept], reading[kept], after[kept], action[kept], weight[kept]
        )


def latent_steps(
    model: MDP, policy: Readings, pair: ObservedPair, places: tuple[Ints, Ints], *, silent: bool
) -> LatentSteps:
    """Return the latent steps of a pair whose action was taken; the action may be unknown.

    Args:
        model: the MDP; without emissions, the state is observed.
        policy: the policy that acted.
        pair: the observation and the action.
        places: hidden states [n], and the policy's memories [n] before it reads.
        silent: whether the action gives no information about the state, for example because the policy never takes it.
    """
    observed, action = pair
    seen = latent_observations(model, policy, observed, places)
    choice = np.asarray(policy.choice)
    if action is None:
        likely = choice[seen.reading]
        at, taken = (np.ascontiguousarray(part) for part in np.nonzero(likely))
        return seen.only(at)._replace(action=taken, weight=seen.weight[at] * likely[at, taken])
    chances = np.ones(len(seen.place)) if silent else choice[seen.reading, action]
    taken = np.full(len(seen.place), action)
    seen = seen._replace(action=taken, weight=seen.weight * chances)
    return seen.only(np.flatnonzero((chances > 0.0) & model.availability[seen.state, action]))


def latent_observations(model: MDP, policy: Readings, observed: int | None, places: tuple[Ints, Ints]) -> LatentSteps:
    """Return the latent steps of an observation, before an action is taken."""
    states, memories = places
    if model.emissions is None:
        place = np.arange(len(states))
        shown, weight = states, np.ones(len(states))
    else:
        place, at = entries(model.emissions.indptr, states)
        shown, weight = model.emissions.observed[at], model.emissions.probabilities[at]
    if observed is not None:
        kept = shown == observed
        place, shown, weight = place[kept], shown[kept], weight[kept]
    state, before = states[place], memories[place]
    reading = policy.rows(before, state if policy.sees_state else shown)
    after = np.asarray(policy.after)[reading]
    return LatentSteps(place, state, before, shown, reading, after, np.full(len(place), -1), weight)


def entries(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the entries of `rows`, row after row: for each entry the position of its row in `rows`, and its index."""
    begins = indptr[rows]
    lengths = indptr[rows + 1] - begins
    of = np.repeat(np.arange(len(rows)), lengths)
    return of, np.arange(len(of)) + (begins - np.cumsum(lengths) + lengths)[of]


def impossible(model: MDP, observed: int | None, action: int | None) -> str:
    """Return a message about a pair that has probability 0."""
    what = f"state {observed}"
    if model.emissions is not None:
        what = f"observation {None if observed is None else model.emissions.called(observed)}"
    return f"{what} with action {action} is impossible after what was observed before; the path or the model is wrong"
