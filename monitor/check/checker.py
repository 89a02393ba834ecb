"""Answer a formula on an observed path, exactly.

Kazemi & Paoletti, Section 3.2 (semantics of PCFTL); where the paper samples, this computes (semantics, section 6).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Literal, assert_never

import numpy as np

from monitor.causal import Intervention, Law, RowMemo, World
from monitor.check import chain
from monitor.check.names import validate
from monitor.check.tail import Letters, NestedGoal, Tail
from monitor.errors import ConfigError, PathError
from monitor.logic import Automaton, Collector, Program, parse, print_formula
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Change,
    Const,
    Formula,
    Goal,
    Label,
    Not,
    Or,
    Probability,
    Regret,
    Reward,
    Until,
    WorldRef,
)
from monitor.model import MDP, encode_action
from monitor.policy import PolicyTable, as_table
from monitor.types import CausalModel, Quantity, Verdict

__all__ = ["Checker", "Path", "check", "tables"]

Path = Sequence[tuple[int, int | None]]

MAX_TAILS = 256
"""Tables of what lies ahead kept at once; a table is wanted again as long as its formula is watched."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A quantity of one world: its value, its bounds where asked for, and the offset really used."""

    value: float
    bounds: tuple[float, float] | None
    offset: int
    clipped: bool


@dataclass(frozen=True, slots=True)
class _Truth:
    """A truth value, and the values it could have under the causal models of the class asked for."""

    holds: bool
    possible: frozenset[bool]


class Checker:
    """Answers formulas over one model and its policies, keeping what paths and formulas share.

    Args:
        model: the world.
        policies: name -> table; `nominal` is the deployed one.
        models: name -> other dynamics over the same states and actions, for `model:name`.
    """

    def __init__(
        self, model: MDP, policies: Mapping[str, PolicyTable], models: Mapping[str, MDP] | None = None
    ) -> None:
        if "nominal" not in policies:
            raise ConfigError("no policy is called 'nominal'; it names the deployed one, so name it under policies")
        self.model = model
        self.policies = dict(policies)
        self.models = {name: _same_space(model, other, name) for name, other in (models or {}).items()}
        self.rows: RowMemo = {}
        self._programs: dict[Probability | Reward, Program] = {}
        self._tails: OrderedDict[tuple[Law, Probability | Reward], Tail] = OrderedDict()
        self._ended: OrderedDict[tuple[str, int], MDP] = OrderedDict()

    def check(
        self,
        formula: Formula,
        path: Path,
        *,
        causal_model: CausalModel = "gumbel",
        terminated: bool = False,
        start_observed: bool = True,
        text: str | None = None,
    ) -> Verdict:
        """Answer a validated formula on a possible path (oldest pair first); see `check` for the arguments."""
        question = _Question(self, tuple(path), causal_model, terminated=terminated)
        text = text or print_formula(formula)
        verdict = question.regret(formula, text) if isinstance(formula, Regret) else question.plain(formula, text)
        return replace(verdict, start_dropped=not start_observed and _asks_from_start(formula))

    def tail(self, law: Law, measure: Probability | Reward) -> Tail:
        """The table of what lies ahead, for a law and a measure."""
        key = (law, measure)
        if key not in self._tails:
            program = self._program(measure)
            nested = {
                bit: NestedGoal(atom, self._arm_of(law, atom))
                for bit, atom in enumerate(program.atoms)
                if isinstance(atom, Goal)
            }
            self._tails[key] = Tail(law, program, Letters(program, self.model, nested))
            if len(self._tails) > MAX_TAILS:
                self._tails.popitem(last=False)
        self._tails.move_to_end(key)
        return self._tails[key]

    def prepare(self, formula: Formula) -> None:
        """Compute what a formula needs on any path, so that the first message meets warm tables.

        Raises LimitError where a table would be too large: at start, not on the stream.
        """
        nominal = self.nominal(None)
        for goal, changes in _goals(formula):
            for change in changes:
                tail = self.tail(nominal.under(self.intervention(change, None)), goal.measure)
                tail.value(0, tail.program.start)

    def nominal(self, end: int | None) -> Law:
        """The deployed policy's law; `end`: the state an episode has terminated in, absorbing from then on."""
        return Law.stationary(self.policies["nominal"], self.model, self._ending("", self.model, end))

    def intervention(self, change: Change, end: int | None) -> Intervention:
        """What a change in a formula stands for."""
        match change.kind:
            case "nominal":
                return Intervention()
            case "policy":
                return Intervention(self.policies[change.name], change.steps)
            case "action":
                action = encode_action(self.model, int(change.name) if change.name.isdigit() else change.name)
                return Intervention(self._held(action), change.steps)
            case "model":
                other = self.models[change.name]
                return Intervention(dynamics=other, future=self._ending(change.name, other, end))
            case _:
                assert_never(change.kind)

    def _held(self, action: int) -> PolicyTable:
        key = f"do({action})"  # no policy can be called that: it is not a name
        if key not in self.policies:
            self.policies[key] = PolicyTable(actions=np.full(self.model.states, action, dtype=np.int64))
        return self.policies[key]

    def _ending(self, name: str, model: MDP, end: int | None) -> MDP:
        if end is None or model.is_absorbing(end):
            return model
        key = (name, end)
        if key not in self._ended:
            self._ended[key] = model.with_absorbing(end)
            if len(self._ended) > MAX_TAILS:
                self._ended.popitem(last=False)
        return self._ended[key]

    def _program(self, measure: Probability | Reward) -> Program:
        if measure not in self._programs:
            match measure:
                case Probability(path):
                    self._programs[measure] = Automaton(path)
                case Reward(low, high):
                    self._programs[measure] = Collector(low, high)
                case _:
                    assert_never(measure)
        return self._programs[measure]

    def _arm_of(self, outer: Law, goal: Goal) -> _Arm:
        return _Arm(self, outer, goal)


