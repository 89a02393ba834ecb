"""Types of arrays, named by their elements. The shape of an array is in the docstring of the code that uses it."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.floating[Any]]
"""32-bit or 64-bit floats."""
Shorts = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]
Words = npt.NDArray[np.uint64]

Array = TypeVar("Array", bound=AnyArray)
"""Type of an array. A function from `Array` to `Array` keeps the element type."""


def longer(array: Array, length: int) -> Array:
    """Return a copy of an array, or of a compiled object's view of one, with `length` rows; added rows are 0.

    >>> longer(np.array([[1, 2]]), 2).tolist()
    [[1, 2], [0, 0]]
    """
    old = np.asarray(array)
    new: Any = np.zeros((length, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    return cast("Array", new)


def single_if_exact(values: Floats) -> Reals:
    """Return `values` as 32-bit floats if every value is exact in 32 bits, else as 64-bit floats.

    The result is little-endian and contiguous.

    >>> single_if_exact(np.array([0.5, 3.0])).dtype, single_if_exact(np.array([530_000_001.0])).dtype
    (dtype('float32'), dtype('float64'))
    """
    with np.errstate(over="ignore"):
        single = values.astype("<f4")
    exact = np.array_equal(single, values, equal_nan=True)
    return np.ascontiguousarray(single if exact else values, dtype="<f4" if exact else "<f8")
