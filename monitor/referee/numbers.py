"""The second evaluator for worlds with numbers: it repeats every draw with its own generator and its own loop.

The evaluator uses the world's `step` and `invert`. Noise is Philox4x32-10, implemented here. Paths are arrays that grow
step by step. A path formula is evaluated by its definition on whole paths. So this module has no automaton and no
particles, and shares nothing with `monitor.sampled`. Observed steps use the noise inferred from the observation; later
steps use fresh noise (docs/worlds.md). For `handover` the other policy is sampled from each state of each path
(docs/semantics/regret.md, section 8.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, assert_never

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import LimitError
from monitor.logic.syntax import (
    NOMINAL,
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
    Test,
    Until,
)
from monitor.logic.traversal import handover_goal
from monitor.referee.basis import is_counted
from monitor.referee.inputs import action_meant

MOST = 100_000_000
"""Largest number of numbers in the paths of one quantity."""
NEVER = np.iinfo(np.int64).max
LEAST, GREATEST = 2.0**-53, 1.0 - 2.0**-53
ACTION, POSTERIOR, INPUTS = 1, 2, 3
"""Kinds of noise, besides noise of the next state (0): for stochastic policies, weighted draws, and later inputs."""
BLOCK = 1024
"""Number of draws that a world's `posterior` makes together."""
LOOKS = (64, 256, 1024)
"""After these numbers of draws, a test decides whether the policy that takes over in `handover` meets the goal."""
WRONG = 1e-3
"""Probability that any of these tests is wrong in a draw."""
OTHER_NOISE = 1 << 63
"""Added to the seed for the draws of these tests."""


class Given(NamedTuple):
    """All data on which an answer depends.

    `path`: (state, action, inputs), oldest first; `first`: the number of the path's first step. `worlds`: name ->
    checked world (`monitor.worlds`); the main world has the empty name. Their steps, inverses, labels, rewards,
    forecasts and resampled inputs are used. `draws`: number of draws, with the noise of `seed`. `acted`: names of the
    policies that acted at the pairs; empty if nominal acted. `certain`: whether the answer needs no noise, so that one
    draw is enough. `see_inputs`: names of the policies that decide on the numbers of a state followed by the inputs;
    all other policies decide on states.
    """

    path: Sequence[Any]
    first: int
    terminated: bool
    worlds: Mapping[str, Any]
    policies: Mapping[str, Callable[[Floats], Any]]
    seed: int
    draws: int
    acted: Sequence[str] = ()
    certain: bool = False
    see_inputs: Container[str] = ()


def mean(goal: Goal, given: Given, later: int = 0) -> float:
    """Return the mean of a goal's outcomes; arguments and errors as for `outcomes`."""
    return float(outcomes(goal, given, later).mean())


def outcomes(goal: Goal, given: Given, later: int = 0) -> Floats:
    """Return a goal's outcomes in draws 0, 1, ...

    For a `delta`, the outcomes are differences. For `handover`, an undecided draw has the outcome 1/2. `later`: number
    of steps from the goal's offset to the intervention; before the intervention nothing is changed.

    Raises LimitError for goals that this evaluator does not sample.
    """
    late = handover_goal(goal)
    if late is not None:
        return _too_late(goal, late, given)
    begin = _begin(goal.world.offset, given)
    changes = [goal.world.change] + ([] if goal.world.baseline is None else [goal.world.baseline])
    found = [_Paths(change, begin, given, later).outcomes(goal) for change in changes]
    return found[0] if len(found) == 1 else found[0] - found[1]


