"""The loops' own parts that answers alone do not show: the order in which nodes are added up."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.exact import Checker, tables
from monitor.exact.evaluators import Evaluators, pair_arrays
from monitor.exact.forward import buffers as buffers_module
from monitor.exact.forward import observation, row_table
from monitor.exact.forward.buffers import ForwardBuffers, Workspace
from monitor.exact.forward.codes import FORWARD_FULL, SCRATCH_FULL, TABLE_FULL
from monitor.exact.forward.evaluator import Evaluator
from monitor.exact.forward.row_table import EXACT, RowTable
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from tests.exact.calls import note_calls
from tests.exact.forward.case import CLOSE, a_case, accumulated, assert_close, evaluator_of, own, pending
from tests.exact.forward.test_row_table import entry
from tests.exact.small import LAW, chances
from tests.mutation.test_questions import call_every_model_large


@pytest.mark.parametrize(("states", "nodes"), [(10, 2), (10, 9), (400, 30), (4000, 300), (1000, 1), (8, 1)])
@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("descending", [False, True])
def test_nodes_are_put_in_the_order_of_their_states(states: int, nodes: int, start: int, *, descending: bool) -> None:
    """By looking through all states, by insertion, or by a sort, whichever is the quickest."""
    met = Random(states + nodes).sample(range(states), nodes)
    if descending:
        met.sort(reverse=True)
    workspace, last = Workspace(states), start + nodes
    while len(workspace.states) < last + 2:
        workspace.grow()
    state_stamp, state_node = np.asarray(workspace.state_stamp), np.asarray(workspace.state_node)
    held, by_state = np.asarray(workspace.states), np.asarray(workspace.by_state)
    held[:last], by_state[:] = [states - 1] * start + met, np.arange(len(by_state))
    state_stamp[:] = workspace.node_clock - 1
    state_stamp[met], state_node[met] = workspace.node_clock, np.arange(start, last)
    observation.sort_nodes(workspace, start, last)
    assert held[by_state[start:last]].tolist() == sorted(met)
    assert by_state[:start].tolist() == list(range(start))
    assert by_state[last : last + 2].tolist() == [last, last + 1]


def test_overlap_of_a_row_with_the_observed_successors() -> None:
    rows, workspace = RowTable(EXACT, 40, 1), Workspace(40, share_prior_rows=True)
    first = entry(rows, 0, 1, 20)  # successors 20, 21, 25, 29
    observed_stamp, now = np.asarray(workspace.observed_stamp), workspace.edge_clock
    observed_stamp[:] = now - 1
    assert not observation.shares_successor(rows, workspace, first)
    observed_stamp[[21, 3]] = now
    assert observation.shares_successor(rows, workspace, first)
    observed_stamp[21] = now - 1
    assert not observation.shares_successor(rows, workspace, first)


WIDE = MDP.from_transitions(
    states=12,
    actions=2,
    transitions=[
        (s, a, (s + k) % 12, p) for s in range(12) for a, k, p in ((0, 0, 0.5), (0, 1, 0.5), (1, 5, 0.75), (1, 7, 0.25))
    ],
    rewards=[(s, a, float(s % 5 + a)) for s in range(12) for a in range(2)],
    labels={"bad": [0, 7]},
)
"""By action 0 a state stays or goes on by one, by action 1 it is led elsewhere: few rows share a successor."""
ROUND = [(0, 0), (0, 1), (5, 0), (6, 0), (6, 1), (1, 1), (8, 0), (8, 1), (1, 0), (2, 0), (2, 1), (9, 0)]
"""The nominal policy takes action 0: half of this is not its own."""


def buffers_of(evaluator: Evaluator, starts: int) -> ForwardBuffers:
    """Return empty buffers for so many start points."""
    return ForwardBuffers(starts, -1, evaluator.unrolled.horizon)


@pytest.mark.parametrize("text", ['P=? [ G<=6 !"bad" ]', "R=? [ C<=6 ]"])
@pytest.mark.parametrize("world", ["nominal@4", "alt@4", "alt[2]@4", "mix@4", "mix[1]@4"])
def test_rows_that_a_step_says_nothing_about_are_those_of_the_model(
    world: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large model they are kept once for all transitions: the same numbers."""
    policies = tables({"nominal": [0] * 12, "alt": [1] * 12, "mix": [[0.5, 0.5]] * 12}, WIDE)
    goal = parse(f"{world}.{text}")
    assert isinstance(goal, Goal)
    expected = Checker(WIDE, policies).along(goal, ROUND)
    call_every_model_large(monkeypatch)
    np.testing.assert_allclose(Checker(WIDE, policies).along(goal, ROUND), expected, atol=1e-12)
    mine, computed = own(Evaluators(WIDE, policies), goal), list[int]()
    assert mine.dynamics.share_prior_rows
    for _ in range(2):
        values = np.full(expected.shape, np.nan)
        mine.evaluator.push_all(buffers_of(mine.evaluator, 5), pair_arrays(ROUND), values)
        np.testing.assert_allclose(values, expected, atol=1e-12)
        computed.append(mine.rows(EXACT).computed)
    assert computed[0] == computed[1]  # the second time all of it is known


