"""A policy before export: its network, and the original's choices in every state of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import InputError, PolicyError
from monitor.model.action_names import number_in
from monitor.model.encode import encode_action
from monitor.model.mdp import MDP
from monitor.model.recording_sentences import recorded_inputs
from monitor.policy.draft import OutputKind
from monitor.policy.export import table_onnx

Anything = Any
"""An object of the user, or of a package that may not be installed."""

MEMORY: Final = (
    "a policy with memory cannot be evaluated in states alone. Of an agent that is an sb3-contrib RecurrentPPO export "
    "the .zip that its save() writes; of another network write ONNX with named states, and a manifest of kind "
    "recurrent; or include the last n observations in the state: wrap the environment in "
    "gymnasium.wrappers.FrameStackObservation(env, n), train a policy without recurrence on it, and explore the same "
    "environment with --key observation"
)
"""Advice on recurrent policies."""


@dataclass(frozen=True)
class ExportRequest:
    """The user's request to export a policy.

    Attributes:
        source: a file, or `module.py:name`.
        weights: file with the parameters of a torch module, or None.
        normalise: file with the statistics that normalise observations, or None.
        sees: argument of a function: `observation`, `index`, `valuation` or `name`; None: the default.
        output: kind of a network's output; None: the default.
        stochastic: True if the agent samples its actions; None: as the source suggests.
    """

    source: str
    weights: str | None = None
    normalise: str | None = None
    sees: str | None = None
    output: OutputKind | None = None
    stochastic: bool | None = None


@dataclass(frozen=True)
class Original:
    """A policy as ONNX, with the choices of the original.

    Attributes:
        content: the ONNX bytes.
        kind: kind of the output.
        stochastic: True if the agent samples its actions.
        actions: [S], the original's greedy actions; None if `scores` determine them.
        scores: [S, A], the original's scores or probabilities; None if it returns only actions.
        assumed: the assumptions, one sentence each.
        mask: True if the agent itself rules out unavailable actions.
    """

    content: bytes
    kind: OutputKind
    stochastic: bool
    actions: Ints | None
    scores: Floats | None
    assumed: Sequence[str] = ()
    mask: bool = False

    def assuming(self, sentence: str) -> Original:
        """Return the same policy with one more assumption, which comes first."""
        return replace(self, assumed=[sentence, *self.assumed])


def tabulated(values: AnyArray, model: MDP, request: ExportRequest, assumed: Sequence[str]) -> Original:
    """Return a policy as a table over the states: actions [S] of the model, or scores or probabilities [S, A].

    If the rows of a matrix are probabilities, actions are sampled from these probabilities, unless the request says
    otherwise. With any other matrix, the policy is greedy. Raises PolicyError for a wrong shape, or an action that does
    not exist.
    """
    where = f"policy {request.source}"
    if values.shape == (model.states,):
        if request.stochastic:
            raise PolicyError(f"{where}: --stochastic needs probabilities, it gives one action a state")
        bad = np.flatnonzero((values < 0) | (values >= model.actions))
        if bad.size:
            raise PolicyError(f"{where}: state {bad[0]}: action {values[bad[0]]} is outside 0..{model.actions - 1}")
        scores = np.eye(model.actions)[values]
        return Original(
            table_onnx(scores, "index", "q_values"),
            "q_values",
            stochastic=False,
            actions=values.astype(np.int64),
            scores=None,
            assumed=assumed,
        )
    if values.shape != (model.states, model.actions) or values.dtype.kind not in "fiu":
        raise PolicyError(
            f"{where}: it has shape {list(values.shape)}; give {model.states} actions (numbers or names), or a matrix "
            f"of {model.states} x {model.actions} scores or probabilities"
        )
    return _scored(values.astype(np.float64), request, where, assumed)


def tabulated_inputs(
    values: AnyArray, of: Ints, model: MDP, request: ExportRequest, assumed: Sequence[str]
) -> Original:
    """Return a policy as a table over the states, from its choices for M inputs. `of` [M]: the state of each input.

    `values`: actions [M], or scores or probabilities [M, A]. The choice in a state is the mean over the inputs of the
    state. If every state then has one certain action, the policy is a table of actions. A state without inputs gets the
    most frequent choice. Raises PolicyError as `tabulated`.
    """
    if np.array_equal(of, np.arange(model.states)):
        return tabulated(values, model, request, assumed)
    chances = chances_of(values, model, request)
    mean = np.zeros((model.states, model.actions))
    np.add.at(mean, of, chances)
    counts = np.bincount(of, minlength=model.states)
    mean /= np.maximum(counts, 1)[:, None]
    mean[counts == 0] = np.eye(model.actions)[chances.sum(axis=0).argmax()]
    said = [*assumed, *([spread] if (spread := recorded_inputs(model)) else [])]
    if bool((chances.max(axis=1) == 1.0).all() and (mean.max(axis=1) == 1.0).all()):
        return tabulated(mean.argmax(axis=1), model, request, said)
    return tabulated(mean, model, replace(request, stochastic=True, output="probabilities"), said)


def chances_of(values: AnyArray, model: MDP, request: ExportRequest) -> Floats:
    """Return the probabilities of actions [n, A] from actions [n], or from scores or probabilities [n, A].

    Raises PolicyError if an action does not exist or a score is not finite.
    """
    where = f"policy {request.source}"
    if values.ndim > 1:
        return _chances(_scored(values.astype(np.float64), request, where, ()))
    bad = np.flatnonzero((values < 0) | (values >= model.actions))
    if bad.size:
        action = values[bad[0]]
        raise PolicyError(f"{where}: input {bad[0]}: action {action} is outside 0..{model.actions - 1}")
    return np.asarray(np.eye(model.actions)[values])


def _chances(original: Original) -> Floats:
    """Return the probabilities of actions [M, A] of a policy with scores [M, A]."""
    scores = original.scores
    assert scores is not None
    if not original.stochastic:
        return np.asarray(np.eye(scores.shape[1])[scores.argmax(axis=1)])
    if original.kind == "logits":
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def action_numbers(given: AnyArray, model: MDP, where: str) -> Ints:
    """Return actions [n] of a function, a classifier or a table as numbers of the model's actions.

    Numbers are indices, also as floats, unless the names of actions are numbers (`ActionNames`). A text is the name of
    an action, or else a number. False and True are the actions with these names, or else 0 and 1. Raises PolicyError
    for any other entry. The caller must check that indices are below A.
    """
    if given.dtype.kind in "iu" and model.named_actions.by_index:
        return given.astype(np.int64)
    return np.array([_number(entry, model, where) for entry in given.tolist()], dtype=np.int64)


def _number(entry: object, model: MDP, where: str) -> int:
    match entry:
        case bool() if str(entry) in model.action_index:
            return model.action_index[str(entry)]
        case bool():
            return _number(int(entry), model, where)
        case bytes():
            return _number(entry.decode(errors="replace"), model, where)
        case int() | float() if model.named_actions.by_index and (isinstance(entry, int) or entry.is_integer()):
            return int(entry)
        case str() if entry not in model.action_index and (number := number_in(entry)) is not None:
            return _number(number, model, where)
        case int() | float() | str() if isinstance(entry, str) or not model.named_actions.by_index:
            try:
                return encode_action(model, entry)
            except InputError as error:
                raise PolicyError(f"{where}: {error.detail}") from error
        case _:
            raise PolicyError(
                f"{where}: it gives {entry!r:.80} where an action is needed: a whole number of 0..{model.actions - 1}, "
                "or its name"
            )


def _scored(scores: Floats, request: ExportRequest, where: str, assumed: Sequence[str]) -> Original:
    bad = np.argwhere(~np.isfinite(scores))
    if bad.size:
        raise PolicyError(f"{where}: state {bad[0][0]}, action {bad[0][1]}: {scores[tuple(bad[0])]} is not a number")
    chances = bool((scores >= 0).all() and np.allclose(scores.sum(axis=1), 1.0, rtol=0, atol=1e-6))
    kind: OutputKind = request.output or ("probabilities" if chances else "q_values")
    if kind == "action":
        raise PolicyError(f"{where}: --output action needs one action a state, it gives a matrix")
    stochastic = request.stochastic if request.stochastic is not None else kind == "probabilities"
    said = [] if request.output else [f"the rows hold {kind}; if not, give --output"]
    return Original(table_onnx(scores, "index", kind), kind, stochastic, None, scores, [*assumed, *said])
