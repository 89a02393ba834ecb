"""Evidence: how what was observed of a step may have come about in a hidden state.

A *place* is a hidden state with the memories of the policies that act or watch. Its weight is the probability of that
place and of all that was observed so far, divided by that of what was observed: the filter of a hidden Markov model
whose actions are chosen by a policy that may see more than we do (docs/semantics.md, section 16.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.hidden.readings import Readings
from monitor.model.mdp import MDP

Pair = tuple[int | None, int | None]
"""What was observed of a step: (observation, action); None: the sensor said nothing, or the action is not known."""


class Ways(NamedTuple):
    """The ways, G of them, in which a pair may have come about in some places, by place ascending; arrays [G].

    `place`: its index, with its `state` and the memory `before` of the acting policy. `shown`: what the sensor showed
    there. `reading`: the row of what the policy read, and `after` its memory then. `action`: the one taken; -1: not yet
    taken. `weight`: the probability of all this.
    """

    place: Ints
    state: Ints
    before: Ints
    shown: Ints
    reading: Ints
    after: Ints
    action: Ints
    weight: Floats

    def only(self, kept: Ints) -> Ways:
        """Return some of them, by index."""
        place, state, before, shown, reading, after, action, weight = self
        return Ways(
            place[kept], state[kept], before[kept], shown[kept], reading[kept], after[kept], action[kept], weight[kept]
        )


def ways(model: MDP, policy: Readings, pair: Pair, places: tuple[Ints, Ints], *, silent: bool) -> Ways:
    """Return the ways in which a pair may have come about, where its action was taken, known or not.

    Args:
        model: with emissions, or without: then the state is seen.
        policy: the one that acted.
        pair: what was observed.
        places: hidden states [n], and the policy's memories [n] before it reads.
        silent: the action says nothing about the state, since the policy takes it nowhere.
    """
    observed, action = pair
    seen = sights(model, policy, observed, places)
    choice = np.asarray(policy.choice)
    if action is None:
        likely = choice[seen.reading]
        at, taken = (np.ascontiguousarray(part) for part in np.nonzero(likely))
        return seen.only(at)._replace(action=taken, weight=seen.weight[at] * likely[at, taken])
    chances = np.ones(len(seen.place)) if silent else choice[seen.reading, action]
    taken = np.full(len(seen.place), action)
    seen = seen._replace(action=taken, weight=seen.weight * chances)
    return seen.only(np.flatnonzero((chances > 0.0) & model.availability[seen.state, action]))


def sights(model: MDP, policy: Readings, observed: int | None, places: tuple[Ints, Ints]) -> Ways:
    """Return the ways in which an observation may have come about, where no action was taken yet."""
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
    return Ways(place, state, before, shown, reading, after, np.full(len(place), -1), weight)


def entries(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the entries of some rows, one after the other: for each the index of its row in `rows`, and its own."""
    begins = indptr[rows]
    lengths = indptr[rows + 1] - begins
    of = np.repeat(np.arange(len(rows)), lengths)
    return of, np.arange(len(of)) + (begins - np.cumsum(lengths) + lengths)[of]


def impossible(model: MDP, observed: int | None, action: int | None) -> str:
    """Return a sentence on a pair that has probability 0."""
    what = f"state {observed}"
    if model.emissions is not None:
        what = f"observation {None if observed is None else model.emissions.called(observed)}"
    return f"{what} with action {action} is impossible after what was observed before; the path or the model is wrong"
