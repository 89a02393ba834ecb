"""Bounds by the loops, forward and back over what is reached, as by carrying whole histories, one cell at a time."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import linprog

from monitor.causal import CounterfactualWorld
from monitor.causal.row import extreme
from monitor.exact import Checker, tables
from monitor.exact.evaluators import Evaluators, pair_arrays
from monitor.exact.forward import bounds, row_table
from monitor.exact.forward import buffers as buffers_module
from monitor.exact.forward.buffers import EDGES, NODES, OFFSETS, Workspace
from monitor.exact.forward.codes import DONE, LEVELS_FULL
from monitor.exact.forward.evaluator import Evaluator
from monitor.exact.forward.row_table import ANY, STABLE, RowTable
from monitor.exact.history import HistoryChain
from monitor.logic import FALSE, TRUE, parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from tests.exact.calls import note_calls
from tests.exact.forward.case import CLOSE, a_case, bounded, own
from tests.exact.forward.test_evaluator import RING, ring_path
from tests.exact.small import LAW, chances, telling_world

TEXTS = (
    'F<=4 ("a" & X X X "a")',  # eight columns for two labels
    'F<=3 ("a" & G[1,2] ("b" | X "a"))',
    '("a" & X X "b") | (!"a" & X ("b" & X "a"))',  # a column in use below one that is not
    'F<=1 alt@0.P>0.5 [ X "a" ]',
)


@pytest.mark.parametrize("space", ["enough", "little"])
@pytest.mark.parametrize("kind", ["any", "stable"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(4))
def test_bounds_by_levels_are_those_by_cells(
    seed: int, text: str, kind: Literal["any", "stable"], space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if space == "little":
        monkeypatch.setattr(buffers_module, "INITIAL_NODES", 1)
    small = telling_world(seed, stochastic=seed % 2 == 0, length=5)
    worlds = Evaluators(small.model, tables(small.policies, small.model), small.models)
    for change in ("alt@4", "alt[1]@3", "model:icy@4"):
        goal = parse(f"{change}.P=? [ {text} ]")
        assert isinstance(goal, Goal)
        path = [(state, 0 if action is None else action) for state, action in small.setting.path]
        intervention = worlds.intervention(goal.world.change, None)
        world = CounterfactualWorld.at(path, 4 - goal.world.offset, worlds.nominal(), intervention)
        value_table = worlds.value_table(world.law, goal.measure)
        by_cells = HistoryChain(world, value_table.automaton, value_table.labelling, {}, kind).interval()
        assert worlds.interval(world, goal.measure, kind) == pytest.approx(by_cells, abs=1e-12)
        mine = own(worlds, goal)
        ends = mine.evaluator.interval(pair_arrays(world.path), ANY if kind == "any" else STABLE)
        assert ends == pytest.approx(by_cells, abs=1e-12)
        levels = mine.workspace.levels
        for begin, end in pairwise(levels.first_node[: len(world.path) + 1]):
            nodes = list(zip(levels.column[begin:end], levels.state[begin:end], strict=True))
            assert len(set(nodes)) == len(nodes)


def test_more_transitions_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = tables({"nominal": [0] * 8, "alt": [1] * 8}, RING)
    goal, path = parse('alt@4.P=? [ F<=9 "bad" ]'), ring_path(12)
    assert isinstance(goal, Goal)
    expected = own(Evaluators(RING, policies), goal).evaluator.interval(pair_arrays(path), ANY)
    followed = Checker(RING, policies).along(goal, path)
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (1, 256, 256, 2048))  # all rows fit
    assert own(Evaluators(RING, policies), goal).evaluator.interval(pair_arrays(path), ANY) == expected
    np.testing.assert_array_equal(Checker(RING, policies).along(goal, path), followed)


def test_rows_of_one_path_are_not_those_of_another() -> None:
    """Many transitions, and the same states at each: what is remembered of one is not taken for another."""
    policies = tables({"nominal": [0] * 8, "alt": [1] * 8}, RING)
    worlds, goal = Evaluators(RING, policies), parse('alt@4.P=? [ F<=9 "bad" ]')
    assert isinstance(goal, Goal)
    evaluator, path = own(worlds, goal).evaluator, ring_path(60)
    for begin in range(0, 54, 3):
        pairs = pair_arrays(path[begin : begin + 6])
        assert evaluator.interval(pairs, ANY) == own(worlds, goal).evaluator.interval(pairs, ANY)


@pytest.mark.parametrize(("kind", "number"), [("any", ANY), ("stable", STABLE)])
@LAW
@given(chance=chances)
def test_bounds_of_each_node_are_those_of_the_twin(chance: Random, kind: str, number: int) -> None:
    """At each offset, from what is chosen at the last observed transition to the value itself."""
    case = a_case(chance, nested=chance.random() < 0.2)
    mine, twin = own(case.evaluators, case.goal), case.twin(0)
    bounds = mine.evaluator.interval(case.arrays(), number)
    assert bounds == pytest.approx([float(end) for end in twin.bounds(0, *twin.first, kind)], abs=CLOSE)
    levels = twin.levels()
    for offset, level in enumerate(levels):
        found = bounded(mine, offset)
        assert level.weights.keys() <= found.keys()  # what has weight in one causal model of the class is reached
        for node, ends in found.items():
            expected = [float(end) for end in twin.bounds(offset, *node, kind)]
            assert ends == pytest.approx(expected, abs=CLOSE)
            assert ends[0] - CLOSE <= float(twin.value(offset, *node)) <= ends[1] + CLOSE


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("kind", "number"), [("any", ANY), ("stable", STABLE)])
@pytest.mark.parametrize("text", ['alt@3.P=? [ F<=4 ("a" & X X "b") ]', "alt@3.R=? [ C[1,4] ]"])
def test_the_choice_at_a_node_is_the_optimum_of_a_linear_program(text: str, kind: str, number: int, seed: int) -> None:
    """Of the distributions within the ranges, given the values of the nodes that they lead to: by another solver."""
    case = a_case(Random(seed), text=text, length=4)
    mine, twin = own(case.evaluators, case.goal), case.twin(0)
    mine.evaluator.interval(case.arrays(), number)
    levels = [bounded(mine, offset) for offset in range(4)]
    for offset in range(3):
        for (state, obligation), ends in levels[offset].items():
            for n, sign in enumerate((1.0, -1.0)):
                total = 0.0
                for action, chance in twin.actions(offset, state).items():
                    rest = twin.automaton.step(obligation, twin.label_set(offset, state, action))
                    ranges = twin.ranges(offset, state, action, kind)
                    pays = twin.automaton.rewards(obligation)
                    values = [
                        (float(twin.reward(offset, state, action, s)) if pays else 0.0)
                        + (float(rest == TRUE) if rest in (FALSE, TRUE) else levels[offset + 1][s, rest][n])
                        for s, _, _ in ranges
                    ]
                    limits = [(float(low), float(high)) for _, low, high in ranges]
                    best = linprog(sign * np.array(values), A_eq=np.ones((1, len(values))), b_eq=[1.0], bounds=limits)
                    total += float(chance) * sign * best.fun
                assert ends[n] == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_forward_and_backward_are_the_two_halves_of_an_interval(seed: int) -> None:
    """What lies between them, the values at the last pair, may come from elsewhere."""
    case = a_case(Random(seed), text='alt@3.P=? [ F<=5 ("a" & X X "b") ]', length=4)
    (evaluator, _, _, workspace), pairs = own(case.evaluators, case.goal), case.arrays()
    whole, last = evaluator.interval(pairs, ANY), len(pairs[0]) - 1
    context, levels = evaluator._context(ANY), workspace.levels  # noqa: SLF001 - what the compiled loops are given
    low, high = np.asarray(levels.low), np.asarray(levels.high)
    nodes = slice(*levels.first_node[last : last + 2])
    closed = low[nodes].copy()
    low[:] = high[:] = np.nan
    assert bounds.forward(context, levels, *pairs) == DONE
    low[nodes] = high[nodes] = closed
    found = np.zeros(2)
    bounds.backward(context, levels, last, found)
    assert tuple(found) == whole


def test_each_part_that_is_too_small_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking: list[tuple[int, int]] = []
    monkeypatch.setattr(buffers_module, "INITIAL_NODES", 1)
    note_calls(
        monkeypatch,
        Evaluator,
        "_provide",
        lacking,
        lambda _, status, context, *__: (status, context.workspace.missing[0]),
    )
    case = a_case(Random(1), text='alt@3.P=? [ F<=5 ("a" & X X "b") ]', length=5)
    bounded_value = case.evaluator().interval(case.arrays(), ANY)
    twin = case.twin(0)
    assert {part for status, part in lacking if status == LEVELS_FULL} == {OFFSETS, NODES, EDGES}
    assert bounded_value == pytest.approx([float(end) for end in twin.bounds(0, *twin.first, "any")], abs=CLOSE)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_means_by_ranks_are_those_of_the_greedy_choice(seed: int, ties: bool) -> None:  # noqa: FBT001 - a case
    """To the bit, for every row of one column of a level: also where values are equal, low and high differ or agree."""
    random = np.random.default_rng(seed)
    size, count = 200, 90
    states = random.permutation(size)[:count].astype(np.int32)
    low = random.integers(0, 4, count) / 3 if ties else random.random(count)
    high = low if seed % 2 else low + (random.integers(0, 3, count) / 7 if ties else random.random(count))
    table, workspace = RowTable(ANY, size, 1), Workspace(size)
    levels = workspace.levels
    levels.grow(NODES, count)
    for array, numbers in ((levels.state, states), (levels.low, low), (levels.high, high)):
        np.asarray(array)[5 : count + 5] = numbers
    np.asarray(workspace.state_node)[states] = np.arange(5, count + 5)
    bounds.rank_states(workspace, levels, 5, count + 5)
    for length in (1, 2, 9, 33, count):
        nodes = random.permutation(count)[:length]
        nodes = nodes[np.argsort(states[nodes])]
        share = random.dirichlet(np.full(length, 0.5))
        lower, upper = np.maximum(share - 0.1, 0.0), np.minimum(1.0, share * random.choice([1.0, 1.5, 8.0]))
        for array, numbers in ((table.successors, states[nodes]), (table.lower, lower), (table.upper, upper)):
            np.asarray(array)[3 : length + 3] = numbers
        found = bounds.ranked_means(table, workspace, levels, 3, length + 3, count)
        expected = extreme(lower, upper, low[nodes], largest=False), extreme(lower, upper, high[nodes], largest=True)
        assert found == expected
        assert not np.asarray(levels.marked).any()


@pytest.mark.parametrize("kind", ["any", "stable"])
@pytest.mark.parametrize("text", ['F<=4 "a"', '("a" & X X "b") | (!"a" & X ("b" & X "a"))', 'G[1,3] "b"'])
def test_bounds_over_long_rows_are_those_by_cells(text: str, kind: Literal["any", "stable"]) -> None:
    """Rows of a dozen to thirty successors of forty states, a choice between policies, and some rows that are short."""
    random = np.random.default_rng(len(text))
    transitions = [
        (s, a, t, p)
        for s in range(40)
        for a in range(2)
        for n in (int(random.integers(2, 30)),)
        for t, p in zip(random.permutation(40)[:n].tolist(), random.dirichlet(np.ones(n)).tolist(), strict=True)
    ]
    labels = {name: np.flatnonzero(random.random(40) < 0.6).tolist() for name in "ab"}
    model = MDP.from_transitions(states=40, actions=2, transitions=transitions, labels=labels)
    policies = {"nominal": [0] * 40, "alt": random.dirichlet(np.ones(2), 40)}
    worlds = Evaluators(model, tables(policies, model))
    path = [(0, 0)]
    while len(path) < 4:
        path.append((int(random.choice(model.row(*path[-1])[0])), 0))
    goal = parse(f"alt@3.P=? [ {text} ]")
    assert isinstance(goal, Goal)
    world = CounterfactualWorld.at(path, 0, worlds.nominal(), worlds.intervention(goal.world.change, None))
    value_table = worlds.value_table(world.law, goal.measure)
    by_cells = HistoryChain(world, value_table.automaton, value_table.labelling, {}, kind).interval()
    assert worlds.interval(world, goal.measure, kind) == pytest.approx(by_cells, abs=1e-12)
    assert by_cells[0] < by_cells[1]


@pytest.mark.parametrize("seed", range(6))
def test_means_of_short_rows_are_those_of_the_greedy_choice(seed: int) -> None:
    random = np.random.default_rng(seed)
    table, levels = RowTable(ANY, 12, 1), Workspace(12).levels
    for length in range(1, 9):
        share = random.dirichlet(np.full(length, 0.5))
        lower, upper = np.maximum(share - 0.2, 0.0), np.minimum(1.0, share * random.choice([1.0, 1.5, 8.0]))
        values = random.integers(-2, 3, (2, 12)) / 3  # with ties, and longer than the row
        for array, numbers in ((table.lower, lower), (table.upper, upper)):
            np.asarray(array)[:10] = 9.0
            np.asarray(array)[1 : length + 1] = numbers
        np.asarray(levels.row_values)[:] = values
        found = bounds.short_means(table, levels, 1, length + 1)
        least = extreme(lower, upper, values[0], largest=False)
        assert found == (least, extreme(lower, upper, -values[1], largest=True))
