"""Values beyond the observed path on a model with hidden states, by the tables of the fully observed engine.

Nothing is observed beyond the path, so the observations of a policy have fresh noise and can be summed out. A policy
without memory becomes a policy that sees the state. A policy with memory becomes a policy over pairs (state, memory) of
a larger model. A recurrent network has no such model, so its pairs are found on demand (`network_values`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.causal import Intervention
from monitor.errors import LimitError
from monitor.exact.evaluators import Evaluators
from monitor.exact.labelling import StateLabels
from monitor.hidden.latent_steps import entries
from monitor.hidden.network_values import NetworkValues
from monitor.logic import FALSE, TRUE, Automaton
from monitor.logic.syntax import Measure
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader, TableReader
from monitor.policy.table import PolicyTable

MAX_PRODUCT = 4_000_000
"""Largest number of transitions of a model over pairs (state, memory)."""
MAX_KEPT = 64
"""Number of cached models, for policies and for states in which an episode has ended."""

Column = tuple[int, int]
"""An offset, and an obligation that may be pending there."""


class Tails:
    """Evaluators of values beyond an observed path, shared by all queries on one model.

    `nominal`: the deployed policy. `automata`: the automata of measures, which are also used along the path.
    """

    def __init__(self, nominal: Reader, automata: dict[Measure, Automaton]) -> None:
        self._nominal, self.automata = nominal, automata
        self._evaluators: OrderedDict[tuple[object, ...], Evaluators] = OrderedDict()
        self._tails: OrderedDict[tuple[object, ...], Tail] = OrderedDict()

    @property
    def table_bytes(self) -> int:
        """Bytes of all value tables."""
        return sum(each.table_bytes for each in self._evaluators.values())

    def tail(self, model: MDP, measure: Measure, change: tuple[Reader | None, int | None]) -> Tail:
        """Return the values of one measure beyond a path; `change`: the policy that takes over, and its steps."""
        key = (model, measure, change)
        if key not in self._tails:
            reader, steps = change
            self._tails[key] = Tail(self, model, measure, (reader or self._nominal, steps, self._nominal))
            if len(self._tails) > MAX_KEPT:
                self._tails.popitem(last=False)
        self._tails.move_to_end(key)
        return self._tails[key]

    def evaluators(self, model: MDP, first: Reader, then: Reader, end: int | None) -> Evaluators:
        """Return the evaluators for the policy `first`, followed by the policy `then`; `end`: the absorbing state."""
        key = (model, first, then, end)
        if key not in self._evaluators:
            ended = replace(model if end is None else model.with_absorbing(end), emissions=None)
            assert isinstance(first, TableReader), "networks have a value function of their own"
            assert isinstance(then, TableReader)
            if first.memories == 1:
                tables = {"nominal": _averaged(then, model), "first": _averaged(first, model)}
            else:
                ended, table = _with_memory(first, model, ended)
                tables = {"nominal": table, "first": table}
            self._evaluators[key] = Evaluators(ended, tables, automata=self.automata)
            if len(self._evaluators) > MAX_KEPT:
                self._evaluators.popitem(last=False)
        self._evaluators.move_to_end(key)
        return self._evaluators[key]


class Tail:
    """Values of one measure beyond a path, for an intervention at any pair of it.

    `acting`: the policy that acts from the intervention on; for how many steps it acts (None: for good); the policy
    that acts after these steps.
    """

    def __init__(self, tails: Tails, model: MDP, measure: Measure, acting: tuple[Reader, int | None, Reader]) -> None:
        self._tails, self._model, self._measure = tails, model, measure
        self._first, self._steps, then = acting
        self._then = self._first if self._steps is None else then
        self._ahead: dict[int | None, NetworkValues] = {}
        self._kept: OrderedDict[tuple[Column, ...], Floats] = OrderedDict()

    def worths(self, columns: Sequence[Column], masks: AnyArray, states: Ints, end: int | None) -> Floats:
        """Return the values [n * M, A, columns] of each action in n states at the last pair, with each of M memories.

        A value is the mean reward of the action, if it counts, plus the value after it. The obligations of `columns`
        are pending before labels are read; `masks` [n]: the label sets of the states. `end`: the absorbing state, if
        the episode has ended. If values of all states are requested, they are cached. The policy must be a table.
        """
        key = tuple(columns)
        if end is None and len(states) == self._model.states:
            if key not in self._kept:
                self._kept[key] = self._stacked(columns, masks, states, end)
                if len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]
        return self._stacked(columns, masks, states, end)

    def network_worths(self, columns: Sequence[Column], pairs: Ints, wanted: Bools, end: int | None) -> Floats:
        """Return the `wanted` values [n, A, columns] of pairs [n, 2] (state, memory).

        This is `worths` for a recurrent network.
        """
        found = np.zeros(wanted.shape)
        for n, column in enumerate(columns):
            ahead = self._network(end)
            ahead.begin()
            for row, action in zip(*np.nonzero(wanted[:, :, n]), strict=True):
                state, memory = pairs[row].tolist()
                found[row, action, n] = ahead.worth(column[1], state, int(action), memory)
        return found

    def _network(self, end: int | None) -> NetworkValues:
        if end not in self._ahead:
            automaton = self._tails.automata[self._measure]
            masks = StateLabels(automaton, self._model).masks
            self._ahead[end] = NetworkValues(self._model, self._first, automaton, masks, end)
        return self._ahead[end]

    def _stacked(self, columns: Sequence[Column], masks: AnyArray, states: Ints, end: int | None) -> Floats:
        stacked = np.stack([self._worths(column, masks, states, end) for column in columns], axis=-1)
        return np.ascontiguousarray(stacked.swapaxes(1, 2)).reshape(-1, self._model.actions, len(columns))

    def _worths(self, column: Column, masks: AnyArray, states: Ints, end: int | None) -> Floats:
        """Return the values [n, A, M] for one column."""
        offset, obligation = column
        steps = None if self._steps is None else max(self._steps - offset - 1, 0)
        evaluators = self._tails.evaluators(self._model, self._first, self._then, end)
        law = evaluators.nominal().under(Intervention(evaluators.policies["first"], steps))
        table = evaluators.value_table(law, self._measure)
        model, memories, automaton = self._model, self._first.memories, table.automaton
        actions = np.tile(np.arange(model.actions), len(states))
        rows = np.repeat(states, model.actions) * model.actions + actions
        of, at = entries(model.indptr, rows)
        worths = np.zeros((len(rows), memories))
        for mask in np.unique(masks).tolist():
            rest = automaton.step(obligation, mask)
            here = np.repeat(masks == mask, model.actions)
            if rest in (FALSE, TRUE):
                worths[here] = float(rest == TRUE)
                continue
            kept = here[of]
            pairs = model.successors[at[kept]][:, np.newaxis] * memories + np.arange(memories)
            values = table.values(0, rest, pairs.reshape(-1)).reshape(pairs.shape)
            for memory in range(memories):
                chances = model.probabilities[at[kept]]
                worths[here, memory] = np.bincount(of[kept], chances * values[:, memory], len(rows))[here]
            if end is not None:
                worths[here & (rows // model.actions == end)] = table.values(
                    0, rest, end * memories + np.arange(memories)
                )
        if automaton.rewards(obligation):
            counted = rows // model.actions != end
            worths[counted] += model.expected_rewards.reshape(-1)[rows[counted], np.newaxis]
        return worths.reshape(len(states), model.actions, memories)


def _averaged(reader: TableReader, model: MDP) -> PolicyTable:
    """Return a policy without memory as a policy that sees the state: its choice, averaged over the observations."""
    return PolicyTable(probabilities=reader.blind_choice(model)[0, :, 0, :])


def _with_memory(reader: TableReader, model: MDP, ended: MDP) -> tuple[MDP, PolicyTable]:
    """Return the model `ended` over pairs (number state * M + memory), and the policy on this model.

    An action of this model is a pair (new memory, action).
    """
    count, actions = reader.memories, model.actions
    if ended.successors.size * count * count > MAX_PRODUCT:
        raise LimitError(
            f"{model.states} states with {count} memories of a policy have more than {MAX_PRODUCT:,} transitions "
            "(limit MAX_PRODUCT); use a policy that remembers less"
        )
    state, _, memory, action = np.indices((model.states, count, count, actions)).reshape(4, -1)
    rows = state * actions + action
    lengths = np.diff(ended.indptr)[rows]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    entries = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - ended.indptr[rows], lengths)
    product = MDP(
        states=model.states * count,
        actions=count * actions,
        indptr=indptr,
        successors=ended.successors[entries] * count + np.repeat(memory, lengths),
        probabilities=ended.probabilities[entries],
        rewards=np.repeat(np.tile(ended.rewards, (1, count)), count, axis=0),
        transition_rewards=None if ended.transition_rewards is None else ended.transition_rewards[entries],
        labels={name: np.repeat(there, count) for name, there in ended.labels.items()},
    )
    choice = reader.blind_choice(model).transpose(1, 0, 2, 3).reshape(product.states, product.actions)
    return product, PolicyTable(probabilities=choice)
