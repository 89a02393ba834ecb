"""Best decisions in worlds of drawn Gumbel noise: abducted by rejection, the decisions are those of the induction."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.oracle.goals import Memory
from tests.oracle.race import ZERO
from tests.oracle.recourse import Recourse
from tests.oracle.rejection import Noise, posterior_noise, winners

Worlds = npt.NDArray[np.int64]


class Place(NamedTuple):
    """Where a world is: worlds at the same place are moved together."""

    state: int
    memory: Memory
    left: int
    earned: Fraction


class Player:
    """Plays a world of a goal with noise that reproduces the observed path."""

    def __init__(self, recourse: Recourse, word: str, worlds: int, seed: int) -> None:
        self._recourse = recourse
        self._window = recourse.window
        self._random = np.random.default_rng(seed)
        self._worlds = worlds
        menu, self._changes = recourse.world(word)
        self._induction = recourse.induction(menu)

    def mean(self) -> float:
        """Return the mean of the goal."""
        goal = self._recourse.goal
        places = {Place(self._window.path[0][0], goal.begin(), self._changes, ZERO): np.arange(self._worlds)}
        total = 0.0
        for offset in range(goal.last + 1):
            read = [
                (place._replace(memory=goal.read(place.memory, offset, place.state)), worlds)
                for place, worlds in places.items()
            ]
            settled = [goal.settled(place.memory, offset) for place, _ in read]
            total += sum(
                float(place.earned + value) * len(worlds)
                for (place, worlds), value in zip(read, settled, strict=True)
                if value is not None
            )
            places = self._step(offset, [each for each, value in zip(read, settled, strict=True) if value is None])
        assert not places
        return total / self._worlds

    def _step(self, offset: int, places: list[tuple[Place, Worlds]]) -> dict[Place, Worlds]:
        moves, choices = self._moves(offset), self._choices(offset)
        found: defaultdict[Place, list[Worlds]] = defaultdict(list)
        for place, worlds in places:
            actions, left = self._decide(offset, place, choices[worlds])
            for action in np.unique(actions).tolist():
                (row,) = self._window.rows("prior")(offset, place.state, action)
                these = worlds[actions == action]
                successors = winners(row, moves[these])
                for successor in np.unique(successors).tolist():
                    earned = self._recourse.goal.earned(offset, place.state, action, successor)
                    after = Place(successor, place.memory, left, place.earned + earned)
                    found[after].append(these[successors == successor])
        return {place: np.concatenate(parts) for place, parts in found.items()}

    def _decide(self, offset: int, place: Place, noise: Noise) -> tuple[Worlds, int]:
        """Return the actions of the best option at a place, an unchanged one by the noise, and the changes left."""
        options = self._induction.options(offset, place.state, place.memory, place.left)
        best = self._recourse.pick([value for _, value in options])
        option = next(option for option, value in options if value == best)
        if len(option.actions) > 1:
            return winners(self._window.acting(offset, place.state), noise), option.left
        return np.full(len(noise), next(iter(option.actions))), option.left

    def _moves(self, offset: int) -> Noise:
        """Return noise of the transition, [worlds, states]."""
        window, row, outcome = self._window, None, None
        if offset < window.d:
            seen, taken = window.path[offset]
            assert taken is not None
            (row,), outcome = window.rows("prior")(offset, seen, taken), window.path[offset + 1][0]
        return posterior_noise(self._random, (self._worlds, window.setting.states), row, outcome)

    def _choices(self, offset: int) -> Noise:
        """Return noise of the action, [worlds, actions]; an action that the policy never takes says nothing."""
        window, taken = self._window, self._window.taken(offset)
        policy = window.acting(offset, window.path[offset][0]) if taken is not None else {}
        informs = policy if taken in policy else None
        return posterior_noise(self._random, (self._worlds, window.setting.actions), informs, taken)
