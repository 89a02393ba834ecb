"""A question as it is handed in, checked: the path, the policies, the models, and every name in the formula.

The same is refused as by `monitor.check`, with the same classes of errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import NoReturn, get_args

import numpy as np

from monitor.errors import ConfigError, PathError
from monitor.logic.parser import error_at, parse
from monitor.logic.printer import print_formula
from monitor.logic.syntax import And, Change, Formula, Goal, Label, Not, Or, Probability, Regret, Until
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable, as_table
from monitor.types import CausalModel

__all__ = ["Path", "checked_models", "checked_names", "checked_path", "checked_policies", "read"]

Path = Sequence[tuple[int, int | None]]


def read(query: str | Formula) -> tuple[Formula, str]:
    """Return the formula and its text. Raises FormulaError if it cannot be read."""
    if isinstance(query, str):
        return parse(query), query
    text = print_formula(query)
    return parse(text), text


def check_causal_model(causal_model: str) -> None:
    """Raise ConfigError if there is no such class of causal models."""
    if causal_model not in get_args(CausalModel):
        raise ConfigError(f"causal model {causal_model!r} does not exist; use {', '.join(get_args(CausalModel))}")


def checked_path(path: Path, model: MDP, *, terminated: bool) -> list[tuple[int, int | None]]:
    """Return the path as plain numbers.

    Raises:
        PathError: no pair, a pair that is not one, a state or action that does not exist or is unavailable, an action
            missing before the last pair, or a transition to which the model gives probability 0.
    """
    pairs = [_pair(place, raw) for place, raw in enumerate(path)]
    if not pairs:
        raise PathError("the path is empty; it needs at least one pair (state, action)")
    for place, (state, action) in enumerate(pairs):
        last = place == len(pairs) - 1
        _check_pair(place, state, action, model, last=last, ended=terminated and last)
    for place, ((state, action), (following, _)) in enumerate(zip(pairs, pairs[1:], strict=False)):
        assert action is not None
        if following not in model.row(state, action)[0]:
            raise PathError(
                f"pair {place}: the model gives {following} probability 0 after state {state}, action {action}; "
                "the path or the model is wrong"
            )
    return pairs


def _pair(place: int, raw: object) -> tuple[int, int | None]:
    try:
        state, action = raw  # type: ignore[misc] # what is no pair is refused below
        return index(state), None if action is None else index(action)
    except (TypeError, ValueError) as error:
        raise PathError(f"pair {place}: a pair (state, action) of whole numbers is needed, such as (0, 1)") from error


def _check_pair(place: int, state: int, action: int | None, model: MDP, *, last: bool, ended: bool) -> None:
    if not 0 <= state < model.states:
        raise PathError(f"pair {place}: state {state} is outside 0..{model.states - 1}")
    if action is None:
        if not last:
            raise PathError(f"pair {place}: only the last pair may lack its action")
    elif not 0 <= action < model.actions or not (ended or model.available(state)[action]):
        raise PathError(f"pair {place}: action {action} is unavailable in state {state}")


def checked_policies(policies: Mapping[str, object], model: MDP) -> dict[str, PolicyTable]:
    """Return the policies as tables. Raises ConfigError without a nominal one, PolicyError as `as_table`."""
    if "nominal" not in policies:
        raise ConfigError("no policy is called 'nominal'; it names the deployed one, so name it under policies")
    return {name: as_table(policy, model) for name, policy in policies.items()}


def checked_models(models: Mapping[str, MDP] | None, model: MDP) -> dict[str, MDP]:
    """Return the other models. Raises ConfigError for one over other states, or one that lacks an action."""
    for name, other in (models or {}).items():
        if (other.states, other.actions) != (model.states, model.actions):
            raise ConfigError(
                f"model {name!r} has {other.states} states and {other.actions} actions; it must have the "
                f"{model.states} and {model.actions} of the main model"
            )
        lacking = np.argwhere(model.availability & ~other.availability)
        if len(lacking):
            state, action = lacking[0].tolist()
            raise ConfigError(f"model {name!r} lacks action {action} in state {state}, where the main model has it")
    return dict(models or {})


def checked_names(
    formula: Formula, text: str, model: MDP, policies: Mapping[str, object], models: Mapping[str, MDP]
) -> dict[str, int]:
    """Return the index of each action that some `do(..)` names.

    Raises:
        FormulaError: an unknown label, policy, model or action, or an action that is unavailable in some state.
    """
    actions: dict[str, int] = {}
    for named in _named(formula):
        match named:
            case Label(name, at):
                if name not in model.labels:
                    _unknown("label", name, model.labels, text, at)
            case Change("policy", name, _, at):
                if name not in policies:
                    _unknown("policy", name, [one for one in policies if one != "nominal"], text, at)
            case Change("model", name, _, at):
                if name not in models:
                    _unknown("model", name, models, text, at)
            case Change("action", name, _, at):
                actions[name] = _action(name, model, text, at)
            case _:
                pass
    return actions


def _action(name: str, model: MDP, text: str, at: int) -> int:
    action = int(name) if name.isdecimal() else model.action_index.get(name, model.actions)
    if action >= model.actions:
        _unknown("action", name, model.action_names, text, at)
    missing = np.flatnonzero(~model.availability[:, action])
    if len(missing):
        problem = f"action {name} cannot be held: it is unavailable in {len(missing)} states, first {missing[0]}"
        raise error_at(problem, text, at)
    return action


def _unknown(kind: str, name: str, known: Iterable[str], text: str, at: int) -> NoReturn:
    listed = ", ".join(sorted(known)[:8])
    raise error_at(f"unknown {kind} {name!r}; there is {listed or 'no ' + kind}", text, at)


def _named(formula: Formula) -> Iterator[Label | Change]:
    """Yield everything in a formula that refers to something by name."""
    match formula:
        case Label():
            yield formula
        case Not(arg):
            yield from _named(arg)
        case And(left, right) | Or(left, right) | Until(_, _, left, right):
            yield from _named(left)
            yield from _named(right)
        case Goal(world, measure, _):
            yield world.change
            if world.baseline is not None:
                yield world.baseline
            if isinstance(measure, Probability):
                yield from _named(measure.path)
        case Regret(world, goal):
            yield world.change
            yield from _named(goal)
        case _:
            pass
