"""Write ONNX graphs that take the concatenated inputs of a world. Trees of scikit-learn become one node of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
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


FLOAT, DOUBLE = 1, 11
"""ONNX's numbers for types of elements."""


@dataclass(frozen=True, eq=False)
class Leaves:
    """A tree of scikit-learn. Its leaves `nodes` [k] add the values `weights` [k] to the outputs `targets` [k]."""

    tree: Any
    nodes: Ints
    targets: Ints
    weights: Floats

    @classmethod
    def of_rows(cls, tree: Any, values: Floats) -> Leaves:  # noqa: ANN401 - scikit-learn has no types
        """Return a tree in which each leaf adds its row of `values` [nodes, targets]."""
        leaves = np.flatnonzero(tree.children_left < 0)
        targets = values.shape[1]
        return cls(tree, np.repeat(leaves, targets), np.tile(np.arange(targets), len(leaves)), values[leaves].ravel())


def written_trees(graph: GraphWriter, given: str | AnyArray, trees: Iterable[Leaves], targets: int) -> str:
    """Add the sum of trees to a graph; return the name of its output [n, targets], 64-bit floats."""
    nodes: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }
    held: dict[str, list[Any]] = {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, each in enumerate(trees):
        tree = each.tree
        leaf, count = tree.children_left < 0, tree.node_count
        nodes["nodes_treeids"] += [number] * count
        nodes["nodes_nodeids"] += range(count)
        nodes["nodes_featureids"] += np.where(leaf, 0, tree.feature).tolist()
        nodes["nodes_modes"] += np.where(leaf, "LEAF", "BRANCH_LEQ").tolist()
        nodes["nodes_values"] += np.where(leaf, 0.0, tree.threshold).tolist()
        nodes["nodes_truenodeids"] += np.where(leaf, 0, tree.children_left).tolist()
        nodes["nodes_falsenodeids"] += np.where(leaf, 0, tree.children_right).tolist()
        held["target_treeids"] += [number] * len(each.nodes)
        held["target_nodeids"] += each.nodes.tolist()
        held["target_ids"] += each.targets.tolist()
        held["target_weights"] += each.weights.tolist()
    found = graph.node("TreeEnsembleRegressor", given, domain="ai.onnx.ml", n_targets=targets, **nodes, **held)
    return graph.node("Cast", found, to=DOUBLE)


class HistogramTree:
    """A tree of scikit-learn's histogram-based boosting, with the attribute names of scikit-learn's other trees."""

    def __init__(self, nodes: AnyArray) -> None:
        leaf = nodes["is_leaf"] != 0
        self.node_count, self.feature, self.threshold = len(nodes), nodes["feature_idx"], nodes["num_threshold"]
        self.children_left = np.where(leaf, -1, nodes["left"].astype(np.int64))
        self.children_right = np.where(leaf, -1, nodes["right"].astype(np.int64))


class _Rounded:
    """A tree with its thresholds rounded down to 32-bit floats.

    It splits 32-bit numbers like the original tree.
    """

    def __init__(self, tree: Any) -> None:  # noqa: ANN401 - likewise
        self.node_count, self.feature = tree.node_count, tree.feature
        self.children_left, self.children_right = tree.children_left, tree.children_right
        rounded = tree.threshold.astype(np.float32)
        above = rounded.astype(np.float64) > tree.threshold
        self.threshold = np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded).astype(np.float64)


def written_exactly(graph: GraphWriter, given: str | AnyArray, trees: Sequence[tuple[Any, Floats]]) -> str:
    """Add the sum of trees with values [nodes, targets] to a graph.

    The input is rounded to 32 bits, as in scikit-learn.
    """
    rounded = graph.node("Cast", given, to=FLOAT)
    found = [Leaves.of_rows(_Rounded(tree), values) for tree, values in trees]
    return written_trees(graph, rounded, found, trees[0][1].shape[1])


class TreeFit:
    """A decision tree (Breiman et al. 1984) that is grown until its leaves are pure."""

    def __init__(self, given: Floats, wanted: Floats, seed: int) -> None:
        try:
            from sklearn.tree import DecisionTreeRegressor  # noqa: PLC0415 - only where worlds are learned
        except ImportError as error:
            raise ModelError(f"--dynamics needs scikit-learn: {to_install('dynamics')}") from error
        self._model: Any = DecisionTreeRegressor(random_state=seed).fit(given, wanted)

    def predict(self, given: Floats) -> Floats:
        """Return the values of the leaves that the rows reach, [n, k]."""
        return np.asarray(self._model.predict(given)).reshape(len(given), -1)

    def write(self, graph: GraphWriter) -> str:
        """Add the tree to a graph; return the name of its output."""
        tree = self._model.tree_
        return written_exactly(graph, graph.given, [(tree, tree.value[:, :, 0])])
