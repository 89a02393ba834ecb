"""Paths for measuring formulas: held-out recordings, or episodes simulated in a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.holdout import HeldOut
from monitor.authoring.learning.outcomes import HiddenOutcomes, Outcomes
from monitor.authoring.learning.state_codes import is_end
from monitor.authoring.learning.states import States
from monitor.model.mdp import MDP

EVENTS: Final = 100
FEWEST: Final = 3_000
"""Formulas are measured on `EVENTS` unsafe events and at least `FEWEST` steps, if the paths have so many."""

LONGEST: Final = 1000
"""Largest number of steps of a simulated episode."""


@dataclass(frozen=True)
class RecordedPath:
    """Path of an episode, or of a part of an episode between gaps.

    Attributes:
        states: [n + 1] states of the model.
        actions: [n].
        ended: True if the episode terminated in the last state.
        episode: number of the episode; None: the path is a whole episode.
        unseen: True if the last state was not recorded. This state then only counts as an event, because no message can
            have it.
    """

    states: Ints
    actions: Ints
    ended: bool
    episode: int | None = None
    unseen: bool = False

    @property
    def sent(self) -> Ints:
        """The states that an agent sends."""
        return self.states[: len(self.states) - self.unseen]


def paths_of(held: HeldOut, where: States) -> list[RecordedPath]:
    """Return the paths of recorded transitions, with the states and actions of the model."""
    if not len(held.state):
        return []
    after = where.of(held.code)
    ended = is_end(held.code)
    begins = np.flatnonzero(np.concatenate([[True], np.diff(held.path) != 0]))
    found = []
    for lo, hi in zip(begins, [*begins[1:], len(held.path)], strict=True):
        states = np.append(where.of_base(held.state[lo:hi]), after[hi - 1])
        actions = where.of_action(held.action[lo:hi])
        found.append(RecordedPath(states, actions, bool(ended[hi - 1]), int(held.episode[lo])))
    return found


def simulated(model: MDP, policy: Floats, steps: int, rng: np.random.Generator) -> list[RecordedPath]:
    """Return episodes of the policy [S, A] in the model, with about `steps` steps in total.

    An episode ends in an absorbing state or after `LONGEST` steps. The model must have an initial distribution.
    """
    assert model.initial is not None, "episodes start somewhere"
    found: list[RecordedPath] = []
    done = 0
    while done < steps:
        states = [int(rng.choice(model.states, p=model.initial))]
        actions: list[int] = []
        while len(actions) < LONGEST and not model.is_absorbing(states[-1]):
            actions.append(int(rng.choice(model.actions, p=policy[states[-1]])))
            successors, probabilities = model.row(states[-1], actions[-1])
            states.append(int(rng.choice(successors, p=probabilities)))
        if not actions:  # episodes end in their first state
            break
        found.append(RecordedPath(np.array(states), np.array(actions), model.is_absorbing(states[-1])))
        done += len(actions)
    return found


def first_steps(paths: Sequence[RecordedPath], most: int) -> list[RecordedPath]:
    """Return the first paths that have at most `most` steps in total, but at least one path."""
    totals = np.cumsum([len(path.actions) for path in paths])
    return list(paths[: max(int(np.searchsorted(totals, most, side="right")), 1)])


def measured_paths(paths: Sequence[RecordedPath], unsafe: Bools, steps: int | None, most: int) -> list[RecordedPath]:
    """Return the first paths, for measuring formulas, with `steps` steps or, if `steps` is None, with enough events.

    Enough means `EVENTS` unsafe events in at least `FEWEST` steps. `most`: largest number of steps if events are too
    few. `unsafe`: [S] whether each state is unsafe.
    """
    if steps is not None:
        return first_steps(paths, steps)
    within = first_steps(paths, most)
    events = np.cumsum([len(unsafe_events(path, unsafe)) for path in within])
    enough = int(np.searchsorted(events, EVENTS)) + 1
    return within[: max(enough, len(first_steps(within, FEWEST)))]


def unsafe_events(path: RecordedPath, unsafe: Bools) -> list[int]:
    """Return the steps at which the path enters an unsafe state. An unsafe first state does not count."""
    holds = unsafe[path.states]
    return [int(t) + 1 for t in np.flatnonzero(holds[1:] & ~holds[:-1])]


class Shown(NamedTuple):
    """What recordings show of a condition on hidden states, for each state of paths [S].

    `known`: whether it is known if the condition holds. `alone`: whether the observation alone shows that the condition
    holds.
    """

    known: Bools
    alone: Bools


def outcomes_of(paths: Sequence[RecordedPath], unsafe: Bools, shown: Shown | None = None) -> Outcomes | HiddenOutcomes:
    """Return the outcomes after each step of the paths. `unsafe`: whether each state of the paths is unsafe, [S].

    `shown`: None if states are not hidden. Otherwise `unsafe` is False where it is not known.
    """
    lengths = [len(path.actions) for path in paths]
    ended = np.zeros(sum(lengths), np.bool_)
    ended[np.cumsum(lengths)[np.array(lengths) > 0] - 1] = [path.ended for path in paths if len(path.actions)]
    after = np.concatenate([np.zeros(0, np.int64), *(path.states[1:] for path in paths)])
    episodes = np.repeat(episodes_of(paths), lengths)
    of = np.repeat(np.arange(len(paths)), lengths), episodes
    if shown is None:
        return Outcomes.of_label(unsafe[after], ended, *of)
    return HiddenOutcomes(unsafe[after], shown.known[after], shown.alone[after], ended, *of)


def episodes_of(paths: Sequence[RecordedPath]) -> Ints:
    """Return for each path a number that stands for its episode."""
    names = [path.episode if path.episode is not None else -1 - number for number, path in enumerate(paths)]
    return np.array(names, np.int64)
