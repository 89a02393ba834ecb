"""Compute exactly, for each length of takeovers, how many episodes become unsafe and how often the fallback acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from monitor.arrays import Bools, Floats
from monitor.authoring.proposal.measure import CandidateFormula
from monitor.authoring.proposal.paths import RecordedPath
from monitor.exact.all_states import values
from monitor.exact.inputs import tables
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable

HOLDS: Final = (1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40)
"""Values of `hold` that are compared: smallest lengths of takeovers, in steps."""

WORTH: Final = 0.01
"""A longer takeover is proposed if each further step saves this fraction of the episodes that are unsafe without a
guard."""

LONGEST: Final = 200
"""Largest number of steps of an episode in the calculation."""


@dataclass(frozen=True)
class Guarded:
    """Episodes of an agent with a guard whose takeovers last at least `hold` steps; 0: without a guard.

    Attributes:
        unsafe: probability that an episode enters an unsafe state within `length` steps.
        taken: expected fraction of these steps in which the fallback acts.
    """

    hold: int
    length: int
    unsafe: float
    taken: float


def guarded(
    model: MDP, policies: Mapping[str, object], candidate: CandidateFormula, paths: Sequence[RecordedPath]
) -> list[Guarded]:
    """Return the effect of a guard on episodes that begin like the recorded ones and have their length.

    The first result is without a guard. The other results are for the lengths in `HOLDS`. The results are exact in the
    model, as a Markov chain of the state and the remaining steps of the takeover. The alarm is assumed to fire if the
    agent's own policy misses the formula's threshold from now on. The alarm then wants a takeover if the fallback meets
    this threshold. Earlier observations and the monitor's delay are ignored. `policies`: as for `monitor.values`, with
    `nominal` and `fallback`.
    """
    goal = f'P=? [ G<={candidate.horizon} !"{candidate.label}" ]'
    fires = values(goal, model=model, policies=policies) < candidate.threshold
    wants = fires & (values(f"fallback@0.{goal}", model=model, policies=policies) >= candidate.threshold)
    safe = ~model.labels[candidate.label]
    starts = np.array([path.states[0] for path in paths if safe[path.states[0]]], np.int64)
    length = int(np.clip(np.median([len(path.actions) for path in paths]), 1, LONGEST))
    if not len(starts):
        return []
    laws = tables(policies, model)
    own, other = (_chain(model, laws[name]) for name in ("nominal", "fallback"))
    found = []
    for hold in (0, *(hold for hold in HOLDS if hold <= length)):
        unsafe, taken = _episodes(own, other, (fires, wants if hold else np.zeros_like(wants), safe), hold or 1, length)
        found.append(Guarded(hold, length, float(unsafe[starts].mean()), float(taken[starts].mean()) / length))
    return found


def proposed(rows: Sequence[Guarded]) -> int | None:
    """Return the longest length up to which further steps save enough (`WORTH`); None if a guard saves no episode."""
    if not rows or rows[-1].unsafe >= rows[0].unsafe:
        return None
    best = rows[1]
    for before, row in pairwise(rows[1:]):
        if before.unsafe - row.unsafe < WORTH * (row.hold - before.hold) * rows[0].unsafe:
            break
        best = row
    return best.hold


def _chain(model: MDP, law: PolicyTable) -> csr_array:
    """Return the transition matrix [S, S] under a policy."""
    policy = np.stack([law.distribution(state, model.actions) for state in range(model.states)])
    rows = np.repeat(np.arange(model.states * model.actions), np.diff(model.indptr))
    weights = model.probabilities * policy.reshape(-1)[rows]
    shape = (model.states, model.states)
    return csr_array((weights, (rows // model.actions, model.successors)), shape=shape)


def _episodes(
    own: csr_array, other: csr_array, where: tuple[Bools, Bools, Bools], hold: int, length: int
) -> tuple[Floats, Floats]:
    """Return the probability of an unsafe state within `length` steps, and the expected steps of the fallback: [S].

    `where`: for each state, whether the alarm fires, whether it wants a takeover, and whether the state is safe. The
    method is backward induction over the remaining steps of the episode. Columns are the remaining steps of a takeover,
    from 0, where the takeover ends unless the alarm fires. The last column is for no takeover.
    """
    fires, wants, safe = where
    unsafe = np.repeat((~safe).astype(float)[:, None], hold + 1, axis=1)
    taken = np.zeros_like(unsafe)
    for _ in range(length):
        after = []
        for now, acts in ((unsafe, 0.0), (taken, 1.0)):
            by_other, by_own = other @ now + acts, own @ now[:, -1]
            after.append(np.column_stack([
                np.where(fires, by_other[:, 0], by_own),
                by_other[:, : hold - 1],
                np.where(wants, by_other[:, hold - 1], by_own),
            ]))  # fmt: skip
        unsafe = np.where(safe[:, None], after[0], 1.0)
        taken = np.where(safe[:, None], after[1], 0.0)
    return unsafe[:, -1], taken[:, -1]