@pytest.mark.parametrize("text", ['P=? [ G<=6 !"bad" ]', "R=? [ C<=6 ]"])
@pytest.mark.parametrize("end", range(1, len(ROUND) + 1))
def test_weights_restarted_hold_nothing_of_those_before(end: int, text: str) -> None:
    policies = tables({"nominal": [0] * 12, "alt": [1] * 12}, WIDE)
    goal = parse(f"alt@3.{text}")
    assert isinstance(goal, Goal)
    checker = Checker(WIDE, policies)
    alone = checker.along(goal, ROUND[5:])
    evaluator, found = evaluator_of(checker.evaluators, goal), np.full(alone.shape, np.nan)
    buffers = buffers_of(evaluator, 4)
    evaluator.push_all(buffers, pair_arrays(ROUND[:end]))
    buffers.restart()
    evaluator.push_all(buffers, pair_arrays(ROUND[5:]), found)
    for n in range(len(found)):
        np.testing.assert_array_equal(found[n, : n + 1], alone[n, : n + 1])


@pytest.mark.parametrize("first", [1, 2, 3, 5, 7])
def test_any_initial_size_will_do(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    goal = parse('mix@4.P=? [ F<=4 ("bad" & X X X !"bad") ]')
    assert isinstance(goal, Goal)
    policies = tables({"nominal": [0] * 12, "mix": [[0.5, 0.5]] * 12}, WIDE)
    expected = Checker(WIDE, policies).along(goal, ROUND)
    monkeypatch.setattr(buffers_module, "INITIAL_NODES", first)
    monkeypatch.setattr(buffers_module, "INITIAL_FORWARD", (1, first))
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (first,) * 4)
    np.testing.assert_array_equal(Checker(WIDE, policies).along(goal, ROUND), expected)


@pytest.mark.parametrize("world", ["alt@4", "mix@4"])
def test_nodes_ascend_by_column_and_state(world: str) -> None:
    """Sums run along them: so no number depends on what else is queried, or was."""
    goal = parse(f'{world}.P=? [ F<=4 ("bad" & X X X !"bad") ]')
    assert isinstance(goal, Goal)
    policies = tables({"nominal": [0] * 12, "alt": [1] * 12, "mix": [[0.5, 0.5]] * 12}, WIDE)
    evaluator = evaluator_of(Evaluators(WIDE, policies), goal)
    buffers, most = buffers_of(evaluator, 5), 0
    for pair in ROUND:
        evaluator.push(buffers, *pair, answered=True)
        segments = buffers.segment_count
        assert (np.diff(buffers.column[:segments]) > 0).all()
        for g in range(segments):
            states = np.asarray(buffers.states)[buffers.first_node[g] : buffers.first_node[g + 1]]
            assert (np.diff(states) > 0).all()
            most = max(most, len(states))
    assert most > 3


