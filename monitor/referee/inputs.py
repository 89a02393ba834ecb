"""Validation of a query: the path, the models, and every name in the formula.

The functions reject the same input as `monitor.check`, with the same classes of errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from operator import index
from typing import Final

import numpy as np

from monitor.errors import ConfigError, PathError
from monitor.logic.parser import error_at
from monitor.logic.syntax import Formula, Goal, Label, Regret
from monitor.logic.traversal import subformulas
from monitor.model.mdp import MDP
from monitor.types.stream_events import UNKNOWN_POLICY, PathPairs

NUMERAL: Final = re.compile("[-+]?([0-9]{1,40}[.]?[0-9]{0,40}|[.][0-9]{1,40})([eE][-+]?[0-9]{1,3})?")
"""A name of an action, or the action of `do(..)`, that is a number."""


def checked_path(path: PathPairs, model: MDP, *, terminated: bool) -> list[tuple[int, int | None]]:
    """Return the path as plain numbers.

    Raises:
        PathError: the path is empty, an element is not a pair, a state or action does not exist or is unavailable, an
            action before the last pair is missing, or a transition has probability 0 in the model.
    """
    try:
        pairs = [(index(state), None if action is None else index(action)) for state, action in path]
    except (TypeError, ValueError) as error:
        raise PathError("the path must contain pairs (state, action) of whole numbers only") from error
    if not pairs:
        raise PathError("the path is empty; it needs at least one pair (state, action)")
    for n, (state, action) in enumerate(pairs):
        last = n == len(pairs) - 1
        if not 0 <= state < model.states:
            raise PathError(f"pair {n}: state {state} is outside 0..{model.states - 1}")
        if action is None and not last:
            raise PathError(f"pair {n}: only the last pair may lack its action")
        available = np.ones(model.actions, dtype=bool) if last and terminated else model.available(state)
        if action is not None and not (0 <= action < model.actions and available[action]):
            raise PathError(f"pair {n}: action {action} is unavailable in state {state}")
    for n, ((state, action), (s_next, _)) in enumerate(pairwise(pairs)):
        assert action is not None
        if s_next not in model.row(state, action)[0]:
            problem = f"the model gives {s_next} probability 0 after state {state}, action {action}"
            raise PathError(f"pair {n}: {problem}; the path or the model is wrong")
    return pairs


def check_acted(acted: Sequence[str], length: int, policies: Mapping[str, object]) -> None:
    """Raise PathError unless `acted` is empty, or names an existing policy or UNKNOWN_POLICY for each pair."""
    if len(acted) not in (0, length):
        raise PathError(f"the path has {length} pairs, and the policies that acted are named for {len(acted)} of them")
    unknown = sorted(set(acted) - set(policies) - {UNKNOWN_POLICY})
    if unknown:
        raise PathError(f"a policy that acted does not exist: {unknown[0]!r}; there is {', '.join(policies)}")


def check_models(models: Mapping[str, MDP], model: MDP) -> None:
    """Raise ConfigError if another model has a different size or lacks an action of the main model."""
    for name, other in models.items():
        if (other.states, other.actions) != (model.states, model.actions):
            sizes = f"{model.states} states and {model.actions} actions"
            raise ConfigError(f"model {name!r} must have {sizes}, as the main model has")
        for state, action in np.argwhere(model.availability & ~other.availability):
            raise ConfigError(f"model {name!r} lacks action {action} in state {state}, where the main model has it")


def named_actions(
    formula: Formula, text: str, model: MDP, policies: Mapping[str, object], models: Mapping[str, MDP]
) -> dict[str, int]:
    """Return the index of each action that a `do(..)` names.

    Raises:
        FormulaError: an unknown label, policy, model or action, or an action that is unavailable in some state.
    """
    names = model.action_names
    known: dict[str, Mapping[str, object]] = {
        "label": model.labels,
        "policy": policies,
        "model": models,
        "action": dict.fromkeys(names or [str(action) for action in range(model.actions)]),
    }
    actions: dict[str, int] = {}
    for kind, name, at in _names(formula):
        meant = action_meant(name, names, model.actions) if kind == "action" else None
        if meant is None and (kind == "action" or name not in known[kind]):
            raise error_at(f"unknown {kind} {name!r}; there is {', '.join(known[kind]) or 'none'}", text, at)
        if meant is not None:
            actions[name] = meant
            missing = np.flatnonzero(~model.availability[:, actions[name]])
            if len(missing):
                where = f"{len(missing)} states, first in {missing[0]}"
                problem = f"do({name}) is impossible: the action is unavailable in {where}"
                raise error_at(problem, text, at)
    return actions


def action_meant(text: str, names: Sequence[str], count: int) -> int | None:
    """Return the action of `do(text)`; None if there is no such action.

    The text is an action's name. If the text is a number, the result may also be the only action whose name is an equal
    number. If no name is a number, a number is an index.
    """
    if text in names:
        return list(names).index(text)
    numerals = [(action, Decimal(name)) for action, name in enumerate(names) if NUMERAL.fullmatch(name)]
    if not NUMERAL.fullmatch(text):
        return None
    if not numerals:
        numerals = [(action, Decimal(action)) for action in range(count)]
    equal = [action for action, number in numerals if number == Decimal(text)]
    return equal[0] if len(equal) == 1 else None


def _names(formula: Formula) -> Iterator[tuple[str, str, int]]:
    """Yield kind, name and position in the text of each name in a formula."""
    for node in subformulas(formula):
        match node:
            case Label(name, at):
                yield "label", name, at
            case Goal(world) | Regret(world):
                for change in (world.change, world.baseline):
                    if change is not None and change.kind != "nominal" and not change.decides:
                        yield change.kind, change.name, change.at
            case _:
                pass
