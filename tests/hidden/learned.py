"""Models with hidden states that are learned from simulated episodes, counted slowly and by definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

import monitor
from monitor.arrays import Floats
from monitor.model.counts import Counts, EmissionCounts
from monitor.model.emissions import Emissions

Draws = Mapping[Any, Sequence[int]]


def rows_of(draws: Draws, keys: Sequence[Any], otherwise: Mapping[Any, Sequence[int]], prior: float) -> dict[str, Any]:
    """Return the estimated rows of `keys`; one without draws has the outcomes of `otherwise`, equally likely."""
    found: dict[str, list[Any]] = {name: [] for name in ("outcomes", "chances", "visits", "since")}
    indptr = [0]
    for key in keys:
        drawn = list(draws.get(key, ()))
        kinds = sorted(set(drawn)) or list(otherwise[key])
        for kind in kinds:
            found["outcomes"].append(kind)
            found["visits"].append(drawn.count(kind))
            found["since"].append(len(drawn) - 1 - drawn.index(kind) if drawn else 0)
            mean = (drawn.count(kind) + Fraction(prior) / len(kinds)) / (len(drawn) + Fraction(prior))
            found["chances"].append(float(mean))
        indptr.append(len(found["outcomes"]))
    return {name: np.array(values) for name, values in {**found, "indptr": indptr}.items()}


def learned(
    moves: Draws, shows: Draws | None, *, states: int, actions: int, signals: int, initial: Floats, prior: float = 1.0
) -> monitor.MDP:
    """Return the model of draws (state, action) -> successors and state -> observations.

    `elsewhere` is one more state. `shows` None: emissions are not learned, and the caller gives them.
    """
    elsewhere = states
    keys = [(state, action) for state in range(states + 1) for action in range(actions)]
    rows = rows_of(moves, keys, {key: [elsewhere] for key in keys}, prior)
    order = np.array([1 + list(moves).index(key) if key in moves else 0 for key in keys])
    model = monitor.MDP.from_rows(
        states=states + 1,
        actions=actions,
        indptr=rows["indptr"],
        successors=rows["outcomes"],
        probabilities=rows["chances"],
        labels={"bad": [0], "good": [states - 1], "elsewhere": [elsewhere]},
        initial=np.append(initial, 0.0),
        counts=Counts(rows["visits"], rows["since"], order, elsewhere, prior),
    )
    if shows is None:
        return model
    every = range(states + 1)
    rows = rows_of(shows, every, dict.fromkeys(every, range(signals)), prior)
    emissions = Emissions.from_rows(states + 1, signals, rows["indptr"], rows["outcomes"], rows["chances"])
    counts = EmissionCounts(rows["visits"], rows["since"], prior)
    return replace(model, emissions=emissions.learned(counts))


class Truth:
    """A random world: rows [S, A, S], emissions [S, O], initial [S], drawn from the priors of its estimates."""

    def __init__(self, rng: np.random.Generator, states: int, actions: int, signals: int) -> None:
        self.rows = rng.dirichlet(np.ones(states), size=(states, actions))
        self.emissions = rng.dirichlet(np.ones(signals), size=states)
        self.initial = rng.dirichlet(np.ones(states))
        self._rng = rng

    def model(self) -> monitor.MDP:
        """Return the true model."""
        states, actions, _ = self.rows.shape
        return monitor.MDP.from_transitions(
            states=states,
            actions=actions,
            transitions=[(*index, self.rows[index]) for index in np.ndindex(self.rows.shape)],
            labels={"bad": [0], "good": [states - 1]},
            initial=dict(enumerate(self.initial.tolist())),
            signals=self.emissions.shape[1],
            emissions=[(*index, self.emissions[index]) for index in np.ndindex(self.emissions.shape)],
        )

    def episode(self, steps: int, policy: Sequence[Floats] | None = None) -> list[tuple[int, int, int]]:
        """Return (state, observation, action) of each step. `policy`: choices by observation; None: any action."""
        rng, found = self._rng, []
        state = int(rng.choice(len(self.initial), p=self.initial))
        for _ in range(steps):
            shown = int(rng.choice(self.emissions.shape[1], p=self.emissions[state]))
            action = int(rng.choice(self.rows.shape[1], p=None if policy is None else policy[shown]))
            found.append((state, shown, action))
            state = int(rng.choice(len(self.initial), p=self.rows[state, action]))
        return found

    def learned(self, episodes: int, steps: int, *, emissions: bool = True, often: float = 1.0) -> monitor.MDP:
        """Return the model of recorded episodes; without `emissions`, only transitions have counts.

        `often`: how often an observation is recorded.
        """
        moves: dict[tuple[int, int], list[int]] = {}
        shows: dict[int, list[int]] = {}
        for _ in range(episodes):
            rows = self.episode(steps)
            for state, shown, _ in rows:
                if often == 1.0 or self._rng.random() < often:
                    shows.setdefault(state, []).append(shown)
            for (state, _, action), (after, _, _) in pairwise(rows):
                moves.setdefault((state, action), []).append(after)
        states, actions, _ = self.rows.shape
        model = learned(
            moves,
            shows,
            states=states,
            actions=actions,
            signals=self.emissions.shape[1],
            initial=self.initial,
        )
        if not emissions:
            assert model.emissions is not None
            model = replace(model, emissions=replace(model.emissions, counts=None))
        return model