def _too_late(goal: Goal, late: Goal, given: Given) -> Floats:
    """Return for each draw 1 if the policy of `late` misses its goal from a state that nominal visits, else 0.

    The outcome is 1/2 if this is undecided.
    """
    assert isinstance(goal.measure, Probability)
    assert isinstance(goal.measure.path, Until)
    states = goal.measure.path.high + 1
    last = len(given.path) - 1
    now = given._replace(path=given.path[last:], first=given.first + last, acted=given.acted[last:])
    nominal = _Paths(NOMINAL, 0, now)
    missed, open_ = np.zeros(given.draws, dtype=np.bool_), np.zeros(given.draws, dtype=np.bool_)
    for offset in range(states):
        at, inputs = nominal.at(offset), nominal.inputs(offset)
        left = np.flatnonzero(~missed)
        for here, each in _same_inputs(left, inputs):
            begun = now
            if offset > 0:
                moment = now.path[0]._replace(action=None, inputs=each)
                begun = now._replace(path=[moment], first=now.first + offset, acted=())
            found = _meets(late, begun, at[here], here, states)
            missed[here[found == 0.0]] = True
            open_[here[found == 0.5]] = True
    return np.asarray(np.where(missed, 1.0, np.where(open_, 0.5, 0.0)))


def _same_inputs(draws: Ints, inputs: Any) -> Iterator[tuple[Ints, tuple[float, ...]]]:  # noqa: ANN401 - as they come
    """Yield groups of draws with equal inputs at a step, each group with its inputs."""
    if isinstance(inputs, tuple):
        yield draws, inputs
        return
    rows: dict[tuple[float, ...], list[int]] = {}
    for draw in draws.tolist():
        rows.setdefault(tuple(inputs[draw].tolist()), []).append(draw)
    for row, those in rows.items():
        yield np.array(those), row


def _meets(late: Goal, given: Given, states: Floats, draws: Ints, tests: int) -> Floats:
    """Return for each state [n] 1 if the goal is met from it, 0 if it is missed, 1/2 if undecided."""
    assert late.test is not None
    if given.certain:
        one = _Paths(late.world.change, 0, given, start=states, numbers=draws).outcomes(late)
        return np.array([float(late.test.holds(value)) for value in one.tolist()])
    found = np.full(len(states), 0.5)
    successes, made = np.zeros(len(states)), 0
    for look in LOOKS:
        undecided = np.flatnonzero(found == 0.5)
        if not len(undecided):
            break
        width = look - made
        numbers = (draws[undecided, np.newaxis] * LOOKS[-1] + np.arange(made, look)).ravel()
        start = np.repeat(states[undecided], width, axis=0)
        more = given._replace(seed=given.seed + OTHER_NOISE, draws=len(numbers))
        drawn = _Paths(late.world.change, 0, more, start=start, numbers=numbers).outcomes(late)
        successes[undecided] += drawn.reshape(-1, width).sum(axis=1)
        made = look
        for n in undecided.tolist():
            found[n] = _decided(late.test, successes[n], look, WRONG / (tests * len(LOOKS)))
    return found


def _decided(test: Test, successes: float, count: int, error: float) -> float:
    """Return 1 if a number of successes shows that the probability passes a test, 0 if it fails, 1/2 if undecided."""
    least, most = test.holds(0.0), test.holds(1.0)
    if least == most:
        return float(least)
    chances = _binomial(count, test.bound)
    if math.fsum(chances[: int(successes) + 1]) <= error:
        return float(least)
    return float(most) if math.fsum(chances[int(successes) :]) <= error else 0.5


@cache
def _binomial(count: int, chance: float) -> list[float]:
    """Return the probabilities of 0, 1, .., `count` successes."""
    if chance in (0.0, 1.0):
        return [float(k == chance * count) for k in range(count + 1)]
    ways = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    return [math.exp(way + k * math.log(chance) + (count - k) * math.log1p(-chance)) for k, way in enumerate(ways)]


def left(goal: Goal, given: Given) -> float | None:
    """Return the fraction of draws that take an unrecorded action before the goal's value is decided.

    For a difference, return the fraction in the first world. Return None if the fraction cannot be determined: the
    residual does not always show that a formula is decided, or the recorded data of the world are unknown.

    Raises LimitError for goals that this evaluator does not sample.
    """
    if isinstance(goal.measure, Probability) and not is_counted(goal.measure):
        return None
    paths = _Paths(goal.world.change, _begin(goal.world.offset, given), given)
    return float(paths.left(goal).mean()) if paths.knows_recorded else None


