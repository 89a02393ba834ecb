"""The value of a measure in a world: every path it may take, unrolled one step at a time.

1. A node is an offset (as the world from there on), a state, what is still owed, and the path taken so far, as much of
   it as a nested goal that looks back may need.
2. A node's value is the mean over actions and successors of what this step earns and the value of the next node; `true`
   owed is worth 1, `false` 0. Nodes are found forwards, offset by offset, and valued backwards.
3. A nested goal is decided where the path is, in the frame of the path taken up to there; the action just taken counts.
4. Over a class of causal models each node takes the worst or the best of the distributions allowed; a nested goal that
   may be true or false takes either truth, at each node anew.

Nothing outlives an `Unroll`, and one question makes one.

Kazemi & Paoletti, Definition 4 (quantitative operators); docs/semantics.md for nesting and bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from monitor.errors import LimitError
from monitor.logic.syntax import Change, Const, Goal, Label, Probability, Reward
from monitor.referee.chance import Aim, Row, bounded, certain, mean, mixed
from monitor.referee.residual import TRUE, Owed, Residual, collect, expand, looks_back, nested, present, window
from monitor.referee.row import Floats
from monitor.referee.world import Frame, Ints, Setting, Step, World, intervene, position, shifted
from monitor.types import CausalModel

__all__ = ["LIMIT", "Unroll"]

LIMIT = 1_000_000
"""Rows one question may read: one for each node and action, or for each node where the action makes no difference."""

Owing = tuple[Residual, tuple[Step, ...]]
"""What is still owed, and the path before the present state as far as it matters for that."""
Choices = list[tuple[int, float]]
Values = Mapping[Owing, tuple[Ints, Floats]]
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
    earns: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """The nodes of one offset that have to be valued, with their branches; `wanted`: all that are referred to."""

    world: World
    nodes: dict[Owing, dict[int, list[Branch]]]
    wanted: Mapping[Owing, set[int]]


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
        self._mixed: dict[tuple[object, ...], Row] = {}
        self._rows = 0

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
        _, start = position(goal.world.offset, len(frame.steps))
        action = self._actions[change.name] if change.kind == "action" else None
        world = intervene(frame, start, change, action)
        owed: Residual = goal.measure.path if isinstance(goal.measure, Probability) else goal.measure
        return self._value(aim, world, (owed, ()), frame.steps[start].state)

    def _value(self, aim: Aim, world: World, owing: Owing, state: int) -> float:
        """Find the nodes forwards, then value them backwards."""
        following: Values = {}
        for layer in reversed(list(self._layers(aim, world, owing, state))):
            values: dict[Owing, tuple[Ints, Floats]] = {}
            for part, places in layer.wanted.items():
                table = self._table(aim, layer.world, part)
                for place, branches in layer.nodes[part].items():
                    table[place] = sum(branch.weight * _worth(branch, aim, following) for branch in branches)
                ascending = sorted(places)
                values[part] = np.array(ascending), np.array([table[place] for place in ascending])
            following = values
        return self._table(aim, world, owing)[state]

    def _layers(self, aim: Aim, world: World, owing: Owing, state: int) -> Iterator[Layer]:
        """Find the nodes, offset by offset; what lies behind a node of known value is not looked at again."""
        wanted: dict[Owing, set[int]] = {owing: {state}}
        while wanted:
            nodes = {part: self._nodes(aim, world, part, places) for part, places in wanted.items()}
            yield Layer(world, nodes, wanted)
            wanted = _reached(branch for part in nodes.values() for branches in part.values() for branch in branches)
            world = world.later()

    def _nodes(self, aim: Aim, world: World, owing: Owing, places: set[int]) -> dict[int, list[Branch]]:
        unknown = places - self._table(aim, world, owing).keys()
        return {place: list(self._branches(aim, world, owing, place)) for place in unknown}

    def _table(self, aim: Aim, world: World, owing: Owing) -> dict[int, float]:
        """Return the known values by state. Where no causal model has a choice, all aims share one table."""
        free = len(world.seen) > 1 or looks_back(owing[0])
        return self._values.setdefault((aim if free else "value", world, owing), {})

    def _branches(self, aim: Aim, world: World, owing: Owing, state: int) -> Iterator[Branch]:
        """Find what may happen at a node. Actions that owe the same, with nothing to choose, make one branch."""
        owed, _ = owing
        choices = self._setting.actions(world, state)
        if isinstance(owed, Reward):
            options, earns = ((collect(owed), ()),), owed.low == 0
        elif nested(owed):
            for action, weight in choices:
                options = self._options(aim, world, owing, Step(state, action, world.now))
                yield self._branch(aim, world, state, [(action, weight)], options)
            return
        else:
            options, earns = ((expand(owed, lambda atom: self._label(atom, state)), ()),), False
        together = aim == "value" or len(world.seen) < 2
        for part in [choices] if together else [[choice] for choice in choices]:
            yield self._branch(aim, world, state, part, options, earns=earns)

    def _branch(
        self,
        aim: Aim,
        world: World,
        state: int,
        choices: Choices,
        options: tuple[Owing, ...],
        *,
        earns: bool = False,
    ) -> Branch:
        """Return the branch of some of the actions in `state`."""
        self._count(1)
        weight = sum(chance for _, chance in choices)
        if not earns and all(isinstance(owed, Const) for owed, _ in options):
            return Branch(weight, None, options)
        return Branch(weight, self._row(aim, world, state, choices), options, earns)

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self._rows > LIMIT:
            raise LimitError(
                f"the referee reads at most {LIMIT:,} rows for one question (one for each offset, state, action and part "
                "of the formula still owed there), and this one needs more; only the exact engine answers it"
            )

    def _row(self, aim: Aim, world: World, state: int, choices: Choices) -> Row:
        """Return the row of one action, or the mean row of several."""
        key = (world.now, state, tuple(choices))
        if len(world.seen) < 2 and key in self._mixed:
            return self._mixed[key]
        if aim == "value":
            rows = [certain(self._setting, world, state, action) for action, _ in choices]
        else:
            rows = [bounded(self._setting, world, state, action, self._causal_model) for action, _ in choices]
        total = sum(weight for _, weight in choices)
        row = mixed([(weight / total, row) for (_, weight), row in zip(choices, rows, strict=True)])
        if len(world.seen) < 2:
            self._mixed[key] = row
        return row

    def _label(self, atom: Label | Goal, state: int) -> bool:
        assert isinstance(atom, Label)
        return bool(self._setting.main.labels[atom.name][state])

    def _options(self, aim: Aim, world: World, owing: Owing, step: Step) -> tuple[Owing, ...]:
        """Return what may be owed next, with the path it may need; more than one where a nested goal is open."""
        owed, history = owing
        assert not isinstance(owed, Reward)
        path = (*history, step)

        def truth(atom: Label | Goal) -> bool | None:
            return self._label(atom, step.state) if isinstance(atom, Label) else self._decide(aim, world, atom, path)

        unsure = [] if aim == "value" else [goal for goal in present(owed) if looks_back(goal) and truth(goal) is None]
        self._count(2 ** len(unsure))
        found: set[Owing] = set()
        for chosen in product((False, True), repeat=len(unsure)):
            taken = dict(zip(unsure, chosen, strict=True))
            following = expand(owed, lambda atom, taken=taken: bool(taken[atom] if atom in taken else truth(atom)))
            found.add((following, _needed(following, path)))
        return tuple(found)

    def _decide(self, aim: Aim, world: World, goal: Goal, path: tuple[Step, ...]) -> bool | None:
        """Return the truth of a nested goal after `path`; None: it depends on the causal model."""
        aims: tuple[Aim, ...] = ("least", "most") if aim != "value" and looks_back(goal) else ("value",)
        path = (*_needed(goal, path[:-1]), path[-1])
        key = (aims, goal, path, world.timeline)
        if key not in self._truths:
            assert goal.test is not None
            frame = Frame(path, shifted(world.timeline))
            truths = {goal.test.holds(self.quantity(goal, frame, one)) for one in aims}
            self._truths[key] = truths.pop() if len(truths) == 1 else None
        return self._truths[key]


def _needed(owed: Owed, path: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the part of the path that goals in `owed` may still look back at."""
    reach = window(owed)
    return path if reach is None else path[len(path) - reach :] if reach < len(path) else path


def _reached(branches: Iterable[Branch]) -> dict[Owing, set[int]]:
    """Return the nodes the branches lead to, those of known value left out."""
    found: dict[Owing, list[Ints]] = {}
    for branch in branches:
        for option in branch.options:
            if branch.row is not None and not isinstance(option[0], Const):
                found.setdefault(option, []).append(branch.row.successors)
    return {owing: set(np.unique(np.concatenate(rows)).tolist()) for owing, rows in found.items()}


def _worth(branch: Branch, aim: Aim, following: Values) -> float:
    """Return the value of a branch: of the worst or the best of its options, where there are several."""
    worths = [_option(branch, owing[0], following.get(owing), aim) for owing in branch.options]
    return max(worths) if aim == "most" else min(worths)


def _option(branch: Branch, owed: Residual, known: tuple[Ints, Floats] | None, aim: Aim) -> float:
    if branch.row is None:
        return float(owed == TRUE)
    values = np.full(len(branch.row.successors), float(owed == TRUE))
    if known is not None:
        states, worths = known
        values = worths[np.searchsorted(states, branch.row.successors)]
    return mean(branch.row, values + branch.row.earned if branch.earns else values, aim)
