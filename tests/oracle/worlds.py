"""The world after an intervention: which action and which successor follow on a history, from the definitions.

A *regime* is what is in force by itself at each time: the model of the transitions and a schedule of policies. The
deployed one is (main model, nominal for ever). A world changes a regime from some time on, given a path that was seen
under the regime from that time on. Times are absolute: 0 is the first pair of the observed path.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from tests.oracle.race import ONE, ZERO, counterfactual_row
from tests.oracle.setting import Dist, Pair, Rows, Setting
from tests.oracle.syntax import Change

Policy = str  # the name of a policy, or "do:2"
Range = tuple[int, Fraction, Fraction]  # successor, lowest and highest probability
MAIN = ""


class Regime(NamedTuple):
    model: str
    schedule: tuple[tuple[int | None, Policy], ...]  # (in force before this time, policy); the last is (None, ...)

    def policy(self, time: int) -> Policy:
        """Return the policy in force at a time."""
        return next(policy for end, policy in self.schedule if end is None or time < end)

    def trimmed(self, start: int) -> Regime:
        """Return the regime from `start` on, without what has ended by then."""
        return Regime(self.model, tuple((end, policy) for end, policy in self.schedule if end is None or end > start))

    def shifted(self, by: int) -> Regime:
        """Return the regime on a clock that is `by` ahead."""
        return Regime(self.model, tuple((None if end is None else end + by, policy) for end, policy in self.schedule))


DEPLOYED = Regime(MAIN, ((None, "nominal"),))


class World(NamedTuple):
    """A change made at time `start` in a `base` regime, under which `path` was seen from `start` on."""

    base: Regime
    start: int
    path: tuple[Pair, ...]
    kind: str
    name: str
    length: int | None

    def changed(self, time: int) -> bool:
        """Return whether the policy at a time is the intervention's and not the base's."""
        if self.kind not in {"policy", "do"}:
            return False
        return self.length is None or time < self.start + self.length

    @property
    def regime(self) -> Regime:
        """Return what is in force in this world: the base for those who ask inside it."""
        base = self.base
        if self.kind == "model":
            return Regime(self.name, base.schedule)
        if self.kind == "nominal" or self.length == 0:
            return base
        policy = f"do:{self.name}" if self.kind == "do" else self.name
        if self.length is None:
            return Regime(base.model, ((None, policy),))
        end = self.start + self.length
        return Regime(base.model, ((end, policy), *base.trimmed(end).schedule))


class Laws:
    """The laws of a setting: rows, rewards and policies, and those of the worlds in it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.end = len(setting.path) - 1 if setting.terminated else None
        self.last_state = setting.path[-1][0]
        acted = enumerate(setting.acted, 1)
        self.observed = Regime(MAIN, (*acted, *DEPLOYED.schedule))  # under what the path was seen, and what follows it
        self._rows: dict[str, Rows] = {MAIN: setting.rows, **setting.models}
        self._policies: dict[Policy, tuple[Dist, ...]] = dict(setting.policies)
        names = setting.action_names or tuple(str(a) for a in range(setting.actions))
        for action, name in enumerate(names):
            self._policies[f"do:{name}"] = ({action: ONE},) * setting.states

    def world(self, base: Regime, start: int, path: tuple[Pair, ...], change: Change) -> World:
        """Return a world, on a clock on which worlds that cannot differ are equal.

        Without an end of the episode only differences of times count; after the end, nothing depends on how long ago it
        was.
        """
        shift = -start if self.end is None else min(0, self.end - start)
        regime = base.trimmed(start).shifted(shift)
        return World(regime, start + shift, path, change.kind, change.name, change.length)

    def absorbed(self, time: int, state: int) -> bool:
        """Return whether the episode has ended in this state by this time."""
        return self.end is not None and time >= self.end and state == self.last_state

    def row(self, model: str, time: int, state: int, action: int) -> Dist:
        """Return the transition distribution of a model, in an ended episode that of its absorbing state."""
        if self.absorbed(time, state):
            return {state: ONE}
        return self._rows[model][state, action]

    def reward(self, time: int, state: int, action: int, successor: int) -> Fraction:
        """Return R(s, a, s2), always the main model's."""
        if self.absorbed(time, state):
            return ZERO
        setting = self.setting
        extra = setting.transition_rewards.get((state, action, successor), ZERO)
        return setting.rewards.get((state, action), ZERO) + extra

    def actions(self, world: World, time: int, state: int) -> Dist:
        """Return the distribution of the action taken in a state at a time of a world."""
        at = time - world.start
        seen, taken = world.path[at] if at < len(world.path) else (None, None)
        if taken is not None and state == seen and not world.changed(time):
            return {taken: ONE}
        asked = self._policies[world.regime.policy(time)][state]
        if taken is None or seen is None:
            return asked
        observed = self._policies[world.base.policy(time)][seen]
        if not observed.get(taken):
            return asked  # a deviation from the policy says nothing about the noise of its actions
        return counterfactual_row(observed, asked, taken)

    def successors(self, world: World, time: int, state: int, action: int) -> Dist:
        """Return the Gumbel-Max distribution of the successor at a time of a world."""
        asked = self.row(world.regime.model, time, state, action)
        observation = self._observation(world, time)
        if observation is None:
            return asked
        seen, taken, outcome = observation
        return counterfactual_row(self.row(world.base.model, time, seen, taken), asked, outcome)

    def ranges(self, world: World, time: int, state: int, action: int, kind: str) -> list[Range]:
        """Return the limits of each successor's probability over the causal models of a kind (`any`, `stable`)."""
        asked = self.row(world.regime.model, time, state, action)
        observation = self._observation(world, time)
        if observation is None:
            return [(k, q, q) for k, q in asked.items()]
        seen, taken, outcome = observation
        if (seen, taken, world.base.model) == (state, action, world.regime.model):
            return [(outcome, ONE, ONE)]
        observed = self.row(world.base.model, time, seen, taken)
        return row_ranges(observed, asked, outcome, kind)

    def _observation(self, world: World, time: int) -> tuple[int, int, int] | None:
        at = time - world.start
        if at + 1 >= len(world.path):
            return None
        (seen, taken), (outcome, _) = world.path[at], world.path[at + 1]
        assert taken is not None
        return seen, taken, outcome


