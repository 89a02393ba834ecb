"""What questions on a model share: laws, programs, tables of what lies ahead; and the value of a measure in a world.

Where the paper samples, this computes (docs/semantics.md, section 6.1). Source: Kazemi & Paoletti, Section 3.2
(semantics of PCFTL).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import numpy as np
import numpy.typing as npt

from monitor.causal import Intervention, Law, RowMemo, World
from monitor.errors import ConfigError, LimitError
from monitor.exact.forward.buffers import (
    MAX_LEVELS,
    ForwardBuffers,
    Workspace,
    too_long,
)
from monitor.exact.forward.evaluator import (
    Evaluator,
    LabelledAutomaton,
    closing_values,
    dynamics,
    labelled_automaton,
)
from monitor.exact.forward.row_table import (
    ANY,
    STABLE,
    Budget,
    RowTables,
)
from monitor.exact.forward.rows import Dynamics
from monitor.exact.history import History, HistoryChain, PastAtom
from monitor.exact.value_table import (
    Labelling,
    NestedGoal,
    Static,
    ValueTable,
    is_large,
)
from monitor.logic import FALSE, TRUE, PathAutomaton, PathProgram, RewardAutomaton
from monitor.logic.syntax import Change, Goal, Probability, Reward
from monitor.logic.traversal import looks_back
from monitor.model import MDP, encode_action
from monitor.model.rewards import aligned_rewards
from monitor.policy import PolicyTable

__all__ = ["Evaluators", "pair_arrays", "within"]

MAX_TAILS = 256
"""Tables of what lies ahead kept at once; a table is wanted again as long as its formula is watched."""

MAX_ENDED = 16
"""Evaluators in which an episode has ended kept at once; each is wanted when an episode ends in that very state."""


class Evaluators:
    """The worlds a model and its policies can be asked about, and the value of a measure in one of them.

    Args:
        model: the world.
        policies: name -> table; `nominal` is the deployed one.
        models: name -> other dynamics over the same states and actions, for `model:name`.
    """

    def __init__(
        self, model: MDP, policies: Mapping[str, PolicyTable], models: Mapping[str, MDP] | None = None
    ) -> None:
        if "nominal" not in policies:
            raise ConfigError("no policy is called 'nominal'; it names the deployed one, so name it under policies")
        self.model = model
        self.policies = dict(policies)
        self.models = {name: _same_space(model, other, name) for name, other in (models or {}).items()}
        self.rows: RowMemo = {}
        self._arms: OrderedDict[tuple[Law, Law, Probability | Reward, Law, Law], Evaluator] = OrderedDict()
        self._dynamics: OrderedDict[tuple[Law, Law, bool], tuple[Dynamics, RowTables]] = OrderedDict()
        self._budget = Budget()
        self._automata: dict[Probability | Reward, LabelledAutomaton] = {}
        self._work: Workspace | None = None
        self._programs: dict[Probability | Reward, PathProgram] = {}
        self._statics: dict[Probability | Reward, Static] = {}
        self._tails: OrderedDict[tuple[Law, Probability | Reward], ValueTable] = OrderedDict()
        self._ended: OrderedDict[tuple[str, int], MDP] = OrderedDict()

    def value(self, world: World, measure: Probability | Reward) -> float:
        """The Gumbel-Max value of a measure in a world: a probability or an expected reward."""
        constant = self.constant(measure)
        return within(measure, self._value(world, measure)) if constant is None else constant

    def _value(self, world: World, measure: Probability | Reward) -> float:
        tail = self.tail(world.law, measure)
        past = self._past(measure, world.law, None)
        if past or _ends_elsewhere(world):
            return HistoryChain(world, tail.program, tail.letters, past).value()
        states, actions = pair_arrays(world.path)
        if world.observed == 0:
            last = int(states[0]), int(actions[0])
            return float(closing_values(world.nominal, tail, 0, tail.program.start, states, last)[0])
        arm = self.arm(world.nominal, world.law, measure)
        forward = ForwardBuffers(0, 0, 1)
        arm.push_all(forward, (states[:-1], actions[:-1]))
        arm.push(forward, int(states[-1]), int(actions[-1]), answered=True)
        return float(forward.values[0])

    def interval(
        self, world: World, measure: Probability | Reward, causal_model: Literal["any", "stable"]
    ) -> tuple[float, float]:
        """Its bounds over a class of causal models."""
        constant = self.constant(measure)
        if constant is not None:
            return constant, constant
        low, high = self._interval(world, measure, causal_model)
        return within(measure, low), within(measure, high)

    def _interval(
        self, world: World, measure: Probability | Reward, causal_model: Literal["any", "stable"]
    ) -> tuple[float, float]:
        tail = self.tail(world.law, measure)
        past = self._past(measure, world.law, causal_model)
        if past or _ends_elsewhere(world):
            return HistoryChain(world, tail.program, tail.letters, past, causal_model).interval()
        arm = self.arm(world.nominal, world.law, measure)
        return arm.interval(pair_arrays(world.path), STABLE if causal_model == "stable" else ANY)

    def constant(self, measure: Probability | Reward) -> float | None:
        """The value of a measure that no path can change, else None."""
        start = self._program(measure).start
        return float(start == TRUE) if start in (FALSE, TRUE) else None

    def stays(self, state: int) -> bool:
        """Whether a state is absorbing whatever is asked, so that an episode's end there changes nothing."""
        return all(model.is_absorbing(state) for model in (self.model, *self.models.values()))

    def arm(
        self, nominal: Law, law: Law, measure: Probability | Reward, past: tuple[Law, Law] | None = None
    ) -> Evaluator:
        """A law and a measure for the kernel; the rows it computes are shared with other measures.

        `past`: nominal and law up to the last observed pair, where an episode's end has changed them since.
        """
        seen, asked = past or (nominal, law)
        before = _past_of(seen), _past_of(asked)
        key = (nominal, law, measure, *before)
        if key not in self._arms:
            tail = self.tail(law, measure)
            automaton = self._automaton(
                tail, measure
            )  # first: what is nested asks about worlds, for which others are let go
            world = *before, not tail.letters.by_action
            if world not in self._dynamics:
                made = dynamics(before[0], before[1], merge_actions=world[2])
                self._dynamics[world] = made, RowTables(self._budget)
                if len(self._dynamics) > MAX_TAILS:
                    self._dynamics.popitem(last=False)[1][1].close()
            self._arms[key] = Evaluator(nominal, tail, automaton, self._dynamics[world], self._workspace())
            if len(self._arms) > MAX_TAILS:
                self._arms.popitem(last=False)
        self._arms.move_to_end(key)
        return self._arms[key]

    def _automaton(self, tail: ValueTable, measure: Probability | Reward) -> LabelledAutomaton:
        """Shared where nothing is nested, so that a forward message begun under one law can be closed under another."""
        if tail.letters.by_action:
            return labelled_automaton(tail)
        if measure not in self._automata:
            self._automata[measure] = labelled_automaton(tail)
        return self._automata[measure]

    def _workspace(self) -> Workspace:
        if self._work is None:
            self._work = Workspace(self.model.states, share_prior_rows=is_large(self.model))
        return self._work

    def tail(self, law: Law, measure: Probability | Reward) -> ValueTable:
        """The table of what lies ahead, for a law and a measure; atoms that look back are not in its letters."""
        key = (law, measure)
        if key not in self._tails:
            program = self._program(measure)
            nested = {
                bit: NestedGoal(atom, _Arm(self, law, atom))
                for bit, atom in enumerate(program.atoms)
                if isinstance(atom, Goal) and not looks_back(atom)
            }
            static = self._statics.setdefault(measure, Static(program, self.model))
            self._tails[key] = ValueTable(law, program, Labelling(static, nested, law.settled()))
            if len(self._tails) > MAX_TAILS:
                self._tails.popitem(last=False)
        self._tails.move_to_end(key)
        return self._tails[key]

    def prepare(self, goal: Goal, change: Change) -> None:
        """Make the table a goal needs under a change, whatever the path, unless the model is too large for it.

        Raises LimitError for a small model whose table would be too large (see `ValueTable.prepare`).
        """
        nominal = self.nominal()
        tail = self.tail(nominal.under(self.intervention(change, None)), goal.measure)
        if not self._past(goal.measure, nominal, None):
            tail.prepare()

    def prepare_bounds(self, goal: Goal, change: Change, offset: int) -> None:
        """Refuse bounds that could outgrow `MAX_LEVELS` on some path, `offset` observed steps long.

        Of a large model that is not known before: there a path that reaches too far is refused when it does.

        Raises LimitError.
        """
        nominal = self.nominal()
        if change.kind == "nominal" or is_large(self.model) or self._past(goal.measure, nominal, None):
            return
        if self.constant(goal.measure) is not None:
            return
        law = nominal.under(self.intervention(change, None))
        unrolled = self.arm(nominal, law, goal.measure).unrolled
        unrolled.extend(offset + 1)
        levels = [self.model.states * sum(o in column for column in unrolled.obligations) for o in range(offset + 1)]
        rows = 1 if all(table.actions is not None for _, table in law.phases) else self.model.actions
        most = max(sum(levels), rows * sum(levels[:-1]))  # the last level is closed: no row is chosen there
        if most > MAX_LEVELS:
            raise LimitError(too_long(f"as many as {most:,}"))

    @property
    def table_bytes(self) -> int:
        """What the tables of what lies ahead take up."""
        return sum(tail.table.nbytes for tail in self._tails.values())

    def _past(
        self, measure: Probability | Reward, law: Law, causal_model: Literal["any", "stable"] | None
    ) -> dict[int, PastAtom]:
        """The atoms of a measure that look back, by bit, in the world of a law."""
        return {
            bit: PastAtom(atom.world.offset, _Past(self, law, atom, causal_model))
            for bit, atom in enumerate(self._program(measure).atoms)
            if isinstance(atom, Goal) and looks_back(atom)
        }

    def nominal(self, end: int | None = None, until: int = 0) -> Law:
        """The deployed policy's law; `end`: the state an episode has terminated in, absorbing from `until` on."""
        table = self.policies["nominal"]
        if end is None or self.stays(end):
            return Law.stationary(table, self.model)
        return Law.ending(table, self.model, self._ending("", self.model, end), until, end)

    def intervention(self, change: Change, end: int | None) -> Intervention:
        """What a change in a formula stands for."""
        match change.kind:
            case "nominal":
                return Intervention()
            case "policy":
                return Intervention(self.policies[change.name], change.steps)
            case "action":
                action = encode_action(self.model, int(change.name) if change.name.isdigit() else change.name)
                return Intervention(self._held(action), change.steps)
            case "model":
                other = self.models[change.name]
                return Intervention(dynamics=other, future=self._ending(change.name, other, end))
            case _:
                assert_never(change.kind)

    def _held(self, action: int) -> PolicyTable:
        key = f"do({action})"  # no policy can be called that: it is not a name
        if key not in self.policies:
            self.policies[key] = PolicyTable(actions=np.full(self.model.states, action, dtype=np.int64))
        return self.policies[key]

    def _ending(self, name: str, model: MDP, end: int | None) -> MDP:
        """The rows after an end. Those of a large model stay as they are: the law says where nothing moves any more."""
        if end is None or model.is_absorbing(end):
            return model
        key = (name, end)
        if key not in self._ended:
            self._ended[key] = model if is_large(model) else model.with_absorbing(end)
            if len(self._ended) > MAX_ENDED:
                self._let_go(self._ended.popitem(last=False)[0][1])
        self._ended.move_to_end(key)
        return self._ended[key]

    def _let_go(self, end: int) -> None:
        """Drop the values of worlds that end in a state, and what keeps its models alive."""
        for key in [key for key in self._tails if key[0].end == end]:
            del self._tails[key]
        for arm in [key for key in self._arms if end in (key[0].end, key[1].end)]:
            del self._arms[arm]
        for before in [key for key in self._dynamics if end in (key[0].end, key[1].end)]:
            self._dynamics.pop(before)[1].close()

    def _program(self, measure: Probability | Reward) -> PathProgram:
        if measure not in self._programs:
            match measure:
                case Probability(path):
                    self._programs[measure] = PathAutomaton(path)
                case Reward(low, high):
                    self._programs[measure] = RewardAutomaton(low, high)
                case _:
                    assert_never(measure)
        return self._programs[measure]