def drawn_states(change: InterventionRef, offset: int, given: Given, steps: int) -> tuple[int, list[Floats]]:
    """Return an intervention's position on the path, and the states [draws, f] there and at the next `steps` steps."""
    begin = _begin(offset, given)
    paths = _Paths(change, begin, given)
    return begin, [paths.at(k) for k in range(steps + 1)]


def _begin(at: int, given: Given) -> int:
    """Return the position of an offset, clipped to the path (docs/semantics/worlds.md, section 1.4)."""
    last = len(given.path) - 1
    used = max(-last, min(at, last))
    return last - used if used >= 0 else -used - 1


class _Paths:
    """Sampled paths from an intervention on, extended as far as they are needed.

    `start`: the states in which the draws begin, None for the state of the path. `numbers`: the numbers of the draws,
    None for 0, 1, ...
    """

    def __init__(
        self,
        change: InterventionRef,
        begin: int,
        given: Given,
        later: int = 0,
        *,
        start: Floats | None = None,
        numbers: Ints | None = None,
    ) -> None:
        if change.decides:
            raise LimitError(f"{change.name} decides for the goal, which is not drawn")
        self._change, self._later, self._policies = change, later, given.policies
        self._see_inputs = given.see_inputs
        self._first, self._terminated = given.first + begin, given.terminated
        self._main = given.worlds[""]
        self._world = given.worlds[change.name] if change.kind == "model" else self._main
        self._seed = given.seed
        self._numbers = np.arange(given.draws) if numbers is None else numbers
        self._draws = draws = len(self._numbers)
        self._held, self._acted = given.path[begin:], given.acted[begin:]
        if draws * len(self._held[0][0]) > MOST:
            raise LimitError(f"the paths take more than {MOST:,} numbers")
        self._inputs: list[Any] = []
        begins = np.repeat(np.array([self._held[0][0]]), draws, axis=0) if start is None else start
        self._states: list[Floats] = [begins]
        self._actions: list[Ints] = []
        self._left = np.full(draws, NEVER)  # the first offset with an unrecorded action

    def outcomes(self, goal: Goal) -> Floats:
        """Return the outcome of each draw."""
        measure = goal.measure
        if isinstance(measure, Probability):
            return self._truth(measure.path, 0).astype(np.float64)
        total = np.zeros(self._draws)
        for offset in range(measure.low, measure.high + 1):
            before, after = self.at(offset), self.at(offset + 1)
            earned = self._main.rewards(before, self._actions[offset], after)
            total += np.where(self._stays(offset, before), 0.0, earned)
        return total

    @property
    def knows_recorded(self) -> bool:
        """True if it is known in which ranges of numbers each action was recorded."""
        return bool(self._world.learned_from)

    def left(self, goal: Goal) -> Bools:
        """Return which draws take an unrecorded action while later labels can still decide the goal.

        For a reward, this means before the last step that counts.
        """
        measure = goal.measure
        if not isinstance(measure, Probability):
            self.at(measure.high + 1)
            return self._left <= measure.high
        least = self._truth(measure.path, 0, unknown=False)
        return np.asarray(least != self._truth(measure.path, 0, unknown=True))

    def _truth(self, formula: Formula, at: int, *, unknown: bool | None = None) -> Bools:
        """Return on which paths a path formula holds from an offset on, by its definition.

        `unknown`: the assumed truth of the formula if labels after an unrecorded action decide it.
        """
        match formula:
            case Const(value):
                return np.full(self._draws, value)
            case Label(name):
                holds = np.asarray(self._main.holds(name, self.at(at)), dtype=np.bool_)
                return holds if unknown is None else np.where(self._left < at, unknown, holds)
            case Not(arg):
                return ~self._truth(arg, at, unknown=None if unknown is None else not unknown)
            case And(left, right):
                return self._truth(left, at, unknown=unknown) & self._truth(right, at, unknown=unknown)
            case Or(left, right):
                return self._truth(left, at, unknown=unknown) | self._truth(right, at, unknown=unknown)
            case Until(low=low, high=high, left=left, right=right):
                met, until_now = np.zeros(self._draws, dtype=np.bool_), np.ones(self._draws, dtype=np.bool_)
                for offset in range(high + 1):
                    if offset >= low:
                        met |= until_now & self._truth(right, at + offset, unknown=unknown)
                    until_now &= self._truth(left, at + offset, unknown=unknown)
                return met
            case Goal():
                raise LimitError("a quantity is nested in a path, which is not drawn")
            case Regret():
                raise AssertionError("no regret inside a path")
            case _:
                assert_never(formula)

    def at(self, offset: int) -> Floats:
        """Return the states at an offset from the intervention."""
        while len(self._states) <= offset:
            self._go_on()
        return self._states[offset]

    def _go_on(self) -> None:
        offset, states = len(self._actions), self._states[-1]
        if states.size * (offset + 1) > MOST:
            raise LimitError(f"the paths take more than {MOST:,} numbers")
        actions = self._chosen(offset, states)
        happened = np.zeros(self._draws, dtype=np.bool_)
        fresh = self._fresh(offset)
        if offset < len(self._held) - 1:
            state, action, inputs = pair = self._held[offset]
            successor = self._held[offset + 1][0]
            found = self._main.abduce(pair, successor)
            if found.posterior is None:
                noise = np.clip(found.low + (found.high - found.low) * fresh, LEAST, GREATEST)
            else:
                noise = self._posterior(found.posterior, 4 * (self._first + offset) + POSTERIOR)
            moved = self._world.step(states, actions, noise, inputs)
            if self._world is self._main:
                happened = (states == np.array(state)).all(axis=1) & (actions == action)
                moved[happened] = successor
        else:
            moved = self._world.step(states, actions, fresh, self.inputs(offset))
        stays = self._stays(offset, states)
        if self.knows_recorded:
            inputs = self._held[offset][2] if offset < len(self._held) else self.inputs(offset)
            new = self._world.unrecorded(states, actions, inputs) & ~happened & ~stays
            self._left = np.where(new, np.minimum(self._left, offset), self._left)
        moved[stays] = states[stays]
        self._states.append(moved)
        self._actions.append(actions)

    def inputs(self, offset: int) -> Any:  # noqa: ANN401 - one row for all draws, or one for each
        """Return the inputs at the last pair's offset or later: recorded at the pair, later forecast or resampled."""
        last = len(self._held) - 1
        while len(self._inputs) <= offset - last:
            ahead = len(self._inputs)
            self._inputs.append(self._later_inputs(ahead, self._first + last) if ahead else self._held[-1][2])
        return self._inputs[offset - last]

    def _later_inputs(self, ahead: int, last: int) -> Any:  # noqa: ANN401 - likewise
        """Return the inputs `ahead` steps after the last pair, whose step has the number `last`."""
        if not self._world.recorded_steps:
            return self._world.forecast(self._inputs[-1])
        chances = uniforms(self._seed, 4 * last + INPUTS, self._numbers, 1)[:, 0]
        return self._world.resample(self._held[-1][2], ahead, chances)

    def _stays(self, offset: int, states: Floats) -> Bools:
        """Return which draws are in the last state of an episode that has ended, from the last pair on."""
        if not self._terminated or offset < len(self._held) - 1:
            return np.zeros(len(states), dtype=np.bool_)
        return np.asarray((states == np.array(self._held[-1][0])).all(axis=1))

    def _chosen(self, offset: int, states: Floats) -> Ints:
        change, policy = self._change, "nominal"
        since = offset - self._later
        off = since < 0 or (change.steps is not None and since >= change.steps)
        if change.kind == "action" and not off:
            taken = action_meant(change.name, self._main.action_names, self._main.actions)
            assert taken is not None, "the formula was checked"
            return np.full(len(states), taken)
        if change.kind == "policy" and not off:
            policy = change.name
        unchanged = change.kind in ("nominal", "model") or off
        if unchanged and offset < len(self._acted):
            policy = self._acted[offset]
        chosen = self._decided(policy, states, offset)
        chosen = self._raced(chosen, offset) if chosen.ndim == 2 else chosen.astype(np.int64)
        if unchanged and offset < len(self._held) and self._held[offset][1] is not None:
            chosen = np.where((states == np.array(self._held[offset][0])).all(axis=1), self._held[offset][1], chosen)
        return np.asarray(chosen, dtype=np.int64)

    def _decided(self, policy: str, states: Floats, offset: int) -> Any:  # noqa: ANN401 - actions or distributions
        """Return the choice of a policy in states at an offset. If the policy sees inputs, they follow each state."""
        if policy in self._see_inputs:
            inputs = self._held[offset][2] if offset < len(self._held) else self.inputs(offset)
            rows = np.asarray(inputs, dtype=np.float64)
            states = np.column_stack([states, rows if rows.ndim == 2 else np.tile(rows, (len(states), 1))])
        return np.asarray(self._policies[policy](states))

    def _raced(self, chances: Floats, offset: int) -> Ints:
        """Sample actions from distributions [draws, A], given the observed action.

        See docs/semantics/formulas.md, section 7.
        """
        noise = uniforms(self._seed, 4 * (self._first + offset) + ACTION, self._numbers, chances.shape[1])
        clocks = -np.log1p(-noise)
        if offset < len(self._held) and self._held[offset][1] is not None:
            state, taken = self._held[offset][0], self._held[offset][1]
            acting = self._acted[offset] if offset < len(self._acted) else "nominal"
            usual = self._decided(acting, np.array([state]), offset)
            if usual.ndim == 2 and usual[0, taken] > 0.0:
                first = clocks[:, taken]
                clocks = clocks + first[:, np.newaxis] * usual[0]
                clocks[:, taken] = first * usual[0, taken]
        times = np.full(chances.shape, np.inf)
        np.divide(clocks, chances, out=times, where=chances > 0.0)
        return np.asarray(times.argmin(axis=1), dtype=np.int64)

    def _posterior(self, posterior: Callable[[np.random.Generator, int], Any], step: int) -> Floats:
        """Return the noise [draws, noise] of an observed step from the world's `posterior`, block by block."""
        chances, blocks = uniforms(self._seed, step, self._numbers, 1)[:, 0], self._numbers // BLOCK
        noise = np.empty((self._draws, self._world.noise))
        for block in np.unique(blocks):
            counter = np.random.Philox(key=[self._seed, step], counter=[0, 0, 0, int(block)])
            drawn, weights = posterior(np.random.Generator(counter), BLOCK)
            here = np.flatnonzero(blocks == block)
            if weights is None:
                noise[here] = drawn[self._numbers[here] % BLOCK]
            else:
                noise[here] = drawn[np.minimum(np.searchsorted(np.cumsum(weights), chances[here]), BLOCK - 1)]
        return noise

    def _fresh(self, offset: int) -> Floats:
        """Return uniform numbers [draws, noise] of a step."""
        return uniforms(self._seed, 4 * (self._first + offset), self._numbers, self._world.noise)


def uniforms(seed: int, step: int, draws: Ints, width: int) -> Floats:
    """Return `width` uniform numbers for each draw, from Philox4x32-10.

    The counter is (number // 2, 0, step, draw); each counter gives two numbers.
    """
    low = np.uint64(0xFFFFFFFF)
    drawn = np.empty((len(draws), width + width % 2))
    for block in range((width + 1) // 2):
        shape = np.ones(len(draws), dtype=np.uint64)
        c = [
            shape * np.uint64(block),
            shape * np.uint64(0),
            shape * np.uint64(step & 0xFFFFFFFF),
            draws.astype(np.uint64),
        ]
        k = [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            one, two = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
            c = [
                (two >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
                two & low,
                (one >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
                one & low,
            ]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        for place, (high, rest) in enumerate(((c[0], c[1]), (c[2], c[3]))):
            bits = ((high << np.uint64(32)) | rest) >> np.uint64(12)
            drawn[:, 2 * block + place] = (bits.astype(np.float64) + 0.5) * 2.0**-52
    return drawn[:, :width]
