"""Draft a manifest for an ONNX file from its metadata and, if these do not suffice, from naming conventions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np

from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.model.recording_sentences import recorded_inputs
from monitor.policy.manifest import Input, Manifest, Output
from monitor.policy.network import Network, Tensor, open_network
from monitor.policy.onnx_policy import table_from_onnx

OutputKind = Literal["logits", "probabilities", "q_values", "action"]


def draft_manifest(
    content: bytes,
    file: Path,
    model: MDP,
    *,
    kind: OutputKind | None = None,
    stochastic: bool = False,
    mask: bool = False,
    output: str | None = None,
) -> tuple[Manifest, list[str]]:
    """Return the manifest of the network in `content`, checked against `model`, and one sentence for each assumption.

    `kind`: kind of the output, if its name does not imply it. `stochastic`: the agent draws its actions. `mask`: the
    agent excludes unavailable actions. `output`: name of the output, if there are several and their shapes do not
    determine it.

    Raises PolicyError as `load_policy` does, and if the network has several inputs, or if not exactly one output fits
    the model.
    """
    where = str(file)
    inputs, outputs = open_network(content, where)
    if len(inputs) != 1:
        raise PolicyError(
            f"policy {where}: one input is needed, it has {_listed(inputs)}; join them to one tensor [n, D], in the "
            "order of an observation of the model"
        )
    result = _chosen(outputs, output, kind, model, where)
    assumed = []
    if output is None and len(outputs) > 1:
        assumed.append(f"its output {result[0]!r} is the policy, of {_listed(outputs)}; if not, give --output-name")
    if kind is None:
        kind = _kind(result)
        if kind != "action":
            assumed.append(f"output {result[0]!r} holds {kind}, by its name; if not, give --output")
            assumed += model.named_actions.order
    if stochastic and kind not in ("logits", "probabilities"):
        raise PolicyError(f"policy {where}: an agent cannot draw from {kind}, only from logits and probabilities")
    manifest = Manifest(
        file=file.name,
        sha256=hashlib.sha256(content).hexdigest(),
        input=Input(name=inputs[0][0], kind=_input_kind(inputs[0], model, where)),
        output=Output(name=result[0], kind=kind),
        mode="stochastic" if stochastic else "greedy",
        mask=mask,
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
    if manifest.input.kind == "observation" and (spread := recorded_inputs(model)):
        assumed.append(spread)
    contradiction = "" if kind == "action" else _contradiction(content, manifest, outputs, model, where)
    if contradiction and output is None:
        raise PolicyError(
            f"policy {where}: {contradiction}, so columns may be in another order than actions. Name the output that "
            "holds the policy, --output-name; or give a classifier itself to `cfmon policy export`"
        )
    if contradiction:
        assumed.append(f"column k of {output!r} is action k, although {contradiction}")
    return manifest, assumed


def _listed(tensors: list[Tensor]) -> str:
    """Return a list of tensors with their types and shapes, in words."""
    return ", ".join(f"{name!r} {element.removeprefix('tensor')}{shape}" for name, element, shape in tensors)


def _chosen(outputs: list[Tensor], name: str | None, kind: OutputKind | None, model: MDP, where: str) -> Tensor:
    """Return the output that holds the policy: the named output, the only one, or the only one of the right shape."""
    named = [each for each in outputs if each[0] == name]
    if name is not None and not named:
        raise PolicyError(f"policy {where}: it has no output {name!r}; it has {_listed(outputs)}")
    if named or len(outputs) == 1:
        return (named or outputs)[0]
    scores = [each for each in outputs if _holds_scores(each, model)] if kind != "action" else []
    actions = [each for each in outputs if _holds_actions(each)] if kind in (None, "action") else []
    fitting = scores or actions
    if len(fitting) == 1:
        return fitting[0]
    wanted = f"[n, {model.actions}] scores" if kind not in (None, "action") else "[n] whole numbers of actions"
    wanted = f"[n, {model.actions}] scores, or {wanted}" if kind is None else wanted
    some = "several of its outputs have" if fitting else "none of its outputs has"
    raise PolicyError(
        f"policy {where}: {some} the shape of {wanted}: {_listed(outputs)}; name one: --output-name"
        + ("" if not any("seq(map" in element for _, element, _ in outputs) else ", or convert it with zipmap=False")
    )


def _holds_scores(tensor: Tensor, model: MDP) -> bool:
    """Return whether, by its type and shape, a tensor may hold scores [n, A]."""
    _, element, shape = tensor
    floats = element in ("tensor(float)", "tensor(double)", "tensor(float16)")
    return floats and len(shape) == 2 and (not isinstance(shape[1], int) or shape[1] == model.actions)


def _holds_actions(tensor: Tensor) -> bool:
    """Return whether, by its type and shape, a tensor may hold the numbers of actions, [n] or [n, 1]."""
    _, element, shape = tensor
    return element in ("tensor(int64)", "tensor(int32)") and (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1))


def _contradiction(content: bytes, manifest: Manifest, outputs: list[Tensor], model: MDP, where: str) -> str:
    """Describe where the columns of the scores contradict the label output of a classifier; empty if they agree.

    A classifier sorts its classes, so column k may be the score of another action than k.
    """
    others = [each for each in outputs if each[0] != manifest.output.name]
    labels = [each for each in others if _holds_actions(each) or each[1] == "tensor(string)"]
    if len(labels) != 1:
        return ""
    ((label, element, _),) = labels
    scores = manifest.output.name
    plain = manifest.model_copy(update={"mode": "greedy", "mask": False})
    network = Network(content, plain, model.without_samples(), where)
    for first in range(0, model.states, network.batch):
        states = np.arange(first, min(first + network.batch, model.states))
        said = np.asarray(network.other(label, states)).reshape(-1).tolist()
        for state, each, best in zip(states.tolist(), said, network.choose(states).tolist(), strict=True):
            if element == "tensor(string)" and each not in model.action_index:
                return f"its output {label!r} holds text such as {each[:40]!r}, which is no action of the model"
            if best != model.named_actions.find(each):
                return f"in state {state} its output {label!r} is {each!r}, but {scores!r} is largest in column {best}"
    return ""


def _kind(result: Tensor) -> OutputKind:
    name, element, _ = result
    if "int" in element:
        return "action"
    if "prob" in name.lower():
        return "probabilities"
    return "q_values" if name.lower().startswith("q") else "logits"


def _input_kind(given: Tensor, model: MDP, where: str) -> Literal["observation", "one_hot", "index"]:
    name, element, shape = given
    if "int" in element:
        return "index"
    width = shape[1] if len(shape) == 2 else None
    anything = not isinstance(width, int)  # a text or None means any width
    if model.observations is not None and (anything or width == int(model.observations.shape[1])):
        return "observation"
    if anything or width == model.states:
        return "one_hot"
    seen = "no features" if model.observations is None else f"{model.observations.shape[1]} features"
    raise PolicyError(
        f"policy {where}: input {name!r} takes {width} numbers, but the model has {model.states} states and {seen}"
    )