@dataclass(frozen=True)
class _Arm:
    """For a nested goal: the law before and after an inner change at an outer offset, and the inner tail."""

    worlds: Evaluators
    outer: Law
    goal: Goal

    def __call__(self, offset: int, change: Change) -> tuple[Law, Law, ValueTable]:
        before = self.outer.after(min(offset, self.outer.settled()))
        law = before.under(self.worlds.intervention(change, self.outer.end))
        return before, law, self.worlds.tail(law, self.goal.measure)


class _Past:
    """For a nested goal that looks back: its truth on a counterfactual path, the outer law staying in force."""

    def __init__(
        self, worlds: Evaluators, outer: Law, goal: Goal, causal_model: Literal["any", "stable"] | None
    ) -> None:
        self._worlds, self._outer, self._goal, self._class = worlds, outer, goal, causal_model
        self._known: dict[tuple[Law, History], frozenset[bool]] = {}

    def __call__(self, position: int, pairs: History) -> frozenset[bool]:
        law = self._outer.after(min(position, self._outer.settled()))
        if (law, pairs) not in self._known:
            test = self._goal.test
            assert test is not None
            self._known[law, pairs] = frozenset(test.holds(value) for value in self._values(law, pairs))
        return self._known[law, pairs]

    def _values(self, law: Law, pairs: History) -> tuple[float, ...]:
        """The Gumbel-Max value, or the two ends of what it can be over the class."""
        one = self._arm(law, pairs, self._goal.world.change)
        if self._goal.world.baseline is None:
            return one
        other = self._arm(law, pairs, self._goal.world.baseline)
        return tuple(x - y for x, y in zip(one, reversed(other), strict=True))

    def _arm(self, law: Law, pairs: History, change: Change) -> tuple[float, ...]:
        intervention = self._worlds.intervention(change, law.end)
        world = World.at(pairs, 0, law, intervention, self._worlds.rows)
        if self._class is None:
            return (self._worlds.value(world, self._goal.measure),)
        return self._worlds.interval(world, self._goal.measure, self._class)


