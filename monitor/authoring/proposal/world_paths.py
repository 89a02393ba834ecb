"""Recorded steps with numbers as paths to measure formulas on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.authoring.proposal.paths import RecordedPath


@dataclass(frozen=True)
class RecordedNumbers:
    """What the states of paths are in a world with numbers: state [S, f] and inputs [S, i] of each of their numbers."""

    states: Floats
    inputs: Floats

    def sent(self, state: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return a state and the inputs that come with it, as an agent sends them."""
        return tuple(self.states[state].tolist()), tuple(self.inputs[state].tolist())


def numbered_paths(steps: RecordedSteps) -> tuple[list[RecordedPath], RecordedNumbers]:
    """Return the paths of recorded steps, whose states are numbered by step, and what these numbers are.

    The last state of a path comes with the inputs of the step before. Whether an episode terminated there is not kept.
    """
    every = list(steps.by_path().values())
    last = [rows[-1] for rows in every]
    paths = [RecordedPath(np.append(rows, len(steps) + n), steps.a[rows], ended=False) for n, rows in enumerate(every)]
    numbers = np.concatenate([steps.x, steps.x_next[last]]), np.concatenate([steps.w, steps.w[last]])
    return paths, RecordedNumbers(*numbers)
