"""Verdicts on worlds with numbers: checks of the inputs, and the sampled engine, which samples only if necessary."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from operator import index
from typing import Any, get_args

import numpy as np
from msgspec.structs import replace

from monitor.errors import ConfigError, LimitError, PathError
from monitor.evaluation.bands import goal_numbers
from monitor.evaluation.basis import compared
from monitor.evaluation.one_decision import with_one_decision
from monitor.evaluation.procedures import DRAWS
from monitor.evaluation.sampled_checker import ERRORS, SampledChecker, estimated
from monitor.evaluation.simulated import check_simulated_labels
from monitor.exact.verdict import latest_useful, resolve
from monitor.logic import Formula
from monitor.logic.parser import error_at
from monitor.logic.printer import print_change
from monitor.logic.syntax import Goal, InterventionRef, Probability, Regret, Reward, WorldRef
from monitor.logic.traversal import goals, handover_goal, quantity_goals, regret_goals
from monitor.sampled import Simulated
from monitor.sampled.dynamics import WorldDynamics
from monitor.sampled.sampler import AnyQuestion, Question
from monitor.types.specs import Engine
from monitor.types.verdicts import Drawn, RestsOn, Tier, Verdict
from monitor.worlds import CheckedWorld, Moment, is_world, load_world, numbers_of
from monitor.worlds.checked import NO_REWARDS
from monitor.worlds.world_policies import WorldPolicy, as_world_policy

STARTS = 64
"""Number of first states from which the recorded support of values is estimated before anything is observed."""
DRAWN = "noise must be drawn, as that of its held steps is not known as a point, or it looks beyond the path"


class WorldChecker:
    """Evaluates formulas on one world with numbers.

    Args:
        model: a `World`, checked or not. The attribute is the checked world.
        policies: name -> a function of states [n, f] that gives actions [n] or distributions [n, A], or the path of a
            manifest; `nominal` is the deployed one.
        models: name -> another world with the same features, actions and noise, for `model:name`.
    """

    learned = False  # in the sense of `Vocabulary`, because no formula on a world has a guaranteed band

    def __init__(self, model: object, policies: Mapping[str, object], models: Mapping[str, object]) -> None:
        self.model = load_world(model)
        self.models = {name: _other(name, each, self.model) for name, each in models.items()}
        self.policies: Mapping[str, WorldPolicy] = {
            name: as_world_policy(name, each, self.model) for name, each in policies.items()
        }
        self.scene = Simulated(self.model, self.policies, self.models, self.model.action_names)
        self.sampled = SampledChecker(self.scene)

    def validate(self, formula: Formula, text: str) -> None:
        """Raise FormulaError at the first name that does not exist, and for features that worlds do not support."""
        self.scene.validate(formula, text)
        check_simulated_labels(self.model.labels, formula, text)
        if not self.model.has_rewards and any(isinstance(goal.measure, Reward) for goal, _, _ in goals(formula)):
            raise error_at(f"{self.model} has no rewards: {NO_REWARDS}", text, 0)

    def path(self, given: Any) -> list[Moment]:  # noqa: ANN401 - whatever the user gives
        """Return a path of (state, action) or (state, action, inputs), after checking that each step is possible.

        Raises PathError, which names the pair.
        """
        if not isinstance(given, Iterable):
            raise PathError(f"a path is a list of pairs (state, action), not {given!r:.100}")
        moments: list[Moment] = []
        for n, pair in enumerate(given):
            with _pair(n):
                moments.append(self._moment(pair))
        if not moments:
            raise PathError("the path is empty; it needs at least one pair (state, action)")
        for n, (moment, following) in enumerate(pairwise(moments)):
            with _pair(n):
                if moment.action is None:
                    raise PathError("only the last pair may lack its action")
                self._dynamics.given(moment, following.state)
        return moments

    def verdict(
        self,
        formula: Formula,
        text: str,
        path: Sequence[Moment],
        drawn: Drawn,
        *,
        engine: Engine,
        terminated: bool = False,
        start_observed: bool = True,
        acted: Sequence[str] = (),
    ) -> Verdict:
        """Return the verdict on a path that `path` returned.

        Raises LimitError if `engine` is `exact` and the verdict needs samples.
        """
        verdict = self.sampled.verdict(
            formula,
            path,
            drawn,
            text=text,
            terminated=terminated,
            start_observed=start_observed,
            why=f"sampled, because {DRAWN}" if engine == "auto" else "",
            acted=acted,
            spare=engine != "sampled",
        )
        ask = partial(self.sampled.question, path=path, drawn=drawn, terminated=terminated, acted=acted)
        late = handover_goal(formula)
        if late is not None:
            verdict = _with_values_now(verdict, late, ask, drawn)
        elif isinstance(formula, Regret) and verdict.outcome != "safe":
            verdict = _with_profile(verdict, formula, ask, drawn)
        verdict = self._with_basis(verdict, formula, ask)
        if engine == "exact" and verdict.method != "exact":
            raise LimitError(f"{text}: {DRAWN}; use engine 'auto'")
        resampled = self.resampled_from(verdict, formula, path)
        return replace(verdict, causal_model="world", tiers=self._tiers(formula, path), resampled_from=resampled)

    def with_recourse(
        self, verdict: Verdict, formula: Formula, path: Sequence[Moment], *, terminated: bool, acted: Sequence[str]
    ) -> Verdict:
        """Return the verdict on `path`; for a missed goal, add the one decision whose change would have met it."""
        names = self.model.action_names
        return with_one_decision(verdict, formula, self.sampled, path, names, terminated=terminated, acted=acted)

    def _with_basis(self, verdict: Verdict, formula: Formula, ask: partial[AnyQuestion]) -> Verdict:
        """Return the verdict on a missed goal with the recorded support of each value, from `DRAWS` samples.

        For `handover` this is the value after a handover now, whether the goal is missed or not.
        """
        late = handover_goal(formula)
        if verdict.outcome == "safe" or (verdict.holds and late is None) or verdict.value is not None:
            return verdict
        asked = quantity_goals(formula) if late is None else [late]
        number = goal_numbers(verdict, asked)
        found = (replace(each, rests_on=self._basis(asked[number[each.text]], ask)) for each in verdict.quantities)
        return replace(verdict, quantities=tuple(found))

    def _basis(self, goal: Goal, ask: partial[AnyQuestion], draws: int = DRAWS) -> RestsOn | None:
        """Return the recorded support of the value of a goal, in its first world.

        None if the recordings are unknown, and for `handover`, whose samples contain nested samples.
        """
        change = goal.world.change
        steps = (self.models[change.name] if change.kind == "model" else self.model).learned_from
        if not steps:
            return None
        question = ask(goal, watched=True)
        return RestsOn(steps, None, question.left(range(draws))) if isinstance(question, Question) else None

    def rests_on(self, formula: Formula) -> dict[str, RestsOn]:
        """Return intervention as text -> recorded support of the values of a formula, before anything is observed.

        The values start in `STARTS` states drawn uniformly from the recorded ranges.
        """
        found: dict[str, RestsOn] = {}
        for change, measure in compared(formula):
            goal = Goal(WorldRef(change), measure)
            asks = (partial(self.sampled.question, path=[start], drawn=None) for start in self._starts())
            known = [part for ask in asks if (part := self._basis(goal, ask, DRAWS // STARTS)) is not None]
            if known:
                never = sum(each.never for each in known) / len(known)
                found.setdefault(print_change(change), RestsOn(known[0].steps, None, never))
        return found

    def _starts(self) -> list[Moment]:
        """Return states and inputs in the recorded ranges; empty if the world has no record of these ranges."""
        generator = np.random.Generator(np.random.Philox(key=0))
        drawn = self.model.recorded_numbers(
            generator.random((STARTS, 1 + len(self.model.features + self.model.inputs)))
        )
        width = len(self.model.features)
        return [Moment(tuple(row[:width]), None, tuple(row[width:])) for row in drawn.tolist()]

    @property
    def fits(self) -> int:
        """The smallest number of fits among the worlds with fits; 0 if no world has fits."""
        return min((len(each.fits) for each in (self.model, *self.models.values()) if each.fits), default=0)

    def fit(self, number: int) -> SampledChecker:
        """Return a sampled checker on one fit of each world. A world without fits is used itself."""
        model, *others = (each.fits[number] if each.fits else each for each in (self.model, *self.models.values()))
        models = dict(zip(self.models, others, strict=True))
        return SampledChecker(Simulated(model, self.policies, models, model.action_names))

    @property
    def _dynamics(self) -> WorldDynamics:
        dynamics = self.scene.world(InterventionRef("nominal")).dynamics
        assert isinstance(dynamics, WorldDynamics)
        return dynamics

    def _moment(self, pair: Any) -> Moment:  # noqa: ANN401 - whatever the user gives
        try:
            state, action, *rest = pair
            chosen = action if action is None else self._action(action)
        except (TypeError, ValueError, IndexError) as error:
            raise PathError(
                "a pair is (state, action), or (state, action, inputs): numbers and the number or name of an action, "
                f"such as ([3.2], 0), not {pair!r:.100}"
            ) from error
        try:
            features = numbers_of(state, self.model.features, "state")
            inputs = numbers_of(rest[0] if rest else (), self.model.inputs, "inputs")
        except ValueError as error:
            raise PathError(str(error)) from None
        if problem := self.model.outside(features, inputs):
            raise PathError(f"out of range: {problem}")
        return Moment(features, chosen, inputs)

    def _action(self, action: object) -> int:
        names = self.model.action_names
        if isinstance(action, str):
            return names.index(action)
        number = index(action)  # type: ignore[arg-type] # raises TypeError
        if not 0 <= number < len(names):
            raise PathError(f"action {number} is outside 0..{len(names) - 1}")
        return number

    def resampled_from(self, verdict: Verdict, formula: Formula, path: Sequence[Moment]) -> int | None:
        """Return the number of recorded steps from which inputs were resampled; None if none were resampled.

        If worlds differ, the smallest number is returned.
        """
        if verdict.drawn is None:
            return None
        found = set[int]()
        for goal, changes, offset in goals(formula):
            held = 0 if verdict.profile else len(path) - 1 - resolve(offset, len(path))[1]
            late = handover_goal(goal)
            last = self._last_read(goal) + (0 if late is None else self._last_read(late))
            if last > held + 1:  # the next state depends on inputs that were recorded
                worlds = [self.models[each.name] if each.kind == "model" else self.model for each in changes]
                found |= {each.recorded_steps for each in worlds}
        return min(found - {0}, default=None)

    def _last_read(self, goal: Goal) -> int:
        """Return the number of steps from a goal's offset to the last state that the goal reads."""
        automaton = self.scene.automaton(goal.measure)
        return automaton.horizon(automaton.start) - isinstance(goal.measure, Probability)

    def _tiers(self, formula: Formula, path: Sequence[Moment]) -> tuple[Tier, ...]:
        """Return the tiers of knowledge about the noise of the observed steps that a formula looks back at."""
        starts = [resolve(offset, len(path))[1] for _, _, offset in goals(formula)]
        found: set[Tier] = {"recorded"} if self.model.inputs else set()
        found |= {"learned"} if self.model.learned else set()
        held = path[min(starts, default=len(path)) :]
        for pair, following in pairwise(held):
            noise = self._dynamics.given(pair, following.state).noise
            assert noise is not None
            if noise.posterior is not None:
                found.add("posterior")
            elif self.model.noise:
                found.add("point" if noise.is_point else "interval")
        return tuple(tier for tier in get_args(Tier) if tier in found)


