"""Compiling the inner loops (numba): once, kept on disk beside the source or in the user's cache folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The same function as machine code; divisions by zero give infinities as in NumPy, the interpreter is let go.

    Where nothing can be written (a read-only installation without a home) it is compiled anew in every process.
    """
    options = {"error_model": "numpy", "nogil": True}
    try:
        return cast("F", njit(cache=True, **options)(function))
    except RuntimeError:  # numba found no folder to keep the machine code in
        return cast("F", njit(**options)(function))
