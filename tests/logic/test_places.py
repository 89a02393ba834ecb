"""Where nodes stand in the text; that two formulas are the same wherever theirs stand; and how they are written."""

from __future__ import annotations

import pytest

from monitor.errors import FormulaError, LimitError
from monitor.logic import FALSE, TRUE, PathAutomaton, RewardAutomaton, parse, print_formula, timing
from monitor.logic import automaton as automaton_module
from monitor.logic.syntax import (
    Formula,
    Goal,
    InterventionRef,
    Label,
    Not,
    Or,
    Probability,
    Test,
    Until,
    always,
    eventually,
    release,
    weak_until,
)

A, B = Label("a"), Label("b")


def path_of(text: str) -> Formula:
    goal = parse(f"P=? [ {text} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return goal.measure.path


def until_in(formula: Formula) -> Until:
    while not isinstance(formula, Until):
        assert isinstance(formula, Not | Or)
        formula = formula.arg if isinstance(formula, Not) else formula.left
    return formula


def test_names_and_bounds_know_their_places() -> None:
    label = parse('"a"')
    assert isinstance(label, Label)
    assert label.at == 0
    goal = parse("fallback.P>0.5 [ true ]")
    assert isinstance(goal, Goal)
    assert goal.test is not None
    assert (goal.world.change.at, goal.test.at) == (0, 11)
    for text, at in (("do(1).R>2 [ C<=1 ]", 3), ("do(go)[2].R>2 [ C<=1 ]", 3), ("model:icy.R>2 [ C<=1 ]", 6)):
        goal = parse(text)
        assert isinstance(goal, Goal)
        assert goal.test is not None
        assert (goal.world.change.at, goal.test.at) == (at, text.index(">") + 1)


@pytest.mark.parametrize(
    "text", ['F<=3 "a"', 'G<=3 "a"', 'X "a"', '"a" U<=3 "b"', '"a" W<=3 "b"', '"a" R<=3 "b"', '!F<=3 "a"']
)
def test_operators_know_their_places(text: str) -> None:
    at = next(n for n, letter in enumerate(text) if letter in "FGXUWR")
    assert until_in(path_of(text)).at == at + len("P=? [ ")
    with pytest.raises(FormulaError) as caught:
        parse(text)
    assert caught.value.column == at + 1


def test_what_is_built_by_hand_stands_at_the_beginning() -> None:
    assert [Label("a").at, InterventionRef("nominal").at, Test("<", 0.5).at, Until(0, 1, A, B).at] == [0] * 4
    made = (eventually(0, 1, A), always(0, 1, A), weak_until(0, 1, A, B), release(0, 1, A, B))
    assert [until_in(formula).at for formula in made] == [0] * 4


def test_the_same_elsewhere_is_the_same() -> None:
    def nodes(at: int) -> list[object]:
        return [Label("a", at), eventually(0, 1, A, at), InterventionRef("policy", "p", None, at), Test("<", 0.5, at)]

    assert nodes(1) == nodes(2)
    assert list(map(hash, nodes(1))) == list(map(hash, nodes(2)))
    assert repr(nodes(1)) == repr(nodes(2))


def test_a_value_at_the_edge_of_a_tie_is_tied() -> None:
    assert Test(">=", 0.0).holds(-1e-12)
    assert not Test(">=", 0.0).holds(-1.1e-12)
    assert not Test(">", 0.0).holds(1e-12)
    assert Test("<=", 4.0).holds(4.0 + 3.9e-12)
    assert not Test("<=", 4.0).holds(4.0 + 4.2e-12)


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "false",
        '"a" & "b" & "c" | "d"',
        '"a" & ("b" & "c")',
        '("a" | "b") & "c"',
        '"a" | ("b" | "c")',
        'nominal@0.P>=1 [ "a" U<=1 "b" U<=2 "c" ]',
        'nominal@0.P>=0.5 [ ("a" U<=1 "b") U<=2 "c" ]',
        'nominal@0.P=? [ X "a" & F=2 G[1,3] !"b" ]',
        'nominal@0.P=? [ !("a" & "b") U<=1 ("a" & "b") ]',
        "nominal@0.P<0.333333333333333 [ true ]",
        "do(brake)[3]@2.R=? [ C[1,4] ]",
        "do(1)@-2.R<=-1.5 [ C<=4 ]",
        "delta(model:icy,fallback[2])@1.R>0 [ C=4 ]",
        'regret(fallback@2, P>=0.9 [ G<=2 "a" ])',
    ],
)
def test_as_few_parentheses_as_the_shape_needs(text: str) -> None:
    assert print_formula(parse(text)) == text


@pytest.mark.parametrize(
    ("path", "letters"),
    [
        ('"a"', 1),
        ("true", 0),
        ('X "a"', 2),
        ('"a" U<=3 ("b" U<=2 "c")', 6),
        ('(F<=4 "a") U<=2 "b"', 6),
        ('"a" & F<=3 "b"', 4),
        ('"a" | F<=3 "b"', 4),
        ('(F<=1 ((F<=5 "a") U<=0 "b")) & "c"', 2),
        ('G[2,4] X "a"', 6),
        ('"a" U=3 true', 3),
        ('F=2 ("a" U<=0 true)', 2),
        ("G=3 false", 3),
    ],
)
def test_no_path_needs_more_letters_than_the_horizon(path: str, letters: int) -> None:
    automaton = PathAutomaton(path_of(path))
    assert automaton.horizon(automaton.start) == letters
    assert (automaton.horizon(FALSE), automaton.horizon(TRUE)) == (0, 0)
    assert not automaton.rewards(automaton.start)


def test_a_reward_is_owed_for_as_long_as_it_pays() -> None:
    automaton = RewardAutomaton(1, 3)
    owed, seen = automaton.start, []
    while owed != FALSE:
        seen.append((automaton.horizon(owed), automaton.rewards(owed)))
        owed = automaton.step(owed, 0)
    assert seen == [(4, False), (3, True), (2, True), (1, True)]
    assert (automaton.horizon(FALSE), automaton.horizon(TRUE)) == (0, 0)
    assert not automaton.rewards(FALSE)


def test_obligations_are_refused_only_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """F<=3 unfolds to F<=3, F<=2, F<=1 and the last letter, beside the two that are final."""
    monkeypatch.setattr(automaton_module, "MAX_OBLIGATIONS", 6)
    automaton = PathAutomaton(path_of('F<=3 "a"'))
    owed = automaton.start
    while owed != FALSE:
        owed = automaton.step(owed, 0)
    monkeypatch.setattr(automaton_module, "MAX_OBLIGATIONS", 5)
    automaton = PathAutomaton(path_of('F<=3 "a"'))
    with pytest.raises(LimitError, match="more than 5 obligations"):
        automaton.step(automaton.step(automaton.step(automaton.start, 0), 0), 0)


def test_a_diagram_of_more_than_ten_states() -> None:
    drawn = timing('F<=2 "a"', a="...........#").splitlines()
    assert drawn[0].split() == ["offset", *"012345678901"]
    assert drawn[2].endswith(". . . . . . . . . # # #")


def test_diagrams_are_refused_that_lack_something() -> None:
    with pytest.raises(ValueError, match="every label needs the same number of states"):
        timing('"a" U<=2 "b"', a="##", b="#")
    for text in ('"a" U<=2 "c"', 'F<=2 alt.P>0.5 [ "a" ]', "F<=2 R>0.5 [ C<=1 ]"):
        with pytest.raises(FormulaError, match="a sequence for every label, and nothing nested") as caught:
            timing(text, a="##")
        assert (caught.value.line, caught.value.column) == (1, 1)
