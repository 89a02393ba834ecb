"""Values of worlds in which decisions are made for the goal: `best`, `best[k]`, `best[<=k]`, `optimal`.

1. A *mode* says which decisions are left: every one is best (`free`, for some steps or for ever), or some number of
   them (`few`), or all are those of the policy that is best without observations (`optimal`).
2. In mode `free` a node has the value of its best action; in mode `few` that of the unchanged decision or, while a
   decision is left and the step is held, that of the best action with one decision less, whichever is better.
3. The unchanged decision is that of the world without intervention. After the last held step nothing is changed in
   mode `few`.
4. The optimal policy does not know what was observed, except an end of the episode, which is a part of the model.
   Among actions whose values differ by at most 1e-12 it takes the one that nominal takes (with the largest
   probability), else the least.
5. Over a class of causal models each row takes its worst or its best distribution, for each action by itself.

Definitions: docs/semantics.md, section 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError
from monitor.logic.syntax import NOMINAL, Change, Const, Goal, Label, Probability, Reward
from monitor.referee.residual import TRUE, Residual, collect, expand
from monitor.referee.transition import Aim, mean, row
from monitor.referee.world import Frame, Setting, World, intervene, position
from monitor.types import CausalModel

__all__ = ["BEST_LIMIT", "Deciding", "First"]

BEST_LIMIT = 2_000_000
"""Most rows of one query: one for each offset, state, available action, residual, and number of changes left."""
TIE = 1e-12
FOREVER = 1 << 62


class Mode(NamedTuple):
    """Decisions that are left (see the module). `left`: steps of `free`, decisions of `few`."""

    kind: str
    left: int


UNCHANGED = Mode("few", 0)


class First(NamedTuple):
    """The first decision that few changes change. `step`: its index on the path."""

    step: int
    action: int


@dataclass(frozen=True)
class Route:
    """What a value depends on beside the node: the worlds without intervention by offset, the rows' aim, the direction.

    `held`: number of held steps from the intervention state on; the last world has no observation.
    """

    worlds: tuple[World, ...]
    held: int
    aim: Aim
    largest: bool

    def at(self, offset: int) -> World:
        """Return the world without intervention at an offset."""
        return self.worlds[min(offset, len(self.worlds) - 1)]

    @property
    def beyond(self) -> Route:
        """The route after the last held step, where every offset is the same."""
        return Route(self.worlds[-1:], 0, "value", self.largest)

    @property
    def prior(self) -> Route:
        """The route without observations."""
        worlds = tuple(World((), world.timeline) for world in self.worlds)
        return Route(worlds[-1:], 0, "value", self.largest) if len(set(worlds)) == 1 else replace(self, worlds=worlds)


class Deciding:
    """Evaluator of such worlds in one query.

    Args:
        setting: models, policies, and the state the episode ended in.
        causal_model: the class that `least` and `most` refer to.
    """

    def __init__(self, setting: Setting, causal_model: CausalModel) -> None:
        self._setting, self._causal_model = setting, causal_model
        self._tables: dict[tuple[Route, int, Residual, Mode], Floats] = {}
        self._picks: dict[tuple[Route, int, Residual, int], int] = {}
        self._read = 0

    def measure(self, goal: Goal, change: Change, frame: Frame, aim: Aim) -> float:
        """Return the value of a goal's measure under a change that decides. Raise LimitError beyond `BEST_LIMIT`."""
        start, route, residual = self._begun(goal, change, frame, aim)
        return float(self._values(route, 0, residual, _mode(change), np.array([frame.steps[start].state]))[0])

    def first(self, goal: Goal, changes: int, frame: Frame, *, largest: bool) -> First | None:
        """Return the first changed decision of the best `changes` changes, made as late as they can be.

        Up to it all is as observed: it is at the first observed pair where changing the decision is better than leaving
        it. Of equally good actions it takes the least. None if no change is better.
        """
        change = Change("best", "best", limit=changes, largest=largest)
        start, route, residual = self._begun(goal, change, frame, "value")
        for offset, step in enumerate(frame.steps[start:]):
            if isinstance(residual, Const):
                return None
            mode = Mode("few", changes)
            kept = self._kept(route, offset, residual, mode, step.state)
            actions = self._available(step.state)
            worths = list(self._each(route, offset, residual, Mode("few", changes - 1), step.state))
            best = max(worths) if largest else min(worths)
            if abs(best - kept) > _near(kept) and (best > kept) == largest:
                return First(start + offset, min(_tied(actions, worths, best)))
            residual = self._after(residual, step.state)
        return None

    def _begun(self, goal: Goal, change: Change, frame: Frame, aim: Aim) -> tuple[int, Route, Residual]:
        """Return the index of the intervention's pair, the route from there, and what the goal requires."""
        _, start = position(goal.world.offset, len(frame.steps))
        world = intervene(frame, start, NOMINAL, None)
        worlds = [world]
        while worlds[-1].later() != worlds[-1]:
            worlds.append(worlds[-1].later())
        route = Route(tuple(worlds), len(frame.steps) - start, aim, change.largest)
        return start, route, goal.measure.path if isinstance(goal.measure, Probability) else goal.measure

    def _values(self, route: Route, offset: int, residual: Residual, mode: Mode, states: Ints) -> Floats:
        """Return the values [n] of nodes in n states."""
        if isinstance(residual, Const):
            return np.full(len(states), float(residual == TRUE))
        if offset >= route.held:
            route, offset, mode = route.beyond, 0, UNCHANGED if mode.kind == "few" else mode
        table = self._tables.setdefault((route, offset, residual, mode), np.full(self._setting.main.states, np.nan))
        for state in states[np.isnan(table[states])].tolist():
            table[state] = self._value(route, offset, residual, mode, state)
        return table[states]

    def _value(self, route: Route, offset: int, residual: Residual, mode: Mode, state: int) -> float:
        if mode.kind == "optimal":
            return self._worth(route, offset, residual, mode, state, self._pick(route.prior, offset, residual, state))
        better = max if route.largest else min
        if mode.kind == "free" and mode.left:
            later = Mode("free", mode.left - (mode.left < FOREVER))
            return better(self._each(route, offset, residual, later, state))
        if mode.kind == "free":
            mode = UNCHANGED
        kept = self._kept(route, offset, residual, mode, state)
        if not mode.left:
            return kept
        return better(kept, *self._each(route, offset, residual, Mode("few", mode.left - 1), state))

    def _kept(self, route: Route, offset: int, residual: Residual, mode: Mode, state: int) -> float:
        """Return the value of the unchanged decision."""
        choices = self._setting.actions(route.at(offset), state)
        return sum(weight * self._worth(route, offset, residual, mode, state, a) for a, weight in choices)

    def _each(self, route: Route, offset: int, residual: Residual, later: Mode, state: int) -> Iterator[float]:
        """Yield the value of each available action, and of mode `later` after it."""
        for action in self._available(state):
            yield self._worth(route, offset, residual, later, state, action)

    def _available(self, state: int) -> list[int]:
        actions: list[int] = np.flatnonzero(self._setting.main.available(state)).tolist()
        return actions

    def _worth(  # noqa: PLR0917 - a node, an action, and what comes after it
        self, route: Route, offset: int, residual: Residual, later: Mode, state: int, action: int
    ) -> float:
        """Return the value of an action in a node."""
        self._read += 1
        if self._read > BEST_LIMIT:
            raise LimitError(
                f"the referee evaluates at most {BEST_LIMIT:,} rows to make decisions in one query, and this one needs "
                "more; only the exact engine can answer it"
            )
        earns = isinstance(residual, Reward) and residual.low == 0
        after = self._after(residual, state)
        if isinstance(after, Const) and not earns:
            return float(after == TRUE)
        causal_model = "gumbel" if route.aim == "value" else self._causal_model
        found = row(self._setting, route.at(offset), (state, action), causal_model)
        ahead = self._values(route, offset + 1, after, later, found.successors)
        return mean(found, ahead + found.rewards if earns else ahead, route.aim)

    def _after(self, residual: Residual, state: int) -> Residual:
        if isinstance(residual, Reward):
            return collect(residual)
        known = self._setting.main.labels
        return expand(residual, lambda atom: isinstance(atom, Label) and bool(known[atom.name][state]))

    def _pick(self, route: Route, offset: int, residual: Residual, state: int) -> int:
        """Return the optimal policy's action in a node. `route`: without observations."""
        key = route, min(offset, route.held), residual, state
        if key not in self._picks:
            worths = list(self._each(route, key[1], residual, Mode("free", FOREVER), state))
            best = max(worths) if route.largest else min(worths)
            tied = _tied(self._available(state), worths, best)
            taken = self._setting.policies["nominal"].distribution(state, self._setting.main.actions)
            self._picks[key] = max(tied, key=lambda action: (taken[action], -action))
        return self._picks[key]


def _tied(actions: list[int], worths: list[float], best: float) -> list[int]:
    """Return the actions that are as good as the best."""
    return [action for action, worth in zip(actions, worths, strict=True) if abs(worth - best) <= _near(best)]


def _near(value: float) -> float:
    return TIE * max(1.0, abs(value))


def _mode(change: Change) -> Mode:
    if change.kind == "optimal":
        return Mode("optimal", FOREVER)
    if change.limit is not None:
        return Mode("few", change.limit)
    return Mode("free", FOREVER if change.steps is None else change.steps)
