"""A Markov decision process (MDP), stored as sparse rows, which are validated once.

Source: Kazemi & Paoletti, Definition 1 (MDP). This class adds two things: an action may be unavailable in a state (its
row is empty), and a model may have names, observations and an initial distribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints, Reals
from monitor.errors import ModelError
from monitor.model.action_names import ActionNames
from monitor.model.annotations import (
    Valuation,
    checked_bin_names,
    checked_bins,
    checked_ended_as,
    checked_labels,
    checked_names,
    checked_observations,
    checked_ranges,
    checked_samples,
    checked_valuations,
)
from monitor.model.centres import Centres, checked_centres
from monitor.model.counts import Counts, checked_counts
from monitor.model.emissions import Emissions, checked_emissions
from monitor.model.rewards import (
    checked_magnitude,
    checked_rewards,
    checked_transition_rewards,
    expected_rewards,
    reward_tables,
)
from monitor.model.sparse_rows import (
    ROW_SUM_TOLERANCE,
    as_floats,
    as_indices,
    checked_distribution,
    checked_rows,
    checked_size,
    frozen,
)
from monitor.model.tuples import columns, distribution_array, rows_from_triples

__all__ = ["MARGIN", "MDP", "ROW_SUM_TOLERANCE"]

MARGIN = 0.1
"""A number may lie outside the recorded range by this fraction of the range, because recordings may lack the least and
the greatest usual values."""


@dataclass(frozen=True, eq=False)
class MDP:
    """Markov decision process: states `0..S-1`, actions `0..A-1`; the row of (s, a) is row `s * A + a` of a CSR matrix.

    Build one with `from_transitions` or `from_rows`, which check everything; the constructor itself checks nothing.

    Attributes (arrays are read-only):
        states, actions: S and A.
        indptr: [S*A + 1] int64; row r occupies `indptr[r]:indptr[r+1]`. An empty row means that the action is
            unavailable.
        successors: [N] int64, ascending within a row.
        probabilities: [N] float64, positive; each non-empty row sums to 1.
        rewards: [S, A] float64, the part of the reward that does not depend on the successor.
        transition_rewards: [N] float64 aligned with `successors`, the part of the reward that depends on the successor,
            or None if there is none: R(s, a, s') = rewards[s, a] + transition_rewards[n].
        reward_spread: [N] float64, largest difference of an observed reward from R (an environment may have several
            rewards for one transition; R is then the mean), or None if there is no difference. No formula depends on
            it.
        labels: name -> [S] bool, sorted by name.
        initial: [S] float64 distribution of the first state, or None.
        emissions: distributions of observations for each state, or None if states are seen.
        observations: [S, D], input of a policy in each state, or None. float32, or float64 if 32 bits cannot hold the
            numbers.
        samples: [M, D] recorded inputs of a policy, and `sample_states` [M] int64, ascending, the state of each; None
            if each state has one input. A policy's choice in a state is the mean of its choices over these inputs.
        state_names, action_names: S and A names, or empty.
        bin_edges: for the `bins` state encoder, one ascending array per dimension, or empty. The state is the row-major
            index of the bins.
        bin_names: for each dimension the texts that its bins stand for, () for numbers; or empty. In a dimension of
            texts, bin i is the i-th text, and only the number of edges matters.
        valuations: for the `valuation` encoder, S tuples, or empty.
        centres: for the `nearest` encoder, or None.
        ranges: [D, 2] float64, the least and the greatest recorded number in each dimension of the bins or centres, or
            None. A number far outside the range belongs to no state.
        dimension_names: names of the columns in which a state was recorded, for messages; or empty.
        ended_as: [S] int64, for each state, the state of an episode that has terminated in it. This is an absorbing
            copy if the environment uses one number for the running and the ended state (as Gymnasium does), else the
            state itself. None without copies.
        counts: counts from which the rows were estimated, or None if rows are given.
        source: origin of the model, for messages.
    """

    states: int
    actions: int
    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats
    transition_rewards: Floats | None = None
    reward_spread: Floats | None = None
    labels: Mapping[str, Bools] = field(default_factory=dict)
    initial: Floats | None = None
    emissions: Emissions | None = None
    observations: Reals | None = None
    samples: Reals | None = None
    sample_states: Ints | None = None
    state_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    bin_edges: tuple[Floats, ...] = ()
    bin_names: tuple[tuple[str, ...], ...] = ()
    valuations: tuple[Valuation, ...] = ()
    centres: Centres | None = None
    ranges: Floats | None = None
    dimension_names: tuple[str, ...] = ()
    ended_as: Ints | None = None
    counts: Counts | None = None
    source: str = "memory"

    @classmethod
    def from_transitions(
        cls,
        *,
        states: int,
        actions: int,
        transitions: Iterable[tuple[int, int, int, float]],
        rewards: Iterable[tuple[int, int, float] | tuple[int, int, int, float]] = (),
        labels: Mapping[str, Sequence[int]] | None = None,
        initial: Mapping[int, float] | None = None,
        signals: int | None = None,
        emissions: Iterable[tuple[int, int, float]] | None = None,
        signal_names: Iterable[str] = (),
        **carried: Any,  # noqa: ANN401 - the annotations of from_rows, checked there
    ) -> MDP:
        """Return a model from (state, action, successor, probability) tuples, in any order; duplicates are summed.

        Args:
            states: number of states.
            actions: number of actions.
            transitions: an action without a transition in a state is unavailable in this state.
            rewards: (state, action, reward) and (state, action, successor, reward), which add up; at most one for each
                pair and one for each transition; default 0.
            labels: name -> the states that have it.
            initial: state -> probability that an episode starts there.
            signals: number of observations if states are hidden; None if states are seen.
            emissions: (state, observation, probability), for every state, if states are hidden.
            signal_names: names of the observations, if states are hidden.
            **carried: `observations`, `state_names`, `action_names`, `bin_edges`, `bin_names`, `valuations`, `centres`,
                `scales`, `ranges`, `dimension_names`, `ended_as`, `source`, as in `from_rows`.

        Raises:
            ModelError: as `from_rows`.

        >>> coin = MDP.from_transitions(
        ...     states=2, actions=1, transitions=[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (1, 0, 1, 1.0)], labels={"done": [1]}
        ... )
        >>> coin.row(0, 0)
        (array([0, 1]), array([0.5, 0.5]))
        """
        checked_size(states, actions)
        at, taken, successors, chances = columns(transitions, 4, "transitions")
        rows = as_indices(at, states, "transition: state") * actions + as_indices(taken, actions, "transition: action")
        targets, weights = as_indices(successors, states, "transition: successor"), as_floats(chances, "probability")
        table, extra = reward_tables(states, actions, rewards, (rows, targets))
        if extra is not None:
            extra = extra[np.argsort(rows, kind="stable")]
        indptr, targets, weights = rows_from_triples(states, actions, rows, targets, weights)
        return cls.from_rows(
            states=states,
            actions=actions,
            indptr=indptr,
            successors=targets,
            probabilities=weights,
            rewards=table,
            transition_rewards=extra,
            labels=labels,
            initial=None if initial is None else distribution_array(initial, states),
            emissions=_emissions(states, signals, emissions, tuple(signal_names)),
            **carried,
        )

    @classmethod
    def from_rows(
        cls,
        *,
        states: int,
        actions: int,
        indptr: AnyArray,
        successors: AnyArray,
        probabilities: AnyArray,
        rewards: AnyArray | None = None,
        transition_rewards: AnyArray | None = None,
        reward_spread: AnyArray | None = None,
        labels: Mapping[str, Any] | None = None,
        initial: AnyArray | None = None,
        emissions: Emissions | None = None,
        observations: AnyArray | None = None,
        samples: AnyArray | None = None,
        sample_states: AnyArray | None = None,
        state_names: Iterable[str] = (),
        action_names: Iterable[str] = (),
        bin_edges: Iterable[Any] = (),
        bin_names: Iterable[Sequence[str]] = (),
        valuations: Iterable[Sequence[float | str | bool]] = (),
        centres: object = None,
        scales: object = None,
        ranges: object = None,
        dimension_names: Iterable[str] = (),
        ended_as: AnyArray | Sequence[int] | None = None,
        counts: Counts | None = None,
        source: str = "memory",
    ) -> MDP:
        """Return a model from CSR arrays. Each argument has the layout of the attribute with the same name.

        A value of `labels` is [S] bool, or a list of states. Zeros are dropped, duplicates are summed (their rewards
        are averaged, `reward_spread` is widened), successors are sorted, and rows are renormalised. Writeable arrays
        are copied, so that a model never changes.

        Raises:
            ModelError: an index out of bounds, a number that is negative or not finite where it must not be, a row
                that does not sum to 1 within `ROW_SUM_TOLERANCE`, a state without available actions, a bad name, or an
                array of the wrong shape. The message names the row.
        """
        checked_size(states, actions)
        rows = checked_rows(states, actions, (indptr, successors, probabilities))
        edges, middles = checked_bins(bin_edges, states), checked_centres(centres, scales, states)
        tuples = checked_valuations(valuations, states)
        numbers = len(edges) if middles is None else len(middles.scales)
        given = indptr, successors, probabilities
        if counts is not None and (strange := sorted(counts.unknown.keys() - (labels or {}).keys())):
            raise ModelError(f"it is unknown where label {strange[0]!r} holds, but the model has no such label")
        extra, spread = checked_transition_rewards(given, transition_rewards, reward_spread, rows)
        table = checked_rewards(states, actions, rewards)
        checked_magnitude(table, extra, actions, rows)
        indptr, successors, probabilities = rows
        seen = checked_observations(observations, states)
        recorded, of = checked_samples(samples, sample_states, states, 0 if seen is None else int(seen.shape[1]))
        return cls(
            states=states,
            actions=actions,
            indptr=indptr,
            successors=successors,
            probabilities=probabilities,
            rewards=table,
            transition_rewards=extra,
            reward_spread=spread,
            labels=checked_labels(labels, states),
            initial=None if initial is None else checked_distribution(initial, states),
            emissions=checked_emissions(emissions, states),
            observations=seen,
            samples=recorded,
            sample_states=of,
            state_names=checked_names(state_names, states, "state"),
            action_names=checked_names(action_names, actions, "action"),
            bin_edges=edges,
            bin_names=checked_bin_names(bin_names, edges),
            valuations=tuples,
            centres=middles,
            ranges=checked_ranges(ranges, numbers),
            dimension_names=checked_names(dimension_names, numbers or len(next(iter(tuples), (0,))), "dimension"),
            ended_as=checked_ended_as(ended_as, states),
            counts=checked_counts(counts, actions, given[1], rows),
            source=source,
        )

    def shown(self, state: int) -> list[tuple[int, float]]:
        """Return the possible observations in a state, with probabilities; the state itself if states are seen."""
        if self.emissions is None:
            return [(state, 1.0)]
        observed, chances = self.emissions.row(state)
        return list(zip(observed.tolist(), chances.tolist(), strict=True))

    def row(self, state: int, action: int) -> tuple[Ints, Floats]:
        """Return successors and probabilities of (state, action); both empty if the action is unavailable."""
        r = state * self.actions + action
        lo, hi = self.indptr[r], self.indptr[r + 1]
        return self.successors[lo:hi], self.probabilities[lo:hi]

    @cached_property
    def expected_rewards(self) -> Floats:
        """Mean of R(s, a, s') over each row, [S, A] float64, read-only."""
        return expected_rewards(
            self.rewards, self.transition_rewards, (self.indptr, self.successors, self.probabilities)
        )

    def reward(self, state: int, action: int, successor: int) -> float:
        """Return R(s, a, s'); for a transition that the model lacks, the part that does not depend on the successor."""
        extra = self.extra_rewards(state, action, np.array([successor]))
        return float(self.rewards[state, action] + extra[0])

    def extra_rewards(self, state: int, action: int, successors: Ints) -> Floats:
        """Return the part of R that depends on the successor, [n] for n successors of (state, action)."""
        if self.transition_rewards is None:
            return np.zeros(len(successors))
        r = state * self.actions + action
        lo, hi = self.indptr[r], self.indptr[r + 1]
        at = np.searchsorted(self.successors[lo:hi], successors) + lo
        found = np.minimum(at, len(self.successors) - 1)
        there = (at < hi) & (self.successors[found] == successors)
        return np.where(there, self.transition_rewards[found], 0.0)

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest R(s, a, s') of the model's transitions."""
        if self.transition_rewards is None:
            return float(self.rewards.min()), float(self.rewards.max())
        totals = np.repeat(self.rewards.reshape(-1), np.diff(self.indptr)) + self.transition_rewards
        return float(totals.min()), float(totals.max())

    @cached_property
    def availability(self) -> Bools:
        """Available actions of each state (those with a row that is not empty), [S, A] bool, read-only."""
        table: Bools = frozen((np.diff(self.indptr) > 0).reshape(self.states, self.actions))
        return table

    def available(self, state: int) -> Bools:
        """Return the actions available in `state` (at least one), [A] bool, without the table of all states."""
        first = state * self.actions
        begins = self.indptr[first : first + self.actions + 1]
        mask: Bools = begins[1:] > begins[:-1]
        return mask

    @cached_property
    def state_index(self) -> Mapping[str, int]:
        """State name -> state."""
        return {name: i for i, name in enumerate(self.state_names)}

    @property
    def signal_names(self) -> tuple[str, ...]:
        """Names of the observations that hidden states show; empty if there are none."""
        return () if self.emissions is None else self.emissions.names

    @cached_property
    def signal_index(self) -> Mapping[str, int]:
        """Name of an observation -> observation."""
        return {name: i for i, name in enumerate(self.signal_names)}

    @cached_property
    def named_actions(self) -> ActionNames:
        """The names of actions, and the meaning of numbers that are given for actions."""
        return ActionNames(self.action_names, self.actions)

    @property
    def action_index(self) -> Mapping[str, int]:
        """Action name -> action."""
        return self.named_actions.by_name

    @cached_property
    def valuation_index(self) -> Mapping[Valuation, int]:
        """Valuation -> state; as in Python, 1, 1.0 and True are equal."""
        return {valuation: i for i, valuation in enumerate(self.valuations)}

    def without_samples(self) -> MDP:
        """Return the same model without `samples`, so that a policy has one input in each state."""
        return self if self.samples is None else replace(self, samples=None, sample_states=None)

    @cached_property
    def inputs(self) -> tuple[Reals, Ints] | None:
        """Inputs [M, D] that a policy has in each state, and the state [M] of each input; None without observations.

        The inputs of a state are the inputs recorded in it. If none were recorded, its observation is the only input.
        """
        if self.observations is None:
            return None
        if self.samples is None or self.sample_states is None:
            return self.observations, np.arange(self.states)
        bare = np.setdiff1d(np.arange(self.states), self.sample_states)
        of = np.concatenate([self.sample_states, bare])
        order = np.argsort(of, kind="stable")
        return np.concatenate([self.samples, self.observations[bare]])[order], of[order]

    @cached_property
    def bin_cuts(self) -> tuple[tuple[float, ...], ...]:
        """`bin_edges` as Python numbers, which are faster to search at each message."""
        return tuple(tuple(edges.tolist()) for edges in self.bin_edges)

    @cached_property
    def bin_places(self) -> tuple[dict[str, int] | None, ...]:
        """For each dimension of the bins: text -> bin, or None if the dimension has numbers. Used at each message."""
        if not self.bin_names:
            return (None,) * len(self.bin_edges)
        return tuple({name: i for i, name in enumerate(names)} if names else None for names in self.bin_names)

    @cached_property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """Least and greatest accepted number in each dimension: `ranges` widened by `MARGIN`; empty without `ranges`.

        These are Python numbers, which are faster to compare at each message.
        """
        if self.ranges is None:
            return ()
        beyond = MARGIN * (self.ranges[:, 1] - self.ranges[:, 0])
        return tuple(zip((self.ranges[:, 0] - beyond).tolist(), (self.ranges[:, 1] + beyond).tolist(), strict=True))

    def ended(self, state: int) -> int:
        """Return the state of an episode that has terminated in `state`; see `ended_as`."""
        return state if self.ended_as is None else int(self.ended_as[state])

    def is_absorbing(self, state: int) -> bool:
        """Return whether every action leads from `state` to itself with probability 1 and reward 0."""
        lo, hi = self.indptr[state * self.actions], self.indptr[(state + 1) * self.actions]
        return (
            bool(self.available(state).all())
            and int(hi - lo) == self.actions
            and bool((self.successors[lo:hi] == state).all())
            and not self.rewards[state].any()
            and (self.transition_rewards is None or not self.transition_rewards[lo:hi].any())
        )

    def with_absorbing(self, state: int) -> MDP:
        """Return the model of an episode that ended in `state`: every action stays there, with reward 0.

        Labels, names and observations are the same. Returns the model itself if `state` is absorbing. Costs O(N), so
        keep the result.
        """
        if self.is_absorbing(state):
            return self
        first, last = state * self.actions, (state + 1) * self.actions
        lo, hi = self.indptr[first], self.indptr[last]
        counts = np.diff(self.indptr)
        counts[first:last] = 1
        loop = np.full(self.actions, state, dtype=np.int64)
        rewards = self.rewards.copy()
        rewards[state] = 0.0
        return replace(
            self,
            indptr=frozen(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])),
            successors=frozen(np.concatenate([self.successors[:lo], loop, self.successors[hi:]])),
            probabilities=frozen(
                np.concatenate([self.probabilities[:lo], np.ones(self.actions), self.probabilities[hi:]])
            ),
            rewards=frozen(rewards),
            transition_rewards=_cut(self.transition_rewards, lo, hi, self.actions),
            reward_spread=_cut(self.reward_spread, lo, hi, self.actions),
            counts=None if self.counts is None else self.counts.given(int(lo), int(hi), slice(first, last)),
        )


def _emissions(
    states: int, signals: int | None, given: Iterable[tuple[int, int, float]] | None, names: tuple[str, ...]
) -> Emissions | None:
    if names and signals is None:
        raise ModelError("signal_names name observations, and the model has none: hidden states need signals too")
    if (signals is None) != (given is None):
        missing, there = ("signals", "emissions") if signals is None else ("emissions", "signals")
        raise ModelError(f"{there} without {missing}: hidden states need both, and states that are seen neither")
    if signals is None or given is None:
        return None
    return Emissions.from_tuples(states, signals, given).named(names)


def _cut(values: Floats | None, lo: int, hi: int, zeros: int) -> Floats | None:
    """Return `values` with the entries lo to hi replaced by `zeros` zeros."""
    return None if values is None else frozen(np.concatenate([values[:lo], np.zeros(zeros), values[hi:]]))
