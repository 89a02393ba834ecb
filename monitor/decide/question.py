"""One formula on one observed path, as a verdict whose numbers explain themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from monitor.decide.names import asks_back, goals
from monitor.decide.track import Lines, Path
from monitor.decide.worlds import Worlds
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Change,
    Const,
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
from monitor.types import CausalModel, Quantity, Verdict

__all__ = ["Path", "Question"]


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


class Question:
    """A formula with a class of causal models, asked again and again as a path grows.

    Args:
        worlds: what can be asked about.
        formula: validated.
        causal_model: the class for bounds; `gumbel`: none.
        text: the formula as its user wrote it.
        window: pairs a path can have.
    """

    def __init__(self, worlds: Worlds, formula: Formula, causal_model: CausalModel, text: str, window: int) -> None:
        self.worlds, self.formula, self.causal_model, self.text = worlds, formula, causal_model, text
        self.lines = Lines(worlds, formula, window)
        self.path: Path = ()
        self.quantities: list[Quantity] = []
        self._from_start = any(offset < 0 for _, _, offset in goals(formula))
        self._texts = {id(goal): print_formula(goal) for goal, _, _ in goals(formula)}
        if isinstance(formula, Regret):
            goal, world = formula.goal, formula.world
            asked = [Goal(WorldRef(change, None, world.offset), goal.measure, goal.test) for change in _arms(formula)]
            self._arm_texts = [print_formula(goal) for goal in asked]

    def verdict(
        self, path: Path, moved: int | None = None, *, terminated: bool = False, start_observed: bool = True
    ) -> Verdict:
        """The answer on a path (oldest pair first).

        Args:
            path: pairs (state, action); the last action may be None, not yet taken.
            moved: pairs the path has at its end that it had not at the last call; None: it is another path.
            terminated: the episode has ended in the last state, which is absorbing from then on.
            start_observed: whether the first pair is the episode's first step.
        """
        self.path, self.quantities = path, []
        self.start_dropped = self._from_start and not start_observed
        self.lines.move(path, len(path) if moved is None else moved, path[-1][0] if terminated else None)
        if isinstance(self.formula, Regret):
            return self.regret(self.formula)
        return self.plain(self.formula)

    def plain(self, formula: Formula) -> Verdict:
        """A formula that is not `regret`."""
        if isinstance(formula, Goal) and formula.test is None:
            answer = self._measure(formula)
            quantity = Quantity(self.text, answer.value, answer.offset, answer.clipped, answer.bounds)
            return self._verdict((quantity,), value=answer.value, bounds=answer.bounds)
        truth = self._truth(formula)
        bounds = self.quantities[0].bounds if len(self.quantities) == 1 else None
        robust = None if self.causal_model == "gumbel" else len(truth.possible) == 1
        return self._verdict(tuple(self.quantities), holds=truth.holds, bounds=bounds, robust=robust)

    def regret(self, formula: Regret) -> Verdict:
        """Antecedent: the goal is missed under nominal; consequent: the alternative meets it (semantics, section 8)."""
        goal, world = formula.goal, formula.world
        assert goal.test is not None
        used, position, clipped = _resolve(world.offset, len(self.path))
        arms = [self.lines.profile(change, goal.measure) for change in _arms(formula)]
        profile = dict(enumerate(list(zip(*arms, strict=True))[: len(self.path) - position]))
        outcomes = {offset: _outcome(goal, *arms) for offset, arms in profile.items()}
        offset = len(self.path) - 1 - position
        nominal, alternative = profile[offset]
        under = self._bounds(NOMINAL, position, goal.measure, nominal)
        bounds = self._bounds(world.change, position, goal.measure, alternative)
        robust: bool | None = None
        effect_bounds: tuple[float, float] | None = None
        if bounds is not None and under is not None:
            robust = len({_outcome(goal, n, a) for n in under for a in bounds}) == 1
            effect_bounds = (bounds[0] - under[1], bounds[1] - under[0])
        quantities = tuple(
            Quantity(
                text=text,
                value=value,
                offset=used,
                clipped=clipped,
                bounds=interval,
                threshold=goal.test.bound,
                holds=goal.test.holds(value),
                robust=None if interval is None else goal.test.holds(interval[0]) == goal.test.holds(interval[1]),
            )
            for text, value, interval in zip(self._arm_texts, (nominal, alternative), (under, bounds), strict=True)
        )
        useful = [o for o, outcome in outcomes.items() if outcome == "regret"]
        return self._verdict(
            quantities,
            outcome=outcomes[offset],
            bounds=bounds,
            robust=robust,
            effect=alternative - nominal,
            effect_bounds=effect_bounds,
            profile=profile,
            latest_useful=min(useful) if useful else None,
        )

    def _verdict(self, quantities: tuple[Quantity, ...], **fields: object) -> Verdict:
        main = quantities[-1] if quantities else None
        return Verdict(
            formula=self.text,
            method="exact",
            causal_model=self.causal_model,
            quantities=quantities,
            offset=main.offset if main else 0,
            clipped=any(q.clipped for q in quantities),
            start_dropped=self.start_dropped,
            **fields,  # type: ignore[arg-type] # named at each call, a few lines above
        )

    def _truth(self, formula: Formula) -> _Truth:
        match formula:
            case Const(value):
                return _Truth(value, frozenset([value]))
            case Label(name):
                here = bool(self.worlds.model.labels[name][self.path[-1][0]])
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
            text=self._texts[id(goal)],
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

    def _value(self, change: Change, position: int, measure: Probability | Reward) -> float:
        return self.lines.value(change, measure, position)

    def _bounds(
        self, change: Change, position: int, measure: Probability | Reward, value: float
    ) -> tuple[float, float] | None:
        if self.causal_model == "gumbel":
            return None
        if change.kind == "nominal" and not asks_back(measure):
            return value, value  # what happened is no matter of causal models; what is asked about it may be
        return self.lines.bounds(change, measure, position, self.causal_model)


def _arms(formula: Regret) -> tuple[Change, Change]:
    return NOMINAL, formula.world.change


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
