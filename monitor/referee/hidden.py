"""Verdicts for models with hidden states or policies with memory: validation of the input, and the parts of a verdict.

After this module, read `hidden_path.py` (the possible true paths) and `hidden_values.py` (the counterfactual values).

Definition: docs/semantics/hidden.md, section 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import isclose, prod
from operator import index

from msgspec.structs import replace

from monitor.errors import ConfigError, LimitError, PathError, PolicyError
from monitor.logic.parser import error_at, parse
from monitor.logic.printer import print_formula
from monitor.logic.syntax import Formula, Goal, InterventionRef, Label, Probability, Regret
from monitor.logic.traversal import goals, goals_now, quantity_goals, subformulas
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader, as_reader
from monitor.referee.extremes import Extremes
from monitor.referee.hidden_bounds import HiddenBounds
from monitor.referee.hidden_path import Belief, HiddenPath, Minds, Place
from monitor.referee.hidden_values import HiddenUnroll
from monitor.referee.inputs import check_acted, check_models, named_actions
from monitor.referee.posterior import credible_bands
from monitor.referee.verdict import Derivation
from monitor.referee.world import MAIN, Frame, PathStep, Regime, Setting
from monitor.types.specs import BandSettings, RequestedModel
from monitor.types.stream_events import UNKNOWN_POLICY, ObservedPair
from monitor.types.verdicts import (
    BELIEF_DIGITS,
    MOST_BELIEVED,
    NO_NETWORKS,
    NO_USES,
    NOT_FROM_START,
    UNEXAMINED,
    Bands,
    Recourse,
    Verdict,
)

ROUNDING = 1e-9
"""Tolerance for the sum of a belief's weights, which must be 1."""


def derive_hidden(
    text: str,
    *,
    model: MDP,
    path: Sequence[Sequence[object]],
    policies: Mapping[str, object],
    models: Mapping[str, MDP],
    terminated: bool,
    start_observed: bool,
    acted: Sequence[str],
    credible: BandSettings | None,
    causal_model: RequestedModel,
) -> Verdict:
    """Evaluate one formula on one path of observations; arguments and errors as for `derive`."""
    _check_causal_model(causal_model, (model, *models.values()))
    formula = parse(text)
    minds = _minds(model, policies)
    models = dict(sorted(models.items()))  # the order in which bands draw them
    check_models(models, model)
    actions = named_actions(formula, text, model, policies, models)
    _check_formula(formula, text, minds)
    pairs, before = _checked_path(path, minds)
    check_acted(acted, len(pairs), policies)
    acted = acted or ["nominal"] * len(pairs)
    _check_memory(acted, minds)
    watched, frame = HiddenPath(minds, pairs, acted, before), _frame(pairs, acted)

    def on(every: Sequence[MDP]) -> tuple[HiddenUnroll, Extremes]:
        """Return the evaluators on a model and the other models."""
        named = dict(zip((MAIN, *models), every, strict=True))
        start = before if every[0].emissions is None else _at_start(minds, every[0])
        seen = watched if every[0] is model else HiddenPath(Minds(every[0], minds.readers), pairs, acted, start)

        def unroll(setting: Setting) -> HiddenUnroll:
            evaluator = HiddenUnroll if causal_model == "gumbel" else HiddenBounds
            return evaluator(seen, setting.models, actions, terminated=terminated)

        setting = Setting(named, {}, None)
        return unroll(setting), Extremes(setting, actions, "gumbel", None, unroll)

    def ends(every: Sequence[MDP], goal: Goal) -> tuple[float, float]:
        values, extremes = on(every)
        band = extremes.quantity(goal, frame)
        return (values.quantity(goal, frame),) * 2 if band is None else band

    unrolled, extremes = on([model, *models.values()])
    derivation = Derivation(unrolled, frame, {}, causal_model, start_observed, None, extremes)
    try:
        verdict = derivation.verdict(formula, text)
        if credible is not None and verdict.quantities:
            begins = model.emissions is None or (start_observed and _begins(minds, before))
            networks = any(reader.width for reader in minds.readers.values())
            missing = NO_NETWORKS if networks else "" if begins else NOT_FROM_START
            if missing:
                verdict = replace(verdict, bands=_how(credible, missing))
            else:
                verdict = _with_credible(verdict, formula, [model, *models.values()], ends, credible)
    except RecursionError as error:
        raise LimitError(
            "the referee, which is recursive, cannot evaluate a formula nested this deeply; the exact engine can"
        ) from error
    missed, now = verdict.outcome in ("regret", "unavoidable"), watched.now
    belief, names, hidden = _likeliest(now), model.state_names, model.emissions is not None
    return replace(
        verdict,
        belief=belief,
        believed={names[state]: chance for state, chance in belief.items()} if hidden and names else None,
        likely={name: sum((now[s] for s in now if there[s]), 0.0) for name, there in model.labels.items()}
        if hidden
        else None,
        unseen=sum(seen is None for seen, _ in pairs) if hidden else None,
        evidence=prod(watched.chances),
        recourse=Recourse(reason=UNEXAMINED) if missed else None,
    )


