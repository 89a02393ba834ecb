"""An ONNX graph of a world: a function of states, actions and inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.errors import ModelError, PolicyError, brief
from monitor.policy.network import FLOATS, open_session

BATCH: Final = 4096
"""Number of rows evaluated at once."""


@contextmanager
def as_model_errors() -> Iterator[None]:
    """Convert errors of ONNX files, which elsewhere are errors of policies, to ModelError."""
    try:
        yield
    except PolicyError as error:
        raise ModelError(str(error).replace("policy ", "world ", 1)) from error


class Graph:
    """A graph with one output [batch, k] and inputs such as `x` [batch, f] and `a` [batch, A] (one-hot).

    `widths`: name -> width of each allowed input; `columns`: k.

    Raises ModelError if the file is unsafe, or has other inputs or outputs.
    """

    def __init__(self, content: bytes, where: str, widths: Mapping[str, int], columns: int) -> None:
        self._where, self._columns = where, columns
        with as_model_errors():
            self._session = open_session(content, where)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self._types: dict[str, type] = {}
        for each in inputs:
            if each.name not in widths or each.type not in FLOATS or list(each.shape)[1:] != [widths[each.name]]:
                wanted = ", ".join(f"{name} [batch, {width}]" for name, width in widths.items())
                raise ModelError(
                    f"world {where}: its input {each.name!r} is {each.type} of shape {each.shape}; inputs are floats "
                    f"among {wanted}"
                )
            self._types[each.name] = FLOATS[each.type]
        if len(outputs) != 1 or not inputs:
            raise ModelError(
                f"world {where}: it has {len(inputs)} inputs and {len(outputs)} outputs; one output is needed"
            )

    def __call__(self, given: Mapping[str, Floats]) -> Floats:
        """Return the output [n, k] for the inputs, each [n, width]. Raises ModelError if the graph fails."""
        count = len(given["x"])
        if count <= BATCH:
            return self._run(given)
        parts = [{name: rows[n : n + BATCH] for name, rows in given.items()} for n in range(0, count, BATCH)]
        return np.concatenate([self._run(part) for part in parts])

    def _run(self, given: Mapping[str, Floats]) -> Floats:
        fed: dict[str, AnyArray] = {name: given[name].astype(kind) for name, kind in self._types.items()}
        try:
            found: AnyArray = self._session.run(None, fed)[0]
        except Exception as error:  # onnxruntime has a separate class for each kind of failure
            raise ModelError(f"world {self._where}: onnxruntime cannot evaluate it ({brief(error)})") from error
        shape = len(given["x"]), self._columns
        if getattr(found, "shape", None) != shape or not np.isfinite(found).all():
            got = getattr(found, "shape", type(found).__name__)
            raise ModelError(f"world {self._where}: its output has shape {got}, not {shape} finite numbers")
        return np.asarray(found, dtype=np.float64)
