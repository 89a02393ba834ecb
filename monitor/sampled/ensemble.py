"""Particles: many drawn worlds at once, advanced along the observed path and beyond it.

Each is a realisation tau'(G') of the counterfactual path (Kazemi & Paoletti, Appendix on decision procedures), carrying
what is still owed of the formula and what it has collected. The rules are those of `monitor.causal.World`, with noise
in the place of distributions: up to the last observed pair posterior noise, prior noise after it.
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
from monitor.sampled.noise import ACTION, NOTHING, STATE, Entries, Evidence, race
from monitor.sampled.rows import Rows

__all__ = ["Arm", "Ensemble", "Pair", "Steps"]

Pair = tuple[int, int | None]
"""A state and the action taken there, None: not yet."""
Letters = Callable[[int, Ints, Ints], Ints]
"""(offset, states [n], actions [n]) -> letters [n]."""

FEW_LETTERS = 1 << 6
"""Label sets that each get a column in a table of steps: 50 MB for an automaton of 200,000 obligations."""


@dataclass(frozen=True)
class Arm:
    """One world to be drawn, as `monitor.causal.Law` says it.

    Attributes:
        phases: (first offset after the phase, policy), ascending; the last has no end (None).
        default_from: the offset from which nothing is changed any more; None: never.
        nominal: the deployed policy.
        observed: the rows that what was observed came from.
        rows: the rows of this world.
        rewards: R of n transitions; those of the main model, whatever the rows.
    """

    phases: tuple[tuple[int | None, Decisions], ...]
    default_from: int | None
    nominal: Decisions
    observed: Rows
    rows: Rows
    rewards: Callable[[Ints, Ints, Ints], Floats]

    def decisions(self, offset: int) -> Decisions:
        """The policy in force at an offset."""
        return next(policy for end, policy in self.phases if end is None or offset < end)

    def unchanged(self, offset: int) -> bool:
        """Whether the action really taken is taken here too, in the state really visited."""
        return self.default_from is not None and offset >= self.default_from


class Steps:
    """An automaton over letters, for many at once: its steps as a table that fills as they are met."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self._few = 1 << len(automaton.atoms) <= FEW_LETTERS
        self._letters: dict[int, int] = {}
        self._next = np.full((2, 1 << len(automaton.atoms) if self._few else 1), -1, dtype=np.int32)
        self._pays = np.zeros(2, dtype=np.bool_)
        self.collects = False
        self._room(automaton.start)

    def after(self, owed: Ints, letters: Ints) -> Ints:
        """What remains [n] of the obligations after reading the letters [n]."""
        columns = letters if self._few else self._columns(letters)
        rest = self._next[owed, columns]
        if (rest < 0).any():
            unknown = np.flatnonzero(rest < 0)
            for n in unknown[np.unique(owed[unknown] * self._next.shape[1] + columns[unknown], return_index=True)[1]]:
                met = self.automaton.step(int(owed[n]), int(letters[n]))
                self._room(met)
                self._next[owed[n], columns[n]] = met
            rest = self._next[owed, columns]
        return rest.astype(np.int64)

    def pays(self, owed: Ints) -> Bools:
        """Whether the reward of the offset about to be read counts, for obligations [n]."""
        counts: Bools = self._pays[owed]
        return counts

    def _columns(self, letters: Ints) -> Ints:
        """Letters numbered as they are met, where a column for each that there may be would be too many."""
        different, back = np.unique(letters, return_inverse=True)
        for letter in different.tolist():
            self._letters.setdefault(letter, len(self._letters))
        if len(self._letters) > self._next.shape[1]:
            wider = np.full((len(self._next), 2 * len(self._letters)), -1, dtype=np.int32)
            wider[:, : self._next.shape[1]] = self._next
            self._next = wider
        return np.array([self._letters[letter] for letter in different.tolist()])[back]

    def _room(self, obligation: int) -> None:
        if obligation >= len(self._next):
            more = 2 * obligation + 2 - len(self._next)
            self._next = np.concatenate([self._next, np.full((more, self._next.shape[1]), -1, dtype=np.int32)])
            known = len(self._pays)
            pays = [self.automaton.rewards(one) for one in range(known, known + more)]
            self._pays = np.concatenate([self._pays, pays])
            self.collects = self.collects or any(pays)


