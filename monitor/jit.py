"""Compiling the inner loops (numba): once, kept on disk beside the source or in the user's cache folder.

With `NUMBA_DISABLE_JIT=1` nothing is compiled: the same loops run in the interpreter, some hundred times slower, for
debuggers and for mutation tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit, typeof, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.experimental import structref
from numba.extending import intrinsic

__all__ = ["Held", "compiled", "held", "inlined", "typed"]

F = TypeVar("F", bound=Callable[..., object])
INTERPRETED = bool(config.DISABLE_JIT)  # type: ignore[attr-defined] # numba reads it from the environment


def compiled(function: F) -> F:
    """The same function as machine code; divisions by zero give infinities as in NumPy, the interpreter is let go.

    Where nothing can be written (a read-only installation without a home) it is compiled anew in every process, unless
    `NUMBA_CACHE_DIR` names a folder that was filled at installation.
    """
    if INTERPRETED:
        return np.errstate(all="ignore")(function)  # divisions by zero as above, and hashes that overflow
    made = njit(error_model="numpy", nogil=True)(function)
    for kind in (_SourceCache, _ReadOnlyCache):  # a folder to keep machine code in, or one that was filled before
        with suppress(RuntimeError):  # numba found none
            cast("Any", made)._cache = cast("Any", kind)(function)  # noqa: SLF001 - as numba's `enable_caching` does
            break
    return cast("F", made)


def _sources() -> str:
    """Return a digest of every source that machine code may be made of.

    numba keeps machine code by the time stamp of the file it calls into, and does not see a change in another one whose
    functions or constants became part of it: a tree that was updated would go on giving the old numbers.
    """
    rooms = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(path for room in ("causal", "exact", "sampled") for path in (rooms / room).rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


_SOURCES = _sources()


def _by_content(locator: type[Any]) -> type[Any]:
    """Return a locator of kept machine code that is stale when any source has changed."""

    def get_source_stamp(self: Any) -> tuple[object, str]:  # noqa: ANN401 - numba's locator
        return cast("Any", locator).get_source_stamp(self), _SOURCES

    return type(locator.__name__, (locator,), {"get_source_stamp": get_source_stamp})


class _SourceCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_by_content(locator) for locator in CompileResultCacheImpl._locator_classes]  # noqa: RUF012, SLF001 - as numba has it


class _SourceCache(FunctionCache):
    """Machine code kept on disk for as long as no source changes."""

    _impl_class = _SourceCacheImpl


class _ReadOnlyLocator(UserProvidedCacheLocator):
    """`NUMBA_CACHE_DIR` as it is; numba's own locator passes over a folder that it cannot write to."""

    def ensure_cache_path(self) -> None:
        if not Path(self._cache_path).is_dir():
            raise FileNotFoundError(self._cache_path)


class _ReadOnlyCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_by_content(_ReadOnlyLocator)]  # noqa: RUF012 - as numba has it


class _ReadOnlyCache(FunctionCache):
    """Machine code kept by an earlier process; what is compiled now is not kept."""

    _impl_class = _ReadOnlyCacheImpl

    def save_overload(self, sig: object, data: object) -> None:
        """Nothing can be written here."""


def typed(function: Callable[..., Any], *examples: object) -> Callable[..., Any]:
    """The machine code of a compiled function for arguments of the types that these have.

    Called so, numba does not look at the types again, which takes 1 us where boxes are among them. Whoever calls it
    sees to it that they are the same.
    """
    if INTERPRETED:
        return function
    code: Callable[..., Any] = cast("Any", function).compile(tuple(map(typeof, examples)))
    return code


def inlined(function: F) -> F:
    """For a function that only compiled ones call: it becomes part of them.

    Handing a tuple of arrays over counts a reference of each of them twice, 10 ns an array: more than the work.
    """
    return cast("F", njit(error_model="numpy", inline="always")(function))


@intrinsic
def _lent(_context: Any, value: Any) -> Any:  # noqa: ANN401 - LLVM's own words
    """The arrays of a (nested) tuple without their owners: nobody counts references to them, nor keeps them alive."""

    def lend(context: Any, builder: Any, kind: Any, one: Any) -> Any:  # noqa: ANN401 - likewise
        if isinstance(kind, types.BaseTuple):
            parts: Any = kind
            for n, part in enumerate(parts):
                lent = lend(context, builder, part, builder.extract_value(one, n))
                one = builder.insert_value(one, lent, n)
        elif isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, one)
            array.meminfo = array.meminfo.type(None)
            one = array._getvalue()  # noqa: SLF001 - numba's protocol
        return one

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401 - likewise
        return lend(context, builder, signature.args[0], arguments[0])

    return value(value), codegen


@dataclass(frozen=True)
class _Plain:
    """What `Held` is where nothing is compiled."""

    value: object


@structref.register
class _HeldType(types.StructRef):
    """One field, of any type."""


class Held(structref.StructRefProxy):
    """A tuple of arrays lent to the compiled side: handing it to a compiled function takes .5 us, however many.

    The arrays themselves would take 45 ns each, a message at a time, and counting references to them would take half
    the time of a step. `held(value)` makes one; compiled code reads `.value`. Whoever makes one keeps the arrays.
    """

    def __new__(cls, value: object) -> Any:  # noqa: ANN401 - numba's own box
        """See `held`."""
        return held(value)


if INTERPRETED:

    def held(value: Any) -> Any:  # noqa: ANN401 - as below
        """Lend a value to the loops, in the box they expect."""
        return _Plain(value)

else:
    structref.define_boxing(_HeldType, Held)  # type: ignore[no-untyped-call] # numba has no types here
    structref.define_constructor(Held, _HeldType, ["value"])  # type: ignore[no-untyped-call] # likewise

    @compiled
    def held(value: Any) -> Any:  # noqa: ANN401 - any tuple numba knows
        """Lend a value to the compiled side, for as long as the caller keeps its arrays."""
        return Held(_lent(value))  # type: ignore[call-arg] # numba passes the first itself
