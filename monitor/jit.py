"""Compilation of the inner loops by numba, and boxes to pass arrays to them.

- Machine code is cached on disk, beside the source or in the user's cache folder, and is stale as soon as any source of
  a package with compiled code changes.
- `compiled` functions are called from Python; `inlined` ones only from compiled functions, and become part of them.
- Arrays are passed in a `Lent` box, without reference counts: the caller keeps them alive while the box is in use.
- With `NUMBA_DISABLE_JIT=1` nothing is compiled: the same loops run in the interpreter, some hundred times slower, for
  debuggers and for mutation tests.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import carray as _array  # type: ignore[attr-defined] # numba has no types
from numba import config, njit, typeof, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.experimental import structref
from numba.extending import intrinsic

from monitor.arrays import Bytes, Floats, Ints

__all__ = ["Lent", "bytes_at", "compiled", "helper", "inlined", "ints_at", "lend", "reals_at", "specialized"]

F = TypeVar("F", bound=Callable[..., object])
LOCK: Final = "machine-code.lock"
"""File in the cache folder that is locked while machine code is read or written."""
_HOLDING: Final = ContextVar("machine code is locked by this thread", default=False)
INTERPRETED = bool(config.DISABLE_JIT)  # type: ignore[attr-defined] # numba reads it from the environment


def compiled(function: F) -> F:
    """Return the function as machine code: division by zero gives infinity, as in NumPy, and the GIL is released.

    If nothing can be written (a read-only installation without a home directory) it is compiled anew in every process,
    unless `NUMBA_CACHE_DIR` names a folder that was filled at installation.
    """
    if INTERPRETED:
        return np.errstate(all="ignore")(function)  # division by zero as above, and hashes that overflow
    made = _widened(njit(error_model="numpy", nogil=True)(function))
    for kind in (_SourceCache, _ReadOnlyCache):  # a folder to write machine code to, or one that was filled before
        with suppress(RuntimeError):  # there is none
            cast("Any", made)._cache = cast("Any", kind)(function)  # noqa: SLF001 - as numba's `enable_caching` does
            break
    return cast("F", made)


def _widened(made: F) -> F:
    """Return the function with its callers' integers widened to 64 bits; a constant is an integer like any other.

    numba compiles once for each combination of argument types. To it a constant has a type of its own, also a variable
    that only begins as one, and what a caller reads from an array of 32 bits is another type again. Without this, the
    largest functions would be compiled up to three times.
    """
    dispatcher = cast("Any", made)
    template = dispatcher.get_call_template

    def get_call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> object:
        return template(tuple(map(_wide, args)), {name: _wide(kind) for name, kind in kws.items()})

    dispatcher.get_call_template = get_call_template
    return made


def _wide(kind: Any) -> Any:  # noqa: ANN401 - a type of numba
    plain = cast("Any", types).unliteral(kind)
    return types.int64 if plain in {types.int8, types.int16, types.int32} else plain


def _sources(*parts: str) -> str:
    """Return a digest of the sources in these packages and of this file: all that their machine code may depend on.

    numba checks only the time stamp of the file that defines a function. It misses a change in another file whose
    functions or constants were compiled into it, so an updated installation would keep giving the old numbers.
    """
    here = Path(__file__)
    digest = hashlib.sha256(here.read_bytes())
    for source in sorted(path for part in parts for path in (here.parent / part).rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


_NUMBERS: Final = _sources("causal", "exact", "sampled")
_STEPS: Final = _sources("runtime/lanes", "statistics", "stream")


def _by_content(locator: type[Any]) -> type[Any]:
    """Return a locator of cached machine code that is stale when any source has changed."""

    def get_source_stamp(self: Any) -> tuple[object, str]:  # noqa: ANN401 - numba's locator
        steps = {"runtime", "stream"} & set(Path(self._py_file).parts[-3:])
        return cast("Any", locator).get_source_stamp(self), _STEPS if steps else _NUMBERS

    return type(locator.__name__, (locator,), {"get_source_stamp": get_source_stamp})


class _SourceCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_by_content(locator) for locator in CompileResultCacheImpl._locator_classes]  # noqa: RUF012, SLF001 - as numba has it


class _SourceCache(FunctionCache):
    """Cache on disk, valid as long as no source changes; used by one process at a time.

    numba reads a function's index, adds a file's name, writes the index and then the file. Of two processes at once
    both would take the same name: one loses its code, or finds the other's, and calls it with arguments of other types.
    Between the two writes a reader would find the code of an older source.
    """

    _impl_class = _SourceCacheImpl

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return the machine code for the types `sig`, None if there is none."""
        with self._locked():
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call] # numba has no types

    def save_overload(self, sig: object, data: object) -> None:
        """Write machine code for the types `sig`."""
        with self._locked():
            super().save_overload(sig, data)  # type: ignore[no-untyped-call] # likewise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder, where its file system can: without a lock it works as numba does.

        A thread locks once: what it reads may bring in modules with machine code of their own, in the same folder.
        """
        if _HOLDING.get():
            yield
            return
        with ExitStack() as stack:
            with suppress(OSError):
                folder = Path(self.cache_path)
                folder.mkdir(parents=True, exist_ok=True)
                lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CREAT, 0o644)  # of another user it can be read only
                stack.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
            stack.callback(_HOLDING.reset, _HOLDING.set(True))
            yield


class _ReadOnlyLocator(UserProvidedCacheLocator):
    """`NUMBA_CACHE_DIR`, also if it is read-only; numba's own locator skips a folder that it cannot write to."""

    def ensure_cache_path(self) -> None:
        if not Path(self._cache_path).is_dir():
            raise FileNotFoundError(self._cache_path)


