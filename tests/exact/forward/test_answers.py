"""What lies ahead of the last pair: the action taken there, known or not, and what it says about other choices."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.causal import CounterfactualWorld, Intervention, conditional_choices
from monitor.evaluation import check
from monitor.exact import Checker, tables
from monitor.exact.evaluators import Evaluators
from monitor.exact.forward import answers
from monitor.exact.forward.codes import DONE
from monitor.exact.forward.evaluator import Evaluator
from monitor.exact.forward.observation import Context
from monitor.exact.forward.row_table import EXACT
from monitor.logic import parse
from monitor.logic.syntax import Goal, Reward
from monitor.model import MDP
from monitor.types import CausalModel
from tests.exact.calls import followed_worlds
from tests.exact.forward.case import CLOSE, a_case, accumulated, pending
from tests.exact.small import LAW, chances, exact, telling_world

CORRIDOR = MDP.from_transitions(
    states=6,
    actions=2,
    transitions=[(s, a, min(s + 1 + a, 5), 1.0) for s in range(6) for a in range(2)],
    rewards=[(s, a, 10.0 * s + a) for s in range(6) for a in range(2)],
)


@pytest.mark.parametrize("causal_model", ["any", "stable"])
@pytest.mark.parametrize(
    ("usual", "path", "world", "steps", "earned"),
    [
        (1, [(0, 1), (2, 0)], "nominal@0", 1, 20 + 31),
        (1, [(0, 1), (2, 0)], "same[1]@1", 2, 1 + 20 + 31),  # the nominal law is back at the last pair
        (1, [(0, 1), (2, 0)], "same@1", 2, 1 + 21 + 41),  # it goes on, and takes its own action there
        (0, [(0, 0), (1, 1)], "nominal@0", 1, 11 + 30),
        (0, [(0, 0), (1, 1)], "same[1]@1", 2, 0 + 11 + 30),
        (0, [(0, 0), (1, 1)], "same@1", 2, 0 + 10 + 20),
    ],
)
def test_the_last_action_is_that_which_was_taken(  # noqa: PLR0917 - columns of the table
    usual: int, path: list[tuple[int, int]], world: str, steps: int, earned: int, causal_model: CausalModel
) -> None:
    """Where the nominal policy would have taken the other one."""
    policies = {"nominal": [usual] * 6, "same": [usual] * 6}
    text = f"{world}.R=? [ C<={steps} ]"
    verdict = check(text, model=CORRIDOR, path=path, policies=policies, causal_model=causal_model)
    assert verdict.value == earned
    assert verdict.bounds == (earned, earned)


def test_only_the_queried_start_point_is_evaluated() -> None:
    """And the rewards up to the last pair count once, whichever law was in force when."""
    policies = {"nominal": [1] * 6, "same": [1] * 6}
    worlds = Evaluators(CORRIDOR, tables(policies, CORRIDOR))
    path, measure = ((0, 1), (2, 1), (4, 0)), Reward(0, 2)
    for steps in (None, 1, 2, 3):
        world = CounterfactualWorld.at(path, 0, worlds.nominal(), Intervention(worlds.policies["same"], steps))
        assert worlds.value(world, measure) == 1 + 21 + (40 if steps in (1, 2) else 41)
    track = Checker(CORRIDOR, tables(policies, CORRIDOR)).incremental_check(parse("same@2.R=? [ C<=2 ]"), window=9)
    (line,) = followed_worlds(track.path_values)
    for end in (1, 2, 3):
        track.verdict(path[:end], 1)
        assert np.isfinite(line.buffers.values).tolist() == [True, False, False]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("path", ['F<=4 ("a" & X X X "a")', '("a" & X X "a") | (!"a" & X ("b" & X !"a"))'])
def test_start_points_with_different_obligations_are_evaluated_together(path: str, seed: int) -> None:
    small = telling_world(seed, length=5, support=2)
    checker = Checker(small.model, tables(small.policies, small.model))
    pairs = [(state, 0 if action is None else action) for state, action in small.setting.path]
    goal = parse(f"alt@4.P=? [ {path} ]")
    assert isinstance(goal, Goal)
    followed = checker.along(goal, pairs)
    for end in range(1, 6):
        part = replace(small, setting=replace(small.setting, path=tuple(pairs[:end])))
        for offset in range(end):
            expected = float(exact(part, f"alt@{offset}.P=? [ {path} ]"))
            assert followed[end - 1, offset] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("policy", ["alt", "nominal"])
def test_an_unknown_action_is_no_evidence(seed: int, policy: str) -> None:
    """From the last pair on no causal model differs: bounds are the value."""
    small = telling_world(seed, stochastic=True, length=1, open_end=True)
    text = f'{policy}@0.P=? [ X ("a" | X "b") ]'
    expected = float(exact(small, text))
    verdict = small.ask(text, causal_model="any")
    assert verdict.value == pytest.approx(expected, abs=1e-12)
    assert verdict.bounds == pytest.approx((expected, expected), abs=1e-12)


@LAW
@given(chances)
def test_values_after_each_pair_are_those_of_the_twin(chance: Random) -> None:
    """From each start point, by whichever way the pairs are taken in."""
    case = a_case(chance, nested=chance.random() < 0.2)
    if chance.random() < 0.3:
        case = case.without_last_action()
    evaluator, length = case.evaluator(), len(case.path)
    expected = np.full((length, length), np.nan)
    for n in range(length):
        for start in range(n + 1):
            twin = case.twin(n - start, n + 1)
            expected[n, start] = float(twin.value(0, *twin.first))
    buffers = case.buffers()
    for n, (state, action) in enumerate(case.path):
        evaluator.push(buffers, state, action, answered=True)
        np.testing.assert_allclose(buffers.values[: n + 1], expected[n, : n + 1], rtol=0, atol=CLOSE)
    values = np.full((length, length), np.nan)
    evaluator.push_all(case.buffers(), case.arrays(), values)
    np.testing.assert_allclose(values, expected, rtol=0, atol=CLOSE)
    for oldest in range(length):
        buffers = case.buffers(queried_start=oldest)
        evaluator.push_all(buffers, case.arrays())
        evaluator.answer(buffers)
        assert buffers.values[0] == pytest.approx(expected[-1, length - 1 - oldest], abs=CLOSE)


@LAW
@given(chances)
def test_weights_times_values_are_the_same_number_after_each_pair(chance: Random) -> None:
    """Where the weights stop the values begin: the compiled ones forward, those of the twin backward."""
    case = a_case(chance)
    evaluator, buffers, twin = case.evaluator(), case.buffers(0), case.twin(0)
    value = float(twin.value(0, *twin.first))
    for k, (state, action) in enumerate(case.path):
        evaluator.push(buffers, state, action, answered=False)
        ahead = sum(weight * float(twin.value(k, *node)) for node, weight in pending(evaluator, buffers, 0).items())
        assert accumulated(buffers, 0) + ahead == pytest.approx(value, abs=CLOSE)


@LAW
@given(chances)
def test_values_after_the_last_pair_are_those_of_the_twin(chance: Random) -> None:
    """In every state that may be met there, not only in those that have some weight."""
    case = a_case(chance, nested=chance.random() < 0.2, stochastic=True)
    if chance.random() < 0.3:
        case = case.without_last_action()
    evaluator, buffers, twin = case.evaluator(), case.buffers(0), case.twin(0)
    evaluator.push_all(buffers, case.arrays())
    offset, last = twin.observed, case.path[-1]
    context = with_all_tables(evaluator, offset)
    for column, cells in enumerate(evaluator.unrolled.obligations):
        for state in range(case.states) if offset in cells else ():
            value, status = answers.value_at_last_pair(context, offset, column, state, *last)
            assert status == DONE
            assert value == pytest.approx(float(twin.value(offset, state, cells[offset])), abs=CLOSE)


def with_all_tables(evaluator: Evaluator, offset: int) -> Context:
    """Return what the compiled loops work on, with the values of all that can be pending at an offset and the next."""
    for cells in evaluator.unrolled.obligations:
        for k in {offset, offset + 1} & cells.keys():
            evaluator.value_table.all_values(k, cells[k])
    evaluator._find_vectors()  # noqa: SLF001 - as after each new table
    return evaluator._context(EXACT)  # noqa: SLF001 - what the compiled loops are given


def test_the_last_action_says_something_about_the_others_by_hand() -> None:
    """As in docs/semantics/formulas.md, section 7: nominal takes 0 with .75, the query with .5."""
    one = MDP.from_transitions(
        states=3,
        actions=2,
        transitions=[(0, 0, 1, 1.0), (0, 1, 2, 1.0), *((s, a, s, 1.0) for s in (1, 2) for a in (0, 1))],
        labels={"left": [1]},
    )
    policies = {"nominal": [[0.75, 0.25]] * 3, "even": [[0.5, 0.5]] * 3}
    stayed = conditional_choices(np.array([0.75, 0.25]), 0, np.array([0.5, 0.5]))[0]
    verdict = check('even@0.P=? [ X "left" ]', model=one, path=[(0, 0)], policies=policies)
    assert verdict.value == pytest.approx(stayed, abs=1e-12)
    assert stayed != 0.5