@dataclass(frozen=True)
class _Arm:
    """For a nested goal: the law before and after an inner change at an outer offset, and the inner tail."""

    checker: Checker
    outer: Law
    goal: Goal

    def __call__(self, offset: int, change: Change) -> tuple[Law, Law, Tail]:
        before = self.outer.after(min(offset, self.outer.settled()))
        law = before.under(self.checker.intervention(change, None))
        return before, law, self.checker.tail(law, self.goal.measure)


class _Question:
    """One path, one class of causal models: evaluates quantities on it."""

    def __init__(self, checker: Checker, path: Path, causal_model: CausalModel, *, terminated: bool) -> None:
        self.checker, self.path, self.causal_model = checker, path, causal_model
        self.end = path[-1][0] if terminated else None
        self.law = checker.nominal(self.end)
        self.quantities: list[Quantity] = []

    def plain(self, formula: Formula, text: str) -> Verdict:
        """A formula that is not `regret`."""
        if isinstance(formula, Goal) and formula.test is None:
            answer = self._measure(formula)
            quantity = Quantity(text, answer.value, answer.offset, answer.clipped, answer.bounds)
            return self._verdict(text, (quantity,), value=answer.value, bounds=answer.bounds)
        truth = self._truth(formula)
        bounds = self.quantities[0].bounds if len(self.quantities) == 1 else None
        robust = None if self.causal_model == "gumbel" else len(truth.possible) == 1
        return self._verdict(text, tuple(self.quantities), holds=truth.holds, bounds=bounds, robust=robust)

    def regret(self, formula: Regret, text: str) -> Verdict:
        """Antecedent: the goal is missed under nominal; consequent: the alternative meets it (semantics, section 8)."""
        goal, world = formula.goal, formula.world
        assert goal.test is not None
        used, position, clipped = _resolve(world.offset, len(self.path))
        profile: dict[int, tuple[float, float]] = {}
        for offset in range(len(self.path) - position):
            start = len(self.path) - 1 - offset
            arms = (self._value(NOMINAL, start, goal.measure), self._value(world.change, start, goal.measure))
            profile[offset] = arms
        outcomes = {offset: _outcome(goal, *arms) for offset, arms in profile.items()}
        offset = len(self.path) - 1 - position
        nominal, alternative = profile[offset]
        bounds = self._bounds(world.change, position, goal.measure, alternative)
        robust: bool | None = None
        if bounds is not None:
            robust = outcomes[offset] == "safe" or goal.test.holds(bounds[0]) == goal.test.holds(bounds[1])
        quantities = tuple(
            Quantity(
                text=print_formula(Goal(WorldRef(change, None, world.offset), goal.measure, goal.test)),
                value=value,
                offset=used,
                clipped=clipped,
                bounds=interval,
                threshold=goal.test.bound,
                holds=goal.test.holds(value),
                robust=None if interval is None else goal.test.holds(interval[0]) == goal.test.holds(interval[1]),
            )
            for change, value, interval in (
                (NOMINAL, nominal, None if bounds is None else (nominal, nominal)),
                (world.change, alternative, bounds),
            )
        )
        useful = [o for o, outcome in outcomes.items() if outcome == "regret"]
        return self._verdict(
            text,
            quantities,
            outcome=outcomes[offset],
            bounds=bounds,
            robust=robust,
            effect=alternative - nominal,
            effect_bounds=None if bounds is None else (bounds[0] - nominal, bounds[1] - nominal),
            profile=profile,
            latest_useful=min(useful) if useful else None,
        )

    def _verdict(self, text: str, quantities: tuple[Quantity, ...], **fields: object) -> Verdict:
        main = quantities[-1] if quantities else None
        return Verdict(
            formula=text,
            method="exact",
            causal_model=self.causal_model,
            quantities=quantities,
            offset=main.offset if main else 0,
            clipped=any(q.clipped for q in quantities),
            **fields,  # type: ignore[arg-type] # named at each call, a few lines above
        )

    def _truth(self, formula: Formula) -> _Truth:
        match formula:
            case Const(value):
                return _Truth(value, frozenset([value]))
            case Label(name):
                here = bool(self.checker.model.labels[name][self.path[-1][0]])
                return _Truth(here, frozenset([here]))
            case Not(arg):
                truth = self._truth(arg)
                return _Truth(not truth.holds, frozenset(not p for p in truth.possible))
            case And(left, right):
                one, other = self._truth(left), self._truth(right)
                possible = frozenset(p and q for p in one.possible for q in other.possible)
                return _Truth(one.holds and other.holds, possible)
            case Or(left, right):
                one, other = self._truth(left), self._truth(right)
                possible = frozenset(p or q for p in one.possible for q in other.possible)
                return _Truth(one.holds or other.holds, possible)
            case Goal():
                return self._goal(formula)
            case Until() | Regret():
                raise AssertionError("the parser keeps these out of Boolean combinations")
            case _:
                assert_never(formula)

    def _goal(self, goal: Goal) -> _Truth:
        assert goal.test is not None
        answer = self._measure(goal)
        holds = goal.test.holds(answer.value)
        possible = frozenset([holds, *(goal.test.holds(b) for b in answer.bounds or ())])
        quantity = Quantity(
            text=print_formula(goal),
            value=answer.value,
            offset=answer.offset,
            clipped=answer.clipped,
            bounds=answer.bounds,
            threshold=goal.test.bound,
            holds=holds,
            robust=None if answer.bounds is None else len(possible) == 1,
        )
        self.quantities.append(quantity)
        return _Truth(holds, possible)

    def _measure(self, goal: Goal) -> _Answer:
        world = goal.world
        used, position, clipped = _resolve(world.offset, len(self.path))
        value = self._value(world.change, position, goal.measure)
        bounds = self._bounds(world.change, position, goal.measure, value)
        if world.baseline is not None:
            base = self._value(world.baseline, position, goal.measure)
            under = self._bounds(world.baseline, position, goal.measure, base)
            value -= base
            if bounds is not None and under is not None:
                bounds = (bounds[0] - under[1], bounds[1] - under[0])
        return _Answer(value, bounds, used, clipped)

    def _world(self, change: Change, position: int) -> World:
        intervention = self.checker.intervention(change, self.end)
        return World.at(self.path, position, self.law, intervention, self.checker.rows)

    def _value(self, change: Change, position: int, measure: Probability | Reward) -> float:
        world = self._world(change, position)
        return chain.value(world, self.checker.tail(world.law, measure))

    def _bounds(
        self, change: Change, position: int, measure: Probability | Reward, value: float
    ) -> tuple[float, float] | None:
        if self.causal_model == "gumbel":
            return None
        if change.kind == "nominal":
            return value, value  # what happened is no matter of causal models
        world = self._world(change, position)
        return chain.interval(world, self.checker.tail(world.law, measure), self.causal_model)


