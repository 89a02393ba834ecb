"""Safety scan of an ONNX file: its protobuf bytes are checked before anything executes them.

A policy is identified by the SHA-256 of one file, so all data must be in this file. But onnxruntime silently reads
external tensor data from files beside the ONNX file, or from the working directory if the network is passed as bytes.
Operators outside the standard would need other code. A table cannot describe operators that draw random numbers.

Also, a small file must not run without end or fill the memory. In ONNX, repetition and branching are graphs inside a
node (Loop, Scan, If, SequenceMap, and whatever later versions add). Functions that call functions multiply the work.
The scan refuses graphs inside a node and functions by structure, not by name. Every other node runs once, and the
number of nodes is limited; `network` limits the memory.

The scan uses only the nesting of messages of onnx.proto and the few fields that it needs; all other fields are skipped
by their length. It visits a superset of the fields that a protobuf parser keeps, including repeated occurrences of a
single field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from monitor.errors import PolicyError

# Message -> field number -> message in that field (onnx.proto, IR version 13).
_NESTED: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 8: "OperatorSet", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Function": {7: "Node", 9: "OperatorSet", 11: "Attribute"},
    "Tensor": {},
    "OperatorSet": {},
}
_DOMAIN_FIELD = {"Node": 7, "OperatorSet": 1, "Function": 10}
_OP_TYPE = 4
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14

_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_DEEPEST = 64
"""Deepest nesting that is accepted; this bounds the recursion of the scan. Protobuf itself stops at 100."""

MAX_OPERATORS = 10_000
"""Largest number of operators of a network; large networks have some hundreds."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def refuse_unsafe(content: bytes, where: str) -> None:
    """Refuse ONNX bytes that are unsafe or not self-contained; `where` names the bytes in messages.

    Raises:
        PolicyError: a tensor with external data, an operator outside the standard domains, an operator that draws
            random numbers, a graph inside a node, a function, a sparse tensor, too many operators, or bytes that are
            not a protobuf message.
    """
    try:
        found = _Found()
        _scan(memoryview(content), "Model", 0, found)
    except PolicyError as error:
        raise PolicyError(f"policy {where}: {error}") from error
    except (ValueError, IndexError) as error:
        raise PolicyError(f"policy {where}: not an ONNX file") from error
    if found.problem:
        raise PolicyError(f"policy {where}: {found.problem}")


@dataclass
class _Found:
    """Findings of the scan. `problem`: a finding that is reported only if the scan raises no error itself."""

    nodes: int = 0
    problem: str = ""


def _scan(message: memoryview, kind: str, depth: int, found: _Found) -> None:
    if depth > _DEEPEST:
        raise PolicyError(f"its graphs nest deeper than {_DEEPEST} messages")
    if kind == "Node":
        found.nodes += 1
        if found.nodes > MAX_OPERATORS:
            raise PolicyError(f"it has more than {MAX_OPERATORS:,} operators")
    for field, value in _fields(message):
        if isinstance(value, int):
            if kind == "Tensor" and field == _DATA_LOCATION and value != 0:
                raise PolicyError(_EXTERNAL)
        elif field in _NESTED[kind]:
            nested = _NESTED[kind][field]
            found.problem = found.problem or _WITHOUT.get((kind, nested), "")
            _scan(value, nested, depth + 1, found)
        elif kind == "Tensor" and field == _EXTERNAL_DATA:
            raise PolicyError(_EXTERNAL)
        elif field == _DOMAIN_FIELD.get(kind):
            domain = bytes(value).decode()
            if domain not in _DOMAINS:
                raise PolicyError(f"it needs operators of the domain {domain!r}; only standard ONNX ones are run")
        elif kind == "Node" and field == _OP_TYPE and bytes(value).decode() in _RANDOM:
            raise PolicyError(
                f"its operator {bytes(value).decode()} draws random numbers; give the probabilities as output and "
                "mode: stochastic instead"
            )


_WITHOUT = {
    ("Attribute", "Graph"): "it holds an operator with a graph inside (Loop, Scan, If); export a plain network",
    ("Model", "Function"): "it defines functions of its own; inline them (onnx.inliner) and save it again",
    ("Graph", "SparseTensor"): "it holds sparse tensors, which may unpack to any size; save them as dense ones",
    ("Attribute", "SparseTensor"): "it holds sparse tensors, which may unpack to any size; save them as dense ones",
}
"""Contents refused by structure: (message, message inside this message) -> reason."""

_EXTERNAL = "it keeps tensors in another file; save it again with all data inside (external data is never read)"


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the fields of one message as (number, integer or bytes); fixed-width fields are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        field, wire = tag >> 3, tag & 7
        if field == 0 or tag >= 2**32:
            raise ValueError("not a field")
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield field, value
        elif wire == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("cut off")
            yield field, message[at : at + length]
            at += length
        elif wire in (_FIXED32, _FIXED64):
            at += 4 if wire == _FIXED32 else 8
        else:  # protobuf groups, which ONNX does not use
            raise ValueError("not a field")
    if at != len(message):
        raise ValueError("cut off")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("not a number")
