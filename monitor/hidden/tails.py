"""Values beyond the observed path on a model with hidden states, by the tables of the fully observed engine.

Nothing is observed there, so what a policy reads is drawn anew and may be summed out: a policy without memory becomes
one that sees the state, and one that remembers a policy over pairs (state, memory) of a larger model. A recurrent
network has no such model: its pairs are found as they arise (`network_values`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal import Intervention
from monitor.errors import LimitError
from monitor.exact.evaluators import Evaluators
from monitor.exact.labelling import StateLabels
from monitor.hidden.network_values import NetworkValues
from monitor.logic import Automaton
from monitor.logic.syntax import Probability, Reward
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader, TableReader
from monitor.policy.table import PolicyTable

MAX_PRODUCT = 4_000_000
"""Transitions that a model over pairs (state, memory) may have."""
MAX_WORTHS = 100_000
"""Values of actions that one tail keeps."""
MAX_KEPT = 64
"""Models kept, of policies and of states in which an episode has ended."""


class Tails:
    """Evaluators of what follows an observed path, shared by all questions on one model.

    `automata`: of measures, by which labels are read along the path too.
    """

    def __init__(self, automata: dict[Probability | Reward, Automaton]) -> None:
        self.automata = automata
        self._evaluators: OrderedDict[tuple[object, ...], Evaluators] = OrderedDict()
        self._tails: OrderedDict[tuple[object, ...], Tail] = OrderedDict()

    def tail(self, model: MDP, measure: Probability | Reward, acting: tuple[Reader, int | None, Reader]) -> Tail:
        """Return the values of one measure beyond a path; `acting`: as for `Tail`."""
        key = (model, measure, acting)
        if key not in self._tails:
            self._tails[key] = Tail(self, model, measure, acting)
            if len(self._tails) > MAX_KEPT:
                self._tails.popitem(last=False)
        self._tails.move_to_end(key)
        return self._tails[key]

    def evaluators(self, model: MDP, first: Reader, then: Reader, end: int | None) -> Evaluators:
        """Return those of a policy that acts first and one that acts then; `end`: the state that is absorbing."""
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
    """Values of one measure beyond a path.

    `acting`: who acts first, for how many more steps (None: for good), and who acts then.
    """

    def __init__(
        self, tails: Tails, model: MDP, measure: Probability | Reward, acting: tuple[Reader, int | None, Reader]
    ) -> None:
        self._tails, self._model, self._measure = tails, model, measure
        self._first, self._steps, then = acting
        self._then = self._first if self._steps is None else then
        self._ahead: dict[int | None, NetworkValues] = {}
        self._worth: dict[tuple[int, int, int, int, int | None, bool], float] = {}

    def begin(self) -> None:
        """Begin the value of another world."""
        for ahead in self._ahead.values():
            ahead.begin()

    def worth(  # noqa: PLR0917 - by position they are passed in less time
        self,
        memory: int,
        obligation: int,
        state: int,
        action: int,
        end: int | None,
        rewarded: bool,  # noqa: FBT001
    ) -> float:
        """Return the value of an action in a state: its mean reward, where that counts, and that of what follows.

        `memory`: what the policy remembers after it chose. `obligation`: after the state was read. `end`: the state
        that is absorbing, if the episode has ended.
        """
        key = memory, obligation, state, action, end, rewarded
        if key not in self._worth:
            if len(self._worth) >= MAX_WORTHS:
                self._worth.clear()
            if state == end:
                successors, chances, rewards = np.array([end]), np.ones(1), np.zeros(1)
            else:
                successors, chances = self._model.row(state, action)
                rewards = float(self._model.rewards[state, action]) + self._model.extra_rewards(
                    state, action, successors
                )
            values = self._values(memory, obligation, successors, end)
            if rewarded:
                values = values + rewards
            self._worth[key] = float(chances @ values)
        return self._worth[key]

    def _values(self, memory: int, obligation: int, states: Ints, end: int | None) -> Floats:
        """Return the values [n] of an obligation in n states, to be read there."""
        if self._first.width:
            if end not in self._ahead:
                automaton = self._tails.automata[self._measure]
                masks = StateLabels(automaton, self._model).masks
                self._ahead[end] = NetworkValues(self._model, self._first, automaton, masks, end)
            return self._ahead[end].values(obligation, states, memory)
        evaluators = self._tails.evaluators(self._model, self._first, self._then, end)
        law = evaluators.nominal().under(Intervention(evaluators.policies["first"], self._steps))
        table = evaluators.value_table(law, self._measure)
        return table.values(0, obligation, states * self._first.memories + memory)


def _averaged(reader: TableReader, model: MDP) -> PolicyTable:
    """Return a policy without memory as one that sees the state: its choice, averaged over what it may read there."""
    return PolicyTable(probabilities=reader.blind_choice(model)[0, :, 0, :])


def _with_memory(reader: TableReader, model: MDP, ended: MDP) -> tuple[MDP, PolicyTable]:
    """Return `ended` over pairs, state * M + memory, and the policy on it; an action is a pair (new memory, action)."""
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
