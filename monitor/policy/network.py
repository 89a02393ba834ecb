"""Run a policy network with onnxruntime on one thread, after checks against its manifest and a model."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Protocol

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints, Reals
from monitor.errors import PolicyError
from monitor.model.action_names import ActionNames
from monitor.model.mdp import MDP
from monitor.policy.decision import chosen_actions, chosen_probabilities
from monitor.policy.manifest import Manifest, RecurrentManifest
from monitor.policy.onnx_scan import refuse_unsafe

MAX_ONNX_BYTES = 256 << 20
MAX_MEMORY = 1 << 30
"""Memory limit, in bytes, for all networks of this process. Without it, 132 bytes of ONNX could request any amount."""

_BATCH = 1024
_BATCH_NUMBERS = 1 << 22
"""Largest count of input numbers in a batch. Without it, one-hot inputs of a million states would fill the memory."""

FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
INTS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


Tensor = tuple[str, str, list[object]]
"""Name, element type, and shape; a text or None in the shape means any size."""


def open_network(content: bytes, where: str) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs and outputs of a network. Raises PolicyError for refused content, as `Network` does."""
    session = open_session(content, where)
    try:
        inputs, outputs = (
            [(each.name, each.type, list(each.shape or [])) for each in tensors]
            for tensors in (session.get_inputs(), session.get_outputs())
        )
    except UnicodeDecodeError as error:
        raise PolicyError(f"policy {where}: a name of its inputs, outputs or dimensions is not UTF-8 text") from error
    return inputs, outputs


class Sight(Protocol):
    """Observations and available actions of a model whose states are not enumerated."""

    @property
    def actions(self) -> int:
        """Number of actions."""
        ...

    @property
    def width(self) -> int:
        """Length of an observation."""
        ...

    def observations(self, states: AnyArray) -> Reals:
        """Return the observations of n states: [n, width]."""
        ...

    def available(self, states: AnyArray) -> Bools:
        """Return the actions available in n states: [n, A]."""
        ...


class _ModelSight:
    """`Sight` of an enumerated model; states are one-hot encoded if the model has no observations."""

    def __init__(self, model: MDP, *, one_hot: bool) -> None:
        self.actions = model.actions
        self._model = model
        self._seen = None if one_hot else model.observations
        self.width = model.states if self._seen is None else int(self._seen.shape[1])

    def observations(self, states: Ints) -> Reals:
        if self._seen is not None:
            rows: Reals = self._seen[states]
            return rows
        encoded = np.zeros((len(states), self.width), dtype=np.float32)
        encoded[np.arange(len(states)), states] = 1.0
        return encoded

    def available(self, states: Ints) -> Bools:
        mask: Bools = self._model.availability[states]
        return mask


