"""Recorded steps with numbers as paths for measuring formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.authoring.dynamics.learned_world import Parts
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.authoring.learning.holdout import HELD_FRACTION, held_out
from monitor.authoring.proposal.paths import RecordedPath, episodes_of
from monitor.worlds import CheckedWorld
from monitor.worlds.location_scale import LocationScale


@dataclass(frozen=True)
class RecordedNumbers:
    """The state [S, f] and the inputs [S, i] of a world with numbers, for each state number of the paths.

    `unseen`: [S] states that were not recorded, and count as unsafe; None: there are none.
    """

    states: Floats
    inputs: Floats
    unseen: Bools | None = None

    def sent(self, state: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return a state and its inputs, as an agent sends them."""
        return tuple(self.states[state].tolist()), tuple(self.inputs[state].tolist())

    def unsafe(self, world: CheckedWorld | LocationScale, label: str) -> Bools:
        """Return which states count as unsafe, [S]."""
        holds = world.holds(label, self.states)
        return holds if self.unseen is None else holds | self.unseen


def numbered_paths(steps: RecordedSteps, condition: int) -> tuple[list[RecordedPath], RecordedNumbers]:
    """Return the paths of recorded steps, with states numbered by step, and the numbers of each state.

    The last state of a path has the inputs of the previous step. The paths do not say whether an episode terminated
    there. If an episode ended in a state that was not recorded, and `condition` may hold there, the path has one more
    step, to a state that counts as unsafe, as in a table. `condition`: its column in `UnseenEnds.may`.
    """
    every = list(steps.by_path().values())
    last = [rows[-1] for rows in every]
    states, inputs = [steps.x, steps.x_next[last]], [steps.w, steps.w[last]]
    paths = {
        int(steps.path[rows[0]]): RecordedPath(
            np.append(rows, len(steps) + n), steps.a[rows], ended=False, episode=int(steps.episode[rows[0]])
        )
        for n, rows in enumerate(every)
    }
    count, ends = len(steps) + len(every), steps.unseen
    seen = count
    for n in () if ends is None else np.flatnonzero(ends.may[:, condition]).tolist():
        assert ends is not None
        known = paths.get(int(ends.path[n]))
        before = np.zeros(0, np.int64) if known is None else known.states[:-1]
        actions = np.zeros(0, np.int64) if known is None else known.actions
        paths[int(ends.path[n])] = RecordedPath(
            np.append(before, [count, count + 1]), np.append(actions, ends.a[n]), ended=True,
            episode=int(ends.episode[n]), unseen=True,
        )  # fmt: skip
        states.append(np.repeat(ends.x[[n]], 2, axis=0))
        inputs.append(np.repeat(ends.w[[n]], 2, axis=0))
        count += 2
    unseen = (np.arange(count) >= seen) & ((np.arange(count) - seen) % 2 == 1)
    in_order = [path for _, path in sorted(paths.items())]
    return in_order, RecordedNumbers(np.concatenate(states), np.concatenate(inputs), unseen)


def held_out_paths(paths: Sequence[RecordedPath], parts: Parts, seed: int) -> list[RecordedPath]:
    """Return the paths that the world was not learned from, in whole episodes.

    These are the episodes for checking. Of the episodes without any step in `parts`, such as those whose only step led
    to a state that was not recorded, a fifth is held out as in a table.
    """
    episodes = episodes_of(paths)
    learned = np.isin(episodes, np.concatenate([parts.fit.episode, parts.choice.episode]))
    held = np.isin(episodes, parts.check.episode) | (held_out(episodes, seed, HELD_FRACTION) & ~learned)
    return [path for path, out in zip(paths, held.tolist(), strict=True) if out]
