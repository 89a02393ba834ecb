"""`monitor.recourse`: check all inputs, then evaluate other decisions on a recorded path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from monitor.errors import ConfigError
from monitor.evaluation.models import require_table
from monitor.evaluation.one_decision import ALONE
from monitor.exact import Checker, tables
from monitor.exact.inputs import as_pairs, check_acted, check_path, read_all
from monitor.exact.names import validate
from monitor.exact.recourse import RecourseReport, RecourseSettings, Unchanged, query_of, recourse_of
from monitor.logic import Formula
from monitor.model import MDP
from monitor.types.stream_events import PathPairs
from monitor.worlds import is_world

__all__ = ["recourse"]


def recourse(
    query: str | Formula,
    *,
    model: MDP,
    path: PathPairs,
    policies: Mapping[str, object],
    offset: int | None = None,
    most: int = 3,
    within: int = 3,
    unchanged: Unchanged = "nominal",
    terminated: bool = False,
    models: Mapping[str, MDP] | None = None,
    acted: Sequence[str] = (),
) -> RecourseReport:
    """Evaluate other decisions on an observed path: which decision mattered, and which action would have been better.

    All values use the noise that the path reveals, which no policy knows in advance. `optimal` is the value of the best
    policy that does not know this noise. The values are exact under the Gumbel-Max causal model. For a learned model,
    they are computed with the estimated rows.

    Args:
        query: `regret(..)`, or a goal of the path as it happened, such as `nominal@2.P>=0.9 [ .. ]`; for `=?`, write
            `max@2.P=? [ .. ]` or `min@..`.
        model: the MDP.
        path: pairs (state, action), oldest first; the last action may be None (not yet taken).
        policies: as for `monitor.check`.
        offset: offset from which decisions are examined, in place of the query's offset.
        most: maximum number of changes in a plan.
        within: size of the largest sets of decisions that may share the responsibility for a missed goal. The cost is
            about n^(within - 1) numbers for each state, with n decisions.
        unchanged: the unchanged decision in a state that was not visited. With `nominal`, it is the decision of the
            policy that acted. With `observed`, it is the action observed at that step, in states where this action is
            available.
        terminated: whether the episode has ended in the last state, as for `monitor.check`.
        models: name -> another model, if the query names one.
        acted: names of the policies that acted, one for each pair; empty if nominal acted at all pairs.

    Raises:
        FormulaError, PathError, PolicyError, ConfigError, LimitError: the error says what is wrong, where, and how to
            fix it.

    >>> model = MDP.from_transitions(
    ...     states=3, actions=2, labels={"home": [2]},
    ...     transitions=[(0, 0, 1, 1), (0, 1, 2, 0.5), (0, 1, 0, 0.5), *[(s, a, s, 1) for s in (1, 2) for a in (0, 1)]])
    >>> report = recourse('nominal@1.P>=0.4 [ F<=1 "home" ]', model=model, path=[(0, 0), (1, 0)],
    ...     policies={"nominal": [0, 0, 0]})
    >>> report.avoidable, report.plans[1].value, report.decisions[0].responsibility
    ('foresight', 0.5, 1.0)
    """
    if is_world(model):
        raise ConfigError(f"{ALONE}: monitor.check does it for regret(..)")
    require_table(model, "decisions are examined by values of all states, which need an MDP")
    for name, number, least in (("most", most, 0), ("within", within, 1)):
        if number < least:
            raise ConfigError(f"{name} is {number}; it must be at least {least}")
    if unchanged not in get_args(Unchanged):
        raise ConfigError(f"unchanged is {unchanged!r}; use {' or '.join(map(repr, get_args(Unchanged)))}")
    pairs = as_pairs(path)
    check_acted(acted, pairs, policies)
    ((formula, text),) = read_all([query])
    checker = Checker(model, tables(policies, model), models)
    validate(formula, model, policies, text, checker.models)
    check_path(model, pairs)
    settings = RecourseSettings(most, within, unchanged)
    return recourse_of(
        checker.evaluators, query_of(formula, text, offset), pairs, settings, terminated=terminated, acted=acted
    )
