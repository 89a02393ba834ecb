"""Recurrent networks as policies: ONNX files with named inputs and outputs for the memory.

A memory consists of the numbers in all state tensors. Each new memory gets an index; equal memories have the same
index. So the rest of the package treats a memory like the memory of a controller.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader
from monitor.policy.decision import chosen_actions, chosen_probabilities
from monitor.policy.manifest import RecurrentManifest
from monitor.policy.network import FLOATS, INTS, evaluated, open_session, sight_of

MAX_MEMORIES: Final = 200_000
"""Largest number of memories. If there are more, the network's table of memories begins anew before the next step."""
MAX_WIDTH: Final = 65_536
"""Largest count of numbers in one memory."""


class RecurrentReader(Reader):
    """Policy of a recurrent network, checked against a manifest and the inputs that it may read.

    The network is evaluated for one input at a time, as in the agent. In a batch, rounding would differ, so equal
    histories would no longer give equal memories.

    Args:
        content: bytes of the ONNX file.
        manifest: manifest of the policy.
        shown: the values that the policy may read, as the states of a table, with their observations if there are any.
        allowed: [Z, A], the actions that are available in all states in which the value may be read.
        where: name of the file in messages.

    Raises PolicyError if the file, the manifest and `shown` do not fit together, or if the network fails for some first
    input of an episode.
    """

    memories = 1

    def __init__(self, content: bytes, manifest: RecurrentManifest, shown: MDP, allowed: Bools, where: str) -> None:
        self.sees_state, self.shadows = manifest.sees == "state", manifest.memory == "shadow"
        self._manifest, self._where, self._allowed = manifest, where, allowed
        self._content = _content(content, manifest)
        self._sight = sight_of(manifest, shown, where)
        self._session = open_session(content, where)
        try:
            self._check_tensors(self._sight.width)
        except UnicodeDecodeError as error:
            raise PolicyError(f"policy {where}: a name of its inputs or outputs is not UTF-8 text") from error
        self.width = sum(prod(shape) for _, shape in self._states)
        if not 0 < self.width <= MAX_WIDTH:
            raise PolicyError(f"policy {where}: its states have {self.width:,} numbers, not 1 to {MAX_WIDTH:,}")
        self._numbers: list[tuple[float, ...]] = []
        self._known: dict[tuple[float, ...], int] = {}
        self._read: dict[tuple[int, int], tuple[int, Floats]] = {}
        self.generation = 0
        """Number of times that the table has begun anew. The numbers of memories are valid until it begins anew again.
        """
        self.memory_of((0.0,) * self.width)
        for seen in range(shown.states):
            self.read(0, seen)

    def content(self) -> bytes:
        """Return bytes that are equal for equal policies."""
        return self._content

    @property
    def full(self) -> bool:
        """True if the table has more than `MAX_MEMORIES` memories."""
        return len(self._numbers) > MAX_MEMORIES

    def forget(self) -> None:
        """Begin a new table; earlier numbers of memories are no longer valid."""
        self._numbers, self._known, self._read = [], {}, {}
        self.generation += 1
        self.memory_of((0.0,) * self.width)

    def numbers(self, memory: int) -> tuple[float, ...]:
        """Return a memory as numbers: the state tensors, one after the other."""
        return self._numbers[memory]

    def memory_of(self, numbers: tuple[float, ...]) -> int:
        """Return the memory that has these numbers."""
        if numbers not in self._known:
            self._known[numbers] = len(self._numbers)
            self._numbers.append(numbers)
        return self._known[numbers]

    def read(self, memory: int, seen: int) -> tuple[int, Floats]:
        """Return the memory after reading `seen`, and the distribution [A] of the action.

        Raises PolicyError if the output is not finite or not a distribution, or if the action may be unavailable.
        """
        key = memory, seen
        if key not in self._read:
            try:
                self._read[key] = self._run(memory, seen)
            except PolicyError as error:
                raise PolicyError(f"policy {self._where}: {error}") from error
        return self._read[key]

    def _run(self, memory: int, seen: int) -> tuple[int, Floats]:
        manifest = self._manifest
        given = np.array([seen]) if self._indexed else self._sight.observations(np.array([seen]))
        name, (kind, shape) = manifest.input.name, self._input
        feed: dict[str, AnyArray] = {name: given.astype(kind).reshape(shape)}
        numbers, begin = np.array(self._numbers[memory]), 0
        for state, (kind, shape) in zip(manifest.states, self._states, strict=True):
            feed[state.input] = numbers[begin : (begin := begin + prod(shape))].astype(kind).reshape(shape)
        raw, *states = evaluated(
            self._session, [manifest.output.name, *(each.output for each in manifest.states)], feed
        )
        for state, found, (_, shape) in zip(manifest.states, states, self._states, strict=True):
            if not isinstance(found, np.ndarray) or found.size != prod(shape) or not np.isfinite(found).all():
                raise PolicyError(f"output {state.output!r} is not {prod(shape)} finite numbers, as {state.input!r} is")
        after = np.concatenate([np.asarray(each, dtype=np.float64).ravel() for each in states])
        return self.memory_of(tuple(after.tolist())), self._choice(raw, seen)

    def _choice(self, raw: Any, seen: int) -> Floats:  # noqa: ANN401 - as onnxruntime gives it
        manifest, actions, which = self._manifest, self._sight.actions, np.array([seen])
        columns = 1 if manifest.output.kind == "action" else actions
        if not isinstance(raw, np.ndarray) or raw.size != columns:
            got = getattr(raw, "shape", type(raw).__name__)
            raise PolicyError(f"output {manifest.output.name!r} has shape {got} for one input, not {columns} numbers")
        allowed = self._allowed[which]
        if manifest.mode == "greedy":
            flat = raw.reshape(1) if manifest.output.kind == "action" else raw.reshape(1, actions)
            taken = int(chosen_actions(flat, manifest, allowed, which)[0])
            if not 0 <= taken < actions:
                raise PolicyError(f"its action {taken} is outside 0..{actions - 1}")
            chosen: Floats = np.eye(1, actions, taken)[0]
        else:
            chosen = chosen_probabilities(raw.reshape(1, actions), manifest, allowed, which)[0]
        missing = np.flatnonzero((chosen > 0.0) & ~allowed[0])
        if missing.size:
            raise PolicyError(
                f"where it reads {seen} it takes action {missing[0]}, which may be unavailable there; with mask: true "
                "in the manifest, unavailable actions are ruled out"
            )
        chosen.flags.writeable = False
        return chosen

    def _check_tensors(self, width: int) -> None:
        """Find types and shapes of the inputs; a free dimension is 1, for one agent. Raises PolicyError."""
        manifest, where = self._manifest, self._where
        inputs = {each.name: each for each in self._session.get_inputs()}
        outputs = [each.name for each in self._session.get_outputs()]
        names = [manifest.input.name, *(each.input for each in manifest.states)]
        if sorted(inputs) != sorted(names):
            raise PolicyError(f"policy {where}: the network's inputs are {list(inputs)}, the manifest names {names}")
        named = [manifest.output.name, *(each.output for each in manifest.states)]
        if missing := [name for name in named if name not in outputs]:
            raise PolicyError(f"policy {where}: the network's outputs are {outputs}; there is no {missing[0]!r}")
        if any(one == other for one, other in pairwise(sorted(named))):
            raise PolicyError(f"policy {where}: the manifest names one output twice: {named}")
        self._indexed = manifest.input.kind == "index"
        kinds = INTS if self._indexed else FLOATS
        self._input = _tensor(inputs[names[0]], kinds, where)
        self._states = [_tensor(inputs[name], {**FLOATS, **INTS}, where) for name in names[1:]]
        count = 1 if self._indexed else width
        if prod(self._input[1]) != count:
            raise PolicyError(
                f"policy {where}: input {names[0]!r} has shape {list(inputs[names[0]].shape)}, but kind "
                f"{manifest.input.kind} of this model needs {count} numbers"
            )


def _tensor(tensor: Any, kinds: Mapping[str, type], where: str) -> tuple[type, tuple[int, ...]]:  # noqa: ANN401
    if tensor.type not in kinds:
        raise PolicyError(f"policy {where}: input {tensor.name!r} is {tensor.type}, not one of {', '.join(kinds)}")
    return kinds[tensor.type], tuple(each if isinstance(each, int) else 1 for each in tensor.shape)


def _content(content: bytes, manifest: RecurrentManifest) -> bytes:
    """Return bytes that determine the policy: the file's digest, and the manifest without texts for people."""
    about = manifest.model_dump(exclude={"file", "sha256", "name", "description", "provenance"})
    return b"recurrent" + hashlib.sha256(content).digest() + json.dumps(about, sort_keys=True).encode()
