"""Every temporal operator against its definition, on all sequences of six letters (hence on all their prefixes).

A sequence of six letters over two labels is one of 4,096. The automaton answers TRUE or FALSE as soon as it can, and
its answer then stands for every continuation, so agreement at length six covers every shorter prefix it decides on.

The formulas are all those of depth 0 and 1 over {true, false, a, b} with every interval inside [0, 2]; all those of
depth 2 over {a, b} with the operators ! & | X F G U W R and the intervals of `FEW`, up to exchanging the two labels;
and a fixed sample of 6,000 of those of depth 2 with constants, => and <=>, and every interval inside [0, 2]. Depth
counts operators. The fast tier has 2,000 of each kind of depth 2.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import reduce
from itertools import product

import pytest

from monitor.errors import LimitError
from monitor.logic import FALSE, TRUE, Formula, PathAutomaton, RewardAutomaton, parse
from monitor.logic import automaton as automaton_module
from monitor.logic.automaton import MAX_ATOMS
from monitor.logic.syntax import (
    And,
    Const,
    Goal,
    Label,
    Not,
    Or,
    Probability,
    Until,
    always,
    eventually,
    iff,
    implies,
    release,
    weak_until,
)
from tests.logic.definitions import LABELS, Paths, Spec, formulas, text
from tests.tiers import examples, scaled

LENGTH = 6
ALL = Paths(LENGTH)
SPANS = [(low, high) for high in range(3) for low in range(high + 1)]
FEW = [(0, 1), (0, 2), (1, 2), (2, 2)]  # of those inside [0, 2] only [0, 0] = nothing timed and [1, 1] = X are missing
ATOMS: list[Spec] = [("label", "a"), ("label", "b")]
JOINS: dict[str, Callable[[Formula, Formula], Formula]] = {"&": And, "|": Or, "=>": implies, "<=>": iff}
CONSTANTS: list[Spec] = [("true",), ("false",)]


def formula(spec: Spec) -> Formula:
    """The nodes a spec stands for, without the detour of the parser (which `test_text_means_the_same` takes)."""
    match spec:
        case ("true" | "false",):
            return Const(value=spec[0] == "true")
        case ("label", str(name)):
            return Label(name)
        case ("!", arg):
            return Not(formula(arg))
        case ("X", arg):
            return eventually(1, 1, formula(arg))
        case ("F", (int(a), int(b)), arg):
            return eventually(a, b, formula(arg))
        case ("G", (int(a), int(b)), arg):
            return always(a, b, formula(arg))
        case ("U", (int(a), int(b)), left, right):
            return Until(a, b, formula(left), formula(right))
        case ("W", (int(a), int(b)), left, right):
            return weak_until(a, b, formula(left), formula(right))
        case ("R", (int(a), int(b)), left, right):
            return release(a, b, formula(left), formula(right))
        case (str(join), left, right):
            return JOINS[join](formula(left), formula(right))
        case _:
            raise AssertionError(spec)


def accepted(machine: PathAutomaton) -> int:
    """The sequences of six letters the automaton accepts, as `Paths` numbers them; checks its promises on the way."""
    bits = [
        sum((letter >> LABELS.index(a.name) & 1) << n for n, a in enumerate(labels_of(machine))) for letter in range(4)
    ]
    known: dict[tuple[int, int], int] = {}

    def sequences(obligation: int, left: int) -> int:
        if obligation == FALSE:
            return 0
        if obligation == TRUE:
            return (1 << (1 << 2 * left)) - 1
        assert 0 < machine.horizon(obligation) <= left, "undecided for longer than promised"
        key = (obligation, left)
        if key not in known:
            known[key] = 0
            for letter in range(4):
                rest = machine.step(obligation, bits[letter])
                assert machine.horizon(rest) < machine.horizon(obligation), "a step does not lower the horizon"
                known[key] |= sequences(rest, left - 1) << (letter << 2 * (left - 1))
        return known[key]

    return sequences(machine.start, LENGTH)


def labels_of(machine: PathAutomaton) -> list[Label]:
    return [atom for atom in machine.atoms if isinstance(atom, Label)]


def disagreements(specs: list[Spec]) -> list[str]:
    return [text(spec) for spec in specs if accepted(PathAutomaton(formula(spec))) != ALL.satisfying(spec)]


def in_order(spec: Spec) -> bool:
    """Whether label a is named, and label b not before it."""
    written = text(spec)
    a, b = written.find('"a"'), written.find('"b"')
    return a >= 0 and (b < 0 or a < b)


def shallow() -> list[Spec]:
    return [*ATOMS, *CONSTANTS, *formulas([*ATOMS, *CONSTANTS], SPANS)]


def test_depth_one_with_every_interval() -> None:
    specs = shallow()
    assert len(specs) == 412
    assert disagreements(specs) == []


@scaled
def test_depth_two() -> None:
    inner: list[Spec] = [*ATOMS, *formulas(ATOMS, FEW, ("&", "|"))]
    specs = list(formulas(inner, FEW, ("&", "|")))
    assert len(specs) == 10 * 78 + 14 * 78**2
    named_in_order = [spec for spec in specs if in_order(spec)]
    assert 2 * len(named_in_order) == len(specs)
    assert disagreements(random.Random(22).sample(named_in_order, examples(2000, len(named_in_order)))) == []


@scaled
def test_depth_two_with_everything_sampled() -> None:
    chance, inner = random.Random(20), shallow()
    specs: list[Spec] = []
    for _ in range(examples(2000, 6000)):
        pair = [chance.choice(inner), chance.choice(inner)]
        specs.append(chance.choice(list(formulas(pair, SPANS))))
    assert disagreements(specs) == []


def test_text_means_the_same() -> None:
    """Through the parser: all of depth 1 and a sample of depth 2 become the very nodes used above."""
    chance, inner = random.Random(21), shallow()
    deeper = [chance.choice(list(formulas([chance.choice(inner), chance.choice(inner)], SPANS))) for _ in range(400)]
    for spec in inner + deeper:
        goal = parse(f"P=? [ {text(spec)} ]")
        assert isinstance(goal, Goal)
        assert goal.measure == Probability(formula(spec))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('F<=3 "a"', 'true U<=3 "a"'),
        ('G[1,3] "a"', '!F[1,3] !"a"'),
        ('"a" W<=3 "b"', '"b" R<=3 ("a" | "b")'),
        ('F<=1 F<=2 "a"', 'F<=3 "a"'),
        ('X X "a"', 'F=2 "a"'),
        ('"a" U[2,3] "b"', '"a" & X ("a" & X ("b" | ("a" & X "b")))'),
        ('F[1,2] "a"', 'F<=2 "a"'),  # and one that differs
    ],
)
def test_known_equivalences(one: str, other: str) -> None:
    languages = []
    for wording in (one, other):
        goal = parse(f"P=? [ {wording} ]")
        assert isinstance(goal, Goal)
        assert isinstance(goal.measure, Probability)
        # both labels as atoms, in one order, so that letters mean the same
        both = And(Or(Label("a"), Not(Label("a"))), Or(Label("b"), Not(Label("b"))))
        languages.append(accepted(PathAutomaton(And(both, goal.measure.path))))
    assert (languages[0] == languages[1]) == (one != 'F[1,2] "a"')


def test_equal_futures_meet_in_one_obligation() -> None:
    """`G<=20 F<=10 "a"` has at most one obligation a deadline, not one for every set of open deadlines."""
    machine = PathAutomaton(always(0, 20, eventually(0, 10, Label("a"))))
    assert len(reachable(machine)) <= 21 * 11 + 2


def reachable(machine: PathAutomaton) -> list[int]:
    """Every obligation that some letters lead to."""
    seen = [machine.start]
    for now in seen:  # which grows meanwhile
        for letter in range(1 << len(machine.atoms)):
            rest = machine.step(now, letter)
            if rest not in seen:
                seen.append(rest)
    return seen


@pytest.mark.parametrize(
    ("longer", "shorter"),
    [
        ('"a" | "a" & F<=3 "b"', '"a"'),
        ('("a" | "b") & "a"', '"a"'),
        ('F<=2 "a" & F<=5 "a"', 'F<=2 "a"'),
        ('F[2,3] "a" & F<=3 "a"', 'F[2,3] "a"'),
        ('F[1,2] "a" & F[1,5] "a"', 'F[1,2] "a"'),
        ('G<=3 "a" | G[1,3] "a"', 'G[1,3] "a"'),
        ('G[1,3] "a" | G[1,5] "a"', 'G[1,3] "a"'),
        ('"b" & F<=2 "a" | "b" & F<=5 "a"', '"b" & F<=5 "a"'),
    ],
)
def test_what_follows_from_something_shorter_is_dropped(longer: str, shorter: str) -> None:
    horizons = []
    for path in (longer, shorter):
        machine = PathAutomaton(path_of(path))
        horizons.append(sorted(machine.horizon(each) for each in reachable(machine)))
    assert horizons[0] == horizons[1]


def test_too_many_obligations_is_a_limit_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton_module, "MAX_OBLIGATIONS", 8)
    machine = PathAutomaton(eventually(0, 20, Label("a")))
    last = machine.start
    for _ in range(5):
        last = machine.step(last, 0)
    with pytest.raises(LimitError, match=r"more than 8 obligations \(limit MAX_OBLIGATIONS\); shorten"):
        machine.step(last, 0)


@pytest.mark.parametrize(("low", "high"), [(low, high) for low, high in product(range(4), repeat=2) if low <= high])
def test_collector_pays_on_both_ends(low: int, high: int) -> None:
    automaton = RewardAutomaton(low, high)
    obligation, paid, read = automaton.start, [], 0
    while obligation not in (FALSE, TRUE):
        before = automaton.horizon(obligation)
        if automaton.rewards(obligation):
            paid.append(read)
        obligation, read = automaton.step(obligation, 0), read + 1
        assert automaton.horizon(obligation) == before - 1
    assert paid == list(range(low, high + 1))
    assert read == high + 1


def test_more_atoms_than_a_letter_has_bits_are_refused_not_mixed_up() -> None:
    """A bit beyond the mask would silently be another label's, or none's."""
    most = " | ".join(f'"label{n}"' for n in range(MAX_ATOMS))
    assert len(PathAutomaton(path_of(f"X ({most})")).atoms) == MAX_ATOMS
    with pytest.raises(LimitError, match=r"63 different labels.*MAX_ATOMS"):
        PathAutomaton(path_of(f'X ({most} | "one_more")'))


@pytest.mark.parametrize("connective", ["<=>", "xor"])
def test_what_multiplies_out_without_end_is_refused_before_it_takes_minutes(connective: str) -> None:
    """Found by random questions: nested equivalences over intervals, which double the alternatives with each."""
    parts = [f'(F=3 "label{n}")' for n in range(7)]
    join = "(!({}) <=> {})" if connective == "xor" else "({} <=> {})"
    with pytest.raises(LimitError, match=r"alternatives; at most 10000.*MAX_ALTERNATIVES"):
        PathAutomaton(path_of(reduce(join.format, parts)))
    machine = PathAutomaton(path_of(reduce(join.format, parts[:4])))
    ends = [reduce(machine.step, (0, 0, 0, letter), machine.start) for letter in range(16)]
    assert sorted(ends) == [FALSE] * 8 + [TRUE] * 8  # whether an even number of them hold


def test_alternatives_count_only_after_those_that_entail_others_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of an obligation may bring alternatives that others make superfluous."""
    path = path_of('(F<=4 (G<=2 "b")) & (G<=1 (F<=2 "a"))')
    letters = (7, 1, 1, 1, 1)
    free = PathAutomaton(path)
    expected = [reduce(free.step, letters[:count], free.start) for count in range(6)]
    monkeypatch.setattr(automaton_module, "MAX_ALTERNATIVES", 3)
    limited = PathAutomaton(path)
    assert [reduce(limited.step, letters[:count], limited.start) for count in range(6)] == expected
    monkeypatch.setattr(automaton_module, "MAX_ALTERNATIVES", 2)
    with pytest.raises(LimitError):
        reduce(PathAutomaton(path).step, letters, 2)


def path_of(text: str) -> Formula:
    goal = parse(f"P=? [ {text} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return goal.measure.path


@pytest.mark.parametrize("operator", ["F", "G"])
@pytest.mark.parametrize("first", [And, Or])
def test_the_same_operands_under_another_connective_are_another_formula(
    operator: str, first: Callable[[Formula, Formula], Formula]
) -> None:
    """Operands that differ in nothing but `&` and `|` must not meet in one obligation."""
    other = Or if first is And else And
    timed = eventually if operator == "F" else always
    a, b = Label("a"), Label("b")
    parts = timed(0, 2, first(a, b)), timed(0, 2, other(a, b))
    alone = [accepted(PathAutomaton(part)) for part in parts]
    assert accepted(PathAutomaton(And(*parts))) == alone[0] & alone[1]
    assert accepted(PathAutomaton(Or(*parts))) == alone[0] | alone[1]
