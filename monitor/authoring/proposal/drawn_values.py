"""Values of goals in a world with numbers, at each step of recorded paths, drawn for many steps at once.

The monitor computes one value with a call of the world's graphs for each step up to the horizon. Here, one call serves
all draws of many recorded steps, and one simulation gives the values for every horizon (docs/worlds/reference.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.errors import MonitorError
from monitor.sampled.decisions import Decisions, as_decisions, sees_inputs
from monitor.sampled.ensemble import drawn_actions
from monitor.sampled.noise import INPUTS, NOTHING, STATE, ObservedRow, uniforms
from monitor.worlds import CheckedWorld, Moment, with_inputs
from monitor.worlds.abduction import LARGEST, SMALLEST
from monitor.worlds.world_policies import as_world_policy

DRAWS: Final = 256
"""Number of draws of each value. The standard error of a value is at most 0.5 / sqrt(DRAWS) = 0.031."""
AT_ONCE: Final = 64
"""Number of recorded steps whose draws are advanced together. More need more memory and are not faster."""


class _Recorded(NamedTuple):
    """All steps of the paths [n], one path after another.

    `x`, `w`, `a`: state, inputs, and action (-1: none). `low`, `high`: [n, m] ends of the noise of the step to the next
    state. `began`: the step at which the monitor's path begins; -1: the state is out of range, so there is no verdict.
    `ended`: whether the episode terminated in this state.
    """

    x: Floats
    w: Floats
    a: Ints
    low: Floats
    high: Floats
    began: Ints
    ended: Bools


class DrawnValues:
    """Values of `G<=h !label`, `offset` steps ago, as the monitor defines them (docs/semantics/worlds.md).

    Args:
        world: the world, in which an observed step determines a point or an interval of each noise number.
        policies: policies `nominal` and `fallback`.
        recorded: paths, and the numbers of their states.
        seed: seed of the draws.
    """

    def __init__(
        self,
        world: CheckedWorld,
        policies: Mapping[str, object],
        recorded: tuple[Sequence[RecordedPath], RecordedNumbers],
        seed: int = 0,
    ) -> None:
        self._world, self._seed = world, seed
        self._nominal, self._fallback = (
            as_decisions(as_world_policy(name, policies[name], world), world.actions, name)
            for name in ("nominal", "fallback")
        )
        self._steps = _steps_of(world, *recorded)

    def values(
        self,
        label: str,
        horizons: Sequence[int],
        offset: int,
        least: float = 1.0,
        report: Callable[[int], None] = lambda _: None,
    ) -> tuple[Floats, Floats]:
        """Return the values of the goal under nominal and under the fallback, [steps, horizons] each.

        Each value is a mean of `DRAWS` draws. NaN: the state is out of range, or the world or a policy fails there. The
        fallback's values are drawn only at steps at which a value of nominal is below `least`; at other steps they are
        NaN. `report` is called with the number of steps done.
        """
        count = len(self._steps.a)
        found = np.full((2, count, len(horizons)), np.nan)
        known = np.flatnonzero(self._steps.began >= 0)
        for begin in range(0, len(known), AT_ONCE):
            self._fill(found[0], known[begin : begin + AT_ONCE], (label, horizons, offset), None)
            report(int(known[: begin + AT_ONCE][-1]) + 1)
        missed = np.flatnonzero((found[0] < least).any(axis=1))
        for begin in range(0, len(missed), AT_ONCE):
            self._fill(found[1], missed[begin : begin + AT_ONCE], (label, horizons, offset), self._fallback)
        report(count)
        return found[0], found[1]

    def _fill(self, found: Floats, rows: Ints, goal: tuple[str, Sequence[int], int], policy: Decisions | None) -> None:
        """Write the values at these steps. If the world or a policy fails, only the steps where it fails have none."""
        label, horizons, offset = goal
        try:
            begins = np.maximum(self._steps.began[rows], rows - offset)
            coming = self._coming(rows, max(horizons))
            first = self._first_unsafe(rows, begins, coming, (label, max(horizons)), policy)
            found[rows] = np.stack([(first > horizon).mean(axis=1) for horizon in horizons], axis=1)
        except MonitorError:
            half = len(rows) // 2
            for part in (rows[:half], rows[half:]) if half else ():
                self._fill(found, part, goal, policy)

    def _coming(self, rows: Ints, horizon: int) -> Floats:
        """Return the inputs 0, 1, .. `horizon` steps after the recorded steps, [horizon + 1, k, DRAWS, i]."""
        world, w = self._world, self._steps.w[rows]
        found = np.empty((horizon + 1, len(rows), DRAWS, w.shape[1]))
        found[0] = w[:, np.newaxis]
        for n, given in enumerate(map(tuple, w.tolist()) if w.shape[1] else ()):
            if not world.recorded_steps:
                for ahead in range(1, horizon + 1):
                    given = world.forecast(given)  # noqa: PLW2901 - the next inputs
                    found[ahead, n] = given
                continue
            # one random number for all steps: a draw's inputs are all from one recording
            chances = uniforms(self._seed, INPUTS, 0, _particles(rows[n : n + 1]), np.zeros(1, np.int64))[:, 0]
            for ahead in range(1, horizon + 1):
                found[ahead, n] = world.resample(given, ahead, chances)
        return found

    def _first_unsafe(
        self, rows: Ints, begins: Ints, coming: Floats, goal: tuple[str, int], policy: Decisions | None
    ) -> Ints:
        """Return the step, counted from `begins` [k], at which the label first holds in each draw, [k, DRAWS].

        The result is `horizon` + 1 if the label does not hold within the horizon. `policy`: None for nominal, which
        took the recorded actions.
        """
        (label, horizon), past, world = goal, self._steps, self._world
        first = np.full(len(rows) * DRAWS, horizon + 1)
        of = np.repeat(np.arange(len(rows)), DRAWS)  # the step of each draw that is still safe
        draw, particles, states = np.arange(len(of)), _particles(rows), past.x[begins[of]]
        for number in range(horizon + 1):
            unsafe = world.holds(label, states)
            first[draw[unsafe]] = number
            draw, of, states = draw[~unsafe], of[~unsafe], states[~unsafe]
            if number == horizon or not len(of):
                break
            at = begins[of] + number
            held, beyond = at < rows[of], np.maximum(at - rows[of], 0)
            at = np.minimum(at, rows[of])
            inputs = np.where(held[:, np.newaxis], past.w[at], coming[beyond, of, draw % DRAWS])
            taken = np.where(beyond == 0, past.a[at], -1)
            actions = self._actions(policy, states, inputs, (at, taken, particles[draw], number))
            noise = uniforms(self._seed, STATE, number, particles[draw], np.arange(world.noise))
            if held.any():
                low, high = past.low[at[held]], past.high[at[held]]
                noise[held] = np.clip(low + (high - low) * noise[held], SMALLEST, LARGEST)
            moved = world.step(states, actions, noise, inputs)
            repeats = np.flatnonzero((held & (actions == taken)) | (~held & past.ended[at]))
            repeats = repeats[(states[repeats] == past.x[at[repeats]]).all(axis=1)]
            moved[repeats] = past.x[at[repeats] + held[repeats]]  # the recorded next state, or the last one again
            states = moved
        return first.reshape(-1, DRAWS)

    def _actions(
        self, policy: Decisions | None, states: Floats, inputs: Floats, of: tuple[Ints, Ints, Ints, int]
    ) -> Ints:
        """Return the action of each draw [n].

        `of`: for each draw, its recorded step, the action taken there (-1: none), its number, and the number of the
        goal's step.
        """
        (at, taken, particles, number), use = of, self._nominal if policy is None else policy
        actions = taken.copy()
        open_ = np.flatnonzero(taken < 0) if policy is None else np.arange(len(taken))
        if not len(open_):
            return actions
        chosen: AnyArray = use.decide(_seen(use, states[open_], inputs[open_]))
        if chosen.ndim == 1:
            actions[open_] = chosen
            return actions
        groups = np.where(taken[open_] < 0, -1, at[open_])  # draws with the same evidence of the noise of the choice
        for one in np.unique(groups).tolist():
            group = np.flatnonzero(groups == one)
            here, evidence = open_[group], self._evidence(one)
            actions[here] = drawn_actions(self._seed, number, particles[here], chosen[group], evidence)
        return actions

    def _evidence(self, at: int) -> ObservedRow:
        """Return the evidence on the noise of the nominal policy's choice: the action at a recorded step (-1: none)."""
        if at < 0:
            return NOTHING
        taken = int(self._steps.a[at])
        usual: AnyArray = self._nominal.decide(_seen(self._nominal, self._steps.x[[at]], self._steps.w[[at]]))
        if usual.ndim == 1:
            return NOTHING
        return ObservedRow(np.arange(usual.shape[1]), usual[0], taken, float(usual[0, taken]))


