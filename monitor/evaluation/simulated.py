"""Checks of the inputs to a simulated model: policies, labels, paths."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import numpy as np

from monitor.errors import ConfigError, PathError, PolicyError
from monitor.logic import Formula
from monitor.logic.parser import error_at
from monitor.logic.syntax import Label
from monitor.logic.traversal import subformulas
from monitor.model import MDP
from monitor.sampled import Simulated, Simulator, VectorSimulator
from monitor.sampled.particle_rows import RowSource, as_rows
from monitor.types.stream_events import PathPairs


def simulated_scene(
    model: Simulator | VectorSimulator,
    policies: Mapping[str, object],
    models: Mapping[str, object],
) -> Simulated:
    """Return a simulator with its policies and other models.

    Raises PolicyError or ConfigError if a policy or a model needs enumerated states.
    """
    others: dict[str, Simulator | VectorSimulator] = {}
    for name, other in models.items():
        if isinstance(other, MDP):
            raise ConfigError(f"model {name!r} is enumerated and the main model is not; give it as a simulator too")
        others[name] = cast("Simulator | VectorSimulator", other)
    for name, policy in policies.items():
        if not (callable(policy) or hasattr(policy, "decide") or hasattr(policy, "choose")):
            raise PolicyError(
                f"policy {name!r} is a {type(policy).__name__}; in a simulated model a policy is a function of states "
                "[n] that gives actions [n] or distributions [n, A]"
            )
    return Simulated(model, policies, others)


def check_simulated_labels(labels: Collection[str], formula: Formula, text: str) -> None:
    """Raise FormulaError at the first unknown label outside of goals and of `regret`."""
    for node in subformulas(formula, nested=False):
        if isinstance(node, Label) and node.name not in labels:
            known = ", ".join(sorted(labels)[:10]) or "none"
            raise error_at(f"unknown label {node.name!r}; there is {known}", text, node.at)


def check_simulated_path(model: Simulator | VectorSimulator, path: PathPairs) -> None:
    """Raise PathError if the path is impossible."""
    if not path:
        raise PathError("the path is empty; it needs at least one pair (state, action)")
    rows = as_rows(model)
    for n, (state, action) in enumerate(path):
        last = n == len(path) - 1
        if action is None:
            if not last:
                raise PathError(f"pair {n}: only the last pair may lack its action")
            continue
        if not 0 <= action < model.actions:
            raise PathError(f"pair {n}: action {action} is outside 0..{model.actions - 1}")
        possible = _successors(rows, n, state, action)
        if not last and path[n + 1][0] not in possible:
            raise PathError(
                f"pair {n}: the model gives {path[n + 1][0]} probability 0 after state {state}, action {action}; "
                "the path or the model is wrong"
            )


def _successors(rows: RowSource, n: int, state: int, action: int) -> set[int]:
    try:
        begin, end, keys, chances = rows.entries(np.array([state]), np.array([action]))
    except PolicyError as error:
        raise PathError(f"pair {n}: {error}") from error
    row = slice(int(begin[0]), int(end[0]))
    return set(keys[row][chances[row] > 0.0].tolist())