def _outcome(goal: Goal, nominal: float, alternative: float) -> Literal["safe", "regret", "unavoidable"]:
    assert goal.test is not None
    if goal.test.holds(nominal):
        return "safe"
    return "regret" if goal.test.holds(alternative) else "unavoidable"


def _resolve(offset: int, length: int) -> tuple[int, int, bool]:
    """The offset used on a path of `length` pairs, its position from 0, and whether it was clipped (semantics, 1)."""
    used = max(-(length - 1), min(offset, length - 1))
    position = length - 1 - used if used >= 0 else -used - 1
    return used, position, used != offset


def _goals(formula: Formula) -> Iterator[tuple[Goal, tuple[Change, ...]]]:
    """Every quantity outside brackets, with the changes it is asked under."""
    match formula:
        case Goal(WorldRef(change, baseline, _), _, _):
            yield formula, (change,) if baseline is None else (change, baseline)
        case Regret(WorldRef(change, _, _), goal):
            yield goal, (NOMINAL, change)
        case Not(arg):
            yield from _goals(arg)
        case And(left, right) | Or(left, right):
            yield from _goals(left)
            yield from _goals(right)
        case _:
            return


def _asks_from_start(formula: Formula) -> bool:
    match formula:
        case Goal(world, _, _) | Regret(world, _):
            return world.offset < 0
        case Not(arg):
            return _asks_from_start(arg)
        case And(left, right) | Or(left, right):
            return _asks_from_start(left) or _asks_from_start(right)
        case _:
            return False


