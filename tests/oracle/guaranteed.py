"""The lowest and highest value over every causal model and every row in the confidence set of a learned model.

Backward induction over (offset, state, what remains of the formula). At each of them the worst row is chosen anew:
before the last observed pair among the counterfactual rows of `row_extreme`, beyond it among those in the box of the
row. `elsewhere` stands for any state: whatever remains to be seen there counts 0 in the lower and 1 in the upper value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Union

from tests.oracle import syntax as ast
from tests.oracle.confidence import Box, Interval, row_box
from tests.oracle.evaluate import resolve
from tests.oracle.obligations import Obligations, Rest, read
from tests.oracle.race import counterfactual_row
from tests.oracle.rows import interval_extreme, row_extreme

if TYPE_CHECKING:
    from monitor.model import MDP

Path = Sequence[tuple[int, int | None]]
Policy = Sequence[Union[int, Sequence[float]]]  # noqa: UP007 (evaluated at run time)
Dist = dict[int, float]


@dataclass(frozen=True)
class Learned:
    """A learned model with the limits of its rows, as dictionaries.

    `rewards` has R(s, a, s2) of every transition of the model, `row_rewards` the part r(s, a).
    """

    rows: Mapping[tuple[int, int], Box]
    labels: Mapping[int, frozenset[str]]
    rewards: Mapping[tuple[int, int, int], float]
    row_rewards: Mapping[tuple[int, int], float]
    elsewhere: int | None
    actions: Mapping[str, int]

    @property
    def reward_range(self) -> Interval:
        """Return the smallest and the largest reward of one step, 0 among them."""
        return min(0.0, *self.rewards.values()), max(0.0, *self.rewards.values())


def learned(model: MDP, delta: float) -> Learned:
    """Return the limits of a model's rows; those of order 0, and all without counts, are given exactly."""
    rows: dict[tuple[int, int], Box] = {}
    rewards, row_rewards = {}, {}
    for state in range(model.states):
        for action in range(model.actions):
            r = state * model.actions + action
            entries = range(int(model.indptr[r]), int(model.indptr[r + 1]))
            successors = {int(model.successors[e]): e for e in entries}
            order = 0 if model.counts is None else int(model.counts.order[r])
            if model.counts is None or order == 0:
                rows[state, action] = {k: (model.probabilities[e],) * 2 for k, e in successors.items()}
            else:
                seen = {k: (int(model.counts.visits[e]), int(model.counts.since[e])) for k, e in successors.items()}
                rows[state, action] = row_box(seen, order, model.counts.elsewhere, delta)
            row_rewards[state, action] = float(model.rewards[state, action])
            for k, e in successors.items():
                extra = 0.0 if model.transition_rewards is None else float(model.transition_rewards[e])
                rewards[state, action, k] = row_rewards[state, action] + extra
    return Learned(
        rows=rows,
        labels={s: frozenset(name for name, where in model.labels.items() if where[s]) for s in range(model.states)},
        rewards=rewards,
        row_rewards=row_rewards,
        elsewhere=None if model.counts is None else model.counts.elsewhere,
        actions={name: a for a, name in enumerate(model.action_names or map(str, range(model.actions)))},
    )


class World:
    """The actions and the worst rows after one change. Offset 0 is the intervention state, d that of the last pair."""

    def __init__(
        self, model: Learned, policies: Mapping[str, Policy], path: Path, change: ast.Change, *, ended: bool = False
    ) -> None:
        if change.kind == "model":
            raise ValueError("the oracle knows one model")
        self.model = model
        self._policies = policies
        self._path = path
        self._change = change
        self.start = path[0][0]
        self.ended_in = path[-1][0] if ended else None

    def absorbed(self, offset: int, state: int) -> bool:
        """Return whether the episode has ended in this state."""
        return offset >= len(self._path) - 1 and state == self.ended_in

    def actions(self, offset: int, state: int) -> Dist:
        """Return the distribution of the action at an offset in a state."""
        change = self._change
        changed = change.kind != "nominal" and (change.length is None or offset < change.length)
        seen, taken = self._path[offset] if offset < len(self._path) else (None, None)
        if not changed and state == seen and taken is not None:
            return {taken: 1.0}
        wanted = self._chosen("nominal", state)
        if changed and change.kind == "do":
            wanted = {self.model.actions[change.name]: 1.0}
        elif changed:
            wanted = self._chosen(change.name, state)
        if taken is None or seen is None or not self._chosen("nominal", seen).get(taken):
            return wanted
        return _conditional(self._chosen("nominal", seen), wanted, taken)

    def extreme(self, offset: int, state: int, action: int, value: Callable[[int], float], *, largest: bool) -> float:
        """Return the extreme mean of `value` over the successors of (state, action) at an offset."""
        target = self.model.rows[state, action]
        if self.absorbed(offset, state):
            return value(state)
        if offset + 1 >= len(self._path):
            return interval_extreme(*_limits(target), [value(k) for k in target], largest=largest)
        (seen, taken), (outcome, _) = self._path[offset], self._path[offset + 1]
        assert taken is not None
        if (seen, taken) == (state, action):
            return value(outcome)
        observed = self.model.rows[seen, taken]
        at = list(observed).index(outcome)
        return row_extreme(*_limits(observed), at, *_limits(target), [value(k) for k in target], largest=largest)

    def _chosen(self, name: str, state: int) -> Dist:
        entry = self._policies[name][state]
        if isinstance(entry, Sequence):
            return {a: weight for a, weight in enumerate(entry) if weight}
        return {int(entry): 1.0}