class _ReadOnlyCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_by_content(_ReadOnlyLocator)]  # noqa: RUF012 - as numba has it


class _ReadOnlyCache(FunctionCache):
    """Cache filled by an earlier process; nothing is added to it."""

    _impl_class = _ReadOnlyCacheImpl

    def save_overload(self, sig: object, data: object) -> None:
        """Do nothing: the folder is read-only."""


def specialized(function: Callable[..., Any], *examples: object) -> Callable[..., Any]:
    """Return the machine code of a compiled function for arguments of the types of `examples`.

    A call to it skips numba's type dispatch, which takes 1 us if boxes are among the arguments. The caller ensures that
    the types are those.
    """
    if INTERPRETED:
        return function
    code: Callable[..., Any] = cast("Any", function).compile(tuple(map(typeof, examples)))
    return code


def inlined(function: F) -> F:
    """Inline the function into the compiled ones that call it; nothing else may call it.

    A call with a tuple of arrays would count two references for each array, at 10 ns: more than the work itself.
    """
    return cast("F", njit(error_model="numpy", inline="always")(function))


def helper(function: F) -> F:
    """Return the function for use in compiled ones, which contain its machine code."""
    return function if INTERPRETED else cast("F", njit(error_model="numpy")(function))


if INTERPRETED:

    def ints_at(address: int, count: int) -> Ints:
        """Return the array of 64-bit integers at an address; whoever owns the memory keeps it alive."""
        return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(int(address)))

    def reals_at(address: int, count: int) -> Floats:
        """Return the array of floats at an address, likewise."""
        return np.ctypeslib.as_array((ctypes.c_double * count).from_address(int(address)))

    def bytes_at(address: int, count: int) -> Bytes:
        """Return the bytes at an address, likewise."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(int(address)))

else:

    @intrinsic
    def _pointer(_context: Any, address: Any) -> Any:  # noqa: ANN401 - objects of LLVM
        """Return an address as a pointer."""

        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401 - likewise
            return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

        return types.voidptr(address), codegen

    @helper
    def ints_at(address: int, count: int) -> Ints:
        """Return the array of 64-bit integers at an address; whoever owns the memory keeps it alive."""
        return _array(_pointer(address), count, np.int64)  # type: ignore[call-arg] # likewise

    @helper
    def reals_at(address: int, count: int) -> Floats:
        """Return the array of floats at an address, likewise."""
        return _array(_pointer(address), count, np.float64)  # type: ignore[call-arg] # likewise

    @helper
    def bytes_at(address: int, count: int) -> Bytes:
        """Return the bytes at an address, likewise."""
        return _array(_pointer(address), count, np.uint8)  # type: ignore[call-arg] # likewise


@intrinsic
def _borrowed(_context: Any, value: Any) -> Any:  # noqa: ANN401 - objects of LLVM
    """Return a (nested) tuple of arrays without their owners: references are not counted, nothing is kept alive."""

    def borrow(context: Any, builder: Any, kind: Any, one: Any) -> Any:  # noqa: ANN401 - likewise
        if isinstance(kind, types.BaseTuple):
            parts: Any = kind
            for n, part in enumerate(parts):
                borrowed = borrow(context, builder, part, builder.extract_value(one, n))
                one = builder.insert_value(one, borrowed, n)
        elif isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, one)
            array.meminfo = array.meminfo.type(None)
            one = array._getvalue()  # noqa: SLF001 - numba's protocol
        return one

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401 - likewise
        return borrow(context, builder, signature.args[0], arguments[0])

    return value(value), codegen


@dataclass(frozen=True)
class _InterpretedBox:
    """`Lent`, if nothing is compiled."""

    value: object


@structref.register
class _LentType(types.StructRef):
    """Type of a box: one field, of any type."""


class Lent(structref.StructRefProxy):
    """Box with a tuple of arrays, lent to compiled code: passing it takes .5 us, whatever the number of arrays.

    Passing the arrays themselves would take 45 ns each at every step, and counting references to them half the time of
    a step. `lend(value)` makes a box; compiled code reads `.value`. The caller keeps the arrays alive.
    """

    def __new__(cls, value: object) -> Any:  # noqa: ANN401 - numba's own box
        """See `lend`."""
        return lend(value)


if INTERPRETED:

    def lend(value: Any) -> Any:  # noqa: ANN401 - as below
        """Return a value in the box that the loops expect."""
        return _InterpretedBox(value)

else:
    structref.define_boxing(_LentType, Lent)  # type: ignore[no-untyped-call] # numba has no types here
    structref.define_constructor(Lent, _LentType, ["value"])  # type: ignore[no-untyped-call] # likewise

    @compiled
    def lend(value: Any) -> Any:  # noqa: ANN401 - any tuple numba knows
        """Return a box for compiled code, valid as long as the caller keeps the arrays of `value`."""
        return Lent(_borrowed(value))  # type: ignore[call-arg] # numba passes the first itself
