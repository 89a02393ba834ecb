"""Sampled answers to the question whether handing over will be too late.

Definitions: docs/semantics/regret.md, section 8.4, and docs/semantics/streams.md, section 9.1.

A draw is a path of the nominal policy. At each state of this path, paths of the other policy are sampled with separate
noise, until a test decides whether the other policy meets the goal from this state, or until the last of `LOOKS`.

A draw has a least and a greatest outcome. If the test of a state decides nothing, the goal counts as met from this
state for the least outcome, and as missed for the greatest outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from scipy.special import bdtr, bdtrc

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import LimitError
from monitor.logic import TRUE
from monitor.logic.syntax import NOMINAL, Goal, Label, Probability, Test, Until
from monitor.sampled.dynamics import AnyPair
from monitor.sampled.ensemble import Ensemble, StepTable, decided_at
from monitor.sampled.scene import Ending, Scene
from monitor.worlds import Moment

LOOKS: Final = (64, 256, 1024)
"""Numbers of draws of the other policy from a state after which a test may decide whether it meets the goal."""
ERROR: Final = 1e-3
"""Probability that any of the tests of one draw is wrong."""
APART: Final = 1 << 63
"""Added to the seed for the noise of the other policy's draws."""
AT_ONCE: Final = 1 << 16
"""Number of draws of the other policy made at once, to limit memory."""
PARTICLES: Final = 1 << 32


