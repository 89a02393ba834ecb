"""Which rows of the model, and which agents, the steps of a stream contradict: reports, snapshots, and shards."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from monitor.model import MDP
from monitor.runtime.monitor import Monitor, Saved
from monitor.runtime.resharding import MonitorParts, divided, joined
from monitor.types import Contradictions, Notice, Observation, StreamSettings, TrustSettings
from tests.runtime.test_marks import PATIENT, Stream, of

WALK, BRAKE = 0, 1
STATES, ACTIONS = ("hill", "plain", "bog"), ("walk", "brake")


@pytest.fixture
def hill() -> MDP:
    """From hill and plain walking leads to the other in nine of ten cases; nobody brakes, and the bog is never left."""
    rows = [(s, a, to, 0.9 if to != s else 0.1) for s in (0, 1) for a in (WALK, BRAKE) for to in (0, 1)]
    rows += [(2, WALK, 2, 1.0), (2, BRAKE, 2, 1.0)]
    return MDP.from_transitions(
        states=3, actions=2, transitions=rows, labels={"there": [1]}, state_names=STATES, action_names=ACTIONS
    )


def moves(draw: random.Random, steps: int, stays: Sequence[float]) -> list[int]:
    """States after 0, of an agent that stays in each with these probabilities."""
    state, found = 0, []
    for _ in range(steps):
        state = state if draw.random() < stays[state] else 1 - state
        found.append(state)
    return found


def walked(
    model: MDP, walks: Sequence[Sequence[int]], settings: StreamSettings = PATIENT
) -> tuple[Stream, list[Notice]]:
    stream = Stream(model, settings)
    told = stream.round([0] * len(walks))
    for states in zip(*walks, strict=True):
        told += stream.round(states)
    return stream, told


def test_a_wrong_row_is_named_with_what_was_seen_and_no_other(hill: MDP) -> None:
    draw = random.Random(1)
    _, told = walked(hill, [moves(draw, 300, (0.4, 0.1)) for _ in range(3)])
    (row,) = of(Contradictions, told)[-1].rows
    assert (row.state, row.action) == ("hill", "walk")
    assert row.successor in STATES
    assert abs(row.seen / row.visits - row.probability) == pytest.approx(0.3, abs=0.1)
    assert 200 < row.visits < 600  # not only those of the first report
    assert row.impossible == 0
    assert row.log10_e > 2.0
    assert len(of(Contradictions, told)) < 12  # where the names change, and every 256 transitions
    assert of(Contradictions, told)[-1].rows_rejected == 1
    assert of(Contradictions, told)[-1].rows_tested == 6


def test_while_the_model_is_right_nothing_is_named(hill: MDP) -> None:
    draw = random.Random(2)
    stream, told = walked(hill, [moves(draw, 300, (0.1, 0.1)) for _ in range(3)])
    assert of(Contradictions, told) == [Contradictions(rows_tested=6)]  # rows are tested, and nothing is wrong
    assert of(Contradictions, stream.monitor.current_state()) == [Contradictions(rows_tested=6)]


def test_an_agent_that_does_not_follow_the_model_is_named_beside_the_rows_that_it_spoils(hill: MDP) -> None:
    draw = random.Random(3)
    walks = [moves(draw, 150, stays) for stays in ((0.7, 0.7), (0.1, 0.1), (0.1, 0.1))]
    _, told = walked(hill, walks)
    last = of(Contradictions, told)[-1]
    assert [each.agent for each in last.agents] == ["ada"]
    assert last.agents_rejected == 1
    assert last.agents[0].log10_e > 2.0
    assert {(row.state, row.action) for row in last.rows} == {("hill", "walk"), ("plain", "walk")}


def test_a_row_that_leads_where_it_cannot_is_named_with_how_often() -> None:
    """From the top the model knows one way only."""
    rows = [(0, 0, 1, 1.0), (1, 0, 0, 0.5), (1, 0, 2, 0.5), (2, 0, 2, 1.0)]
    model = MDP.from_transitions(states=3, actions=1, transitions=rows, labels={"there": [1]})
    stream = Stream(model, PATIENT)
    told: list[Notice] = []
    for n in range(6):
        for seq, state in enumerate((0, 2, 2, 2, 2)):
            stream.ticks += 1.0
            stream.monitor.observe(Observation("ada", n, seq, state, WALK, time=stream.now.wall), stream.now)
            told += stream.monitor.evaluate(stream.now)
        if n == 0:
            assert all(not each.rows for each in of(Contradictions, told))  # one such step is no proof
    (row,) = of(Contradictions, told)[-1].rows
    assert (row.state, row.action, row.successor, row.seen, row.probability) == ("0", "0", "1", 0, 1.0)
    assert row.impossible == row.visits > 2


def carried(stream: Stream, model: MDP, trust: TrustSettings | None = None) -> Stream:
    after = Stream(model, PATIENT, trust)
    after.ticks, after.seq = stream.ticks, dict(stream.seq)
    after.monitor.load(stream.monitor.save(everything=True))
    return after


def test_what_was_found_survives_a_restart_and_goes_on_as_without_one(hill: MDP) -> None:
    draw = random.Random(4)
    walks = [moves(draw, 200, (0.4, 0.1)) for _ in range(2)]
    stream, _ = walked(hill, [walk[:150] for walk in walks])
    after = carried(stream, hill)
    assert after.monitor.save().common == stream.monitor.save().common
    assert of(Contradictions, after.monitor.current_state())[0].rows
    for states in zip(*(walk[150:] for walk in walks), strict=True):
        assert stream.round(states) == after.round(states)


def test_acknowledged_for_all_the_rows_start_again(hill: MDP) -> None:
    draw = random.Random(5)
    stream, told = walked(hill, [moves(draw, 150, (0.4, 0.1)) for _ in range(2)])
    assert of(Contradictions, told)[-1].rows
    after = carried(stream, hill, TrustSettings(acknowledged={"*": "floor mended"}))
    assert of(Contradictions, after.monitor.current_state()) == [Contradictions(rows_tested=6)]
    quiet = [notice for state in moves(draw, 100, (0.1, 0.1)) for notice in after.round([state, state])]
    assert of(Contradictions, quiet) == [Contradictions(rows_tested=6)]


def test_an_agent_that_is_forgotten_is_not_named_any_more(hill: MDP) -> None:
    draw = random.Random(6)
    settings = StreamSettings(window=8, stale_after=1000.0, forget_after=300.0, max_lag=1e9)
    stream, told = walked(hill, [moves(draw, 150, (0.7, 0.7)), moves(draw, 150, (0.1, 0.1))], settings)
    assert [each.agent for each in of(Contradictions, told)[-1].agents] == ["ada"]
    for state in moves(draw, 400, (0.1, 0.1)):
        stream.ticks += 1.0
        stream.step(state, "bob")
        told += stream.monitor.evaluate(stream.now)
    assert of(Contradictions, told)[-1].agents == ()


def parts_of(monitor: Monitor) -> MonitorParts:
    saved = monitor.save(everything=True)
    return MonitorParts(saved.common, {name: state for name, state in saved.agents.items() if state is not None})


def test_shards_keep_the_rows_and_give_each_agent_a_number_of_its_own(hill: MDP) -> None:
    draw = random.Random(7)
    stream, told = walked(hill, [moves(draw, 150, (0.4, 0.1)) for _ in range(3)])
    one = parts_of(stream.monitor)
    two = divided(one, lambda name: int(name == "ada"), 2)
    again = joined(two)
    assert one.common.trust is not None
    assert again.common.trust is not None
    rows, before = again.common.trust.fleet.rows, one.common.trust.fleet.rows
    assert rows.keys() == before.keys()
    for row, state in rows.items():
        assert (state.learned, state.missing, state.visits) == pytest.approx(
            (before[row].learned, before[row].missing, before[row].visits)
        )
        assert state.counts == before[row].counts
    numbers = [state.trust.number for state in again.agents.values() if state.trust is not None]
    assert len(set(numbers)) == 3
    assert max(numbers) <= again.common.trust.fleet.entered
    after = Stream(hill, PATIENT)
    after.ticks, after.seq = stream.ticks, dict(stream.seq)
    after.monitor.load(Saved(again.common, again.agents))
    told = [notice for state in moves(draw, 20, (0.4, 0.1)) for notice in after.round([state] * 3)]
    assert [(row.state, row.action) for row in of(Contradictions, told)[-1].rows] == [("hill", "walk")]


def test_the_state_of_an_earlier_version_is_read(hill: MDP) -> None:
    """It has neither rows nor numbers of agents."""
    draw = random.Random(8)
    stream, _ = walked(hill, [moves(draw, 50, (0.1, 0.1)) for _ in range(2)])
    old = parts_of(stream.monitor)
    assert old.common.trust is not None
    fleet = replace(old.common.trust.fleet, entered=0, observed=0, rows={})
    common = replace(old.common, trust=replace(old.common.trust, fleet=fleet))
    agents = {
        name: replace(state, trust=replace(state.trust, number=0, highest=0.0))
        for name, state in old.agents.items()
        if state.trust is not None
    }
    after = Stream(hill, PATIENT)
    after.ticks, after.seq = stream.ticks, dict(stream.seq)
    after.monitor.load(Saved(common, agents))
    told = [notice for state in moves(draw, 80, (0.4, 0.1)) for notice in after.round([state] * 2)]
    assert of(Contradictions, told)[-1].rows
    numbers = [state.trust.number for state in parts_of(after.monitor).agents.values() if state.trust is not None]
    assert sorted(numbers) == [1, 2]
