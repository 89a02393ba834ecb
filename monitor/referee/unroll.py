"""Value of a measure in a world: all paths of the world, unrolled one step at a time.

1. A node is an offset (represented by the world from this offset on), a state, the residual of the formula, and the
   part of the path so far to which a nested goal may look back.
2. A node's value is the mean, over actions and successors, of this step's reward plus the value of the next node. The
   residual `true` has value 1, and `false` has value 0. A forward pass finds the nodes, offset by offset; a backward
   pass evaluates them.
3. A nested goal is decided in the current state, in the frame of the path up to this state, including the action just
   taken.
4. Over a class of causal models, each node has the worst or the best of the permitted distributions. A nested goal that
   may be true or false has either truth value, independently at each node.

Each query creates one `Unroll`, and nothing is cached for later queries.

Definitions: docs/semantics/formulas.md, section 5.
Kazemi & Paoletti, Definition 4 (quantitative operators); nesting and bounds are not in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError
from monitor.logic.syntax import Const, Goal, InterventionRef, Label, Probability, Reward
from monitor.referee.best import Deciding, First
from monitor.referee.residual import TRUE, Residual, collect, expand, looks_back, nested, present, window
from monitor.referee.transition import Aim, Row, mean, mixed, row
from monitor.referee.world import CounterfactualWorld, Frame, PathStep, Setting, intervene, position
from monitor.types.specs import CausalModel

LIMIT = 200_000
"""Largest number of rows of one query: one for each node and action, or for each node if the action does not matter."""

Obligation = tuple[Residual, tuple[PathStep, ...]]
"""Residual of the formula, and the part of the path before the current state that the residual needs."""
Choices = list[tuple[int, float]]
"""Actions and their probabilities."""
Known = Mapping[Obligation, tuple[Ints, Floats]]
"""For each obligation: states, ascending, and the values of their nodes."""
OPPOSITE: Mapping[Aim, Aim] = {"value": "value", "least": "most", "most": "least"}


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a node, with its weight.

    `row`: the row, None if the successor does not matter; `options`: possible next obligations; `earns`: whether the
    reward of this step counts.
    """

    weight: float
    row: Row | None
    options: Sequence[Obligation]
    earns: bool


Layer = dict[Obligation, dict[int, list[Branch]]]
"""Nodes of one offset, by obligation and state; a node without branches has a known value."""