def _check_causal_model(causal_model: RequestedModel, models: Iterable[MDP]) -> None:
    """Raise ConfigError if bounds over a class of causal models are not offered."""
    learned = any(each.counts is not None or (each.emissions and each.emissions.counts) for each in models)
    if causal_model == "stable" or (causal_model == "any" and learned):
        raise ConfigError(
            "where states are hidden, or policies remember, bounds are over any causal model, not the stable ones, and "
            "of a model that was not learned: use causal_model: any or gumbel"
        )


def _begins(minds: Minds, before: Belief) -> bool:
    """Return whether a belief is the one at the start of an episode."""
    start = _at_start(minds, minds.model)
    return start.keys() == before.keys() and all(abs(start[each] - before[each]) <= ROUNDING for each in start)


def _at_start(minds: Minds, model: MDP) -> Belief:
    assert model.initial is not None
    return {minds.fresh(state): chance for state, chance in enumerate(model.initial.tolist()) if chance > 0.0}


def _with_credible(
    verdict: Verdict,
    formula: Formula,
    models: Sequence[MDP],
    ends: Callable[[Sequence[MDP], Goal], tuple[float, float]],
    settings: BandSettings,
) -> Verdict:
    """Return the verdict with its credible bands."""
    goals, now = quantity_goals(formula), goals_now(formula) or ()
    effect = (1, 0) if isinstance(formula, Regret) else None
    bands, difference = credible_bands([*goals, *now], models, ends, settings, effect)
    of = {print_formula(goal): band for goal, band in zip(goals, bands, strict=False)}
    alone = len(goals) == 1
    quantities = tuple(replace(each, credible=bands[0] if alone else of[each.text]) for each in verdict.quantities)
    return replace(
        verdict,
        quantities=quantities,
        credible=quantities[-1].credible if alone or effect else None,
        effect_credible=difference,
        credible_now=(*bands[-2], *bands[-1]) if now else None,
        bands=_how(settings, NO_USES),
    )


def _how(settings: BandSettings, reason: str) -> Bands:
    """Return how credible bands are computed, and why one or the support is missing."""
    return Bands(settings.draws, settings.seed, settings.level, doubt=settings.doubt, reason=reason)


def beliefs(
    model: MDP, path: Sequence[Sequence[object]], policies: Mapping[str, object], acted: Sequence[str]
) -> list[tuple[float, ...]]:
    """Return the belief before each pair of a path, in the form of a stream: place, weight, place, weight, ...

    The first pair may have the belief before it as a third element. Without this element, the first belief is the
    belief at the start of an episode. `acted`: as for `derive`. Raises PathError, PolicyError, ConfigError, LimitError.
    """
    minds = _minds(model, policies)
    pairs, before = _checked_path(path, minds)
    watched = HiddenPath(minds, pairs, acted or ["nominal"] * len(pairs), before)
    return [minds.plain(watched.prior(k)) for k in range(len(pairs))]


def _minds(model: MDP, policies: Mapping[str, object]) -> Minds:
    if model.emissions is not None and model.initial is None:
        raise ConfigError("a model with hidden states needs `initial`: where an episode may begin")
    readers: dict[str, Reader] = {}
    for name, policy in policies.items():
        try:
            readers[name] = as_reader(policy, model)
        except PolicyError as error:
            raise PolicyError(f"policy {name!r}: {error}") from None
    return Minds(model, readers)


def _check_formula(formula: Formula, text: str, minds: Minds) -> None:
    """Raise FormulaError if a formula depends on something that is never observed.

    Also raise it if a formula hands control back to a policy with memory.
    """
    for node in subformulas(formula, nested=False):
        if isinstance(node, Label):
            raise error_at(f'"{node.name}" is about a state that nobody sees; ask how likely it is', text, node.at)
    for goal, changes, _ in goals(formula):
        measure = goal.measure
        if isinstance(measure, Probability) and any(isinstance(each, Goal) for each in subformulas(measure.path)):
            raise error_at("a nested quantity is a value of the hidden state, which nobody knows", text, 0)
        for change in changes:
            _check_change(change, text, minds)


