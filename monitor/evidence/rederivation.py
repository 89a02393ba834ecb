"""Derive an alarm's verdict again from its evidence, the model and the policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from monitor.errors import LimitError, MonitorError
from monitor.evaluation import check
from monitor.evaluation.bands import goal_numbers
from monitor.evaluation.models import AnyModel, AnyPolicy, sha256_of
from monitor.evaluation.procedures import DRAWS
from monitor.evidence.canonical import plain
from monitor.evidence.contradictions import TOLERANCE, differences, of_lengths
from monitor.evidence.document import Evidence
from monitor.evidence.maker import seen_states
from monitor.logic import parse
from monitor.logic.syntax import Formula, Goal, InterventionRef, Regret, WorldRef
from monitor.logic.traversal import goals_now, handover_goal, quantity_goals
from monitor.model import MDP
from monitor.policy.controller import Reader
from monitor.policy.table import PolicyTable
from monitor.referee import TOO_LARGE, beliefs, derive
from monitor.referee.numbers import Given, left, mean
from monitor.referee.world_fits import credible_bands
from monitor.types.specs import BandSettings, RequestedModel
from monitor.types.stream_events import State
from monitor.types.verdicts import Changes, RestsOn, Verdict
from monitor.worlds import CheckedWorld, Moment
from monitor.worlds.world_policies import WorldPolicy

Policies = Mapping[str, AnyPolicy]


class Derived(NamedTuple):
    """The derived verdict, followed by the verdict of a second program if the first program needed it.

    `helped`: texts about the numbers that the second program computed.
    """

    verdicts: Sequence[Verdict]
    helped: tuple[str, ...] = ()


class Deriver(NamedTuple):
    """A program that derives the verdict of an alarm again.

    `name`: name of the program in the output of `cfmon verify`. `derive`: derives the verdict from the evidence's path
    and text, the model, the policies and the other models. It raises MonitorError if there is no verdict, and
    LimitError if the program does not support the formula.
    """

    name: str
    derive: Callable[[Evidence, AnyModel, Policies, Mapping[str, AnyModel]], Derived]


class Rederivation(NamedTuple):
    """Result of deriving an alarm again.

    `problems`: one sentence for each problem. `by`: name of the program that derived a verdict; None if none did.
    `notes`: sentences on why earlier programs gave no verdict, and on numbers that this program could not compute
    itself.
    """

    problems: list[str]
    by: str | None
    notes: tuple[str, ...] = ()


def derive_again(
    evidence: Evidence,
    model: AnyModel,
    tables: Policies,
    models: Mapping[str, AnyModel] | None = None,
    derivers: Sequence[Deriver] | None = None,
) -> Rederivation:
    """Derive the verdict of evidence without `contradictions`, by the first of `derivers` that supports it.

    The default is `ENGINE`. If a list does not have the path's length, or if the models are not those of the evidence,
    the result has only these problems, because any verdict would be about another path or model.
    """
    problems = [*of_lengths(evidence), *_of_models(evidence, model, models or {})]
    if problems:
        return Rederivation(problems, None)
    problems = list(_of_policies(evidence, model, tables))
    notes: tuple[str, ...] = ()
    try:
        problems += _of_beliefs(evidence, model, tables)
    except LimitError as error:
        notes += (f"without the beliefs before each pair: {_first_line(error)}",)
    except MonitorError as error:
        problems.append(f"inputs: no belief follows: {_first_line(error)}")
    for deriver in derivers or (ENGINE,):
        try:
            derived = deriver.derive(evidence, model, tables, models or {})
        except LimitError as error:
            notes += (f"not by the {deriver.name}: {_first_line(error)}",)
        except MonitorError as error:
            return Rederivation([*problems, f"no verdict follows: {_first_line(error)}"], None, notes)
        else:
            found: dict[str, str] = {}
            for verdict in derived.verdicts:
                for problem in differences("verdict", plain(evidence.verdict), plain(verdict)):
                    found.setdefault(problem.partition(":")[0], problem)
            return Rederivation([*problems, *found.values()], deriver.name, (*notes, *derived.helped))
    return Rederivation([*problems, f"no verdict follows: {notes[-1]}"], None, notes)


def _verdict(evidence: Evidence, model: AnyModel, tables: Policies, models: Mapping[str, AnyModel]) -> Verdict:
    """Return the verdict of the engine that the stream uses. A sampled verdict is sampled again with the same noise."""
    drawn = evidence.verdict.drawn
    verdict = check(
        evidence.text,
        model=model,
        path=_given_path(evidence, tables),
        policies=tables,
        engine="auto" if evidence.causal_model == "world" else "exact" if drawn is None else "sampled",
        causal_model=_requested(evidence),
        terminated=evidence.terminated,
        start_observed=evidence.start_observed,
        models=models,
        drawn=drawn,
        bands=_band_settings(evidence),
        acted=evidence.acted,
        recourse=evidence.verdict.recourse is not None,
    )
    sampled = drawn is not None and evidence.causal_model != "world"
    return replace(verdict, reason=evidence.verdict.reason) if sampled else verdict


def _band_settings(evidence: Evidence) -> BandSettings | None:
    """Return the settings with which the bands of the recorded verdict were computed; None if it has none."""
    bands, default = evidence.verdict.bands, BandSettings()
    if bands is None:
        return None
    level = default.level if bands.level is None else bands.level
    delta = default.delta if bands.delta is None else bands.delta
    return BandSettings(bands.draws or bands.fits, bands.seed, level, delta, bands.doubt)


ENGINE: Final = Deriver("engine", lambda *given: Derived([_verdict(*given)]))
"""The engine used on the stream. It computes exactly, or samples again if the verdict was sampled."""


def _by_referee(evidence: Evidence, model: AnyModel, tables: Policies, models: Mapping[str, AnyModel]) -> Derived:
    """Return the verdict of the referee, which samples only in a world with numbers.

    If the referee cannot compute all numbers, return the engine's verdict too. The first verdict then contains the
    numbers that only the engine computes.
    """
    recorded = evidence.verdict
    if not isinstance(model, MDP):
        return _drawn_again(evidence, model, tables, models)
    assert evidence.causal_model != "world", "its verdict was for a table"
    if recorded.drawn is not None:
        raise LimitError("a sampled verdict has to be drawn again, with the noise it was drawn with")
    delta: float | None = (_band_settings(evidence) or BandSettings()).delta
    again = partial(
        derive,
        evidence.text,
        model=model,
        path=_given_path(evidence, tables),
        policies={name: table for name, table in tables.items() if isinstance(table, PolicyTable | Reader)},
        models={name: other for name, other in models.items() if isinstance(other, MDP)},
        causal_model=evidence.causal_model,
        terminated=evidence.terminated,
        start_observed=evidence.start_observed,
        acted=evidence.acted,
        recourse=recorded.recourse is not None,
        basis=recorded.bands is not None and recorded.bands.draws > 0,
    )
    helped: list[str] = []
    if recorded.bands is not None and recorded.bands.draws > 0 and any(isinstance(t, Reader) for t in tables.values()):
        with suppress(LimitError):  # then the engine computes the missing numbers
            return Derived([again(delta=delta, credible=_band_settings(evidence))])
    try:
        derived = again(delta=delta)
    except LimitError:
        if recorded.bands is None:
            raise
        delta, derived = None, again(delta=None)
        helped.append("and by the engine the guaranteed band, which is too large for the referee")
    unexamined = _unexamined(recorded, derived)
    if recorded.bands is None and not unexamined:
        return Derived([derived])
    other = _verdict(evidence, model, tables, models)
    if unexamined:
        derived = replace(derived, recourse=other.recourse)
        helped.append(unexamined)
    if recorded.bands is not None:
        pairs = [*zip(derived.quantities, other.quantities, strict=True)]
        if delta is not None and any(one.guaranteed is not None and two.guaranteed is None for one, two in pairs):
            delta = None
            helped.append("without the guaranteed band, which is too large for the engine")
        uncounted = any(one.rests_on is None and two.rests_on is not None for one, two in pairs)
        derived = _completed(derived, other, guaranteed=delta is None)
        if recorded.bands.draws > 0:
            alone = "the credible band, the support and the pairs to visit"
            helped.append(f"and by the engine, which alone computes {alone}{', and what values rest on' * uncounted}")
    return Derived([derived, other], tuple(helped))


def given_of(evidence: Evidence, world: CheckedWorld, tables: Policies, models: Mapping[str, AnyModel]) -> Given:
    """Return the evidence of an alarm on a world with numbers, in the referee's form and with one sample."""
    drawn = evidence.verdict.drawn
    inputs = evidence.inputs or ((),) * len(evidence.path)
    return Given(
        path=[Moment(*pair, each) for pair, each in zip(evidence.path, inputs, strict=True)],
        first=evidence.seq - (len(evidence.path) - 1),
        terminated=evidence.terminated,
        worlds={"": world, **{name: each for name, each in models.items() if isinstance(each, CheckedWorld)}},
        policies={name: each.decide for name, each in tables.items() if isinstance(each, WorldPolicy)},
        seed=0 if drawn is None else drawn.seed,
        draws=1,
        acted=evidence.acted,
        see_inputs={name for name, each in tables.items() if isinstance(each, WorldPolicy) and each.sees_inputs},
    )


