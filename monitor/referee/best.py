"""Values of worlds in which decisions are made for the goal: `best`, `best[k]`, `best[<=k]`, `optimal`.

1. A *mode* determines the later decisions. In mode `free` every decision is best, for some steps or forever. In mode
   `few` at most some number of decisions are best. In mode `optimal` all decisions follow the policy that is best
   without observations.
2. In mode `free` a node has the value of its best action. In mode `few` a node has the better of two values: the value
   of the unchanged decision, and the value of the best action with one change less. The second value is possible only
   if a change is left and the step is on the path.
3. The unchanged decision is the decision in the world without intervention. In mode `few`, decisions after the last
   observed pair are unchanged.
4. The optimal policy does not know the observations, except an end of the episode, which is a part of the model. Among
   actions whose values differ by at most 1e-12, this policy takes the action with the largest probability under
   nominal, then the action with the lowest number.
5. Over a class of causal models, each row has its worst or its best distribution, independently for each action.
6. A node is evaluated after all nodes to which it leads. A list contains the nodes to evaluate, so that a long horizon
   needs no deep recursion.

Definitions: docs/semantics/decisions.md, section 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError
from monitor.logic.syntax import NOMINAL, Const, Goal, InterventionRef, Label, Probability, Reward
from monitor.referee.residual import TRUE, PathResidual, Residual, collect, expand
from monitor.referee.transition import Aim, Row, mean, row
from monitor.referee.world import CounterfactualWorld, Frame, Setting, intervene, position
from monitor.types.specs import CausalModel

BEST_LIMIT = 2_000_000
"""Largest number of rows of one query: one for each offset, state, available action, residual, and changes left."""
TIE = 1e-12
FOREVER = 1 << 62


class Mode(NamedTuple):
    """Mode of later decisions (see the module). `left`: remaining steps in `free`, or remaining changes in `few`."""

    kind: str
    left: int


UNCHANGED = Mode("few", 0)


class First(NamedTuple):
    """The first changed decision of a plan with few changes. `step`: index of the decision on the path."""

    step: int
    action: int


@dataclass(frozen=True, eq=False)
class Track:
    """The worlds without intervention, by position on the path; the last world has no observations.

    `held`: number of pairs of the path. `prior`: the same worlds without any observations; this object itself if it has
    no observations.
    """

    worlds: tuple[CounterfactualWorld, ...]
    held: int
    prior: Track | None = None

    def at(self, place: int) -> CounterfactualWorld:
        """Return the world without intervention at a position."""
        return self.worlds[min(place, len(self.worlds) - 1)]


@dataclass(frozen=True, eq=False)
class Position:
    """Common description of the nodes of all states at one position. Beyond the path the position is `Track.held`.

    `values`: [S] the values of the nodes, nan if not yet known. There is one object for each description.
    """

    track: Track
    position: int
    residual: Residual
    mode: Mode
    aim: Aim
    largest: bool
    values: Floats


class Option(NamedTuple):
    """One action in a node.

    `row`: the row, None if the successor does not matter. `ahead`: the value after this step, or the `Position` that
    has the values. `earns`: whether the reward of this step counts.
    """

    row: Row | None
    ahead: float | Position
    earns: bool = False


class NodeOptions(NamedTuple):
    """The options of a node: the unchanged decision as a mixture (if allowed), and single actions."""

    kept: Sequence[tuple[float, Option]]
    tried: Sequence[Option]

    def options(self) -> Iterator[Option]:
        """Yield all options."""
        yield from (option for _, option in self.kept)
        yield from self.tried


class Deciding:
    """Evaluator of worlds in which decisions are made for the goal, for one query.

    Args:
        setting: models, policies, and the state the episode ended in.
        causal_model: the class of causal models for `least` and `most`.
    """

    def __init__(self, setting: Setting, causal_model: CausalModel) -> None:
        self._setting, self._causal_model = setting, causal_model
        names = setting.main.labels.items()
        self._labels = [
            frozenset(name for name, where in names if where[state]) for state in range(setting.main.states)
        ]
        self._tracks: dict[Frame, Track] = {}
        self._places: dict[tuple[object, ...], Position] = {}
        self._afters: dict[tuple[PathResidual, frozenset[str]], Residual] = {}
        self._rows: dict[tuple[Track, int, int, int, str], Row] = {}
        self._picks: dict[tuple[Position, int], int] = {}
        self._read = 0

    def measure(self, goal: Goal, change: InterventionRef, frame: Frame, aim: Aim) -> float:
        """Return the value of a goal's measure under an intervention that makes decisions for the goal.

        Raises LimitError beyond `BEST_LIMIT`.
        """
        start, residual = _begun(goal, frame)
        first = self._place(self._track(frame), start, residual, _mode(change), aim, largest=change.largest)
        return self._value_of(first, frame.steps[start].state)

    def first(self, goal: Goal, changes: int, frame: Frame, *, largest: bool) -> First | None:
        """Return the first changed decision of the best plan with `changes` changes, made as late as possible.

        The decision is at the first observed pair at which a changed decision is better than the unchanged decision.
        Among equally good actions, the action with the lowest number is chosen. Return None if no change is better.
        """
        start, residual = _begun(goal, frame)
        for index, step in enumerate(frame.steps[start:], start):
            if isinstance(residual, Const):
                return None
            place = self._place(self._track(frame), index, residual, Mode("few", changes), "value", largest=largest)
            node = self._node(place, step.state)
            self._fill(_missing(node.options()))
            kept = sum(weight * _worth(option, "value") for weight, option in node.kept)
            worths = [_worth(option, "value") for option in node.tried]
            best = max(worths) if largest else min(worths)
            if abs(best - kept) > _near(kept) and (best > kept) == largest:
                return First(index, min(_tied(self._available(step.state), worths, best)))
            residual = self._after(residual, step.state)
        return None

    def _track(self, frame: Frame) -> Track:
        if frame not in self._tracks:
            worlds = [intervene(frame, 0, NOMINAL, None)]
            while worlds[-1].later() != worlds[-1]:
                worlds.append(worlds[-1].later())
            unseen = [CounterfactualWorld((), world.timeline) for world in worlds]
            same, held = all(world == unseen[0] for world in unseen), len(frame.steps)
            prior = Track(tuple(unseen[-1:]), 0) if same else Track(tuple(unseen), held)
            self._tracks[frame] = Track(tuple(worlds), held, prior)
        return self._tracks[frame]

    def _place(self, track: Track, index: int, residual: Residual, mode: Mode, aim: Aim, *, largest: bool) -> Position:
        """Return the `Position` at an index. If equal nodes have several descriptions, all use one of these."""
        if index >= track.held:  # no observations here, and mode `few` changes nothing
            index, aim, mode = track.held, "value", UNCHANGED if mode.kind == "few" else mode
        described = track, index, residual, mode if mode.left else UNCHANGED, aim, largest
        if described not in self._places:
            self._places[described] = Position(*described, np.full(self._setting.main.states, np.nan))
        return self._places[described]

    def _value_of(self, place: Position, state: int) -> float:
        if isinstance(place.residual, Const):
            return float(place.residual == TRUE)
        self._fill([(place, state)])
        return float(place.values[state])

    def _fill(self, pending: list[tuple[Position, int]]) -> None:
        """Evaluate some nodes, the last one first. Nodes to which they lead are evaluated before them."""
        opened: dict[tuple[Position, int], NodeOptions] = {}
        while pending:
            place, state = at = pending[-1]
            if not np.isnan(place.values[state]):
                pending.pop()
                continue
            if at not in opened:
                opened[at] = self._node(place, state)
            missing = _missing(opened[at].options())
            if missing:
                pending += missing
            else:
                place.values[state] = _best_of(opened.pop(at), place)

    def _node(self, place: Position, state: int) -> NodeOptions:
        """Return the decisions of a node."""
        mode, after = place.mode, self._after(place.residual, state)
        ahead = self._ahead(place, after, mode)
        if mode.kind == "optimal":
            return NodeOptions([(1.0, self._option(place, ahead, state, self._pick(place, state)))], ())
        kept: list[tuple[float, Option]] = []
        if mode.kind == "few":
            choices = self._setting.actions(place.track.at(place.position), state)
            kept = [(weight, self._option(place, ahead, state, action)) for action, weight in choices]
        if not mode.left:
            return NodeOptions(kept, ())
        ahead = self._ahead(place, after, Mode(mode.kind, mode.left - (mode.left < FOREVER)))
        return NodeOptions(kept, [self._option(place, ahead, state, action) for action in self._available(state)])

    def _ahead(self, place: Position, after: Residual, later: Mode) -> float | Position:
        """Return the value after the step from a node, or the `Position` that has the values."""
        if isinstance(after, Const):
            return float(after == TRUE)
        return self._place(place.track, place.position + 1, after, later, place.aim, largest=place.largest)

    def _option(self, place: Position, ahead: float | Position, state: int, action: int) -> Option:
        self._read += 1
        if self._read > BEST_LIMIT:
            raise LimitError(
                f"the referee evaluates at most {BEST_LIMIT:,} rows to make decisions in one query, and this one needs "
                "more; only the exact engine can answer it"
            )
        earns = isinstance(place.residual, Reward) and place.residual.low == 0
        if isinstance(ahead, float) and not earns:
            return Option(None, ahead)
        return Option(self._row(place, state, action), ahead, earns)

    def _row(self, place: Position, state: int, action: int) -> Row:
        """Return the row of an action in a node, computed once for all descriptions at its position on the path."""
        causal_model = "gumbel" if place.aim == "value" else self._causal_model
        key = place.track, min(place.position, len(place.track.worlds) - 1), state, action, causal_model
        if key not in self._rows:
            self._rows[key] = row(self._setting, place.track.at(place.position), (state, action), causal_model)
        return self._rows[key]

    def _available(self, state: int) -> list[int]:
        actions: list[int] = np.flatnonzero(self._setting.main.available(state)).tolist()
        return actions

    def _after(self, residual: Residual, state: int) -> Residual:
        if isinstance(residual, Reward):
            return collect(residual)
        key = residual, self._labels[state]
        if key not in self._afters:
            self._afters[key] = expand(residual, lambda atom: isinstance(atom, Label) and atom.name in key[1])
        return self._afters[key]

    def _pick(self, place: Position, state: int) -> int:
        """Return the optimal policy's action in a node, that is, the best action without any observation."""
        track = place.track.prior or place.track
        free = Mode("free", FOREVER)
        prior = self._place(track, place.position, place.residual, free, "value", largest=place.largest)
        if (prior, state) not in self._picks:
            node = self._node(prior, state)
            self._fill(_missing(node.tried))
            worths = [_worth(option, "value") for option in node.tried]
            best = max(worths) if place.largest else min(worths)
            taken = self._setting.policies["nominal"].distribution(state, self._setting.main.actions)
            tied = _tied(self._available(state), worths, best)
            self._picks[prior, state] = max(tied, key=lambda action: (taken[action], -action))
        return self._picks[prior, state]


