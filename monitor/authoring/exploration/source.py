"""Open environments that are named `gymnasium:ID?argument=value` or `module.py:make_env`."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Final

from monitor.authoring.exploration.explorable import Environment
from monitor.authoring.formats.gymnasium_env import make_environment
from monitor.errors import ModelError, to_install
from monitor.user_code import explained, is_reference, load_object

_FAMILIES: Final = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""First part of an id -> the package that registers it when imported."""


def open_environment(source: str) -> Environment:
    """Return the environment of `gymnasium:ID?argument=value`, or the result of the function `module.py:make_env`.

    For an id of MiniGrid, its packages are imported first. Raises ModelError.
    """
    if is_reference(source):
        return _own(source)
    if not source.startswith("gymnasium:"):
        raise ModelError(
            f"environment {source}: give gymnasium:ID?argument=value, or module.py:make_env (a function without "
            "arguments that returns an environment)"
        )
    family = next((package for start, package in _FAMILIES.items() if source[10:].startswith(start)), None)
    if family is not None:
        _import(family, source)
    return make_environment(source, disable_env_checker=True)


def _own(source: str) -> Environment:
    made = load_object(source, ModelError)
    try:
        environment = made()
    except Exception as error:
        raise ModelError(f"environment {source}: it cannot be made ({explained(error)})") from error
    needed = ("reset", "step", "unwrapped", "action_space") if not hasattr(environment, "successors") else ()
    missing = [name for name in needed if not hasattr(environment, name)]
    if missing:
        raise ModelError(
            f"environment {source}: it returned {type(environment).__name__}, which is no Gymnasium environment "
            f"(it has no {missing[0]!r}); return one, or an object with a method successors(state, action)"
        )
    return environment


def _import(package: str, source: str) -> None:
    from importlib import import_module  # noqa: PLC0415 - used for these environments only

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the imported packages
        try:
            import_module(package)
        except ImportError as error:
            raise ModelError(f"model {source}: needs {package}: {to_install(package)}") from error


def close(environment: Environment) -> None:
    """Close an environment, and ignore errors."""
    with suppress(Exception):
        environment.close()
