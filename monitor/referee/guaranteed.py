"""Guaranteed band of a measure: bounds over every causal model and every row that is possible given the counts.

1. A node is an offset (represented by the world from this offset on), a state, and the residual of the formula. Nodes
   are found forwards and evaluated backwards, as in `unroll.py`. Each node has its own worst or best row.
2. At an observed step, a row may be any row that is possible given the observation (`intervals.py`). If pair and model
   are as observed, the outcome is as observed too. At the last observed pair and later, a row may be any row in its
   box.
3. Nothing is known about `elsewhere`, the state that represents all unseen states. There, the value of a residual may
   be anything from 0 to 1, unless all label sequences decide it in the same way. A step in or into this state may earn
   any reward of the model, or none.

Definition: docs/semantics/learned-models.md, section 13.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from monitor.errors import LimitError
from monitor.logic.syntax import Const, Goal, InterventionRef, Label, Probability, Reward
from monitor.referee.intervals import Box, box_of, extreme, least_probability
from monitor.referee.residual import FALSE, TRUE, Residual, collect, expand, labels, nested
from monitor.referee.unroll import LIMIT
from monitor.referee.world import MAIN, CounterfactualWorld, Frame, Regime, Setting, intervene, position
from monitor.types.verdicts import Band

BoxNode = tuple[Residual, int]
"""Residual and state, at an offset."""
MOST_LABELS = 8
"""If a formula has more labels than this, a residual in `elsewhere` may be true or false; it is not examined further.
"""


@dataclass(frozen=True, slots=True)
class ActionBranch:
    """One action of a node, with its weight.

    `after`: the next residual. `box`: the possible rows. `observed`: the least probability p* of the transition
    observed here, 1 if none was observed. `rewards`: least and greatest reward of this step for each successor, empty
    if the reward does not count.
    """

    weight: float
    after: Residual
    box: Box
    observed: float
    rewards: Mapping[int, Band]


BoxLayer = Mapping[BoxNode, list[ActionBranch]]
"""Nodes of one offset."""


class Guaranteed:
    """Evaluator of guaranteed bands, with the boxes of one query.

    Args:
        setting: models, policies, and the state the episode ended in.
        actions: the index of each action that some `do(..)` names.
        delta: probability that the confidence set misses a row.
    """

    def __init__(self, setting: Setting, actions: Mapping[str, int], delta: float) -> None:
        self._setting, self._actions, self.delta = setting, actions, delta
        self._boxes: dict[tuple[str, int, int], Box] = {}
        self._decisions: dict[Residual, Band] = {TRUE: (1.0, 1.0), FALSE: (0.0, 0.0)}
        self._followed: dict[Residual, set[Residual]] = {}
        self._extremes: dict[str, Band] = {}
        self._read = 0

    def learned_under(self, goal: Goal) -> bool:
        """Return whether a world of the goal has rows that were learned from data."""
        names = {MAIN, *(change.name for change in _changes(goal) if change.kind == "model")}
        return any(self._setting.models[name].counts is not None for name in names)

    def quantity(self, goal: Goal, frame: Frame) -> Band | None:
        """Return the guaranteed band of a goal; None if no band is defined.

        See docs/semantics/learned-models.md, section 13.4. Raises LimitError if more than `LIMIT` rows are needed.
        """
        measure = goal.measure
        if isinstance(measure, Probability) and isinstance(measure.path, Const):
            return (float(measure.path.value),) * 2 if goal.world.baseline is None else (0.0, 0.0)
        if self._undefined(goal):
            return None
        bands = [self._measure(goal, change, frame) for change in _changes(goal)]
        if len(bands) == 1:
            return bands[0]
        return bands[0][0] - bands[1][1], bands[0][1] - bands[1][0]

    def _undefined(self, goal: Goal) -> bool:
        """Return whether no band is defined.

        No band is defined if quantities are nested, if rewards of a transition vary, if an intervention makes decisions
        for the goal, or if the episode's end changes a row.
        """
        if any(change.decides for change in _changes(goal)):
            return True
        setting, end = self._setting, self._setting.end
        if end is not None and not all(model.is_absorbing(end) for model in setting.models.values()):
            return True
        if isinstance(goal.measure, Reward):
            return setting.main.reward_spread is not None
        return bool(nested(goal.measure.path))

    def _measure(self, goal: Goal, change: InterventionRef, frame: Frame) -> Band:
        """Return the band of a measure under a change: find the nodes forwards, then evaluate them backwards."""
        _, start = position(goal.world.offset, len(frame.steps))
        world = intervene(frame, start, change, self._actions[change.name] if change.kind == "action" else None)
        measure, model = goal.measure, world.now.model
        root: BoxNode = (measure.path if isinstance(measure, Probability) else measure, frame.steps[start].state)
        layers: list[BoxLayer] = []
        wanted = {root}
        while wanted:
            layers.append({node: self._branches(world, node) for node in wanted})
            wanted, world = self._following(layers[-1], model), world.later()
        known: dict[BoxNode, Band] = {}
        for layer in reversed(layers):
            known = {node: self._value(branches, known, model) for node, branches in layer.items()}
        low, high = self._ahead(*root, known, model)
        return (low, high) if isinstance(measure, Reward) else (max(low, 0.0), min(high, 1.0))

    def _branches(self, world: CounterfactualWorld, node: BoxNode) -> list[ActionBranch]:
        residual, state = node
        rewarded = isinstance(residual, Reward) and residual.low == 0
        after = collect(residual) if isinstance(residual, Reward) else expand(residual, self._truth_in(state))
        choices = self._setting.actions(world, state)
        self._read += len(choices)
        if self._read > LIMIT:
            raise LimitError(f"the referee's guaranteed band needs more than {LIMIT:,} rows")
        branches = []
        for action, weight in choices:
            box, observed = self._row(world, state, action)
            rewards = self._rewards(world.now, state, action, box) if rewarded else {}
            branches.append(ActionBranch(weight, after, box, observed, rewards))
        return branches

    def _truth_in(self, state: int) -> Callable[[Label | Goal], bool]:
        known = self._setting.main.labels
        return lambda atom: isinstance(atom, Label) and bool(known[atom.name][state])

    def _row(self, world: CounterfactualWorld, state: int, action: int) -> tuple[Box, float]:
        """Return the box of the row at the current offset, and the least probability p* of the observed transition."""
        model = world.now.model
        if len(world.seen) < 2:
            return self._box(model, state, action), 1.0
        step, outcome = world.seen[0], world.seen[1].state
        assert step.action is not None
        if (state, action, model) == (step.state, step.action, step.regime.model):
            return {outcome: (1.0, 1.0)}, 1.0
        observed = self._box(step.regime.model, step.state, step.action)
        return self._box(model, state, action), least_probability(observed, outcome)

    def _box(self, model: str, state: int, action: int) -> Box:
        key = model, state, action
        if key not in self._boxes:
            self._boxes[key] = box_of(self._setting.models[model], state, action, self.delta)
        return self._boxes[key]

    def _rewards(self, regime: Regime, state: int, action: int, box: Box) -> dict[int, Band]:
        """Return the rewards of a step for each successor; a step into `elsewhere` may earn any reward."""
        going, successors = replace(regime, ended=False), sorted(box)
        paid = self._setting.rewards(going, state, action, np.array(successors)).tolist()
        rewards: dict[int, Band] = {k: (reward, reward) for k, reward in zip(successors, paid, strict=True)}
        unknown = self._elsewhere(regime.model)
        return {k: self._any_reward(regime.model) if k == unknown else band for k, band in rewards.items()}

    def _any_reward(self, model: str) -> Band:
        """Return the least and the greatest reward of the transitions of a model, including 0."""
        if model not in self._extremes:
            main, dynamics, regime = self._setting.main, self._setting.models[model], Regime(0, model, ended=False)
            earned = main.rewards.reshape(-1)
            if main.transition_rewards is not None:
                pairs = product(range(main.states), range(main.actions))
                earned = np.concatenate([self._setting.rewards(regime, *at, dynamics.row(*at)[0]) for at in pairs])
            self._extremes[model] = min(0.0, float(earned.min())), max(0.0, float(earned.max()))
        return self._extremes[model]

    def _following(self, layer: BoxLayer, model: str) -> set[BoxNode]:
        """Return a layer's successors that must be evaluated: the residual is undecided, the state not `elsewhere`."""
        unknown = self._elsewhere(model)
        return {
            (branch.after, successor)
            for branches in layer.values()
            for branch in branches
            if not isinstance(branch.after, Const)
            for successor, (_, high) in branch.box.items()
            if successor != unknown and high > 0.0
        }

    def _elsewhere(self, model: str) -> int | None:
        counts = self._setting.models[model].counts or self._setting.main.counts
        return None if counts is None else counts.elsewhere

    def _value(self, branches: list[ActionBranch], known: Mapping[BoxNode, Band], model: str) -> Band:
        """Return the band of a node, given the bands of its successor nodes."""
        ends = [0.0, 0.0]
        for branch in branches:
            ahead = {successor: self._ahead(branch.after, successor, known, model) for successor in branch.box}
            for side in (0, 1):
                values = {k: band[side] + branch.rewards.get(k, (0.0, 0.0))[side] for k, band in ahead.items()}
                mean = extreme(branch.box, values, largest=side == 1, observed=branch.observed)
                ends[side] += branch.weight * mean
        return ends[0], ends[1]

    def _ahead(self, residual: Residual, state: int, known: Mapping[BoxNode, Band], model: str) -> Band:
        """Return the band of a residual in a state; `known`: the bands of the nodes at this offset."""
        if isinstance(residual, Const):
            return (float(residual == TRUE),) * 2
        if state != self._elsewhere(model):
            return known.get((residual, state), (0.0, 0.0))  # absent if no row of the box leads there
        if isinstance(residual, Reward):
            least, most = self._any_reward(model)
            steps = residual.high - residual.low + 1
            return steps * least, steps * most
        return self._decided(residual)

    def _decided(self, residual: Residual) -> Band:
        """Return the least and the greatest truth of a path formula over all sequences of labels."""
        pending = [residual]
        while pending:
            one = pending[-1]
            rests = () if one in self._decisions else self._rests(one)
            missing = [rest for rest in rests if rest not in self._decisions]
            if not missing:
                pending.pop()
                bands = [self._decisions[rest] for rest in rests] or [(0.0, 1.0)]
                self._decisions.setdefault(one, (min(low for low, _ in bands), max(high for _, high in bands)))
            pending += missing
        return self._decisions[residual]

    def _rests(self, residual: Residual) -> set[Residual]:
        """Return the possible residuals after one more state; empty if there are too many labels to try."""
        assert not isinstance(residual, Reward)
        if residual not in self._followed:
            names = sorted(labels(residual))
            ways = product((False, True), repeat=len(names)) if len(names) <= MOST_LABELS else ()
            self._followed[residual] = {
                expand(residual, _looked_up(dict(zip(names, way, strict=True)))) for way in ways
            }
        return self._followed[residual]


def _looked_up(truths: Mapping[str, bool]) -> Callable[[Label | Goal], bool]:
    return lambda atom: isinstance(atom, Label) and truths[atom.name]


def _changes(goal: Goal) -> list[InterventionRef]:
    """Return the changes of a goal's world, and of the world with which it is compared."""
    return [goal.world.change, *([] if goal.world.baseline is None else [goal.world.baseline])]