def _particles(rows: Ints) -> Ints:
    """Return the numbers of the draws of recorded steps [k], which identify their noise, [k * DRAWS]."""
    return np.asarray((rows[:, np.newaxis] * DRAWS + np.arange(DRAWS)).ravel(), np.int64)


def _seen(policy: Decisions, states: Floats, inputs: Floats) -> Floats:
    return with_inputs(states, inputs) if sees_inputs(policy) else states


def _steps_of(world: CheckedWorld, paths: Sequence[RecordedPath], numbers: RecordedNumbers) -> _Recorded:
    """Return the steps of paths. A step that is impossible in the world, or a state out of range, begins a new path."""
    index = np.concatenate([path.sent for path in paths])
    x, w = numbers.states[index], numbers.inputs[index]
    a = np.concatenate([np.append(path.actions, -1)[: len(path.sent)] for path in paths])
    low, high = np.zeros((2, len(index), world.noise))
    began, ended = np.zeros(len(index), np.int64), np.zeros(len(index), np.bool_)
    states, inputs, place = [*map(tuple, x.tolist())], [*map(tuple, w.tolist())], 0
    for path in paths:
        since, last = place, place + len(path.sent) - 1
        for n in range(place, last + 1):
            inside = not world.outside(states[n], inputs[n])
            began[n] = since if inside else -1
            if n == last or not inside:
                since = n + 1
                continue
            try:
                noise = world.abduce(Moment(states[n], int(a[n]), inputs[n]), states[n + 1])
            except MonitorError:
                since = n + 1
                continue
            assert noise.posterior is None, "the noise of a manifest's world is a box"
            low[n], high[n] = noise.low, noise.high
        ended[last] = path.ended and not path.unseen
        place = last + 1
    return _Recorded(x, w, np.asarray(a, np.int64), low, high, began, ended)