def _same_space(model: MDP, other: MDP, name: str) -> MDP:
    """Another dynamics, with the labels and rewards of the first (they stay: semantics, section 5)."""
    if (other.states, other.actions) != (model.states, model.actions):
        problem = f"model {name!r} has {other.states} states and {other.actions} actions"
        raise ConfigError(f"{problem}; it must have the {model.states} and {model.actions} of the main model")
    return replace(other, rewards=model.rewards, labels=model.labels)


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
    if engine not in ("auto", "exact"):
        raise ConfigError(f"engine {engine!r} does not exist; use 'exact' or 'auto'")
    formula = parse(query) if isinstance(query, str) else query
    text = query if isinstance(query, str) else print_formula(query)
    checker = Checker(model, tables(policies, model), models)
    validate(formula, model, policies, text, checker.models)
    _check_path(model, path)
    return checker.check(
        formula, path, causal_model=causal_model, terminated=terminated, start_observed=start_observed, text=text
    )


def tables(policies: Mapping[str, object], model: MDP) -> dict[str, PolicyTable]:
    """Policies in any form a user may give them: name -> S actions, an S x A matrix, a table, a manifest's path."""
    return {name: _table(value, model) for name, value in policies.items()}


def _table(value: object, model: MDP) -> PolicyTable:
    if isinstance(value, str | FilePath):
        from monitor.policy.session import load_policy  # noqa: PLC0415 - onnxruntime only where a file is named

        return load_policy(value, model).table
    return as_table(value, model)


def _check_path(model: MDP, path: Path) -> None:
    if not path:
        raise PathError("the path is empty; it needs at least one pair (state, action)")
    for n, (state, action) in enumerate(path):
        if not 0 <= state < model.states:
            raise PathError(f"pair {n}: state {state} is outside 0..{model.states - 1}")
        if action is None:
            if n < len(path) - 1:
                raise PathError(f"pair {n}: only the last pair may lack its action")
            return
        if not 0 <= action < model.actions or not model.available(state)[action]:
            raise PathError(f"pair {n}: action {action} is unavailable in state {state}")
        if n + 1 < len(path) and path[n + 1][0] not in model.row(state, action)[0]:
            reached = path[n + 1][0]
            raise PathError(
                f"pair {n}: the model gives {reached} probability 0 after state {state}, action {action}; "
                "the path or the model is wrong"
            )
