"""Descriptions of states: names if the model has them, else labels and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from monitor.model import MDP

PLACE: Final = re.compile(r"row (\d+) column (\d+)(?: \(.*\))?$")
"""Name of a grid's cell, followed by its labels, which may be left out because the picture shows them."""


def state_in_words(model: MDP, state: int) -> str:
    """Return a state's name or number, with its rare labels.

    >>> rows = [(s, 0, s, 1.0) for s in range(20)]
    >>> coin = MDP.from_transitions(states=20, actions=1, transitions=rows, labels={"won": [7]})
    >>> state_in_words(coin, 3), state_in_words(coin, 7)
    ('state 3', 'won (state 7)')
    """
    rare = [name for name, mark in model.labels.items() if mark[state] and 10 * int(mark.sum()) <= model.states]
    if model.state_names:
        return f"{model.state_names[state]} ({', '.join(rare)})" if rare else model.state_names[state]
    return f"{', '.join(rare)} (state {state})" if rare else f"state {state}"


def likeliest_of(there: Mapping[int, float], count: int) -> list[int]:
    """Return the likeliest states of a distribution, the likeliest first."""
    return sorted(there, key=lambda state: (-there[state], state))[:count]


def likeliest_in_words(model: MDP, there: Mapping[int, float]) -> str:
    """Return the three likeliest states of a distribution, each with its probability."""
    likeliest = likeliest_of(there, 3)
    return ", ".join(f"{state_in_words(model, state)}: {there[state]:.2f}" for state in likeliest)


def state_in_brief(model: MDP, state: int) -> str:
    """Return `state_in_words` for a place where it is clear that states are meant: a number without the word `state`.

    A cell of a grid in the same picture is written `2,0` for `row 2 column 0`.
    """
    return PLACE.sub(r"\1,\2", state_in_words(model, state).removeprefix("state "))
