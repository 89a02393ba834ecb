"""Which quantities of a formula are followed along the path, and which start points are answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from monitor.exact import Checker, IncrementalCheck, tables
from monitor.exact import evaluators as evaluators_module
from monitor.exact.evaluators import Evaluators
from monitor.exact.forward.buffers import ForwardBuffers
from monitor.exact.forward.evaluator import Evaluator, Pairs
from monitor.logic import parse, print_formula
from monitor.logic.syntax import And, Regret
from monitor.model import MDP
from tests.exact.calls import followed_worlds
from tests.exact.test_checker import PATH, checker, goal


def followed(text: str, one: Checker | None = None, window: int = 9) -> IncrementalCheck:
    return (one or checker()).incremental_check(parse(text), window=window)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('alt@2.P=? [ F<=3 "bad" ]', 1),
        ('delta(alt,nominal)@2.P=? [ F<=3 "bad" ]', 2),
        (
            'P>=1 [ true ] & alt@2.P>0.5 [ F<=3 "bad" ] & "mid"',
            1,
        ),  # a constant has no path value
        ('P>0 [ X alt@1.P>0.5 [ X "bad" ] ] | alt@2.P>0.5 [ F<=3 "bad" ]', 1),
        ('regret(alt@3, P>0.5 [ F<=3 "bad" ])', 2),
        ('mix@2.P>0.5 [ F<=2 alt@0.P>0.4 [ X "bad" ] ]', 1),
    ],
)
def test_a_followed_goal_is_answered_from_its_path_value(
    text: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    incremental = followed(text)
    assert len(followed_worlds(incremental.path_values)) == lines
    expected = [checker().check(parse(text), PATH[:end]) for end in range(1, len(PATH) + 1)]
    ended = [checker().check(parse(text), PATH[:end], terminated=True) for end in range(1, len(PATH) + 1)]
    apart = "X alt@1" in text or "true" in text  # a constant, or it looks back
    if not apart:
        monkeypatch.setattr(Evaluators, "value", None)
    assert [incremental.verdict(PATH[:end], 1) for end in range(1, len(PATH) + 1)] == expected
    if not apart and "alt@0" not in text:
        incremental = followed(text)
        assert [incremental.verdict(PATH[:end], 1, terminated=True) for end in range(1, len(PATH) + 1)] == ended


def test_only_one_start_point_is_evaluated_unless_a_profile_is_requested() -> None:
    plain, regret = followed('alt@3.P>0.5 [ F<=3 "bad" ]'), followed('regret(alt@3, P>0.5 [ F<=3 "bad" ])')
    for incremental, answered in ((plain, 1), (regret, 4)):
        for end in range(1, len(PATH) + 1):
            incremental.verdict(PATH[:end], 1)
        for path_value in followed_worlds(incremental.path_values):
            assert np.isfinite(path_value.buffers.values).tolist() == [True] * answered + [False] * (4 - answered)


@pytest.mark.parametrize("offsets", [(1, 3), (3, 1), (-2, 1), (1, -2), (-3, -2), (2, 2), (-2, -2)])
def test_two_offsets_of_a_goal_have_one_path_value(offsets: tuple[int, int]) -> None:
    """The two share their measure and change, as the sides of `<=>` do; another counts from the start as well."""
    other = 'mix@-4.P>0.5 [ F<=3 "bad" ]'
    first = goal(f'alt@{offsets[0]}.P>0.5 [ F<=3 "bad" ]')
    second = replace(first, world=replace(first.world, offset=offsets[1]))
    incremental = IncrementalCheck(checker().evaluators, And(parse(other), And(first, second)), "gumbel", "", 9)
    assert len(followed_worlds(incremental.path_values)) == 2
    for end in range(1, len(PATH) + 1):
        found = [quantity.value for quantity in incremental.verdict(PATH[:end], 1).quantities]
        texts = [other, print_formula(first), print_formula(second)][: len(found)]
        alone = [checker().check(parse(text), PATH[:end]).quantities[0].value for text in texts]
        assert found == pytest.approx(alone, abs=1e-12)


def test_a_profile_is_as_long_as_the_path_or_the_look_back() -> None:
    incremental = followed('regret(alt@3, P>0.5 [ F<=3 "bad" ])')
    assert isinstance(incremental.formula, Regret)
    lengths = []
    for end in range(1, len(PATH) + 1):
        incremental.verdict(PATH[:end], 1)
        lengths.append(
            len(incremental.path_values.profile(incremental.formula.world.change, incremental.formula.goal.measure))
        )
    assert lengths == [1, 2, 3, 4, 4, 4]


class Noted(Evaluator):
    """Evaluator that records its calls, in one list for the class. `fails`: the evaluator that raises at a pair."""

    calls: ClassVar[list[tuple[Any, ...]]] = []
    fails: ClassVar[Evaluator | None] = None

    def push(self, forward: ForwardBuffers, state: int, action: int, answered: bool) -> None:  # noqa: FBT001
        if self is Noted.fails:
            raise TypeError
        Noted.calls.append(("push", (state, action), answered))
        super().push(forward, state, action, answered)

    def answer(self, forward: ForwardBuffers) -> None:
        Noted.calls.append(("answer",))
        super().answer(forward)

    def interval(self, pairs: Pairs, kind: int) -> tuple[float, float]:
        Noted.calls.append(("interval", len(pairs[0])))
        return super().interval(pairs, kind)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> type[Noted]:
    """The class of the evaluators that are made during the test."""
    monkeypatch.setattr(evaluators_module, "Evaluator", Noted)
    monkeypatch.setattr(Noted, "calls", [])
    monkeypatch.setattr(Noted, "fails", None)
    return Noted


def test_a_nested_quantity_before_an_end_takes_it_into_account() -> None:
    """Round and round, but ended at the third pair: two steps after the first, state 1 is never met again."""
    model = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 0, 1.0)], labels={"one": [1]})
    formula, path = parse('@2.P=? [ @0.P>0.5 [ F[2,4] "one" ] ]'), [(0, 0), (1, 0), (0, 0)]
    incremental = Checker(model, tables({"nominal": [0, 0]}, model)).incremental_check(formula, window=3)
    assert incremental.verdict(path, 3).value == 1.0
    assert incremental.verdict(path, 0, terminated=True).value == 0.0


def test_another_path_leaves_nothing_of_the_one_before() -> None:
    """Also where it is shorter than the look back, which the older start points would reach."""
    text = 'alt@3.P=? [ F<=3 "bad" ]'
    incremental = followed(text)
    incremental.verdict(PATH, None)
    for path in (PATH[4:], PATH[:2], PATH[5:], PATH[1:]):
        for moved in (None, len(path)):
            assert incremental.verdict(path, moved) == checker().check(parse(text), path)


def test_an_action_that_becomes_known_is_another_path() -> None:
    incremental = followed("@0.R=? [ C<=0 ]")
    for end in range(2, len(PATH) + 1):
        unknown = (*PATH[: end - 1], (PATH[end - 1][0], None))
        assert incremental.verdict(unknown, 1).value == 0.0  # the nominal action earns nothing
        assert incremental.verdict(PATH[:end], 0).value == float(PATH[end - 1][1])


def test_after_an_error_no_path_value_lacks_a_pair(noted: type[Noted]) -> None:
    text = 'alt@2.P>0.5 [ F<=3 "bad" ] & mix@1.P>0.5 [ F<=4 "bad" ]'
    incremental = followed(text)
    incremental.verdict(PATH[:2], 2)
    noted.fails = followed_worlds(incremental.path_values)[1].evaluator
    with pytest.raises(TypeError):  # the first has taken the pair in, the second has not
        incremental.verdict(PATH[:3], 1)
    noted.fails = None
    for end in (4, 5, 6):
        assert incremental.verdict(PATH[:end], 1) == checker().check(parse(text), PATH[:end])


def test_pairs_are_not_added_twice(noted: type[Noted]) -> None:
    text = 'alt@2.P=? [ F<=3 "bad" ]'
    incremental = followed(text)
    incremental.verdict(PATH[:3], 3)
    expected = checker().check(parse(text), PATH[:5])
    noted.calls.clear()
    assert incremental.verdict(PATH[:5], 2) == expected
    assert [pair for _, pair, _ in noted.calls] == list(PATH[3:5])
    noted.calls.clear()
    incremental.verdict(PATH[:5], 0)
    assert noted.calls == [("answer",)]
    noted.calls.clear()
    incremental.verdict(PATH[:4], None)
    assert [pair for _, pair, _ in noted.calls] == list(PATH[:4])