def test_a_node_keeps_the_older_starts_when_a_later_edge_brings_newer_ones() -> None:
    """By action 1 the oldest start is in 0, the next in 2, and both go to 1: the edge from 0 is the first."""
    model = MDP.from_transitions(
        states=4,
        actions=2,
        transitions=[(s, a, t, 1) for a, row in enumerate(([0, 1, 3, 2], [1, 1, 1, 0])) for s, t in enumerate(row)],
        labels={"one": [1]},
    )
    goal = parse('alt@2.P=? [ F<=4 "one" ]')
    assert isinstance(goal, Goal)
    evaluator = evaluator_of(Evaluators(model, tables({"nominal": [0] * 4, "alt": [1] * 4}, model)), goal)
    buffers, values = buffers_of(evaluator, 3), np.full((3, 3), np.nan)
    evaluator.push_all(buffers, pair_arrays([(3, 0), (2, 0), (3, 0)]), values)
    assert values[-1].tolist() == [1.0, 1.0, 1.0]
    held = [
        [(states.tolist(), weights.tolist()) for _, states, weights in buffers.of_start(start)] for start in range(3)
    ]
    assert held == [[([3], [1.0])], [([1], [1.0])], [([1], [1.0])]]


@pytest.mark.parametrize("nested", [False, True])
@LAW
@given(chance=chances)
def test_weights_after_each_pair_are_those_of_the_twin(chance: Random, *, nested: bool) -> None:
    """Where goals are nested, the actions of a state are kept apart."""
    case = a_case(chance, nested=nested, length=chance.randint(1, 6))
    length = len(case.path)
    most = chance.choice((length, length, chance.randint(1, length)))
    evaluator, buffers = case.evaluator(), case.buffers(most)
    levels = [case.twin(begin).levels() for begin in range(length)]
    for n, (state, action) in enumerate(case.path):
        evaluator.push(buffers, state, action, answered=False)
        assert buffers.start_count == min(n + 1, most)  # the oldest are dropped
        for start in range(min(n + 1, most)):
            level = levels[n - start][start]
            assert_close(pending(evaluator, buffers, start), level.weights)
            assert accumulated(buffers, start) == pytest.approx(float(level.accumulated), abs=CLOSE)


@LAW
@given(chances)
def test_weights_from_the_first_pair_alone_are_those_of_the_twin(chance: Random) -> None:
    case = a_case(chance, length=4)
    evaluator, buffers = case.evaluator(), case.buffers(0)
    levels = case.twin(0).levels()
    for n, (state, action) in enumerate(case.path):
        evaluator.push(buffers, state, action, answered=False)
        assert (buffers.start_count, buffers.base_offset) == (1, n)
        assert_close(pending(evaluator, buffers, 0), levels[n].weights)
        assert accumulated(buffers, 0) == pytest.approx(float(levels[n].accumulated), abs=CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_lacks_something_has_changed_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken again once there is space for it."""
    monkeypatch.setattr(buffers_module, "INITIAL_NODES", 1)
    monkeypatch.setattr(buffers_module, "INITIAL_FORWARD", (1, 1))
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (1, 1, 1, 1))
    case = a_case(Random(seed), text='alt@4.P=? [ F<=4 ("a" & X X "b") ]', length=6)
    evaluator, buffers = case.evaluator(), case.buffers()
    before: list[object] = []
    lacking: list[int] = []

    def note(_: Evaluator, status: int, *__: object) -> int:
        assert held(buffers) in before
        return status

    note_calls(monkeypatch, Evaluator, "_provide", lacking, note)
    for state, action in case.path:
        before.append(held(buffers))
        evaluator.push(buffers, state, action, answered=False)
        before.clear()
    assert set(lacking) == {FORWARD_FULL, SCRATCH_FULL, TABLE_FULL}


def held(buffers: ForwardBuffers) -> object:
    """Return the newest pair and the weights after it."""
    starts = range(buffers.start_count)
    weights = [
        [(column, states.tolist(), some.tolist()) for column, states, some in buffers.of_start(j)] for j in starts
    ]
    return buffers.last_state, buffers.last_action, weights, [buffers.accumulated[j] for j in starts]
