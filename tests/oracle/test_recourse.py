"""The oracle of best decisions: induction beside enumeration, known policies, total probability, noise, and by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.oracle.evaluate import Evaluator
from tests.oracle.race import ONE, ZERO
from tests.oracle.recourse import Recourse
from tests.oracle.recourse_cases import SETTINGS, Question, questions
from tests.oracle.setting import Pair, Setting
from tests.oracle.strategies import TooManyError, achievable, guarantees
from tests.tiers import first, slow

GROUPS = 9
"""The seeds of the cases are divided among as many tests."""


def group(number: int, groups: int = GROUPS) -> Iterator[Question]:
    """Yield the questions of a group of seeds."""
    for seed in range(number, SETTINGS, groups):
        yield from questions(seed)


def with_trees(number: int) -> Iterator[tuple[Question, Callable[[str], Fraction]]]:
    """Yield the questions of a group, each with its values in worlds of the language, by the trees of `evaluate`."""
    for seed in range(number, SETTINGS, GROUPS):
        evaluator = Evaluator(questions(seed)[0].setting)
        for asked in questions(seed):

            def value(world: str, asked: Question = asked, evaluator: Evaluator = evaluator) -> Fraction:
                return evaluator.answer(f"{world}@{asked.offset}.{asked.goal}").parts[0].value

            yield asked, value


def at_least_as_good(recourse: Recourse, better: Fraction, worse: Fraction) -> bool:
    """Return whether the first value serves the goal at least as much."""
    return recourse.pick([better, worse]) == better


@slow
def test_the_cases_have_what_is_hard() -> None:
    asked = [each for number in range(GROUPS) for each in group(number)]
    settings = [each.setting for each in asked]
    assert len(asked) >= 500
    assert sum(any(len(row) > 1 for row in s.policies["nominal"]) for s in settings) >= 50  # stochastic nominal
    assert sum(any(a not in s.policies["nominal"][x] for x, a in s.path if a is not None) for s in settings) >= 50
    assert sum(len(s.rows) < s.states * s.actions for s in settings) >= 30  # an action is unavailable
    assert sum(any(len(row) == 1 for row in s.rows.values()) for s in settings) >= 250  # deterministic rows
    assert sum(s.terminated for s in settings) >= 80
    assert sum(len(set(s.acted)) > 1 for s in settings) >= 50  # not nominal throughout
    assert sum(s.path[-1][1] is None for s in settings) >= 50
    differ = [{word: each.recourse.value(word) for word in ("nominal", "best", "optimal")} for each in asked]
    assert sum(values["best"] != values["nominal"] for values in differ) >= 250
    assert sum(values["best"] != values["optimal"] for values in differ) >= 50


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_induction_finds_the_best_of_all_strategies(number: int) -> None:
    """Among all that have the whole history for a memory; with at most k changes on each path."""
    compared = 0
    for asked in group(number):
        recourse = asked.recourse
        for word in ("best", f"best[{asked.steps}]", f"best[<={asked.changes}]", "optimal"):
            menu, left = recourse.world(word)
            try:
                values = achievable(recourse, menu, left)
            except TooManyError:
                continue
            assert recourse.pick(list(values)) == recourse.value(word), (asked, word)
            compared += len(values) > 1
    assert compared >= 30


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_the_optimal_policy_is_the_best_of_all_strategies_under_prior_noise(number: int) -> None:
    compared = 0
    for asked in group(number):
        recourse = asked.recourse
        try:
            values = achievable(recourse, recourse.free, kind="prior")
        except TooManyError:
            continue
        assert recourse.pick(list(values)) == recourse.prior()
        (mine,) = achievable(recourse, recourse.optimal, kind="prior")
        assert abs(mine - recourse.prior()) <= recourse.goal.last * Fraction(1, 10**12)  # ties within 1e-12, each step
        compared += len(values) > 1
    assert compared >= 15


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_guarantees_are_those_of_the_best_of_all_policies(number: int) -> None:
    """The best of all policies' lowest values over the causal models, and of their highest."""
    compared = 0
    for asked in group(number):
        recourse = asked.recourse
        for kind in ("any", "stable"):
            try:
                ends = [recourse.pick(list(guarantees(recourse, kind, extreme))) for extreme in (min, max)]
            except TooManyError:
                continue
            assert tuple(ends) == recourse.bounds("best", kind), (asked, kind)
            compared += ends[0] < ends[1]
    assert compared >= 2


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_no_policy_does_better_than_the_best(number: int) -> None:
    """Neither a policy, which may choose at random, nor an action held, for all steps or some."""
    compared = 0
    for asked, by_trees in with_trees(number):
        recourse, setting = asked.recourse, asked.setting
        names = setting.action_names or tuple(map(str, range(setting.actions)))
        held = [
            f"do({names[a]})"
            for a in range(setting.actions)
            if all((s, a) in setting.rows for s in range(setting.states))
        ]
        best, some = recourse.value("best"), recourse.value(f"best[{asked.steps}]")
        for world in ("alt", "near", "mixed", *held):
            value = by_trees(world)
            assert at_least_as_good(recourse, best, value), (asked, world)
            assert at_least_as_good(recourse, some, by_trees(f"{world}[{asked.steps}]")), (asked, world)
            compared += value != best
        assert at_least_as_good(recourse, best, recourse.value("optimal"))
        assert at_least_as_good(recourse, some, recourse.value(f"optimal[{asked.steps}]"))
    assert compared >= 30


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_without_changes_the_world_is_nominal(number: int) -> None:
    for asked, by_trees in with_trees(number):
        recourse = asked.recourse
        happened = by_trees("nominal")
        assert [recourse.value(word) for word in ("nominal", "best[0]", "best[<=0]", "optimal[0]")] == [happened] * 4


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_more_changes_serve_the_goal_at_least_as_much(number: int) -> None:
    """d + 1 changes are all decisions of the held path, and all decisions if the goal looks no further."""
    grew, whole = 0, 0
    for asked in group(number):
        recourse = asked.recourse
        held = recourse.window.d + 1
        few = [recourse.value(f"best[<={k}]") for k in range(held + 2)]
        first = [recourse.value(f"best[{k}]") for k in range(held + 1)]
        best = recourse.value("best")
        for more, less in [
            *zip(few[1:], few, strict=False),
            *zip(first[1:], first, strict=False),
            *zip(few, first, strict=False),
        ]:
            assert at_least_as_good(recourse, more, less), asked
        assert at_least_as_good(recourse, best, few[-1])
        assert few[held] == few[held + 1] == first[held]
        if recourse.goal.last <= held:
            assert few[held] == best
            whole += best != few[0]
        grew += len(set(few)) > 2
    assert grew >= 3
    assert whole >= 5


