"""The observed part of a question, exactly: a product of rows over (state, what is still owed).

Semantics, section 6: forward with counterfactual rows up to the last observed pair, closed with the tail's table; for
bounds over a class of causal models backward, choosing a row for each (offset, state, obligation).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np
import numpy.typing as npt

from monitor.causal import World, extreme
from monitor.decide.tail import Tail
from monitor.logic import FALSE, TRUE

__all__ = ["interval", "value"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Spread = dict[int, tuple[Ints, Floats]]
"""Obligation -> the states (ascending) it is owed in, and the probability of each."""


def value(world: World, tail: Tail) -> float:
    """The Gumbel-Max value of the tail's program from the world's intervention state: probability or reward."""
    start = tail.program.start
    if start in (FALSE, TRUE):
        return float(start == TRUE)
    spread: Spread = {start: (np.array([world.path[0][0]]), np.ones(1))}
    total = 0.0
    for offset in range(world.observed):
        gained, spread = _advance(world, tail, offset, spread)
        total += gained
    return total + _close(world, tail, spread)


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
    """From the last observed pair on nothing more is known; only its action may be."""
    total = 0.0
    for obligation, (states, weights) in spread.items():
        places, actions, shares = _last_choices(world, states)
        total += float((weights[places] * shares) @ tail.after(world.observed, obligation, states[places], actions))
    return total


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
    origin = (world.path[0][0], start)
    levels = _reachable(world, tail, origin, causal_model)
    low = _solve(world, tail, levels, causal_model, largest=False)
    high = _solve(world, tail, levels, causal_model, largest=True)
    return low[origin], high[origin]


Cell = tuple[int, int]


def _reachable(world: World, tail: Tail, origin: Cell, causal_model: Literal["any", "stable"]) -> list[set[Cell]]:
    """The (state, obligation) pairs some causal model of the class reaches, offset by offset."""
    levels = [{origin}]
    for offset in range(world.observed):
        level: set[Cell] = set()
        for state, obligation in levels[-1]:
            for action, _ in world.choices(offset, state):
                rest = tail.program.step(obligation, tail.letters.one(offset, state, action))
                if rest not in (FALSE, TRUE):
                    successors, _, upper = world.row_bounds(offset, state, action, causal_model)
                    level.update((int(s), rest) for s in successors[upper > 0.0])
        levels.append(level)
    return levels


def _solve(
    world: World, tail: Tail, levels: list[set[Cell]], causal_model: Literal["any", "stable"], *, largest: bool
) -> dict[Cell, float]:
    """Backward over the reachable pairs; returns the values at offset 0."""
    last = world.observed
    values = {
        (state, obligation): _close(world, tail, {obligation: (np.array([state]), np.ones(1))})
        for state, obligation in levels[last]
    }
    for offset in range(last - 1, -1, -1):
        ahead = values
        values = {}
        for state, obligation in levels[offset]:
            total = 0.0
            for action, share in world.choices(offset, state):
                rest = tail.program.step(obligation, tail.letters.one(offset, state, action))
                if tail.program.pays(obligation):
                    total += share * float(world.law.model_at(offset).rewards[state, action])
                if rest == TRUE:
                    total += share
                elif rest != FALSE:
                    successors, lower, upper = world.row_bounds(offset, state, action, causal_model)
                    worth = np.array([ahead.get((int(s), rest), 0.0) for s in successors])
                    total += share * extreme(lower, upper, worth, largest=largest)
            values[state, obligation] = total
    return values
