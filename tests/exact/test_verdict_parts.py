"""The parts of a verdict: whose offset and bounds it tells, and when an alternative would still have helped."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.errors import FormulaError, LimitError
from monitor.exact import Checker, IncrementalCheck, tables
from monitor.exact import value_table as table_module
from monitor.exact.forward import row_table
from monitor.exact.labelling import NEAR, _passes
from monitor.exact.path_values import PathValues
from monitor.exact.verdict import latest_useful, resolve
from monitor.logic import parse
from monitor.logic.syntax import Goal, Test
from monitor.model import MDP
from monitor.types import CausalModel, Verdict
from tests.exact.test_checker import MODEL, PATH, POLICIES
from tests.exact.test_history import COIN

LONG = (*PATH, (1, 1), (1, 0), (2, 1), (2, 0))


def ask(text: str, kind: CausalModel = "gumbel", *, start_observed: bool = True) -> Verdict:
    return Checker(MODEL, tables(POLICIES, MODEL)).check(
        parse(text), PATH, causal_model=kind, start_observed=start_observed
    )


def incremental(text: str, kind: CausalModel = "gumbel", window: int = 20) -> IncrementalCheck:
    return Checker(MODEL, tables(POLICIES, MODEL)).incremental_check(parse(text), kind, window=window)


@pytest.mark.parametrize(
    ("test", "nominals", "alternatives", "useful"),
    [
        (Test(">=", 0.5), [0.2, 0.9, 0.1], [0.8, 0.9, 0.9], 0),
        (Test(">=", 0.5), [0.9, 0.2, 0.1], [0.8, 0.4, 0.9], 2),
        (Test(">", 0.5), [0.9, 0.5], [0.2, 0.6], 1),
        (Test(">=", 0.5), [0.9, 0.5], [0.9, 0.6], None),
        (Test(">=", 0.5), [0.2, 0.2], [0.4, 0.1], None),
        (Test("<", 0.5), [0.2, 0.9], [0.8, 0.1], 1),
        (Test("<=", 0.5), [0.6, 0.1, 0.9], [0.5, 0.1, 0.1], 0),
        (Test("<=", 0.5), [0.5, 0.1], [0.1, 0.1], None),
    ],
)
def test_the_smallest_offset_at_which_the_alternative_helps(
    test: Test, nominals: list[float], alternatives: list[float], useful: int | None
) -> None:
    assert latest_useful(test, nominals, alternatives) == useful


def test_offsets_are_clipped_to_the_path() -> None:
    assert [resolve(offset, 3) for offset in (0, 1, 2, 3)] == [
        (0, 2, False),
        (1, 1, False),
        (2, 0, False),
        (2, 0, True),
    ]
    assert [resolve(offset, 3) for offset in (-1, -2, -3)] == [(-1, 0, False), (-2, 1, False), (-2, 1, True)]
    assert resolve(-1, 1) == (0, 0, True)


def test_of_several_quantities_the_last_offset_is_reported() -> None:
    one = ask('alt@1.P>0.5 [ F<=2 "bad" ]', "any")
    assert (one.offset, one.clipped) == (1, False)
    assert one.bounds == one.quantities[0].bounds is not None
    two = ask('alt@9.P>0.5 [ F<=2 "bad" ] & alt@2.P>0.5 [ F<=2 "bad" ]', "any")
    assert (two.offset, two.clipped, two.bounds) == (2, True, None)
    assert [quantity.offset for quantity in two.quantities] == [5, 2]
    none = ask('"bad" | true')
    assert (none.offset, none.clipped, none.bounds, none.quantities, none.holds) == (0, False, None, (), True)
    assert ask("false").holds is False
    assert ask('"bad" & true', "any").robust is True


def test_observed_facts_do_not_depend_on_the_causal_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bounds are its value, and nothing is computed for them."""
    expected = ask('nominal@2.P=? [ F<=3 "bad" ]').value
    assert expected is not None
    monkeypatch.setattr(PathValues, "bounds", None)
    assert ask('nominal@2.P=? [ F<=3 "bad" ]', "any").bounds == (expected, expected)


def test_an_effect_lies_between_the_ends_farthest_apart() -> None:
    """What a nominal path asks back about is open, so its bounds count on either side."""
    open_inside = 'F[1,2] alt@1.P>=0.5 [ X "one" ]'
    checker = Checker(COIN, tables({"nominal": [0, 0], "alt": [1, 1]}, COIN))
    path = [(0, 0), (1, 0), (0, 0)]

    def bounds(world: str) -> tuple[float, float]:
        found = checker.check(parse(f"{world}@2.P=? [ {open_inside} ]"), path, causal_model="any").bounds
        assert found is not None
        return found

    regret = checker.check(parse(f"regret(alt[1]@2, P>=0.5 [ {open_inside} ])"), path, causal_model="any")
    (low, high), (other_low, other_high) = bounds("nominal"), bounds("alt[1]")
    assert (low, high) == (0.0, 1.0)
    assert other_low < other_high
    assert regret.bounds == (other_low, other_high)
    assert regret.effect_bounds == (other_low - high, other_high - low)
    assert bounds("delta(alt[1],nominal)") == (other_low - high, other_high - low)