def _past_of(law: Law) -> Law:
    """The law as it is up to the last observed pair."""
    here = law.model_at(0)
    return replace(law, dynamics=here, future=here, until=0)


def _ends_elsewhere(world: World) -> bool:
    """Whether the rows change before or after the last observed pair, where the kernel does not look for a change.

    So it is with a path that a nested quantity looks back along: it may end before or after its episode does.
    """
    return any(
        law.until != world.observed and (not law.written or (law.until > 0 and law.future is not law.dynamics))
        for law in (world.nominal, world.law)
    )


def within(measure: Probability | Reward, value: float) -> float:
    """A value without what rounding has put outside [0, 1], if it is a probability."""
    return min(max(value, 0.0), 1.0) if isinstance(measure, Probability) else value


def pair_arrays(path: Sequence[tuple[int, int | None]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """States and actions [n] of a path; -1 for an action not yet taken."""
    pairs = np.array([(state, -1 if action is None else action) for state, action in path], dtype=np.int64)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _same_space(model: MDP, other: MDP, name: str) -> MDP:
    """Another dynamics, with the labels and rewards of the first (they stay: docs/semantics.md, section 2.2)."""
    if (other.states, other.actions) != (model.states, model.actions):
        problem = f"model {name!r} has {other.states} states and {other.actions} actions"
        raise ConfigError(f"{problem}; it must have the {model.states} and {model.actions} of the main model")
    missing = np.argwhere(model.availability & ~other.availability)
    if len(missing):
        problem = f"model {name!r} lacks action {missing[0, 1]} in state {missing[0, 0]}, where the main model has it"
        raise ConfigError(f"{problem}; give the action a row there")
    rows, others = ((m.indptr, m.successors, m.probabilities) for m in (model, other))
    extra = aligned_rewards(rows, model.transition_rewards, others)
    return replace(other, rewards=model.rewards, transition_rewards=extra, reward_spread=None, labels=model.labels)