def _drawn_again(evidence: Evidence, world: CheckedWorld, tables: Policies, models: Mapping[str, AnyModel]) -> Derived:
    """Return the verdict on a world with numbers, with values from the referee's own samples.

    The quantities come from the engine's verdict, because the recorded quantities may be forged. The engine also checks
    the path.
    """
    verdict, formula = _verdict(evidence, world, tables, models), parse(evidence.text)
    asked, given = quantity_goals(formula), given_of(evidence, world, tables, models)
    number, late = goal_numbers(verdict, asked), handover_goal(formula)
    quantities = tuple(
        replace(
            each,
            value=mean(asked[number[each.text]], _with_draws(given, each.samples)),
            rests_on=_left_again(each.rests_on, late or asked[number[each.text]], given),
        )
        for each in verdict.quantities
    )
    profile, recourse = dict(verdict.profile), verdict.recourse
    helped: tuple[str, ...] = ()
    if verdict.method == "sampled":
        helped += ("and by the engine what follows from these draws: intervals, and whether they decide",)
    if isinstance(formula, Regret):
        drawn = given._replace(draws=DRAWS)
        for offset in profile.keys() - {verdict.offset}:
            at = [dataclasses.replace(goal, world=dataclasses.replace(goal.world, offset=offset)) for goal in asked]
            profile[offset] = mean(at[0], drawn), mean(at[1], drawn)
        if profile:
            profile[verdict.offset] = quantities[0].value, quantities[1].value
        if recourse is not None and recourse.changes is not None:
            value = _changed(asked[0], recourse.changes, verdict.offset, given)
            recourse = replace(recourse, changes=replace(recourse.changes, value=value))
            helped += ("and by the engine that no other single decision is better",)
    if late is not None:
        drawn, stays = given._replace(draws=DRAWS), dataclasses.replace(late, world=WorldRef())
        profile = {0: (mean(stays, drawn), mean(late, drawn))}
    derived = replace(verdict, quantities=quantities, profile=profile, recourse=recourse)
    return Derived([_with_fits(derived, formula, asked, given), verdict], helped)


