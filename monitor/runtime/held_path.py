"""The path of an agent, in the form that the engines take."""

from __future__ import annotations

from monitor.evaluation import Held
from monitor.stream.path import SlidingPath


def held_path(path: SlidingPath, begin: int = 0) -> Held:
    """Return the pairs of an agent's path from the pair number `begin` on, for the engines."""
    return Held(
        path.pairs[begin:],
        tuple(path.inputs[begin:]),
        path.terminated,
        path.start_observed and begin == 0,
        tuple(path.acted[begin:]),
    )
