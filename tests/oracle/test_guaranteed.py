"""The oracle of learned models: beside the oracle of known ones, by hand, and with the true rows inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.model import MDP
from tests.oracle import syntax as ast
from tests.oracle.confidence import row_box
from tests.oracle.evaluate import Evaluator, Reading, horizon, resolve
from tests.oracle.guaranteed import guaranteed, learned
from tests.oracle.learned import Case, learned_model, random_case
from tests.oracle.obligations import Obligations, read
from tests.oracle.setting import Setting
from tests.oracle.worlds import DEPLOYED
from tests.tiers import first

TOLERANCE = 1e-7  # linear programs, one after another
DELTA = 0.05


def known(case: Case) -> MDP:
    """Return the true model, as one whose rows are known."""
    truth = case.truth
    return MDP.from_transitions(
        states=truth.states,
        actions=truth.actions,
        transitions=[(s, a, k, float(p)) for (s, a), row in truth.rows.items() for k, p in row.items()],
        rewards=[(s, a, float(r)) for (s, a), r in truth.rewards.items()],
        labels={name: sorted(where) for name, where in truth.labels.items()},
    )


@pytest.mark.parametrize("seed", first(6, range(40)))
def test_with_known_rows_only_the_causal_model_is_free(seed: int) -> None:
    """Then the trees of histories of `evaluate` give the same, in fractions."""
    case = random_case(seed)
    for terminated in (False, True):
        evaluator = Evaluator(replace(case.truth, terminated=terminated))
        for text in case.texts:
            bounds = guaranteed(known(case), case.policies, case.path, text, DELTA, terminated=terminated)
            exact = evaluator.answer(text, "any").bounds
            assert exact is not None
            assert bounds == pytest.approx(tuple(map(float, exact)), abs=TOLERANCE), text


@pytest.mark.parametrize("seed", first(7, range(100, 150)))
def test_the_truth_lies_inside(seed: int) -> None:
    """If every true row lies in its box, so do the values of the true model under every causal model."""
    case = random_case(seed)
    if not holds(case.model, case.truth):
        pytest.skip("one of the few learned models whose set misses a true row")
    evaluator = Evaluator(case.truth)
    for text in case.texts:
        low, high = guaranteed(case.model, case.policies, case.path, text, DELTA)
        exact = evaluator.answer(text, "any").bounds
        assert exact is not None
        assert low - TOLERANCE <= exact[0] <= exact[1] <= high + TOLERANCE, text


def holds(model: MDP, truth: Setting) -> bool:
    """Return whether every true row lies in the box of the learned one; what was not seen counts as `elsewhere`."""
    limits = learned(model, DELTA)
    assert limits.elsewhere is not None
    for key, box in limits.rows.items():
        row = {k: float(p) for k, p in truth.rows[key].items()}
        unseen = sum(p for k, p in row.items() if k not in box)
        known_box = {k: limit for k, limit in box.items() if k != limits.elsewhere}
        if unseen > box.get(limits.elsewhere, (0.0, 0.0))[1] + 1e-12:
            return False
        if any(not low - 1e-12 <= row[k] <= high + 1e-12 for k, (low, high) in known_box.items()):
            return False
    return True


@pytest.mark.parametrize("seed", first(7, range(30)))
def test_diagrams_agree_with_sets_of_paths(seed: int) -> None:
    """What remains, read along each history of a tree, is the formula's truth by the clauses of its definition."""
    case, compared = random_case(seed), 0
    evaluator = Evaluator(case.truth)
    for text in case.texts:
        formula = evaluator.parser.parse(text)
        assert isinstance(formula, ast.Ask)
        if isinstance(formula.quantity, ast.Reward):
            continue
        _, start = resolve(formula.quantity.world.offset, len(case.path))
        world = evaluator.laws.world(DEPLOYED, start, tuple(case.path[start:]), formula.quantity.world.change)
        tree = evaluator.tree(world, horizon(formula.quantity.body), "gumbel")
        paths = Reading(evaluator, tree).sat(formula.quantity.body, 0)
        for leaf in tree.levels[-1]:
            rest = Obligations().of(formula.quantity.body, 0)
            for offset, (state, _) in enumerate(leaf.history):
                labels = frozenset(name for name, where in case.truth.labels.items() if state in where)
                rest = read(rest, offset, labels)
            assert rest is bool(paths >> leaf.first & 1), (text, leaf.history)
            compared += 1
    assert compared


def by_hand() -> MDP:
    """Return a model of states 0, 1 and `elsewhere` (2): 8 draws of (0, 0) and 3 of (0, 1)."""
    draws = [(0, 0, k) for k in (1, 1, 0, 1, 1, 0, 1, 1)] + [(0, 1, k) for k in (1, 0, 1)]
    rewards = np.array([[-1.0, 2.0], [0.5, 0.5], [0.0, 0.0]])
    return learned_model(draws, 3, 2, {(1, 0): {1: 1}, (1, 1): {1: 1}}, labels={"there": [1]}, rewards=rewards)  # type: ignore[dict-item]


POLICIES = {"nominal": [0, 0, 0], "other": [1, 0, 0]}


