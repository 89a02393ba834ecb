from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.policy.export import perceptron_onnx, table_onnx
from monitor.policy.onnx_scan import MAX_OPERATORS, refuse_unsafe

onnx = pytest.importorskip("onnx")
helper = onnx.helper
Proto = Any  # onnx ships no types

PLAIN = table_onnx(np.eye(3), "one_hot")


def model(**graph: Proto) -> Proto:
    node = helper.make_node("Identity", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    made = helper.make_graph([node], "g", values[:1], values[1:])
    for field, value in graph.items():
        getattr(made, field).append(value)
    return helper.make_model(made)


def external() -> Proto:
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    return tensor


def plain() -> Proto:
    return onnx.numpy_helper.from_array(np.zeros(1, np.float32), "p")


def only_location() -> Proto:
    tensor = plain()
    tensor.data_location = onnx.TensorProto.EXTERNAL
    return model(initializer=tensor)


def only_entries() -> Proto:
    tensor = plain()
    tensor.external_data.add(key="location", value="weights.bin")
    return model(initializer=tensor)


def sparse_tensor(*, in_values: bool) -> Proto:
    sparse = onnx.SparseTensorProto(dims=[1])
    (sparse.values if in_values else sparse.indices).CopyFrom(external())
    (sparse.indices if in_values else sparse.values).CopyFrom(plain())
    return sparse


def with_attribute(**value: Proto) -> Proto:
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.append(onnx.AttributeProto(name="value", **value))
    return node


def inner_graph() -> Proto:
    return helper.make_graph([], "inner", [], [], [external()])


def in_function() -> Proto:
    made = model()
    made.functions.add(name="f").node.append(with_attribute(t=external()))
    return made


def in_training() -> Proto:
    made = model()
    made.training_info.add().algorithm.CopyFrom(inner_graph())
    return made


PLACES: dict[str, Callable[[], Proto]] = {
    "initializer": lambda: model(initializer=external()),
    "location alone": only_location,
    "entries alone": only_entries,
    "sparse initializer, values": lambda: model(sparse_initializer=sparse_tensor(in_values=True)),
    "sparse initializer, indices": lambda: model(sparse_initializer=sparse_tensor(in_values=False)),
    "attribute": lambda: model(node=with_attribute(t=external())),
    "attribute list": lambda: model(node=with_attribute(tensors=[plain(), external()])),
    "sparse attribute": lambda: model(node=with_attribute(sparse_tensor=sparse_tensor(in_values=True))),
    "sparse attribute list": lambda: model(node=with_attribute(sparse_tensors=[sparse_tensor(in_values=False)])),
    "subgraph": lambda: model(node=with_attribute(g=inner_graph())),
    "subgraph list": lambda: model(node=with_attribute(graphs=[inner_graph()])),
    "subgraph of a subgraph": lambda: model(
        node=with_attribute(g=helper.make_graph([with_attribute(g=inner_graph())], "outer", [], []))
    ),
    "function": in_function,
    "training": in_training,
}


@pytest.mark.parametrize("place", PLACES)
def test_external_data_is_found_wherever_it_is(place: str) -> None:
    content = PLACES[place]().SerializeToString()
    with pytest.raises(PolicyError, match=r"policy p\.yaml: it keeps tensors in another file"):
        refuse_unsafe(content, "p.yaml")


def test_what_is_whole_passes() -> None:
    refuse_unsafe(PLAIN, "p.yaml")
    refuse_unsafe(perceptron_onnx(((np.eye(3), np.zeros(3)), (np.eye(3), np.zeros(3)))), "p.yaml")
    refuse_unsafe(model(initializer=plain(), node=with_attribute(t=plain())).SerializeToString(), "p.yaml")


def test_operators_that_are_not_standard_are_refused() -> None:
    custom = model(node=helper.make_node("Attack", ["x"], ["z"], domain="com.example"))
    with pytest.raises(PolicyError, match=r"domain 'com\.example'"):
        refuse_unsafe(custom.SerializeToString(), "p.yaml")
    imported = model()
    imported.opset_import.add(domain="com.microsoft", version=1)
    with pytest.raises(PolicyError, match=r"domain 'com\.microsoft'"):
        refuse_unsafe(imported.SerializeToString(), "p.yaml")
    hidden = helper.make_graph([helper.make_node("Attack", [], ["z"], domain="hidden")], "inner", [], [])
    with pytest.raises(PolicyError, match="domain 'hidden'"):
        refuse_unsafe(model(node=with_attribute(g=hidden)).SerializeToString(), "p.yaml")
    function = model()
    function.functions.add(name="f", domain="local")
    with pytest.raises(PolicyError, match="domain 'local'"):
        refuse_unsafe(function.SerializeToString(), "p.yaml")


def test_standard_machine_learning_operators_pass() -> None:
    tree = model(node=helper.make_node("Normalizer", ["x"], ["z"], domain="ai.onnx.ml"))
    refuse_unsafe(tree.SerializeToString(), "p.yaml")


@pytest.mark.parametrize("operator", ["RandomNormal", "RandomUniformLike", "Multinomial", "Bernoulli"])
def test_operators_that_draw_random_numbers_are_refused(operator: str) -> None:
    with pytest.raises(PolicyError, match=f"operator {operator} draws random numbers"):
        refuse_unsafe(model(node=helper.make_node(operator, ["x"], ["z"])).SerializeToString(), "p.yaml")


def test_graphs_that_nest_without_end_are_refused() -> None:
    graph = inner_graph()
    for _ in range(30):
        graph = helper.make_graph([with_attribute(g=graph)], "outer", [], [])
    with pytest.raises(PolicyError, match="nest deeper"):
        refuse_unsafe(model(node=with_attribute(g=graph)).SerializeToString(), "p.yaml")


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x01",  # field number 0
        b"\x3b",  # a group
        b"\x3a\x7f",  # longer than what follows
        b"\x3a",  # no length
        b"\x08" + b"\xff" * 11,  # a number without end
        b"\x0d\x01",  # a fixed-width number cut off
        b"\xf8\xff\xff\xff\xff\x01\x00",  # a tag beyond 32 bits
        b"not a model at all",
    ],
)
def test_what_is_no_protobuf_message_is_refused(content: bytes) -> None:
    with pytest.raises(PolicyError, match="not an ONNX file"):
        refuse_unsafe(content, "p.yaml")


