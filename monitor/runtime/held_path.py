"""The path of an agent as the engines take it."""

from __future__ import annotations

from monitor.evaluation import Held
from monitor.stream.path import SlidingPath


def held_path(path: SlidingPath, begin: int = 0) -> Held:
    """Return what an agent's path holds from the pair number `begin` on."""
    return Held(
        path.pairs[begin:],
        tuple(path.inputs[begin:]),
        path.terminated,
        path.start_observed and begin == 0,
        tuple(path.acted[begin:]),
    )
