"""Extremes of values where pairs were never recorded: what is unknown is neither safe nor unsafe."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor import referee
from monitor.alarm.machine import assess
from monitor.exact.checker import Checker
from monitor.logic import parse
from monitor.model import MDP
from monitor.policy import as_table
from monitor.types import NO_EXTREMES, AlarmSpec, RequestedModel, Verdict
from tests.exact.learned import Learned, learned_model, learned_world
from tests.exact.small import LAW, chances

START, LEDGE, HOME, FALLEN, ELSEWHERE = range(5)
WALK, CRAWL = range(2)
CLOSE = 1e-12
GOAL = 'P>=0.6 [ G<=3 !"unsafe" ]'


def road(crawled: int = 0) -> MDP:
    """Return a model in which nobody crawled on the ledge, or did so some times and came home."""
    draws = [(START, WALK, LEDGE)] * 8 + [(START, WALK, FALLEN)] * 2
    draws += [(START, CRAWL, START)] * 5 + [(START, CRAWL, LEDGE)] * 5
    draws += [(LEDGE, WALK, HOME)] * 5 + [(LEDGE, WALK, FALLEN)] * 5 + [(LEDGE, CRAWL, HOME)] * crawled
    draws += [(state, action, state) for state in (HOME, FALLEN) for action in (WALK, CRAWL)]
    labels = {"unsafe": frozenset({FALLEN, ELSEWHERE}), "home": frozenset({HOME}), "elsewhere": frozenset({ELSEWHERE})}
    return learned_model(5, 2, draws, labels)[0]


def ask(text: str, model: MDP | None = None, causal_model: RequestedModel = "gumbel") -> Verdict:
    """Return the engine's verdict on the ledge, which agrees with the referee's."""
    model = model or road()
    path, policies = [(START, WALK), (LEDGE, WALK)], {"nominal": [WALK] * 5, "careful": [CRAWL] * 5}
    checker = Checker(model, {name: as_table(actions, model) for name, actions in policies.items()})
    verdict = checker.check(parse(text), path, causal_model=causal_model, recourse=True)
    again = referee.derive(text, model=model, path=path, policies=policies, causal_model=causal_model)
    assert differences(verdict, again) == []
    return verdict


def differences(one: Verdict, other: Verdict) -> list[str]:
    """Return the names of the fields in which two verdicts differ, numbers up to rounding."""
    fields = ("outcome", "holds", "reason", "robust", "latest_useful", "profile_extremes", "recourse", "bands")
    found = [name for name in fields if not same(getattr(one, name), getattr(other, name))]
    for mine, theirs in zip(one.quantities, other.quantities, strict=True):
        names = ("value", "holds", "robust", "extremes", "bounds", "guaranteed")
        found += [f"{mine.text}.{name}" for name in names if not same(getattr(mine, name), getattr(theirs, name))]
    return found


def same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-9
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__struct_fields__") and type(one) is type(other):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    return one == other


def test_prepare_builds_the_tables_of_both_extremes() -> None:
    model, formula = road(), parse(f"regret(careful@0, {GOAL})")
    checker = Checker(model, {"nominal": as_table([WALK] * 5, model), "careful": as_table([CRAWL] * 5, model)})
    checker.prepare(formula)
    sides = checker.evaluators.sides
    assert sides is not None
    held = [side.table_bytes for side in sides]
    assert min(held) > 0
    checker.check(formula, [(START, WALK), (LEDGE, WALK)])
    assert [side.table_bytes for side in sides] == held


def test_what_was_never_recorded_is_unknown_and_not_bad() -> None:
    verdict = ask(f"regret(careful@0, {GOAL})")
    nominal, careful = verdict.quantities
    assert nominal.extremes == (nominal.value, nominal.value) == (0.5, 0.5)
    assert careful.extremes == (0.0, 1.0)
    assert (verdict.outcome, verdict.reason) == ("undecided", "what was never recorded decides it")
    assert (nominal.holds, careful.holds, verdict.latest_useful) == (False, None, None)
    assert verdict.profile_extremes == ((0.5, 0.5, 0.0, 1.0),)
    assert verdict.recourse is None
    known = ask(f"regret(careful@0, {GOAL})", road(crawled=9))
    assert (known.outcome, known.latest_useful, known.profile_extremes) == ("regret", 0, ())
    assert [quantity.extremes for quantity in known.quantities] == [None, None]


def test_whether_anybody_could_have_met_the_goal_is_unknown_too() -> None:
    high = ask('regret(do(0)@1, P>=0.9 [ G<=3 !"unsafe" ])')
    assert high.outcome == "unavoidable"
    assert high.recourse is not None
    assert (high.recourse.avoidable, high.recourse.reason) == (None, "what was never recorded decides it")
    missed = ask('regret(do(0)@1, P>=0.55 [ G<=3 !"unsafe" ])')
    assert missed.recourse is not None
    assert missed.recourse.avoidable == "foresight"  # to crawl at the start is recorded, and enough
    assert missed.recourse.optimal is not None
    assert missed.recourse.optimal >= 0.55


@pytest.mark.parametrize("causal_model", ["gumbel", "any", "stable"])
def test_an_answer_that_holds_at_both_extremes_stands(causal_model: RequestedModel) -> None:
    verdict = ask('careful@0.P>=0 [ G<=3 !"unsafe" ]', causal_model=causal_model)
    assert (verdict.holds, verdict.reason) == (True, "")
    open_ = ask(f"careful@0.{GOAL}", causal_model=causal_model)
    assert (open_.holds, open_.robust) == (None, None if causal_model == "gumbel" else False)
    assert ask('careful@0.P=? [ F<=3 "elsewhere" ]').quantities[0].extremes == (1.0, 1.0), "that it is unknown is known"


@pytest.mark.parametrize(
    ("text", "spec", "assessment"),
    [
        (f"regret(careful@0, {GOAL})", AlarmSpec(), "missed"),
        (f"regret(careful@0, {GOAL})", AlarmSpec(when="unavoidable"), "bad"),
        ('regret(careful@0, P>=0.4 [ G<=3 !"unsafe" ])', AlarmSpec(), "good"),
        (f"careful@0.{GOAL}", AlarmSpec(), "bad"),
        ('careful@0.P<=0.4 [ F<=3 "unsafe" ]', AlarmSpec(), "bad"),
        ('careful@0.P>=0.4 [ F<=3 "unsafe" ]', AlarmSpec(when="holds"), "bad"),
        ('delta(careful,nominal)@0.P>=0.1 [ G<=3 !"unsafe" ]', AlarmSpec(when="holds"), "neutral"),
        ('careful@0.P=? [ G<=3 !"unsafe" ]', AlarmSpec(), "neutral"),
        ('handover(careful, P>=0.6 [ G<=3 !"unsafe" ], 2) <= 0.7', AlarmSpec(), "bad"),
    ],
)
def test_unknown_is_never_good_and_no_alarm_fires_on_an_unknown_alternative(
    text: str, spec: AlarmSpec, assessment: str
) -> None:
    assert assess(ask(text), spec) == assessment


def test_the_agent_whose_own_future_is_unknown_is_not_safe() -> None:
    """The agent crawls on the ledge, which nobody did; to walk is recorded and suffices."""
    model = road()
    path, policies = [(START, WALK), (LEDGE, None)], {"nominal": [CRAWL] * 5, "bold": [WALK] * 5}
    checker = Checker(model, {name: as_table(actions, model) for name, actions in policies.items()})
    verdict = checker.check(parse('regret(bold@0, P>=0.4 [ G<=3 !"unsafe" ])'), path)
    assert [quantity.holds for quantity in verdict.quantities] == [None, True]
    assert (verdict.outcome, verdict.latest_useful, assess(verdict, AlarmSpec())) == ("undecided", 0, "bad")


FORMULAS = ['G<=3 !"a"', 'F<=3 "b"', '!"a" U<=3 "b"', 'X !"a"', 'F<=2 ("b" & X !"a")', 'G<=2 !"a" & F<=3 "b"']


@LAW
@given(chances)
def test_extremes_are_the_least_and_the_greatest_over_what_may_hold_there(chance: Random) -> None:
    """Labels that occur in one direction only: each extreme is attained by one truth of each label in `elsewhere`."""
    learned = with_unknown(learned_world(chance), chance)
    text = f"{chance.choice(('alt', 'nominal', 'alt[1]'))}@{chance.randrange(3)}.P=? [ {chance.choice(FORMULAS)} ]"
    verdict = Checker(learned.model, learned.policies).check(parse(text), learned.setting.path)
    elsewhere = learned.model.states - 1
    if any(state == elsewhere for state, _ in learned.setting.path):
        return  # a stream has no such path
    places = [("a", elsewhere), ("b", elsewhere), *unknown_beside(learned)]
    every = product((False, True), repeat=len(places))
    values = [value_with(learned, text, dict(zip(places, truths, strict=True))) for truths in every]
    extremes = verdict.quantities[0].extremes
    if extremes is None:
        assert max(values) - min(values) <= CLOSE
    else:
        assert extremes == pytest.approx((min(values), max(values)), abs=CLOSE)


def with_unknown(learned: Learned, chance: Random) -> Learned:
    """Return a world in which it may be unknown whether a holds in one more state, as at an end not recorded."""
    model = learned.model
    if chance.random() < 0.5:
        return learned
    assert model.counts is not None
    where = np.zeros(model.states, np.bool_)
    where[chance.randrange(model.states - 1)] = True
    return replace(learned, model=replace(model, counts=replace(model.counts, unknown={"a": where})))


def unknown_beside(learned: Learned) -> list[tuple[str, int]]:
    assert learned.model.counts is not None
    return [("a", int(state)) for where in learned.model.counts.unknown.values() for state in np.flatnonzero(where)]


def value_with(learned: Learned, text: str, truths: dict[tuple[str, int], bool]) -> float:
    """Return the value on the model as estimated, with these truths of labels in states."""
    labels = {name: where.copy() for name, where in learned.model.labels.items()}
    for (name, state), truth in truths.items():
        labels[name][state] = truth
    model = replace(learned.model, labels=labels, counts=None)
    value = Checker(model, learned.policies).check(parse(text), learned.setting.path).value
    assert value is not None
    return value


NESTED = 'F<=2 alt@0.P>=0.5 [ X !"a" ]'
TEXTS = [
    'regret(alt@2, P>=0.5 [ G<=3 !"a" ])', 'regret(best@1, P<=0.3 [ F<=3 "b" ])', "regret(alt[1]@1, R>=0.5 [ C<=2 ])",
    'handover(alt, P>=0.5 [ G<=2 !"a" ], 2) <= 0.4', 'delta(alt,nominal)@1.P>=0.1 [ F<=3 "b" ]', f"P=? [ {NESTED} ]",
    'alt@1.P>=0.5 [ G<=2 !"a" ] & !(P<0.4 [ F<=2 "b" ])', "alt@-1.R=? [ C<=3 ]",
    'P>=0.5 [ F<=2 delta(alt,nominal).P>=0.1 [ X "a" ] ]',
]  # fmt: skip


@LAW
@given(chances)
def test_the_referee_finds_the_same_extremes(chance: Random) -> None:
    text = chance.choice(TEXTS)
    learned = with_unknown(learned_world(chance, rewards="R" in text or chance.random() < 0.2), chance)
    kind: RequestedModel = chance.choice(("gumbel", "any", "stable"))
    terminated, path = chance.random() < 0.3, learned.setting.path
    checker = Checker(learned.model, learned.policies)
    verdict = checker.check(parse(text), path, causal_model=kind, terminated=terminated, recourse=True)
    about = {"model": learned.model, "policies": learned.policies, "causal_model": kind, "terminated": terminated}
    assert differences(verdict, referee.derive(text, path=path, **about)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("causal_model", ["gumbel", "any"])
def test_a_goal_without_extremes_takes_none_from_the_others(causal_model: RequestedModel) -> None:
    """An upper bound of a nested reward has no worst and best case; what stands beside it has."""
    nested = "P>=0.5 [ G<=1 (R<=0.1 [ C<=2 ]) ]"
    verdict = ask(f'careful@0.P>=0.6 [ G<=3 !"unsafe" ] & {nested}', causal_model=causal_model)
    assert [quantity.extremes for quantity in verdict.quantities] == [(0.0, 1.0), None]
    assert verdict.quantities[0].holds is None
    assert verdict.bands is not None
    assert NO_EXTREMES in verdict.bands.reason


def test_a_label_that_is_unknown_in_the_last_state_is_unknown_in_a_combination() -> None:
    model = road()
    for text in ('"unsafe" | P>=0.9 [ F<=1 "unsafe" ]', '!"unsafe" & P>=0 [ F<=1 "unsafe" ]', '"unsafe"', '!"unsafe"'):
        verdict = Checker(model, {"nominal": as_table([WALK] * 5, model)}).check(parse(text), [(ELSEWHERE, WALK)])
        again = referee.derive(text, model=model, path=[(ELSEWHERE, WALK)], policies={"nominal": [WALK] * 5})
        assert (verdict.holds, again.holds) == (None, None)
        assert assess(verdict, AlarmSpec()) == "bad"
    assert ask('"unsafe" | "home"').holds is False
    assert ask('!"unsafe"').holds is True