def test_fixed_width_fields_are_passed_over() -> None:
    refuse_unsafe(b"\x0d\x01\x02\x03\x04\x11\x01\x02\x03\x04\x05\x06\x07\x08", "p.yaml")


def test_damaged_bytes_return_or_raise_a_policy_error() -> None:
    damage = random.Random(3)
    refused = 0
    for _ in range(2000):
        content = bytearray(PLAIN)
        for _ in range(damage.randint(1, 5)):
            content[damage.randrange(len(content))] = damage.randrange(256)
        try:
            refuse_unsafe(bytes(content), "p.yaml")
        except PolicyError:
            refused += 1
    assert 200 < refused < 2000


@pytest.mark.parametrize("operator", ["Loop", "Scan", "If", "SequenceMap", "SomethingOfALaterVersion"])
@pytest.mark.parametrize("many", [False, True])
def test_a_graph_inside_a_node_is_refused_whatever_the_node(operator: str, *, many: bool) -> None:
    body = helper.make_graph([helper.make_node("Identity", ["i"], ["o"])], "body", [], [])
    node = helper.make_node(operator, ["x"], ["z"])
    node.attribute.append(onnx.AttributeProto(name="body", **({"graphs": [body]} if many else {"g": body})))
    with pytest.raises(PolicyError, match="an operator with a graph inside"):
        refuse_unsafe(model(node=node).SerializeToString(), "p.yaml")


def test_functions_that_call_functions_are_refused_before_anything_unfolds_them() -> None:
    bomb = model()
    for level in range(60):  # 2^60 operators
        made = bomb.functions.add(name=f"f{level}", domain="")
        made.node.extend([helper.make_node(f"f{level - 1}", ["x"], ["y"])] * 2)
    with pytest.raises(PolicyError, match="defines functions of its own"):
        refuse_unsafe(bomb.SerializeToString(), "p.yaml")


def test_sparse_tensors_are_refused() -> None:
    sparse = onnx.SparseTensorProto(dims=[1 << 20, 1 << 20], values=plain(), indices=plain())
    for holder in (model(sparse_initializer=sparse), model(node=with_attribute(sparse_tensor=sparse))):
        with pytest.raises(PolicyError, match="sparse tensors"):
            refuse_unsafe(holder.SerializeToString(), "p.yaml")


def test_there_may_be_only_so_many_operators() -> None:
    many = model()
    many.graph.node.extend([helper.make_node("Identity", ["x"], ["z"])] * MAX_OPERATORS)
    with pytest.raises(PolicyError, match=r"more than 10,000 operators"):
        refuse_unsafe(many.SerializeToString(), "p.yaml")
