"""Traversal of formulas: nested quantities, and how far a formula looks back."""

from __future__ import annotations

import pytest

from monitor.logic import parse, print_formula
from monitor.logic.syntax import Goal, Probability
from monitor.logic.traversal import asks_back, largest_offset, nested_goals


def test_nested_quantities_are_found_under_every_operator() -> None:
    one, other = 'fallback@0.P>0.5 [ X "goal" ]', "nominal@1.R>1 [ C<=2 ]"
    for path in (
        f"({one}) & ({other})",
        f"({one}) | !({other})",
        f"({one}) U<=2 ({other})",
        f'!(({one}) W<=2 ("goal" & {other}))',
    ):
        goal = parse(f"P=? [ {path} ]")
        assert isinstance(goal, Goal)
        assert isinstance(goal.measure, Probability)
        assert sorted({print_formula(each) for each in nested_goals(goal.measure.path)}) == sorted([one, other])
        assert asks_back(goal.measure)
    for text, back in (
        ('P=? [ X fallback@0.P>0.5 [ X "goal" ] ]', False),
        ('P=? [ X fallback@-1.P>0.5 [ X "goal" ] ]', True),
        ('P=? [ X fallback@1.P>0.5 [ X "goal" ] ]', True),
        ('P=? [ X fallback@0.P>0.5 [ X nominal@1.P>0.5 [ X "goal" ] ] ]', True),
        ("P=? [ X fallback@0.R>0.5 [ C<=2 ] ]", False),
        ("P=? [ X fallback@-1.R>0.5 [ C<=2 ] ]", True),
        ("R=? [ C<=2 ]", False),
    ):
        goal = parse(text)
        assert isinstance(goal, Goal)
        assert asks_back(goal.measure) is back, text


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ('"a" => true', 0),
        ('@3.P>0.5 [ true ] | !alt@-7.P>0.5 [ "a" ] & P<0.2 [ X "b" ]', 7),
        ("regret(alt@5, P>0.5 [ true ])", 5),
        ("P=? [ F<=20 (alt@9.P>0.5 [ true ]) ]", 0),  # inside, the path is the counterfactual one
    ],
)
def test_the_largest_offset_ignores_nested_quantities(text: str, offset: int) -> None:
    assert largest_offset(parse(text)) == offset