class Induction:
    """Backward induction to one side in one world."""

    def __init__(self, world: World, *, largest: bool) -> None:
        self._world = world
        self._largest = largest
        self._known: dict[tuple[int, int, Rest], float] = {}
        self._earned: dict[tuple[int, int], float] = {}

    def probability(self, offset: int, state: int, rest: Rest) -> float:
        """Return the extreme probability that what remains comes true from a state at an offset on."""
        if isinstance(rest, bool):
            return float(rest)
        if state == self._world.model.elsewhere:
            return float(self._largest)
        key = offset, state, rest
        if key not in self._known:
            after = read(rest, offset, self._world.model.labels[state])
            self._known[key] = (
                float(after)
                if isinstance(after, bool)
                else self._mean(offset, state, lambda _, successor: self.probability(offset + 1, successor, after))
            )
        return self._known[key]

    def reward(self, offset: int, state: int, first: int, last: int) -> float:
        """Return the extreme mean of the rewards from an offset on, within offsets first..last."""
        if offset > last:
            return 0.0
        if state == self._world.model.elsewhere:
            return (last + 1 - max(offset, first)) * self._world.model.reward_range[self._largest]
        if (offset, state) not in self._earned:

            def value(action: int, successor: int) -> float:
                now = self._step(offset, state, action, successor) if offset >= first else 0.0
                return now + self.reward(offset + 1, successor, first, last)

            self._earned[offset, state] = self._mean(offset, state, value)
        return self._earned[offset, state]

    def _mean(self, offset: int, state: int, value: Callable[[int, int], float]) -> float:
        total = 0.0
        for action, weight in self._world.actions(offset, state).items():

            def of(successor: int, action: int = action) -> float:
                return value(action, successor)

            total += weight * self._world.extreme(offset, state, action, of, largest=self._largest)
        return total

    def _step(self, offset: int, state: int, action: int, successor: int) -> float:
        """Return the reward of a step; of one never seen the extreme."""
        model = self._world.model
        if self._world.absorbed(offset, state):
            return 0.0
        if successor == model.elsewhere:
            return model.reward_range[self._largest]
        return model.rewards.get((state, action, successor), model.row_rewards[state, action])


def guaranteed(
    model: MDP, policies: Mapping[str, Policy], path: Path, text: str, delta: float, *, terminated: bool = False
) -> Interval:
    """Return the limits of a `=?` query over all causal models and all rows that the counts leave at level delta.

    Args:
        model: with counts; without, its rows are known and only the causal model is free.
        policies: name -> for each state an action or the weights of all actions.
        path: observed pairs, oldest first; the last action may be None.
        text: `[world.] P=? [ formula of labels ]` or `[world.] R=? [ C interval ]`; not `model:`, not nested.
        delta: error rate of all rows together.
        terminated: whether the episode has ended in the last state.
    """
    formula = ast.Parser().parse(text)
    if not isinstance(formula, ast.Ask):
        raise TypeError("the oracle bounds one number: ask with =?")
    quantity = formula.quantity
    _, position = resolve(quantity.world.offset, len(path))
    given = learned(model, delta), policies, path[position:]
    low, high = _bounds(quantity, World(*given, quantity.world.change, ended=terminated))
    if quantity.world.baseline is None:
        return low, high
    base_low, base_high = _bounds(quantity, World(*given, quantity.world.baseline, ended=terminated))
    return low - base_high, high - base_low


def _bounds(quantity: ast.Quantity, world: World) -> Interval:
    low, high = (Induction(world, largest=largest) for largest in (False, True))
    state = world.start
    if isinstance(quantity, ast.Reward):
        return low.reward(0, state, quantity.first, quantity.last), high.reward(0, state, quantity.first, quantity.last)
    rest = Obligations().of(quantity.body, 0)
    return low.probability(0, state, rest), high.probability(0, state, rest)


def _limits(box: Box) -> tuple[list[float], list[float]]:
    return [low for low, _ in box.values()], [high for _, high in box.values()]


def _conditional(observed: Dist, wanted: Dist, taken: int) -> Dist:
    """Return the distribution of the action under `wanted`, given that the same noise chose `taken` (Gumbel-Max)."""
    exact_observed, exact_wanted = ({a: Fraction(weight) for a, weight in each.items()} for each in (observed, wanted))
    return {a: float(weight) for a, weight in counterfactual_row(exact_observed, exact_wanted, taken).items()}