class Ensemble:
    """Particles of one world, from the intervention state on.

    Args:
        arm: the world.
        steps: the automaton of what is asked.
        letters: which of its atoms hold.
        seed: of the noise.
        particles: which ones; the numbers are those of the noise, so any range may be asked in any pieces.
        state: the intervention state.
        first: the number of its step in the episode.
    """

    def __init__(
        self, arm: Arm, steps: Steps, letters: Letters, *, seed: int, particles: range, state: int, first: int
    ) -> None:
        self._arm, self._steps, self._letters, self._seed, self._first = arm, steps, letters, seed, first
        self.offset = 0
        self._values = np.zeros(len(particles))
        self._open = np.arange(len(particles))
        self._noise = np.arange(particles.start, particles.stop, particles.step)
        self._states = np.full(len(particles), state, dtype=np.int64)
        self._owed = np.full(len(particles), steps.automaton.start, dtype=np.int64)
        self._settle(self._owed)

    @property
    def states(self) -> Ints:
        """Where the particles are that still owe something."""
        return self._states

    @property
    def size(self) -> int:
        """Numbers held."""
        return len(self._values) + 4 * len(self._open)

    def observe(self, pair: Pair, reached: int) -> None:
        """Advance by one observed transition, whose noise is thereby no longer that of the prior."""
        state, taken = pair
        assert taken is not None
        self._step(pair, _evidence(self._arm.observed, state, taken, reached), None)

    def outcomes(self, last: Pair, ended: int | None) -> Floats:
        """What each particle comes to [n]: 0 or 1, or what it collects. The ensemble itself stays where it is.

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

    def _step(self, pair: Pair | None, evidence: Evidence, ended: int | None) -> None:
        """Choose, read one letter, move; what is decided by the letter alone need not move."""
        if not len(self._open):
            self.offset += 1
            return
        actions = self._chosen(pair)
        letters = self._letters(self.offset, self._states, actions)
        before, paid = self._states, self._steps.pays(self._owed)
        self._owed = self._steps.after(self._owed, letters)
        if not self._steps.collects:
            kept = self._settle(self._owed)
            self._move(actions if kept is None else actions[kept], evidence, ended)
            return
        self._move(actions, evidence, ended)
        if ended is not None:
            paid &= before != ended
        self._values[self._open[paid]] += self._arm.rewards(before[paid], actions[paid], self._states[paid])
        self._settle(self._owed)

    def _settle(self, owed: Ints) -> Ints | None:
        """Let go of those that owe nothing any more; the places of the others, None: all."""
        self._values[self._open[owed == TRUE]] = 1.0
        kept = np.flatnonzero((owed != TRUE) & (owed != FALSE))
        if len(kept) == len(owed):
            return None
        self._open, self._noise = self._open[kept], self._noise[kept]
        self._states, self._owed = self._states[kept], owed[kept]
        return kept

    def _chosen(self, pair: Pair | None) -> Ints:
        """The actions [n] at this offset; `pair`: what was observed there, None beyond the path."""
        chosen: AnyArray = self._arm.decisions(self.offset).decide(self._states)
        if chosen.ndim == 2:
            chosen = self._drawn(chosen, pair)
        if pair is not None and pair[1] is not None and self._arm.unchanged(self.offset):
            chosen = np.where(self._states == pair[0], pair[1], chosen)
        return chosen

    def _drawn(self, chances: Floats, pair: Pair | None) -> Ints:
        """Actions drawn from distributions [n, A], given the one that was taken (docs/semantics.md, section 7)."""
        count, width = chances.shape
        ends = np.arange(1, count + 1) * width
        entries = Entries(ends - width, ends, np.tile(np.arange(width), count), chances.ravel())
        evidence = NOTHING
        if pair is not None and pair[1] is not None:
            usual = self._arm.nominal.decide(np.array([pair[0]]))
            if usual.ndim == 2:  # a certain choice says nothing about noise, nor does one off-policy
                evidence = Evidence(np.arange(width), usual[0], pair[1], float(usual[0, pair[1]]))
        return race(self._seed, ACTION, self._first + self.offset, self._noise, entries, evidence)

    def _move(self, actions: Ints, evidence: Evidence, ended: int | None) -> None:
        """Every particle to its next state."""
        step, self.offset = self._first + self.offset, self.offset + 1
        going = self._states != ended if ended is not None else None
        if going is None or going.all():
            if len(self._open):
                entries = self._arm.rows.entries(self._states, actions)
                self._states = race(self._seed, STATE, step, self._noise, entries, evidence)
            return
        entries = self._arm.rows.entries(self._states[going], actions[going])
        states = self._states.copy()
        states[going] = race(self._seed, STATE, step, self._noise[going], entries, evidence)
        self._states = states


def _evidence(rows: Rows, state: int, action: int, reached: int) -> Evidence:
    """The observed row and its outcome. Raises PathError where the model gives the outcome probability 0."""
    begin, end, keys, chances = rows.entries(np.array([state]), np.array([action]))
    row = slice(int(begin[0]), int(end[0]))
    chance = float(chances[row][keys[row] == reached].sum())
    if chance <= 0.0:
        raise PathError(
            f"the model gives {reached} probability 0 after state {state}, action {action}; "
            "the path or the model is wrong"
        )
    return Evidence(keys[row], chances[row], reached, chance)
