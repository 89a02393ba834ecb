"""Outcomes f(G') of queries, one for each particle (Kazemi & Paoletti, Appendix on decision procedures)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.errors import LimitError, PathError
from monitor.logic.syntax import Goal, InterventionRef, Measure
from monitor.logic.traversal import handover_goal
from monitor.sampled.dynamics import AnyPair
from monitor.sampled.ensemble import Ensemble, StepTable
from monitor.sampled.handover import TooLate
from monitor.sampled.scene import Ending, Scene

AnyPath = Sequence[AnyPair]

PARTICLES = 1 << 32
"""Upper limit of the numbers of particles."""
BLOCK = 1 << 16
"""Number of particles advanced at once, to limit memory."""


class Sampler:
    """Sampler of the outcomes of queries on one scene.

    Args:
        scene: the worlds from which to sample.
        seed: seed of the noise, 0 to 2**64 - 1. Agents with the same seed have the same noise, so give each agent its
            own seed.
    """

    def __init__(self, scene: Scene, seed: int) -> None:
        if not 0 <= seed < 1 << 64:
            raise LimitError(f"a seed is a number from 0 to 2**64 - 1, got {seed}")
        self.scene, self.seed = scene, seed
        self._steps: dict[Measure, StepTable] = {}

    def question(
        self,
        goal: Goal,
        path: AnyPath,
        *,
        first_seq: int = 0,
        terminated: bool = False,
        acted: Sequence[str] = (),
        begins: int = 0,
        watched: bool = False,
    ) -> AnyQuestion:
        """Return a goal on a path, ready for sampling.

        Args:
            goal: a validated goal; its test, if any, is ignored.
            path: pairs (state, action), oldest first; the last action may be None (not yet taken).
            first_seq: the number of the first pair's step in the episode, which is a key of the noise.
            terminated: whether the episode has ended in the last state, which is absorbing from then on.
            acted: names of the policies that acted at the pairs; empty if nominal acted at all of them.
            begins: number of steps from the goal's offset to the intervention.
            watched: whether `Question.left` will be called.

        Raises:
            PathError: an observed transition is impossible.
            LimitError: a nested quantity looks back, or both policies of `handover` are stochastic.
            FormulaError: a quantity other than `handover` is nested in a path of a simulated model.
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
        path: AnyPath,
        particles: range,
        *,
        first_seq: int = 0,
        terminated: bool = False,
    ) -> Floats:
        """Return `question(..).outcomes(particles)`."""
        return self.question(goal, path, first_seq=first_seq, terminated=terminated).outcomes(particles)

    def steps(self, measure: Measure) -> StepTable:
        """Return the step table of a measure's automaton. It is cached."""
        if measure not in self._steps:
            self._steps[measure] = StepTable(self.scene.automaton(measure))
        return self._steps[measure]


class Question:
    """A goal on a path, with its outcomes in the world of its intervention, or in two worlds for a difference."""

    def __init__(self, worlds: Sequence[_SampledWorld]) -> None:
        self._worlds = worlds

    @cached_property
    def certain(self) -> float | None:
        """The outcome, if no particle needs noise, so that all particles have the same outcome; else None."""
        outcomes = [world.certain for world in self._worlds]
        return None if None in outcomes else _difference(outcomes)

    def outcomes(self, particles: range) -> Floats:
        """Return the outcome of the goal in each sampled world: [n] float64.

        A particle's outcome depends only on the goal, the path, `first_seq`, the seed and the particle's number.

        Args:
            particles: numbers of the sampled worlds, below 2**32.

        Returns:
            0 or 1 for P, the sum of rewards for R; for delta the difference of the outcomes under the same noise.
        """
        if particles and not 0 <= min(particles) <= max(particles) < PARTICLES:
            raise LimitError(f"particles are numbered 0 to {PARTICLES - 1} (limit PARTICLES), not {particles}")
        values = np.zeros(len(particles))
        for begin in range(0, len(particles), BLOCK):
            block = particles[begin : begin + BLOCK]
            values[begin : begin + len(block)] = _difference([world.outcomes(block) for world in self._worlds])
        return values

    def left(self, particles: range) -> float:
        """Return the fraction of sampled worlds that make a move without recorded data before they are decided.

        For a difference, only the first of the two worlds counts. `particles`: as for `outcomes`, at most `BLOCK`. The
        question must be `watched`.
        """
        return float(self._worlds[0].left(particles).mean())


AnyQuestion = Question | TooLate


class _SampledWorld:
    """A measure in the world of one intervention. It begins in `path[0]`; `first`: the number of this pair's step."""

    def __init__(
        self,
        sampler: Sampler,
        measure: Measure,
        change: InterventionRef,
        path: list[AnyPair],
        first: int,
        *,
        terminated: bool,
        acted: Sequence[str],
        begins: int,
        watched: bool,
    ) -> None:
        scene = sampler.scene
        ending = Ending(path[-1][0], len(path) - 1) if terminated else None
        self._path, self._ended = path, None if ending is None else ending.state
        self._trunk = Ensemble(  # the common part of all particles
            replace(scene.world(change, acted), begins=begins),
            sampler.steps(measure),
            scene.labels(measure, change, ending),
            seed=sampler.seed,
            state=path[0][0],
            first=first,
            watched=watched,
        )
        self._observed = self._advance(self._trunk, 0)

    @cached_property
    def certain(self) -> float | None:
        """The outcome, if no particle needs noise; else None."""
        whole = self._observed == len(self._path) - 1
        found = self._trunk.outcomes(self._path[-1], self._ended) if whole else None
        return None if found is None else float(found[0])

    def outcomes(self, particles: range) -> Floats:
        """Return the outcomes of particles [n]."""
        found = self._apart(particles).outcomes(self._path[-1], self._ended)
        assert found is not None
        return found

    def left(self, particles: range) -> Bools:
        """Return which particles [n] make a move without recorded data before they are decided."""
        return self._apart(particles).left(self._path[-1], self._ended)

    def _apart(self, particles: range) -> Ensemble:
        """Return separate particles, each with its own noise, at the last pair."""
        ensemble = self._trunk.apart(particles)
        self._advance(ensemble, self._observed)
        return ensemble

    def _advance(self, ensemble: Ensemble, observed: int) -> int:
        """Advance over the path's transitions from number `observed` on; return the number of the next transition.

        If the particles are not apart, stop before the first transition that needs noise.
        """
        for position in range(observed, len(self._path) - 1):
            if not ensemble.observe(self._path[position], self._path[position + 1][0]):
                return position
        return len(self._path) - 1


def _difference(outcomes: Sequence[Any]) -> Any:  # noqa: ANN401 - floats or arrays of them
    """Return the outcome of a single world, or the outcome of the first world minus the outcome of the second."""
    return outcomes[0] if len(outcomes) == 1 else outcomes[0] - outcomes[1]


def _position(offset: int, length: int) -> int:
    """Return the position, from 0, of a clipped offset on a path of `length` pairs.

    See docs/semantics/worlds.md, section 1.4.
    """
    used = max(1 - length, min(offset, length - 1))
    return length - 1 - used if used >= 0 else -used - 1
