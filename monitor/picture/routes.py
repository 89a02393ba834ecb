"""A path of states in words: names where the model has them, else labels, and which features changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import numpy as np

from monitor.model import MDP

MOST_CHANGES: Final = 2
"""Features shown of one transition: those that changed most, in standard deviations over all states."""

LEAST_CHANGE: Final = 0.1


def route_in_words(model: MDP, states: Sequence[int]) -> str:
    """Return a path as a person reads it.

    >>> coin = MDP.from_transitions(
    ...     states=20, actions=1, transitions=[(s, 0, s, 1.0) for s in range(20)], labels={"won": [7]}
    ... )
    >>> route_in_words(coin, [3, 3, 3, 7, 7])
    'state 3, stays 2 steps > won (state 7), stays'
    """
    parts: list[str] = []
    before: int | None = None
    for state, same in groupby(states):
        stays = len(list(same)) - 1
        words = state_in_words(model, state) + ("" if before is None else _changes(model, before, state))
        parts.append(words + ("" if not stays else ", stays" if stays == 1 else f", stays {stays} steps"))
        before = state
    return " > ".join(parts)


def state_in_words(model: MDP, state: int) -> str:
    """Return a state's name or number, with its rare labels."""
    rare = [name for name, mark in model.labels.items() if mark[state] and 10 * int(mark.sum()) <= model.states]
    if model.state_names:
        return f"{model.state_names[state]} ({', '.join(rare)})" if rare else model.state_names[state]
    return f"{', '.join(rare)} (state {state})" if rare else f"state {state}"


def _changes(model: MDP, before: int, state: int) -> str:
    """Return what differs between two states that have values instead of names."""
    if model.state_names:
        return ""
    if model.valuations:
        both = zip(model.valuations[before], model.valuations[state], strict=True)
        changed = [f"variable {n}: {_short(old)} to {_short(new)}" for n, (old, new) in enumerate(both) if old != new]
    elif model.observations is not None:
        deviation = model.observations.std(axis=0)
        apart = (model.observations[state] - model.observations[before]) / np.where(deviation > 0, deviation, 1.0)
        most = [int(n) for n in np.argsort(-np.abs(apart), kind="stable")[:MOST_CHANGES]]
        changed = [
            f"feature {n} {'up' if apart[n] > 0 else 'down'} {abs(float(apart[n])):.1f} sd"
            for n in most
            if abs(apart[n]) >= LEAST_CHANGE
        ]
    else:
        changed = []
    return f" [{'; '.join(changed[:MOST_CHANGES])}]" if changed else ""


def _short(value: float | str | bool) -> str:  # noqa: FBT001 - what a variable holds
    return f"{value:g}" if isinstance(value, float) else str(value)
