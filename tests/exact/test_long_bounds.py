"""Bounds over long paths: memory for one start point, and a refusal where even that would be too much."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import monitor
import monitor.exact.evaluators as worlds_module
import monitor.exact.forward.buffers as buffers_module
from monitor.errors import LimitError
from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.model import MDP
from monitor.types import FormulaSpec
from tests.tiers import heavy

STATES, LENGTH = 50, 1000


def dense(states: int) -> MDP:
    """Every state leads to every other, by either action."""
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(states), 2 * states)
    return MDP.from_rows(
        states=states,
        actions=2,
        indptr=np.arange(2 * states + 1) * states,
        successors=np.tile(np.arange(states), 2 * states),
        probabilities=rows.reshape(-1),
        labels={"bad": [states - 1]},
    )


def wander(model: MDP, length: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(2)
    path, state = [], 0
    for _ in range(length):
        path.append((state, 0))
        successors, row = model.row(state, 0)
        state = int(rng.choice(successors, p=row))
    return path


@heavy
def test_bounds_over_a_thousand_steps_need_memory_for_one_start_point() -> None:
    """They asked for 31 GiB, with room for a thousand start points, and ended in a MemoryError."""
    model = dense(STATES)
    policies = tables({"nominal": [0] * STATES, "alt": [1] * STATES}, model)
    checker, path = Checker(model, policies), wander(model, LENGTH)
    formula = parse('regret(alt@999, P>=0.5 [ G<=1005 !"bad" ])')
    checker.check(parse('P=? [ F<=1 "bad" ]'), path[:2])  # compiled
    tracemalloc.start()  # the profile of a thousand start points takes its share
    try:
        verdict = checker.check(formula, path, causal_model="any")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert verdict.bounds is not None
    assert 0.0 <= verdict.bounds[0] <= verdict.bounds[1] <= 1.0
    assert peak < 256 << 20


def test_a_limit_that_no_path_can_meet_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was accepted at start, and raised at step 1,001."""
    for module in (worlds_module, buffers_module):
        monkeypatch.setattr(module, "MAX_LEVELS", 11 * STATES)
    model = dense(STATES)
    policies = {"nominal": [0] * STATES, "alt": [1] * STATES}
    checker, path = Checker(model, tables(policies, model)), wander(model, 12)

    def watch(text: str, window: int) -> None:
        monitor.Monitor(
            model,
            tables(policies, model),
            [FormulaSpec("f", text, causal_model="any")],
            settings=monitor.StreamSettings(window=window),
        )

    watch('alt@10.P>0.5 [ F<=30 "bad" ]', 64)
    watch('alt@-1.P>0.5 [ F<=30 "bad" ]', 11)
    accepted = checker.check(parse('alt@10.P>0.5 [ F<=30 "bad" ]'), path[:11], causal_model="any")
    assert accepted.bounds is not None  # what is accepted is answered
    with pytest.raises(LimitError, match=r"as many as 600 rows .* look back fewer steps"):
        watch('alt@11.P>0.5 [ F<=30 "bad" ]', 64)
    with pytest.raises(LimitError, match=r"as many as 600 rows"):
        watch('alt@-1.P>0.5 [ F<=30 "bad" ]', 12)
    watch('alt@11.P>0.5 [ F<=9 "bad" ]', 64)  # after nine steps nothing is owed


def test_a_path_with_too_many_reachable_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers_module, "MAX_LEVELS", 400)
    model = dense(STATES)
    checker = Checker(model, tables({"nominal": [0] * STATES, "alt": [1] * STATES}, model))
    path = wander(model, 20)
    formula = parse('alt@19.P=? [ F<=30 "bad" ]')
    with pytest.raises(LimitError, match="more than 400 rows"):
        checker.check(formula, path, causal_model="any")
    again = checker.check(parse('alt@6.P=? [ F<=30 "bad" ]'), path, causal_model="any")  # the next one is answered
    assert again.bounds is not None
