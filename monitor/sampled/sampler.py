"""Outcomes f(G') of queries, particle by particle (Kazemi & Paoletti, Appendix on decision procedures)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.errors import LimitError, PathError
from monitor.logic.syntax import Goal, InterventionRef, Probability, Reward
from monitor.logic.traversal import handover_goal
from monitor.sampled.dynamics import Pair, State
from monitor.sampled.ensemble import Ensemble, StepTable
from monitor.sampled.handover import TooLate
from monitor.sampled.scene import Ending, Scene, has_nested

Path = Sequence[Pair]

PARTICLES = 1 << 32
"""Particles are numbered below this."""
BLOCK = 1 << 16
"""Particles advanced at once, which bounds memory for any number of them."""
MAX_CACHED = 8_000_000
"""Numbers the ensembles of one path may hold together: 64 MB; then the least recently used one is dropped."""


class _AdvancedEnsemble:
    """An ensemble, the pairs it has observed, and the observed state after them."""

    def __init__(self, ensemble: Ensemble, state: State, observed: Sequence[Pair] = ()) -> None:
        self.ensemble, self.observed, self.state = ensemble, list(observed), state

    def is_prefix_of(self, path: list[Pair]) -> bool:
        """Return whether the observed pairs and the state after them begin `path`."""
        count = len(self.observed)
        return count < len(path) and path[:count] == self.observed and path[count][0] == self.state

    def advance(self, path: list[Pair]) -> bool:
        """Observe the new pairs, up to the last; return False if noise is needed before, and none is drawn."""
        for position in range(len(self.observed), len(path) - 1):
            successor = path[position + 1][0]
            if not self.ensemble.observe(path[position], successor):
                return False
            self.state = successor
            self.observed.append(path[position])
        return True

    def apart(self, particles: range) -> _AdvancedEnsemble:
        """Return a copy whose particles have noise of their own."""
        return _AdvancedEnsemble(self.ensemble.apart(particles), self.state, self.observed)


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

    def question(
        self,
        goal: Goal,
        path: Path,
        *,
        first_seq: int = 0,
        terminated: bool = False,
        acted: Sequence[str] = (),
        begins: int = 0,
        watched: bool = False,
    ) -> AnyQuestion:
        """Return a goal on a path, ready to be drawn.

        Args:
            goal: validated; its test, if it has one, is ignored.
            path: pairs (state, action), oldest first; the last action may be None (not yet taken).
            first_seq: the number of the first pair's step in the episode; noise is keyed by it.
            terminated: the episode has ended in the last state, which is absorbing from then on.
            acted: names of the policies that acted at the pairs; empty: nominal did at all of them.
            begins: how many steps after the goal's offset the intervention begins; until then nothing is changed.
            watched: for `Question.left`.

        Raises:
            PathError: an observed transition is impossible.
            LimitError: a nested quantity looks back, or `handover` is between two policies that choose by chance.
            FormulaError: a quantity is nested in a path of a simulated model, and it is no `handover`.
            PolicyError, ModelError: a simulator or its policy breaks its contract.
        """
        if not path:
            raise PathError("the path is empty; it needs at least one pair (state, action)")
        late = handover_goal(goal) if self.scene.draws_nested else None
        if late is not None:
            return TooLate(
                self.scene,
                goal,
                late,
                self.steps(late.measure),
                last=path[-1],
                number=first_seq + len(path) - 1,
                seed=self.seed,
                terminated=terminated,
                acted=acted[-1:],
            )
        position = _position(goal.world.offset, len(path))
        pairs, first = list(path[position:]), first_seq + position
        changes = [goal.world.change] + ([] if goal.world.baseline is None else [goal.world.baseline])
        return Question(
            [
                _SampledWorld(
                    self,
                    goal.measure,
                    each,
                    pairs,
                    first,
                    terminated=terminated,
                    acted=acted[position:],
                    begins=begins,
                    watched=watched,
                )
                for each in changes
            ]
        )

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
        """Return `question(..).outcomes(particles, cache)`."""
        question = self.question(goal, path, first_seq=first_seq, terminated=terminated)
        return question.outcomes(particles) if isinstance(question, TooLate) else question.outcomes(particles, cache)

    def steps(self, measure: Probability | Reward) -> StepTable:
        """Return the step table of a measure's automaton, made once."""
        if measure not in self._steps:
            self._steps[measure] = StepTable(self.scene.automaton(measure))
        return self._steps[measure]