def _with_draws(given: Given, samples: int) -> Given:
    """Return `given` with this number of samples; 0 if no noise matters to the quantity."""
    return given._replace(draws=max(samples, 1), certain=not samples)


def _left_again(recorded: RestsOn | None, goal: Goal, given: Given) -> RestsOn | None:
    """Return the recorded `rests_on` of a value, with the referee's fraction of samples that leave the recordings."""
    found = None if recorded is None else left(goal, given._replace(draws=DRAWS))
    return recorded if recorded is None or found is None else replace(recorded, never=found)


def _with_fits(verdict: Verdict, formula: Formula, asked: Sequence[Goal], given: Given) -> Verdict:
    """Return a verdict on a learned world, with the credible band that the referee finds at the same level."""
    how = verdict.bands
    if how is None or how.level is None:
        return verdict
    regret, now = verdict.outcome is not None, list(goals_now(formula) or ())
    nested = any(handover_goal(goal) is not None for goal in asked)
    goals = [*([] if nested else asked), *now]
    found = credible_bands(goals, given._replace(draws=DRAWS), how.fits, how.level, effect=regret)
    own, other = found.goals[-2:] if now else (None, None)
    verdict = replace(verdict, credible_now=None if own is None or other is None else (*own, *other))
    if nested:
        return verdict
    number = goal_numbers(verdict, asked)
    quantities = tuple(replace(each, credible=found.goals[number[each.text]]) for each in verdict.quantities)
    return replace(
        verdict,
        quantities=quantities,
        credible=quantities[-1].credible if regret or len(asked) == 1 else None,
        effect_credible=found.effect if regret else None,
    )


def _changed(goal: Goal, changes: Changes, offset: int, given: Given) -> float:
    """Return the value of a goal at an offset if one decision is changed."""
    world = WorldRef(InterventionRef("action", changes.proposed_name, 1), None, goal.world.offset)
    back = offset if offset >= 0 else len(given.path) + offset
    later = back - changes.offset
    return mean(dataclasses.replace(goal, world=world), given._replace(draws=max(changes.samples, 1)), later)


def _unexamined(recorded: Verdict, derived: Verdict) -> str:
    """Return why the referee's recourse is not used; empty if it is used."""
    one, other = recorded.recourse, derived.recourse
    if other is None or one is None:
        return ""
    if other.reason == TOO_LARGE:
        return "and by the engine whether the goal could have been met, which is too large for the referee"
    if one.avoidable is None and other.avoidable is not None:
        return "without whether the goal could have been met, which is too large for the engine"
    return ""


