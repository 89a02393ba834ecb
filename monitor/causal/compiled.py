"""Compiling the inner loops (numba): once, kept on disk beside the source or in the user's cache folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.experimental import structref

__all__ = ["Held", "compiled", "held"]

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The same function as machine code; divisions by zero give infinities as in NumPy, the interpreter is let go.

    Where nothing can be written (a read-only installation without a home) it is compiled anew in every process.
    """
    try:
        return cast("F", njit(cache=True, error_model="numpy", nogil=True)(function))
    except RuntimeError:  # numba found no folder to keep the machine code in
        return cast("F", njit(error_model="numpy", nogil=True)(function))


@structref.register
class _HeldType(types.StructRef):
    """One field, of any type."""


class Held(structref.StructRefProxy):
    """A tuple of arrays kept on the compiled side: handing it to a compiled function takes .5 us, however many.

    The arrays themselves would take 45 ns each, a message at a time. `held(value)` makes one; compiled code reads
    `.value`.
    """

    def __new__(cls, value: object) -> Any:  # noqa: ANN401 - numba's own box
        """See `held`."""
        return held(value)


structref.define_boxing(_HeldType, Held)  # type: ignore[no-untyped-call] # numba has no types here
structref.define_constructor(Held, _HeldType, ["value"])  # type: ignore[no-untyped-call] # likewise


@compiled
def held(value: Any) -> Any:  # noqa: ANN401 - any tuple numba knows
    """Keep a value on the compiled side."""
    return Held(value)
