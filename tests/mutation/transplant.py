"""A mutant put into the running process: the changed function's code in place of the old, wherever it is held."""

from __future__ import annotations

import functools
import gc
import importlib.util
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutation.operators import Mutant

__all__ = ["Live", "NotApplied"]

PLAIN = (bool, int, float, str, tuple, frozenset, dict, list, range, types.MappingProxyType)


CACHED = type(functools.cache(len))
GENERATED = ("__init__", "__eq__", "__hash__", "__repr__")


class NotApplied(Exception):  # noqa: N818 - nothing went wrong
    """The change has no effect that this way of putting it in can bring about."""


class Live:
    """The functions of some files that are alive in this process."""

    def __init__(self, root: Path, files: set[str]) -> None:
        self._root = root
        self._sources = {file: (root / file).read_bytes() for file in files}  # as they were when they were imported
        self._functions: dict[tuple[str, str, int], list[types.FunctionType]] = defaultdict(list)
        self._caches: list[Any] = []
        names = {str(root / file): file for file in files}
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType) and each.__code__.co_filename in names:
                code = each.__code__
                self._functions[names[code.co_filename], code.co_qualname, code.co_firstlineno].append(each)
            elif isinstance(each, CACHED):
                self._caches.append(each)

    def put(self, mutant: Mutant) -> None:
        """Make this process behave as if its source had been the mutant's; it cannot be undone.

        Raises:
            NotApplied: no function or value that lives here would be another one.
        """
        code = compile(mutant.apply(self._sources[mutant.file]), str(self._root / mutant.file), "exec")
        if mutant.first_line:
            self._put_code(mutant, code)
        else:
            self._put_values(mutant, code)
        module = _module_name(mutant.file)
        for cache in self._caches:
            if cache.__module__ == module:
                cache.cache_clear()

    def _put_code(self, mutant: Mutant, code: types.CodeType) -> None:
        old = self._functions.get((mutant.file, mutant.function, mutant.first_line), [])
        new = next((each for each in _codes(code) if _is(each, mutant)), None)
        if not old or new is None:
            raise NotApplied
        for function in old:
            function.__code__ = new

    def _put_values(self, mutant: Mutant, code: types.CodeType) -> None:
        """Run the changed module apart from the one in use, and take over the values and defaults that differ."""
        name = _module_name(mutant.file)
        module = sys.modules[name]
        found = importlib.util.module_from_spec(module.__spec__)  # type: ignore[arg-type] # it was imported
        exec(code, found.__dict__)
        if not _adopt(vars(module), vars(found), name, everywhere=True):
            raise NotApplied


def _is(code: types.CodeType, mutant: Mutant) -> bool:
    return code.co_qualname == mutant.function and code.co_firstlineno == mutant.first_line


def _module_name(file: str) -> str:
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes(each)


def _adopt(old: Any, new: Any, module: str, *, everywhere: bool, owner: type | None = None) -> bool:  # noqa: ANN401 - namespaces
    """Take over what differs in a namespace; whether anything did."""
    changed = False
    for name, value in dict(new).items():
        before = old.get(name)
        if name.startswith("__") or before is None:
            continue
        if isinstance(value, type) and value.__module__ == module:
            old_defaults, defaults = (getattr(each, "__struct_defaults__", ()) for each in (before, value))
            if repr(defaults) != repr(old_defaults):  # they cannot be written to
                changed = True
                _replace(name, before, value)
            changed |= _adopt(vars(before), vars(value), module, everywhere=False, owner=before)
        elif (functions := _functions(before, value)) is not None:
            changed |= _adopt_defaults(*functions)
        elif isinstance(value, PLAIN) and type(value) is type(before) and repr(value) != repr(before):
            changed = True
            if everywhere:
                _replace(name, before, value)
            elif owner is not None:
                setattr(owner, name, value)
    for name in GENERATED if owner is not None else ():
        some = [getattr(each, "__wrapped__", each) for each in (old.get(name), new.get(name))]  # repr guards itself
        if all(isinstance(each, types.FunctionType) for each in some):
            changed |= _adopt_defaults(*some) | _adopt_code(*some)
    return changed


def _functions(old: Any, new: Any) -> tuple[types.FunctionType, types.FunctionType] | None:  # noqa: ANN401 - any value
    old, new = (getattr(each, "__func__", each) for each in (old, new))
    old, new = (getattr(each, "__wrapped__", each) for each in (old, new))
    both = isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType)
    return (old, new) if both else None


def _adopt_code(old: types.FunctionType, new: types.FunctionType) -> bool:
    """Take over what a dataclass has written for itself."""
    same = (old.__code__.co_code, old.__code__.co_consts, old.__code__.co_names) == (
        new.__code__.co_code,
        new.__code__.co_consts,
        new.__code__.co_names,
    )
    if not same and old.__code__.co_freevars == new.__code__.co_freevars:
        old.__code__ = new.__code__
    return not same


def _adopt_defaults(old: types.FunctionType, new: types.FunctionType) -> bool:
    same = repr((old.__defaults__, old.__kwdefaults__)) == repr((new.__defaults__, new.__kwdefaults__))
    if not same:
        old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    return not same


def _replace(name: str, before: object, value: object) -> None:
    """Wherever a module has taken the value over under its name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith(("monitor.", "tests.")) and vars(module).get(name) is before:
            setattr(module, name, value)
