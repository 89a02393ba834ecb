"""What a value rests on: against every path of a small learned model, and by two programs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.arrays import AnyArray
from monitor.evaluation.bands import LearnedBands
from monitor.evaluation.basis import FEW, basis_at_start, basis_of
from monitor.evaluation.credible import LearnedTable
from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.logic.printer import print_formula
from monitor.logic.syntax import Goal
from monitor.model import MDP
from monitor.referee import derive
from monitor.types import BandSettings, RestsOn
from tests.exact.learned import Learned, learned_model, learned_world
from tests.exact.small import LAW, chances, question
from tests.exact.test_row_uses import CHANGES, by_definition, used

CLOSE = 1e-9
START, BRIDGE, FALLEN, ELSEWHERE = range(4)
WALK, JUMP = 0, 1
SAFE = 'G<=6 !"fallen"'


def bridge(jumps: int = 3) -> MDP:
    """Twenty steps onto a bridge, three of ten back; from it some jumps that hold. Nobody jumped at the start."""
    draws = [(START, WALK, BRIDGE)] * 14 + [(START, WALK, START)] * 6
    draws += [(BRIDGE, WALK, START)] * 7 + [(BRIDGE, WALK, FALLEN)] * 3
    draws += [(BRIDGE, JUMP, BRIDGE)] * jumps + [(FALLEN, WALK, FALLEN), (FALLEN, JUMP, FALLEN)]
    return learned_model(4, 2, draws, {"fallen": frozenset({FALLEN, ELSEWHERE})})[0]


def checker(model: MDP, nimble: list[int] | AnyArray) -> Checker:
    return Checker(model, tables({"nominal": [WALK] * 4, "nimble": nimble}, model))


def counted(model: MDP, policy: list[dict[int, float]], start: int, steps: int) -> RestsOn:
    """Follow every path for some steps, or until it has fallen or left what was recorded; no engine of the monitor."""
    draws = np.asarray(model.counts.draws(model.indptr) if model.counts else [])
    uses: dict[tuple[int, int], float] = {}

    def follow(state: int, left: int, chance: float) -> None:
        if left == 0 or state in (FALLEN, ELSEWHERE):
            return
        for action, part in policy[state].items():
            uses[state, action] = uses.get((state, action), 0.0) + chance * part
            successors, probabilities = model.row(state, action)
            for successor, probability in zip(successors.tolist(), probabilities.tolist(), strict=True):
                follow(successor, left - 1, chance * part * probability)

    follow(start, steps, 1.0)
    times = {pair: int(draws[pair[0] * 2 + pair[1]]) for pair in uses}
    return RestsOn(
        steps=sum(times.values()),
        rare=sum(use for pair, use in uses.items() if times[pair] < 5) / sum(uses.values()),
        never=sum((use for pair, use in uses.items() if times[pair] == 0), 0.0),
    )


def close(one: RestsOn | None, other: RestsOn) -> bool:
    assert one is not None
    assert one.rare is not None
    assert other.rare is not None
    assert one.steps == other.steps
    return abs(one.rare - other.rare) <= CLOSE and abs(one.never - other.never) <= CLOSE


@pytest.mark.parametrize(
    "policy",
    [
        [{WALK: 1.0}] * 4,
        [{WALK: 1.0}, {JUMP: 1.0}, {WALK: 1.0}, {WALK: 1.0}],
        [{WALK: 0.75, JUMP: 0.25}, {WALK: 0.5, JUMP: 0.5}, {WALK: 1.0}, {WALK: 1.0}],
        [{JUMP: 1.0}] * 4,
    ],
)
def test_a_value_rests_on_what_its_paths_use(policy: list[dict[int, float]]) -> None:
    model = replace(bridge(), initial=np.eye(1, 4, START)[0])
    matrix = [[choice.get(action, 0.0) for action in (WALK, JUMP)] for choice in policy]
    engine = checker(model, np.array(matrix))
    formula = parse(f"regret(nimble@0, P>=0.9 [ {SAFE} ])")
    found = basis_at_start(engine.evaluators, formula)
    assert list(found) == ["nimble"]
    assert close(found["nimble"], counted(model, policy, START, 6))
    for state in (START, BRIDGE):  # and from an observed pair on, in the verdict
        verdict = LearnedBands(LearnedTable(engine.evaluators), BandSettings(draws=39)).added(
            engine.check(formula, [(state, WALK)]), formula, [(state, WALK)]
        )
        assert close(verdict.quantities[1].rests_on, counted(model, policy, state, 6))


def test_without_known_starts_it_begins_in_any_recorded_state_as_often_as_that_was_recorded() -> None:
    engine = checker(bridge(), [JUMP] * 4)
    found = basis_at_start(engine.evaluators, parse(f"P=? [ {SAFE} ]")) | basis_at_start(
        engine.evaluators, parse(f"nimble@3.P=? [ {SAFE} ]")
    )
    assert list(found) == ["nominal", "nimble"]
    assert found["nimble"].never == pytest.approx(20 / (20 + 13 + 2))  # at the start nobody has jumped


def test_only_learned_rows_can_be_counted() -> None:
    model = replace(bridge(), counts=None)
    assert basis_at_start(checker(model, [JUMP] * 4).evaluators, parse(f"nimble@0.P=? [ {SAFE} ]")) == {}


def test_of_a_difference_it_is_that_of_the_first_world_and_of_handover_that_of_what_is_handed_over_to() -> None:
    engine = checker(bridge(), [JUMP] * 4)
    alone = basis_at_start(engine.evaluators, parse(f"nimble@0.P=? [ {SAFE} ]"))
    for text in (f"delta(nimble,nominal)@0.P=? [ {SAFE} ]", f"handover(nimble, P>=0.9 [ {SAFE} ], 3) <= 0.1"):
        assert basis_at_start(engine.evaluators, parse(text)) == alone
    nested = parse(f"nimble@0.P=? [ F<=2 P>=0.9 [ {SAFE} ] ]")
    assert basis_at_start(engine.evaluators, nested) == {}
    decided = parse(f"regret(best@0, P>=0.9 [ {SAFE} ])")
    assert basis_at_start(engine.evaluators, decided) == {}


@LAW
@given(chances)
def test_both_programs_count_what_the_definition_says(chance: Random) -> None:
    learned = learned_world(chance, rewards=chance.random() < 0.5)
    goal = parse(question(chance, f"{chance.choice(list(CHANGES))}@{chance.randrange(4)}"))
    assert isinstance(goal, Goal)
    path, text = list(learned.setting.path), print_formula(goal)
    engine = Checker(learned.model, learned.policies)
    verdict = LearnedBands(LearnedTable(engine.evaluators), BandSettings(draws=39)).added(
        engine.check(goal, path), goal, path
    )
    found = verdict.quantities[0].rests_on
    position = max(len(path) - 1 - goal.world.offset, 0)
    if engine.evaluators.constant(goal.measure) is None:
        expected = _by_definition(learned, goal, position)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert close(found, expected)
            assert basis_of(used(learned, goal, position)) == found
    referee = derive(text, model=learned.model, path=path, policies=_tables(learned), basis=True, delta=None)
    other = referee.quantities[0].rests_on
    if other is not None and engine.evaluators.constant(goal.measure) is None:
        assert close(found, other)


def _by_definition(learned: Learned, goal: Goal, position: int) -> RestsOn | None:
    model, (weights, _, _) = learned.model, by_definition(learned, goal, position)
    assert model.counts is not None
    draws = model.counts.draws(model.indptr)
    elsewhere = model.counts.elsewhere
    uncertain = {row: weight for row, weight in weights.items() if weight and row // model.actions != elsewhere}
    total = sum(uncertain.values(), Fraction(0))
    if not total:
        return None
    return RestsOn(
        steps=sum(int(draws[row]) for row in uncertain),
        rare=float(sum((weight for row, weight in uncertain.items() if draws[row] < FEW), Fraction(0)) / total),
        never=float(sum((weight for row, weight in uncertain.items() if draws[row] == 0), Fraction(0))),
    )


def _tables(learned: Learned) -> dict[str, object]:
    return dict(learned.policies)