class Network:
    """ONNX network checked against a manifest and a model.

    `batch`: largest number of states in one evaluation. `kind`: kind of the input. `names`: names of the actions, if
    the model is not a table; None if actions have no names.
    """

    def __init__(
        self, content: bytes, manifest: Manifest, model: MDP | Sight, where: str, names: ActionNames | None = None
    ) -> None:
        self._names = model.named_actions if isinstance(model, MDP) else names
        self._manifest, self._where, self.kind = manifest, where, manifest.input.kind
        self._session = open_session(content, where)
        self._sight = sight_of(manifest, model, where)
        self._width = None if manifest.input.kind == "index" else self._sight.width
        self._inputs = None
        if isinstance(model, MDP) and model.samples is not None and manifest.input.kind == "observation":
            self._inputs = model.inputs
        try:
            self._dtype, fixed = _check_input(self._session, manifest, self._width, where)
            _check_output(self._session, manifest, self._sight.actions, where)
        except UnicodeDecodeError as error:  # onnxruntime returns names and dimensions as they are in the file
            raise PolicyError(
                f"policy {where}: a name of its inputs, outputs or dimensions is not UTF-8 text"
            ) from error
        self.batch = 1 if fixed else max(1, min(_BATCH, _BATCH_NUMBERS // (self._width or 1)))

    def choose(self, states: AnyArray) -> Ints | Floats:
        """Return actions [n] of a greedy policy, or probabilities [n, A] of a stochastic one. Raises PolicyError.

        If inputs were recorded for the states, the result is probabilities even for a greedy policy. They are the
        unweighted mean of the policy's choices over the recorded inputs of each state.
        """
        if self._inputs is None:
            return self._chosen(states, self._given(states))
        inputs, of = self._inputs
        first, last = np.searchsorted(of, states), np.searchsorted(of, states, side="right")
        rows = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
        place = np.repeat(np.arange(len(states)), last - first)
        chances = np.zeros((len(states), self._sight.actions))
        for begin in range(0, len(rows), self.batch):
            part = slice(begin, begin + self.batch)
            chosen = self._chosen(states[place[part]], inputs[rows[part]])
            chances_of = np.eye(self._sight.actions)[chosen] if chosen.ndim == 1 else chosen
            np.add.at(chances, place[part], chances_of)
        return chances / (last - first)[:, None]

    def _chosen(self, states: AnyArray, given: AnyArray) -> Ints | Floats:
        """Return the result of `choose` for one input [n, ...] in each state."""
        available = self._sight.available(states)
        try:
            raw = self._raw(given)
            if self._manifest.mode == "greedy":
                chosen = chosen_actions(raw, self._manifest, available, states)
                return self._meant(chosen) if self._manifest.output.kind == "action" else chosen
            return chosen_probabilities(raw, self._manifest, available, states)
        except PolicyError as error:
            raise PolicyError(f"policy {self._where}: {error}") from error

    def _meant(self, chosen: Ints) -> Ints:
        """Return the actions [n] that the network's numbers mean: as indices, or as names if the names are numbers."""
        if self._names is None or self._names.by_index:
            return chosen
        found = {number: self._names.find(number) for number in np.unique(chosen).tolist()}
        unknown = [number for number, action in found.items() if action is None]
        if unknown:
            raise PolicyError(f"it chooses {unknown[0]}, which is no action of the model ({self._names.expected()})")
        return np.array([found[number] for number in chosen.tolist()], dtype=np.int64)

    def _given(self, states: AnyArray) -> AnyArray:
        shown: AnyArray = states if self._width is None else self._sight.observations(states)
        return shown

    def other(self, name: str, states: Ints) -> Any:  # noqa: ANN401 - a sequence of maps, for example
        """Return an output other than the manifest's, as onnxruntime gives it. Raises PolicyError."""
        try:
            return self._run(name, self._given(states))
        except PolicyError as error:
            raise PolicyError(f"policy {self._where}: {error}") from error

    def _run(self, name: str, shown: AnyArray) -> Any:  # noqa: ANN401 - likewise
        given: AnyArray = shown.astype(self._dtype, copy=False)
        return evaluated(self._session, [name], {self._manifest.input.name: given})[0]

    def _raw(self, given: AnyArray) -> AnyArray:
        name = self._manifest.output.name
        raw: AnyArray = self._run(name, given)
        action = self._manifest.output.kind == "action"
        shape = (len(given),) if action else (len(given), self._sight.actions)
        if action and isinstance(raw, np.ndarray) and raw.shape == (len(given), 1):
            raw = raw[:, 0]
        if not isinstance(raw, np.ndarray) or raw.shape != shape:
            got = getattr(raw, "shape", type(raw).__name__)
            raise PolicyError(f"output {name!r} has shape {got} for {len(given)} states, not {shape}")
        return raw


def evaluated(session: Any, names: list[str], feed: dict[str, AnyArray]) -> list[Any]:  # noqa: ANN401 - likewise
    """Return the outputs of a session, as onnxruntime gives them. Raises PolicyError."""
    try:
        found: list[Any] = session.run(names, feed)
    except Exception as error:  # onnxruntime has a separate class for each kind of failure
        raise PolicyError(f"onnxruntime cannot evaluate it ({_first_line(error)})") from error
    return found


def open_session(content: bytes, where: str) -> Any:  # noqa: ANN401 - onnxruntime ships no types
    """Return a session on one thread with bounded memory. Raises PolicyError for refused content."""
    if len(content) > MAX_ONNX_BYTES:
        raise PolicyError(f"policy {where}: the ONNX file is larger than the limit of {MAX_ONNX_BYTES:,} bytes")
    refuse_unsafe(content, where)
    # Recent releases send model names and hashes to their vendor, unless this is disabled before the import. An agent's
    # policies are confidential.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: PLC0415 - slow to import; not needed for tables given as arrays

    _bound_memory()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # failures are reported by our exceptions
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.use_env_allocators", "1")  # the bounded allocator
    try:
        # Constants that are folded when a session opens are kept outside the bounded memory: 1.6 GB for a small file.
        return onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
        )
    except Exception as error:  # onnxruntime has a separate class for each kind of failure
        raise PolicyError(f"policy {where}: onnxruntime cannot open it ({_first_line(error)})") from error


@cache
def _bound_memory() -> None:
    """Register one bounded allocator for all sessions of the process."""
    import onnxruntime  # noqa: PLC0415 - likewise

    kind, memory = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
    where = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, memory)
    # Grow by need, because doubling would reserve more of the common memory than is used.
    settings = {"max_mem": MAX_MEMORY, "arena_extend_strategy": 1}
    onnxruntime.create_and_register_allocator(where, onnxruntime.OrtArenaCfg(settings))


