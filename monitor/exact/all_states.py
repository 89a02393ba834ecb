"""`monitor.values`: the value function of one query, for all states at once and without observations."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.arrays import Floats
from monitor.errors import FormulaError
from monitor.exact.evaluators import Evaluators
from monitor.exact.inputs import tables
from monitor.exact.names import validate
from monitor.logic import Formula, parse, print_formula
from monitor.logic.parser import error_at
from monitor.logic.syntax import Goal, InterventionRef, Regret
from monitor.logic.traversal import asks_back
from monitor.model import MDP


def values(
    query: str | Formula,
    *,
    model: MDP,
    policies: Mapping[str, object],
    models: Mapping[str, MDP] | None = None,
) -> Floats:
    """Return the value [S] of a `=?` query at `@0` in every state.

    The value in a state equals `check` on the path `[(state, None)]`.

    Args:
        query: a formula, or its text.
        model: the MDP.
        policies: name -> S actions, an S x A matrix, or the path of a manifest; `nominal` is the deployed policy.
        models: name -> other dynamics, for `model:name`.

    Raises:
        FormulaError: the formula is invalid, is not a `=?` query at `@0`, or has a nested goal that looks back.
        PolicyError, ConfigError: a policy or a model does not fit; the message says which, and how to fix it.
        LimitError: the model or the formula is too large.

    >>> model = MDP.from_transitions(
    ...     states=2, actions=2, labels={"goal": [1]},
    ...     transitions=[(0, 0, 0, 1.0), (0, 1, 0, 0.5), (0, 1, 1, 0.5), (1, 0, 1, 1), (1, 1, 1, 1)])
    >>> values('bold@0.P=? [ F<=2 "goal" ]', model=model, policies={"nominal": [0, 0], "bold": [1, 1]})
    array([0.75, 1.  ])
    """
    text = query if isinstance(query, str) else print_formula(query)
    goal = _checked_goal(parse(text), text)
    evaluators = Evaluators(model, tables(policies, model), models)
    validate(goal, model, policies, text, evaluators.models)
    found = _values(evaluators, goal, goal.world.change)
    if goal.world.baseline is not None:
        return found - _values(evaluators, goal, goal.world.baseline)
    return found


def _checked_goal(formula: Formula, text: str) -> Goal:
    if isinstance(formula, Regret):
        raise _error("regret is evaluated along a path; query the values of its two worlds", text)
    if not isinstance(formula, Goal) or formula.test is not None:
        raise _error("values are those of one query with =?, such as P=? [ ... ], not of a comparison", text)
    if formula.world.offset != 0:
        raise _error(f"nothing was observed before these states, so @{formula.world.offset} has no past; use @0", text)
    if asks_back(formula.measure):
        raise _error("a nested quantity looks back along a path; use @0 in it, or check one path after another", text)
    return formula


def _error(problem: str, text: str) -> FormulaError:
    return error_at(problem, text, len(text) - len(text.lstrip()))


def _values(evaluators: Evaluators, goal: Goal, change: InterventionRef) -> Floats:
    if change.decides:
        return evaluators.decided_everywhere(change, goal.measure)
    law = evaluators.nominal().under(evaluators.intervention(change, None))
    value_table = evaluators.value_table(law, goal.measure)
    return value_table.compute_once(value_table.automaton.start)
