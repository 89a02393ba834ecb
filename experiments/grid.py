"""The paper's reach-avoid grid for the experiments: observed paths, sampled outcomes, exact values.

Source: Kazemi & Paoletti (arXiv 2212.08712), "Reach-Avoid Example". The paper's lengths count transitions: a path of
length 10 has 11 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from monitor.exact import Checker
from monitor.exact.evaluators import Evaluators
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model.io import load_model
from monitor.model.mdp import MDP
from monitor.policy.onnx_policy import load_policy
from monitor.policy.table import PolicyTable
from monitor.sampled import Enumerated, Sampler

__all__ = ["PANELS", "Grid", "Groups", "Panel", "T", "grouped"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pairs = list[tuple[int, int | None]]

FOLDER = Path(__file__).resolve().parents[1] / "policies" / "reach-avoid"
T = 10
REACH_AVOID = f'!"unsafe" U<={T} "goal"'


class Panel(NamedTuple):
    """One of the paper's three settings: offset at which `optimal` takes over, and number of observed pairs."""

    key: str
    title: str
    offset: int
    pairs: int

    @property
    def query(self) -> str:
        """The query in the monitor's language."""
        return f"planned@{self.offset}.P=? [ {REACH_AVOID} ]"


PANELS = (
    Panel("a", "optimal from the start", -1, T + 1),
    Panel("b", "optimal after the first step", -2, T + 1),
    Panel("c", "as (b), two steps observed", -2, 3),
)


@dataclass(frozen=True)
class Groups:
    """Distinct observed paths: `states` [m, pairs], their `counts` [m], and the index `which` [n] of each path."""

    states: Ints
    counts: Ints
    which: Ints


class Grid:
    """Model with its two policies.

    Attributes:
        nominal, optimal: [S], actions of the policies.
        scene: source of sampled outcomes.
    """

    def __init__(self) -> None:
        self.model: MDP = load_model(FOLDER / "model.npz")
        files = {"nominal": "nominal", "planned": "optimal"}  # `optimal` is a word of the formula language
        tables = {name: load_policy(FOLDER / f"{file}.yaml", self.model).table for name, file in files.items()}
        self.nominal, self.optimal = (_actions(tables[name]) for name in files)
        self.start = int(np.flatnonzero(self.model.labels["start"])[0])
        self.scene = Enumerated(Evaluators(self.model, tables))
        self.checker = Checker(self.model, tables)
        self._cumulated = np.cumsum(
            [self.row(state, int(self.nominal[state])) for state in range(self.model.states)], axis=1
        )
        self._exact: dict[tuple[str, bytes], float] = {}

    def row(self, state: int, action: int) -> Floats:
        """Return the distribution [S] of next states."""
        row = np.zeros(self.model.states)
        successors, chances = self.model.row(state, action)
        row[successors] = chances
        return row

    def paths(self, count: int, rng: np.random.Generator) -> Ints:
        """Return the states [count, T + 1] of paths from the start under the nominal policy."""
        states = np.full((count, T + 1), self.start)
        for k in range(T):
            drawn = rng.random(count)
            # The last cumulative sum may be less than 1 by rounding.
            states[:, k + 1] = (drawn[:, None] >= self._cumulated[states[:, k], :-1]).sum(axis=1)
        return states

    def satisfied(self, states: Ints) -> Bools:
        """Return for each of the paths [n, T + 1] whether it reaches the goal without an unsafe state before, [n]."""
        goal, unsafe = self.model.labels["goal"][states], self.model.labels["unsafe"][states]
        clear = np.cumsum(unsafe, axis=1) == 0
        clear_before = np.concatenate([np.ones_like(clear[:, :1]), clear[:, :-1]], axis=1)
        reached: Bools = (goal & clear_before).any(axis=1)
        return reached

    def pairs(self, states: Ints) -> Pairs:
        """Return an observed path: states with the actions of the nominal policy."""
        return [(state, int(self.nominal[state])) for state in states.tolist()]

    def outcomes(self, panel: Panel, groups: Groups, draws: int, seed: int) -> Floats:
        """Sample whether phi holds in `draws` posterior worlds of each observed path, [n, draws].

        Equal paths are sampled in one call. Every world of a seed has its own noise.
        """
        sampler, goal = Sampler(self.scene, seed), _goal(panel.query)
        drawn = np.empty((len(groups.which), draws))
        begin = 0
        for index, (states, count) in enumerate(zip(groups.states, groups.counts.tolist(), strict=True)):
            end = begin + count * draws
            values = sampler.outcomes(goal, self.pairs(states), range(begin, end))
            drawn[groups.which == index] = values.reshape(count, draws)
            begin = end
        return drawn

    def unobserved(self, count: int, seed: int) -> Floats:
        """Sample whether phi holds under `optimal` without observation, [count]; no observed path uses this noise."""
        goal = _goal(f"planned@0.P=? [ {REACH_AVOID} ]")
        first = 1 << 31  # beyond all particles of observed paths
        return Sampler(self.scene, seed).outcomes(goal, [(self.start, None)], range(first, first + count))

    def exact(self, panel: Panel, states: Ints) -> float:
        """Return the exact counterfactual probability given one observed path, for comparison with sampled ones."""
        key = panel.query, states.tobytes()
        if key not in self._exact:
            value = self.checker.check(parse(panel.query), self.pairs(states)).value
            assert value is not None
            self._exact[key] = value
        return self._exact[key]

    def exact_nominal(self) -> float:
        """Return the exact probability of phi under the nominal policy."""
        return self._value("nominal", self.start)

    def exact_mean(self, panel: Panel) -> float:
        """Return the exact mean of the counterfactual probability over nominal paths; observed noise averages out.

        It is the value of `optimal` in the state of the intervention, the first or the second one, over a horizon of T
        steps from there.
        """
        if panel.offset == -1:
            return self._value("planned", self.start)
        chances = self.row(self.start, int(self.nominal[self.start]))
        return sum(float(chances[s]) * self._value("planned", int(s)) for s in np.flatnonzero(chances))

    def _value(self, policy: str, state: int) -> float:
        value = self.checker.check(parse(f"{policy}@0.P=? [ {REACH_AVOID} ]"), [(state, None)]).value
        assert value is not None
        return value


def grouped(states: Ints) -> Groups:
    """Group equal paths [n, pairs]."""
    different, which, counts = np.unique(states, axis=0, return_inverse=True, return_counts=True)
    return Groups(different, counts, which.reshape(-1))


def _actions(table: PolicyTable) -> Ints:
    assert table.actions is not None
    return table.actions


def _goal(text: str) -> Goal:
    parsed = parse(text)
    assert isinstance(parsed, Goal)
    return parsed
