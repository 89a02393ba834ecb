"""Particles: many drawn worlds at once, advanced along the observed path and beyond it.

Each is a realisation tau'(G') of the counterfactual path (Kazemi & Paoletti, Appendix on decision procedures), with its
remaining obligation and the reward collected so far. The rules are those of `monitor.causal.World`, with noise in place
of distributions: posterior noise up to the last observed pair, prior noise after it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.errors import PathError
from monitor.logic import FALSE, TRUE, Automaton
from monitor.sampled.decisions import Decisions
from monitor.sampled.noise import ACTION, NOTHING, STATE, ObservedRow, ParticleRows, race
from monitor.sampled.particle_rows import RowSource

__all__ = ["Ensemble", "LabelFunction", "Pair", "SampledWorld", "StepTable"]

Pair = tuple[int, int | None]
"""A state and the action taken there; None: not yet taken."""
LabelFunction = Callable[[int, Ints, Ints], Ints]
"""(offset, states [n], actions [n]) -> label sets [n], as bit masks."""

MAX_DENSE_COLUMNS = 1 << 6
"""Label sets that each get a column of a step table: 50 MB for an automaton of 200,000 obligations."""


@dataclass(frozen=True)
class SampledWorld:
    """A world to draw from; what `monitor.causal.Law` is to exact answers.

    Attributes:
        phases: (first offset after the phase, policy), ascending; the last has no end (None).
        nominal_from: the offset from which nothing is changed any more; None: never.
        nominal: the deployed policy.
        observed: the rows of the observed world.
        rows: the rows of this world.
        rewards: R(s, a, s') of n transitions, from the main model, whatever the rows.
    """

    phases: tuple[tuple[int | None, Decisions], ...]
    nominal_from: int | None
    nominal: Decisions
    observed: RowSource
    rows: RowSource
    rewards: Callable[[Ints, Ints, Ints], Floats]

    def decisions(self, offset: int) -> Decisions:
        """Return the policy in force at an offset."""
        return next(policy for end, policy in self.phases if end is None or offset < end)

    def unchanged(self, offset: int) -> bool:
        """Return whether the observed action is taken in the observed state of an offset."""
        return self.nominal_from is not None and offset >= self.nominal_from


class StepTable:
    """The steps of an automaton as a table, for many obligations at once; filled on demand."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self._dense = 1 << len(automaton.atoms) <= MAX_DENSE_COLUMNS
        self._column_of: dict[int, int] = {}
        self._next = np.full((2, 1 << len(automaton.atoms) if self._dense else 1), -1, dtype=np.int32)
        self._rewards = np.zeros(2, dtype=np.bool_)
        self.collects = False
        self._fit(automaton.start)

    def step(self, obligations: Ints, masks: Ints) -> Ints:
        """Return what remains [n] of the obligations [n] after the label sets [n]."""
        columns = masks if self._dense else self._columns(masks)
        rest = self._next[obligations, columns]
        if (rest < 0).any():
            unknown = np.flatnonzero(rest < 0)
            cells = obligations[unknown] * self._next.shape[1] + columns[unknown]
            for n in unknown[np.unique(cells, return_index=True)[1]]:
                following = self.automaton.step(int(obligations[n]), int(masks[n]))
                self._fit(following)
                self._next[obligations[n], columns[n]] = following
            rest = self._next[obligations, columns]
        return rest.astype(np.int64)

    def rewards(self, obligations: Ints) -> Bools:
        """Return whether the reward of the next offset counts, for obligations [n]."""
        counts: Bools = self._rewards[obligations]
        return counts

    def _columns(self, masks: Ints) -> Ints:
        """Number label sets in order of appearance, where a column for each possible one would be too many."""
        different, back = np.unique(masks, return_inverse=True)
        for mask in different.tolist():
            self._column_of.setdefault(mask, len(self._column_of))
        if len(self._column_of) > self._next.shape[1]:
            wider = np.full((len(self._next), 2 * len(self._column_of)), -1, dtype=np.int32)
            wider[:, : self._next.shape[1]] = self._next
            self._next = wider
        return np.array([self._column_of[mask] for mask in different.tolist()])[back]

    def _fit(self, obligation: int) -> None:
        if obligation >= len(self._next):
            more = 2 * obligation + 2 - len(self._next)
            self._next = np.concatenate([self._next, np.full((more, self._next.shape[1]), -1, dtype=np.int32)])
            known = len(self._rewards)
            rewards = [self.automaton.rewards(one) for one in range(known, known + more)]
            self._rewards = np.concatenate([self._rewards, rewards])
            self.collects = self.collects or any(rewards)


class Ensemble:
    """Particles of one world, from the intervention state on.

    Args:
        world: the world.
        steps: of the automaton of the measure.
        labels: which of its atoms hold.
        seed: of the noise.
        particles: their numbers, which key the noise: a range may be drawn in any pieces.
        state: the intervention state.
        first: the number of its step in the episode.
    """

    def __init__(
        self,
        world: SampledWorld,
        steps: StepTable,
        labels: LabelFunction,
        *,
        seed: int,
        particles: range,
        state: int,
        first: int,
    ) -> None:
        self._world, self._steps, self._labels, self._seed, self._first = world, steps, labels, seed, first
        self.offset = 0
        self._values = np.zeros(len(particles))
        self._open = np.arange(len(particles))
        self._noise = np.arange(particles.start, particles.stop, particles.step)
        self._states = np.full(len(particles), state, dtype=np.int64)
        self._obligations = np.full(len(particles), steps.automaton.start, dtype=np.int64)
        self._drop_decided(self._obligations)

    @property
    def states(self) -> Ints:
        """States of the undecided particles."""
        return self._states

    @property
    def size(self) -> int:
        """Numbers held in memory."""
        return len(self._values) + 4 * len(self._open)

    def observe(self, pair: Pair, successor: int) -> None:
        """Advance by one observed transition, under its posterior noise."""
        state, action = pair
        assert action is not None
        self._step(pair, _evidence(self._world.observed, state, action, successor), None)

    def outcomes(self, last: Pair, ended: int | None) -> Floats:
        """Return the outcome [n] of each particle: 0 or 1, or the reward collected. The ensemble is not advanced.

        Args:
            last: the last observed pair, whose outcome is not known.
            ended: the state an episode has terminated in: absorbing from here on, and without reward.
        """
        ahead = copy(self)
        ahead._values = self._values.copy()  # noqa: SLF001 - its own
        pair: Pair | None = last
        while len(ahead._open):  # noqa: SLF001 - its own
            ahead._step(pair, NOTHING, ended)  # noqa: SLF001 - its own
            pair = None
        return ahead._values  # noqa: SLF001 - its own

    def _step(self, pair: Pair | None, evidence: ObservedRow, ended: int | None) -> None:
        """Choose actions, read the label sets, draw the next states of the undecided particles."""
        if not len(self._open):
            self.offset += 1
            return
        actions = self._chosen(pair)
        masks = self._labels(self.offset, self._states, actions)
        before, rewarded = self._states, self._steps.rewards(self._obligations)
        self._obligations = self._steps.step(self._obligations, masks)
        if not self._steps.collects:
            kept = self._drop_decided(self._obligations)
            self._move(actions if kept is None else actions[kept], evidence, ended)
            return
        self._move(actions, evidence, ended)
        if ended is not None:
            rewarded &= before != ended
        self._values[self._open[rewarded]] += self._world.rewards(
            before[rewarded], actions[rewarded], self._states[rewarded]
        )
        self._drop_decided(self._obligations)

    def _drop_decided(self, obligations: Ints) -> Ints | None:
        """Drop the decided particles; return the indices of the others, None for all."""
        self._values[self._open[obligations == TRUE]] = 1.0
        kept = np.flatnonzero((obligations != TRUE) & (obligations != FALSE))
        if len(kept) == len(obligations):
            return None
        self._open, self._noise = self._open[kept], self._noise[kept]
        self._states, self._obligations = self._states[kept], obligations[kept]
        return kept

    def _chosen(self, pair: Pair | None) -> Ints:
        """Return the actions [n] at this offset; `pair`: the observed one, None beyond the path."""
        chosen: AnyArray = self._world.decisions(self.offset).decide(self._states)
        if chosen.ndim == 2:
            chosen = self._drawn(chosen, pair)
        if pair is not None and pair[1] is not None and self._world.unchanged(self.offset):
            chosen = np.where(self._states == pair[0], pair[1], chosen)
        return chosen

    def _drawn(self, chances: Floats, pair: Pair | None) -> Ints:
        """Draw actions from distributions [n, A], given the observed action (docs/semantics.md, section 7)."""
        count, width = chances.shape
        ends = np.arange(1, count + 1) * width
        entries = ParticleRows(ends - width, ends, np.tile(np.arange(width), count), chances.ravel())
        evidence = NOTHING
        if pair is not None and pair[1] is not None:
            usual = self._world.nominal.decide(np.array([pair[0]]))
            if usual.ndim == 2:  # a certain choice says nothing about noise, nor does one of probability 0
                evidence = ObservedRow(np.arange(width), usual[0], pair[1], float(usual[0, pair[1]]))
        return race(self._seed, ACTION, self._first + self.offset, self._noise, entries, evidence)

    def _move(self, actions: Ints, evidence: ObservedRow, ended: int | None) -> None:
        """Advance every particle to its next state."""
        step, self.offset = self._first + self.offset, self.offset + 1
        moving = self._states != ended if ended is not None else None
        if moving is None or moving.all():
            if len(self._open):
                entries = self._world.rows.entries(self._states, actions)
                self._states = race(self._seed, STATE, step, self._noise, entries, evidence)
            return
        entries = self._world.rows.entries(self._states[moving], actions[moving])
        states = self._states.copy()
        states[moving] = race(self._seed, STATE, step, self._noise[moving], entries, evidence)
        self._states = states


def _evidence(rows: RowSource, state: int, action: int, successor: int) -> ObservedRow:
    """Return the observed row and its outcome. Raises PathError if the model gives the outcome probability 0."""
    begin, end, keys, chances = rows.entries(np.array([state]), np.array([action]))
    row = slice(int(begin[0]), int(end[0]))
    chance = float(chances[row][keys[row] == successor].sum())
    if chance <= 0.0:
        raise PathError(
            f"the model gives {successor} probability 0 after state {state}, action {action}; "
            "the path or the model is wrong"
        )
    return ObservedRow(keys[row], chances[row], successor, chance)
