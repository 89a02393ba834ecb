"""What a number means that is given for an action: an index, or a name where names are numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import MDP, FormulaError, check
from monitor.errors import InputError
from monitor.model import encode_action
from monitor.model.action_names import ActionNames, action_in_words, number_in
from monitor.referee import derive
from monitor.referee.inputs import action_meant
from tests.tiers import scaled

NAMES = st.one_of(
    st.sampled_from(
        ["0", "1", "2", "40", "40.0", "-1", "+1", "0.5", ".5", "5e-1", "1e2", "100", "01", "go", "40 %", "²"]
    ),
    st.text(min_size=1, max_size=3),
)


def model(*names: str) -> MDP:
    """Each action leads from state 0 to a state of its own, which `there` marks for action 1."""
    count = len(names)
    rows = [(0, a, a + 1, 1.0) for a in range(count)] + [
        (s, a, s, 1.0) for s in range(1, count + 1) for a in range(count)
    ]
    return MDP.from_transitions(
        states=count + 1, actions=count, transitions=rows, labels={"there": [2]}, action_names=names
    )


LEVELS = model("0", "40", "100")


def test_a_number_means_the_name_and_never_the_index() -> None:
    assert [encode_action(LEVELS, raw) for raw in (0, 40, 100, 40.0, "40")] == [0, 1, 2, 1, 1]
    for raw in (1, 2, 40.5, "1", "40.0", True, -40):
        with pytest.raises(InputError, match=r"is not an action of the model \(one of 0, 40, 100\)"):
            encode_action(LEVELS, raw)


def test_fractions_negative_numbers_and_names_that_could_be_indices() -> None:
    assert [ActionNames(("-1", "0", "0.5"), 3).find(raw) for raw in (-1, 0, 0.5, 1)] == [0, 1, 2, None]
    assert [ActionNames(("1", "0"), 2).find(raw) for raw in (0, 1)] == [1, 0]
    assert [ActionNames(("off", "1"), 2).find(raw) for raw in (0, 1, "off")] == [None, 1, 0]


def test_a_number_that_two_names_write_means_neither() -> None:
    names = ActionNames(("1", "1.0"), 2)
    assert (names.find(1), names.find("1"), names.find("1.0")) == (None, 0, 1)
    assert [names.sent(action) for action in range(2)] == ["1", "1.0"]


def test_where_no_name_is_a_number_a_number_is_an_index() -> None:
    for names in ((), ("left", "right")):
        assert [ActionNames(names, 2).find(raw) for raw in (0, 1, 2, -1)] == [0, 1, None, None]
        assert ActionNames(names, 2).by_index
    assert ActionNames(("0", "1"), 2).by_index, "the same either way"


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True))
def test_what_is_sent_for_an_action_means_it(names: list[str]) -> None:
    found = ActionNames(names, len(names))
    assert [found.find(found.sent(action)) for action in range(len(names))] == list(range(len(names)))


@scaled
@given(st.lists(NAMES, max_size=5, unique=True), NAMES)
def test_the_referee_has_the_same_rule(names: list[str], text: str) -> None:
    count = len(names) or 3
    assert ActionNames(names, count).named(text) == action_meant(text, names, count)


@pytest.mark.parametrize(("text", "value"), [("do(40)", 1.0), ("do(40.0)", 1.0), ("do(100)", 0.0), ("do(0)", 0.0)])
def test_a_formula_names_a_level(text: str, value: float) -> None:
    asked: dict[str, Any] = {"model": LEVELS, "path": [(0, 0)], "policies": {"nominal": [0] * 4}}
    for answer in (check, derive):
        assert answer(f'{text}.P=? [ F<=1 "there" ]', **asked).value == value
        with pytest.raises(FormulaError, match="unknown action '1'"):
            answer('do(1).P=? [ F<=1 "there" ]', **asked)


def test_a_formula_may_name_a_negative_level_or_a_fraction() -> None:
    both = model("-1", "0.5")
    for text, value in (("do(0.5)[1]", 1.0), ("do(-1)", 0.0), ("delta(do(0.5), do(-1))", 1.0)):
        asked: dict[str, Any] = {"model": both, "path": [(0, 0)], "policies": {"nominal": [0] * 3}}
        assert check(f'{text}.P=? [ F<=1 "there" ]', **asked).value == value
        assert derive(f'{text}.P=? [ F<=1 "there" ]', **asked).value == value


def test_only_what_is_a_number_in_digits_is_one() -> None:
    assert [number_in(text) for text in ("1_0", "nan", "inf", "0x1", "²", "1" * 100, "", "1 ")] == [None] * 8
    assert [action_in_words(name, 3) for name in ("brake", "-0.5", "")] == ["brake", "action -0.5", "action 3"]