@pytest.mark.parametrize("number", first(1, range(3)))
def test_bounds_contain_the_gumbel_value(number: int) -> None:
    wide = 0
    for asked in group(number, 3):
        recourse = asked.recourse
        for word in ("best", f"best[<={asked.changes}]", f"best[{asked.steps}]", "optimal"):
            value = recourse.value(word)
            (low, high), (stable_low, stable_high) = (recourse.bounds(word, kind) for kind in ("any", "stable"))
            assert low <= stable_low <= value <= stable_high <= high, (asked, word)
            wide += low < stable_low or stable_high < high
        happened = recourse.value("nominal")
        assert recourse.bounds("nominal", "any") == (happened, happened)
        if recourse.window.d == 0:
            assert recourse.bounds("best", "any") == (recourse.value("best"),) * 2
    assert wide >= 10


def paths_of(setting: Setting, position: int) -> Iterator[tuple[tuple[Pair, ...], Fraction]]:
    """Yield each path of one action in each state that could have been observed, and its probability."""
    length = len(setting.path) - position
    action = [next(iter(dist)) for dist in setting.policies["nominal"]]

    def extend(before: tuple[Pair, ...], state: int, chance: Fraction) -> Iterator[tuple[tuple[Pair, ...], Fraction]]:
        path = (*before, (state, action[state]))
        if len(path) == length:
            yield path, chance
            return
        for successor, weight in setting.rows[state, action[state]].items():
            yield from extend(path, successor, chance * weight)

    yield from extend((), setting.path[position][0], ONE)


@pytest.mark.parametrize("number", first(1, range(3)))
def test_over_all_paths_hindsight_adds_to_what_the_optimal_policy_is_worth_under_prior_noise(number: int) -> None:
    """The mean of `optimal` over all observations is its value under prior noise; that of `best` is no worse."""
    compared, gained = 0, 0
    for asked in group(number, 3):
        recourse = asked.recourse
        if asked.setting.terminated or recourse.window.d not in {1, 2}:
            continue
        paths = list(paths_of(asked.setting, len(asked.setting.path) - 1 - recourse.window.d))
        each = [Recourse(replace(asked.setting, path=path, acted=()), asked.goal, len(path) - 1) for path, _ in paths]
        optimal, best = (
            sum((one.value(word) * chance for one, (_, chance) in zip(each, paths, strict=True)), Fraction(0))
            for word in ("optimal", "best")
        )
        assert abs(optimal - recourse.prior()) <= recourse.goal.last * Fraction(1, 10**12), asked
        assert at_least_as_good(recourse, best, optimal)
        compared += len(paths) > 1
        gained += best != optimal
    assert compared >= 30
    assert gained >= 3


