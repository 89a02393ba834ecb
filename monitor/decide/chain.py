"""The observed part of a question, exactly: a product of rows over (state, what is still owed).

Semantics, section 6: forward with counterfactual rows up to the last observed pair, closed with the tail's table; for
bounds over a class of causal models backward, choosing a row for each (offset, state, obligation).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from monitor.causal import World, extreme
from monitor.decide.spreads import Spread, Spreads, Standing
from monitor.decide.tail import Tail
from monitor.logic import FALSE, TRUE

__all__ = ["interval", "value"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def value(world: World, tail: Tail, known: Spreads) -> float:
    """The Gumbel-Max value of the tail's program from the world's intervention state: probability or reward.

    `known`: standings of this world's path when it was shorter; the walk begins at the last one held, and adds to them.
    """
    start = tail.program.start
    if start in (FALSE, TRUE):
        return float(start == TRUE)
    offset, standing = _last_known(world, tail, known)
    while offset < world.observed:
        gained, spread = _advance(world, tail, offset, standing.spread)
        offset, standing = offset + 1, Standing(standing.gained + gained, spread)
        known.put(_key(world, tail, offset), standing)
    return standing.gained + _close(world, tail, standing.spread)


def _key(world: World, tail: Tail, offset: int) -> Hashable:
    """What a standing at an offset depends on: the laws, the program, and the path before it."""
    return tail.law, tail.program, world.nominal, world.path[:offset], world.path[offset][0]


def _last_known(world: World, tail: Tail, known: Spreads) -> tuple[int, Standing]:
    """The latest offset at which the standing is held, and that; a stream needs at most two look-ups for it."""
    for offset in range(world.observed, 0, -1):
        standing = known.get(_key(world, tail, offset))
        if standing is not None:
            return offset, standing
    return 0, Standing(0.0, {tail.program.start: (np.array([world.path[0][0]]), np.ones(1))})


def _advance(world: World, tail: Tail, offset: int, spread: Spread) -> tuple[float, Spread]:
    """One observed step: what it yields for good, and where the rest is owed."""
    program, rewards = tail.program, world.law.model_at(offset).rewards
    gained = 0.0
    parts: dict[int, list[tuple[Ints, Floats]]] = defaultdict(list)
    moves: dict[int, list[tuple[int, float, int, tuple[Ints, Floats]]]] = {}
    for obligation, (states, weights) in spread.items():
        for state, weight in zip(states.tolist(), weights.tolist(), strict=True):
            if state not in moves:
                moves[state] = [
                    (action, share, tail.letters.one(offset, state, action), world.row(offset, state, action))
                    for action, share in world.choices(offset, state)
                ]
            for action, share, letter, (successors, row) in moves[state]:
                mass = weight * share
                if program.pays(obligation):
                    gained += mass * float(rewards[state, action])
                rest = program.step(obligation, letter)
                if rest == TRUE:
                    gained += mass
                elif rest != FALSE:
                    parts[rest].append((successors, mass * row))
    return gained, {rest: _merge(pieces) for rest, pieces in parts.items()}


def _merge(pieces: list[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    states, place = np.unique(np.concatenate([s for s, _ in pieces]), return_inverse=True)
    weights = np.bincount(place, np.concatenate([w for _, w in pieces]), len(states))
    reached = weights > 0.0
    return states[reached], weights[reached].astype(np.float64)


def _close(world: World, tail: Tail, spread: Spread) -> float:
    """The value of what is still owed at the last observed pair."""
    return sum(float(weights @ _last(world, tail, owed, states)) for owed, (states, weights) in spread.items())


def _last(world: World, tail: Tail, owed: int, states: Ints) -> Floats:
    """Values [n] at the last observed pair: from there on nothing more is known; only its action may be."""
    places, actions, shares = _last_choices(world, states)
    values = shares * tail.after(world.observed, owed, states[places], actions)
    return np.bincount(places, values, len(states)).astype(np.float64)


def _last_choices(world: World, states: Ints) -> tuple[Ints, Ints, Floats]:
    """Index into `states`, action and its probability, for every choice at the last observed pair."""
    chosen = [
        (place, action, share)
        for place, state in enumerate(states.tolist())
        for action, share in world.choices(world.observed, state)
    ]
    places, actions, shares = zip(*chosen, strict=True)
    return np.array(places, dtype=np.int64), np.array(actions, dtype=np.int64), np.array(shares)


def interval(world: World, tail: Tail, causal_model: Literal["any", "stable"]) -> tuple[float, float]:
    """Lowest and highest value over a class of causal models; noise independent from step to step.

    Attained where at most one obligation is live at each (offset, state), as for U, F and G over state formulas;
    otherwise bounds that may be wider than need be.
    """
    start = tail.program.start
    if start in (FALSE, TRUE):
        return float(start == TRUE), float(start == TRUE)
    moves = _Moves(world, tail, causal_model)
    levels = _reachable(moves, world.path[0][0], start, world.observed)
    worth = {owed: _settled(world, tail, owed, states) for owed, states in levels[-1].items()}
    for offset in range(world.observed - 1, -1, -1):
        worth = {owed: moves.worth(offset, owed, states, worth) for owed, states in levels[offset].items()}
    origin = worth[start]
    return float(origin.low[0]), float(origin.high[0])


@dataclass(frozen=True)
class _Worth:
    """Lowest and highest value [n] of an obligation in n states (ascending)."""

    states: Ints
    low: Floats
    high: Floats


def _settled(world: World, tail: Tail, owed: int, states: Ints) -> _Worth:
    """Where nothing is observed any more causal models have no say."""
    values = _last(world, tail, owed, states)
    return _Worth(states, values, values)


@dataclass(frozen=True)
class _Move:
    """An action taken in a state: its share, letter and reward, and the bounds of the row it leads along."""

    share: float
    letter: int
    reward: float
    successors: Ints
    lower: Floats
    upper: Floats


class _Moves:
    """What can be done at each offset in each state; each row is bounded once, whatever is asked of it."""

    def __init__(self, world: World, tail: Tail, causal_model: Literal["any", "stable"]) -> None:
        self._world, self._tail, self._class = world, tail, causal_model
        self._known: dict[tuple[int, int], list[_Move]] = {}

    def at(self, offset: int, state: int) -> list[_Move]:
        """The moves from a state at an observed offset."""
        if (offset, state) not in self._known:
            self._known[offset, state] = [
                _Move(
                    share,
                    self._tail.letters.one(offset, state, action),
                    float(self._world.law.model_at(offset).rewards[state, action]),
                    *self._world.row_bounds(offset, state, action, self._class),
                )
                for action, share in self._world.choices(offset, state)
            ]
        return self._known[offset, state]

    def rest(self, owed: int, move: _Move) -> int:
        """What is still owed after the letter of a move."""
        return self._tail.program.step(owed, move.letter)

    def worth(self, offset: int, owed: int, states: Ints, ahead: dict[int, _Worth]) -> _Worth:
        """Lowest and highest values of an obligation in `states`, given those one offset ahead."""
        pays = self._tail.program.pays(owed)
        ends = [[0.0, 0.0] for _ in states]
        for end, state in zip(ends, states.tolist(), strict=True):
            for move in self.at(offset, state):
                gain = move.reward if pays else 0.0
                rest = self.rest(owed, move)
                low, high = (1.0, 1.0) if rest == TRUE else (0.0, 0.0)
                if rest not in (FALSE, TRUE):
                    low, high = _extremes(move, ahead[rest])
                end[0] += move.share * (gain + low)
                end[1] += move.share * (gain + high)
        lows, highs = np.array(ends).T
        return _Worth(states, lows, highs)


def _extremes(move: _Move, ahead: _Worth) -> tuple[float, float]:
    """The worst and best mean value over the rows within a move's bounds."""
    possible = move.upper > 0.0
    at = np.searchsorted(ahead.states, move.successors[possible])
    lower, upper = move.lower[possible], move.upper[possible]
    low = extreme(lower, upper, ahead.low[at], largest=False)
    return low, extreme(lower, upper, ahead.high[at], largest=True)


def _reachable(moves: _Moves, state: int, start: int, observed: int) -> list[dict[int, Ints]]:
    """Offset by offset, the states some causal model of the class reaches with each obligation; ascending."""
    levels = [{start: np.array([state])}]
    for offset in range(observed):
        parts: dict[int, list[Ints]] = defaultdict(list)
        for owed, states in levels[-1].items():
            for here in states.tolist():
                for move in moves.at(offset, here):
                    rest = moves.rest(owed, move)
                    if rest not in (FALSE, TRUE):
                        parts[rest].append(move.successors[move.upper > 0.0])
        levels.append({rest: np.unique(np.concatenate(pieces)) for rest, pieces in parts.items()})
    return levels
