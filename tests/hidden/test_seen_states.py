"""Where each observation is the state, answers are those of the engine for states that are seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monitor
from monitor.policy.controller import Controller, Policy
from tests.tiers import slow

QUERIES = (
    'other@{t}.P=? [ F<=3 "bad" ]',
    'other[1]@{t}.P=? [ "good" U[1,3] "bad" ]',
    "other[2]@{t}.R=? [ C<=4 ]",
    'do(1)@{t}.P=? [ G<=2 !"bad" & F[1,4] "good" ]',
    'model:icy@{t}.P=? [ X "bad" | F=3 "good" ]',
    "delta(other,nominal)@{t}.R=? [ C[1,3] ]",
    'delta(other,do(0))@-1.P=? [ F<=2 "bad" ]',
    'nominal@{t}.P=? [ F<=2 "bad" ]',
    'regret(other@{t}, P<0.5 [ F<=3 "bad" ])',
    '@{t}.P>=0.5 [ F<=2 "bad" ] & !(other@0.R>0 [ C<=2 ])',
)


def case(seed: int) -> tuple[dict[str, Any], list[tuple[int, int | None]], bool]:
    """Return a random model's arguments for `check`, a possible path, and whether its episode has terminated."""
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, 5)), 2
    rows = [rng.dirichlet(np.ones(states), size=(states, actions)) for _ in range(2)]
    about: dict[str, Any] = {
        "states": states,
        "actions": actions,
        "labels": {"bad": [0], "good": [states - 1]},
        "rewards": [
            (s, a, s2, float(rng.normal())) for s in range(states) for a in range(actions) for s2 in range(states)
        ],
    }
    model, icy = (
        monitor.MDP.from_transitions(transitions=[(*i, row[i]) for i in np.ndindex(row.shape)], **about) for row in rows
    )
    policies = {name: rng.dirichlet(np.ones(actions), size=states) for name in ("nominal", "other")}
    path: list[tuple[int, int | None]] = []
    state = 0
    for _ in range(int(rng.integers(1, 5))):
        action = int(rng.integers(actions))
        path.append((state, action))
        state = int(rng.choice(states, p=rows[0][state, action]))
    terminated = bool(rng.random() < 0.3)
    if not terminated and rng.random() < 0.3:
        path[-1] = path[-1][0], None
    return {"model": model, "policies": policies, "models": {"icy": icy}}, path, terminated


def shown(model: monitor.MDP) -> monitor.MDP:
    """Return the model with a sensor that shows the state."""
    numbers = range(model.states)
    return monitor.MDP.from_transitions(
        states=model.states,
        actions=model.actions,
        labels={name: np.flatnonzero(there).tolist() for name, there in model.labels.items()},
        transitions=[
            (s, a, *e) for s in numbers for a in range(model.actions) for e in zip(*model.row(s, a), strict=True)
        ],
        rewards=[(s, a, s2, model.reward(s, a, s2)) for s in numbers for a in range(model.actions) for s2 in numbers],
        initial={0: 1.0},
        signals=model.states,
        emissions=[(s, s, 1.0) for s in numbers],
    )


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=slow) for seed in range(4, 60))])
def test_a_sensor_that_shows_the_state_changes_no_answer(seed: int) -> None:
    about, path, terminated = case(seed)
    hidden = {**about, "model": shown(about["model"]), "models": {n: shown(m) for n, m in about["models"].items()}}
    seen = {**about, "policies": {name: Policy(table, sees="state") for name, table in about["policies"].items()}}
    twice = {
        **hidden,
        "policies": {  # remembers its last observation, and does not use it
            name: Controller(np.stack([table] * len(table)), np.tile(np.arange(len(table)), (len(table), 1)))
            for name, table in about["policies"].items()
        },
    }
    offset = int(np.random.default_rng(seed).integers(4))
    for text in QUERIES:
        query = text.format(t=offset)
        expected = monitor.check(query, path=path, terminated=terminated, **about)
        for other in (hidden, seen, twice):
            if other is twice and query.startswith("other["):
                continue  # one that remembers takes over for good
            found = monitor.check(query, path=path, terminated=terminated, **other)
            assert (found.holds, found.outcome, found.offset) == (expected.holds, expected.outcome, expected.offset)
            for one, two in zip(found.quantities, expected.quantities, strict=True):
                assert one.value == pytest.approx(two.value, abs=1e-12), (query, other is seen)
            for k, values in expected.profile.items():
                assert found.profile[k] == pytest.approx(values, abs=1e-12)
