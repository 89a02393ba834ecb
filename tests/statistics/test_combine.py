from __future__ import annotations

from collections.abc import Hashable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError
from monitor.statistics.combine import Conjunction, Disjunction, Leaf, Negation, Tree, evaluate, strengths
from monitor.statistics.strength import Strength

A, B, C, D = (Leaf(key) for key in "abcd")
KEYS = "abcd"
LEAVES: st.SearchStrategy[Tree] = st.sampled_from([A, B, C, D])
TREES: st.SearchStrategy[Tree] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Negation, inner),
        st.builds(Conjunction, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Disjunction, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


def truth(tree: Tree, world: dict[str, bool]) -> bool:
    match tree:
        case Leaf(key):
            return world[str(key)]
        case Negation(part):
            return not truth(part, world)
        case Conjunction(parts):
            return all(truth(part, world) for part in parts)
        case Disjunction(parts):
            return any(truth(part, world) for part in parts)


def test_the_papers_rules() -> None:
    s = Strength(0.06, 0.03)
    assert strengths(A, s) == {"a": s}
    assert strengths(Negation(A), s) == {"a": Strength(0.03, 0.06)}
    assert strengths(Conjunction((A, B, C)), s) == dict.fromkeys("abc", Strength(0.02, 0.03))
    assert strengths(Disjunction((A, B, C)), s) == dict.fromkeys("abc", Strength(0.06, 0.01))
    assert strengths(Disjunction((Negation(A), B)), s) == {"a": Strength(0.015, 0.06), "b": Strength(0.06, 0.015)}
    assert strengths(Conjunction((Disjunction((Negation(A), B)), Disjunction((Negation(B), A)))), s) == dict.fromkeys(
        "ab", Strength(0.015, 0.015)
    )


def test_nested_conjunctions_count_as_one() -> None:
    s = Strength(0.06, 0.03)
    assert strengths(Conjunction((A, Conjunction((B, C)))), s) == strengths(Conjunction((A, B, C)), s)
    assert strengths(Disjunction((A, Disjunction((B, C)))), s) == strengths(Disjunction((A, B, C)), s)
    assert strengths(Conjunction(()), s) == {}


@given(tree=TREES)
def test_de_morgan_holds_for_strengths_and_truth(tree: Tree) -> None:
    s = Strength(0.05, 0.02)
    pair = (tree, A)
    assert strengths(Disjunction(pair), s) == strengths(
        Negation(Conjunction((Negation(tree), Negation(A)))), s
    ) or isinstance(tree, Disjunction)
    assert strengths(Negation(Negation(tree)), s) == strengths(tree, s)


@given(tree=TREES, values=st.lists(st.sampled_from([True, False, None]), min_size=4, max_size=4))
def test_an_answer_is_what_every_completion_says(tree: Tree, values: list[bool | None]) -> None:
    answers: dict[Hashable, bool | None] = dict(zip(KEYS, values, strict=True))
    got = evaluate(tree, answers)
    open_keys = [key for key, value in answers.items() if value is None]
    outcomes = set()
    for choice in product([True, False], repeat=len(open_keys)):
        world = {str(key): bool(value) for key, value in answers.items()}
        world |= dict(zip(map(str, open_keys), choice, strict=True))
        outcomes.add(truth(tree, world))
    if got is not None:  # None may be more cautious (a | !a with a open), an answer never bolder
        assert outcomes == {got}
    if not open_keys:
        assert got is not None


@given(tree=TREES, world=st.lists(st.booleans(), min_size=4, max_size=4))
def test_the_combination_has_its_strength(tree: Tree, world: list[bool]) -> None:
    s = Strength(0.04, 0.02)
    given_world = dict(zip(KEYS, world, strict=True))
    needed = strengths(tree, s)
    truly = truth(tree, given_world)
    # Tests that err independently, each as often as its strength allows: all patterns of errors, exactly.
    wrong = 0.0
    for errors in product([False, True], repeat=len(needed)):
        weight = 1.0
        said: dict[Hashable, bool | None] = dict(given_world.items())
        for (key, strength), error in zip(needed.items(), errors, strict=True):
            rate = strength.alpha if given_world[str(key)] else strength.beta
            weight *= rate if error else 1 - rate
            said[key] = given_world[str(key)] != error
        wrong += weight * (evaluate(tree, said) is not truly)
    assert wrong <= (s.alpha if truly else s.beta) + 1e-12


def test_a_missing_answer_is_named() -> None:
    with pytest.raises(ConfigError, match="'b'"):
        evaluate(Conjunction((A, B)), {"a": True})
