"""What a verdict says: offsets and clipping, truths and ties, episodes that ended, regret."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from monitor.evaluation import check
from monitor.logic.syntax import Test
from monitor.model import MDP
from monitor.types import Verdict
from tests.exact.small import LAW, Small, chances, question, small_world
from tests.tiers import examples

# a corridor: from each state on to the next; label sN marks state N, so that a label tells where one looks from
CORRIDOR = MDP.from_transitions(
    states=5,
    actions=2,
    transitions=[(s, a, min(s + 1 + a, 4), 1.0) for s in range(5) for a in range(2)],
    rewards=[(s, a, 10.0 * s + a) for s in range(5) for a in range(2)],
    labels={f"s{s}": [s] for s in range(5)},
)
STAY_ON = {"nominal": [0] * 5, "hurry": [1] * 5}


def ask(text: str, **more: object) -> Verdict:
    """A question on the corridor, unless another model is given."""
    known: dict[str, object] = {"model": CORRIDOR, "path": [(0, 0), (1, 0), (2, 0), (3, 0)], "policies": STAY_ON}
    return check(text, **(known | more))  # type: ignore[arg-type] # by name


OFFSETS = [
    # offset, where it looks from on a path of four pairs, the offset used
    (0, 3, 0),
    (1, 2, 1),
    (2, 1, 2),
    (3, 0, 3),
    (4, 0, 3),
    (1_000_000, 0, 3),
    (-1, 0, -1),
    (-2, 1, -2),
    (-3, 2, -3),
    (-4, 2, -3),
    (-1_000_000, 2, -3),
]


@pytest.mark.parametrize(("offset", "state", "used"), OFFSETS)
def test_offsets_and_clipping(offset: int, state: int, used: int) -> None:
    verdict = ask(f'@{offset}.P=? [ "s{state}" ]')
    assert (verdict.value, verdict.offset, verdict.clipped) == (1.0, used, used != offset)
    assert (verdict.quantities[0].offset, verdict.quantities[0].clipped) == (used, used != offset)
    # the whole rest of the observed path lies behind: from there on it is the corridor
    assert ask(f'@{offset}.P=? [ F={3 - state} "s3" ]').value == 1.0


@pytest.mark.parametrize("offset", [0, 1, 7, -1, -7])
def test_on_a_path_of_one_pair_every_offset_is_that_pair(offset: int) -> None:
    verdict = ask(f'hurry@{offset}.P=? [ "s2" & X "s4" ]', path=[(2, 0)])
    assert (verdict.value, verdict.offset, verdict.clipped) == (1.0, 0, offset != 0)


def test_a_label_outside_is_read_now_and_inside_where_the_path_is() -> None:
    assert ask('"s3"').holds
    assert ask('@3.P>=1 [ "s0" & F=3 "s3" ] & !"s0"').holds
    assert not ask('"s0"').holds


def test_start_dropped_is_set_once_pairs_were_dropped() -> None:
    text = '@-1.P=? [ "s0" ]'
    assert not ask(text).start_dropped
    assert ask(text, start_observed=False).start_dropped
    assert ask('"s0" | !hurry@-2.P>0.5 [ "s0" ]', start_observed=False).start_dropped
    assert ask('regret(hurry@-1, P>0.5 [ "s0" ])', start_observed=False).start_dropped
    assert not ask('@3.P=? [ "s0" ]', start_observed=False).start_dropped


def test_rewards_count_both_ends_from_offset_zero() -> None:
    assert ask("@3.R=? [ C<=0 ]").value == 0.0
    assert ask("@3.R=? [ C<=2 ]").value == 0.0 + 10.0 + 20.0
    assert ask("@3.R=? [ C[1,2] ]").value == 30.0
    assert ask("hurry@3.R=? [ C<=2 ]").value == 1.0 + 21.0 + 41.0
    assert ask("delta(hurry,nominal)@3.R=? [ C<=2 ]").value == 33.0


def test_a_verdict_carries_its_numbers() -> None:
    verdict = ask('hurry@9.P>=0.5 [ "s0" ] & @1.R<0 [ C<=1 ]', causal_model="any")
    first, second = verdict.quantities
    assert first.text == 'hurry@9.P>=0.5 [ "s0" ]'
    assert (first.value, first.bounds, first.threshold, first.holds, first.robust) == (1.0, (1.0, 1.0), 0.5, True, True)
    assert (first.offset, first.clipped, second.offset, second.clipped) == (3, True, 1, False)
    assert (second.value, second.holds) == (50.0, False)
    assert (verdict.holds, verdict.clipped, verdict.value, verdict.outcome) == (False, True, None, None)
    assert (verdict.method, verdict.causal_model, verdict.robust) == ("exact", "any", True)


TRUTHS = [
    ("true", True),
    ("false", False),
    ('!"s3"', False),
    ('"s3" & "s0"', False),
    ('"s3" | "s0"', True),
    ('"s0" => "s1"', True),
    ('"s3" => "s1"', False),
    ('"s0" <=> "s1"', True),
    ('"s3" <=> "s1"', False),
    ('P>=1 [ X "s4" ] & !(P<1 [ X "s4" ])', True),
    ('@3.P>0.5 [ "s0" ] => "s0"', False),
]


@pytest.mark.parametrize(("text", "holds"), TRUTHS)
def test_boolean_combinations(text: str, holds: bool) -> None:  # noqa: FBT001 - a column of the table
    verdict = ask(text)
    assert (verdict.holds, verdict.value, verdict.robust) == (holds, None, None)


TIES = [
    (0.5, 0.5),
    (0.5 + 9e-13, 0.5),
    (0.5 - 9e-13, 0.5),
    (1e6 * (1 + 9e-13), 1e6),
    (-1e6 * (1 + 9e-13), -1e6),
]


@pytest.mark.parametrize(("value", "bound"), TIES)
def test_within_rounding_is_equal(value: float, bound: float) -> None:
    assert [Test(c, bound).holds(value) for c in ("<", "<=", ">=", ">")] == [False, True, True, False]


@pytest.mark.parametrize(("value", "bound"), [(0.5 + 2e-12, 0.5), (1e6 + 2e-6, 1e6), (2e-12, 0.0)])
def test_beyond_rounding_is_not(value: float, bound: float) -> None:
    assert [Test(c, bound).holds(value) for c in ("<", "<=", ">=", ">")] == [False, False, True, True]
    assert [Test(c, value).holds(bound) for c in ("<", "<=", ">=", ">")] == [True, True, False, False]


def test_a_sum_of_thirds_reaches_its_bound_nested_or_not() -> None:
    """0.1 * 3 is not 0.3 in binary; the comparison must not notice."""
    rows = [(0, 0, t, 0.1) for t in range(10)] + [(t, 0, t, 1.0) for t in range(1, 10)]
    model = MDP.from_transitions(states=10, actions=1, transitions=rows, labels={"few": [1, 2, 3]})
    for text in ('P>=0.3 [ X "few" ]', 'P<=0.3 [ X "few" ]', '!P>0.3 [ X "few" ]', 'P>=1 [ P>=0.3 [ X "few" ] ]'):
        assert ask(text, model=model, path=[(0, 0)], policies={"nominal": [0] * 10}).holds, text


def test_once_terminated_the_last_state_stays() -> None:
    path = [(0, 0), (1, 0), (2, None)]
    text = 'P=? [ G<=9 "s2" ]'
    assert ask(text, path=path).value == 0.0
    assert ask(text, path=path, terminated=True).value == 1.0
    assert ask("R=? [ C<=9 ]", path=path, terminated=True).value == 0.0
    # in a world that took another way, the episode goes on
    assert ask('hurry@2.P=? [ F<=9 "s4" ]', path=path, terminated=True).value == 1.0
    # and before the end the state is no end
    assert ask('hurry[1]@2.P=? [ X "s2" & F=2 "s3" ]', path=path, terminated=True).value == 1.0


def test_terminated_without_effect_where_the_state_is_absorbing_anyway() -> None:
    model = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)], labels={"end": [1]})
    policies = {"nominal": [0, 0]}
    for terminated in (False, True):
        more = {"model": model, "path": [(0, 0), (1, None)], "policies": policies, "terminated": terminated}
        assert ask('@1.P=? [ F<=5 G<=9 "end" ]', **more).value == 1.0


# ---- regret ----


def parts(small: Small, offset: int, goal: str) -> tuple[Verdict, Verdict]:
    return small.ask(f"nominal@{offset}.{goal}"), small.ask(f"alt@{offset}.{goal}")


def named(nominal: bool | None, alternative: bool | None) -> str:  # noqa: FBT001 - two truths
    if nominal:
        return "safe"
    return "regret" if alternative else "unavoidable"


@settings(LAW, max_examples=examples(25, 150))
@given(chances)
def test_regret_is_what_its_parts_say(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.3, terminated=chance.random() < 0.2)
    offset = chance.randint(-4, 5)
    goal = question(chance, "W", reach=3).removeprefix("W.")
    goal = goal.replace("=?", f"{chance.choice(['>=', '<'])}{round(chance.random(), 2)}")
    n = len(small.setting.path)
    verdict = small.ask(f"regret(alt@{offset}, {goal})", causal_model="stable")
    nominal, alternative = parts(small, offset, goal)
    one, other = nominal.quantities[0], alternative.quantities[0]

    assert verdict.outcome == named(nominal.holds, alternative.holds)
    assert (verdict.holds, verdict.value) == (None, None)
    assert verdict.effect == other.value - one.value
    assert (verdict.offset, verdict.clipped) == (one.offset, one.clipped)
    assert [(q.value, q.holds, q.offset) for q in verdict.quantities] == [
        (one.value, one.holds, one.offset),
        (other.value, other.holds, other.offset),
    ]

    reach = one.offset if one.offset >= 0 else n + one.offset
    profile = {}
    for j in range(reach + 1):
        both = parts(small, j, goal)
        profile[j] = (both[0].quantities[0].value, both[1].quantities[0].value)
    assert dict(verdict.profile) == profile
    useful = [j for j in profile if named(*(arm.holds for arm in parts(small, j, goal))) == "regret"]
    assert verdict.latest_useful == (min(useful) if useful else None)

    bounds = small.ask(f"alt@{offset}.{goal}", causal_model="stable").quantities[0].bounds
    assert bounds is not None
    assert verdict.bounds == bounds
    assert verdict.effect_bounds == (bounds[0] - one.value, bounds[1] - one.value)
    decided = small.ask(f"alt@{offset}.{goal}", causal_model="stable").robust
    assert verdict.robust == (verdict.outcome == "safe" or decided)


def test_regret_without_a_class_of_causal_models_has_no_bounds() -> None:
    verdict = ask('regret(hurry@1, P>=1 [ X "s4" ])')
    assert (verdict.outcome, verdict.bounds, verdict.effect_bounds, verdict.robust) == ("regret", None, None, None)
    assert verdict.profile == {0: (1.0, 1.0), 1: (0.0, 1.0)}
    assert (verdict.effect, verdict.latest_useful) == (1.0, 1)


def test_every_outcome_of_regret() -> None:
    assert ask('regret(hurry@0, P>=1 [ X "s4" ])').outcome == "safe"
    assert ask('regret(hurry@1, P>=1 [ X "s4" ])').outcome == "regret"
    assert ask('regret(hurry@3, P>=1 [ X "s4" ])').outcome == "unavoidable"
    late = ask('regret(hurry@3, P>=1 [ F<=2 "s4" ])')
    assert (late.outcome, late.latest_useful) == ("regret", 2)  # one step later all is well anyway


def test_a_quantity_that_is_named_twice_is_reported_once() -> None:
    """`<=>` is sugar that names each side twice."""
    model = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)], labels={"b": [1]})
    about: dict[str, Any] = {"model": model, "path": [(0, 0)], "policies": {"nominal": [0, 0]}, "causal_model": "any"}
    verdict = check('"b" <=> P>=0.5 [ X "b" ]', **about)
    assert [quantity.text for quantity in verdict.quantities] == ['nominal@0.P>=0.5 [ X "b" ]']
    assert verdict.bounds == (1.0, 1.0)
    assert (verdict.holds, verdict.robust) == (False, True)
