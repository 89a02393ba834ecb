"""A law gives the policy and the transition rows in force at each offset, before any observation is used.

Interventions turn one law into another (Kazemi & Paoletti, Section 3.2; docs/semantics/worlds.md, section 2.2, adds
takeovers and changed dynamics). Laws do not depend on an observed path; `monitor.causal.world` combines the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model import MDP
from monitor.policy import PolicyTable


@dataclass(frozen=True)
class Intervention:
    """A change of the policy or of the dynamics, or no change.

    `table`: the new policy, for `steps` offsets (None: for all offsets). `dynamics` replaces a law's rows along the
    observed path, and `future` replaces the rows after this path; give both or neither.
    """

    table: PolicyTable | None = None
    steps: int | None = None
    dynamics: MDP | None = None
    future: MDP | None = None


@dataclass(frozen=True)
class Law:
    """Policies in phases, over one model.

    `phases`: (first offset after the phase, table) in ascending order; the last phase has no end (None). `dynamics`:
    the rows before offset `until`; `future`: the rows from `until` on. The two differ only if an episode has terminated
    in the state `end`, which is absorbing from then on. A large model is not copied, so in `future` the state `end` may
    still have its original rows; `row` and `expected_rewards` correct this. `nominal_from`: the offset from which the
    nominal law is in force again (0: always in force, None: never again).
    """

    phases: tuple[tuple[int | None, PolicyTable], ...]
    dynamics: MDP
    future: MDP
    until: int = 0
    end: int | None = None
    nominal_from: int | None = 0

    @classmethod
    def stationary(cls, table: PolicyTable, dynamics: MDP) -> Law:
        """Return the law with one policy for all offsets, in one model."""
        return cls(((None, table),), dynamics, dynamics)

    @classmethod
    def ending(cls, table: PolicyTable, dynamics: MDP, future: MDP, until: int, end: int) -> Law:
        """Return the law with one policy, in a model whose state `end` is absorbing from offset `until` on."""
        return cls(((None, table),), dynamics, future, until, end)

    def after_phases(self, tables: Sequence[PolicyTable]) -> Law:
        """Return this law with other policies in force at offsets 0, 1, ..., one for each offset."""
        phases: list[tuple[int | None, PolicyTable]] = []
        for offset, table in enumerate(tables):
            if phases and phases[-1][1] is table:
                phases.pop()
            phases.append((offset + 1, table))
        if phases and phases[-1][1] is self.table(len(tables)):
            phases.pop()
        rest = [(end, table) for end, table in self.phases if end is None or end > len(tables)]
        return replace(self, phases=(*phases, *rest)) if phases else self

    def model_at(self, offset: int) -> MDP:
        """Return the model whose rows are in force at an offset."""
        return self.dynamics if offset < self.until else self.future

    def ended(self, offset: int) -> int | None:
        """Return the state that is absorbing at an offset because the episode has ended in it, or None."""
        return self.end if self.end is not None and offset >= self.until else None

    @property
    def explicit(self) -> bool:
        """True if the rows of `future` themselves make the ended state absorbing."""
        return self.end is None or self.future.is_absorbing(self.end)

    def row(self, offset: int, state: int, action: int) -> tuple[Ints, Floats]:
        """Return successors and probabilities at an offset, without observations."""
        if state == self.ended(offset):
            return np.array([state]), np.ones(1)
        return self.model_at(offset).row(state, action)

    def expected_rewards(self, offset: int, states: Ints, actions: Ints) -> Floats:
        """Return the expected rewards [n] of n pairs at an offset, without observations."""
        rewards: Floats = self.model_at(offset).expected_rewards[states, actions]
        rewards[states == self.ended(offset)] = 0.0
        return rewards

    def rewards(self, offset: int, state: int, action: int, successors: Ints) -> Floats:
        """Return R(s, a, s') at an offset, [n] for n successors."""
        if state == self.ended(offset):
            return np.zeros(len(successors))
        model = self.model_at(offset)
        return float(model.rewards[state, action]) + model.extra_rewards(state, action, successors)

    def table(self, offset: int) -> PolicyTable:
        """Return the policy in force at an offset."""
        return next(table for end, table in self.phases if end is None or offset < end)

    def stationary_from(self) -> int:
        """Return the first offset from which the law no longer changes."""
        return max([self.until, *(end for end, _ in self.phases if end is not None)])

    def after(self, offset: int) -> Law:
        """Return the part of the law from a later offset on, which becomes offset 0.

        This part is the nominal law of the goals that are nested at that offset.
        """
        phases = tuple(
            (None if end is None else end - offset, t) for end, t in self.phases if end is None or end > offset
        )
        return replace(self, phases=phases, until=max(self.until - offset, 0), nominal_from=0)

    def under(self, change: Intervention) -> Law:
        """Return this law with an intervention at offset 0."""
        if change.dynamics is not None:
            return replace(self, dynamics=change.dynamics, future=change.future or change.dynamics)
        if change.table is None:
            return self
        if change.steps is None:
            return replace(self, phases=((None, change.table),), nominal_from=None)
        if change.steps == 0:
            return self
        rest = tuple((end, t) for end, t in self.phases if end is None or end > change.steps)
        return replace(self, phases=((change.steps, change.table), *rest), nominal_from=change.steps)
