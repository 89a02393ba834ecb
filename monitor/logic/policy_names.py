"""Names that no policy can have, because they are words of the formula language."""

from __future__ import annotations

from collections.abc import Collection

from monitor.errors import ConfigError
from monitor.logic.syntax import RESERVED


def check_policy_name(name: str) -> None:
    """Raise ConfigError if the name of a policy is a word of the formula language."""
    if name in RESERVED and name != "nominal":
        raise ConfigError(f"no policy can be called {name!r}, a word of the formula language; rename it")


def check_policy_names(names: Collection[str]) -> None:
    """Raise ConfigError if no policy is called nominal, or if a name is a word of the formula language."""
    if "nominal" not in names:
        raise ConfigError("no policy is called 'nominal'; it names the deployed one, so name it under policies")
    for name in names:
        check_policy_name(name)
