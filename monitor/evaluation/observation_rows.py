"""The test of a model with hidden states: each observation is compared with its distribution given earlier ones.

If the model is correct, the randomised probability integral transform of an observation is uniform in (0, 1) and
independent of all earlier observations (D. Cox & E. Snell, "A general definition of residuals", 1968). So it is tested
in the same way as the noise of worlds with numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monitor.evaluation.noise_rows import CELLS, UniformRows, seed_of
from monitor.hidden.filtering import NOTHING, Filter
from monitor.sampled.noise import STATE, uniforms
from monitor.types.stream_events import Step


class ObservationRows(UniformRows):
    """The rows of the test of one model: one for each action after which something was observed."""

    def __init__(self, beliefs: Filter) -> None:
        self._filter = beliefs
        model = beliefs.model
        names = model.action_names or tuple(str(action) for action in range(model.actions))
        super().__init__(["observation" if model.emissions is not None else "state"], names)

    def transitions(self, agent: str, before: Step, after: Step) -> Iterator[tuple[int, int]]:
        """Yield the row of the action, and the cell of the observation after it; nothing without observation."""
        if after.state is None or before.action is None or after.inputs == NOTHING:
            return
        chances = self._filter.predicted(after.inputs)
        below = sum(chance for seen, chance in chances.items() if seen < after.state)
        only = np.zeros(1, np.int64)
        fresh = float(uniforms(seed_of(agent, after), STATE, after.seq, only, only)[0, 0])
        yield before.action, min(int((below + fresh * chances[after.state]) * CELLS), CELLS - 1)
