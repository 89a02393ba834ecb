"""Find out whether other decisions could have met a missed goal, from the values of separate worlds.

1. The answer is `foresight` if the policy that is best without observations meets the goal. Otherwise it is `hindsight`
   if the best decisions meet the goal. Otherwise it is `no`.
2. The answer is robust if it is the same for all values within the bounds of the two values.
3. The fewest changes are those of the first world `best[<=k]`, k = 1, 2, 3, that meets the goal.
4. If parts of the model were never recorded, the answer is known only if it is the same at both extremes. A value that
   meets the goal is reported at the worst extreme, and a value that misses the goal at the best extreme. The fewest
   changes meet the goal at the worst extreme.

Definitions: docs/semantics/decisions.md, section 14.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from monitor.errors import LimitError
from monitor.logic.syntax import Goal, InterventionRef, Probability, Regret, Test, WorldRef
from monitor.logic.traversal import nested_goals
from monitor.model.mdp import MDP
from monitor.referee.extremes import Extremes
from monitor.referee.transition import Aim
from monitor.referee.unroll import Unroll
from monitor.referee.world import Frame, position
from monitor.types.specs import CausalModel
from monitor.types.stream_events import UNKNOWN_POLICY
from monitor.types.verdicts import UNRECORDED, Avoidable, Changes, Recourse

MOST_CHANGES: Final = 3
NESTED: Final = "decisions are not made for a goal with another one nested in it"
LEARNED: Final = (
    "whether it is robust is not known: on a learned model decisions made for the goal have no guaranteed band"
)
UNKNOWN: Final = (
    "a policy that is not configured acted at {} of the steps from the intervention state on, and the answer depends "
    "on what it would have done; configure it under policies"
)
TOO_LARGE: Final = "too large for the referee"
Word = Literal["best", "optimal"]


@dataclass(frozen=True)
class Examiner:
    """Evaluator of missed goals in one query.

    Attributes:
        unroll: computes values.
        model: the main model.
        causal_model: the class of causal models for bounds; `gumbel` means no bounds.
        learned: whether guaranteed bands are due; decisions made for a goal have no such bands.
        extremes: computes values with everything never recorded at its worst and at its best.
    """

    unroll: Unroll
    model: MDP
    causal_model: CausalModel
    learned: bool
    extremes: Extremes

    def recourse(self, formula: Regret, frame: Frame) -> Recourse:
        """Return whether the missed goal of a formula could have been met; `TOO_LARGE` if this cannot be computed."""
        try:
            return self._examined(formula, frame)
        except LimitError:
            return Recourse(reason=TOO_LARGE)

    def _examined(self, formula: Regret, frame: Frame) -> Recourse:
        measure, test = formula.goal.measure, formula.goal.test
        assert test is not None
        steps = frame.steps[position(formula.world.offset, len(frame.steps))[1] :]
        if unknown := sum(step.regime.policy == UNKNOWN_POLICY for step in steps):
            return Recourse(reason=UNKNOWN.format(unknown))
        if isinstance(measure, Probability) and any(nested_goals(measure.path)):
            return Recourse(reason=NESTED)
        best, optimal = (self._ends(_under(formula, _word(test, word)), frame) for word in ("best", "optimal"))
        possible = {
            _avoidable(test.holds(foreseen), test.holds(known)) for known, foreseen in zip(best, optimal, strict=True)
        }
        if len(possible) > 1:
            return Recourse(reason=UNRECORDED)
        avoidable = possible.pop()
        return Recourse(
            avoidable,
            None if self.causal_model == "gumbel" or self.learned else self._is_robust(formula, test, frame),
            best[1] if avoidable == "no" else best[0],
            optimal[0] if avoidable == "foresight" else optimal[1],
            self._changes(formula, test, frame),
            LEARNED if self.learned else "",
        )

    def _ends(self, goal: Goal, frame: Frame, aim: Aim = "value") -> tuple[float, float]:
        """Return the values of a goal at the worst and at the best extreme; equal if nothing is unrecorded."""
        both = self.extremes.quantity(goal, frame, aim)
        if both is None:
            return (self.unroll.quantity(goal, frame, aim),) * 2
        assert goal.test is not None
        return both if goal.test.comparison in (">", ">=") else (both[1], both[0])

    def _is_robust(self, formula: Regret, test: Test, frame: Frame) -> bool:
        goals = [_under(formula, _word(test, word)) for word in ("optimal", "best")]
        aims: tuple[Aim, ...] = ("least", "most")
        truths = [{test.holds(end) for aim in aims for end in self._ends(goal, frame, aim)} for goal in goals]
        return len({_avoidable(*choice) for choice in product(*truths)}) == 1

    def _changes(self, formula: Regret, test: Test, frame: Frame) -> Changes | None:
        """Return the plan with the fewest changes that meets the goal; None if three changes are not enough."""
        for count in range(1, MOST_CHANGES + 1):
            goal = _under(formula, _word(test, "best", count))
            value = self._ends(goal, frame)[0]
            if test.holds(value):
                break
        else:
            return None
        largest = goal.world.change.largest
        unroll, marked = self.extremes.side(goal, best=not largest) or (self.unroll, goal)
        first = unroll.first_change(marked, count, frame, largest=largest)
        if first is None:
            return None
        step, names = frame.steps[first.step], self.model.action_names
        return Changes(
            count=count,
            value=value,
            offset=len(frame.steps) - 1 - first.step,
            state=step.state,
            taken=step.action,
            proposed=first.action,
            taken_name=names[step.action] if names and step.action is not None else "",
            proposed_name=names[first.action] if names else "",
        )


def _avoidable(foreseen: bool, known: bool) -> Avoidable:  # noqa: FBT001 - two truths
    """Return the answer, given the truth of the goal under the optimal policy and under the best decisions."""
    if foreseen:
        return "foresight"
    return "hindsight" if known else "no"


def _word(test: Test, word: Word, limit: int | None = None) -> InterventionRef:
    """Return the change whose decisions are made to satisfy a comparison."""
    return InterventionRef(word, word, limit=limit, largest=test.comparison in (">", ">="))


def _under(formula: Regret, change: InterventionRef) -> Goal:
    """Return the goal of a formula under a change, at the formula's offset."""
    return Goal(WorldRef(change, None, formula.world.offset), formula.goal.measure, formula.goal.test)