def row_ranges(p: Dist, q: Dist, observed: int, kind: str) -> list[Range]:
    """Return the limits of the counterfactual row given that p led to `observed`.

    By the table of docs/semantics/formulas.md, section 6.3.
    """
    chance = p[observed]
    upper = {k: min(ONE, q.get(k, ZERO) / chance) for k in set(p) | set(q)}
    if kind == "any" or not set(p) & set(q):
        lower = {k: max(ZERO, (q.get(k, ZERO) - (1 - chance)) / chance) for k in upper}
    else:
        barred = {
            k for k in upper if k != observed and k in p and q.get(observed, ZERO) * p[k] >= q.get(k, ZERO) * chance
        }
        upper = {k: ZERO if k in barred else high for k, high in upper.items()}
        total = sum(upper.values())
        lower = {k: ZERO if k in barred else max(ZERO, 1 - (total - high)) for k, high in upper.items()}
    return [(k, lower[k], high) for k, high in sorted(upper.items()) if high]


def best_row(ranges: list[Range], values: list[Fraction], sign: int) -> Fraction:
    """Return the largest (sign 1) or smallest (sign -1) sum of x_k v_k over lo <= x <= hi, sum x = 1.

    Every x_k starts at its lower limit and what is left of the mass goes to the best values first. That is optimal: of
    any other x, mass can be moved from a worse value above its lower limit to a better one below its upper limit.
    """
    left = 1 - sum((low for _, low, _ in ranges), ZERO)
    total = sum((low * value for (_, low, _), value in zip(ranges, values, strict=True)), ZERO)
    for (_, low, high), value in sorted(zip(ranges, values, strict=True), key=lambda item: -sign * item[1]):
        more = min(left, high - low)
        total += more * value
        left -= more
    assert left == 0, (ranges, left)
    return total
