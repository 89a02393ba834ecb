"""Finds the peers: files in a folder that is no part of the package, loaded by their path when a row asks for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from monitor.errors import to_install

__all__ = ["Missing", "Peers"]


@dataclass(frozen=True)
class Missing:
    """Why a peer cannot run here, in words for the table."""

    reason: str


@dataclass
class Peers:
    """The peers in a folder; None: there is no folder, every peer is missing."""

    folder: Path | None
    _loaded: dict[str, ModuleType | Missing] = field(default_factory=dict)

    def get(self, file: str, name: str) -> Callable[..., Any] | Missing:
        """The function or class `name` of `<folder>/<file>.py`, or why there is none."""
        if file not in self._loaded:
            self._loaded[file] = self._load(file)
        match self._loaded[file]:
            case Missing() as missing:
                return missing
            case module:
                found: Callable[..., Any] | None = getattr(module, name, None)
                return found if found is not None else Missing(f"{self.folder}/{file}.py has no {name}")

    def make(self, file: str, name: str, *arguments: object) -> Any | Missing:  # noqa: ANN401 - whatever the peer is
        """What `name` of that file makes of the arguments, or why it cannot: a package it needs is not installed."""
        maker = self.get(file, name)
        if isinstance(maker, Missing):
            return maker
        try:
            return maker(*arguments)
        except ImportError as error:
            return _without(error)

    def _load(self, file: str) -> ModuleType | Missing:
        if self.folder is None:
            return Missing("no folder of peers: run in a checkout, or name one with --peers")
        root = str(self.folder.resolve().parent.parent)
        if root not in sys.path:
            sys.path.append(root)  # in a checkout the peers are tests.bench, and may import what stands beside them
        path = self.folder / f"{file}.py"
        if not path.is_file():
            return Missing(f"no peer {path}")
        spec = spec_from_file_location(f"cfmon_bench_peer_{file}", path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = module_from_spec(spec)  # dataclasses look their module up there
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            return _without(error)
        return module


def _without(error: ImportError) -> Missing:
    return Missing(f"{error.name or error} is not installed: {to_install('bench')}")