class Unroll:
    """Evaluator of the measures in one query, with its node values.

    Args:
        setting: models, policies, and the state the episode ended in.
        actions: the index of each action that some `do(..)` names.
        causal_model: the class of causal models for `least` and `most`.
    """

    def __init__(self, setting: Setting, actions: Mapping[str, int], causal_model: CausalModel) -> None:
        self._setting, self._actions, self._causal_model = setting, actions, causal_model
        self._values: dict[tuple[Aim, CounterfactualWorld, Obligation], dict[int, float]] = {}
        self._truths: dict[tuple[object, ...], bool | None] = {}
        self._plain: dict[tuple[object, ...], Row] = {}
        self._deciding = Deciding(setting, causal_model)
        self._read = 0

    def quantity(self, goal: Goal, frame: Frame, aim: Aim = "value") -> float:
        """Return the value of a goal's measure in a frame, or its lower or upper bound over the class of causal models.

        Raises:
            LimitError: more than `LIMIT` rows are needed.
        """
        value = self._measure(goal, goal.world.change, frame, aim)
        if goal.world.baseline is not None:
            value -= self._measure(goal, goal.world.baseline, frame, OPPOSITE[aim])
        if isinstance(goal.measure, Probability):  # rounding may exceed the range
            value = min(max(value, 0.0 if goal.world.baseline is None else -1.0), 1.0)
        return value

    def first_change(self, goal: Goal, changes: int, frame: Frame, *, largest: bool) -> First | None:
        """Return the first changed decision of the best `changes` changes; None if no change is better."""
        return self._deciding.first(goal, changes, frame, largest=largest)

    def _measure(self, goal: Goal, change: InterventionRef, frame: Frame, aim: Aim) -> float:
        """Return the value of a measure under a change: find the nodes forwards, then evaluate them backwards."""
        if change.decides:
            return self._deciding.measure(goal, change, frame, aim)
        _, start = position(goal.world.offset, len(frame.steps))
        world = intervene(frame, start, change, self._actions[change.name] if change.kind == "action" else None)
        state, measure = frame.steps[start].state, goal.measure
        obligation: Obligation = (measure.path if isinstance(measure, Probability) else measure, ())
        known: Known = {}
        for at, layer in reversed(list(self._layers(aim, world, obligation, state))):
            for part, nodes in layer.items():
                table = self._table(aim, at, part)
                table.update({place: _value(branches, aim, known) for place, branches in nodes.items() if branches})
            known = {part: _vectors(self._table(aim, at, part), sorted(nodes)) for part, nodes in layer.items()}
        return self._table(aim, world, obligation)[state]

    def _layers(
        self, aim: Aim, world: CounterfactualWorld, obligation: Obligation, state: int
    ) -> Iterator[tuple[CounterfactualWorld, Layer]]:
        """Yield the nodes, offset by offset. Successors of a node with a known value are skipped."""
        wanted: dict[Obligation, set[int]] = {obligation: {state}}
        while wanted:
            layer: Layer = {}
            for part, places in wanted.items():
                table = self._table(aim, world, part)
                layer[part] = {
                    place: [] if place in table else list(self._branches(aim, world, part, place)) for place in places
                }
            yield world, layer
            wanted, world = _successors(layer), world.later()

    def _table(self, aim: Aim, world: CounterfactualWorld, obligation: Obligation) -> dict[int, float]:
        """Return the known values by state. If all causal models agree, all aims share one table."""
        free = len(world.seen) > 1 or looks_back(obligation[0])
        return self._values.setdefault((aim if free else "value", world, obligation), {})

    def _branches(self, aim: Aim, world: CounterfactualWorld, obligation: Obligation, state: int) -> Iterator[Branch]:
        """Yield the branches of a node. Actions with the same single next obligation share one branch."""
        residual, _ = obligation
        choices = self._setting.actions(world, state)
        if nested(residual):
            for choice in choices:
                options = self._options(aim, world, obligation, PathStep(state, choice[0], world.now))
                yield self._branch(aim, world, state, [choice], options)
            return
        after = (
            collect(residual)
            if isinstance(residual, Reward)
            else expand(residual, lambda atom: self._label(atom, state))
        )
        earns = isinstance(residual, Reward) and residual.low == 0
        together = aim == "value" or len(world.seen) < 2
        for part in [choices] if together else [[choice] for choice in choices]:
            yield self._branch(aim, world, state, part, ((after, ()),), earns=earns)

    def _branch(
        self,
        aim: Aim,
        world: CounterfactualWorld,
        state: int,
        choices: Choices,
        options: tuple[Obligation, ...],
        *,
        earns: bool = False,
    ) -> Branch:
        """Return the branch of some of the actions in `state`."""
        self._count(1)
        weight = sum(chance for _, chance in choices)
        if not earns and all(isinstance(residual, Const) for residual, _ in options):
            return Branch(weight, None, options, earns)
        return Branch(weight, self._row(aim, world, state, choices), options, earns)

    def _row(self, aim: Aim, world: CounterfactualWorld, state: int, choices: Choices) -> Row:
        """Return the row of one action, or the mixture of several actions' rows. Rows with prior noise are cached."""
        key = (world.now, state, tuple(choices)) if len(world.seen) < 2 else None
        if key in self._plain:
            return self._plain[key]
        causal_model = "gumbel" if aim == "value" else self._causal_model
        rows = [row(self._setting, world, (state, action), causal_model) for action, _ in choices]
        total = sum(weight for _, weight in choices)
        weighted = [(weight / total, one) for (_, weight), one in zip(choices, rows, strict=True)]
        found = rows[0] if len(rows) == 1 else mixed(weighted)
        if key is not None:
            self._plain[key] = found
        return found

    def _count(self, rows: int) -> None:
        self._read += rows
        if self._read > LIMIT:
            raise LimitError(
                f"the referee evaluates at most {LIMIT:,} rows in one query (one for each offset, state, action and "
                "residual of the formula), and this one needs more; only the exact engine can answer it"
            )

    def _label(self, atom: Label | Goal, state: int) -> bool:
        assert isinstance(atom, Label)
        return bool(self._setting.main.labels[atom.name][state])

    def _options(
        self, aim: Aim, world: CounterfactualWorld, obligation: Obligation, step: PathStep
    ) -> tuple[Obligation, ...]:
        """Return the possible next obligations; more than one if a nested goal is undecided."""
        residual, path = obligation[0], (*obligation[1], step)
        assert not isinstance(residual, Reward)
        undecided: list[Label | Goal] = []
        if aim != "value":
            undecided += [goal for goal in present(residual) if self._decided(aim, world, goal, path) is None]
        self._count(2 ** len(undecided))
        found: set[Obligation] = set()
        for truths in product((False, True), repeat=len(undecided)):
            chosen = dict(zip(undecided, truths, strict=True))

            def truth(atom: Label | Goal, chosen: dict[Label | Goal, bool] = chosen) -> bool:
                if isinstance(atom, Label):
                    return self._label(atom, step.state)
                return chosen[atom] if atom in chosen else bool(self._decided(aim, world, atom, path))

            after = expand(residual, truth)
            found.add((after, _needed(after, path)))
        return tuple(found)

    def _decided(self, aim: Aim, world: CounterfactualWorld, goal: Goal, path: tuple[PathStep, ...]) -> bool | None:
        """Return the truth of a nested goal after `path`; None if it depends on the causal model."""
        aims: tuple[Aim, ...] = ("least", "most") if aim != "value" and looks_back(goal) else ("value",)
        frame = Frame((*_needed(goal, path[:-1]), path[-1]), world.future)
        key = (aims, goal, frame)
        if key not in self._truths:
            assert goal.test is not None
            truths = {goal.test.holds(self.quantity(goal, frame, one)) for one in aims}
            self._truths[key] = truths.pop() if len(truths) == 1 else None
        return self._truths[key]


