"""Outcomes f(G') of questions, particle by particle (Kazemi & Paoletti, Appendix on decision procedures)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError, PathError
from monitor.logic.syntax import Change, Goal, Probability, Reward
from monitor.sampled.ensemble import Ensemble, Pair, Steps
from monitor.sampled.scene import Ending, Scene, has_nested

__all__ = ["MAX_HELD", "PARTICLES", "Sampler", "Walks"]

Path = Sequence[Pair]

PARTICLES = 1 << 32
"""Particles are numbered below this."""
BLOCK = 1 << 16
"""Particles advanced at once: any number may be asked for, in this much memory."""
MAX_HELD = 8_000_000
"""Numbers the walks of one path may hold together, 64 MB; then the one not asked for longest is let go."""


@dataclass(frozen=True)
class _Question:
    """A measure from an intervention state on, `path[0]`, whose step has the number `first`."""

    measure: Probability | Reward
    path: list[Pair]
    first: int
    particles: range
    terminated: bool

    @property
    def ending(self) -> Ending | None:
        return Ending(self.path[-1][0], len(self.path) - 1) if self.terminated else None


class _Walk:
    """An ensemble with what it has observed: `seen` pairs, after which `state` was reached."""

    def __init__(self, ensemble: Ensemble, state: int) -> None:
        self.ensemble, self.seen, self.state = ensemble, list[Pair](), state

    def begins(self, path: list[Pair]) -> bool:
        """Whether what was seen is how `path` begins."""
        seen = len(self.seen)
        return seen < len(path) and path[:seen] == self.seen and path[seen][0] == self.state

    def along(self, path: list[Pair]) -> None:
        """Observe what is new, up to the last pair."""
        for place in range(len(self.seen), len(path) - 1):
            self.state = path[place + 1][0]
            self.ensemble.observe(path[place], self.state)
            self.seen.append(path[place])


class Walks:
    """Particles along one growing path, kept where it ends by now, for each start point: a new pair only adds.

    A walk is a short cut and no state: one that does not fit the path handed in is made anew, with the same numbers.
    """

    def __init__(self, limit: int = MAX_HELD) -> None:
        self._limit = limit
        self._held = 0
        self._walks: OrderedDict[tuple[object, ...], tuple[_Walk, int]] = OrderedDict()

    def take(self, key: tuple[object, ...], path: list[Pair]) -> _Walk | None:
        """The walk of a start point, if what it saw is how `path` begins; the caller's until it is put back."""
        walk, size = self._walks.pop(key, (None, 0))
        self._held -= size
        return walk if walk is not None and walk.begins(path) else None

    def put(self, key: tuple[object, ...], walk: _Walk) -> None:
        """Keep a walk, as long as there is room for it."""
        size = walk.ensemble.size + 2 * len(walk.seen)
        self._walks[key] = walk, size
        self._held += size
        while self._held > self._limit:
            self._held -= self._walks.popitem(last=False)[1][1]

    @property
    def held(self) -> int:
        """Numbers held, at most the limit."""
        return self._held


class Sampler:
    """Draws outcomes of questions over one scene.

    Args:
        scene: what can be asked about.
        seed: of the noise, 0 to 2**64 - 1. Agents with the same seed share their noise: give each one its own.
    """

    def __init__(self, scene: Scene, seed: int) -> None:
        if not 0 <= seed < 1 << 64:
            raise LimitError(f"a seed is a number from 0 to 2**64 - 1, got {seed}")
        self.scene, self.seed = scene, seed
        self._steps: dict[Probability | Reward, Steps] = {}

    def outcomes(
        self,
        goal: Goal,
        path: Path,
        particles: range,
        *,
        first_seq: int = 0,
        terminated: bool = False,
        walks: Walks | None = None,
    ) -> Floats:
        """What a goal comes to in each drawn world: [n] float64.

        A particle's outcome depends on nothing but the goal, the path, `first_seq`, the seed and its own number.

        Args:
            goal: validated; its test, if it has one, is not looked at.
            path: pairs (state, action), oldest first; the last action may be None (not yet taken).
            particles: which drawn worlds, numbers below 2**32.
            first_seq: the number of the first pair's step in the episode; noise is keyed by it.
            terminated: the episode has ended in the last state, which is absorbing from then on.
            walks: of this path, if it grows: what was advanced for the last call need not be again.

        Returns:
            0 or 1 for P, the sum for R; for delta the difference of the two worlds' outcomes under the same noise.

        Raises:
            PathError: an observed transition has probability 0.
            LimitError: a nested quantity looks back.
            FormulaError: a quantity is nested in a path of a simulated model.
            PolicyError, ModelError: a simulator or its policy does not do what it must.
        """
        if particles and not 0 <= min(particles) <= max(particles) < PARTICLES:
            raise LimitError(f"particles are numbered 0 to {PARTICLES - 1} (limit PARTICLES), asked for {particles}")
        if not path:
            raise PathError("the path is empty; it needs at least one pair (state, action)")
        position = _position(goal.world.offset, len(path))
        values = np.zeros(len(particles))
        for begin in range(0, len(particles), BLOCK):
            block = particles[begin : begin + BLOCK]
            question = _Question(goal.measure, list(path[position:]), first_seq + position, block, terminated)
            values[begin : begin + len(block)] = self._effect(goal, question, walks)
        return values

    def _effect(self, goal: Goal, question: _Question, walks: Walks | None) -> Floats:
        values = self._world(goal.world.change, question, walks)
        if goal.world.baseline is not None:
            values = values - self._world(goal.world.baseline, question, walks)
        return values

    def _world(self, change: Change, question: _Question, walks: Walks | None) -> Floats:
        """Outcomes in one world."""
        ending = question.ending
        kept = None if ending is not None and has_nested(question.measure) else walks  # an end changes nested truths
        key = self.scene, self.seed, change, question.measure, question.first, question.particles
        walk = None if kept is None else kept.take(key, question.path)
        if walk is None:
            walk = _Walk(self._start(change, question), question.path[0][0])
        walk.along(question.path)
        if kept is not None:
            kept.put(key, walk)
        return walk.ensemble.outcomes(question.path[-1], None if ending is None else ending.state)

    def _start(self, change: Change, question: _Question) -> Ensemble:
        measure = question.measure
        if measure not in self._steps:
            self._steps[measure] = Steps(self.scene.automaton(measure))
        return Ensemble(
            self.scene.arm(change),
            self._steps[measure],
            self.scene.letters(measure, change, question.ending),
            seed=self.seed,
            particles=question.particles,
            state=question.path[0][0],
            first=question.first,
        )


def _position(offset: int, length: int) -> int:
    """The position from 0 of an offset on a path of `length` pairs, clipped to it (docs/semantics.md, section 1.4)."""
    used = max(1 - length, min(offset, length - 1))
    return length - 1 - used if used >= 0 else -used - 1
