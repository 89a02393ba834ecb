"""One question on one recorded path, answered exactly, everything checked first; `monitor.engine` chooses how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path as FilePath
from typing import Literal, get_args

from monitor.decide.checker import Checker
from monitor.decide.names import validate
from monitor.decide.track import Path
from monitor.errors import ConfigError, PathError
from monitor.logic import Formula, parse, print_formula
from monitor.model import MDP
from monitor.policy import PolicyTable, as_table
from monitor.types import CausalModel, Verdict

__all__ = ["as_pairs", "check", "check_many", "check_path", "read_all", "tables"]


def check(
    query: str | Formula,
    *,
    model: MDP,
    path: Path,
    policies: Mapping[str, object],
    engine: Literal["auto", "exact"] = "auto",
    causal_model: CausalModel = "gumbel",
    terminated: bool = False,
    start_observed: bool = True,
    models: Mapping[str, MDP] | None = None,
) -> Verdict:
    """Answer one formula on one observed path.

    Args:
        query: a formula, or its text.
        model: the world.
        path: pairs (state, action), oldest first; the last action may be None (not yet taken).
        policies: name -> S actions, an S x A matrix, or the path of a manifest; `nominal` is the deployed one.
        engine: `exact`, or `auto` for the same.
        causal_model: `any` or `stable` also bound the answer over that class of causal models.
        terminated: the episode has ended in the last state, which is absorbing from then on.
        start_observed: whether the first pair is the episode's first step (else `@-k` verdicts say so).
        models: name -> other dynamics, for `model:name`.

    Raises:
        FormulaError, PathError, PolicyError, ConfigError, LimitError: each says what, where and how to mend it.

    >>> model = MDP.from_transitions(
    ...     states=2, actions=2, labels={"goal": [1]},
    ...     transitions=[(0, 0, 0, 1.0), (0, 1, 0, 0.5), (0, 1, 1, 0.5), (1, 0, 1, 1), (1, 1, 1, 1)])
    >>> policies = {"nominal": [0, 0], "bold": [1, 1]}
    >>> check('bold@1.P=? [ F<=2 "goal" ]', model=model, path=[(0, 0), (0, 0)], policies=policies).value
    0.75
    """
    return check_many(
        [query],
        model=model,
        path=path,
        policies=policies,
        engine=engine,
        causal_model=causal_model,
        terminated=terminated,
        start_observed=start_observed,
        models=models,
    )[0]


def check_many(
    queries: Sequence[str | Formula],
    *,
    model: MDP,
    path: Path,
    policies: Mapping[str, object],
    engine: Literal["auto", "exact"] = "auto",
    causal_model: CausalModel = "gumbel",
    terminated: bool = False,
    start_observed: bool = True,
    models: Mapping[str, MDP] | None = None,
) -> list[Verdict]:
    """Several formulas on one path, sharing what they have in common; all are read before any is answered.

    Arguments and errors are those of `check`.
    """
    if engine not in ("auto", "exact"):
        raise ConfigError(f"engine {engine!r} does not exist; use 'exact' or 'auto'")
    if causal_model not in get_args(CausalModel):
        raise ConfigError(f"causal model {causal_model!r} does not exist; use {', '.join(get_args(CausalModel))}")
    checker = Checker(model, tables(policies, model), models)
    read = read_all(queries)
    for formula, text in read:
        validate(formula, model, policies, text, checker.models)
    pairs = as_pairs(path)
    check_path(model, pairs)
    return [
        checker.check(
            formula,
            pairs,
            causal_model=causal_model,
            terminated=terminated,
            start_observed=start_observed,
            text=text,
        )
        for formula, text in read
    ]


def read_all(queries: Sequence[str | Formula]) -> list[tuple[Formula, str]]:
    """Formulas with their texts; what was built by hand is read too, so that it is held to the grammar."""
    texts = [query if isinstance(query, str) else print_formula(query) for query in queries]
    return [(parse(text), text) for text in texts]


def tables(policies: Mapping[str, object], model: MDP) -> dict[str, PolicyTable]:
    """Policies in any form a user may give them: name -> S actions, an S x A matrix, a table, a manifest's path."""
    return {name: _table(value, model) for name, value in policies.items()}


def _table(value: object, model: MDP) -> PolicyTable:
    if isinstance(value, str | FilePath):
        from monitor.policy.session import load_policy  # noqa: PLC0415 - onnxruntime only where a file is named

        return load_policy(value, model).table
    return as_table(value, model)


def as_pairs(path: object) -> list[tuple[int, int | None]]:
    """The path as plain pairs of whole numbers, whatever sequence it was given as."""
    pairs: list[tuple[int, int | None]] = []
    try:
        for pair in path:  # type: ignore[attr-defined] # what is no sequence is told as such
            state, action = pair
            pairs.append((index(state), None if action is None else index(action)))
    except (TypeError, ValueError):
        problem = f"pair {len(pairs)}: a pair (state, action) of whole numbers is needed"
        raise PathError(f"{problem}, such as (0, 1), or (0, None) for an action not yet taken") from None
    return pairs


def check_path(model: MDP, path: Path) -> None:
    """Raise PathError where a path cannot have happened in a model."""
    if not path:
        raise PathError("the path is empty; it needs at least one pair (state, action)")
    for n, (state, action) in enumerate(path):
        if not 0 <= state < model.states:
            raise PathError(f"pair {n}: state {state} is outside 0..{model.states - 1}")
        if n:
            _check_move(model, n - 1, path[n - 1], state)
        if action is None and n < len(path) - 1:
            raise PathError(f"pair {n}: only the last pair may lack its action")
        if action is not None and not (0 <= action < model.actions and model.available(state)[action]):
            raise PathError(f"pair {n}: action {action} is unavailable in state {state}")


def _check_move(model: MDP, n: int, pair: tuple[int, int | None], reached: int) -> None:
    state, action = pair
    assert action is not None
    if reached not in model.row(state, action)[0]:
        raise PathError(
            f"pair {n}: the model gives {reached} probability 0 after state {state}, action {action}; "
            "the path or the model is wrong"
        )