def lottery(path: tuple[Pair, ...] = ((0, 0), (2, 0)), nominal: int = 0) -> Setting:
    """Return three tickets: 0 wins (1) with .6 or loses (2), 1 wins (3) with .55 or loses (4), 2 wins (3) with .1."""
    end = {(state, action): {state: ONE} for state in range(1, 5) for action in range(3)}
    tickets = {0: {1: "0.6", 2: "0.4"}, 1: {3: "0.55", 4: "0.45"}, 2: {3: "0.1", 4: "0.9"}}
    return Setting(
        states=5,
        actions=3,
        rows={(0, action): {k: Fraction(p) for k, p in row.items()} for action, row in tickets.items()} | end,
        policies={"nominal": ({nominal: ONE},) + ({0: ONE},) * 4},
        path=path,
        labels={"won": frozenset({1, 3})},
    )


def test_hindsight_does_not_buy_the_ticket_that_lost() -> None:
    """Ticket 0 is the best beforehand and lost; of ticket 1 the observation says nothing."""
    recourse = Recourse(lottery(), 'P>=0.5 [ F<=1 "won" ]', 1)
    worlds = ("nominal", "optimal", "best", "best[<=1]")
    assert [recourse.value(word) for word in worlds] == [0, 0, Fraction("0.55"), Fraction("0.55")]
    assert recourse.prior() == Fraction("0.6")
    assert recourse.bounds("best", "any") == (ZERO, ONE)  # any coupling of .55 with the .4 that lost
    losing = Recourse(lottery(), 'P<=0.5 [ F<=1 "won" ]', 1)
    assert [losing.value(word) for word in worlds] == [0, Fraction("0.1"), 0, 0]


@pytest.mark.parametrize(
    ("nominal", "value"),
    [({1: "1"}, "0.5"), ({2: "1"}, "0"), ({0: "0.4", 1: "0.6"}, "0.5"), ({0: "0.5", 1: "0.5"}, "0")],
    ids=["nominal's", "neither is nominal's", "the more probable", "equally probable"],
)
def test_of_equally_good_actions_the_optimal_policy_takes(nominal: dict[int, str], value: str) -> None:
    """Ticket 1 as good as ticket 0, which was taken and lost."""
    setting = lottery()
    even = {key: {k: Fraction(1, 2) for k in setting.rows[key]} for key in ((0, 0), (0, 1))}
    policy = ({action: Fraction(weight) for action, weight in nominal.items()}, *setting.policies["nominal"][1:])
    equal = replace(setting, rows=dict(setting.rows) | even, policies={"nominal": policy})
    assert Recourse(equal, 'P>=0.5 [ F<=1 "won" ]', 1).value("optimal") == Fraction(value)


def test_an_observed_action_may_stay_unchanged_wherever_it_is_available() -> None:
    """From 1, not visited, nominal goes back to 0 and the observed action goes on to 2."""
    rows = {(s, a): {(s + 1) % 3 if a else max(s - 1, 0): ONE} for s in range(3) for a in range(2)}
    setting = Setting(3, 2, rows, {"nominal": ({0: ONE},) * 3}, ((0, 0), (0, 1), (1, None)), {"far": frozenset({2})})
    by_policy, by_action = (
        Recourse(setting, 'P>=0.5 [ F=2 "far" ]', 2, unchanged=unchanged).value("best[<=1]")
        for unchanged in ("policy", "observed")
    )
    assert (by_policy, by_action) == (ZERO, ONE)
    without = {key: row for key, row in rows.items() if key != (1, 1)}
    assert (
        Recourse(replace(setting, rows=without), 'P>=0.5 [ F=2 "far" ]', 2, unchanged="observed").value("best[<=1]")
        == 0
    )


@pytest.mark.parametrize("word", ["careful", "optimal[<=2]", "best[", "best[<2]"])
def test_a_word_that_is_no_world_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="not a world"):
        Recourse(lottery(), 'P>=0.5 [ F<=1 "won" ]', 1).value(word)


def test_a_formula_that_is_no_goal_is_refused() -> None:
    with pytest.raises(TypeError, match="not a goal"):
        Recourse(lottery(), '"won" | P>=0.5 [ F<=1 "won" ]')
