"""Takeovers, judged afterwards: did the goal need another policy to act?

A takeover begins at the step where another known policy acts and nominal acted before, or at the start of an episode.
It is *followed* until the horizon of a goal has passed. Then two truths are compared (docs/semantics.md, section 8.5):

- what happened: the goal is met or missed on the observed path from the takeover on, a fact;
- what would have happened if the deployed policy had gone on: the goal's probability (or mean reward) under the
  deployed policy from the takeover on, given what was observed since, compared with the goal's bound.

Both are the quantities of one verdict, so they are exact, have bounds over causal models where the formula has, and are
derived again from evidence like those of any verdict. The goals are those of the formulas that name the policy: of
`regret(fallback@2, Q)` and `handover(fallback, Q, h)`, Q judges the takeovers by `fallback`.

A takeover is judged only when the whole horizon has passed, or the episode has terminated, even if the goal is decided
earlier: whether it is counted must not depend on how it ends. For the same reason a path that cannot hold the whole
horizon judges none. One that cannot be judged is `undecided`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from monitor.alarm.takeover import outcome_of, takeover_formula
from monitor.errors import LimitError, MonitorError
from monitor.evaluation import Engines
from monitor.exact.verdict import Path
from monitor.logic import Formula, PathAutomaton, print_formula
from monitor.logic.syntax import Goal, InterventionRef, Probability, Regret
from monitor.logic.traversal import handover_goal, nested_goals
from monitor.stream import SlidingPath
from monitor.types import Episode, FormulaSpec, Step, TakenOver, Verdict

NO_POLICY: Final = "it names no policy that could take over; regret(fallback@2, ..) and handover(fallback, ..) do"
NESTED: Final = "its goal asks for a probability within a probability, which no observed state decides"
SAMPLED: Final = "its answers are sampled, and only exact ones judge takeovers"
UNREPORTED: Final = (
    "no step can name its policy, which has no SHA-256 of its own: another policy of the configuration has the same "
    "file; remove one of the two names"
)
CUT_OFF: Final = "the episode was cut off before the goal's horizon had passed"
UNKNOWN: Final = "a policy that is not configured acted before the goal's horizon had passed"
BROKEN: Final = "the path broke before the goal's horizon had passed"
GONE: Final = (
    "the agent fell silent, or the model, a policy or the formula changed, before the goal's horizon had passed"
)


class TakeoverGoal(msgspec.Struct, frozen=True):
    """What judges takeovers by a policy. `pairs`: of the path, the takeover's first included, that decide the goal."""

    policy: str
    goal: Goal
    pairs: int


def takeover_goal(formula: Formula, *, sampled: bool = False) -> TakeoverGoal | str:
    """Return what a formula judges takeovers by, or the reason why it judges none. `sampled`: its answers are."""
    change, goal = _alternative(formula)
    if change is None or goal is None or change.kind != "policy":
        return NO_POLICY
    if sampled:
        return SAMPLED
    measure = goal.measure
    if not isinstance(measure, Probability):
        return TakeoverGoal(change.name, goal, measure.high + 2)
    if next(nested_goals(measure.path), None) is not None:
        return NESTED
    try:
        automaton = PathAutomaton(measure.path)
    except LimitError as error:
        return str(error)
    return TakeoverGoal(change.name, goal, max(automaton.horizon(automaton.start), 1))


def _alternative(formula: Formula) -> tuple[InterventionRef | None, Goal | None]:
    """Return the intervention that a formula advises, and its goal."""
    if isinstance(formula, Regret):
        return formula.world.change, formula.goal
    goal = handover_goal(formula)
    return (None, None) if goal is None else (goal.world.change, goal)


def judged_takeover(
    goal: Goal,
    engines: Engines,
    spec: FormulaSpec,
    path: Path,
    *,
    acted: Sequence[str],
    terminated: bool,
) -> Verdict:
    """Return the verdict whose two quantities are what happened and what the deployed policy would have done.

    Args:
        goal: its measure and its test are judged; its world does not matter.
        engines: answer exactly, with bounds as `spec` says.
        spec: of the formula that has the goal.
        path: pairs (state, action), from the takeover's first on.
        acted: names of the policies that acted at the pairs.
        terminated: the episode has ended in the last state.

    Raises LimitError if it is too large.
    """
    checker, since = engines.checker, len(path) - 1
    formula = takeover_formula(goal, checker.evaluators.deployed, since)
    once = checker.incremental_check(formula, spec.causal_model, print_formula(formula), window=0)
    verdict = once.verdict(path, terminated=terminated, acted=acted)
    if engines.learned is None or spec.bands == "off":
        return verdict
    return engines.learned.added(verdict, formula, path, terminated=terminated, acted=acted)


