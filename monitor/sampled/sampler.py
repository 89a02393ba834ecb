"""Outcomes f(G') of queries, particle by particle (Kazemi & Paoletti, Appendix on decision procedures)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError, PathError
from monitor.logic.syntax import Goal, InterventionRef, Probability, Reward
from monitor.sampled.ensemble import Ensemble, Pair, StepTable
from monitor.sampled.scene import Ending, Scene, has_nested

__all__ = ["MAX_CACHED", "PARTICLES", "EnsembleCache", "Sampler"]

Path = Sequence[Pair]

PARTICLES = 1 << 32
"""Particles are numbered below this."""
BLOCK = 1 << 16
"""Particles advanced at once, which bounds memory for any number of them."""
MAX_CACHED = 8_000_000
"""Numbers the ensembles of one path may hold together: 64 MB; then the least recently used one is dropped."""


@dataclass(frozen=True)
class _Query:
    """A measure from an intervention state on, `path[0]`, whose step has the number `first`."""

    measure: Probability | Reward
    path: list[Pair]
    first: int
    particles: range
    terminated: bool

    @property
    def ending(self) -> Ending | None:
        return Ending(self.path[-1][0], len(self.path) - 1) if self.terminated else None


class _AdvancedEnsemble:
    """An ensemble, the pairs it has observed, and the observed state after them."""

    def __init__(self, ensemble: Ensemble, state: int) -> None:
        self.ensemble, self.observed, self.state = ensemble, list[Pair](), state

    def is_prefix_of(self, path: list[Pair]) -> bool:
        """Return whether the observed pairs and the state after them begin `path`."""
        count = len(self.observed)
        return count < len(path) and path[:count] == self.observed and path[count][0] == self.state

    def advance(self, path: list[Pair]) -> None:
        """Observe the new pairs, up to the last."""
        for position in range(len(self.observed), len(path) - 1):
            self.state = path[position + 1][0]
            self.ensemble.observe(path[position], self.state)
            self.observed.append(path[position])


class EnsembleCache:
    """Ensembles along one growing path, one for each start point, so that a new pair costs one step.

    It holds no state: an ensemble that does not fit a path is drawn again, with the same numbers.
    """

    def __init__(self, limit: int = MAX_CACHED) -> None:
        self._limit = limit
        self._held = 0
        self._ensembles: OrderedDict[tuple[object, ...], tuple[_AdvancedEnsemble, int]] = OrderedDict()

    def take(self, key: tuple[object, ...], path: list[Pair]) -> _AdvancedEnsemble | None:
        """Remove and return the ensemble of a start point, if the pairs it has observed begin `path`."""
        advanced, size = self._ensembles.pop(key, (None, 0))
        self._held -= size
        return advanced if advanced is not None and advanced.is_prefix_of(path) else None

    def put(self, key: tuple[object, ...], advanced: _AdvancedEnsemble) -> None:
        """Keep an ensemble, dropping the least recently used ones beyond the limit."""
        size = advanced.ensemble.size + 2 * len(advanced.observed)
        self._ensembles[key] = advanced, size
        self._held += size
        while self._held > self._limit:
            self._held -= self._ensembles.popitem(last=False)[1][1]

    @property
    def held(self) -> int:
        """Numbers held, at most the limit."""
        return self._held


class Sampler:
    """Draws outcomes of queries on one scene.

    Args:
        scene: the worlds to draw from.
        seed: of the noise, 0 to 2**64 - 1. Agents with the same seed have the same noise: give each its own.
    """

    def __init__(self, scene: Scene, seed: int) -> None:
        if not 0 <= seed < 1 << 64:
            raise LimitError(f"a seed is a number from 0 to 2**64 - 1, got {seed}")
        self.scene, self.seed = scene, seed
        self._steps: dict[Probability | Reward, StepTable] = {}

    def outcomes(
        self,
        goal: Goal,
        path: Path,
        particles: range,
        *,
        first_seq: int = 0,
        terminated: bool = False,
        cache: EnsembleCache | None = None,
    ) -> Floats:
        """Return the outcome of a goal in each drawn world: [n] float64.

        A particle's outcome depends on nothing but the goal, the path, `first_seq`, the seed and its own number.

        Args:
            goal: validated; its test, if it has one, is ignored.
            path: pairs (state, action), oldest first; the last action may be None (not yet taken).
            particles: which drawn worlds, numbers below 2**32.
            first_seq: the number of the first pair's step in the episode; noise is keyed by it.
            terminated: the episode has ended in the last state, which is absorbing from then on.
            cache: of this path, if it grows: ensembles are advanced from where the last call left them.

        Returns:
            0 or 1 for P, the sum for R; for delta the difference of the two worlds' outcomes under the same noise.

        Raises:
            PathError: an observed transition has probability 0.
            LimitError: a nested quantity looks back.
            FormulaError: a quantity is nested in a path of a simulated model.
            PolicyError, ModelError: a simulator or its policy breaks its contract.
        """
        if particles and not 0 <= min(particles) <= max(particles) < PARTICLES:
            raise LimitError(f"particles are numbered 0 to {PARTICLES - 1} (limit PARTICLES), not {particles}")
        if not path:
            raise PathError("the path is empty; it needs at least one pair (state, action)")
        position = _position(goal.world.offset, len(path))
        values = np.zeros(len(particles))
        for begin in range(0, len(particles), BLOCK):
            block = particles[begin : begin + BLOCK]
            query = _Query(goal.measure, list(path[position:]), first_seq + position, block, terminated)
            values[begin : begin + len(block)] = self._effect(goal, query, cache)
        return values

    def _effect(self, goal: Goal, query: _Query, cache: EnsembleCache | None) -> Floats:
        values = self._world(goal.world.change, query, cache)
        if goal.world.baseline is not None:
            values = values - self._world(goal.world.baseline, query, cache)
        return values

    def _world(self, change: InterventionRef, query: _Query, cache: EnsembleCache | None) -> Floats:
        """Outcomes in one world."""
        ending = query.ending
        if ending is not None and has_nested(query.measure):
            cache = None  # an end changes nested truths
        key = self.scene, self.seed, change, query.measure, query.first, query.particles
        advanced = None if cache is None else cache.take(key, query.path)
        if advanced is None:
            advanced = _AdvancedEnsemble(self._start(change, query), query.path[0][0])
        advanced.advance(query.path)
        if cache is not None:
            cache.put(key, advanced)
        return advanced.ensemble.outcomes(query.path[-1], None if ending is None else ending.state)

    def _start(self, change: InterventionRef, query: _Query) -> Ensemble:
        measure = query.measure
        if measure not in self._steps:
            self._steps[measure] = StepTable(self.scene.automaton(measure))
        return Ensemble(
            self.scene.world(change),
            self._steps[measure],
            self.scene.labels(measure, change, query.ending),
            seed=self.seed,
            particles=query.particles,
            state=query.path[0][0],
            first=query.first,
        )


def _position(offset: int, length: int) -> int:
    """Return the clipped position from 0 of an offset on a path of `length` pairs (docs/semantics.md, section 1.4)."""
    used = max(1 - length, min(offset, length - 1))
    return length - 1 - used if used >= 0 else -used - 1