def test_one_step_from_counts() -> None:
    """Beyond the path: the limits of one successor; what was not seen counts for it and against it."""
    box = row_box({1: (6, 7), 0: (2, 5)}, 1, 2, DELTA)
    low, high = guaranteed(by_hand(), POLICIES, [(0, None)], '@0.P=? [ X "there" ]', DELTA)
    assert low == pytest.approx(max(box[1][0], 1 - box[0][1] - box[2][1]), abs=TOLERANCE)
    assert high == pytest.approx(min(1.0, box[1][1] + box[2][1], 1 - box[0][0]), abs=TOLERANCE)


def test_what_was_observed_is_certain() -> None:
    assert guaranteed(by_hand(), POLICIES, [(0, 0), (1, 0)], '@1.P=? [ X "there" ]', DELTA) == (1.0, 1.0)
    assert guaranteed(by_hand(), POLICIES, [(0, 0), (1, 0)], "@1.R=? [ C<=1 ]", DELTA) == pytest.approx((-0.5, -0.5))


def test_one_counterfactual_step_from_counts() -> None:
    """At most the mass that (0, 1) may lead to 1 or to the unseen, at least what (0, 0) may leave of it."""
    draws = [(0, 0, k) for k in (1, 1, 1, 0) * 300] + [(0, 1, k) for k in (1, 0, 0, 0) * 300]
    model = learned_model(draws, 3, 2, labels={"there": [1]})
    observed = row_box({1: (900, 1199), 0: (300, 1196)}, 1, 2, DELTA)
    target = row_box({1: (300, 1199), 0: (900, 1198)}, 2, 2, DELTA)
    least = max(observed[1][0], 1 - observed[0][1] - observed[2][1])
    most_there = min(target[1][1] + target[2][1], 1 - target[0][0])
    most_not = min(target[0][1] + target[2][1], 1 - target[1][0])
    expected = max(0.0, 1 - most_not / least), min(1.0, most_there / least)
    assert 0 < expected[1] < 0.6
    low, high = guaranteed(model, POLICIES, [(0, 0), (1, 0)], 'other@1.P=? [ X "there" ]', DELTA)
    assert (low, high) == pytest.approx(expected, abs=TOLERANCE)
    assert guaranteed(model, POLICIES, [(0, 0), (1, 0)], 'other@1.P=? [ X !"there" ]', DELTA) == pytest.approx(
        (1 - high, 1 - low), abs=TOLERANCE
    )


def test_an_outcome_seen_once_leaves_the_counterfactual_open() -> None:
    """Its lower limit is 0, however much is known of the other action: there 1 has a probability near .25."""
    draws = [(0, 0, k) for k in [1] * 500 + [0]] + [(0, 1, k) for k in (1, 0, 0, 0) * 300]
    model = learned_model(draws, 3, 2, labels={"there": [1]})
    text = 'other@{}.P=? [ X "there" ]'
    assert guaranteed(model, POLICIES, [(0, 0), (0, 0)], text.format(1), DELTA) == pytest.approx((0, 1), abs=TOLERANCE)
    low, high = guaranteed(model, POLICIES, [(0, 0), (0, 0)], text.format(0), DELTA)
    assert 0.15 < low < 0.25 < high < 0.35


def test_elsewhere_earns_the_worst_and_the_best() -> None:
    """No draw of (0, 0) in this model: so each step earns between -1 and 2."""
    model = learned_model([(1, 0, 1)], 3, 2, rewards=np.array([[-1.0, 2.0], [0.5, 0.5], [0.0, 0.0]]))
    assert guaranteed(model, POLICIES, [(0, None)], "@0.R=? [ C<=2 ]", DELTA) == pytest.approx((-3.0, 6.0))
    assert guaranteed(model, POLICIES, [(0, None)], "@0.R=? [ C[2,3] ]", DELTA) == pytest.approx((-2.0, 4.0))
    assert guaranteed(model, POLICIES, [(0, None)], "@0.P=? [ X true ]", DELTA) == (1.0, 1.0)


def test_rewards_of_successors_never_seen_are_any_reward() -> None:
    model = learned_model(
        [(1, 0, 1), (1, 0, 0)], 3, 2, rewards=np.zeros((3, 2)), transition_rewards=np.array([0, 0, 4, -2, 0, 0, 0])
    )
    low, high = guaranteed(model, POLICIES, [(1, None)], "@0.R=? [ C<=0 ]", DELTA)
    assert (low, high) == pytest.approx((-2.0, 4.0), abs=TOLERANCE)


def test_a_difference_of_two_worlds() -> None:
    path = [(0, 0), (1, 0)]
    text = '@1.P=? [ X "there" ]'
    both = [guaranteed(by_hand(), POLICIES, path, change + text, DELTA) for change in ("other", "nominal")]
    effect = guaranteed(by_hand(), POLICIES, path, f"delta(other,nominal){text}", DELTA)
    assert effect == (both[0][0] - both[1][1], both[0][1] - both[1][0])


@pytest.mark.parametrize("text", ["model:m@0.P=? [ true ]", 'P>=0.5 [ X "there" ]'])
def test_what_the_oracle_does_not_know_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        guaranteed(by_hand(), POLICIES, [(0, None)], text, DELTA)
