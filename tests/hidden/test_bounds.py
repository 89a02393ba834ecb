"""Bounds over causal models where states are hidden, against linear programs and against explicit causal models."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.hidden import causal_bounds
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.hidden.trace import Trace
from monitor.hidden.transport import Transport, cheapest
from monitor.logic import parse
from monitor.referee import derive
from monitor.referee.transport import largest_gain
from monitor.types import AlarmSpec, Alert, FormulaSpec, Judged
from tests.hidden import any_oracle as oracle
from tests.hidden.any_oracle import Question, about, some_question
from tests.hidden.learned import learned
from tests.hidden.played import some_world
from tests.hidden.robot import CREEP, GO, policies, robot
from tests.hidden.scores import KINDS, model_of, policy
from tests.hidden.test_seen_states import case, shown
from tests.hidden.test_stream import send, watch
from tests.tiers import examples, first, heavy, scaled, slow

LOPSIDED = (2, 2, 12), (6, 2, 2), (3, 3, 9), (5, 2, 1)
"""Numbers of states, actions and observations."""
PROGRAMS = pytest.mark.parametrize("program", [monitor.check, derive])
SEEN = [(1, GO), (1, GO), (None, GO), (1, GO)]


def ask(program: Any, text: str, path: Any = SEEN, **more: Any) -> monitor.Verdict:  # noqa: ANN401 - either program
    given = {"model": robot(), "policies": policies(), "causal_model": "any", **more}
    found: monitor.Verdict = program(text, path=path, **given)
    return found


def ends(verdict: monitor.Verdict) -> list[tuple[float, float]]:
    return [each.bounds for each in verdict.quantities if each.bounds is not None]


# ---- the transport problem ----


def cheapest_by_both(p: Any, q: Any, cost: Any) -> tuple[float, float]:  # noqa: ANN401 - arrays
    problem = Transport(len(p) + 2, len(q) + 1)  # more space than is needed
    np.asarray(problem.supply)[: len(p)], np.asarray(problem.demand)[: len(q)] = p, q
    found = set()
    for _ in range(2):  # working memory is used again
        np.asarray(problem.cost)[: len(p), : len(q)] = cost
        found.add(cheapest(problem, len(p), len(q)))
    assert len(found) == 1
    return found.pop(), -largest_gain(p.tolist(), q.tolist(), (-cost).tolist())


@pytest.mark.parametrize("seed", range(40))
def test_both_methods_find_the_cheapest_coupling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = (int(each) for each in rng.integers(1, 7, size=2))
    p, q = (np.ones(k) / k if rng.random() < 0.3 else rng.dirichlet(np.ones(k)) for k in (m, n))
    cost = rng.normal(size=(m, n)) if seed % 3 else rng.integers(-1, 2, size=(m, n)).astype(np.float64)
    one, two = cheapest_by_both(p, q, cost)
    assert one == pytest.approx(oracle.transport(p, q, cost, largest=False), abs=1e-12)
    assert one == pytest.approx(two, abs=1e-14)


@pytest.mark.parametrize("rare", [1e-4, 1e-8, 1e-12, 1e-14])
def test_rare_outcomes_whose_costs_are_large_change_no_digit(rare: float) -> None:
    """Costs are a likelihood, whose mean is 1, times a value; that of a rare outcome may be 1 / rare."""
    rng, large = np.random.default_rng(0), 0.0
    for number in range(examples(60, 1000)):
        p, q = (oracle.with_rare(rng, int(rng.integers(2, 4)), rare) for _ in range(2))
        likelihood = rng.random(len(p)) / np.where(rng.random(len(p)) < 0.7, p, 1.0)
        cost = likelihood[:, np.newaxis] / (likelihood @ p) * rng.random((len(p), len(q))) * (-1) ** number
        large = max(large, float(np.abs(cost).max()))
        least = oracle.cheapest_vertex(p, q, cost)
        assert cheapest_by_both(p, q, cost) == pytest.approx((least, least), abs=1e-14)
    assert large > 0.05 / rare


def test_many_outcomes_of_one_kind_and_few_of_the_other_are_coupled() -> None:
    rng = np.random.default_rng(0)
    for m, n in ((1, 90), (90, 1), (2, 90), (90, 2), (9, 40)):
        p, q, cost = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(n)), rng.random((m, n))
        one, two = cheapest_by_both(p, q, cost)
        assert one == pytest.approx(two, abs=1e-12)
        if m == 2:  # sort the columns by what the first row gains there
            order, left, least = np.argsort(cost[0] - cost[1]), p[0], 0.0
            for j in order:
                sent = min(left, q[j])
                left -= sent
                least += sent * cost[0, j] + (q[j] - sent) * cost[1, j]
            assert one == pytest.approx(least, abs=1e-12)


def test_what_nobody_demands_is_not_sent() -> None:
    problem = Transport(2, 2)
    np.asarray(problem.supply)[:], np.asarray(problem.demand)[:] = (0.6, 0.6), (0.5, 0.5)
    np.asarray(problem.cost)[:] = [[1.0, 2.0], [2.0, 1.0]]
    cheapest(problem, 2, 2)
    assert np.asarray(problem.flow).sum() == pytest.approx(1.0, abs=1e-14)


def test_a_cost_of_0_everywhere_needs_no_coupling() -> None:
    assert largest_gain([0.5, 0.5], [0.25, 0.75], [[0.0, 0.0], [0.0, 0.0]]) == 0.0


# ---- against the oracle ----


@PROGRAMS
@pytest.mark.parametrize("seed", first(25, range(150)))
def test_bounds_are_those_of_the_linear_programs(seed: int, program: Any) -> None:  # noqa: ANN401 - either program
    question = some_question(np.random.default_rng(seed), sizes=None if seed % 3 else LOPSIDED[seed // 3 % 4])
    verdict = program(**about(question), causal_model="any")
    assert verdict.bounds == pytest.approx(oracle.bounds(question), abs=1e-9)
    assert verdict.value == pytest.approx(oracle.value(question, oracle.Gumbel(question)), abs=1e-9)


@scaled
def test_every_explicit_causal_model_lies_within_the_bounds() -> None:
    rng, wide = np.random.default_rng(0), 0
    for _ in range(examples(15, 150)):
        question = some_question(rng)
        low, high = monitor.check(**about(question), causal_model="any").bounds or (0.0, 0.0)
        for mixed in (1, 1, 2, 3):
            value = oracle.value(question, oracle.InverseCdf(question, rng, mixed))
            assert low - 1e-9 <= value <= high + 1e-9
        wide += high - low > 1e-6
    assert wide > 3


def test_a_bound_is_attained_where_one_coupling_is_free() -> None:
    """Two states, one step: the two rows have one coupling, so each bound is the value of a causal model."""
    rows = np.array([[[0.5, 0.5], [0.2, 0.8]], [[0.4, 0.6], [0.3, 0.7]]])
    never, always = oracle.Acting(np.eye(2)[[0, 0]]), oracle.Acting(np.eye(2)[[1, 1]])
    emissions = np.array([[0.9, 0.1], [0.2, 0.8]])
    question = Question(rows, emissions, np.array([1.0, 0.0]), 1, ((0, 0), (1, None)), 1, 1, never, always)
    low, high = monitor.check(**about(question), causal_model="any").bounds or (0.0, 0.0)
    # P(bad') = 0.8; P(saw 1) = 0.5 * 0.8 in the true state 1, else 0.5 * 0.1
    assert high == pytest.approx((0.5 * 0.8 + 0.3 * 0.1) / 0.45, abs=1e-12)
    assert low == pytest.approx((0.3 * 0.8 + 0.5 * 0.1) / 0.45, abs=1e-12)


@scaled
def test_the_gumbel_value_lies_within_the_bounds() -> None:
    """The kinds of policies include controllers that watch, and controllers that begin anew."""
    rng, wide = np.random.default_rng(1), 0
    for number in range(examples(80, 1000)):
        world = some_world(rng, **list(KINDS.values())[number % len(KINDS)])
        path = [
            (None if rng.random() < 0.2 else int(rng.integers(world.emissions.shape[1])), int(rng.integers(2)))
            for _ in range(int(rng.integers(2, 5)))
        ]
        verdict = monitor.check(
            f'other@{rng.integers(1, 4)}.P=? [ F<=3 "bad" ]',
            model=model_of(world),
            path=path,
            policies={"nominal": policy(world.nominal), "other": policy(world.alternative)},
            causal_model="any",
        )
        assert verdict.value is not None
        assert verdict.bounds is not None
        assert verdict.bounds[0] <= verdict.value <= verdict.bounds[1]
        wide += verdict.bounds[1] - verdict.bounds[0] > 1e-6
    assert wide > 10


def test_observations_after_which_policies_do_the_same_are_one() -> None:
    """60 observations of two kinds, none of which was seen, give the bounds of two observations."""
    rng = np.random.default_rng(3)
    rows, kinds = rng.dirichlet(np.ones(3), size=(3, 2)), np.array([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])
    spread = rng.dirichlet(np.ones(30), size=2)
    many = np.concatenate([kinds[:, [0]] * spread[0], kinds[:, [1]] * spread[1]], axis=1)
    acted, new = np.array([[0.8, 0.2], [0.1, 0.9]]), np.array([[0.4, 0.6], [1.0, 0.0]])
    path, given = ((None, 0), (None, 1), (None, 1)), (np.array([0.5, 0.3, 0.2]), 2)
    few, all_of_them = (
        Question(rows, emissions, *given, path, 2, 3, oracle.Acting(old), oracle.Acting(other))
        for emissions, old, other in (
            (kinds, acted, new),
            (many, acted.repeat(30, axis=0), new.repeat(30, axis=0)),
        )
    )
    bounds = monitor.check(**about(all_of_them), causal_model="any").bounds or (0.0, 0.0)
    assert bounds == pytest.approx(oracle.bounds(few), abs=1e-9)
    assert bounds[1] > bounds[0] + 0.01


def test_observations_that_a_policy_remembers_differently_are_not_one() -> None:
    """It does the same after both, and no longer creeps one step after it saw the second one."""
    late = monitor.Controller([[[0, 1]] * 2, [[0, 1]] * 2, [[1, 0]] * 2], [[0, 1], [2, 2], [2, 2]])
    given = {"path": [(0, GO), (0, GO), (1, GO), (1, GO)], "policies": {"nominal": [GO, GO], "late": late}}
    one, two = (ask(program, 'late@3.P=? [ F<=6 "fallen" ]', **given) for program in (monitor.check, derive))
    assert one.bounds == pytest.approx(two.bounds, abs=1e-12)
    assert one.bounds is not None
    assert one.bounds[1] > one.bounds[0] + 0.01


@pytest.mark.parametrize("rare", [1e-4, 1e-8, 1e-12])
def test_a_rare_state_and_a_rare_observation_leave_the_bounds_exact(rare: float) -> None:
    """The observation 1 has to be an error, unless the rare state 2 was reached, which are about equally likely."""
    rng, wide = np.random.default_rng(0), 0
    for _ in range(examples(8, 60)):
        rows = np.concatenate([rng.dirichlet(np.ones(3), size=(4, 2)) * (1 - rare), np.full((4, 2, 1), rare)], axis=2)
        errors = np.append(rare * rng.random(3), 1.0)
        emissions = np.stack([1 - errors, errors], axis=1)
        never, always = oracle.Acting(np.eye(2)[[0, 0]]), oracle.Acting(np.eye(2)[[1, 1]])
        initial, path = np.eye(4)[0], ((0, 0), (1, 0), (0, 0))
        question = Question(rows, emissions, initial, 1, path, 2, 3, never, always)
        one, two = (program(**about(question), causal_model="any") for program in (monitor.check, derive))
        assert one.bounds == pytest.approx(two.bounds, abs=1e-12)
        assert one.bounds is not None
        assert one.bounds[0] <= (one.value or 0.0) <= one.bounds[1]
        wide += one.bounds[1] - one.bounds[0] > 0.01
    assert wide > 3


# ---- the two programs ----

TEXTS = (
    'other@{t}.P=? [ F<=3 "bad" ]',
    'other@{t}.P>0.4 [ "good" U[1,3] "bad" ] | other@1.P<0.3 [ F[1,2] "bad" & G<=2 !"good" ]',
    "other@{t}.R=? [ C[1,4] ]",
    "delta(other,do(0))@{t}.R=? [ C<=2 ]",
    'model:icy@{t}.P=? [ X "bad" | F=3 "good" ]',
    'delta(other,nominal)@-1.P=? [ F<=2 "bad" ]',
    'regret(other@{t}, P<0.5 [ F<=3 "bad" ])',
    "nominal@{t}.R=? [ C<=4 ]",
    "other@{t}.P=? [ true ]",
    'other[1]@{t}.P=? [ F<=3 "bad" ]',
)


@pytest.mark.parametrize("seed", first(6, range(40)))
def test_both_programs_find_the_same_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    world, other = (some_world(np.random.default_rng(seed), **KINDS[kind]) for _ in range(2))
    states, actions, _ = world.rows.shape
    rewards = [(*each, float(rng.normal())) for each in np.ndindex(world.rows.shape) if world.rows[each] > 0.0]
    icy = rng.dirichlet(np.ones(states), size=(states, actions))
    model = model_of(world, rewards=rewards)
    path = [
        (None if rng.random() < 0.3 else int(rng.integers(world.emissions.shape[1])),
         None if rng.random() < 0.2 else int(rng.integers(actions)))
        for _ in range(int(rng.integers(1, 5)))
    ]  # fmt: skip
    given = {
        "model": model,
        "models": {"icy": model_of(type(world)(icy, world.emissions, world.initial, other.nominal, other.alternative))},
        "policies": {"nominal": policy(world.nominal), "other": policy(world.alternative)},
        "terminated": bool(seed % 4 == 1),
    }
    for text in TEXTS[:-1] if KINDS[kind].get("memories") else TEXTS:
        asked = text.format(t=int(rng.integers(4)))
        one, two = (ask(program, asked, path, **given) for program in (monitor.check, derive))
        assert np.allclose(ends(one), ends(two), rtol=0.0, atol=1e-9), asked
        assert one.robust == two.robust
        assert one.effect_bounds == pytest.approx(two.effect_bounds, abs=1e-9)


@pytest.mark.parametrize("seed", first(4, range(30)))
def test_a_sensor_that_shows_the_state_gives_the_bounds_of_states_that_are_seen(seed: int) -> None:
    given, path, terminated = case(seed)
    hidden = {**given, "model": shown(given["model"]), "models": {n: shown(m) for n, m in given["models"].items()}}
    remember = {
        name: monitor.Controller(np.stack([table] * len(table)), np.tile(np.arange(len(table)), (len(table), 1)))
        for name, table in given["policies"].items()
    }
    for text in TEXTS:
        asked = text.format(t=seed % 4)
        expected = ask(monitor.check, asked, path, terminated=terminated, **given)
        for other in (hidden, {**hidden, "policies": remember}, {**given, "policies": remember}):
            if other["policies"] is remember and "[1]@" in text:
                continue  # one that remembers takes over for good
            found = ask(monitor.check, asked, path, terminated=terminated, **other)
            assert np.allclose(ends(found), ends(expected), rtol=0.0, atol=1e-12), asked
            assert found.robust == expected.robust


def test_both_programs_follow_a_path_of_hundreds_of_pairs() -> None:
    path = [(1, GO), (0, GO)] * 75
    one, two = (ask(program, 'wary@149.P=? [ G<=200 !"fallen" ]', path) for program in (monitor.check, derive))
    assert one.bounds == pytest.approx(two.bounds, rel=1e-9)
    assert one.bounds is not None
    assert 0.0 < one.bounds[0] < one.bounds[1] - 1e-4


@slow
def test_thousands_of_pairs_need_no_space_on_the_stack() -> None:
    path, found = [(1, GO), (0, GO)] * 1000, []
    threading.stack_size(1 << 19)
    try:
        text = 'wary@1999.P=? [ F<=2000 "ice" ]'
        asked = threading.Thread(target=lambda: found.append(ask(monitor.check, text, path)))
        asked.start()
    finally:
        threading.stack_size(0)
    asked.join()
    assert found[0].bounds == pytest.approx((1.0, 1.0))


def test_at_the_last_pair_bounds_are_the_value_itself() -> None:
    states = 1500
    moves = [(state, action, (state + 1 + action) % states, 1.0) for state in range(states) for action in range(2)]
    emissions = [(state, seen, 0.9 if seen == state % 2 else 0.1) for state in range(states) for seen in range(2)]
    begin = dict.fromkeys(range(states), 1 / states)
    model = monitor.MDP.from_transitions(
        states=states, actions=2, transitions=moves, labels={"bad": [0]}, initial=begin, signals=2, emissions=emissions
    )
    given: dict[str, Any] = {"model": model, "policies": {"nominal": [0, 0], "other": [1, 0]}}
    verdict = ask(monitor.check, 'other@0.P=? [ F<=3 "bad" ]', [(0, 0), (1, 0)], **given)
    assert verdict.bounds == (verdict.value, verdict.value)
    verdict = ask(monitor.check, 'other@1.P=? [ F<=3 "bad" ]', [(0, 0), (1, 0)], **given)
    assert verdict.bounds is not None
    assert verdict.bounds[0] <= (verdict.value or 0.0) <= verdict.bounds[1]


@PROGRAMS
def test_what_does_not_depend_on_couplings_has_bounds_without_width(program: Any) -> None:  # noqa: ANN401
    for text in ('nominal@3.P=? [ F<=6 "fallen" ]', 'wary@0.P=? [ F<=6 "fallen" ]', "careful@2.P=? [ true ]"):
        verdict = ask(program, text)
        assert verdict.bounds == pytest.approx((verdict.value, verdict.value), abs=1e-12)


@PROGRAMS
def test_the_bounds_of_the_opposite_are_the_opposite_bounds(program: Any) -> None:  # noqa: ANN401
    (low, high), (other_low, other_high) = (
        ask(program, f"wary@3.P=? [ {goal} ]").bounds or (0.0, 0.0) for goal in ('F<=6 "fallen"', 'G<=6 !"fallen"')
    )
    assert high - low > 0.01
    assert (1.0 - other_high, 1.0 - other_low) == pytest.approx((low, high), abs=1e-12)


@PROGRAMS
def test_a_comparison_is_robust_if_no_causal_model_changes_it(program: Any) -> None:  # noqa: ANN401
    low, high = ask(program, 'wary@3.P=? [ F<=6 "fallen" ]').bounds or (0.0, 0.0)
    for threshold, robust in ((low - 0.01, True), (0.5 * (low + high), False), (high + 0.01, True)):
        assert ask(program, f'wary@3.P<={threshold:.6f} [ F<=6 "fallen" ]').robust is robust


# ---- what is refused ----


def resetting(count: int) -> monitor.MDP:
    """Action 0 leads to all states alike, action 1 to the next one; signals are the parity."""
    moves = [(s, 0, then, 1 / count) for s in range(count) for then in range(count)]
    moves += [(s, 1, (s + 1) % count, 1.0) for s in range(count)]
    shown = [(s, s % 2, 1.0) for s in range(count)]
    return monitor.MDP.from_transitions(
        states=count, actions=2, transitions=moves, labels={"bad": [5]}, signals=2, emissions=shown, initial={1: 1.0}
    )


@pytest.mark.parametrize(("count", "refused"), [(300, False), (400, True)])
def test_rows_that_can_be_coupled_in_one_way_only_take_little_effort(count: int, refused: bool) -> None:  # noqa: FBT001
    asked = {
        "model": resetting(count),
        "path": [(1, 0), (0, 0)],
        "policies": {"nominal": [0, 0], "other": [1, 1]},
        "causal_model": "any",
    }
    if refused:  # the rows are wider than any problem for which there is space
        with pytest.raises(monitor.LimitError, match="take too much effort"):
            monitor.check('other@1.P=? [ F<=4 "bad" ]', **asked)  # type: ignore[arg-type]
        return
    found, derived = (f('other@1.P=? [ F<=4 "bad" ]', **asked) for f in (monitor.check, derive))  # type: ignore[arg-type]
    assert found.bounds == pytest.approx(derived.bounds, abs=1e-12)


@pytest.mark.parametrize("signals", [500, pytest.param(60_000, marks=[slow, heavy])])
def test_a_sensor_with_very_many_signals_is_refused_without_space_for_all_pairs_of_them(signals: int) -> None:
    moves = [(s, a, (s + k + a) % 4, 0.5) for s in range(4) for a in range(2) for k in (1, 3)]
    shown = [(2, signal, 1 / signals) for signal in range(signals)] + [(s, 0, 1.0) for s in (0, 1, 3)]
    model = monitor.MDP.from_transitions(
        states=4, actions=2, transitions=moves, labels={"bad": [3]}, signals=signals, emissions=shown, initial={1: 1.0}
    )
    share = np.arange(signals) / signals
    spread = np.stack([1 - share, share], axis=1)  # a policy that reads every signal differently

    def ask_of(signals_seen: list[int | None], nominal: Any, other: Any) -> monitor.Verdict:  # noqa: ANN401
        goal = f'other@{len(signals_seen) - 2}.P=? [ F<=3 "bad" ]'
        path, both = [(seen, 0) for seen in signals_seen], {"nominal": nominal, "other": other}
        return monitor.check(goal, model=model, path=path, policies=both, causal_model="any")

    first_one, second = (np.tile(row, (signals, 1)) for row in np.eye(2))
    low, high = ask_of([0, 5, 0], first_one, second).bounds or (1.0, 0.0)
    assert 0.0 <= low <= high <= 1.0
    with pytest.raises(monitor.LimitError, match="take too much effort"):
        ask_of([0, 5, 0], first_one, spread[:, ::-1])  # what would have been observed
    with pytest.raises(monitor.LimitError, match="take too much effort"):
        ask_of([0, None, None, None], spread, second)  # what may have been observed


@pytest.mark.parametrize("limit", ["MAX_EFFORT", "MAX_NODES"])
def test_too_much_effort_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_bounds, limit, 20)
    with pytest.raises(monitor.LimitError, match=f"(?s)take too much effort.*{limit}.*use a smaller offset"):
        ask(monitor.check, 'wary@3.P=? [ F<=6 "fallen" ]')
    assert ask(monitor.check, 'nominal@3.P=? [ F<=6 "fallen" ]').bounds is not None


@pytest.mark.parametrize(("limit", "terminated"), [(10, False), (15, True)])
def test_too_many_nodes_and_too_many_values_at_the_last_pair_are_refused(
    limit: int,
    terminated: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    crowded, few = (some_question(rng, zeros=0.0, sizes=(states, 2, 2)) for states in (6, 3))
    monkeypatch.setattr(causal_bounds, "MAX_NODES", limit)
    for question in (crowded, few):
        asked = about(question) | {"query": 'new@1.P=? [ F<=3 "bad" ]', "path": [(0, 0), (0, 0)]}
        with pytest.raises(monitor.LimitError, match="MAX_NODES"):
            monitor.check(**asked, causal_model="any", terminated=terminated)


def test_a_refusal_is_remembered_until_the_next_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, plain = list[int](), Trace.hindsight

    def counted(self: Trace, start: int) -> Any:  # noqa: ANN401 - as the method
        tried.append(start)
        return plain(self, start)

    monkeypatch.setattr(Trace, "hindsight", counted)
    monkeypatch.setattr(causal_bounds, "MAX_EFFORT", 20)
    checker = HiddenChecker(robot(), policies(), {})
    text = 'wary@2.P=? [ F<=6 "fallen" ]'
    check, beliefs = checker.check(parse(text), text, "any"), checker.beliefs(SEEN, (), None)
    for count, added, tries in ((3, None, 1), (3, 0, 1), (4, 1, 2)):
        with pytest.raises(monitor.LimitError, match="too much effort"):
            check.verdict(SEEN[:count], beliefs[:count], added)
        assert len(tried) == tries


@PROGRAMS
def test_other_classes_and_learned_models_are_refused(program: Any) -> None:  # noqa: ANN401
    with pytest.raises(monitor.ConfigError, match="any"):
        ask(program, 'wary@3.P=? [ F<=6 "fallen" ]', causal_model="stable")
    draws: Any = {(state, action): [0, 1] for state in range(2) for action in range(2)}
    counted = learned(draws, {0: [0], 1: [1, 0]}, states=2, actions=2, signals=2, initial=np.array([1.0, 0.0]))
    with pytest.raises(monitor.ConfigError, match="learned"):
        ask(program, "P=? [ true ]", [(0, 0)], model=counted, policies={"nominal": [0, 0]})


# ---- the stream ----


@heavy
def test_on_a_stream_bounds_are_those_of_the_path_that_is_held() -> None:
    text = 'wary@2.P<=0.45 [ F<=3 "fallen" ]'
    watching = watch(FormulaSpec("watch", text, causal_model="any", alarm=AlarmSpec()))
    path = [(1, GO), (1, GO), (None, GO), (1, CREEP), (0, GO), (1, GO), (1, None), (1, GO)]
    alerts: list[Alert] = []
    for seq, pair in enumerate(path):
        notices = send(watching, seq, pair)
        alerts += [each for each in notices if isinstance(each, Alert)]
        [verdict] = [each.verdict for each in notices if isinstance(each, Judged)]
        whole = ask(monitor.check, text, path[: seq + 1])
        assert verdict.bounds == pytest.approx(whole.bounds, abs=1e-12)
        assert verdict.robust == whole.robust
    unsure = [each for each in alerts if each.verdict.robust is False]
    assert unsure
    assert re.search(r"Not certain: other causal models may disagree", unsure[0].summary)
    assert any(re.search(r"Causal models may disagree, at most 0\.\d+ to 0\.\d+", each) for each in unsure[0].details)


def test_on_a_stream_too_much_effort_leaves_the_verdict_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = watch(FormulaSpec("watch", 'wary@2.P<=0.45 [ F<=3 "fallen" ]', causal_model="any"))
    monkeypatch.setattr(causal_bounds, "MAX_EFFORT", 20)
    reasons = []
    for seq, pair in enumerate(SEEN):
        [verdict] = [each.verdict for each in send(watching, seq, pair) if isinstance(each, Judged)]
        reasons.append(verdict.reason)
        monkeypatch.setattr(causal_bounds, "MAX_EFFORT", 20_000_000 if seq > 1 else 20)
    assert [bool(each) for each in reasons] == [False, True, True, False]
    assert "take too much effort" in reasons[1]