def _check_change(change: InterventionRef, text: str, minds: Minds) -> None:
    if change.decides:
        raise error_at("decisions made for a goal need a state that is seen", text, change.at)
    names = ["nominal", *([change.name] if change.kind == "policy" else [])]
    if change.steps is not None and any(minds.readers[name].remembers for name in names):
        raise error_at("a policy that remembers takes over for good", text, change.at)


def _check_memory(acted: Sequence[str], minds: Minds) -> None:
    """Raise PathError if a policy that acted is not configured.

    Raise it also if several policies acted and one of them remembers, because its memory is then unknown.
    """
    if UNKNOWN_POLICY in acted:
        raise PathError("a policy that is not configured acted, and what it reads is not known")
    readers = {minds.readers[name].content(): minds.readers[name] for name in ("nominal", *acted)}
    if len(readers) > 1 and any(each.remembers for each in readers.values()):
        raise PathError("several policies acted, and one of them remembers: what it remembers then is not known")


def _checked_path(path: Sequence[Sequence[object]], minds: Minds) -> tuple[list[ObservedPair], Belief]:
    """Return the pairs as plain numbers, and the belief before the first one."""
    model = minds.model
    what, most = ("state", model.states) if model.emissions is None else ("observation", model.emissions.signals)
    if not path:
        raise PathError(f"the path is empty; it needs at least one pair ({what}, action)")
    first, *others = path
    if len(first) not in (2, 3) or any(len(pair) != 2 for pair in others):
        raise PathError(f"a pair ({what}, action) has two elements; the first may have the belief before it as a third")
    pairs: list[ObservedPair] = []
    for n, pair in enumerate(path):
        seen, action = (_number(each, n) for each in pair[:2])
        if seen is None and model.emissions is None:
            raise PathError(f"pair {n}: the state is missing; a model with emissions may do without")
        for name, given, size in ((what, seen, most), ("action", action, model.actions)):
            if given is not None and not 0 <= given < size:
                raise PathError(f"pair {n}: {name} {given} is outside 0..{size - 1}")
        pairs.append((seen, action))
    if len(first) == 3:
        return pairs, _belief(first[2], minds)
    if model.emissions is None:
        assert pairs[0][0] is not None
        return pairs, {minds.fresh(pairs[0][0]): 1.0}
    return pairs, _at_start(minds, model)


def _number(given: object, n: int) -> int | None:
    try:
        return None if given is None else index(given)  # type: ignore[arg-type]
    except TypeError as error:
        raise PathError(f"pair {n}: {given!r:.80} is no whole number") from error


def _belief(given: object, minds: Minds) -> dict[Place, float]:
    """Convert a belief from plain data."""
    listed = list(given) if isinstance(given, Iterable) else []
    if not listed or len(listed) % minds.size or not all(isinstance(each, int | float) for each in listed):
        raise PathError("pair 0: the belief before it is not place, weight, place, weight, ...")
    entries = [[float(each) for each in listed[n : n + minds.size]] for n in range(0, len(listed), minds.size)]
    keys, weights = [(place, *rest) for place, _, *rest in entries], [each[1] for each in entries]
    if any(one >= two for one, two in pairwise(keys)) or not all(
        place.is_integer() and 0 <= place < minds.places for place, *_ in keys
    ):
        raise PathError(
            f"pair 0: the places of the belief before it do not ascend, or are none of 0..{minds.places - 1}"
        )
    if not all(weight > 0.0 for weight in weights) or not isclose(sum(weights), 1.0, rel_tol=0.0, abs_tol=ROUNDING):
        raise PathError("pair 0: the belief before it has weights that are not positive, or not of sum 1")
    return {minds.place(int(place), rest): weight for (place, *rest), weight in zip(keys, weights, strict=True)}


def _frame(pairs: Sequence[ObservedPair], acted: Sequence[str]) -> Frame:
    """Return the frame of the path. It has no states, because states are in the places of `hidden_path`."""
    steps = tuple(
        PathStep(0, action, Regime(policy, MAIN, ended=False)) for (_, action), policy in zip(pairs, acted, strict=True)
    )
    return Frame(steps, (Regime("nominal", MAIN, ended=False),))


def _likeliest(now: Mapping[int, float]) -> dict[int, float]:
    """Return the likeliest states, in descending order of probability; rounding does not influence the selection."""
    ordered = sorted(now.items(), key=lambda each: (-round(each[1], BELIEF_DIGITS), each[0]))
    return dict(ordered[:MOST_BELIEVED])
