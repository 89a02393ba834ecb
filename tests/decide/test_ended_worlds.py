"""Episodes that end in states the model does not keep: each asks for a model of its own, and memory stays bounded."""

from __future__ import annotations

import gc

import pytest

from monitor.decide import Checker, tables
from monitor.decide.worlds import MAX_ENDED
from monitor.logic import parse
from monitor.model import MDP

SIZE = 3 * MAX_ENDED


def test_models_of_ended_episodes_are_let_go() -> None:
    here = [(s, 0, s2, 0.5) for s in range(SIZE) for s2 in (s, (s + 1) % SIZE)]
    model = MDP.from_transitions(states=SIZE, actions=1, transitions=here, labels={"far": [1]}, source="letting go")
    checker = Checker(model, tables({"nominal": [0] * SIZE}, model))
    formula = parse('P=? [ F<=4 "far" ]')

    def ask(state: int) -> float | None:
        return checker.check(formula, [(state, 0)], terminated=True).value

    first = [ask(state) for state in range(SIZE)]
    assert first == [float(state == 1) for state in range(SIZE)]
    alive = [held for held in gc.get_objects() if isinstance(held, MDP) and held.source == "letting go"]
    assert len(alive) <= MAX_ENDED + 1
    assert [ask(state) for state in range(SIZE)] == first
    assert checker.check(formula, [(0, 0)]).value == pytest.approx(1 - 0.5**4)
