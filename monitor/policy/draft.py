"""Draft of a manifest for an ONNX file: from its metadata, and from naming conventions where that is not enough."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy.manifest import Input, Manifest, Output
from monitor.policy.network import open_network
from monitor.policy.session import table_from_onnx

__all__ = ["OutputKind", "draft_manifest"]

OutputKind = Literal["logits", "probabilities", "q_values", "action"]


def draft_manifest(
    content: bytes, file: Path, model: MDP, *, kind: OutputKind | None = None, stochastic: bool = False
) -> tuple[Manifest, list[str]]:
    """Return the manifest of the network in `content`, checked against `model`, and each assumption as a sentence.

    `kind`: of the output, if its name does not imply it. `stochastic`: the agent draws its actions.

    Raises PolicyError: it has several inputs or outputs, or none that fits the model; or as `load_policy` does.
    """
    where = str(file)
    inputs, outputs = open_network(content, where)
    if len(inputs) != 1 or len(outputs) != 1:
        names = [name for name, _, _ in inputs], [name for name, _, _ in outputs]
        raise PolicyError(f"policy {where}: one input and one output are needed, it has {names[0]} and {names[1]}")
    (given,), (result,) = inputs, outputs
    assumed = []
    if kind is None:
        kind = _kind(result)
        if kind != "action":
            assumed.append(f"output {result[0]!r} holds {kind}, by its name; if not, give --output")
    if stochastic and kind not in ("logits", "probabilities"):
        raise PolicyError(f"policy {where}: an agent cannot draw from {kind}, only from logits and probabilities")
    manifest = Manifest(
        file=file.name,
        sha256=hashlib.sha256(content).hexdigest(),
        input=Input(name=given[0], kind=_input_kind(given, model, where)),
        output=Output(name=result[0], kind=kind),
        mode="stochastic" if stochastic else "greedy",
        name=file.stem[:64],
    )
    assumed.append(f"the agent {'draws its actions' if stochastic else 'takes the action with the highest score'}")
    try:
        table_from_onnx(content, manifest, model, where)
    except PolicyError as error:
        if "unavailable" not in str(error) or kind == "action":
            raise
        manifest = manifest.model_copy(update={"mask": True})
        table_from_onnx(content, manifest, model, where)
        assumed.append("the agent rules out unavailable actions (mask: true): without that it would choose some")
    return manifest, assumed


def _kind(result: tuple[str, str, list[object]]) -> OutputKind:
    name, element, _ = result
    if "int" in element:
        return "action"
    if "prob" in name.lower():
        return "probabilities"
    return "q_values" if name.lower().startswith("q") else "logits"


def _input_kind(
    given: tuple[str, str, list[object]], model: MDP, where: str
) -> Literal["observation", "one_hot", "index"]:
    name, element, shape = given
    if "int" in element:
        return "index"
    width = shape[1] if len(shape) == 2 else None
    if model.observations is not None and width in (int(model.observations.shape[1]), None):
        return "observation"
    if width in (model.states, None) or isinstance(width, str):
        return "one_hot"
    seen = "no features" if model.observations is None else f"{model.observations.shape[1]} features"
    raise PolicyError(
        f"policy {where}: input {name!r} takes {width} numbers, but the model has {model.states} states and {seen}"
    )
