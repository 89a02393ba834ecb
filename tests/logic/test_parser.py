"""The language: what binds how, what the short forms mean, and that the printer writes what the parser reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import FormulaError
from monitor.logic import parse, print_formula
from monitor.logic.grammar import grammar
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Const,
    Formula,
    Goal,
    InterventionRef,
    Label,
    Not,
    Or,
    Probability,
    Regret,
    Reward,
    Test,
    Until,
    WorldRef,
    always,
    eventually,
    iff,
    implies,
    release,
    weak_until,
)
from tests.tiers import examples

LAW = settings(max_examples=examples(25, 400))

A, B, C = Label("a"), Label("b"), Label("c")


def inside(path: str) -> Formula:
    """The path formula between the brackets of P."""
    goal = parse(f"P=? [ {path} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return goal.measure.path


PRECEDENCE = [
    ('"a" <=> "b" => "c"', iff(A, implies(B, C))),
    ('"a" => "b" <=> "c"', iff(implies(A, B), C)),
    ('"a" => "b" => "c"', implies(A, implies(B, C))),
    ('"a" | "b" => "c"', implies(Or(A, B), C)),
    ('"a" | "b" & "c"', Or(A, And(B, C))),
    ('"a" & "b" | "c"', Or(And(A, B), C)),
    ('"a" & "b" U<=3 "c"', And(A, Until(0, 3, B, C))),
    ('"a" U<=3 "b" & "c"', And(Until(0, 3, A, B), C)),
    ('"a" U<=1 "b" U<=2 "c"', Until(0, 1, A, Until(0, 2, B, C))),
    ('"a" U<=1 "b" W<=2 "c"', Until(0, 1, A, weak_until(0, 2, B, C))),
    ('!"a" U<=1 "b"', Until(0, 1, Not(A), B)),
    ('!("a" U<=1 "b")', Not(Until(0, 1, A, B))),
    ('F<=3 "a" & "b"', And(eventually(0, 3, A), B)),
    ('F<=3 "a" U<=1 "b"', Until(0, 1, eventually(0, 3, A), B)),
    ('X "a" U<=1 X "b"', Until(0, 1, eventually(1, 1, A), eventually(1, 1, B))),
    ('G<=2 F<=3 !"a"', always(0, 2, eventually(0, 3, Not(A)))),
]


@pytest.mark.parametrize(("path", "formula"), PRECEDENCE)
def test_precedence(path: str, formula: Formula) -> None:
    assert inside(path) == formula


SUGAR = [
    ('F[2,5] "a"', Until(2, 5, Const(value=True), A)),
    ('G[2,5] "a"', Not(Until(2, 5, Const(value=True), Not(A)))),
    ('X "a"', Until(1, 1, Const(value=True), A)),
    ('"a" W[2,5] "b"', Or(Until(2, 5, A, B), always(0, 5, A))),
    ('"a" R[2,5] "b"', Not(Until(2, 5, Not(A), Not(B)))),
    ('F<=4 "a"', eventually(0, 4, A)),
    ('F=4 "a"', eventually(4, 4, A)),
    ('"a" => "b"', Or(Not(A), B)),
    ('"a" <=> "b"', And(Or(Not(A), B), Or(Not(B), A))),
    ('X X "a"', eventually(1, 1, eventually(1, 1, A))),
    ("true", Const(value=True)),
]


@pytest.mark.parametrize(("path", "formula"), SUGAR)
def test_short_forms(path: str, formula: Formula) -> None:
    assert inside(path) == formula


def fallback(steps: int | None = None) -> InterventionRef:
    return InterventionRef("policy", "fallback", steps)


WORLDS = [
    ("P", WorldRef()),
    ("@5.P", WorldRef(NOMINAL, None, 5)),
    ("nominal.P", WorldRef()),
    ("nominal@5.P", WorldRef(NOMINAL, None, 5)),
    ("nominal@-3.P", WorldRef(NOMINAL, None, -3)),
    ("fallback.P", WorldRef(fallback())),
    ("fallback@-1.P", WorldRef(fallback(), None, -1)),
    ("fallback[3]@5.P", WorldRef(fallback(3), None, 5)),
    ("fallback[0].P", WorldRef(fallback(0))),
    ("do(brake)@2.P", WorldRef(InterventionRef("action", "brake"), None, 2)),
    ("do(1)[4].P", WorldRef(InterventionRef("action", "1", 4))),
    ("model:icy@5.P", WorldRef(InterventionRef("model", "icy"), None, 5)),
    ("delta(fallback,nominal)@5.P", WorldRef(fallback(), NOMINAL, 5)),
    ("delta(do(1), model:icy).P", WorldRef(InterventionRef("action", "1"), InterventionRef("model", "icy"))),
]


@pytest.mark.parametrize(("world", "reference"), WORLDS)
def test_worlds(world: str, reference: WorldRef) -> None:
    assert parse(f"{world}>=0.5 [ true ]") == Goal(reference, Probability(Const(value=True)), Test(">=", 0.5))
    assert parse(f"{world}=? [ true ]") == Goal(reference, Probability(Const(value=True)))


def test_release_after_an_operand_reward_at_the_start_of_one() -> None:
    reward = Goal(WorldRef(), Reward(0, 2), Test(">", 1.0))
    assert inside('"a" R<=2 R>1 [ C<=2 ]') == release(0, 2, A, reward)
    assert inside('R>1 [ C<=2 ] R<=2 "a"') == release(0, 2, reward, A)
    assert inside('R>1 [ C<=2 ] & "a"') == And(reward, A)


@pytest.mark.parametrize(
    "name",
    ["Fallback", "Xenon", "P1", "truely", "do_it", "deltas", "models", "regrets", "handovers", "C_", "_", "nominal2"],
)
def test_names_are_the_longest_match(name: str) -> None:
    assert parse(f"{name}@1.P>0.5 [ true ]") == parse("fallback@1.P>0.5 [ true ]".replace("fallback", name))
    goal = parse(f"{name}@1.P>0.5 [ true ]")
    assert isinstance(goal, Goal)
    assert goal.world.change == InterventionRef("policy", name)


@pytest.mark.parametrize(
    "word", ["P", "R", "C", "F", "G", "X", "U", "W", "true", "false", "do", "model", "delta", "regret", "handover"]
)
def test_words_of_the_language_are_no_names(word: str) -> None:
    with pytest.raises(FormulaError):
        parse(f"{word}@1.P>0.5 [ true ]")


@pytest.mark.parametrize("label", ["a", "unsafe.zone-3", "0", "P", "x" * 64])
def test_labels(label: str) -> None:
    assert parse(f'"{label}"') == Label(label)


@pytest.mark.parametrize(("number", "value"), [("1", 1.0), ("0.95", 0.95), ("1e-3", 0.001), ("5E-1", 0.5), ("-0", 0.0)])
def test_numbers(number: str, value: float) -> None:
    goal = parse(f"P>={number} [ true ]")
    assert isinstance(goal, Goal)
    assert goal.test == Test(">=", value)


def test_bounds_at_the_ends_of_what_is_possible() -> None:
    for number in ("0", "1"):
        parse(f"P>={number} [ true ]")
    for number in ("-1", "0", "1"):
        parse(f"delta(alt,nominal).P>={number} [ true ]")


def test_blanks_line_breaks_and_comments_are_free() -> None:
    dense = 'fallback[3]@5.P>=0.95[G<=20!"a"]&"b"'
    loose = """
        // would the fallback have kept us safe?
        fallback [ 3 ] @ 5 . P >= 0.95   // with high probability
        [ G <= 20 ! "a" ]
        & "b" // and here
    """
    assert parse(dense) == parse(loose)
    assert parse('F2.P>0.5 [ X"a"U[ 1 , 2 ]"b" ]') == parse('F2.P>0.5 [ X "a" U[1,2] "b" ]')


def test_a_chain_of_iff_associates() -> None:
    assert inside('"a" <=> "b" <=> "c"') == iff(iff(A, B), C)


def test_handover_is_the_chance_to_reach_a_state_in_which_it_is_too_late() -> None:
    written_out = '@0.P{} [ F<=5 !(fallback@0.P>=0.9 [ G<=20 !"a" ]) ]'
    assert parse('handover(fallback, P>=0.9 [ G<=20 !"a" ], 5)') == parse(written_out.format("=?"))
    assert parse('handover(fallback, P>=0.9 [ G<=20 !"a" ], 5) >= 0.5') == parse(written_out.format(">=0.5"))
    held = parse("@0.P<0.25 [ F<=0 !(do(brake)[2]@0.R>-1 [ C<=3 ]) ]")
    assert parse("handover(do(brake)[2], R>-1 [ C<=3 ], 0)<0.25") == held
    inside_a_path = parse("P=? [ F<=1 handover(fallback, P>0.5 [ true ], 2) < 0.5 ]")
    assert inside_a_path == parse("P=? [ F<=1 @0.P<0.5 [ F<=2 !(fallback@0.P>0.5 [ true ]) ] ]")


def test_regret() -> None:
    goal = Goal(WorldRef(), Probability(eventually(0, 2, A)), Test(">=", 0.9))
    assert parse('regret(fallback@5, P>=0.9 [ F<=2 "a" ])') == Regret(WorldRef(fallback(), None, 5), goal)
    reward = Goal(WorldRef(), Reward(0, 2), Test("<", -1.5))
    assert parse("regret(do(1)[2]@-1, R<-1.5 [ C<=2 ])") == Regret(
        WorldRef(InterventionRef("action", "1", 2), None, -1), reward
    )


@pytest.mark.parametrize(
    "text",
    [
        'fallback@5.P>=0.95 [ G<=20 !"unsafe" ]',
        'delta(fallback,nominal)@0.P>0 [ !"unsafe" U<=10 "goal" ]',
        'P=? [ F<=20 ("key" & F<=20 ("door" & F<=10 "goal")) ]',
        'nominal@5.P<0.9 [ G<=10 !"unsafe" ] => fallback@5.P>=0.9 [ G<=10 !"unsafe" ]',
        "fallback@5.R=? [ C[2,7] ]",
        'P>=0.5 [ F<=5 (fallback@2.P>=0.9 [ G<=10 !"unsafe" ]) ]',
    ],
)
def test_the_documented_examples_are_read(text: str) -> None:
    assert parse(print_formula(parse(text))) == parse(text)


def test_a_grammar_compiled_anew_reads_the_same() -> None:
    anew = grammar.__wrapped__()
    for text in ('"a"', "P=? [ true ]", "fallback[3]@5.R=? [ C[2,7] ]", "@2.P<0.5 [ true ]"):
        assert anew.parse(text) == parse(text)


# ---- parse(print(f)) == f for every formula there is ----

NAMES = st.sampled_from(["fallback", "alt_2", "_", "Fast"])
SPANS = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda span: (min(span), max(span)))
STEPS = st.none() | st.integers(0, 12)
CHANGES = st.one_of(
    st.just(NOMINAL),
    st.builds(InterventionRef, st.just("policy"), NAMES, STEPS),
    st.builds(InterventionRef, st.just("action"), st.sampled_from(["brake", "0", "17"]), STEPS),
    st.builds(InterventionRef, st.just("model"), NAMES),
)
OFFSETS = st.integers(-20, 20)
PLAIN_WORLDS = st.builds(WorldRef, CHANGES, st.none(), OFFSETS)
EFFECTS = st.builds(WorldRef, CHANGES, CHANGES, OFFSETS)
COMPARISONS = st.sampled_from(["<", "<=", ">=", ">"])
PROBABILITIES = st.builds(Test, COMPARISONS, st.floats(0, 1))
DIFFERENCES = st.builds(Test, COMPARISONS, st.floats(-1, 1))
ANYTHING = st.builds(Test, COMPARISONS, st.floats(allow_nan=False, allow_infinity=False))
REWARDS = SPANS.map(lambda span: Reward(*span))
ATOMS = st.one_of(st.booleans().map(Const), st.sampled_from(["a", "b.c", "x-1", "0"]).map(Label))


def goals(paths: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    measures = paths.map(Probability)
    return st.one_of(
        st.builds(Goal, PLAIN_WORLDS, measures, PROBABILITIES),
        st.builds(Goal, EFFECTS, measures, DIFFERENCES),
        st.builds(Goal, st.one_of(PLAIN_WORLDS, EFFECTS), REWARDS, ANYTHING),
    )


def combinations(parts: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    return st.one_of(st.builds(Not, parts), st.builds(And, parts, parts), st.builds(Or, parts, parts))


def paths_over(parts: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    until = st.builds(lambda span, left, right: Until(span[0], span[1], left, right), SPANS, parts, parts)
    timed = st.builds(lambda make, span, arg: make(*span, arg), st.sampled_from([eventually, always]), SPANS, parts)
    return st.one_of(until, timed, combinations(parts), goals(parts))


PATHS = st.recursive(ATOMS, paths_over, max_leaves=8)
TRUTHS = st.recursive(st.one_of(ATOMS, goals(PATHS)), combinations, max_leaves=5)
QUESTIONS = st.builds(Goal, st.one_of(PLAIN_WORLDS, EFFECTS), st.one_of(PATHS.map(Probability), REWARDS))
REGRETS = st.builds(
    Regret,
    PLAIN_WORLDS.filter(lambda world: world.change != NOMINAL),
    st.one_of(
        st.builds(Goal, st.just(WorldRef()), PATHS.map(Probability), PROBABILITIES),
        st.builds(Goal, st.just(WorldRef()), REWARDS, ANYTHING),
    ),
)


@LAW
@given(st.one_of(TRUTHS, QUESTIONS, REGRETS))
def test_the_printer_writes_what_the_parser_reads(formula: Formula) -> None:
    assert parse(print_formula(formula)) == formula


@LAW
@given(TRUTHS)
def test_formulas_are_values(formula: Formula) -> None:
    """Frozen, hashable; where things stood in the text does not matter."""
    again = parse("\n  " + print_formula(formula))
    assert again == formula
    assert hash(again) == hash(formula)