def _needed(residual: Residual, path: tuple[PathStep, ...]) -> tuple[PathStep, ...]:
    """Return the part of the path to which goals in `residual` may still look back."""
    steps = window(residual)
    return path if steps is None else path[max(0, len(path) - steps) :]


def _successors(layer: Layer) -> dict[Obligation, set[int]]:
    """Return the successor nodes of a layer's branches, without those of value 0 or 1."""
    found: dict[Obligation, list[Ints]] = {}
    for branch in (branch for nodes in layer.values() for branches in nodes.values() for branch in branches):
        for option in branch.options:
            if branch.row is not None and not isinstance(option[0], Const):
                found.setdefault(option, []).append(branch.row.successors)
    return {obligation: set(np.unique(np.concatenate(rows)).tolist()) for obligation, rows in found.items()}


def _vectors(table: Mapping[int, float], states: list[int]) -> tuple[Ints, Floats]:
    return np.array(states), np.array([table[state] for state in states])


def _value(branches: list[Branch], aim: Aim, known: Known) -> float:
    """Return the value of a node; each branch has the value of its worst or best option."""
    extreme = max if aim == "most" else min
    return sum(
        branch.weight * extreme(_branch_value(branch, option, aim, known) for option in branch.options)
        for branch in branches
    )


def _branch_value(branch: Branch, option: Obligation, aim: Aim, known: Known) -> float:
    """Return the value of a branch whose next obligation is `option`."""
    settled = float(option[0] == TRUE)
    if branch.row is None:
        return settled
    values = np.full(len(branch.row.successors), settled)
    if option in known:
        states, successor_values = known[option]
        values = successor_values[np.searchsorted(states, branch.row.successors)]
    return mean(branch.row, values + branch.row.rewards if branch.earns else values, aim)
