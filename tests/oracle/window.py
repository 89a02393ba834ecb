"""The held path from an intervention state on: what may be decided at each offset, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

from tests.oracle import syntax as ast
from tests.oracle.couplings import rows_of_models
from tests.oracle.evaluate import resolve
from tests.oracle.race import ONE
from tests.oracle.setting import Dist, Setting
from tests.oracle.worlds import MAIN, Laws

Unchanged = Literal["policy", "observed"]
Rows = Callable[[int, int, int], Sequence[Dist]]
"""The distributions of the successor that are possible at (offset, state, action), or the vertices of their set."""


class Window:
    """The path from the intervention state on. Offset 0 is the intervention state, d the last pair.

    Args:
        setting: with the deployed policy under `nominal`.
        offset: of the intervention, as in a formula.
        unchanged: what an unchanged decision up to offset d is. `policy`: in the state really visited the action really
            taken, elsewhere that of the policy that acted at this offset. `observed`: the action really taken at that
            offset wherever it is available.
    """

    def __init__(self, setting: Setting, offset: int, *, unchanged: Unchanged = "policy") -> None:
        self.setting = setting
        self.laws = Laws(setting)
        _, position = resolve(offset, len(setting.path))
        self.path = setting.path[position:]
        self.d = len(self.path) - 1
        self._observed = unchanged == "observed"
        self._world = self.laws.world(self.laws.observed, position, self.path, ast.Change("nominal", "nominal", None))

    def available(self, state: int) -> list[int]:
        """Return the actions that have a row."""
        return [action for action in range(self.setting.actions) if (state, action) in self.setting.rows]

    def taken(self, offset: int) -> int | None:
        """Return the action that was observed at an offset."""
        return self.path[offset][1] if offset <= self.d else None

    def unchanged(self, offset: int, state: int) -> Dist:
        """Return the distribution of the action of an unchanged decision."""
        taken = self.taken(offset)
        if self._observed and taken is not None and taken in self.available(state):
            return {taken: ONE}
        return self.laws.actions(self._world, self._world.start + offset, state)

    def acting(self, offset: int, state: int) -> Dist:
        """Return the distribution of the action of the policy that acted at an offset, nothing observed."""
        return self.setting.policies[self._world.regime.policy(self._world.start + offset)][state]

    def nominal(self, state: int) -> Dist:
        """Return the distribution of the deployed policy's action, nothing observed."""
        return self.setting.policies["nominal"][state]

    def reward(self, offset: int, state: int, action: int, successor: int) -> Fraction:
        """Return the reward of a transition."""
        return self.laws.reward(self._world.start + offset, state, action, successor)

    def rows(self, kind: str) -> Rows:
        """Return the rows: `prior`, `gumbel` given the path, or all of the causal models `any` or `stable`."""

        def prior(offset: int, state: int, action: int) -> Dist:
            return self.laws.row(MAIN, self._world.start + offset, state, action)

        def gumbel(offset: int, state: int, action: int) -> Sequence[Dist]:
            return (self.laws.successors(self._world, self._world.start + offset, state, action),)

        def of_models(offset: int, state: int, action: int) -> Sequence[Dist]:
            if offset >= self.d:
                return (prior(offset, state, action),)
            seen, taken = self.path[offset]
            assert taken is not None
            outcome = self.path[offset + 1][0]
            if (seen, taken) == (state, action):
                return ({outcome: ONE},)
            return rows_of_models(prior(offset, seen, taken), prior(offset, state, action), outcome, kind)

        if kind == "prior":
            return lambda offset, state, action: (prior(offset, state, action),)
        return gumbel if kind == "gumbel" else of_models