def _with_profile(verdict: Verdict, formula: Regret, ask: partial[AnyQuestion], drawn: Drawn) -> Verdict:
    """Return the verdict with the values of both policies for a takeover at each step since the formula's offset.

    At the offset, these are the verdict's own values. Later values that need noise are means of `DRAWS` samples.
    """
    one, other = regret_goals(formula)
    assert one.test is not None
    if verdict.offset < 0:
        return verdict
    larger = one.test.comparison in (">=", ">")
    values: dict[int, tuple[float, float]] = {}
    most: list[float] = []  # best values under nominal
    least: list[float] = []  # worst values under the alternative
    was_drawn = verdict.drawn is not None
    for offset in range(verdict.offset):
        pair = []
        for goal, ends, best in ((one, most, larger), (other, least, not larger)):
            at = dataclasses.replace(goal, world=dataclasses.replace(goal.world, offset=offset))
            value, error = estimated(ask(at))
            was_drawn |= error is not None
            pair.append(value)
            ends.append(value + (ERRORS if best else -ERRORS) * (error or 0.0))
        values[offset] = pair[0], pair[1]
    nominal, alternative = verdict.quantities
    values[verdict.offset] = nominal.value, alternative.value
    useful = latest_useful(one.test, most, least) if most else None
    if useful is None and verdict.outcome == "regret":
        useful = verdict.offset
    return replace(verdict, profile=values, latest_useful=useful, drawn=drawn if was_drawn else None)


