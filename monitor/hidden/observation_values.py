"""Values of goals along a path of observations. They replace the values along a path of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypedDict

import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import PathError
from monitor.exact.evaluators import Evaluators, deployed_name, within
from monitor.exact.labelling import StateLabels
from monitor.exact.path_values import PathValues
from monitor.hidden.causal_bounds import CausalBounds
from monitor.hidden.filtering import Filter, Weights
from monitor.hidden.pair_chain import Change, PairChain
from monitor.hidden.shared_tables import Tables
from monitor.hidden.tails import Tail, Tails
from monitor.hidden.trace import Trace
from monitor.logic import Automaton
from monitor.logic.syntax import InterventionRef, Measure
from monitor.model import MDP, encode_action_text
from monitor.policy.controller import Reader, TableReader
from monitor.policy.recurrent import RecurrentReader
from monitor.policy.table import PolicyTable
from monitor.types.specs import CausalModel
from monitor.types.stream_events import UNKNOWN_POLICY, ObservedPair


class HiddenWorld:
    """A model with hidden states, or policies with memory, and the data shared by all queries on it.

    Args:
        model: the MDP; without emissions, the state is observed.
        readers: name -> policy; `nominal` is the deployed one.
        models: name -> other rows over the same states and actions, for `model:name`; labels, rewards and emissions
            are those of `model`.
        automata: measure -> automaton, to share with other worlds; None: a world of its own.

    Raises ConfigError if another model has other states or actions.
    """

    def __init__(
        self,
        model: MDP,
        readers: Mapping[str, Reader],
        models: Mapping[str, MDP],
        automata: dict[Measure, Automaton] | None = None,
    ) -> None:
        self.model, self.readers, self._given = model, dict(readers), (readers, models)
        self.nominal = self.readers["nominal"]
        automata = {} if automata is None else automata
        anything = PolicyTable(probabilities=model.availability / model.availability.sum(axis=1, keepdims=True))
        self.evaluators = Evaluators(replace(model, emissions=None), {"nominal": anything}, models, automata=automata)
        """Used for everything that does not depend on policies: automata and constants."""
        self.models = {name: replace(each, emissions=model.emissions) for name, each in self.evaluators.models.items()}
        self._automata = automata
        self._networks = [reader for reader in self.readers.values() if isinstance(reader, RecurrentReader)]
        self.generation = sum(network.generation for network in self._networks)
        """Number of times that the tables of networks were cleared. Clearing changes all numbers of memories."""
        self.filter = Filter(model, self.readers)
        self._begin()
        self.deployed = deployed_name(self.readers)
        self.readers[self.deployed] = self.nominal

    @cached_property
    def sides(self) -> tuple[HiddenWorld, HiddenWorld] | None:
        """The worlds with the lowest and the highest possible values, as `Evaluators.sides`."""
        sides, emissions = self.evaluators.sides, self.model.emissions
        if sides is None:
            return None
        low, high = (
            HiddenWorld(replace(side.model, emissions=emissions), *self._given, self._automata) for side in sides
        )
        return low, high

    def _begin(self) -> None:
        self.tails, self.tables = Tails(self.nominal, self._automata), Tables(self.filter)

    def forget_if_full(self) -> None:
        """Clear all tables if the table of a network is full. A stream may need any number of memories."""
        if any(network.full for network in self._networks):
            for network in self._networks:
                network.forget()
        generation = sum(network.generation for network in self._networks)
        if generation != self.generation:
            self.generation = generation
            self._begin()

    def change(self, reference: InterventionRef) -> Change:
        """Return the `Change` that an intervention of a formula describes."""
        match reference.kind:
            case "nominal":
                return Change()
            case "policy":
                return Change(self.readers[reference.name], reference.steps)
            case "action":
                action = encode_action_text(self.model, reference.name)
                name = f"do({action})"  # cannot be the name of another policy, because names have no parentheses
                self.readers.setdefault(name, _certain(self.model, action))
                return Change(self.readers[name], reference.steps)
            case "model":
                return Change(dynamics=self.models[reference.name])
            case _:
                raise AssertionError("decisions made for a goal are refused where states are hidden")


class _About(TypedDict):
    """Arguments of `PairChain` and `CausalBounds`."""

    automaton: Automaton
    masks: AnyArray
    tables: Tables
    tail: Tail


class ObservedValues(PathValues):
    """Values of goals along one path of observations. It has the interface of `PathValues`, but no code in common.

    Args:
        world: model and policies.
        deepest: largest offset of a profile that is needed; None for all offsets.

    Attributes:
        beliefs: the belief before each pair of the path; set before `advance`.
        terminated: whether the episode has ended in the (hidden) state of the last pair.
        trace: the path.
    """

    def __init__(self, world: HiddenWorld, deepest: int | None) -> None:
        self._hidden, self._deepest = world, deepest
        self.beliefs: Sequence[Weights] = ()
        self.terminated = False
        self.trace = Trace(world.filter, world.tables)
        self._generation = world.generation
        self._chains: dict[tuple[int, int], PairChain] = {}
        self._different: dict[tuple[InterventionRef, Measure], PairChain] = {}
        self._bounds: dict[tuple[InterventionRef, Measure], CausalBounds] = {}

    def advance(self, path: Sequence[ObservedPair], added: int, end: int | None, acted: Sequence[str] = ()) -> None:
        """Process a path whose last `added` pairs are new; `end` is not used. Raises PathError."""
        del end
        if UNKNOWN_POLICY in acted:
            raise PathError("a policy that is not configured acted, and what it reads is not known; configure it")
        acting = [self._hidden.readers[name] for name in acted] or [self._hidden.nominal] * len(path)
        if len({id(reader) for reader in acting} | {id(self._hidden.nominal)}) > 1 and any(
            reader.remembers for reader in (*acting, self._hidden.nominal)
        ):
            raise PathError("several policies acted, and one of them remembers: what it remembers then is not known")
        self._hidden.forget_if_full()
        if self._generation != self._hidden.generation:
            self._generation, added = self._hidden.generation, len(path)
            self.trace = Trace(self._hidden.filter, self._hidden.tables)
            self._chains.clear()
            self._different.clear()
            self._bounds.clear()
        self.trace.extend(path, acting, self.beliefs, added)

    def value(self, change: InterventionRef, measure: Measure, position: int) -> float:
        """Return the value under a change at a position of the path."""
        offset = self.trace.last - self.trace.first - position
        return self._values(change, measure, offset)[offset]

    def profile(self, change: InterventionRef, measure: Measure) -> list[float]:
        """Return the values at offsets 0, 1, ..., to the start of the path or to the deepest offset needed."""
        return self._values(change, measure, None)

    def bounds(
        self, change: InterventionRef, measure: Measure, position: int, causal_model: CausalModel
    ) -> tuple[float, float]:
        """Return bounds of the value over every causal model; they may be wider than necessary. Raises LimitError."""
        assert causal_model == "any", "other classes are refused where states are hidden"
        value = self.value(change, measure, position)
        if self._hidden.evaluators.constant(measure) is not None or position == len(self.trace) - 1:
            return value, value  # at the last pair, nothing that was observed depends on the couplings
        if (change, measure) not in self._bounds:
            made, about = self._about(change, measure)
            self._bounds[change, measure] = CausalBounds(self.trace, made, **about)
        low, high = self._bounds[change, measure].bounds(self.trace.first + position, terminated=self.terminated)
        return min(within(measure, low), value), max(within(measure, high), value)

    def guaranteed(self, change: InterventionRef, measure: Measure, position: int) -> None:
        """Return None: there are no guaranteed bands where states are hidden, or policies remember."""

    def _values(self, change: InterventionRef, measure: Measure, only: int | None) -> list[float]:
        count = self.trace.last - self.trace.first + 1
        count = count if self._deepest is None else min(count, self._deepest + 1)
        chain = self._chains.get((id(change), id(measure)))  # the formula keeps both objects alive
        if chain is None:
            constant = self._hidden.evaluators.constant(measure)
            if constant is not None:
                return [constant] * count
            chain = self._chains[id(change), id(measure)] = self._chain(change, measure)
        values = chain.values(terminated=self.terminated, only=only)[:count]
        return [within(measure, value) for value in values]

    def _chain(self, change: InterventionRef, measure: Measure) -> PairChain:
        """Return the chain of an intervention and a measure; equal pairs of these share a chain."""
        if (change, measure) not in self._different:
            made, about = self._about(change, measure)
            self._different[change, measure] = PairChain(self.trace, made, **about, deepest=self._deepest)
        return self._different[change, measure]

    def _about(self, change: InterventionRef, measure: Measure) -> tuple[Change, _About]:
        """Return an intervention, and the arguments that `PairChain` and `CausalBounds` share."""
        world, made = self._hidden, self._hidden.change(change)
        automaton = world.evaluators.automaton(measure)
        return made, {
            "automaton": automaton,
            "masks": StateLabels(automaton, world.model).masks,
            "tables": world.tables,
            "tail": world.tails.tail(made.dynamics or world.model, measure, (made.reader, made.steps)),
        }


def _certain(model: MDP, action: int) -> Reader:
    choice = np.zeros((1, model.states, model.actions))
    choice[:, :, action] = 1.0
    return TableReader(np.zeros((1, model.states), dtype=np.int64), choice, sees_state=True)
