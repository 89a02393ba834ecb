"""The value of a measure in a world: every path it may take, unrolled one step at a time.

1. A node is an offset (as the world from there on), a state, what is still owed, and the path taken so far, as much of
   it as a nested goal that looks back may need.
2. A node's value is the mean over actions and successors of what this step earns and the value of the next node; `true`
   owed is worth 1, `false` 0. Nodes are found forwards, offset by offset, and valued backwards.
3. A nested goal is decided where the path is, in the frame of the path taken up to there; the action just taken counts.
4. Over a class of causal models each node takes the worst or the best of the distributions allowed; a nested goal that
   may be true or false takes either truth, at each node anew.

Nothing outlives an `Unroll`, and one question makes one.

Definitions: docs/semantics.md, section 5.
Kazemi & Paoletti, Definition 4 (quantitative operators); nesting and bounds go beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError
from monitor.logic.syntax import Change, Const, Goal, Label, Probability, Reward
from monitor.referee.chance import Aim, Row, mean, mixed, row
from monitor.referee.residual import TRUE, Residual, collect, expand, looks_back, nested, present, window
from monitor.referee.world import Frame, Setting, Step, World, intervene, position
from monitor.types import CausalModel

__all__ = ["LIMIT", "Unroll"]

LIMIT = 200_000
"""Rows one question may read: one for each node and action, or for each node where the action makes no difference."""

Owing = tuple[Residual, tuple[Step, ...]]
"""What is still owed, and the path before the present state as far as it matters for that."""
Choices = list[tuple[int, float]]
"""Actions and their probabilities."""
Known = Mapping[Owing, tuple[Ints, Floats]]
"""For each thing owed: states, ascending, and the values of their nodes."""
AGAINST: Mapping[Aim, Aim] = {"value": "value", "least": "most", "most": "least"}


@dataclass(frozen=True, slots=True)
class Branch:
    """What may happen at a node, with a weight.

    `row`: None if where it leads does not matter; `options`: what may be owed next, to choose from; `earns`: the reward
    of this step counts.
    """

    weight: float
    row: Row | None
    options: tuple[Owing, ...]
    earns: bool


Layer = dict[Owing, dict[int, list[Branch]]]
"""The nodes of one offset that are referred to; no branches: its value is known."""


class Unroll:
    """See the module.

    Args:
        setting: models, policies, and the state the episode ended in.
        actions: the index of each action that some `do(..)` names.
        causal_model: the class that `least` and `most` refer to.
    """

    def __init__(self, setting: Setting, actions: Mapping[str, int], causal_model: CausalModel) -> None:
        self._setting, self._actions, self._causal_model = setting, actions, causal_model
        self._values: dict[tuple[Aim, World, Owing], dict[int, float]] = {}
        self._truths: dict[tuple[object, ...], bool | None] = {}
        self._plain: dict[tuple[object, ...], Row] = {}
        self._read = 0

    def quantity(self, goal: Goal, frame: Frame, aim: Aim = "value") -> float:
        """Return the value of a goal's measure in a frame, or the least or most over the class of causal models.

        Raises:
            LimitError: more than `LIMIT` rows would have to be read.
        """
        value = self._measure(goal, goal.world.change, frame, aim)
        if goal.world.baseline is not None:
            value -= self._measure(goal, goal.world.baseline, frame, AGAINST[aim])
        if isinstance(goal.measure, Probability):  # rounding may lead beyond
            value = min(max(value, 0.0 if goal.world.baseline is None else -1.0), 1.0)
        return value

    def _measure(self, goal: Goal, change: Change, frame: Frame, aim: Aim) -> float:
        """Find the nodes forwards, then value them backwards."""
        _, start = position(goal.world.offset, len(frame.steps))
        world = intervene(frame, start, change, self._actions[change.name] if change.kind == "action" else None)
        state, measure = frame.steps[start].state, goal.measure
        owing: Owing = (measure.path if isinstance(measure, Probability) else measure, ())
        known: Known = {}
        for at, layer in reversed(list(self._layers(aim, world, owing, state))):
            for part, nodes in layer.items():
                table = self._table(aim, at, part)
                table.update({place: _value(branches, aim, known) for place, branches in nodes.items() if branches})
            known = {part: _vectors(self._table(aim, at, part), sorted(nodes)) for part, nodes in layer.items()}
        return self._table(aim, world, owing)[state]

    def _layers(self, aim: Aim, world: World, owing: Owing, state: int) -> Iterator[tuple[World, Layer]]:
        """Find the nodes, offset by offset; what lies behind a node of known value is not looked at again."""
        wanted: dict[Owing, set[int]] = {owing: {state}}
        while wanted:
            layer: Layer = {}
            for part, places in wanted.items():
                table = self._table(aim, world, part)
                layer[part] = {
                    place: [] if place in table else list(self._branches(aim, world, part, place)) for place in places
                }
            yield world, layer
            wanted, world = _reached(layer), world.later()

    def _table(self, aim: Aim, world: World, owing: Owing) -> dict[int, float]:
        """Return the known values by state. Where no causal model has a choice, all aims share one table."""
        free = len(world.seen) > 1 or looks_back(owing[0])
        return self._values.setdefault((aim if free else "value", world, owing), {})

    def _branches(self, aim: Aim, world: World, owing: Owing, state: int) -> Iterator[Branch]:
        """Find what may happen at a node. Actions that owe the same, with nothing to choose, make one branch."""
        owed, _ = owing
        choices = self._setting.actions(world, state)
        if nested(owed):
            for choice in choices:
                options = self._options(aim, world, owing, Step(state, choice[0], world.now))
                yield self._branch(aim, world, state, [choice], options)
            return
        after = collect(owed) if isinstance(owed, Reward) else expand(owed, lambda atom: self._label(atom, state))
        earns = isinstance(owed, Reward) and owed.low == 0
        together = aim == "value" or len(world.seen) < 2
        for part in [choices] if together else [[choice] for choice in choices]:
            yield self._branch(aim, world, state, part, ((after, ()),), earns=earns)

    def _branch(
        self, aim: Aim, world: World, state: int, choices: Choices, options: tuple[Owing, ...], *, earns: bool = False
    ) -> Branch:
        """Return the branch of some of the actions in `state`."""
        self._count(1)
        weight = sum(chance for _, chance in choices)
        if not earns and all(isinstance(owed, Const) for owed, _ in options):
            return Branch(weight, None, options, earns)
        return Branch(weight, self._row(aim, world, state, choices), options, earns)

    def _row(self, aim: Aim, world: World, state: int, choices: Choices) -> Row:
        """Return the row of one action, or the mean row of several; those with prior noise are remembered."""
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
                f"the referee reads at most {LIMIT:,} rows for one question (one for each offset, state, action and "
                "part of the formula still owed there), and this one needs more; only the exact engine answers it"
            )

    def _label(self, atom: Label | Goal, state: int) -> bool:
        assert isinstance(atom, Label)
        return bool(self._setting.main.labels[atom.name][state])

    def _options(self, aim: Aim, world: World, owing: Owing, step: Step) -> tuple[Owing, ...]:
        """Return what may be owed next, with the path it may need; more than one where a nested goal is open."""
        owed, path = owing[0], (*owing[1], step)
        assert not isinstance(owed, Reward)
        unsure: list[Label | Goal] = []
        if aim != "value":
            unsure += [goal for goal in present(owed) if self._decided(aim, world, goal, path) is None]
        self._count(2 ** len(unsure))
        found: set[Owing] = set()
        for truths in product((False, True), repeat=len(unsure)):
            chosen = dict(zip(unsure, truths, strict=True))

            def truth(atom: Label | Goal, chosen: dict[Label | Goal, bool] = chosen) -> bool:
                if isinstance(atom, Label):
                    return self._label(atom, step.state)
                return chosen[atom] if atom in chosen else bool(self._decided(aim, world, atom, path))

            after = expand(owed, truth)
            found.add((after, _needed(after, path)))
        return tuple(found)

    def _decided(self, aim: Aim, world: World, goal: Goal, path: tuple[Step, ...]) -> bool | None:
        """Return the truth of a nested goal after `path`; None: it depends on the causal model."""
        aims: tuple[Aim, ...] = ("least", "most") if aim != "value" and looks_back(goal) else ("value",)
        frame = Frame((*_needed(goal, path[:-1]), path[-1]), world.future)
        key = (aims, goal, frame)
        if key not in self._truths:
            assert goal.test is not None
            truths = {goal.test.holds(self.quantity(goal, frame, one)) for one in aims}
            self._truths[key] = truths.pop() if len(truths) == 1 else None
        return self._truths[key]


def _needed(owed: Residual, path: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the part of the path that goals in `owed` may still look back at."""
    reach = window(owed)
    return path if reach is None else path[max(0, len(path) - reach) :]


