"""Convert user input to internal forms. Invalid input raises an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path as FilePath

from monitor.errors import ConfigError, PathError
from monitor.logic import Formula, parse, print_formula
from monitor.model import MDP
from monitor.model.recording_sentences import APPEND, never_recorded
from monitor.policy import PolicyTable, as_table
from monitor.policy.controller import is_hidden
from monitor.types.stream_events import UNKNOWN_POLICY, PathPairs


def read_all(queries: Sequence[str | Formula]) -> list[tuple[Formula, str]]:
    """Return formulas with their texts. Formulas built by hand are parsed too, so that they obey the grammar."""
    texts = [query if isinstance(query, str) else print_formula(query) for query in queries]
    return [(parse(text), text) for text in texts]


def tables(policies: Mapping[str, object], model: MDP) -> dict[str, PolicyTable]:
    """Return name -> table. A policy may be S actions, an S x A matrix, a table, or the path of a manifest.

    Raises ConfigError if states are hidden or a policy has memory.
    """
    if is_hidden(model, policies):
        raise ConfigError(
            "states are hidden, or a policy remembers: so far `monitor.check` alone answers such questions, on a path"
        )
    return {name: _table(value, model) for name, value in policies.items()}


def _table(value: object, model: MDP) -> PolicyTable:
    if isinstance(value, str | FilePath):
        from monitor.policy.onnx_policy import load_policy  # noqa: PLC0415 - onnxruntime only where a file is named

        return load_policy(value, model).table
    return as_table(value, model)


def as_pairs(path: object) -> list[tuple[int, int | None]]:
    """Convert a path, any sequence of pairs, to a list of pairs of int."""
    pairs: list[tuple[int, int | None]] = []
    try:
        for pair in path:  # type: ignore[attr-defined] # anything else raises below
            state, action = pair
            pairs.append((index(state), None if action is None else index(action)))
    except (TypeError, ValueError):
        problem = f"pair {len(pairs)}: a pair (state, action) of whole numbers is needed"
        raise PathError(f"{problem}, such as (0, 1), or (0, None) for an action not yet taken") from None
    return pairs


def check_acted(acted: Sequence[str], path: Sequence[object], policies: Mapping[str, object]) -> None:
    """Raise PathError unless `acted` is empty or names a policy, or UNKNOWN_POLICY, for each pair of a path."""
    if acted and len(acted) != len(path):
        raise PathError(f"acted names {len(acted)} policies for {len(path)} pairs; name one for each pair, or none")
    for n, name in enumerate(acted):
        if name != UNKNOWN_POLICY and name not in policies:
            raise PathError(f"pair {n}: no policy is called {name!r}; there is {', '.join(policies)}")


def check_path(model: MDP, path: PathPairs) -> None:
    """Raise PathError if a path is impossible in a model."""
    if not path:
        raise PathError("the path is empty; it needs at least one pair (state, action)")
    for n, (state, action) in enumerate(path):
        if not 0 <= state < model.states:
            raise PathError(f"pair {n}: state {state} is outside 0..{model.states - 1}")
        if n:
            _check_transition(model, n - 1, path[n - 1], state)
        if action is None and n < len(path) - 1:
            raise PathError(f"pair {n}: only the last pair may lack its action")
        if action is not None and not (0 <= action < model.actions and model.available(state)[action]):
            raise PathError(f"pair {n}: action {action} is unavailable in state {state}")


def _check_transition(model: MDP, n: int, pair: tuple[int, int | None], successor: int) -> None:
    state, action = pair
    assert action is not None
    if successor not in model.row(state, action)[0]:
        if new := never_recorded(model, (state, action), successor):
            raise PathError(f"pair {n}: {new} was never recorded: correct the path, or the model ({APPEND})")
        raise PathError(
            f"pair {n}: the model gives {successor} probability 0 after state {state}, action {action}; "
            "the path or the model is wrong"
        )
