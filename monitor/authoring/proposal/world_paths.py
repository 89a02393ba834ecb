"""Recorded steps with numbers as paths for measuring formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.authoring.proposal.paths import RecordedPath


@dataclass(frozen=True)
class RecordedNumbers:
    """The state [S, f] and the inputs [S, i] of a world with numbers, for each state number of the paths."""

    states: Floats
    inputs: Floats

    def sent(self, state: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return a state and its inputs, as an agent sends them."""
        return tuple(self.states[state].tolist()), tuple(self.inputs[state].tolist())


def numbered_paths(steps: RecordedSteps) -> tuple[list[RecordedPath], RecordedNumbers]:
    """Return the paths of recorded steps, with states numbered by step, and the numbers of each state.

    The last state of a path has the inputs of the previous step. Whether an episode terminated there is not kept.
    """
    every = list(steps.by_path().values())
    last = [rows[-1] for rows in every]
    paths = [
        RecordedPath(np.append(rows, len(steps) + n), steps.a[rows], ended=False, episode=int(steps.episode[rows[0]]))
        for n, rows in enumerate(every)
    ]
    numbers = np.concatenate([steps.x, steps.x_next[last]]), np.concatenate([steps.w, steps.w[last]])
    return paths, RecordedNumbers(*numbers)
