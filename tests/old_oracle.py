"""What the definitions say, computed the slow way: every path, one by one, in exact rational arithmetic.

Nothing here is shared with the monitor but the nodes of a parsed formula. Rows come from the hazard rates of the
exponential race, paths from plain enumeration, satisfaction from the definition of until; there is no automaton, no
dynamic programming, and no closed form of an integral. Laws and worlds are written from docs/semantics.md:

- next state = argmax_j (log p_j + G_j), fresh noise at every step, shared by all rows of a step;
- a stochastic policy's choice likewise, with noise of its own;
- a world replays the noise of the observed steps, and has prior noise from the last observed state on;
- a nested quantity takes the counterfactual path so far as its observed path, and the world it stands in as nominal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import assert_never

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
    Reward,
    Test,
    Until,
)

__all__ = ["Dist", "Regime", "Setting", "Trail", "World", "goal_value", "meets", "race", "resolve"]

Dist = Mapping[int, Fraction]
"""A distribution: outcome -> positive probability."""
Rows = Mapping[tuple[int, int], Dist]
Policy = Sequence[Dist]
Trail = tuple[tuple[int, int | None], ...]

ONE, ZERO = Fraction(1), Fraction(0)


def race(p: Dist, winner: int, q: Dist) -> dict[int, Fraction]:
    """Who wins under the weights q, given that `winner` won under the weights p with the same noise.

    Scaled by its p, clock j rings at E_j / p_j for a standard exponential E_j. The winner rang at T ~ Exp(1), any other
    j with p_j > 0 at T plus a fresh Exp(p_j), any j with p_j = 0 has told nothing. Under q the ring of j is scaled by
    p_j / q_j: the winner's is at T p_i/q_i for sure; j with p_j > 0 has hazard q_j from T p_j/q_j on; j with p_j = 0
    has hazard q_j from 0 on. Between two such instants T u and T v the total hazard h is constant, the survivor
    function is exp(-T c) with c growing by h (v - u), and averaging exp(-T c) over T gives 1 / (1 + c).
    """
    starts = {j: p.get(j, ZERO) / q[j] for j in q}
    sure = starts.get(winner)  # None: the winner cannot win again, its ring is never
    instants = sorted({u for u in starts.values() if sure is None or u < sure})
    won = dict.fromkeys(q, ZERO)
    exponent = ZERO
    for n, begin in enumerate(instants):
        running = [j for j in q if j != winner and starts[j] <= begin]
        hazard = sum((q[j] for j in running), ZERO)
        end = instants[n + 1] if n + 1 < len(instants) else sure
        later = ZERO if end is None else 1 / (1 + exponent + hazard * (end - begin))
        ended = 1 / (1 + exponent) - later
        for j in running:
            won[j] += q[j] / hazard * ended
        if end is not None:
            exponent += hazard * (end - begin)
    if sure is not None:
        won[winner] = 1 / (1 + exponent)
    return {j: mass for j, mass in won.items() if mass > 0}


@dataclass(frozen=True)
class Setting:
    """What a question is asked about. `models`: other rows over the same states; `names`: action names, if any."""

    states: int
    actions: int
    rows: Rows
    rewards: Mapping[tuple[int, int], Fraction]
    labels: Mapping[str, frozenset[int]]
    policies: Mapping[str, Policy]
    path: Trail
    models: Mapping[str, Rows]
    terminated: bool = False

    def regime(self) -> Regime:
        """What is in force along the observed path and beyond it, without an intervention."""
        last, end = len(self.path) - 1, self.path[-1][0]
        here = cache(lambda name: self._ended(self.models[name] if name else self.rows, end))

        def rows(time: int, name: str) -> Rows:
            plain = self.models[name] if name else self.rows
            return here(name) if self.terminated and time >= last else plain

        def reward(time: int, state: int, action: int) -> Fraction:
            over = self.terminated and time >= last and state == end
            return ZERO if over else self.rewards.get((state, action), ZERO)

        return Regime(lambda _: self.policies["nominal"], rows, reward)

    def _ended(self, rows: Rows, end: int) -> Rows:
        return {**rows, **{(end, action): {end: ONE} for action in range(self.actions)}}


@dataclass(frozen=True)
class Regime:
    """Policy and rows at each time from an origin on; `model`: whose rows ("" for the main model's)."""

    policy: Callable[[int], Policy]
    rows_of: Callable[[int, str], Rows]
    reward: Callable[[int, int, int], Fraction]
    model: str = ""

    def rows(self, time: int) -> Rows:
        return self.rows_of(time, self.model)

    def seen_from(self, origin: int) -> Regime:
        return Regime(
            lambda time: self.policy(origin + time),
            lambda time, name: self.rows_of(origin + time, name),
            lambda time, state, action: self.reward(origin + time, state, action),
            self.model,
        )


def resolve(offset: int, length: int) -> tuple[int, int]:
    """The clipped offset, and the position (from 0) on a path of that length: positions count from the paper's 1."""
    clipped = min(max(offset, -(length - 1)), length - 1)
    position = length - clipped if clipped >= 0 else -clipped
    return clipped, position - 1


class World:
    """The counterfactual world of one change at one position of an observed path."""

    def __init__(self, setting: Setting, path: Trail, regime: Regime, change: InterventionRef, position: int) -> None:
        self.setting, self.seen, self.change = setting, path[position:], change
        self.before = regime.seen_from(position)
        self.now = self._changed()
        self._truths: dict[tuple[Goal, Trail], bool] = {}
        self._rows: dict[tuple[int, int, int], Dist] = {}

    def _changed(self) -> Regime:
        before, change = self.before, self.change
        match change.kind:
            case "nominal":
                return before
            case "model":
                return Regime(before.policy, before.rows_of, before.reward, change.name)
            case "policy":
                table = self.setting.policies[change.name]
            case "action":
                table = [{int(change.name): ONE}] * self.setting.states
            case "best" | "optimal":
                raise AssertionError("this oracle knows no decisions made for a goal")
            case _:
                assert_never(change.kind)
        return Regime(
            lambda time: table if self._lasts(time) else before.policy(time),
            before.rows_of,
            before.reward,
            before.model,
        )

    def _lasts(self, time: int) -> bool:
        """Whether the change of policy is in force."""
        if self.change.kind in ("nominal", "model"):
            return False
        return self.change.steps is None or time < self.change.steps

    def choices(self, k: int, state: int) -> Dist:
        planned = self.now.policy(k)[state]
        if k >= len(self.seen) or self.seen[k][1] is None:
            return planned
        seen, taken = self.seen[k]
        assert taken is not None
        if not self._lasts(k) and state == seen:
            return {taken: ONE}
        usual = self.before.policy(k)[seen]
        return race(usual, taken, planned) if taken in usual else planned

    def row(self, k: int, state: int, action: int) -> Dist:
        asked = self.now.rows(k)[state, action]
        if k >= len(self.seen) - 1:
            return asked
        key = (k, state, action)
        if key not in self._rows:
            seen, taken = self.seen[k]
            assert taken is not None
            self._rows[key] = race(self.before.rows(k)[seen, taken], self.seen[k + 1][0], asked)
        return self._rows[key]

    def paths(self, length: int) -> Iterator[tuple[Fraction, Trail]]:
        """Every path of `length` pairs, with its probability."""

        def grow(weight: Fraction, trail: Trail, state: int) -> Iterator[tuple[Fraction, Trail]]:
            k = len(trail)
            for action, share in self.choices(k, state).items():
                longer = (*trail, (state, action))
                if k + 1 == length:
                    yield weight * share, longer
                    continue
                for successor, chance in self.row(k, state, action).items():
                    yield from grow(weight * share * chance, longer, successor)

        yield from grow(ONE, (), self.seen[0][0])

    def value(self, measure: Probability | Reward) -> Fraction:
        match measure:
            case Probability(formula):
                paths = self.paths(reach(formula) + 1)
                return sum((weight for weight, trail in paths if self.satisfies(trail, 0, formula)), ZERO)
            case Reward(low, high):
                return sum((weight * self._collected(trail, low) for weight, trail in self.paths(high + 1)), ZERO)
            case _:
                assert_never(measure)

    def _collected(self, trail: Trail, low: int) -> Fraction:
        pairs = [(k, state, action) for k, (state, action) in enumerate(trail) if k >= low]
        return sum((self.now.reward(k, state, action) for k, state, action in pairs if action is not None), ZERO)

    def satisfies(self, trail: Trail, k: int, formula: Formula) -> bool:
        """Whether the path, from its k-th pair on, satisfies a path formula."""
        match formula:
            case Const(value):
                return value
            case Label(name):
                return trail[k][0] in self.setting.labels[name]
            case Not(arg):
                return not self.satisfies(trail, k, arg)
            case And(left, right):
                return self.satisfies(trail, k, left) and self.satisfies(trail, k, right)
            case Or(left, right):
                return self.satisfies(trail, k, left) or self.satisfies(trail, k, right)
            case Until(low, high, left, right):
                return any(
                    self.satisfies(trail, k + j, right) and all(self.satisfies(trail, k + i, left) for i in range(j))
                    for j in range(low, high + 1)
                )
            case Goal():
                return self._nested(trail[: k + 1], formula)
            case Regret():
                raise AssertionError("no regret inside a path")
            case _:
                assert_never(formula)

    def _nested(self, so_far: Trail, goal: Goal) -> bool:
        """The path so far is what was observed, this world what is nominal; of the real path nothing is known."""
        key = (goal, so_far)
        if key not in self._truths:
            assert goal.test is not None
            self._truths[key] = meets(goal.test, goal_value(goal, self.setting, so_far, self.now))
        return self._truths[key]


def reach(formula: Formula) -> int:
    """The largest offset a path formula looks at."""
    match formula:
        case Const() | Label() | Goal():
            return 0
        case Not(arg):
            return reach(arg)
        case And(left, right) | Or(left, right):
            return max(reach(left), reach(right))
        case Until(_, high, left, right):
            return high + max(reach(left), reach(right))
        case Regret():
            raise AssertionError("no regret inside a path")
        case _:
            assert_never(formula)


def meets(test: Test, value: Fraction) -> bool:
    """Exact arithmetic has exact ties; the bound means the decimal number as written."""
    bound = Fraction(repr(test.bound))
    return {"<": value < bound, "<=": value <= bound, ">=": value >= bound, ">": value > bound}[test.comparison]


def goal_value(goal: Goal, setting: Setting, path: Trail | None = None, regime: Regime | None = None) -> Fraction:
    """The number behind a goal: on the setting's own path, or on a counterfactual one in another regime."""
    path, regime = path or setting.path, regime or setting.regime()
    _, position = resolve(goal.world.offset, len(path))
    value = World(setting, path, regime, goal.world.change, position).value(goal.measure)
    if goal.world.baseline is not None:
        value -= World(setting, path, regime, goal.world.baseline, position).value(goal.measure)
    return value
