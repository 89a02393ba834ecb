"""Writer of ONNX graphs. Nodes are added one after another, on the concatenated inputs of a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import ModelError, to_install

OPSET: Final = 17
ML_OPSET: Final = 3
IR_VERSION: Final = 8


class GraphWriter:
    """Graph that is being written. `widths`: name -> width of an input; inputs of width 0 are left out.

    Raises ModelError if the package onnx is not installed.
    """

    def __init__(self, widths: Mapping[str, int]) -> None:
        try:
            import onnx  # noqa: PLC0415 - only where worlds are learned
        except ImportError as error:
            raise ModelError(f"--dynamics needs onnx: {to_install('dynamics')}") from error
        self._onnx: Any = onnx
        self._widths = {name: width for name, width in widths.items() if width}
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []
        self.given = self.node("Concat", *self._widths, axis=1)
        """The name of the concatenation of all inputs."""

    def node(self, operator: str, *inputs: str | AnyArray, domain: str = "", **attributes: Any) -> str:  # noqa: ANN401 - as ONNX has them
        """Add a node whose inputs are names or constants; return the name of its output."""
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        name = f"v{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, names, [name], domain=domain, **attributes))
        return name

    def content(self, output: str, columns: int) -> bytes:
        """Return the bytes of the graph with this output [batch, columns]."""
        make, double = self._onnx.helper, self._onnx.TensorProto.DOUBLE
        self._nodes.append(make.make_node("Identity", [output], ["y"]))
        inputs = [make.make_tensor_value_info(name, double, ["batch", width]) for name, width in self._widths.items()]
        outputs = [make.make_tensor_value_info("y", double, ["batch", columns])]
        graph = make.make_graph(self._nodes, "world", inputs, outputs, self._tensors)
        opsets = [make.make_opsetid("", OPSET), make.make_opsetid("ai.onnx.ml", ML_OPSET)]
        return bytes(make.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString())

    def _constant(self, values: AnyArray) -> str:
        name = f"c{len(self._tensors)}"
        self._tensors.append(self._onnx.numpy_helper.from_array(np.asarray(values, np.float64), name))
        return name