def _reached(layer: Layer) -> dict[Owing, set[int]]:
    """Return the nodes that the branches of a layer lead to, but for those worth 0 or 1."""
    found: dict[Owing, list[Ints]] = {}
    for branch in (branch for nodes in layer.values() for branches in nodes.values() for branch in branches):
        for option in branch.options:
            if branch.row is not None and not isinstance(option[0], Const):
                found.setdefault(option, []).append(branch.row.successors)
    return {owing: set(np.unique(np.concatenate(rows)).tolist()) for owing, rows in found.items()}


def _vectors(table: Mapping[int, float], states: list[int]) -> tuple[Ints, Floats]:
    return np.array(states), np.array([table[state] for state in states])


def _value(branches: list[Branch], aim: Aim, known: Known) -> float:
    """Return the value of a node; of several options, each branch takes the worst or the best."""
    best = max if aim == "most" else min
    return sum(
        branch.weight * best(_worth(branch, owing, aim, known) for owing in branch.options) for branch in branches
    )


def _worth(branch: Branch, owing: Owing, aim: Aim, known: Known) -> float:
    """Return the value of a branch if `owing` is what is owed next."""
    settled = float(owing[0] == TRUE)
    if branch.row is None:
        return settled
    values = np.full(len(branch.row.successors), settled)
    if owing in known:
        states, worths = known[owing]
        values = worths[np.searchsorted(states, branch.row.successors)]
    return mean(branch.row, values + branch.row.earned if branch.earns else values, aim)
