"""The referee: a second, plain evaluator of PCFTL, with which an alarm's numbers can be recomputed independently.

The referee computes the exact results of `monitor.check` from the definitions: the closed form of a counterfactual row,
the expansion laws of the path operators, and a dictionary of node values. It shares neither code nor method with the
exact engine (`monitor.exact`): it has no automaton, no compiled code, and no cache between queries. Keep the referee
independent, so that both evaluators are unlikely to have the same error.

Read `row.py`, `world.py`, `residual.py`, `transition.py`, `unroll.py`, `best.py`, `recourse.py`, `verdict.py`, in this
order. `intervals.py` and `guaranteed.py` add the guaranteed bands of learned models. `extremes.py` adds the extremes
for parts of the model that were never recorded. `basis.py` counts the recorded data that support a value. `hidden.py`,
`hidden_path.py` and `hidden_values.py` evaluate formulas on models with hidden states or policies with memory,
`hidden_bounds.py` and `transport.py` bound such values, and `posterior.py` computes the credible bands of such models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast, get_args

from monitor.errors import ConfigError, LimitError
from monitor.logic.parser import parse
from monitor.logic.policy_names import check_policy_names
from monitor.logic.printer import print_formula
from monitor.logic.syntax import Formula
from monitor.model.mdp import MDP
from monitor.policy.controller import is_hidden
from monitor.policy.table import as_table
from monitor.referee.basis import rests_on
from monitor.referee.extremes import Extremes
from monitor.referee.guaranteed import Guaranteed
from monitor.referee.hidden import beliefs, derive_hidden
from monitor.referee.inputs import check_acted, check_models, checked_path, named_actions
from monitor.referee.recourse import TOO_LARGE, Examiner
from monitor.referee.unroll import Unroll
from monitor.referee.verdict import Derivation
from monitor.referee.world import MAIN, Frame, PathStep, Regime, Setting
from monitor.types.specs import BandSettings, RequestedModel
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import Verdict

__all__ = ["TOO_LARGE", "beliefs", "derive"]


def derive(
    query: str | Formula,
    *,
    model: MDP,
    path: Sequence[Sequence[Any]],
    policies: Mapping[str, object],
    models: Mapping[str, MDP] | None = None,
    causal_model: RequestedModel = "gumbel",
    terminated: bool = False,
    start_observed: bool = True,
    delta: float | None = BandSettings().delta,
    acted: Sequence[str] = (),
    recourse: bool = True,
    basis: bool = False,
    credible: BandSettings | None = None,
) -> Verdict:
    """Evaluate one formula on one observed path, as `monitor.check` does exactly.

    Args:
        query: a formula, or its text.
        model: the MDP.
        path: pairs (state, action), oldest first; the last action may be None (not yet taken). If states are hidden,
            pairs are (observation, action); both may be None, and the first pair may also have the belief before it.
        policies: name -> table, S actions or an S x A matrix, or a policy that sees observations or has memory;
            `nominal` is the deployed one.
        models: name -> other dynamics, for `model:name`.
        causal_model: `any` or `stable` adds bounds of the answer over this class of causal models.
        terminated: whether the episode has ended in the last state, which is absorbing from then on.
        start_observed: whether the first pair is the episode's first step; if not, `@-k` verdicts report this.
        delta: probability that the guaranteed band misses the value. On a model learned from data, the causal model
            `any` adds this band. With None there is no band. Only the engine computes the support.
        acted: names of the policies that acted, one for each pair; empty if nominal acted at all of them.
        recourse: whether to examine if other decisions could have met a missed goal of `regret`. If only this part is
            too large, the recourse has no numbers, and its reason is `TOO_LARGE`.
        credible: settings of the credible band of a learned model; None: no credible band. If states are seen, only
            the engine computes this band.
        basis: whether to add the recorded data that support each value on a learned model, if `basis.py` counts them.

    Raises:
        FormulaError, PathError, PolicyError, ConfigError: as for `monitor.check`.
        LimitError: the query is too large for this evaluator (`unroll.LIMIT`).

    >>> model = MDP.from_transitions(
    ...     states=2, actions=2, labels={"goal": [1]},
    ...     transitions=[(0, 0, 0, 1.0), (0, 1, 0, 0.5), (0, 1, 1, 0.5), (1, 0, 1, 1), (1, 1, 1, 1)])
    >>> policies = {"nominal": [0, 0], "bold": [1, 1]}
    >>> derive('bold@1.P=? [ F<=2 "goal" ]', model=model, policies=policies, path=[(0, 0), (0, 0)]).value
    0.75
    """
    if causal_model not in get_args(RequestedModel):
        raise ConfigError(f"causal model {causal_model!r} does not exist; use {', '.join(get_args(RequestedModel))}")
    if delta is not None and not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must lie strictly between 0 and 1, not {delta:g}")
    if not isinstance(model, MDP):
        raise ConfigError("the referee evaluates enumerated models only")
    check_policy_names(policies)
    text = query if isinstance(query, str) else print_formula(query)
    others = dict(models or {})
    if is_hidden(model, policies):
        about: dict[str, Any] = {"model": model, "path": path, "policies": policies, "models": others}
        return derive_hidden(text, **about, terminated=terminated, start_observed=start_observed, acted=acted,
                             credible=credible, causal_model=causal_model)  # fmt: skip
    formula = parse(text)
    tables = {name: as_table(policy, model) for name, policy in policies.items()}
    check_models(others, model)
    actions = named_actions(formula, text, model, tables, others)
    pairs = checked_path(cast("PathPairs", path), model, terminated=terminated)
    check_acted(acted, len(pairs), tables)
    last = pairs[-1][0]
    setting = Setting({MAIN: model, **others}, tables, last if terminated else None)
    unroll = Unroll(setting, actions, causal_model)
    due = causal_model == "any" and any(each.counts is not None for each in setting.models.values())
    guaranteed = Guaranteed(setting, actions, delta) if due and delta is not None else None
    frame = _observed(pairs, acted or ["nominal"] * len(pairs), terminated=terminated)
    extremes = Extremes(setting, actions, causal_model, delta)
    labels = {name: extremes.truths(name, last) for name in model.labels}
    examiner = Examiner(unroll, model, causal_model, learned=due, extremes=extremes) if recourse else None
    counted = partial(rests_on, setting, actions) if basis else None
    derivation = Derivation(
        unroll, frame, labels, causal_model, start_observed, guaranteed, extremes, examiner, counted
    )
    try:
        return derivation.verdict(formula, text)
    except RecursionError as error:
        raise LimitError(
            "the referee, which is recursive, cannot evaluate a formula nested this deeply; the exact engine can"
        ) from error


def _observed(pairs: list[tuple[int, int | None]], acted: Sequence[str], *, terminated: bool) -> Frame:
    """Return the observed path under the policies that acted, followed by nominal.

    The main model is always in force. If `terminated`, the episode has ended from the last pair on.
    """
    last = len(pairs) - 1
    steps = tuple(
        PathStep(state, action, Regime(policy, MAIN, ended=terminated and place == last))
        for place, ((state, action), policy) in enumerate(zip(pairs, acted, strict=True))
    )
    return Frame(steps, (Regime("nominal", MAIN, ended=terminated),))
