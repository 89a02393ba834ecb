"""`handover(F, Q, h)` compared with dynamic programming in dense matrices, and the work that a step causes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

import monitor
from monitor.arrays import Bools, Floats
from monitor.exact import Checker
from monitor.model import MDP
from monitor.policy.table import as_table
from monitor.referee import derive
from monitor.types import Verdict
from tests.exact.calls import followed_worlds

STATES, ACTIONS, DEAD, HORIZON, STEPS, BOUND = 12, 3, 11, 6, 4, 0.7
GOAL = f'P>={BOUND} [ G<={HORIZON} !"dead" ]'
QUERY = f"handover(fallback, {GOAL}, {STEPS})"


@pytest.fixture(scope="module")
def rows() -> Floats:
    """Random rows [state, action, successor]; the last state is absorbing."""
    random = np.random.default_rng(5)
    dense = random.dirichlet(np.full(STATES, 0.4), size=(STATES, ACTIONS))
    dense[:, :, DEAD] *= np.linspace(0.2, 3.0, STATES)[:, None]
    dense[DEAD] = np.eye(STATES)[DEAD]
    return np.asarray(dense / dense.sum(axis=2, keepdims=True))


@pytest.fixture(scope="module")
def model(rows: Floats) -> MDP:
    entries = [(int(s), int(a), int(y), float(rows[s, a, y])) for s, a, y in zip(*np.nonzero(rows), strict=True)]
    return MDP.from_transitions(states=STATES, actions=ACTIONS, transitions=entries, labels={"dead": [DEAD]})


@pytest.fixture(scope="module")
def policies() -> dict[str, Floats]:
    random = np.random.default_rng(6)
    return {name: random.dirichlet(np.full(ACTIONS, 0.5), size=STATES) for name in ("nominal", "fallback")}


def survival(rows: Floats, policy: Floats) -> Floats:
    """Return P(never dead at offsets 0..HORIZON) from each state."""
    chain = np.einsum("sa,say->sy", policy, rows)
    alive = np.arange(STATES) != DEAD
    values = alive.astype(float)
    for _ in range(HORIZON):
        values = np.where(alive, chain @ values, 0.0)
    return np.asarray(values)


def reaches(rows: Floats, policy: Floats, late: Bools, steps: int) -> Floats:
    """Return P(in a state of `late` at one of the offsets 0..steps) from each state."""
    chain = np.einsum("sa,say->sy", policy, rows)
    values = late.astype(float)
    for _ in range(steps):
        values = np.where(late, 1.0, chain @ values)
    return values


def test_in_every_state_it_is_the_chance_to_reach_one_from_which_the_fallback_misses_the_goal(
    rows: Floats, model: MDP, policies: dict[str, Floats]
) -> None:
    """Deterministic policies: nothing about the action taken depends on the nominal policy's noise."""
    tables = {name: np.eye(ACTIONS)[table.argmax(axis=1)] for name, table in policies.items()}
    late = survival(rows, tables["fallback"]) < BOUND
    assert 2 < late.sum() < STATES - 2, "else nothing is tested"
    for steps in (0, 1, STEPS):
        found = monitor.values(f"handover(fallback, {GOAL}, {steps})", model=model, policies=tables)
        np.testing.assert_allclose(found, reaches(rows, tables["nominal"], late, steps), atol=1e-12)


@pytest.mark.parametrize("judged_by", [monitor.check, derive], ids=["engine", "referee"])
def test_a_verdict_has_its_goal_now_with_and_without_handing_over(
    rows: Floats,
    model: MDP,
    policies: dict[str, Floats],
    judged_by: Callable[..., Verdict],
) -> None:
    tables = {name: np.eye(ACTIONS)[table.argmax(axis=1)] for name, table in policies.items()}
    carried_on, given = survival(rows, tables["nominal"]), survival(rows, tables["fallback"])
    for state in range(STATES):
        action = int(tables["nominal"][state].argmax())
        verdict = judged_by(f"{QUERY} >= 0.5", model=model, path=[(state, action)], policies=tables)
        assert verdict.profile[0] == pytest.approx((carried_on[state], given[state]))
        assert verdict.latest_useful == (0 if given[state] >= BOUND else None)
        assert verdict.quantities[0].value == 1.0 or verdict.latest_useful == 0


def test_a_step_computes_no_counterfactual_row(model: MDP, policies: dict[str, Floats]) -> None:
    """All that a verdict needs is known before the first step: it lies ahead of the path, where noise is fresh."""
    tables = {name: as_table(table, model) for name, table in policies.items()}
    checker = Checker(model, tables)
    formula = monitor.parse(f"{QUERY} >= 0.5")
    check = checker.incremental_check(formula, "any", f"{QUERY} >= 0.5", window=16)
    random = Random(1)
    path: list[tuple[int, int]] = []
    for _ in range(200):
        path = [*path, (random.randrange(STATES - 1), random.randrange(ACTIONS))][-16:]
        check.verdict(path, 1)
    worlds = followed_worlds(check.path_values)
    assert len(worlds) == 3
    assert sum(world.evaluator.computed for world in worlds) == 0
