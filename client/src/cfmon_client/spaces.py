"""Defaults for publishing observations and actions, derived from their Gymnasium spaces."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from cfmon_client.errors import ClientError
from cfmon_client.trail import ActionOf, StateOf

__all__ = ["default_action", "default_state"]


def default_state(space: spaces.Space[Any]) -> StateOf:
    """Return the default function that reads a state from an observation.

    It returns a discrete observation or a text unchanged, and an array as a flat array.

    Raises:
        ClientError: There is no default for observations of this space.
    """
    if isinstance(space, spaces.Discrete | spaces.Text):
        return lambda observation, _: observation
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return lambda observation, _: observation.ravel()
    raise ClientError(
        f"observations are of {type(space).__name__}; give state=, a function of (observation, info) that returns an "
        "integer, a name or a flat list of numbers"
    )


def default_action(space: spaces.Space[Any]) -> ActionOf:
    """Return the default function that reads an action. It returns a discrete action or a text unchanged.

    Raises:
        ClientError: There is no default for actions of this space.
    """
    if isinstance(space, spaces.Discrete | spaces.Text):
        return lambda action: action
    raise ClientError(
        f"actions are of {type(space).__name__}; give action=, a function of the action that returns the index or the "
        "name of one of the model's actions"
    )
