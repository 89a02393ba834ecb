"""Names that no policy can have, because formulas use these words, such as `best`, in the place of a policy."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.errors import ConfigError
from monitor.logic.syntax import DECIDING


def check_policy_names(names: Iterable[str]) -> None:
    """Raise ConfigError if formulas could not refer to a policy because of its name."""
    for name in names:
        if name in DECIDING:
            raise ConfigError(f"no policy can be called {name!r}, a word of the formula language; rename it")
