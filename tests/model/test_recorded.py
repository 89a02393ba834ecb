"""What the recordings of a learned model lack, in words."""

from __future__ import annotations

import pytest

from monitor import check
from monitor.errors import PathError
from monitor.model import MDP
from monitor.model.recording_sentences import never_recorded
from tests.exact.learned import learned_model

DRAWS = [(0, 0, 0), (0, 0, 1), (1, 0, 1)]


@pytest.fixture
def learned() -> MDP:
    return learned_model(3, 2, DRAWS, {"there": frozenset({1})})[0]


def test_what_is_missing_is_named(learned: MDP) -> None:
    assert never_recorded(learned, (1, 0), 0) == "the transition (1, 0) -> 0"
    assert never_recorded(learned, (1, 1), 0) == "action 1 in state 1"


def test_rows_that_are_given_lack_nothing(learned: MDP) -> None:
    assert never_recorded(learned.with_absorbing(1), (1, 0), 0) == ""
    given = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)])
    assert never_recorded(given, (0, 0), 0) == ""


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ([(0, 0), (1, 0), (0, 0)], "pair 1: the transition (1, 0) -> 0 was never recorded: correct the path"),
        ([(0, 1), (1, 0)], "pair 0: action 1 in state 0 was never recorded: correct the path, or the model (`cfmon"),
    ],
)
def test_a_query_about_it_is_refused_with_the_way_out(learned: MDP, path: list[tuple[int, int]], says: str) -> None:
    with pytest.raises(PathError) as caught:
        check('P=? [ F<=2 "there" ]', model=learned, path=path, policies={"nominal": [0, 0, 0]})
    assert str(caught.value).startswith(says)
