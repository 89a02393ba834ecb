"""Evidence: how what was observed of a step may have come about in a hidden state.

A *place* is a hidden state with the memories of the policies that act or watch. Its weight is the probability of that
place and of all that was observed so far, divided by that of what was observed: the filter of a hidden Markov model
whose actions are chosen by a policy that may see more than we do (docs/semantics.md, section 16.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from monitor.arrays import Floats
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

Pair = tuple[int | None, int | None]
"""What was observed of a step: (observation, action); None: the sensor said nothing, or the action is not known."""


class Glance(NamedTuple):
    """One way in which a pair may have come about in a hidden state.

    `shown`: what the sensor showed there. `memory`: of the acting policy afterwards, and `choice` [A] its distribution.
    `action`: the one taken, None: not yet taken. `weight`: the probability of all this.
    """

    shown: int
    memory: int
    choice: Floats
    action: int | None
    weight: float


def glances(model: MDP, reader: Reader, pair: Pair, place: tuple[int, int], *, silent: bool) -> Iterator[Glance]:
    """Yield the ways in which a pair may have come about, where its action was taken, known or not.

    Args:
        model: with emissions, or without: then the state is seen.
        reader: the policy that acted.
        pair: what was observed.
        place: hidden state, and the policy's memory before it reads.
        silent: the action says nothing about the state, since the policy takes it nowhere.
    """
    (observed, action), state = pair, place[0]
    for shown, memory, choice, _, chance in sights(model, reader, observed, place):
        if action is None:
            for taken, likely in enumerate(choice.tolist()):
                if likely > 0.0:
                    yield Glance(shown, memory, choice, taken, chance * likely)
        else:
            likely = 1.0 if silent else float(choice[action])
            if likely > 0.0 and model.available(state)[action]:
                yield Glance(shown, memory, choice, action, chance * likely)


def sights(model: MDP, reader: Reader, observed: int | None, place: tuple[int, int]) -> Iterator[Glance]:
    """Yield the ways in which an observation may have come about, where no action was taken yet."""
    state, memory = place
    for shown, chance in model.shown(state):
        if observed is None or shown == observed:
            read = state if reader.sees_state else shown
            after, choice = reader.read(memory, read)
            yield Glance(shown, after, choice, None, chance)


Place = tuple[int, int, int]
"""Hidden state, memory of the policy that acts, memory of the one that watches; both before they read."""


def impossible(model: MDP, observed: int | None, action: int | None) -> str:
    """Return a sentence on a pair that has probability 0."""
    what = f"state {observed}"
    if model.emissions is not None:
        what = f"observation {None if observed is None else model.emissions.called(observed)}"
    return f"{what} with action {action} is impossible after what was observed before; the path or the model is wrong"