def _with_values_now(verdict: Verdict, late: Goal, ask: partial[AnyQuestion], drawn: Drawn) -> Verdict:
    """Return the verdict on `handover` with the values of its goal under nominal and after a handover now."""
    (stays, one), (given, other) = (
        estimated(ask(goal)) for goal in (dataclasses.replace(late, world=WorldRef()), late)
    )
    assert late.test is not None
    at_worst = given + (-ERRORS if late.test.comparison in (">=", ">") else ERRORS) * (other or 0.0)
    was_drawn = verdict.drawn is not None or one is not None or other is not None
    return replace(
        verdict,
        profile={0: (stays, given)},
        latest_useful=0 if late.test.holds(at_worst) else None,
        drawn=drawn if was_drawn else None,
    )


@contextmanager
def _pair(n: int) -> Iterator[None]:
    """Name the pair in a PathError."""
    try:
        yield
    except PathError as error:
        raise PathError(f"pair {n}: {error}") from error


def _other(name: str, model: object, main: CheckedWorld) -> CheckedWorld:
    if not is_world(model):
        raise ConfigError(f"model {name!r} is no world with numbers, and the main model is one; give it as one too")
    other = load_world(model)
    if differs := main.different_from(other):
        raise ConfigError(f"model {name!r}: its {differs} are not those of the main model; both worlds need the same")
    return other