def test_a_start_is_missed_by_what_counts_from_it() -> None:
    one, other = 'alt@-1.P>0.5 [ F<=2 "bad" ]', 'alt@0.P>0.5 [ F<=2 "bad" ]'
    told = [ask(text, start_observed=False).start_dropped for text in (one, other, f"{one} & {other}")]
    assert told == [True, False, True]
    assert not ask(one, start_observed=True).start_dropped
    assert not incremental(one).verdict(PATH).start_dropped
    assert not incremental(one).verdict(PATH, terminated=False, start_observed=True).start_dropped


def test_an_action_that_becomes_known_is_taken_into_account() -> None:
    text = 'mix@2.P=? [ F<=3 "bad" ]'
    followed = incremental(text)
    for end in range(1, len(LONG) + 1):
        open_end = (*LONG[: end - 1], (LONG[end - 1][0], None))
        for path, moved in ((open_end, 1), (LONG[:end], 0)):
            expected = Checker(MODEL, tables(POLICIES, MODEL)).check(parse(text), path)
            assert followed.verdict(path, moved).value == pytest.approx(expected.value, abs=1e-12)


def test_a_repeated_verdict_is_the_same() -> None:
    followed = incremental('alt@2.P=? [ F<=3 "bad" ]')
    for end in range(1, len(LONG) + 1):
        first = followed.verdict(LONG[:end], 1)
        assert followed.verdict(LONG[:end], 0) == first
        ended = followed.verdict(LONG[:end], 0, terminated=True)
        assert followed.verdict(LONG[:end], 0) == first  # the end was not one after all
        assert (
            ended.value
            == Checker(MODEL, tables(POLICIES, MODEL))
            .check(parse('alt@2.P=? [ F<=3 "bad" ]'), LONG[:end], terminated=True)
            .value
        )


def test_several_pairs_at_once_and_another_path() -> None:
    text = 'alt@2.P=? [ F<=3 "bad" ]'
    followed = incremental(text)
    for path, moved in ((LONG[:3], 3), (LONG[:7], 4), (LONG[:8], 1), (LONG[5:], None), (LONG[2:9], 99)):
        expected = Checker(MODEL, tables(POLICIES, MODEL)).check(parse(text), path)
        assert followed.verdict(path, moved).value == pytest.approx(expected.value, abs=1e-12)


def test_after_an_error_all_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'alt@2.P>0.5 [ F<=3 "bad" ] & mix@1.P>0.5 [ F<=30 "bad" ]'
    followed = incremental(text)
    followed.verdict(LONG[:1], 1)
    with monkeypatch.context() as patched:
        patched.setattr(table_module, "MAX_TABLE_NUMBERS", 0)
        patched.setattr(table_module, "numbers", lambda _: 0)
        second = incremental(text)
        with pytest.raises(LimitError):
            second.verdict(LONG[:2], 2)
    for end in range(3, len(LONG) + 1):
        expected = Checker(MODEL, tables(POLICIES, MODEL)).check(parse(text), LONG[:end])
        again = second.verdict(LONG[:end], 1)  # its second pair was not taken in by all
        assert [quantity.value for quantity in again.quantities] == pytest.approx(
            [quantity.value for quantity in expected.quantities], abs=1e-12
        )


@pytest.mark.parametrize(
    "text", ['delta(alt,mix)@1.P=? [ X "bad" ]', 'alt@-1.P=? [ X "bad" ]', 'alt@1.P=? [ X alt@1.P>0.5 [ X "bad" ] ]']
)
def test_only_one_intervention_can_be_checked_incrementally(text: str) -> None:
    goal = parse(text)
    assert isinstance(goal, Goal)
    with pytest.raises(FormulaError, match="can be followed step by step") as caught:
        Checker(MODEL, tables(POLICIES, MODEL)).stepper(goal)
    assert (caught.value.line, caught.value.column) == (1, 1)


def test_arrays_are_compared_with_a_bound_as_single_values_are() -> None:
    for bound in (0.0, 0.5, -3.0, 4e6):
        scale = max(1.0, abs(bound))
        steps = [k * 10.0**-power * scale for power in (1, 8, 9, 10, 11, 12, 13) for k in (-2, -1, -0.5, 0, 0.5, 1, 2)]
        values = np.array([bound + step for step in steps] + [bound + NEAR * scale, bound - NEAR * scale])
        for comparison in ("<", "<=", ">", ">="):
            test = Test(comparison, bound)
            assert _passes(test, values).tolist() == [test.holds(value) for value in values.tolist()]


def test_the_row_budget_may_be_arbitrarily_small(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [(k % 30, 0) for k in range(70)]
    ring = MDP.from_transitions(
        states=30,
        actions=2,
        transitions=[(s, a, (s + k) % 30, 0.25) for s in range(30) for a in range(2) for k in (a, 1, 7, 9)],
        labels={"bad": [0]},
    )
    policies = tables({"nominal": [0] * 30, "alt": [1] * 30}, ring)
    text = 'alt@9.P=? [ F<=12 "bad" ]'
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 0)
    followed = Checker(ring, policies).incremental_check(parse(text), window=20)
    for end in range(1, len(chain) + 1):
        found = followed.verdict(chain[max(0, end - 20) : end], 1)
    assert found.value == pytest.approx(Checker(ring, policies).check(parse(text), chain[-20:]).value, abs=1e-12)
