"""The expansion laws against the definition of the operators, over all short label sequences."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from monitor.logic.parser import parse
from monitor.logic.syntax import And, Const, Formula, Goal, Label, Not, Or, Probability, Until
from monitor.referee.residual import Residual, expand, looks_back, present, window

TEXTS = [
    'F[1,3] "a"',
    'G[0,2] ("a" | X "b")',
    '"a" U[1,2] "b"',
    '("a" W[0,2] "b") & !("b" R[1,3] "a")',
    'F<=2 ("a" & F[1,1] "b")',
    '("a" U<=1 "b") U[1,2] !"a"',
    'G<=1 F<=1 "a" <=> F<=1 G<=1 "b"',
]
LENGTH = 5
Word = tuple[tuple[bool, bool], ...]


def path_of(text: str) -> Formula:
    goal = parse(f"P=? [ {text} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return goal.measure.path


def defined(formula: Formula, word: Word, at: int) -> bool:
    """The definition, word for word."""
    match formula:
        case Const(value):
            return value
        case Label(name):
            return word[at]["ab".index(name)]
        case Not(arg):
            return not defined(arg, word, at)
        case And(left, right):
            return defined(left, word, at) and defined(right, word, at)
        case Or(left, right):
            return defined(left, word, at) or defined(right, word, at)
        case Until(low, high, left, right):
            return any(
                defined(right, word, at + j) and all(defined(left, word, at + i) for i in range(j))
                for j in range(low, high + 1)
            )
        case _:
            raise AssertionError(formula)


def expanded(formula: Formula, word: Word) -> Residual:
    residual: Any = formula
    for letter in word:

        def truth(atom: Label | Goal, letter: tuple[bool, bool] = letter) -> bool:
            assert isinstance(atom, Label)
            return letter["ab".index(atom.name)]

        residual = expand(residual, truth)
    return residual  # type: ignore[no-any-return] # sets of parts are private to the module


@pytest.mark.parametrize("text", TEXTS)
def test_expansion_ends_in_what_the_definition_says(text: str) -> None:
    formula = path_of(text)
    letters = [(a, b) for a in (False, True) for b in (False, True)]
    for word in product(letters, repeat=LENGTH):
        assert expanded(formula, word) == Const(value=defined(formula, word, 0)), word


def test_which_goals_are_read_now_and_how_far_they_look_back() -> None:
    path = path_of('(@2.P>0 ["a"]) U[1,3] (@0.P>0 [ F<=1 @-1.P>0 ["b"] ])')
    assert isinstance(path, Until)
    assert (present(path), window(path)) == ({path.left}, 2)
    assert (looks_back(path.left), looks_back(path.right), looks_back(path_of('@0.P>0 ["a"]'))) == (True, True, False)
    assert window(path_of('@3.P>0 ["a"] & @-2.P>0 ["a"]')) is None
