"""The last state of an episode that terminated is its copy, where the model has one, however states are written."""

from __future__ import annotations

import pytest

from monitor.model import MDP
from monitor.model.encode import StateEncoder
from monitor.types import Break, End, Instant, Observation, RawState, Step, StreamSettings
from tests.stream.adapters import begun, drained

START, GOAL, ENDED = 0, 1, 2
ON, BACK = 0, 1
MODEL = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(START, ON, GOAL, 0.5), (START, ON, ENDED, 0.5), (GOAL, BACK, START, 1.0)]
    + [(ENDED, action, ENDED, 1.0) for action in (ON, BACK)],
    state_names=["start", "goal", "goal, ended"],
    bin_edges=[[0.0, 0.5, 1.0]],
    centres=[[0.0], [1.0]],
    scales=[1.0],
    valuations=[(0, False), (1, False), (1, True)],
    ended_as=[START, ENDED, ENDED],
)

WRITTEN: dict[StateEncoder, tuple[RawState, RawState]] = {
    "index": (START, GOAL),
    "name": ("start", "goal"),
    "valuation": ((0, False), (1, False)),
    "bins": ((0.2,), (0.8,)),
    "nearest": ((-7.0,), (0.8,)),
}
"""Encoder -> the start and the goal, as an agent writes them."""


def events(*steps: Observation, encoder: StateEncoder = "index") -> list[Step | Break | End]:
    session = begun(MODEL, StreamSettings(encoder=encoder))
    for step in steps:
        session.arrive(step, Instant(1000.0, 0.0))
    return drained(session)


def states(told: list[Step | Break | End]) -> list[int]:
    return [event.state for event in told if isinstance(event, Step)]


@pytest.mark.parametrize("encoder", WRITTEN)
def test_a_terminated_step_is_in_the_copy(encoder: StateEncoder) -> None:
    start, goal = WRITTEN[encoder]
    told = events(
        Observation("a", 0, 0, start, ON), Observation("a", 0, 1, goal, None, terminated=True), encoder=encoder
    )
    assert states(told) == [START, ENDED]
    assert told[-1] == End(0, terminated=True)
    assert not any(isinstance(event, Break) for event in told)


def test_a_truncated_end_and_a_step_that_goes_on_stay_where_they_are() -> None:
    truncated = events(Observation("a", 0, 0, START, ON), Observation("a", 0, 1, GOAL, None, truncated=True))
    assert states(truncated) == [START, GOAL]
    assert truncated[-1] == End(0, terminated=False)
    on = events(
        Observation("a", 0, 0, START, ON), Observation("a", 0, 1, GOAL, BACK), Observation("a", 0, 2, START, ON)
    )
    assert states(on) == [START, GOAL, START]


def test_the_copy_itself_and_a_state_without_one_stay_what_they_are() -> None:
    assert states(events(Observation("a", 0, 0, ENDED, None, terminated=True))) == [ENDED]
    back = events(Observation("a", 0, 0, GOAL, BACK), Observation("a", 0, 1, START, None, terminated=True))
    assert states(back) == [GOAL, START]
    assert not any(isinstance(event, Break) for event in back)


def test_the_last_action_is_one_of_the_copy() -> None:
    """What the agent would do next is available after the end, whatever the state it left allowed."""
    told = events(Observation("a", 0, 0, START, ON), Observation("a", 0, 1, GOAL, ON, terminated=True))
    assert states(told) == [START, ENDED]
    assert not any(isinstance(event, Break) for event in told)


def test_a_message_said_again_is_a_duplicate_of_what_was_written() -> None:
    session = begun(MODEL, StreamSettings())
    first, end = Observation("a", 0, 0, START, ON), Observation("a", 0, 1, GOAL, None, terminated=True)
    for step in (first, end):
        session.arrive(step, Instant(1000.0, 0.0))
    (again,) = session.arrive(end, Instant(1000.0, 0.0))
    assert getattr(again, "result", None) == "duplicate"