class Question:
    """A goal on a path: its outcome in each drawn world, one for a change, two for the difference of two."""

    def __init__(self, worlds: Sequence[_SampledWorld]) -> None:
        self._worlds = worlds

    @cached_property
    def certain(self) -> float | None:
        """The outcome, if it is the same in all drawn worlds because none needs noise; else None."""
        outcomes = [world.certain for world in self._worlds]
        return None if None in outcomes else _difference(outcomes)

    def outcomes(self, particles: range, cache: EnsembleCache | None = None) -> Floats:
        """Return the outcome of the goal in each drawn world: [n] float64.

        A particle's outcome depends on nothing but the goal, the path, `first_seq`, the seed and its own number.

        Args:
            particles: which drawn worlds, numbers below 2**32.
            cache: of this path, if it grows: ensembles are advanced from where the last call left them.

        Returns:
            0 or 1 for P, the sum for R; for delta the difference of the two worlds' outcomes under the same noise.
        """
        if particles and not 0 <= min(particles) <= max(particles) < PARTICLES:
            raise LimitError(f"particles are numbered 0 to {PARTICLES - 1} (limit PARTICLES), not {particles}")
        values = np.zeros(len(particles))
        for begin in range(0, len(particles), BLOCK):
            block = particles[begin : begin + BLOCK]
            values[begin : begin + len(block)] = _difference([world.outcomes(block, cache) for world in self._worlds])
        return values

    def left(self, particles: range) -> float:
        """Return the fraction of drawn worlds, the first of two, that move as nothing recorded shows until decided.

        Arguments as for `outcomes`, at most `BLOCK` of them; needs a question that is `watched`.
        """
        return float(self._worlds[0].left(particles).mean())


AnyQuestion = Question | TooLate


class _SampledWorld:
    """A measure in the world of one change, from an intervention state on, `path[0]`, whose step is number `first`."""

    def __init__(
        self,
        sampler: Sampler,
        measure: Probability | Reward,
        change: InterventionRef,
        path: list[Pair],
        first: int,
        *,
        terminated: bool,
        acted: Sequence[str],
        begins: int,
        watched: bool,
    ) -> None:
        scene, state = sampler.scene, path[0][0]
        ending = Ending(path[-1][0], len(path) - 1) if terminated else None
        self._path, self._ended = path, None if ending is None else ending.state
        self._key = scene, sampler.seed, change, measure, first, tuple(acted), begins
        self._cached = ending is None or not has_nested(measure)  # an end changes nested truths
        ensemble = Ensemble(
            replace(scene.world(change, acted), begins=begins),
            sampler.steps(measure),
            scene.labels(measure, change, ending),
            seed=sampler.seed,
            state=state,
            first=first,
            watched=watched,
        )
        self._trunk = _AdvancedEnsemble(ensemble, state)  # what all particles have in common
        self._whole = self._trunk.advance(path)

    @cached_property
    def certain(self) -> float | None:
        """The outcome, if no particle needs noise."""
        found = self._trunk.ensemble.outcomes(self._path[-1], self._ended) if self._whole else None
        return None if found is None else float(found[0])

    def outcomes(self, particles: range, cache: EnsembleCache | None) -> Floats:
        """Return the outcomes of particles [n]."""
        cache = cache if self._cached else None
        key = *self._key, particles
        advanced = None if cache is None else cache.take(key, self._path)
        if advanced is None:
            advanced = self._trunk.apart(particles)
        advanced.advance(self._path)
        if cache is not None:
            cache.put(key, advanced)
        found = advanced.ensemble.outcomes(self._path[-1], self._ended)
        assert found is not None
        return found

    def left(self, particles: range) -> Bools:
        """Return which particles [n] move as nothing recorded shows before they are decided."""
        advanced = self._trunk.apart(particles)
        advanced.advance(self._path)
        return advanced.ensemble.left(self._path[-1], self._ended)


def _difference(outcomes: Sequence[Any]) -> Any:  # noqa: ANN401 - floats or arrays of them
    """Return the outcome of the one world, or the first minus the second."""
    return outcomes[0] if len(outcomes) == 1 else outcomes[0] - outcomes[1]


def _position(offset: int, length: int) -> int:
    """Return the clipped position from 0 of an offset on a path of `length` pairs (docs/semantics.md, section 1.4)."""
    used = max(1 - length, min(offset, length - 1))
    return length - 1 - used if used >= 0 else -used - 1
