"""Names that no policy can have: words of the formula language that stand where a policy may."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.errors import ConfigError
from monitor.logic.syntax import DECIDING


def check_policy_names(names: Iterable[str]) -> None:
    """Raise ConfigError if a policy has a name that formulas could not refer to."""
    for name in names:
        if name in DECIDING:
            raise ConfigError(f"no policy can be called {name!r}, a word of the formula language; rename it")