class Takeover(msgspec.Struct, frozen=True, array_like=True):
    """The first step of a takeover. `time`: of that step, seconds since the epoch."""

    episode: Episode
    seq: int
    time: float


class TakeoversState(msgspec.Struct, frozen=True, array_like=True):
    """State of `Takeovers` as plain data."""

    policy: str
    followed: tuple[Takeover, ...] = ()


class Takeovers:
    """The takeovers that one formula judges for one agent.

    Attributes:
        policy: name of the policy whose takeovers are judged.
        followed: those whose horizon has not passed yet, oldest first.
    """

    __slots__ = ("_agent", "_by", "_spec", "followed", "policy")

    def __init__(self, by: TakeoverGoal, agent: str, spec: FormulaSpec) -> None:
        self._by, self._agent, self._spec = by, agent, spec
        self.policy = by.policy
        self.followed: list[Takeover] = []

    def begin(self, step: Step) -> None:
        """Follow the takeover that begins with this step."""
        self.followed.append(Takeover(step.episode, step.seq, step.time))

    def advance(self, path: SlidingPath, engines: Engines, *, ended: bool = False) -> list[TakenOver]:
        """Judge the takeovers whose horizon has passed with the path's last pair; with `ended`, all of them."""
        if not self.followed:
            return []
        last = path.last
        assert last is not None, "a takeover begins with a step"
        waiting = [takeover for takeover in self.followed if not ended and not self._due(takeover, last)]
        due = self.followed[: len(self.followed) - len(waiting)]
        self.followed = waiting
        return [self._judge(takeover, path, engines) for takeover in due]

    def drop(self, reason: str) -> list[TakenOver]:
        """Give up all takeovers that are followed, as undecided."""
        dropped = [self._undecided(takeover, reason) for takeover in self.followed]
        self.followed = []
        return dropped

    def dump(self) -> TakeoversState:
        """Return the state as plain data."""
        return TakeoversState(self.policy, tuple(self.followed))

    def load(self, state: TakeoversState) -> None:
        """Restore what `dump` returned."""
        self.followed = list(state.followed)

    def _due(self, takeover: Takeover, last: Step) -> bool:
        return last.seq - takeover.seq + 1 >= self._by.pairs

    def _judge(self, takeover: Takeover, path: SlidingPath, engines: Engines) -> TakenOver:
        first, last = path.first_seq, path.last
        assert first is not None and last is not None, "the path has a step"  # noqa: PT018 - one fact
        begin, needs = takeover.seq - first, self._by.pairs
        if begin < 0 or needs > path.window:  # also at an early end, or only those that end early would be judged
            holds = path.window if needs > path.window else len(path)  # the window was smaller before a restart
            reason = f"the path holds {holds} steps, and {needs} are needed; make path.window larger"
            return self._undecided(takeover, reason)
        pairs, acted = path.pairs[begin:], tuple(path.acted[begin:]) or ("nominal",) * (len(path) - begin)
        try:
            verdict = judged_takeover(
                self._by.goal, engines, self._spec, pairs, acted=acted, terminated=path.terminated
            )
        except MonitorError as error:  # too large
            return self._undecided(takeover, str(error))
        outcome = outcome_of(verdict)
        if outcome == "undecided":  # what was never recorded decides it
            return self._undecided(takeover, verdict.reason)
        return TakenOver(
            agent=self._agent,
            formula=self._spec.name,
            policy=self.policy,
            outcome=outcome,
            episode=takeover.episode,
            first_seq=takeover.seq,
            since=takeover.time,
            seq=last.seq,
            time=last.time,
            verdict=verdict,
            path=pairs,
            acted=acted,
            start_observed=first + begin == 0,
            terminated=path.terminated,
        )

    def _undecided(self, takeover: Takeover, reason: str) -> TakenOver:
        return _undecided(self._agent, self._spec.name, self.policy, takeover, reason)


def _undecided(agent: str, formula: str, policy: str, takeover: Takeover, reason: str) -> TakenOver:
    seq, time = takeover.seq, takeover.time
    return TakenOver(agent, formula, policy, "undecided", takeover.episode, seq, time, seq, time, reason)


def dropped_takeovers(agent: str, formula: str, state: TakeoversState | None) -> list[TakenOver]:
    """Return the takeovers that a state still followed, as undecided: their formula has changed."""
    if state is None:
        return []
    return [_undecided(agent, formula, state.policy, takeover, GONE) for takeover in state.followed]
