"""Write small policies (a table of scores, or a perceptron with one hidden layer) as ONNX bytes, and manifests.

Equal numbers give equal bytes. Writing needs the `onnx` package (the extra `export`); running a policy does not.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import yaml

from monitor.arrays import Reals
from monitor.errors import PolicyError, to_install
from monitor.policy.manifest import AnyManifest

_OPSET, _IR_VERSION = 17, 8  # from 2022; every allowed onnxruntime reads them


def table_onnx(scores: Reals, kind: Literal["index", "one_hot"], output: str = "scores") -> bytes:
    """Return the ONNX bytes of a network that returns row s of `scores` [S, A] (stored as 32-bit floats).

    Input `state`: [batch] int64 for `index`, [batch, S] float32 for `one_hot`. Output `output`: [batch, A] float32.

    Raises:
        PolicyError: the `onnx` package is not installed.
    """
    states, actions = scores.shape
    weights, result = {"table": scores}, (output, actions)
    if kind == "index":
        return _model([("Gather", ["table", "state"])], ("state", "INT64", ["batch"]), result, weights)
    return _model([("MatMul", ["state", "table"])], ("state", "FLOAT", ["batch", states]), result, weights)


def perceptron_onnx(layers: tuple[tuple[Reals, Reals], tuple[Reals, Reals]], output: str = "scores") -> bytes:
    """Return tanh(x W1 + b1) W2 + b2 as ONNX bytes; `layers` = ((W1 [D, H], b1 [H]), (W2 [H, A], b2 [A])).

    Input `observation`: [batch, D] float32. Output `output`: [batch, A] float32.

    Raises:
        PolicyError: the `onnx` package is not installed.
    """
    (w1, b1), (w2, b2) = layers
    nodes = [("Gemm", ["observation", "w1", "b1"]), ("Tanh", ["y0"]), ("Gemm", ["y1", "w2", "b2"])]
    weights = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
    return _model(nodes, ("observation", "FLOAT", ["batch", w1.shape[0]]), (output, w2.shape[1]), weights)


def manifest_yaml(manifest: AnyManifest) -> str:
    """Return the manifest as YAML text that `read_manifest` can read."""
    plain = manifest.model_dump(exclude_none=True)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)


def _model(
    operators: list[tuple[str, list[str]]],
    given: tuple[str, str, list[str | int]],
    result: tuple[str, int],
    weights: dict[str, Reals],
) -> bytes:
    """Return the ONNX bytes of a chain of operators.

    The k-th operator writes the tensor `y<k>`; the last operator writes the output instead.
    """
    try:
        from onnx import TensorProto, checker, helper, numpy_helper  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise PolicyError(f"writing ONNX needs the onnx package: {to_install('export')}") from error
    last = len(operators) - 1
    nodes = [
        helper.make_node(operator, inputs, [result[0] if k == last else f"y{k}"])
        for k, (operator, inputs) in enumerate(operators)
    ]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(given[0], getattr(TensorProto, given[1]), given[2])],
        [helper.make_tensor_value_info(result[0], TensorProto.FLOAT, ["batch", result[1]])],
        [numpy_helper.from_array(np.ascontiguousarray(array, "<f4"), name) for name, array in weights.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="counterfactual-monitor",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content