class TooLate:
    """A goal `nominal@0.P [ F<=h !(F@0.Q) ]` on a path, ready for sampling.

    The outcome of a draw is 1 if `F` misses `Q` from any state of the draw, else 0.

    Args:
        scene: the worlds from which to sample.
        goal: the whole goal.
        given: the goal `F@0.Q` inside the whole goal.
        steps: the step table of `Q`.
        last: the last observed pair.
        number: the number of the last observed step in the episode.
        seed: seed of the noise, below 2**63.
        terminated: whether the episode has ended in the last state.
        acted: the name of the policy that acted at the last pair; empty if nominal acted.

    Raises LimitError if both policies are stochastic.
    """

    def __init__(
        self,
        scene: Scene,
        goal: Goal,
        given: Goal,
        steps: StepTable,
        *,
        last: AnyPair,
        number: int,
        seed: int,
        terminated: bool,
        acted: Sequence[str],
    ) -> None:
        assert isinstance(goal.measure, Probability)
        assert isinstance(goal.measure.path, Until)
        assert given.test is not None
        self._states, self._last, self._ended = goal.measure.path.high + 1, last, last[0] if terminated else None
        self._test = _StateTest(given.test, self._states)
        nominal, other = scene.world(NOMINAL), scene.world(given.world.change, acted)
        ending = Ending(last[0], 0) if terminated else None
        labels = scene.labels(given.measure, given.world.change, ending)
        chances = [decided_at(world.decisions(0), last).ndim == 2 for world in (other, nominal)]
        if all(chances) and (last[1] is None or self._states > 1):
            raise LimitError(
                "both the nominal policy and the one that takes over choose by chance, and for that handing over later "
                "is not drawn; give one of them as a policy that always takes its likeliest action"
            )
        self._dynamics = nominal.dynamics
        self._trunk = Ensemble(
            nominal, StepTable(_Clock(self._states)), _unread, seed=seed, state=last[0], first=number
        )
        # The state here is a placeholder: `at` sets the state. `first` is the number of the last observed step.
        self._other = Ensemble(other, steps, labels, seed=seed + APART, state=last[0], first=number)
        self._ends = np.zeros(0), np.zeros(0)

    @cached_property
    def certain(self) -> float | None:
        """The outcome, if no draw needs noise, so that all draws have the same outcome; else None."""
        nominal = self._trunk.copied()
        for offset, known in enumerate(nominal.follow(self._last, self._ended)):
            inputs = self._dynamics.inputs(nominal.keys, known)
            if not isinstance(inputs, tuple):
                return None
            met = self._other.at(offset, nominal.states).outcomes(self._pair(offset, inputs), self._ended)
            if met is None:
                return None
            if not self._test.holds(float(met[0])):
                return 1.0
            if offset + 1 == self._states:
                return 0.0
        return None

    def outcomes(self, particles: range) -> Floats:
        """Return the least outcome [n] of each draw: 1 if the goal is known to be missed from some state."""
        return self._drawn(particles)[0]

    def most(self, particles: range) -> Floats:
        """Return the greatest outcome [n] of each draw: 0 if the goal is known to be met from all states."""
        return self._drawn(particles)[1]

    def _drawn(self, particles: range) -> tuple[Floats, Floats]:
        """Return the least and the greatest outcomes of draws. Each draw is made once."""
        missing = range(len(self._ends[0]), particles.stop)
        if missing.stop > PARTICLES // LOOKS[-1]:
            raise LimitError(f"handing over is drawn at most {PARTICLES // LOOKS[-1]:,} times (limit PARTICLES)")
        if missing:
            least, most = (np.concatenate(pair) for pair in zip(self._ends, self._made(missing), strict=True))
            self._ends = least, most
        begin, end = particles.start, particles.stop
        return self._ends[0][begin:end], self._ends[1][begin:end]

    def _made(self, particles: range) -> tuple[Floats, Floats]:
        least, most = np.zeros(len(particles)), np.zeros(len(particles))
        nominal = self._trunk.apart(particles)
        for offset, known in enumerate(nominal.follow(self._last, self._ended)):
            inputs = self._dynamics.inputs(nominal.keys, known)
            for group, each in _alike(np.flatnonzero(least == 0.0), inputs):
                numbers = np.arange(particles.start, particles.stop)[group]
                truths = self._truths(offset, nominal.states[group], numbers, self._pair(offset, each))
                least[group[truths < 0]] = 1.0
                most[group[truths <= 0]] = 1.0
            if offset + 1 == self._states or least.all():
                break
        return least, most

    def _truths(self, offset: int, states: AnyArray, numbers: Ints, last: AnyPair) -> Ints:
        """Return for each of n states 1 if the other policy meets the goal, -1 if it misses it, 0 if undecided."""
        truths, sums, done = np.zeros(len(states), dtype=np.int64), np.zeros(len(states)), 0
        for look in LOOKS:
            width = look - done
            open_ = np.flatnonzero(truths == 0)
            for part in np.array_split(open_, -(-len(open_) * width // AT_ONCE)) if len(open_) else ():
                keys = (numbers[part, np.newaxis] * LOOKS[-1] + np.arange(done, look)).ravel()
                begun = self._other.at(offset, np.repeat(states[part], width, axis=0), keys)
                drawn = begun.outcomes(last, self._ended)
                assert drawn is not None
                sums[part] += drawn.reshape(-1, width).sum(axis=1)
            truths[open_] = self._test.truths(look, sums[open_])
            done = look
        return truths

    def _pair(self, offset: int, inputs: tuple[float, ...]) -> AnyPair:
        """Return the pair at which the other policy takes over: the last pair; at later offsets, only its inputs."""
        return self._last if offset == 0 else Moment((), None, inputs)


class _StateTest:
    """Tests of `Q` at the states of one draw: exact binomial tests, which share the error probability `ERROR`."""

    def __init__(self, test: Test, states: int) -> None:
        self._test, part = test, ERROR / (states * len(LOOKS))
        self.holds = test.holds
        self._limits = {look: _limits(look, test.bound, part) for look in LOOKS}

    def truths(self, look: int, sums: Floats) -> Ints:
        """Return for n tests 1 if the goal is met, -1 if it is missed, 0 if undecided.

        `sums` [n]: the number of successes in `look` samples.
        """
        if self.holds(0.0) == self.holds(1.0):
            return np.full(len(sums), 1 if self.holds(0.0) else -1)
        below, above = self._limits[look]
        found = (sums >= above).astype(np.int64) - (sums <= below)
        return found if self.holds(1.0) else -found


class _Limits(NamedTuple):
    """Numbers of successes at which a test decides.

    With at most `below` successes, the probability is below the bound; with at least `above` successes, it is above.
    """

    below: int
    above: int


def _limits(count: int, bound: float, error: float) -> _Limits:
    successes = np.arange(count + 1)
    below = int((bdtr(successes, count, bound) <= error).sum()) - 1
    at_least = np.concatenate([[1.0], bdtrc(successes[:-1], count, bound)])
    above = count + 1 - int((at_least <= error).sum())
    return _Limits(below, above)


class _Clock:
    """An automaton that reads a fixed number of states and ignores their labels."""

    atoms: tuple[Label | Goal, ...] = ()

    def __init__(self, states: int) -> None:
        self.start = TRUE + states

    def step(self, obligation: int, labels: int) -> int:
        """Return the next obligation, in which one state fewer is left."""
        del labels
        return obligation - 1

    def horizon(self, obligation: int) -> int:
        """Return the number of states left."""
        return max(obligation - TRUE, 0)

    def rewards(self, obligation: int) -> bool:
        """Return False, because no reward is collected."""
        del obligation
        return False


def _unread(offset: int, states: AnyArray, actions: Ints) -> Ints:
    """Return empty label sets."""
    del offset, actions
    return np.zeros(len(states), dtype=np.int64)


def _alike(places: Ints, inputs: tuple[float, ...] | Floats) -> Iterator[tuple[Ints, tuple[float, ...]]]:
    """Yield the places [n] in groups with equal inputs, each group with its inputs."""
    if isinstance(inputs, tuple):
        yield places, inputs
        return
    different, group = np.unique(inputs[places], axis=0, return_inverse=True)
    for number, each in enumerate(different.tolist()):
        yield places[group.ravel() == number], tuple(each)