def _completed(derived: Verdict, other: Verdict, *, guaranteed: bool) -> Verdict:
    """Return the referee's verdict, completed with the numbers that only the engine computes on a learned model.

    `guaranteed`: whether the guaranteed band, and the fields that follow from it, also come from the engine.
    """
    quantities = []
    for one, two in zip(derived.quantities, other.quantities, strict=True):
        counted = two.rests_on if two.rests_on is None else one.rests_on or two.rests_on
        quantity = replace(one, credible=two.credible, support=two.support, rests_on=counted)
        if guaranteed:
            quantity = replace(quantity, guaranteed=two.guaranteed, robust=two.robust)
        quantities.append(quantity)
    found = replace(
        derived,
        quantities=tuple(quantities),
        credible=other.credible,
        effect_credible=other.effect_credible,
        credible_now=other.credible_now,
        support=other.support,
        to_visit=other.to_visit,
        bands=other.bands,
    )
    if not guaranteed:
        return found
    ends = other.guaranteed, other.effect_guaranteed
    return replace(found, guaranteed=ends[0], effect_guaranteed=ends[1], robust=other.robust)


REFEREE: Final = Deriver("referee", _by_referee)
"""A plain evaluator that shares neither code nor method with the engine (`monitor.referee`)."""


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, without the excerpt and the caret that may follow."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _of_models(evidence: Evidence, model: AnyModel, models: Mapping[str, AnyModel]) -> Iterator[str]:
    given = sha256_of(model)
    if given != evidence.model_sha256:
        yield f"model: {evidence.model_sha256} is recorded, the model given has {given}"
    others = {name: sha256_of(other) for name, other in models.items()}
    yield from differences("models", plain(evidence.models), plain(others))


def _of_policies(evidence: Evidence, model: AnyModel, tables: Policies) -> Iterator[str]:
    """Compare each policy's choices in the states, or for the observations, of the path."""
    if tables.keys() != evidence.policies.keys():
        yield f"policies: {', '.join(evidence.policies)} are recorded, {', '.join(sorted(tables))} are given"
    inputs = evidence.inputs or ((),) * len(evidence.path)
    known = [(pair, each) for pair, each in zip(evidence.path, inputs, strict=True) if _has(model, pair[0])]
    for name in sorted(tables.keys() & evidence.policies.keys()):
        seen = seen_states(tables[name], [pair for pair, _ in known], [each for _, each in known])
        derived = [(state, tables[name].choices(state)) for state in seen]
        yield from differences(f"policies.{name}.choices", plain(evidence.policies[name].choices), plain(derived))


def _has(model: AnyModel, state: State) -> bool:
    if isinstance(model, CheckedWorld):
        return isinstance(state, tuple) and len(state) == len(model.features) and not model.outside(state)
    shown = model.states if model.emissions is None else model.emissions.signals
    return isinstance(state, int) and 0 <= state < shown


def _of_beliefs(evidence: Evidence, model: AnyModel, tables: Policies) -> Iterator[str]:
    """Compare each recorded belief with the belief that follows from the first belief, or from an observed start."""
    readers = {name: table for name, table in tables.items() if isinstance(table, Reader)}
    if not readers or not isinstance(model, MDP) or not evidence.inputs:
        return
    path = evidence.path if evidence.start_observed else _given_path(evidence, tables)
    derived = beliefs(model, path, readers, evidence.acted)
    size = 2 + sum(each.width for each in {reader.content(): reader for reader in readers.values()}.values())
    for k, (recorded, follows) in enumerate(zip(evidence.inputs, derived, strict=True)):
        held, due = _entries(recorded, size), _entries(follows, size)
        if len(recorded) != size * len(held) or list(held) != sorted(held):
            yield f"inputs[{k}]: the belief is not place, weight, place, weight, ... with places that ascend"
            return
        for place in sorted(held.keys() | due.keys()):
            one, other = held.get(place, 0.0), due.get(place, 0.0)
            if abs(one - other) > TOLERANCE:
                yield f"inputs[{k}]: the belief has {one!r} at place {place[0]:g}, {other!r} follows"
                return  # later beliefs depend on this one


def _entries(belief: Sequence[float], size: int) -> dict[tuple[float, ...], float]:
    """Return (place, network memory) -> weight of a belief. `size`: count of numbers in an entry."""
    entries = [belief[n : n + size] for n in range(0, len(belief) - size + 1, size)]
    return {(place, *remembered): weight for place, weight, *remembered in entries}


def _given_path(evidence: Evidence, tables: Policies) -> Sequence[Sequence[Any]]:
    """Return the path in the form of `check`: with recorded inputs or the belief before the path, if there are any."""
    if not evidence.inputs:
        return evidence.path
    if any(isinstance(table, Reader) for table in tables.values()):
        first, *others = evidence.path
        return [(*first, evidence.inputs[0]), *others]
    return [(*pair, inputs) for pair, inputs in zip(evidence.path, evidence.inputs, strict=True)]


def _requested(evidence: Evidence) -> RequestedModel:
    """Return the class of causal models to request. A world with numbers is its own causal model."""
    return "gumbel" if evidence.causal_model == "world" else evidence.causal_model
