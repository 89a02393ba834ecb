"""The explanation of an alarm against the verdict it tells of, and against plain enumeration of paths."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.causal import CounterfactualWorld, Intervention
from monitor.evaluation import check
from monitor.evidence.document import Evidence, PolicyEvidence
from monitor.exact import Checker
from monitor.model import MDP, load_model, model_sha256
from monitor.picture import explain
from monitor.picture.distribution import likeliest
from monitor.policy import PolicyTable, as_table
from monitor.types import CausalModel
from tests.tiers import examples

GRID = load_model(Path(__file__).parents[2] / "policies" / "reach-avoid" / "model.npz")
DOWN_THEN_RIGHT = [1 if state < 12 else 3 for state in range(GRID.states)]
RIGHT_THEN_DOWN = [3 if state % 4 < 3 else 1 for state in range(GRID.states)]
POLICIES = {"nominal": as_table(RIGHT_THEN_DOWN, GRID), "fallback": as_table(DOWN_THEN_RIGHT, GRID)}
PATH = ((0, 3), (1, 3), (2, 3), (3, 1), (7, 1))
FORMULAS = [
    'regret(fallback@3, P>=0.95 [ G<=8 !"unsafe" ])',
    'regret(fallback@4, P>=0.95 [ !"unsafe" U<=9 "goal" ])',
    'fallback@2.P>=0.9 [ F[3,6] "goal" ]',
    'fallback@2.P=? [ (G<=5 !"unsafe") & (F<=7 "goal") ]',
    'do(down)@3.P=? [ G<=6 P<=0.9 [ F<=3 "goal" ] ]',
    "fallback@3.R=? [ C<=6 ]",
    'delta(fallback,nominal)@2.P=? [ F<=6 "goal" ]',
]


def evidence_of(
    text: str,
    path: tuple[tuple[int, int | None], ...] = PATH,
    *,
    model: MDP = GRID,
    tables: Mapping[str, PolicyTable] = POLICIES,
    causal_model: CausalModel = "gumbel",
    terminated: bool = False,
    acted: tuple[str, ...] = (),
) -> Evidence:
    """As an alarm on this path would leave it; its digest is of no matter here."""
    verdict = check(
        text, model=model, path=path, policies=tables, causal_model=causal_model, terminated=terminated, acted=acted
    )
    policies = {name: PolicyEvidence("0" * 64, {}, ()) for name in tables}
    return Evidence(
        v=2, digest="0" * 64, alert="a", agent="robot", episode="e1", formula="f", text=text, causal_model=causal_model,
        seq=len(path) - 1, first_seq=0, time=1.7e9, since=1.7e9, path=path, start_observed=True, terminated=terminated,
        model="grid.npz", model_sha256=model_sha256(model), models={}, policies=policies, verdict=verdict, versions={},
        acted=acted,
    )  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("causal_model", ["gumbel", "any"])
def test_what_spreads_ends_in_the_value_of_the_verdict(text: str, causal_model: CausalModel) -> None:
    evidence = evidence_of(text, causal_model=causal_model)
    explanation = explain(evidence, GRID, POLICIES)
    ends = []
    for branch in explanation.branches:
        assert branch.distribution is not None, branch.problem
        for there in branch.distribution.states:
            assert sum(there.values()) == pytest.approx(1.0, abs=1e-12)
        ends.append(branch.distribution.reward[-1] if explanation.reward else branch.distribution.satisfied[-1])
        if not explanation.reward:
            assert branch.distribution.satisfied[-1] + branch.distribution.violated[-1] == pytest.approx(1.0, abs=1e-12)
            assert list(branch.distribution.violated) == sorted(branch.distribution.violated)
    values = [quantity.value for quantity in evidence.verdict.quantities]
    shown = ends if len(values) == len(ends) else [ends[0] - ends[1]]  # a difference is one quantity of two worlds
    assert shown == pytest.approx(values, abs=1e-12)


def test_the_history_is_what_was_answered_after_each_step() -> None:
    evidence = evidence_of(FORMULAS[0], causal_model="any")
    explanation = explain(evidence, GRID, POLICIES)
    for n, moment in enumerate(explanation.history, start=1):
        verdict = check(FORMULAS[0], model=GRID, path=PATH[:n], policies=POLICIES, causal_model="any")
        assert moment.seq == n - 1
        assert (moment.nominal, moment.value) == tuple(quantity.value for quantity in verdict.quantities)
        assert moment.bounds == verdict.quantities[1].bounds
    assert len(explanation.history) == len(PATH)
    said = explanation.told.summary
    assert said.startswith("robot: when it fired, P(no unsafe in 8 steps, from 3 steps before) = 0.96")


def test_worlds_and_history_know_which_policy_acted() -> None:
    text, acted = 'fallback[1]@2.P=? [ F<=6 "goal" ]', ("nominal", "fallback", "nominal", "fallback", "nominal")
    evidence = evidence_of(text, acted=acted)
    assert evidence.verdict.value != evidence_of(text).verdict.value
    explanation = explain(evidence, GRID, POLICIES)
    assert explanation.history[-1].value == evidence.verdict.value
    (branch,) = explanation.branches
    assert branch.distribution is not None
    assert branch.distribution.satisfied[-1] == pytest.approx(evidence.verdict.value, abs=1e-12)


def test_an_alarm_on_what_holds_is_told_as_such() -> None:
    explanation = explain(evidence_of('P>=0.01 [ F<=8 "unsafe" ]'), GRID, POLICIES)
    assert explanation.told.summary.endswith("; alarm if at least 0.01. Exact for this model.")
    explanation = explain(evidence_of('P>=0.99 [ F<=8 "unsafe" ]'), GRID, POLICIES)
    assert explanation.told.summary.endswith("; at least 0.99 required. Exact for this model.")


def test_moments_before_the_held_path_was_long_enough_are_not_invented() -> None:
    verdict = check(FORMULAS[0], model=GRID, path=PATH, policies=POLICIES, start_observed=False)
    evidence = evidence_of(FORMULAS[0])
    explanation = explain(replace(evidence, start_observed=False, verdict=verdict), GRID, POLICIES)
    assert [moment.seq for moment in explanation.history] == [3, 4]


def test_an_ended_episode_stays_where_it_ended() -> None:
    explanation = explain(evidence_of('regret(fallback@2, P>=0.9 [ F<=8 "goal" ])', terminated=True), GRID, POLICIES)
    nominal = next(branch for branch in explanation.branches if branch.nominal)
    assert nominal.distribution is not None
    assert nominal.distribution.states[-1] == {PATH[-1][0]: pytest.approx(1.0)}


def test_a_nested_quantity_that_looks_back_is_reported_and_not_drawn() -> None:
    explanation = explain(evidence_of('fallback@2.P=? [ G<=3 nominal@1.P>=0 [ F<=2 "goal" ] ]'), GRID, POLICIES)
    assert explanation.branches[0].distribution is None
    assert "looks back" in explanation.branches[0].problem


def test_decisions_made_for_the_goal_are_named_and_not_drawn() -> None:
    text = 'regret(best[<=1]@2, P>=0.9 [ F<=3 "goal" ])'
    nominal, best = explain(evidence_of(text), GRID, POLICIES).branches
    assert nominal.distribution is not None
    assert (best.name, best.nominal, best.distribution) == ("best[<=1]", False, None)
    assert "no distribution" in best.problem


@settings(max_examples=examples(25, 60))
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3))
def test_likeliest_paths_against_enumeration(seed: int, states: int, steps: int) -> None:
    model, path, tables = random_world(seed, states, steps + 1)
    checker = Checker(model, tables)
    worlds = checker.evaluators
    world = CounterfactualWorld.at(path, 0, worlds.nominal(None, steps), Intervention(tables["fallback"]), worlds.rows)
    found = likeliest(world, steps, 5)
    everything: dict[tuple[int, ...], float] = {}
    for states_after in itertools.product(range(states), repeat=steps):
        chance, at = 1.0, path[0][0]
        for offset, reached in enumerate(states_after):
            row = 0.0
            for action, share in world.choices(offset, at):
                successors, chances = world.row(offset, at, action)
                row += share * sum(c for s, c in zip(successors, chances, strict=True) if s == reached)
            chance, at = chance * row, reached
        everything[(path[0][0], *states_after)] = chance
    best = sorted(everything.values(), reverse=True)[: len(found)]
    assert [route.probability for route in found] == pytest.approx(best, abs=1e-12)
    for route in found:
        assert everything[route.states] == pytest.approx(route.probability, abs=1e-12)


@settings(max_examples=examples(25, 40))
@given(st.integers(0, 10_000))
def test_the_spread_in_random_worlds_ends_in_the_value(seed: int) -> None:
    model, path, tables = random_world(seed, 4, 4)
    text = 'fallback@3.P=? [ !"bad" U<=6 "good" ]'
    checker = Checker(model, tables)
    explanation = explain(evidence_of(text, path, model=model, tables=tables), model, tables)
    expected = check(text, model=model, path=path, policies=tables).value
    assert explanation.branches[0].distribution is not None
    assert explanation.branches[0].distribution.satisfied[-1] == pytest.approx(expected, abs=1e-12)
    assert checker.model is model


def test_a_world_without_end_is_refused_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.picture.distribution.MOST_CELLS", 5)
    explanation = explain(evidence_of(FORMULAS[0]), GRID, POLICIES)
    assert all(
        branch.distribution is None and "too many states" in branch.problem
        for branch in explanation.branches
        if not branch.nominal
    )


def random_world(
    seed: int, states: int, length: int
) -> tuple[MDP, tuple[tuple[int, int | None], ...], dict[str, PolicyTable]]:
    """A model of two actions with dense random rows, a possible path in it, and two policies."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(states), size=(states, 2))
    model = MDP.from_transitions(
        states=states,
        actions=2,
        transitions=[(s, a, t, float(rows[s, a, t])) for s in range(states) for a in range(2) for t in range(states)],
        labels={"bad": [states - 1], "good": [states - 2]},
    )
    path = tuple((int(rng.integers(states)), int(rng.integers(2))) for _ in range(length))
    tables = {
        "nominal": as_table(rng.integers(2, size=states).tolist(), model),
        "fallback": as_table(rng.dirichlet(np.ones(2), size=states), model),
    }
    return model, path, tables
