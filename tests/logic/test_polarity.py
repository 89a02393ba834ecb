"""Labels split by polarity: the split formula rises with each plain label and falls with each negative one."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from monitor.errors import LimitError
from monitor.logic import parse
from monitor.logic.automaton import FALSE, TRUE, PathAutomaton
from monitor.logic.polarity import negative, split_labels
from monitor.logic.syntax import Formula, Goal, Label, Probability
from monitor.logic.traversal import subformulas
from tests.exact.small import path_formula

NAMES = ("a", "b")


def path_of(text: str) -> Formula:
    goal = parse(f"P=? [ {text} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return goal.measure.path


def truth(formula: Formula, word: list[set[str]]) -> bool:
    """Return whether a word of label sets satisfies a path formula."""
    automaton = PathAutomaton(formula)
    obligation = automaton.start
    for labels in word:
        held = [isinstance(atom, Label) and atom.name in labels for atom in automaton.atoms]
        obligation = automaton.step(obligation, sum(1 << bit for bit, holds in enumerate(held) if holds))
    assert obligation in (FALSE, TRUE)
    return obligation == TRUE


@pytest.mark.parametrize("seed", range(40))
def test_a_split_formula_is_the_formula_where_both_names_agree_and_monotone_where_not(seed: int) -> None:
    chance = Random(seed)
    formula = path_of(path_formula(chance, reach=2))
    while any(isinstance(node, Goal) for node in subformulas(formula)):
        formula = path_of(path_formula(chance, reach=2))
    split = split_labels(formula)
    word = [{name for name in NAMES if chance.random() < 0.5} for _ in range(12)]
    both = [labels | {negative(name) for name in labels} for labels in word]
    assert truth(split, both) == truth(formula, word)
    at = chance.randrange(3)
    worst = [set(labels) for labels in both]
    best = [set(labels) for labels in both]
    worst[at], best[at] = {negative(name) for name in NAMES}, set(NAMES)
    for unknown in product((False, True), repeat=2):
        actual = list(word)
        actual[at] = {name for name, holds in zip(NAMES, unknown, strict=True) if holds}
        assert truth(split, worst) <= truth(formula, actual) <= truth(split, best)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('F<=2 (delta(alt, nominal).P>=0.1 [ X "a" ])', "a difference of two worlds"),
        ("F<=2 (R<=1 [ C<=2 ])", "an upper bound of a reward"),
        ("F<=2 !(R>1 [ C<=2 ])", "an upper bound of a reward"),
    ],
)
def test_a_nested_quantity_that_is_not_monotone_is_refused(text: str, problem: str) -> None:
    with pytest.raises(LimitError, match=f"{problem}.* is nested in another quantity"):
        split_labels(path_of(text))


def test_the_sign_of_a_nested_comparison_counts_as_a_negation() -> None:
    for text, names in (
        ('F<=2 (P>=0.5 [ X "a" ])', {"a"}),
        ('F<=2 (P<0.5 [ X "a" ])', {"~a"}),
        ('F<=2 !(P<0.5 [ "b" U<=1 !"a" ])', {"b", "~a"}),
        ("F<=2 (R>=1 [ C<=2 ])", set()),
        ("F<=2 !(R<=1 [ C<=2 ])", set()),
    ):
        found = split_labels(path_of(text))
        assert {node.name for node in subformulas(found) if isinstance(node, Label)} == names, text
