"""On a stream nothing is done again, and nothing comes out differently for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.decide import Checker, chain, spreads
from monitor.logic import parse
from monitor.model import MDP
from monitor.policy import as_table

FORMULAS = [
    'regret(alt@4, P>=0.5 [ G<=6 !"bad" ])',
    'alt@3.P=? [ "good" U[1,7] "bad" ]',
    'mix@5.P=? [ F<=2 ("good" & F<=4 "bad") ]',
    "delta(alt[2],mix)@4.R=? [ C[1,8] ]",
    'mix@-2.P=? [ G<=5 ("good" | alt@0.P>0.4 [ F<=2 "bad" ]) ]',
]


def world() -> tuple[MDP, dict[str, Any]]:
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.ones(5), size=(5, 2)) * (rng.random((5, 2, 5)) < 0.6)
    rows[..., 0] += 0.05
    rows /= rows.sum(axis=-1, keepdims=True)
    cells = [(s, a, t, float(rows[s, a, t])) for s in range(5) for a in range(2) for t in range(5) if rows[s, a, t] > 0]
    rewards = [(s, a, float(s - a)) for s in range(5) for a in range(2)]
    labels = {"good": [1, 2], "bad": [3]}
    model = MDP.from_transitions(states=5, actions=2, transitions=cells, rewards=rewards, labels=labels)
    mixed = rng.dirichlet(np.ones(2), size=5)
    policies = {"nominal": [0, 1, 0, 1, 0], "alt": [1, 1, 0, 0, 1], "mix": mixed}
    return model, {name: as_table(policy, model) for name, policy in policies.items()}


def growing_paths(model: MDP, window: int, length: int) -> list[tuple[tuple[int, int], ...]]:
    """What a stream holds after each message: the newest `window` pairs."""
    rng = np.random.default_rng(9)
    state, pairs, held = 0, [], []
    for _ in range(length):
        pairs.append((state, int(rng.integers(2))))
        held.append(tuple(pairs[-window:]))
        successors, row = model.row(*pairs[-1])
        state = int(rng.choice(successors, p=row))
    return held


def test_every_answer_on_a_stream_is_that_of_a_new_start_to_the_bit() -> None:
    model, policies = world()
    streaming = Checker(model, policies)
    for path in growing_paths(model, window=8, length=30):
        anew = Checker(model, policies)
        for text in FORMULAS:
            assert streaming.check(parse(text), path) == anew.check(parse(text), path)


def test_a_message_costs_one_step_for_each_start_point(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies = world()
    steps = counted(monkeypatch)
    checker, formula = Checker(model, policies), parse('regret(alt@4, P>=0.5 [ G<=6 !"bad" ])')
    costs = []
    for path in growing_paths(model, window=8, length=30):
        before = steps()
        checker.check(formula, path)
        costs.append(steps() - before)
    # Two arms, each with a start point at each of the last four pairs before this one; where the same stretch of path
    # came before, not even that.
    assert all(cost <= 2 * min(n, 4) for n, cost in enumerate(costs))
    assert max(costs) == 8


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls = [0]
    advance = chain._advance

    def counting(*args: Any) -> Any:  # noqa: ANN401 - stands in for whatever it wraps
        calls[0] += 1
        return advance(*args)

    monkeypatch.setattr(chain, "_advance", counting)
    return lambda: calls[0]


def test_what_was_let_go_for_want_of_room_is_computed_again_to_the_same_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies = world()
    roomy = Checker(model, policies)
    expected = [[roomy.check(parse(t), p) for t in FORMULAS] for p in growing_paths(model, 8, 12)]
    monkeypatch.setattr(spreads, "MAX_NUMBERS", 3 * spreads.OVERHEAD)
    tight = Checker(model, policies)
    assert [[tight.check(parse(t), p) for t in FORMULAS] for p in growing_paths(model, 8, 12)] == expected


def test_room_is_bounded_and_the_longest_unwanted_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreads, "MAX_NUMBERS", 3 * (spreads.OVERHEAD + 4))
    held = spreads.Spreads()
    standing = spreads.Standing(0.0, {2: (np.arange(4), np.full(4, 0.25))})
    for key in "abc":
        held.put(key, standing)
    assert held.get("a") is standing
    held.put("d", standing)
    assert [held.get(key) is not None for key in "abcd"] == [True, False, True, True]
    assert len(held) == 3
