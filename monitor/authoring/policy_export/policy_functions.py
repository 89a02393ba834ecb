"""Python functions as policies. They are called in every state of the model, and written as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from monitor.arrays import AnyArray, Ints
from monitor.authoring.policy_export.original import (
    MEMORY,
    Anything,
    ExportRequest,
    Original,
    action_numbers,
    tabulated_inputs,
)
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.user_code import explained

SEES = ("observation", "valuation", "name", "index")
"""Possible arguments of a function."""


def of_function(function: Callable[[Anything], object], model: MDP, request: ExportRequest) -> Original:
    """Return the policy of a function that returns an action (number or name), or A scores or probabilities.

    The function is called twice in every state, with each observation recorded there; the second time in reverse order.
    Raises PolicyError if it fails, returns anything else, or returns different results for the same state.
    """
    where = f"policy {request.source}"
    sees, states, of = shown_states(model, request, where)
    first = [_answer(function, states[n], model, f"{where}: state {s}") for n, s in enumerate(of.tolist())]
    for n in reversed(range(len(of))):
        again = _answer(function, states[n], model, f"{where}: state {of[n]}")
        if not np.array_equal(first[n], again):
            raise PolicyError(
                f"{where}: state {of[n]}: it returned {first[n].tolist()}, and {again.tolist()} when called again. "
                f"If it draws its action, return the probabilities instead. Otherwise it has memory: {MEMORY}"
            )
    assumed = [] if request.sees else [f"the function is called with the {sees} of a state; if not, give --sees"]
    if len({answer.shape for answer in first}) > 1:
        raise PolicyError(f"{where}: it returned an action in some states and {model.actions} numbers in others")
    return tabulated_inputs(np.stack(first), of, model, request, assumed)


def shown_states(model: MDP, request: ExportRequest, where: str) -> tuple[str, Sequence[Anything], Ints]:
    """Return the kind of the function's argument, all its arguments in the states [M], and the state of each.

    Raises PolicyError if the model has no arguments of this kind.
    """
    held: dict[str, Sequence[Anything] | None] = {
        "observation": None if model.inputs is None else list(model.inputs[0]),
        "valuation": model.valuations or None,
        "name": model.state_names or None,
        "index": range(model.states),
    }
    sees = request.sees or ("index" if model.observations is None else "observation")
    states = held[sees]
    if states is None:
        raise PolicyError(
            f"{where}: --sees {sees}: the model has no {sees}s; it has {[k for k, v in held.items() if v]}"
        )
    every = np.arange(model.states)
    return sees, states, model.inputs[1] if sees == "observation" and model.inputs is not None else every


def _answer(function: Callable[[Anything], object], state: Anything, model: MDP, where: str) -> AnyArray:
    try:
        answer = function(state)
    except Exception as error:
        raise PolicyError(f"{where}: it failed ({explained(error)})") from error
    return answer_of(answer, model, where)


def answer_of(answer: object, model: MDP, where: str) -> AnyArray:
    """Return a policy's result as an action [], or as A scores or probabilities [A].

    Raises PolicyError.
    """
    try:
        values = np.asarray(answer)
        alone = values.shape == () or (values.shape == (1,) and model.actions > 1)
        if alone and values.dtype.kind in "biufU":
            return action_numbers(values.reshape(1), model, where).reshape(())
    except (PolicyError, ValueError, TypeError) as error:
        problem = str(error).removeprefix(f"{where}: ")
        raise PolicyError(f"{where}: it returned {answer!r:.80}, which is no action ({problem})") from error
    if values.shape == (model.actions,) and values.dtype.kind in "fiu":
        return values
    raise PolicyError(
        f"{where}: it returned {answer!r:.80}; return the number or the name of an action, or {model.actions} scores "
        "or probabilities"
    )