def _missing(options: Iterable[Option]) -> list[tuple[Position, int]]:
    """Return the nodes without a value to which the options lead."""
    missing = []
    for option in options:
        if option.row is not None and isinstance(option.ahead, Position):
            successors = option.row.successors
            missing += [(option.ahead, k) for k in successors[np.isnan(option.ahead.values[successors])].tolist()]
    return missing


def _best_of(node: NodeOptions, place: Position) -> float:
    """Return the value of a node whose options are known."""
    worths = [_worth(option, place.aim) for option in node.tried]
    if node.kept:
        worths.append(sum(weight * _worth(option, place.aim) for weight, option in node.kept))
    return max(worths) if place.largest else min(worths)


def _worth(option: Option, aim: Aim) -> float:
    """Return the value of an option; the values after its step must be known."""
    if option.row is None:
        assert isinstance(option.ahead, float)
        return option.ahead
    successors = option.row.successors
    if isinstance(option.ahead, Position):
        ahead = option.ahead.values[successors]
    else:
        ahead = np.full(len(successors), option.ahead)
    return mean(option.row, ahead + option.row.rewards if option.earns else ahead, aim)


def _begun(goal: Goal, frame: Frame) -> tuple[int, Residual]:
    """Return the index of the intervention's pair, and the goal's residual from this pair on."""
    _, start = position(goal.world.offset, len(frame.steps))
    return start, goal.measure.path if isinstance(goal.measure, Probability) else goal.measure


def _tied(actions: list[int], worths: list[float], best: float) -> list[int]:
    """Return the actions that are as good as the best one, up to the tolerance."""
    return [action for action, worth in zip(actions, worths, strict=True) if abs(worth - best) <= _near(best)]


def _near(value: float) -> float:
    return TIE * max(1.0, abs(value))


def _mode(change: InterventionRef) -> Mode:
    if change.kind == "optimal":
        return Mode("optimal", FOREVER)
    if change.limit is not None:
        return Mode("few", change.limit)
    return Mode("free", FOREVER if change.steps is None else change.steps)
