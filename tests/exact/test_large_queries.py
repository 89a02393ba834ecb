"""Questions of the size people ask: answered exactly, and held against something that does not share the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import monitor
from monitor.evaluation import check
from monitor.exact import Checker
from monitor.logic import parse
from monitor.model import MDP
from monitor.policy import PolicyTable
from monitor.policy.onnx_policy import load_policy
from tests.tiers import heavy, slow

ICU = Path(__file__).parents[2] / "policies" / "icu-sepsis"


@pytest.fixture(scope="module")
def icu() -> tuple[MDP, dict[str, PolicyTable]]:
    model = monitor.load_model(ICU / "model.npz")
    files = {"nominal": "deployed", "clinicians": "clinicians", "planned": "optimal"}
    return model, {name: load_policy(ICU / f"{file}.yaml", model).table for name, file in files.items()}


def observe(model: MDP, table: PolicyTable, length: int, seed: int) -> list[tuple[int, int]]:
    """A path of `length` pairs under a policy, drawn from the model, that has not ended."""
    rng = np.random.default_rng(seed)
    while True:
        assert model.initial is not None
        state = int(rng.choice(model.states, p=model.initial))
        path: list[tuple[int, int]] = []
        while len(path) < length and not model.is_absorbing(state):
            actions, shares = zip(*table.choices(state), strict=True)
            path.append((state, int(rng.choice(actions, p=shares))))
            successors, row = model.row(*path[-1])
            state = int(rng.choice(successors, p=row))
        if len(path) == length:
            return path


def gumbel_paths(  # one posterior draw of every observed step's noise, top-down (docs/semantics/worlds.md, section 4)
    model: MDP, path: Sequence[tuple[int, int]], act: Callable[[int], int], steps: int, rng: np.random.Generator
) -> list[int]:
    """The states of one sampled counterfactual path: observed noise as far as it goes, fresh noise beyond."""
    state, states = path[0][0], [path[0][0]]
    for k in range(steps):
        log_q = np.full(model.states, -np.inf)
        successors, row = model.row(state, act(state))
        log_q[successors] = np.log(row)
        noise = rng.gumbel(size=model.states)
        if k < len(path) - 1:
            observed, p = model.row(*path[k])
            outcome = int(np.searchsorted(observed, path[k + 1][0]))
            top = rng.gumbel()
            others = -np.logaddexp(-(rng.gumbel(size=len(p)) + np.log(p)), -top)
            noise[observed] = others - np.log(p)
            noise[observed[outcome]] = top - np.log(p[outcome])
        state = int(np.argmax(log_q + noise))
        states.append(state)
    return states


@slow
def test_ten_observed_and_twenty_further_steps_of_icu_sepsis(icu: tuple[MDP, dict[str, PolicyTable]]) -> None:
    model, policies = icu
    path = observe(model, policies["nominal"], 11, seed=5)
    actions = policies["planned"].actions
    assert actions is not None
    verdict = Checker(model, policies).check(parse('planned@10.P=? [ G<=30 !"death" ]'), path)
    assert verdict.value is not None
    assert (verdict.method, verdict.offset, verdict.clipped) == ("exact", 10, False)

    rng = np.random.default_rng(11)
    draws, dead = 3000, np.flatnonzero(model.labels["death"])
    alive = sum(
        not np.isin(gumbel_paths(model, path, lambda s: int(actions[s]), 30, rng), dead).any() for _ in range(draws)
    )
    # False alarm below 1e-6: five standard deviations of a mean of 3000 draws.
    assert abs(alive / draws - verdict.value) < 5 * np.sqrt(verdict.value * (1 - verdict.value) / draws)


def test_a_stochastic_alternative_over_icu_sepsis_is_the_mean_over_what_could_have_been_observed(
    icu: tuple[MDP, dict[str, PolicyTable]],
) -> None:
    """Averaging the answer over the outcome of the last observed step gives the answer without it."""
    model, policies = icu
    path = observe(model, policies["nominal"], 4, seed=8)
    checker, formula = Checker(model, policies), 'clinicians@{}.P=? [ G<=20 !"death" ]'
    before = checker.check(parse(formula.format(3)), path).value
    successors, row = model.row(*path[-1])
    after = [checker.check(parse(formula.format(4)), [*path, (int(s), None)]).value for s in successors]
    assert float(row @ np.array(after, dtype=np.float64)) == pytest.approx(before, abs=1e-12)


SIZE, KEY, DOOR, GOAL = 6, 8, 22, 35
"""A room of 6 x 6 cells; cells of the key, the door and the goal."""


def door_key(slip: float = 0.1) -> MDP:
    """A walker in the room: four actions, each slipping to another direction; labels where things are."""

    def moved(cell: int, action: int) -> int:
        down, right = [(-1, 0), (1, 0), (0, -1), (0, 1)][action]
        row, column = divmod(cell, SIZE)
        return min(max(row + down, 0), SIZE - 1) * SIZE + min(max(column + right, 0), SIZE - 1)

    transitions = [
        (cell, action, moved(cell, other), 1 - slip if other == action else slip / 3)
        for cell in range(SIZE * SIZE)
        for action in range(4)
        for other in range(4)
    ]
    labels = {"key": [KEY], "door": [DOOR], "goal": [GOAL]}
    return MDP.from_transitions(states=SIZE * SIZE, actions=4, transitions=transitions, labels=labels)


def reached_in_time(
    row_of: Callable[[int, int], npt.NDArray[np.float64]], start: int, limits: tuple[int, ...]
) -> float:
    """P(key within the first limit, door within the second of it, goal within the third), by its own recursion.

    Only the latest deadline of each stage matters: a key found again renews the time for the door.
    """
    spread: dict[tuple[int, int, int], float] = {(start, -1, -1): 1.0}
    reached, t_key, t_door, t_goal = 0.0, *limits
    for k in range(sum(limits) + 1):
        ahead: dict[tuple[int, int, int], float] = defaultdict(float)
        for (cell, door_until, goal_until), weight in spread.items():
            door_by = max(door_until, k + t_door) if cell == KEY and k <= t_key else door_until
            goal_by = max(goal_until, k + t_goal) if cell == DOOR and k <= door_by else goal_until
            if cell == GOAL and k <= goal_by:
                reached += weight
                continue
            if max(t_key, door_by, goal_by) > k:
                row = row_of(k, cell)
                for successor in np.flatnonzero(row).tolist():
                    ahead[successor, door_by, goal_by] += weight * float(row[successor])
        spread = ahead
    return reached


@heavy
def test_the_papers_door_key_formula_over_fifty_steps() -> None:
    model = door_key()
    # Right along the top row and down to the key, on to the door, on to the goal; elsewhere towards the goal.
    wander = [3 if cell % SIZE < 2 else 1 for cell in range(SIZE * SIZE)]
    seek = [3 if cell % SIZE < (2 if cell < 12 else 4) else 1 if cell < 30 else 3 for cell in range(SIZE * SIZE)]
    policies = {"nominal": wander, "alt": seek}
    text = 'F<=20 ("key" & F<=20 ("door" & F<=10 "goal"))'

    plain = check(f"alt@0.P=? [ {text} ]", model=model, path=[(0, wander[0])], policies=policies).value
    assert plain is not None
    dense = np.zeros((SIZE * SIZE, SIZE * SIZE))
    for cell in range(SIZE * SIZE):
        successors, row = model.row(cell, seek[cell])
        dense[cell, successors] = row
    assert plain == pytest.approx(reached_in_time(lambda _, cell: dense[cell], 0, (20, 20, 10)), abs=1e-12)
    assert 0.05 < plain < 0.999, "neither sure nor hopeless, or the comparison shows little"

    path = observe_walk(model, wander, 50)
    verdict = check(f"alt@49.P=? [ {text} ]", model=model, path=path, policies=policies)

    @cache
    def row_of(k: int, cell: int) -> npt.NDArray[np.float64]:
        row: npt.NDArray[np.float64] = dense[cell]
        if k >= len(path) - 1:
            return row
        before = np.zeros(SIZE * SIZE)
        successors, weights = model.row(*path[k])
        before[successors] = weights
        return race(before, path[k + 1][0], row)

    assert verdict.value == pytest.approx(reached_in_time(row_of, path[0][0], (20, 20, 10)), abs=1e-9)


def observe_walk(model: MDP, policy: Sequence[int], length: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(2)
    state, path = 0, []
    for _ in range(length):
        path.append((state, policy[state]))
        successors, row = model.row(*path[-1])
        state = int(rng.choice(successors, p=row))
    return path


def race(p: npt.NDArray[np.float64], outcome: int, q: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The counterfactual row by sorting all breakpoints and summing pieces: dense, slow, written from the formula."""
    joint = (p > 0) | (q > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0, p / q, np.inf)

    def total(u: float) -> float:
        return float(np.maximum(p, u * q)[joint].sum())

    row = np.zeros_like(q)
    limit = float(ratio[outcome])
    if np.isfinite(limit):
        row[outcome] = 1 / total(limit)
    for k in np.flatnonzero((q > 0) & (ratio < limit)).tolist():
        cuts = sorted({float(r) for r in ratio[(ratio > ratio[k]) & (ratio < limit)]} | {float(ratio[k])})
        ends = [*cuts[1:], limit]
        pieces = [
            (b - a) / (total(a) * total(b)) if np.isfinite(b) else 1 / (float(q[ratio <= a].sum()) * total(a))
            for a, b in zip(cuts, ends, strict=True)
        ]
        row[k] = q[k] * sum(pieces)
    return row
