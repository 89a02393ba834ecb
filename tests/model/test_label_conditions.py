"""Labels from conditions: what holds where, and what is no condition."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.errors import ModelError
from monitor.model import MDP
from monitor.model.label_conditions import labelled

MODEL = MDP.from_transitions(
    states=4,
    actions=1,
    transitions=[(s, 0, s, 1.0) for s in range(4)],
    labels={"goal": [3]},
    state_names=["a", "b", "c", "d"],
    valuations=[(0, "dry"), (1, "dry"), (1, "wet"), (2, "wet")],
    observations=np.array([[0.0], [0.5], [-1.0], [2.0]]),
)
BARE = MDP.from_transitions(states=4, actions=1, transitions=[(s, 0, s, 1.0) for s in range(4)])


@pytest.mark.parametrize(
    ("condition", "states"),
    [
        ("state == 2", [2]),
        ("1 <= state < 3", [1, 2]),
        ("state in [0, 3]", [0, 3]),
        ("state not in (0, 3)", [1, 2]),
        ("name == 'c' or not name != 'a'", [0, 2]),
        ("value[0] == 1 and value[1] == 'wet'", [2]),
        ("feature[0] > 0.25", [1, 3]),
        ("feature[0] == -1.0", [2]),
    ],
)
def test_it_holds_where_the_condition_does(condition: str, states: list[int]) -> None:
    made = labelled(MODEL, [f"found: {condition}", "first: state == 0"])
    assert np.flatnonzero(made.labels["found"]).tolist() == states
    assert list(made.labels) == ["first", "found", "goal"]
    assert list(MODEL.labels) == ["goal"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("state == 2", "write NAME: CONDITION"),
        ("x: state == 9", "holds in no state"),
        ("goal: state == 1", "has it already"),
        ("x: state", "is not a comparison"),
        ("x: __import__('os').system('true')", "is not a comparison"),
        ("x: state == __import__('os')", "is not a condition"),
        ("x: state is 3", "is not a comparison"),
        ("x: state == ", "is not a condition"),
        ("x: name < 3", "cannot be compared"),
        ("x: value[7] == 1", "no variable 7"),
        ("x: feature[7] == 1", "no feature 7"),
        ("x y: state == 1", "a name has 1 to 64"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        labelled(MODEL, [text])


@pytest.mark.parametrize(("text", "why"), [("name == 'a'", "no names"), ("value[0] == 1", "no variable")])
def test_what_the_model_lacks_is_said(text: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        labelled(BARE, [f"x: {text}"])


@given(st.text(max_size=40))
@example("(" * 3000)
@example("not " * 1000 + "state")
@example("state == " + "-" * 900 + "1")
@example("state == {[]: 1}")
@example("state in 3")
def test_any_text_is_a_condition_or_an_error_of_the_model(text: str) -> None:
    with suppress(ModelError):
        labelled(MODEL, [f"x: {text}"])
