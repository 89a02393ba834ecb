"""Enumerate the reachable states of an environment as a model, by snapshots or by its own method `successors`.

This package runs the user's code. `search.py` finds the states, `walks.py` compares the result with the environment,
and `explored_model.py` makes the model.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from monitor.authoring.exploration.enumeration import explore as explore
    from monitor.authoring.exploration.identity import observation_key as observation_key
    from monitor.authoring.exploration.minigrid_env import minigrid_state as minigrid_state

_HOMES = {"explore": "enumeration", "minigrid_state": "minigrid_env", "observation_key": "identity"}

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604 - the names are listed once, in the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
