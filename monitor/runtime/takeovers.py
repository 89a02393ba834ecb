"""Judge takeovers afterwards: would the goal have been missed without the takeover?

A takeover begins at a step where another known policy acts, if nominal acted at the previous step or an episode begins.
It is *followed* until the horizon of a goal has passed. Then two outcomes are compared (docs/semantics/regret.md,
section 8.5):

- what happened: the goal is met or missed on the observed path from the takeover on;
- what would have happened if the deployed policy had gone on: the value under the deployed policy from the takeover on,
  given everything observed since the takeover, meets or misses the goal's bound. The value is a probability or a mean
  reward.

Both outcomes are quantities of one verdict. On a table they are exact, with bounds over causal models if the formula
asks for bounds. In a world with numbers they are sampled if noise is unknown, and tested like other verdicts of a
stream. The goals come from the formulas that name the policy: in `regret(fallback@2, Q)` and `handover(fallback, Q,
h)`, Q judges the takeovers by `fallback`.

A takeover is judged only when the whole horizon has passed or the episode has terminated, even if the goal is decided
earlier. The reason is that the decision to count a takeover must not depend on its outcome. For the same reason, no
takeover is judged on a path that cannot hold the whole horizon. A takeover that cannot be judged is `undecided`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from monitor.alarm.takeover import outcome_of, takeover_formula
from monitor.errors import LimitError, MonitorError
from monitor.evaluation import Engines, Held, on_stream
from monitor.logic import Formula, PathAutomaton, print_formula
from monitor.logic.syntax import Goal, InterventionRef, Probability, Regret
from monitor.logic.traversal import handover_goal, nested_goals
from monitor.runtime.held_path import held_path
from monitor.stream import SlidingPath
from monitor.types.notices import TakenOver
from monitor.types.specs import FormulaSpec
from monitor.types.stream_events import Episode, Step
from monitor.types.verdicts import Drawn, Verdict

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
    """The goal that judges takeovers by a policy.

    `pairs`: number of pairs that decide the goal, counted from the takeover's first pair.
    """

    policy: str
    goal: Goal
    pairs: int


def takeover_goal(formula: Formula, *, sampled: bool = False) -> TakeoverGoal | str:
    """Return the goal by which a formula judges takeovers, or the reason why there is none.

    `sampled`: whether the formula is evaluated by sampling.
    """
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
    held: Held,
    drawn: Drawn,
) -> Verdict:
    """Return a verdict with two quantities: the observed outcome, and the outcome under the deployed policy.

    Args:
        goal: goal whose measure and test are judged. Its world is not used.
        engines: engines that compute the quantities.
        spec: specification of the formula with the goal; it says which bounds to compute.
        held: the path from the takeover's first pair on.
        drawn: seed and error rate of the test, if noise must be sampled.

    Raises MonitorError if the computation is too large, or if a world or a policy fails.
    """
    formula = takeover_formula(goal, engines.deployed, len(held.pairs) - 1)
    return engines.takeover_verdict(formula, replace(spec, text=print_formula(formula)), held, drawn)


class Takeover(msgspec.Struct, frozen=True, array_like=True):
    """The first step of a takeover. `time`: time of this step, in seconds since the epoch."""

    episode: Episode
    seq: int
    time: float


class TakeoversState(msgspec.Struct, frozen=True, array_like=True):
    """State of `Takeovers` as plain data. The fields are its attributes."""

    policy: str
    followed: tuple[Takeover, ...] = ()
    tests: int = 0


class Takeovers:
    """The takeovers that one formula judges for one agent.

    Attributes:
        policy: name of the policy whose takeovers are judged.
        followed: takeovers whose horizon has not passed yet, oldest first.
        tests: number of judgements for which noise was sampled. Each spends a part of the stream's alpha.
    """

    __slots__ = ("_agent", "_by", "_spec", "followed", "policy", "tests")

    def __init__(self, by: TakeoverGoal, agent: str, spec: FormulaSpec) -> None:
        self._by, self._agent, self._spec = by, agent, spec
        self.policy = by.policy
        self.followed: list[Takeover] = []
        self.tests = 0

    def begin(self, step: Step) -> None:
        """Follow the takeover that begins with this step."""
        self.followed.append(Takeover(step.episode, step.seq, step.time))

    def advance(self, path: SlidingPath, engines: Engines, *, ended: bool = False) -> list[TakenOver]:
        """Judge the takeovers whose horizon is over at the path's last pair; with `ended`, judge all takeovers."""
        if not self.followed:
            return []
        last = path.last
        assert last is not None, "a takeover begins with a step"
        waiting = [takeover for takeover in self.followed if not ended and not self._due(takeover, last)]
        due = self.followed[: len(self.followed) - len(waiting)]
        self.followed = waiting
        return [self._judge(takeover, path, engines) for takeover in due]

    def drop(self, reason: str) -> list[TakenOver]:
        """Stop following all takeovers, and return them as undecided."""
        dropped = [self._undecided(takeover, reason) for takeover in self.followed]
        self.followed = []
        return dropped

    def dump(self) -> TakeoversState:
        """Return the state as plain data."""
        return TakeoversState(self.policy, tuple(self.followed), self.tests)

    def load(self, state: TakeoversState) -> None:
        """Restore the state that `dump` returned."""
        self.followed, self.tests = list(state.followed), state.tests

    def _due(self, takeover: Takeover, last: Step) -> bool:
        return last.seq - takeover.seq + 1 >= self._by.pairs

    def _judge(self, takeover: Takeover, path: SlidingPath, engines: Engines) -> TakenOver:
        first, last = path.first_seq, path.last
        assert first is not None and last is not None, "the path has a step"  # noqa: PT018 - one fact
        begin, needs = takeover.seq - first, self._by.pairs
        if begin < 0 or needs > path.window:  # the path lacks a part of the horizon
            holds = path.window if needs > path.window else len(path)  # the window was smaller before a restart
            reason = f"the path holds {holds} steps, and {needs} are needed; make path.window larger"
            return self._undecided(takeover, reason)
        held = held_path(path, begin)
        drawn = on_stream(
            engines.sampling,
            self._spec.alarm,
            stream=(self._agent, takeover.episode, self._spec.name),
            seq=last.seq,
            first=takeover.seq,
            test=self.tests + 1,
        )
        try:
            verdict = judged_takeover(self._by.goal, engines, self._spec, held, drawn)
        except MonitorError as error:  # the computation is too large, or the user's world fails
            return self._undecided(takeover, str(error))
        self.tests += verdict.drawn is not None
        outcome = outcome_of(verdict)
        if outcome == "undecided":  # unrecorded transitions decide the outcome, or it would need too many samples
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
            path=tuple(held.pairs),
            acted=tuple(held.acted),
            start_observed=held.start_observed,
            terminated=held.terminated,
            inputs=tuple(held.inputs),
        )

    def _undecided(self, takeover: Takeover, reason: str) -> TakenOver:
        return _undecided(self._agent, self._spec.name, self.policy, takeover, reason)


def _undecided(agent: str, formula: str, policy: str, takeover: Takeover, reason: str) -> TakenOver:
    seq, time = takeover.seq, takeover.time
    return TakenOver(agent, formula, policy, "undecided", takeover.episode, seq, time, seq, time, reason)


def dropped_takeovers(agent: str, formula: str, state: TakeoversState | None) -> list[TakenOver]:
    """Return the takeovers that a saved state of a changed formula followed; mark them as undecided."""
    if state is None:
        return []
    return [_undecided(agent, formula, state.policy, takeover, GONE) for takeover in state.followed]
