"""A second referee: worlds by real Gumbel noise, those that do not reproduce the observed path rejected.

Nothing is shared with the trees but the regimes: no counterfactual row, no weights, no bits. Noise is drawn for each
step: one Gumbel variable for each successor and one for each action. A step's noise is kept if under the base regime it
gives the action and the successor that were observed (an action to which the policy gives no chance says nothing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator, horizon, resolve
from tests.oracle.race import ONE
from tests.oracle.setting import Dist
from tests.oracle.worlds import DEPLOYED, Regime, World

Noise = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]
Holds = Callable[[ast.Node, int], bool]
History = tuple[tuple[int, int], ...]
Drawn = Counter[History]


class Sampled(NamedTuple):
    """A mean over worlds, and the width of the interval that a single world's value lies in."""

    mean: float
    spread: float


class Sampler:
    """Draws the histories of worlds of one setting; nested quantities are the evaluator's."""

    def __init__(self, evaluator: Evaluator, worlds: int, seed: int) -> None:
        self._evaluator = evaluator
        self._laws = evaluator.laws
        self._setting = evaluator.setting
        self._worlds = worlds
        self._random = np.random.default_rng(seed)

    def ask(self, text: str) -> Sampled:
        """Return the mean of a `=?` question over worlds that reproduce the path."""
        formula = self._evaluator.parser.parse(text)
        assert isinstance(formula, ast.Ask)
        quantity = formula.quantity
        means = [self._mean(quantity, change) for change in (quantity.world.change, quantity.world.baseline) if change]
        mean = means[0] - (means[1] if len(means) > 1 else 0.0)
        return Sampled(mean, len(means) * self._width(quantity))

    def _width(self, quantity: ast.Quantity) -> float:
        if isinstance(quantity, ast.Prob):
            return 1.0
        setting = self._setting
        high = max(map(abs, setting.rewards.values()), default=0)
        high += max(map(abs, setting.transition_rewards.values()), default=0)
        return float(2 * high * (quantity.last - quantity.first + 1))

    def _mean(self, quantity: ast.Quantity, change: ast.Change) -> float:
        path = self._setting.path
        _, start = resolve(quantity.world.offset, len(path))
        world = World(DEPLOYED, start, path[start:], change.kind, change.name, change.length)
        length = horizon(quantity.body) if isinstance(quantity, ast.Prob) else quantity.last + 1
        drawn = self.histories(world, length)
        single = SinglePaths(self._evaluator, world.regime, start)
        total = 0.0
        for history, times in drawn.items():
            if isinstance(quantity, ast.Reward):
                total += times * self._reward(quantity, history, start)
            else:
                total += times * single.satisfies(history, quantity.body, 0)
        return total / self._worlds

    def _reward(self, quantity: ast.Reward, history: History, start: int) -> float:
        return float(
            sum(
                self._laws.reward(start + k, *history[k], history[k + 1][0])
                for k in range(quantity.first, quantity.last + 1)
            )
        )

    def histories(self, world: World, length: int) -> Drawn:
        """Return how often each history (x_0, a_0) .. (x_length, a_length) was drawn."""
        states = np.full(self._worlds, world.path[0][0])
        columns: list[npt.NDArray[np.int64]] = []
        for offset in range(length + 1):
            actions = self._actions(world, offset, states)
            columns += [states, actions]
            states = self._successors(world, offset, states, actions)
        rows, times = np.unique(np.column_stack(columns), axis=0, return_counts=True)
        pairs = [tuple(zip(row[::2].tolist(), row[1::2].tolist(), strict=True)) for row in rows]
        return Counter(dict(zip(pairs, times.tolist(), strict=True)))

    def _actions(self, world: World, offset: int, states: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        time = world.start + offset
        seen, taken = world.path[offset] if offset < len(world.path) else (None, None)
        base: Dist | None = None
        if seen is not None and taken is not None:
            base = self._policy(world.base, time)[seen]
        informs = base is not None and taken is not None and taken in base
        noise = self._noise(self._setting.actions, base if informs else None, taken)
        policy = self._policy(world.regime, time)
        actions = np.zeros_like(states)
        for state in np.unique(states).tolist():
            there = states == state
            if taken is not None and state == seen and not world.changed(time):
                actions[there] = taken
            else:
                actions[there] = winners(policy[state], noise[there])
        return actions

    def _policy(self, regime: Regime, time: int) -> tuple[Dist, ...]:
        name = regime.policy(time)
        if not name.startswith("do:"):
            return self._setting.policies[name]
        names = self._setting.action_names or tuple(map(str, range(self._setting.actions)))
        return ({names.index(name[3:]): ONE},) * self._setting.states

    def _successors(
        self, world: World, offset: int, states: npt.NDArray[np.int64], actions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        time = world.start + offset
        row, outcome = None, None
        if offset + 1 < len(world.path):
            seen, taken = world.path[offset]
            assert taken is not None
            row, outcome = self._laws.row(world.base.model, time, seen, taken), world.path[offset + 1][0]
        noise = self._noise(self._setting.states, row, outcome)
        successors = np.zeros_like(states)
        for state, action in np.unique(np.column_stack([states, actions]), axis=0).tolist():
            there = (states == state) & (actions == action)
            successors[there] = winners(self._laws.row(world.regime.model, time, state, action), noise[there])
        return successors

    def _noise(self, size: int, dist: Dist | None, outcome: int | None) -> Noise:
        return posterior_noise(self._random, (self._worlds, size), dist, outcome)


def posterior_noise(
    random: np.random.Generator, shape: tuple[int, int], dist: Dist | None, outcome: int | None
) -> Noise:
    """Return Gumbel noise [worlds, size] that makes `outcome` the choice from `dist`, by rejection; any without one."""
    noise = random.gumbel(size=shape)
    if dist is None:
        return noise
    wrong = np.flatnonzero(winners(dist, noise) != outcome)
    while wrong.size:
        noise[wrong] = random.gumbel(size=(wrong.size, shape[1]))
        wrong = wrong[winners(dist, noise[wrong]) != outcome]
    return noise


def winners(dist: Dist, noise: Noise) -> npt.NDArray[np.int64]:
    """Return argmax_j (log p_j + G_j) in each world."""
    weights: Floats = np.zeros(noise.shape[1])
    for outcome, chance in dist.items():
        weights[outcome] = float(chance)
    with np.errstate(divide="ignore"):
        return np.asarray(np.argmax(np.log(weights) + noise, axis=1), dtype=np.int64)


class SinglePaths:
    """Satisfaction on one complete path at a time, clause by clause of the definition.

    Nested comparisons are the evaluator's, under the regime of the paths from time `start` on.
    """

    def __init__(self, evaluator: Evaluator, regime: Regime, start: int) -> None:
        self._evaluator = evaluator
        self._regime = regime
        self._start = start

    def satisfies(self, history: History, node: ast.Node, at: int) -> bool:
        """Return whether a path (x_0, a_0) .. (x_h, a_h) satisfies a formula at an offset."""

        def holds(part: ast.Node, there: int) -> bool:
            return self.satisfies(history, part, there)

        match node:
            case ast.Const(value):
                return value
            case ast.Label(name):
                return history[at][0] in self._evaluator.setting.labels[name]
            case ast.Compare():
                return self._evaluator.truth(node, self._regime, self._start, history[: at + 1])
            case ast.Not(inner):
                return not holds(inner, at)
            case ast.Binary(op, left, right):
                one, two = holds(left, at), holds(right, at)
                return {"&": one and two, "|": one or two, "=>": two if one else True, "<=>": one is two}[op]
            case ast.Next(inner):
                return holds(inner, at + 1)
            case ast.Timed(op, first, last, inner):
                each = (holds(inner, at + j) for j in range(first, last + 1))
                return any(each) if op == "F" else all(each)
        return _binary(holds, node, at)


def _binary(holds: Holds, node: ast.Until, at: int) -> bool:
    first, last, left, right = node.first, node.last, node.left, node.right
    if node.op == "R":  # not (not left U not right)
        return all(holds(right, at + j) or any(holds(left, at + i) for i in range(j)) for j in range(first, last + 1))
    until = any(holds(right, at + j) and all(holds(left, at + i) for i in range(j)) for j in range(first, last + 1))
    return until or (node.op == "W" and all(holds(left, at + i) for i in range(last + 1)))