def _check_input(session: Any, manifest: Manifest, width: int | None, where: str) -> tuple[type, bool]:  # noqa: ANN401
    """Return the element type of the input, and whether its batch has a fixed size of one state."""
    inputs = session.get_inputs()
    names = [i.name for i in inputs]
    if names != [manifest.input.name]:
        raise PolicyError(
            f"policy {where}: the network's inputs are {names}, the manifest says {manifest.input.name!r}"
        )
    types, shape = (INTS if width is None else FLOATS), list(inputs[0].shape)
    wanted = ["batch"] if width is None else ["batch", width]
    fits = len(shape) == len(wanted) and (not isinstance(shape[0], int) or shape[0] == 1)
    if not fits or (width is not None and isinstance(shape[1], int) and shape[1] != width):
        raise PolicyError(
            f"policy {where}: input {names[0]!r} has shape {shape}, but kind {manifest.input.kind} of this model needs "
            f"{wanted}"
        )
    if inputs[0].type not in types:
        raise PolicyError(f"policy {where}: input {names[0]!r} is {inputs[0].type}, not one of {', '.join(types)}")
    return types[inputs[0].type], isinstance(shape[0], int)


def _check_output(session: Any, manifest: Manifest, actions: int, where: str) -> None:  # noqa: ANN401
    outputs = {o.name: o for o in session.get_outputs()}
    output = outputs.get(manifest.output.name)
    if output is None:
        raise PolicyError(
            f"policy {where}: the network's outputs are {list(outputs)}, the manifest says {manifest.output.name!r}"
        )
    action = manifest.output.kind == "action"
    types = INTS if action else FLOATS
    if output.type not in types:
        zipped = "; convert it again with zipmap=False" if output.type.startswith("seq(map(") else ""
        raise PolicyError(
            f"policy {where}: output {output.name!r} is {output.type}, not one of {', '.join(types)}{zipped}"
        )
    shape = list(output.shape or [])
    if not action and len(shape) == 2 and isinstance(shape[1], int) and shape[1] != actions:
        raise PolicyError(f"policy {where}: output {output.name!r} has {shape[1]} columns for {actions} actions")


def sight_of(manifest: Manifest | RecurrentManifest, model: MDP | Sight, where: str) -> Sight:
    """Return the model as a network sees it. Raises PolicyError."""
    if isinstance(model, MDP):
        return _ModelSight(model, one_hot=manifest.input.kind == "one_hot")
    if manifest.input.kind == "one_hot":
        problem = f"policy {where}: input kind one_hot needs enumerated states"
        raise PolicyError(f"{problem}; use a policy of kind observation or index")
    return model


def _first_line(error: Exception) -> str:
    if "Available memory of" in str(error):
        return f"it needs more memory than the {MAX_MEMORY:,} bytes that all networks may take"
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
