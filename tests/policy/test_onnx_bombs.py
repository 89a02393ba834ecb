"""ONNX files that ask for more than they look like, through the real onnxruntime: refused, with little memory taken."""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy.export import table_onnx
from monitor.policy.manifest import Manifest, read_manifest
from monitor.policy.network import MAX_MEMORY
from monitor.policy.onnx_policy import load_policy, table_from_onnx

onnx = pytest.importorskip("onnx")
helper = onnx.helper

MODEL = MDP.from_transitions(states=3, actions=2, transitions=[(s, a, s, 1.0) for s in range(3) for a in range(2)])
MANIFEST = {
    "file": "net.onnx",
    "sha256": "0" * 64,
    "input": {"name": "state", "kind": "index"},
    "output": {"name": "scores", "kind": "logits"},
    "mode": "greedy",
}
TABLE = table_onnx(np.eye(3)[:, :2], "index")


def built(nodes: list[Any], **weights: object) -> bytes:
    """A network that ends in `big` and adds nothing of it to a table of scores: all of it has to be computed."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    tensors.append(onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32)[:, :2], "table"))
    ending = [
        helper.make_node("ReduceMin", ["big"], ["least"], keepdims=0),
        helper.make_node("Gather", ["table", "state"], ["rows"]),
        helper.make_node("Add", ["rows", "least"], ["scores"]),
    ]
    given = helper.make_tensor_value_info("state", onnx.TensorProto.INT64, ["batch"])
    taken = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["batch", 2])
    graph = helper.make_graph([*nodes, *ending], "g", [given], [taken], tensors)
    made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    content: bytes = made.SerializeToString()
    return content


def node(operator: str, given: list[str], taken: str = "big", **attributes: object) -> Any:  # noqa: ANN401
    return helper.make_node(operator, given, [taken], **attributes)


def doubled(times: int) -> bytes:
    """Each operator puts two of the one before side by side."""
    nodes = [node("Concat", [f"c{n}", f"c{n}"], f"c{n + 1}", axis=0) for n in range(times)]
    return built([*nodes, node("Identity", [f"c{times}"])], c0=np.zeros(1, np.float32))


WIDE = np.zeros((1, 60_000), np.float32)
BOMBS: dict[str, Callable[[], bytes]] = {
    "a constant of a shape": lambda: built([node("ConstantOfShape", ["s"])], s=np.array([160_000, 160_000])),
    "an outer product": lambda: built([node("MatMul", ["a", "b"])], a=WIDE.T, b=WIDE),
    "broadcasting": lambda: built([node("Add", ["a", "b"])], a=WIDE.T, b=WIDE),
    "expansion": lambda: built([node("Expand", ["a", "s"])], a=WIDE, s=np.array([60_000, 60_000])),
    "repetition": lambda: built([node("Tile", ["a", "s"])], a=WIDE, s=np.array([60_000, 1])),
    "doubling": lambda: doubled(40),
    "of the input": lambda: built(
        [
            node("Cast", ["state"], "f", to=1),
            node("ReduceSum", ["f"], "one", keepdims=1),
            node("Tile", ["one", "s"], "a"),
            node("Identity", ["a"]),
        ],
        s=np.array([1 << 37]),
    ),
}


def peak() -> int:
    """Bytes this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_asks_for_much_memory_is_refused(bomb: str) -> None:
    content = BOMBS[bomb]()
    assert len(content) < 600_000
    table_from_onnx(TABLE, Manifest.model_validate(MANIFEST), MODEL, "p")
    before = peak()
    with pytest.raises(
        PolicyError, match=r"needs more memory than the 1,073,741,824 bytes|require more than 4294967296 bytes"
    ):
        table_from_onnx(content, Manifest.model_validate(MANIFEST), MODEL, "p")
    assert peak() - before < 1.1 * MAX_MEMORY


def test_a_network_within_the_limit_still_runs_after_one_beyond_it() -> None:
    with pytest.raises(PolicyError):
        table_from_onnx(doubled(40), Manifest.model_validate(MANIFEST), MODEL, "p")
    assert table_from_onnx(TABLE, Manifest.model_validate(MANIFEST), MODEL, "p").choices(1) == [(1, 1.0)]


def test_a_tensor_that_declares_more_than_it_holds_is_refused() -> None:
    made = onnx.ModelProto.FromString(TABLE)
    made.graph.initializer[0].dims[:] = [1 << 31, 1 << 31]
    with pytest.raises(PolicyError, match="onnxruntime cannot open it"):
        table_from_onnx(made.SerializeToString(), Manifest.model_validate(MANIFEST), MODEL, "p")


# ---- external data: what onnxruntime itself would read ----


def with_external(location: str) -> bytes:
    made = onnx.ModelProto.FromString(TABLE)
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    content: bytes = made.SerializeToString()
    return content


@pytest.mark.parametrize("how", ["beside it", "hard link", "working directory"])
def test_external_data_is_refused_wherever_it_lies(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "policy", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    secret = elsewhere / "secret"
    secret.write_bytes(np.eye(3, dtype=np.float32)[:, :2].tobytes())
    match how:
        case "beside it":
            (folder / "weights").write_bytes(secret.read_bytes())
        case "hard link":
            os.link(secret, folder / "weights")
        case _:
            monkeypatch.chdir(elsewhere)
    content = with_external("secret" if how == "working directory" else "weights")
    (folder / "net.onnx").write_bytes(content)
    manifest = {**MANIFEST, "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "p.yaml").write_text(yaml.safe_dump(manifest))
    with pytest.raises(PolicyError, match="it keeps tensors in another file"):
        load_policy(folder / "p.yaml", MODEL)


# ---- manifests ----


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &a [x, x]\nb: [*a, *a]\n", "line 1: anchors and aliases"),
        ("a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: [*a, *a]}}\n" for n in range(9)), "anchors and aliases"),
        (f"mode: 1{':59' * 20_000}\n", "the value here cannot be read"),
        ("[" * 60_000, "nested deeper than 20"),
        ("x" * 70_000, "larger than the limit of 65536 bytes"),
    ],
)
def test_a_manifest_that_unfolds_is_refused(text: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        read_manifest(text.encode(), "p.yaml")
