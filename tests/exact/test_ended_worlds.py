"""Episodes that end in states the model does not keep: each asks for a world of its own, and memory stays bounded."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import monitor.exact.value_table as table_module
from monitor.evaluation import check
from monitor.exact import Checker, tables
from monitor.exact.evaluators import MAX_ENDED
from monitor.logic import parse
from monitor.model import MDP
from tests.exact.small import LAW, chances, exact, question, small_world
from tests.tiers import examples, heavy

SIZE = 3 * MAX_ENDED


def test_models_of_ended_episodes_are_evicted() -> None:
    here = [(s, 0, s2, 0.5) for s in range(SIZE) for s2 in (s, (s + 1) % SIZE)]
    model = MDP.from_transitions(states=SIZE, actions=1, transitions=here, labels={"far": [1]}, source="letting go")
    checker = Checker(model, tables({"nominal": [0] * SIZE}, model))
    formula = parse('P=? [ F<=4 "far" ]')

    def ask(state: int) -> float | None:
        return checker.check(formula, [(state, 0)], terminated=True).value

    first = [ask(state) for state in range(SIZE)]
    assert first == [float(state == 1) for state in range(SIZE)]
    gc.collect()
    alive = [held for held in gc.get_objects() if type(held) is MDP and held.source == "letting go"]
    assert len(alive) <= MAX_ENDED + 1
    assert [ask(state) for state in range(SIZE)] == first
    assert checker.check(formula, [(0, 0)]).value == pytest.approx(1 - 0.5**4)


@heavy
@settings(LAW)
@given(chances)
def test_a_large_model_is_not_copied_for_an_end_and_the_answers_are_the_same(chance: Random) -> None:
    """Rewards in the end state, and paths that go on from it under other dynamics, included."""
    small = small_world(chance, stochastic=chance.random() < 0.5, terminated=True)
    world = chance.choice(["alt@", "model:icy@", "nominal@"]) + str(chance.randint(0, 3))
    texts = [question(chance, world), f"{world}.R=? [ C<=3 ]", f'{world}.P=? [ F<=2 (P>0.5 [ F<=1 "a" ]) ]']
    for text in texts:
        copied = small.number(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_module, "SMALL", 0)
            patch.setattr(MDP, "with_absorbing", None)
            assert small.number(text) == pytest.approx(copied, abs=1e-12)


def test_an_end_costs_no_memory_by_the_size_of_the_model() -> None:
    size = 200_000
    here = np.repeat(np.arange(size), 2)
    model = MDP.from_rows(
        states=size,
        actions=1,
        indptr=np.arange(0, 2 * size + 1, 2),
        successors=np.stack([np.arange(size), (np.arange(size) + 1) % size], axis=1).reshape(-1),
        probabilities=np.full(here.size, 0.5),
        labels={"far": [9]},
    )
    checker = Checker(model, tables({"nominal": np.zeros(size, dtype=int)}, model))
    formula, path = parse('nominal@1.P=? [ F<=4 "far" ]'), [(6, 0), (7, 0)]
    incremental = checker.incremental_check(formula, window=5)
    assert incremental.verdict(path).value == pytest.approx(0.5)
    tracemalloc.start()
    try:
        assert incremental.verdict(path, 0, terminated=True).value == 0.0
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert held <= peak


@pytest.mark.parametrize("causal_model", ["any", "stable"])
def test_bounds_at_an_end_of_a_large_model(causal_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [(s, a, s2, 0.5) for s in range(6) for a in (0, 1) for s2 in ((s + a) % 6, (s + 2) % 6)]
    model = MDP.from_transitions(states=6, actions=2, transitions=here, labels={"far": [5]})
    asked: dict[str, Any] = {"model": model, "policies": {"nominal": [0] * 6, "alt": [1] * 6}}
    asked |= {"path": [(0, 0), (2, 0), (2, 0)], "terminated": True, "causal_model": causal_model}
    expected = check('alt@2.P=? [ F<=4 "far" ]', **asked)
    monkeypatch.setattr(table_module, "SMALL", 0)
    found = check('alt@2.P=? [ F<=4 "far" ]', **asked)
    assert found.bounds is not None
    assert found.value == pytest.approx(expected.value, abs=1e-12)
    assert found.bounds == pytest.approx(expected.bounds, abs=1e-12)
    assert found.bounds[0] < found.bounds[1]


INNER = [
    'third@{t}.P>0.5 [ F<=2 "b" ]',
    "third@{t}.R>0.5 [ C<=3 ]",
    "nominal@{t}.R>=0 [ C<=2 ]",
    'model:icy@{t}.P>0.4 [ X "b" ]',
]


@settings(LAW, max_examples=examples(25, 150))
@given(chances)
def test_a_look_back_sees_an_end_at_its_time(chance: Random) -> None:
    """A nested quantity may look back from before the end, from the end, or from beyond it: the clock stays one."""
    small = small_world(chance, stochastic=chance.random() < 0.3, terminated=True, length=chance.randint(2, 4))
    world = chance.choice(["alt@", "model:icy@", "nominal@", "alt[1]@"]) + str(chance.randint(0, 3))
    inner = chance.choice(INNER).format(t=chance.choice([1, 2, -1, -2]))
    also = chance.choice(["true", '"a"'])
    text = f"{world}.P=? [ F<={chance.randint(0, 3)} ({also} & {inner}) ]"
    assert small.number(text) == pytest.approx(float(exact(small, text)), abs=1e-12), text


def test_before_the_end_the_world_is_as_it_was() -> None:
    """0 -> 1 -> 0, ended there: asked from offset 1, the step before the end still leaves state 0 and pays."""
    model = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 0, 1.0)], rewards=[(0, 0, 1.0)], labels={"one": [1]}
    )
    path = [(0, 0), (1, 0), (0, 0)]
    longer = [*path, (1, 0), (0, 0)]
    looked = '@4.P=? [ F[2,2] @1.P>0.5 [ F[2,2] "one" ] ]'  # from offset 1, one step beyond a visit to the end's state
    assert check(looked, model=model, path=longer, policies={"nominal": [0, 0]}, terminated=True).value == 1.0
    for text, value in (
        ('@2.P=? [ F[1,1] @1.P>0.5 [ F[2,2] !"one" ] ]', 1.0),
        ('@2.P=? [ @-1.P>0.5 [ X "one" ] ]', 1.0),  # one pair: asked at offset 0, two steps before the end
        ("@2.P=? [ F[1,1] @1.R>=1 [ C<=2 ] ]", 1.0),
        ("@2.P=? [ F[3,3] @3.R>=1 [ C<=3 ] ]", 1.0),  # beyond the end: what was earned before it counts
        ("@2.P=? [ F[3,3] @3.R>1 [ C<=3 ] ]", 0.0),
    ):
        verdict = check(text, model=model, path=path, policies={"nominal": [0, 0]}, terminated=True)
        assert verdict.value == value, text


def test_an_earlier_query_changes_no_answer() -> None:
    """The same laws beyond the end, but another past: what was observed up to it, and what goes on from it."""
    model = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 0, 1.0)], rewards=[(0, 0, 1.0)]
    )
    checker = Checker(model, tables({"nominal": [0, 0]}, model))
    path = [(0, 0), (1, 0), (0, 0)]

    def ask(text: str) -> float | None:
        return checker.check(parse(text), path, terminated=True).value

    ended = "P=? [ F=1 @2.R<=0 [ C=0 ] ]"  # one step after the end, looking back to it: nothing was earned
    assert ask("@2.R=? [ C=0 ]") == 1.0
    assert ask(ended) == 1.0
