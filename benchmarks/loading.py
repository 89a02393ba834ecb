"""Find the peers: modules imported only when a row needs them, because their packages may be missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from monitor.errors import to_install

__all__ = ["Missing", "Peers"]


@dataclass(frozen=True)
class Missing:
    """Reason why a peer cannot run here, as shown in the table."""

    reason: str


@dataclass(frozen=True)
class Peers:
    """Peers in a package; with None, every peer is missing."""

    package: str | None = "benchmarks"

    def get(self, module: str, name: str) -> Callable[..., Any] | Missing:
        """Return the function or class `name` of `<package>.<module>`, or the reason why it is missing."""
        if self.package is None:
            return Missing("measured alone, without peers")
        try:
            found: Callable[..., Any] = getattr(import_module(f"{self.package}.{module}"), name)
        except ImportError as error:
            return _without(error)
        return found

    def make(self, module: str, name: str, *arguments: object) -> Any | Missing:  # noqa: ANN401 - any peer
        """Call `name` of that module; return its result, or the package that is missing."""
        maker = self.get(module, name)
        if isinstance(maker, Missing):
            return maker
        try:
            return maker(*arguments)
        except ImportError as error:
            return _without(error)


def _without(error: ImportError) -> Missing:
    return Missing(f"{error.name or error} is not installed: {to_install('bench')}")
