"""Types of arrays, named by their elements; a docstring gives the shape where a value has one."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["AnyArray", "Array", "Bools", "Bytes", "Floats", "Ints", "Shorts", "Signs", "Words"]

AnyArray = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]
Words = npt.NDArray[np.uint64]

Array = TypeVar("Array", bound=AnyArray)
"""An array that keeps its type."""
