"""Uses of rows, against a sum over every node of the chain in fractions."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.causal import CounterfactualWorld
from monitor.errors import LimitError
from monitor.exact import row_uses as module
from monitor.exact.evaluators import Evaluators
from monitor.exact.row_uses import RowUses, row_uses
from monitor.logic import FALSE, TRUE, parse
from monitor.logic.printer import print_change
from monitor.logic.syntax import Goal, Reward
from tests.exact.forward.twin import Twin
from tests.exact.learned import Learned, learned_world
from tests.exact.small import LAW, chances, question
from tests.oracle.evaluate import Evaluator as Oracle
from tests.oracle.syntax import Change

CLOSE = 1e-12
CHANGES = {
    "nominal": Change("nominal", "", None),
    "alt": Change("policy", "alt", None),
    "alt[1]": Change("policy", "alt", 1),
    "do(1)": Change("do", "1", None),
}


def used(learned: Learned, goal: Goal, position: int, end: int | None = None) -> RowUses:
    evaluators = Evaluators(learned.model, learned.policies)
    path = learned.setting.path
    nominal = evaluators.nominal(end, until=len(path) - 1 - position)
    world = CounterfactualWorld.at(
        path, position, nominal, evaluators.intervention(goal.world.change, end), evaluators.rows
    )
    return row_uses(world, evaluators.value_table(world.law, goal.measure), goal.measure)


def by_definition(
    learned: Learned, goal: Goal, position: int
) -> tuple[dict[int, Fraction], dict[tuple[int, int], Fraction], dict[int, Fraction]]:
    """Return weights and spread by row, and moves by (row, successor), from the levels of the twin."""
    evaluators, setting = Evaluators(learned.model, learned.policies), learned.setting
    automaton = evaluators.value_table(evaluators.nominal(), goal.measure).automaton
    said = CHANGES[print_change(goal.world.change)]
    twin = Twin(Oracle(setting), said, automaton, position, len(setting.path))
    weights: defaultdict[int, Fraction] = defaultdict(Fraction)
    moves: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    spread: defaultdict[int, Fraction] = defaultdict(Fraction)
    extras = list(setting.transition_rewards.values()) or [Fraction(0)]
    longest = Fraction(max([*extras, *_zero(learned)]) - min([*extras, *_zero(learned)]))
    depends = any(setting.transition_rewards.values())
    level, k = twin.levels()[0], 0
    while level.weights:
        glued = setting.path[position + k] if k < twin.observed else None
        for (state, obligation), weight in level.weights.items():
            for action, chance in twin.actions(k, state).items():
                rest = automaton.step(obligation, twin.label_set(k, state, action))
                counts = rest not in (FALSE, TRUE) or (automaton.rewards(obligation) and depends)
                if not counts or (state, action) == glued:
                    continue
                row, ahead = twin.successors(k, state, action), {}
                for successor in row:
                    earned = twin.reward(k, state, action, successor) if automaton.rewards(obligation) else Fraction(0)
                    ahead[successor] = earned + twin.value(k + 1, successor, rest)
                mean = sum(row[successor] * ahead[successor] for successor in row)
                number = state * setting.actions + action
                weights[number] += weight * chance
                steps = automaton.horizon(obligation) if isinstance(goal.measure, Reward) else 1
                spread[number] += weight * chance * steps * (longest if isinstance(goal.measure, Reward) else 1)
                for successor in row:
                    moves[number, successor] += weight * chance * (ahead[successor] - mean)
        level, k = twin.advanced(k, level), k + 1
    return weights, moves, spread


def _zero(learned: Learned) -> list[Fraction]:
    """Return a reward of 0 if a transition has none."""
    transitions = sum(len(row) for row in learned.setting.rows.values())
    return [Fraction(0)] * (len(learned.setting.transition_rewards) < transitions)


def assert_as_defined(learned: Learned, goal: Goal, position: int) -> None:
    uses, model = used(learned, goal, position), learned.model
    weights, moves, spread = by_definition(learned, goal, position)
    rows = np.repeat(np.arange(len(model.indptr) - 1), np.diff(model.indptr)).tolist()
    expected = [float(moves.get((row, t), 0)) for row, t in zip(rows, model.successors.tolist(), strict=True)]
    assert np.allclose(uses.weights, [float(weights.get(r, 0)) for r in range(len(uses.weights))], rtol=0, atol=CLOSE)
    assert np.allclose(uses.moves, expected, rtol=0, atol=CLOSE)
    assert np.allclose(uses.spread, [float(spread.get(r, 0)) for r in range(len(uses.spread))], rtol=0, atol=CLOSE)


@LAW
@given(chances)
def test_uses_are_the_sums_over_every_node(chance: Random) -> None:
    learned = learned_world(chance, rewards=chance.random() < 0.5)
    goal = parse(question(chance, chance.choice(list(CHANGES))))
    assert isinstance(goal, Goal)
    evaluators = Evaluators(learned.model, learned.policies)
    if evaluators.constant(goal.measure) is None:
        assert_as_defined(learned, goal, chance.randrange(len(learned.setting.path)))


def test_an_ended_episode_uses_no_row_of_the_state_it_ended_in() -> None:
    learned = learned_world(Random(3))
    goal = parse('alt.P=? [ G<=9 !"a" ]')
    assert isinstance(goal, Goal)
    path = learned.setting.path
    last = path[-1][0]
    here = slice(last * 2, last * 2 + 2)
    alive, ended = used(learned, goal, len(path) - 1), used(learned, goal, len(path) - 1, end=last)
    assert not ended.weights[here].any()
    assert alive.weights[here].any()


def test_of_two_worlds_the_second_may_be_subtracted() -> None:
    learned = learned_world(Random(5))
    goal = parse('alt.P=? [ F<=3 "b" ]')
    assert isinstance(goal, Goal)
    one, other = used(learned, goal, 0), used(learned, goal, 0)
    weights = one.weights.copy()
    one.add(other, sign=-1.0)
    assert np.array_equal(one.weights, 2 * weights)
    assert not one.moves.any()


def test_a_path_with_too_many_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_USES", 0)
    learned = next(w for w in map(learned_world, map(Random, range(9))) if len(w.setting.path) > 1)
    goal = parse('alt.P=? [ F<=3 ("a" & !"a") ]')
    assert isinstance(goal, Goal)
    with pytest.raises(LimitError, match="MAX_USES"):
        used(learned, goal, 0)
