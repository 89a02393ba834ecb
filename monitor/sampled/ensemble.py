"""Advance particles, which are many sampled worlds at once, along the observed path and beyond it.

Each particle is a realisation tau'(G') of the counterfactual path (Kazemi & Paoletti, Appendix on decision procedures),
with its remaining obligation and the reward collected so far. Particles follow the rules of
`monitor.causal.CounterfactualWorld`, but draw noise instead of computing distributions: posterior noise up to the last
observed transition, prior noise after it.

As long as no particle needs noise, all particles are the same path, which is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.logic import FALSE, TRUE, Automaton
from monitor.sampled.decisions import Decisions, sees_inputs
from monitor.sampled.dynamics import AnyPair, Given, Keys, ParticleDynamics, State, same
from monitor.sampled.noise import ACTION, NOTHING, ObservedRow, ParticleRows, race
from monitor.worlds import Moment, with_inputs

LabelFunction = Callable[[int, AnyArray, Ints], Ints]
"""(offset, states [n], actions [n]) -> label sets [n], as bit masks."""

MAX_DENSE_COLUMNS = 1 << 6
"""Up to this number of possible label sets, a step table has a column for each set: 50 MB for 200,000 obligations."""


@dataclass(frozen=True)
class SampledWorld:
    """A world from which particles are sampled. It corresponds to `monitor.causal.Law` for exact evaluation.

    Attributes:
        phases: (first offset after the phase, policy), ascending; the last phase has no end (None).
        nominal_from: the offset at which the intervention ends; None if it never ends.
        nominal: the deployed policy.
        dynamics: the dynamics of particles.
        rewards: function that returns R(s, a, s') of n transitions in the main model, even with other dynamics.
        acted: the policies that acted at the observed offsets; empty if nominal acted at all of them.
        begins: the offset at which the intervention begins. Offsets in `phases` and `nominal_from` are counted from it.
    """

    phases: tuple[tuple[int | None, Decisions], ...]
    nominal_from: int | None
    nominal: Decisions
    dynamics: ParticleDynamics
    rewards: Callable[[AnyArray, Ints, AnyArray], Floats]
    acted: tuple[Decisions, ...] = ()
    begins: int = 0

    def decisions(self, offset: int) -> Decisions:
        """Return the policy in force at an offset."""
        if self.unchanged(offset):
            return self.acting(offset)
        return next(policy for end, policy in self.phases if end is None or offset - self.begins < end)

    def acting(self, offset: int) -> Decisions:
        """Return the policy that acted at an observed offset; beyond the observed offsets, the deployed policy."""
        return self.acted[offset] if offset < len(self.acted) else self.nominal

    def unchanged(self, offset: int) -> bool:
        """Return whether the world takes the observed action in the observed state at an offset."""
        since = offset - self.begins
        return since < 0 or (self.nominal_from is not None and since >= self.nominal_from)


def decided_at(policy: Decisions, pair: AnyPair) -> Ints | Floats:
    """Return the choice of a policy in the state of an observed pair: an action [1], or a distribution [1, A]."""
    here = np.asarray(pair[0])[np.newaxis]
    return policy.decide(with_inputs(here, pair.inputs) if sees_inputs(policy) and isinstance(pair, Moment) else here)


def drawn_actions(seed: int, step: int, particles: Ints, chances: Floats, evidence: ObservedRow) -> Ints:
    """Return the actions [n] of particles [n] from distributions [n, A], given what the observed action shows."""
    count, width = chances.shape
    ends = np.arange(1, count + 1) * width
    entries = ParticleRows(ends - width, ends, np.tile(np.arange(width), count), chances.ravel())
    return race(seed, ACTION, step, particles, entries, evidence)


class StepTable:
    """Table of the steps of an automaton, for many obligations at once. Entries are computed when they are needed."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self._dense = 1 << len(automaton.atoms) <= MAX_DENSE_COLUMNS
        self._column_of: dict[int, int] = {}
        self._next = np.full((2, 1 << len(automaton.atoms) if self._dense else 1), -1, dtype=np.int32)
        self._rewards = np.zeros(2, dtype=np.bool_)
        self.collects = False
        self._fit(automaton.start)

    def step(self, obligations: Ints, masks: Ints) -> Ints:
        """Return the obligations [n] that remain of `obligations` [n] after label sets [n]."""
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
        """Return the column of each label set, if columns are numbered in the order in which label sets occur."""
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
    """Particles of one world, from the intervention state on. They are a single path until `apart` is called.

    Args:
        world: the world.
        steps: the step table of the measure's automaton.
        labels: returns the label sets, that is, which atoms of the automaton hold.
        seed: seed of the noise.
        state: the intervention state.
        first: the number, in the episode, of the step at the intervention state.
        watched: whether to record which particles make moves without recorded data.
    """

    def __init__(
        self,
        world: SampledWorld,
        steps: StepTable,
        labels: LabelFunction,
        *,
        seed: int,
        state: State,
        first: int,
        watched: bool = False,
    ) -> None:
        self._world, self._steps, self._labels, self._seed, self._first = world, steps, labels, seed, first
        self.offset = 0
        self._apart = False
        self._values = np.zeros(1)
        self._left = np.zeros(1, dtype=np.bool_) if watched else None
        self._open = np.arange(1)
        self._noise = np.zeros(1, dtype=np.int64)
        self._states: AnyArray = np.asarray(state)[np.newaxis]
        self._obligations = np.full(1, steps.automaton.start, dtype=np.int64)
        self._drop_decided(self._obligations)

    def apart(self, particles: range) -> Ensemble:
        """Return a copy with separate particles, each with its own noise; `particles`: numbers that key the noise.

        A particle does not depend on other particles, so a range of particles may be divided into parts in any way.
        """
        assert not self._apart, "particles are told apart once"
        new, count, open_ = copy(self), len(particles), len(self._open)
        new._apart = True  # noqa: SLF001 - here and below: of this class
        new._values = np.repeat(self._values, count)  # noqa: SLF001
        new._left = None if self._left is None else np.repeat(self._left, count)  # noqa: SLF001
        new._open = np.arange(count * open_)  # noqa: SLF001
        new._noise = np.arange(particles.start, particles.stop, particles.step)[: count * open_]  # noqa: SLF001
        new._states = np.repeat(self._states, count, axis=0)  # noqa: SLF001
        new._obligations = np.repeat(self._obligations, count)  # noqa: SLF001
        return new

    def at(self, offset: int, states: AnyArray, particles: Ints | None = None) -> Ensemble:
        """Return a copy that begins `offset` steps later in states [n], with separate noise for `particles` [n].

        Without `particles`, `states` is a single state, and the copy is a single path.
        """
        assert not self._apart, "particles are told apart once"
        new, open_ = copy(self), len(self._open)
        new._apart, new._first = particles is not None, self._first + offset  # noqa: SLF001 - here and below: of this class
        new._values = np.repeat(self._values, len(states))  # noqa: SLF001
        new._open = np.arange(len(states) * open_)  # noqa: SLF001
        new._noise = (np.zeros(1, dtype=np.int64) if particles is None else particles)[: len(states) * open_]  # noqa: SLF001
        new._states = states[: len(states) * open_]  # noqa: SLF001
        new._obligations = np.repeat(self._obligations, len(states))  # noqa: SLF001
        return new

    def copied(self) -> Ensemble:
        """Return a copy that advances independently."""
        new = copy(self)
        new._values = self._values.copy()  # noqa: SLF001 - of this class
        new._left = None if self._left is None else self._left.copy()  # noqa: SLF001 - of this class
        return new

    @property
    def states(self) -> AnyArray:
        """States of the undecided particles."""
        return self._states

    @property
    def keys(self) -> Keys:
        """Keys of the noise of the undecided particles at the current step."""
        return Keys(self._seed, self._first + self.offset, self._noise)

    def observe(self, pair: AnyPair, successor: State) -> bool:
        """Advance by one observed transition, with noise from its posterior.

        Return False, and change nothing, if this needs noise and the particles are not apart.
        """
        return self._step(pair, self._world.dynamics.given(pair, successor), None)

    def outcomes(self, last: AnyPair, ended: State | None) -> Floats | None:
        """Return the outcome [n] of each particle: 0 or 1, or the reward collected. The ensemble is not advanced.

        Return None if this needs noise and the particles are not apart.

        Args:
            last: the last observed pair, whose outcome is unknown.
            ended: the state in which the episode has terminated, absorbing from here on and without reward; else None.
        """
        ahead = self._decided(last, ended)
        return None if ahead is None else ahead._values  # noqa: SLF001 - of this class

    def left(self, last: AnyPair, ended: State | None) -> Bools:
        """Return which particles [n] make a move without recorded data before they are decided.

        The particles must be `watched` and apart. The arguments are those of `outcomes`.
        """
        ahead = self._decided(last, ended)
        assert ahead is not None, "particles that are apart have noise"
        assert ahead._left is not None, "they are watched"  # noqa: SLF001 - of this class
        return ahead._left  # noqa: SLF001 - of this class

    def _decided(self, last: AnyPair, ended: State | None) -> Ensemble | None:
        """Return a copy in which every particle is decided; None if this needs noise and particles are not apart."""
        ahead = self.copied()
        for _ in ahead.follow(last, ended):
            pass
        return None if len(ahead._open) else ahead  # noqa: SLF001 - of this class

    def follow(self, last: AnyPair, ended: State | None) -> Iterator[Given]:
        """Advance from the last observed pair on until all particles are decided.

        Before each step, yield the information about the step. Stop early if a step needs noise and the particles are
        not apart. The arguments are those of `outcomes`.
        """
        pair: AnyPair | None = last
        given = self._world.dynamics.given(last, None)
        while len(self._open):
            yield given
            if not self._step(pair, given, ended):
                return
            pair, given = None, self._world.dynamics.beyond(given)

    def _step(self, pair: AnyPair | None, given: Given, ended: State | None) -> bool:
        """Choose the actions of the undecided particles, read their label sets, and draw their next states.

        Return False, and change nothing, if this needs noise and the particles are not apart.
        """
        if not len(self._open):
            self.offset += 1
            return True
        actions = self._chosen(pair, given)
        if actions is None:
            return False
        obligations = self._steps.step(self._obligations, self._labels(self.offset, self._states, actions))
        collects = self._steps.collects
        moves = collects or obligations[0] not in (FALSE, TRUE)
        if moves and not (self._apart or self._certain(actions, given, ended)):
            return False
        if not collects:
            self._obligations = obligations
            kept = self._drop_decided(obligations)
            self._move(actions if kept is None else actions[kept], given, ended)
            return True
        before, rewarded = self._states, self._steps.rewards(self._obligations)
        self._obligations = obligations
        self._move(actions, given, ended)
        if ended is not None:
            rewarded &= ~same(before, ended)
        self._values[self._open[rewarded]] += self._world.rewards(
            before[rewarded], actions[rewarded], self._states[rewarded]
        )
        self._drop_decided(obligations)
        return True

    def _drop_decided(self, obligations: Ints) -> Ints | None:
        """Drop the decided particles; return the indices of the other particles, None if no particle is decided."""
        decided = obligations <= TRUE  # FALSE is 0
        if not decided.any():
            return None
        self._values[self._open[obligations == TRUE]] = 1.0
        kept = np.flatnonzero(~decided)
        self._open, self._noise = self._open[kept], self._noise[kept]
        self._states, self._obligations = self._states[kept], obligations[kept]
        return kept

    def _chosen(self, pair: AnyPair | None, given: Given) -> Ints | None:
        """Return the actions [n] at this offset; None if they must be drawn and the particles are not apart.

        `pair`: the observed pair, None beyond the path. `given`: the information about the step.
        """
        taken = pair[1] if pair is not None and self._world.unchanged(self.offset) else None
        here = None if pair is None or taken is None else same(self._states, pair[0])
        if here is not None and not self._apart and here[0]:
            return np.array([taken])
        policy, seen = self._world.decisions(self.offset), self._states
        if sees_inputs(policy):
            inputs = self._world.dynamics.inputs(self.keys, given)
            if not (self._apart or isinstance(inputs, tuple)):
                return None
            seen = with_inputs(seen, inputs)
        chosen: AnyArray = policy.decide(seen)
        if chosen.ndim == 2:
            if not self._apart:
                return None
            chosen = self._drawn(chosen, pair)
        return chosen if here is None or taken is None else np.where(here, taken, chosen)

    def _drawn(self, chances: Floats, pair: AnyPair | None) -> Ints:
        """Draw actions from distributions [n, A], given the observed action (docs/semantics/formulas.md, section 7)."""
        evidence = NOTHING
        if pair is not None and pair[1] is not None:
            usual = decided_at(self._world.acting(self.offset), pair)
            if usual.ndim == 2:  # otherwise the choice gives no information about its noise
                evidence = ObservedRow(np.arange(chances.shape[1]), usual[0], pair[1], float(usual[0, pair[1]]))
        return drawn_actions(self._seed, self._first + self.offset, self._noise, chances, evidence)

    def _certain(self, actions: Ints, given: Given, ended: State | None) -> bool:
        """Return whether the single path moves without noise."""
        stays = ended is not None and bool(same(self._states, ended)[0])
        return stays or self._world.dynamics.certain(self._states, actions, given)

    def _move(self, actions: Ints, given: Given, ended: State | None) -> None:
        """Advance every particle to its next state."""
        keys, self.offset = self.keys, self.offset + 1
        move = self._world.dynamics.move
        moving = None if ended is None else ~same(self._states, ended)
        if self._left is not None and len(self._open):
            found = self._world.dynamics.unrecorded(keys, self._states, actions, given)
            self._left[self._open] |= found if moving is None else found & moving
        if moving is None or moving.all():
            if len(self._open):
                self._states = move(keys, self._states, actions, given)
            return
        states = self._states.copy()
        if moving.any():
            keys = keys._replace(particles=self._noise[moving])
            states[moving] = move(keys, states[moving], actions[moving], given)
        self._states = states
