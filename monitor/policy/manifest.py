"""The manifest of a policy: its ONNX file, the input, the output, and how an action is chosen from the output.

No common standard puts such metadata inside an ONNX file, so the metadata are in a small YAML file beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from monitor.errors import ConfigError, PolicyError
from monitor.yamltext import parse_yaml

MAX_MANIFEST_BYTES = 65536

_Text = Annotated[str, Field(min_length=1, max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def inside(file: str) -> str:
    """Return `file`, a path inside the manifest's own folder. Raises ValueError for any other path."""
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file or "\0" in file:
        raise ValueError("must name a file inside the manifest's own folder, by a relative path without '..'")
    return file


class Input(_Strict):
    """The input tensor."""

    name: _Text
    """Name of the input in the ONNX file."""
    kind: Literal["observation", "one_hot", "index"]
    """`observation`: [batch, D] floats, the model's observation of the state (its one-hot encoding if the model carries
    no observations). `one_hot`: [batch, S] floats. `index`: [batch] integers.
    """


class Output(_Strict):
    """The output tensor."""

    name: _Text
    """Name of the output in the ONNX file."""
    kind: Literal["logits", "probabilities", "q_values", "action"]
    """[batch, A] `logits`, `probabilities` or `q_values`, or [batch] `action` numbers."""


class NetworkManifest(_Strict):
    """Fields of the manifests of all networks."""

    file: _Text
    """The ONNX file, relative to the manifest and inside its folder."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the ONNX file, hexadecimal."""
    input: Input
    """The input tensor."""
    output: Output
    """The output tensor."""
    mode: Literal["greedy", "stochastic"]
    """`greedy` takes the action with the highest score, and among equal scores the action with the lowest number.
    `stochastic` draws the action from the probabilities, or from the softmax of the logits.
    """
    mask: bool = False
    """True if the agent excludes unavailable actions before it chooses (probabilities are renormalised). If false, it
    is an error if the policy chooses an unavailable action.
    """
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] | None = None
    """Name, for people."""
    description: str | None = None
    """Description, for people."""
    provenance: str | None = None
    """For people: how the policy was made."""

    _file_inside = field_validator("file")(inside)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode == "stochastic" and self.output.kind not in ("logits", "probabilities"):
            raise ValueError(f"mode stochastic needs logits or probabilities, not {self.output.kind}")
        if self.mask and self.output.kind == "action":
            raise ValueError("mask needs scores to choose among; an action is already chosen")
        return self


class Manifest(NetworkManifest):
    """Manifest of a policy."""


class SightedManifest(Manifest):
    """Manifest of a policy that says what the policy sees, for models with hidden states."""

    sees: Literal["observation", "state"]
    """Only for hidden states. `observation` (the default): the policy sees the observation, and the inputs `one_hot`
    and `index` encode observations. `state`: the policy sees the state, like the policy of a simulator.
    """


class ControllerManifest(_Strict):
    """Manifest of a policy with finite memory (`monitor.Controller`)."""

    kind: Literal["controller"]
    """Kind of the manifest."""
    file: _Text
    """JSON file with `choice` and `next`, relative to the manifest and inside its folder."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of this file, hexadecimal."""
    memory: Literal["shadow", "reset"] = "shadow"
    """Memory when the policy takes over: as if it had read all earlier inputs (`shadow`), or memory 0 (`reset`)."""
    sees: Literal["observation", "state"] = "observation"
    """What the policy reads. On a model without hidden states it always reads the state."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] | None = None
    """Name, for people."""
    description: str | None = None
    """Description, for people."""
    provenance: str | None = None
    """For people: how the policy was made."""

    _file_inside = field_validator("file")(inside)


class MemoryTensor(_Strict):
    """One tensor of the memory of a recurrent network."""

    input: _Text
    """Name of the input for the tensor before the step; zeros at the start of an episode."""
    output: _Text
    """Name of the output for the tensor after the step."""


class RecurrentManifest(NetworkManifest):
    """Manifest of a recurrent network, which has a memory.

    Free dimensions of its tensors are 1, because the network runs for one agent, one step at a time.
    """

    kind: Literal["recurrent"]
    """Only for a recurrent network, and required there."""
    states: Annotated[tuple[MemoryTensor, ...], Field(min_length=1, max_length=64)]
    """For a recurrent network: the tensors of its memory, such as the hidden state and the cell state of an LSTM."""
    memory: Literal["shadow", "reset"] = "shadow"
    """For a recurrent network: its memory when it takes over. `shadow`: the memory after reading all earlier inputs.
    `reset`: zeros.
    """
    sees: Literal["observation", "state"] = "observation"
    """What the network reads. On a model without hidden states it always reads the state."""


AnyManifest = Manifest | SightedManifest | ControllerManifest | RecurrentManifest


def read_manifest(content: bytes, where: str) -> AnyManifest:
    """Read a manifest from the bytes of a YAML file; `where` names the file in messages.

    Raises:
        PolicyError: the bytes are not YAML, or not a manifest; the message says where and why.
    """
    try:
        given = parse_yaml(content, where, limit=MAX_MANIFEST_BYTES).content
    except ConfigError as error:
        raise PolicyError(f"policy {error}") from error
    return manifest_of(given, where)


def manifest_of(given: object, where: str) -> AnyManifest:
    """Read a manifest from plain data, which messages call `where`. Raises PolicyError with one line of text."""
    keys = given.keys() if isinstance(given, Mapping) else ()
    kind: type[AnyManifest] = SightedManifest if "sees" in keys else Manifest
    if isinstance(given, Mapping) and "kind" in keys:
        kind = RecurrentManifest if given["kind"] == "recurrent" else ControllerManifest
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'manifest'}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_url=False)
        )
        raise PolicyError(f"policy {where}: {problems}") from error
