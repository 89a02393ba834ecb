"""Extremes of a value: the values if everything that was never recorded is as bad, or as good, as possible.

1. A pair (state, action) that was never recorded leads to the state `elsewhere`, about which nothing is known. The
   counts also name states in which the truth of a label is unknown.
2. Each occurrence of a label is marked: `+` if the label's truth can only help to make the formula true, `-` if the
   label's truth can only help to make the formula false. At the low extreme, in states in which the label is unknown,
   every `-` label holds and no `+` label holds. At the high extreme it is the reverse.
3. At the low extreme, a step in or into `elsewhere` earns the smaller of 0 and the least reward of the model. At the
   high extreme, it earns the larger of 0 and the greatest reward of the model.
4. All other parts of the model are as estimated. Each extreme is the value of an ordinary query.

Definition: docs/semantics/learned-models.md, section 13.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from monitor.arrays import Bools
from monitor.errors import LimitError
from monitor.logic.syntax import (
    And,
    Const,
    Formula,
    Goal,
    InterventionRef,
    Label,
    Not,
    Or,
    Probability,
    Regret,
    Temporal,
    WorldRef,
)
from monitor.model.mdp import MDP
from monitor.referee.guaranteed import Guaranteed
from monitor.referee.transition import Aim
from monitor.referee.unroll import Unroll
from monitor.referee.world import MAIN, Frame, Setting
from monitor.types.specs import CausalModel
from monitor.types.verdicts import NO_EXTREMES, Band

KNOWN = ("elsewhere", "unseen_end")
"""Labels of the states at which the recordings end."""


class Extremes:
    """Evaluator of the extremes of one query.

    Args:
        setting: models, policies, and the state the episode ended in.
        actions: the index of each action that some `do(..)` names.
        causal_model: the class of causal models for bounds of an extreme.
        delta: probability that the confidence set misses a row; None if there are no guaranteed bands.
        evaluator: returns the evaluator in a setting; None: `Unroll`.
    """

    def __init__(
        self,
        setting: Setting,
        actions: Mapping[str, int],
        causal_model: CausalModel,
        delta: float | None,
        evaluator: Callable[[Setting], Any] | None = None,
    ) -> None:
        places = {model.counts.elsewhere for model in setting.models.values() if model.counts is not None}
        beside = {
            state
            for name, states in _counted(setting.main).items()
            if name not in KNOWN
            for state in np.flatnonzero(states).tolist()
        }
        self.due = any(_leads(model, places | beside) for model in setting.models.values())
        self._main = setting.main
        self._mains = [_with_unknown(setting.main, places, best=best) for best in (False, True) if self.due]
        settings = [replace(setting, models={**setting.models, MAIN: main}) for main in self._mains]
        self._sides = [evaluator(each) if evaluator else Unroll(each, actions, causal_model) for each in settings]
        self._bands = (
            [] if delta is None or beside <= places else [Guaranteed(each, actions, delta) for each in settings]
        )

    def truths(self, name: str, state: int) -> frozenset[bool]:
        """Return the possible truth values of a label in a state."""
        known = {bool(self._main.labels[name][state])}
        return frozenset(known | {bool(end.labels[f"+{name}"][state]) for end in self._mains})

    def quantity(self, goal: Goal, frame: Frame, aim: Aim = "value") -> Band | None:
        """Return the least and the greatest value of a goal.

        Return None if nothing unknown matters or the goal is refused. `aim`: whether to return, at each extreme, the
        value or one of its bounds over the class of causal models.
        """
        if not self.due or self.refused(goal):
            return None
        ends = [self._in_world(goal, goal.world.change, frame, aim)]
        if goal.world.baseline is None:
            return ends[0]
        ends.append(self._in_world(goal, goal.world.baseline, frame, aim))
        return ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]

    def refused(self, goal: Goal) -> str:
        """Return the reason why a goal has no extremes; empty if the goal has extremes."""
        if not self.due or not isinstance(goal.measure, Probability):
            return ""
        try:
            _marked(goal.measure.path, helps=True)
        except LimitError as error:
            return f"{NO_EXTREMES}: {error}"
        return ""

    def guaranteed(self, goal: Goal, frame: Frame) -> Band | None:
        """Return the guaranteed band of a goal.

        At the low end, unknown labels are at their worst; at the high end, unknown labels are at their best.

        Return None if only `elsewhere` has unknown labels, or if no band is defined.
        """
        if not self._bands or self.refused(goal):
            return None
        changes = [goal.world.change, *([] if goal.world.baseline is None else [goal.world.baseline])]
        ends = []
        for change in changes:
            bands = [each.quantity(_marked_goal(goal, change), frame) for each in self._bands]
            if bands[0] is None or bands[1] is None:
                return None
            ends.append((bands[0][0], bands[1][1]))
        return ends[0] if len(ends) == 1 else (ends[0][0] - ends[1][1], ends[0][1] - ends[1][0])

    def side(self, goal: Goal, *, best: bool) -> tuple[Unroll, Goal] | None:
        """Return the evaluator of one extreme, and the goal with marked labels; None if `quantity` returns None."""
        if not self.due or self.refused(goal):
            return None
        return self._sides[best], _marked_goal(goal, goal.world.change)

    def _in_world(self, goal: Goal, change: InterventionRef, frame: Frame, aim: Aim) -> Band:
        low, high = (side.quantity(_marked_goal(goal, change), frame, aim) for side in self._sides)
        return low, high


def _marked_goal(goal: Goal, change: InterventionRef) -> Goal:
    """Return a goal in the world of one change, with its labels marked."""
    measure = goal.measure
    if isinstance(measure, Probability):
        measure = Probability(_marked(measure.path, helps=True))
    return Goal(WorldRef(change, None, goal.world.offset), measure, goal.test)


def _leads(model: MDP, places: set[int]) -> bool:
    """Return whether any pair leads to another state, about which something is unknown."""
    pairs = ((s, a) for s in range(model.states) for a in range(model.actions) if places)
    return any(k != s and k in places for s, a in pairs for k in model.row(s, a)[0].tolist())


def _counted(model: MDP) -> Mapping[str, Bools]:
    return {} if model.counts is None else model.counts.unknown


def _with_unknown(model: MDP, places: set[int], *, best: bool) -> MDP:
    """Return the main model with marked labels, and with the rewards of unknown parts, for one extreme."""
    there = np.array([state in places for state in range(model.states)])
    labels = {}
    for name, where in model.labels.items():
        unknown = there | _counted(model).get(name, False) if name not in KNOWN else False
        labels[f"+{name}"] = np.where(unknown, best, where)
        labels[f"-{name}"] = np.where(unknown, not best, where)
    low, high = model.reward_range
    if low == high == 0.0:
        return replace(model, labels=labels)
    paid = max(high, 0.0) if best else min(low, 0.0)
    rewards, extra = model.rewards.copy(), np.zeros(model.successors.size)
    if model.transition_rewards is not None:
        extra += model.transition_rewards
    for place in places:
        rewards[place] = paid
    for row in range(model.states * model.actions):
        for entry in range(model.indptr[row], model.indptr[row + 1]):
            if there[model.successors[entry]]:
                extra[entry] = paid - rewards[divmod(row, model.actions)]
    return replace(model, labels=labels, rewards=rewards, transition_rewards=extra)


def _marked(formula: Formula, *, helps: bool) -> Formula:
    """Return a path formula with its labels marked. `helps`: the truth of this part can only make the whole true."""
    match formula:
        case Const():
            return formula
        case Label(name):
            return Label(f"{'+' if helps else '-'}{name}")
        case Not(arg):
            return Not(_marked(arg, helps=not helps))
        case And(left, right) | Or(left, right) | Temporal(left=left, right=right):
            return replace(formula, left=_marked(left, helps=helps), right=_marked(right, helps=helps))
        case Goal(WorldRef(_, None, _) as world, measure, test) if test is not None:
            upward = helps == (test.comparison in (">", ">="))
            if isinstance(measure, Probability):
                return Goal(world, Probability(_marked(measure.path, helps=upward)), test)
            if not upward:
                raise LimitError("an upper bound of a reward is nested in another quantity")
            return formula
        case Goal() | Regret():
            raise LimitError("a difference of two worlds is nested in another quantity")
