"""Bounds of answers: they hold for causal models drawn at random, are attained where promised, and verdicts say so."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from monitor.evaluation import check
from monitor.model import MDP
from monitor.types import Verdict
from tests.exact.small import LAW, Small, chances, path_formula, question, small_world
from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator, resolve
from tests.oracle.race import counterfactual_row
from tests.oracle.setting import Dist, Setting
from tests.oracle.worlds import Laws, World
from tests.tiers import examples, scaled

CLASSES = ["any", "stable"]
TOLERANCE = 1e-10


def bounded(small: Small, text: str, causal_model: str) -> tuple[float, float]:
    bounds = small.ask(text, causal_model=causal_model).bounds
    assert bounds is not None
    return bounds


class OtherMechanism(Laws):
    """The laws of a causal model that is not Gumbel-Max: at each step the rows are coupled at random."""

    def __init__(self, setting: Setting, *, stable: bool, chance: Random) -> None:
        super().__init__(setting)
        self._stable, self._chance = stable, chance
        self._coupled: dict[tuple[World, int, int, int], Dist] = {}

    def successors(self, world: World, time: int, state: int, action: int) -> Dist:
        asked = self.row(world.regime.model, time, state, action)
        at = time - world.start
        if at + 1 >= len(world.path):
            return asked
        key = (world, time, state, action)
        if key not in self._coupled:
            (seen, taken), (outcome, _) = world.path[at : at + 2]
            same = (state, action) == (seen, taken) and world.regime.model == world.base.model
            observed = self.row(world.base.model, time, seen, taken or 0)
            self._coupled[key] = {outcome: Fraction(1)} if same else self._row(observed, outcome, asked)
        return self._coupled[key]

    def _row(self, p: Dist, i: int, q: Dist) -> Dist:
        for _ in range(30):
            row = corner(p, i, q, self._chance)
            stays = [
                q.get(i, Fraction(0)) * p[k] >= share * p[i] for k, share in q.items() if k in row and k in p and k != i
            ]
            if not (self._stable and p.keys() & q.keys() and any(stays)):
                return row
        return counterfactual_row(p, q, i)


def corner(p: Dist, i: int, q: Dist, chance: Random) -> Dist:
    """The row of outcome i in a random vertex of all couplings of p and q: fill cells in random order."""
    left, right = dict(p), dict(q)
    row: dict[int, Fraction] = {}
    cells = [(j, k) for j in p for k in q]
    chance.shuffle(cells)
    for j, k in cells:
        moved = min(left[j], right[k])
        left[j] -= moved
        right[k] -= moved
        if j == i and moved:
            row[k] = moved / p[i]
    assert sum(row.values()) == 1
    return row


@pytest.mark.parametrize("causal_model", CLASSES)
@settings(LAW, max_examples=examples(25, 100))
@given(chances)
def test_every_causal_model_of_the_class_lies_within(causal_model: str, chance: Random) -> None:
    small = small_world(
        chance, stochastic=chance.random() < 0.3, open_end=chance.random() < 0.3, terminated=chance.random() < 0.3
    )
    text = question(
        chance, chance.choice(["alt@1", "alt@3", "alt[1]@2", "do(1)@2", "model:icy@3", "nominal@2"]), reach=3
    )
    low, high = bounded(small, text, causal_model)
    for _ in range(3):
        oracle = Evaluator(small.setting)
        oracle.laws = OtherMechanism(small.setting, stable=causal_model == "stable", chance=chance)
        value = oracle.answer(text).value
        assert value is not None
        assert low - TOLERANCE <= value <= high + TOLERANCE


@settings(LAW, max_examples=examples(25, 150))
@given(chances)
def test_exact_within_stable_within_any(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.3, terminated=chance.random() < 0.3)
    worlds = ["alt@2", "alt[1]@3", "model:icy@2", "delta(alt,nominal)@2", "delta(alt,third)@3", "nominal@2"]
    text = question(chance, chance.choice(worlds))
    (low, high), (stable_low, stable_high) = bounded(small, text, "any"), bounded(small, text, "stable")
    value = small.number(text)
    assert low - TOLERANCE <= stable_low <= value + TOLERANCE
    assert value - TOLERANCE <= stable_high <= high + TOLERANCE


@pytest.mark.parametrize("causal_model", CLASSES)
@settings(LAW, max_examples=examples(10, 25))
@given(chances)
def test_attained_for_reachability(causal_model: str, chance: Random) -> None:
    """One obligation at each (offset, state): backward induction with a linear program over couplings at each row."""
    small = small_world(chance, length=chance.randint(2, 4))
    horizon = chance.randint(1, 4)
    offset = chance.randint(1, 3)
    low, high = bounded(small, f'alt@{offset}.P=? [ !"b" U<={horizon} "a" ]', causal_model)
    assert high == pytest.approx(best_reachability(small, offset, horizon, causal_model, sign=1), abs=1e-8)
    assert low == pytest.approx(best_reachability(small, offset, horizon, causal_model, sign=-1), abs=1e-8)


def best_reachability(small: Small, offset: int, horizon: int, causal_model: str, *, sign: int) -> float:
    """The largest (sign 1) or smallest chance of `!b U<=horizon a` under alt, over all mechanisms of the class."""
    setting = small.setting
    _, position = resolve(offset, len(setting.path))
    laws = Laws(setting)
    world = laws.world(laws.observed, position, setting.path[position:], ast.Change("policy", "alt", None))
    ahead = [0.0] * setting.states
    for k in range(horizon, -1, -1):
        values = []
        for state in range(setting.states):
            ((action, _),) = laws.actions(world, world.start + k, state).items()
            if state in setting.labels["a"]:
                values.append(1.0)
            elif state in setting.labels["b"] or k == horizon:
                values.append(0.0)
            else:
                values.append(best_mean(laws, world, k, (state, action), ahead, causal_model, sign))
        ahead = values
    return ahead[setting.path[position][0]]


def best_mean(  # noqa: PLR0917 - a step of the induction above
    laws: Laws, world: World, k: int, pair: tuple[int, int], worth: list[float], causal_model: str, sign: int
) -> float:
    q = laws.row(world.regime.model, world.start + k, *pair)
    if k >= len(world.path) - 1:
        return sum(float(share) * worth[t] for t, share in q.items())
    (seen, taken), (i, _) = world.path[k : k + 2]
    if pair == (seen, taken):
        return worth[i]
    p = laws.row(world.base.model, world.start + k, seen, taken or 0)
    overlap = bool(p.keys() & q.keys())
    cells = [(j, t) for j in p for t in q]
    spans = [
        (0.0, 0.0)
        if causal_model == "stable" and overlap and j == i != t and t in p and q.get(i, 0) * p[t] >= q[t] * p[i]
        else (0.0, None)
        for j, t in cells
    ]
    found = linprog(
        [-sign * worth[t] / float(p[i]) if j == i else 0.0 for j, t in cells],
        A_eq=[[float(c[0] == j) for c in cells] for j in p] + [[float(c[1] == t) for c in cells] for t in q],
        b_eq=[float(x) for x in (*p.values(), *q.values())],
        bounds=spans,
    )
    assert found.success
    return -sign * float(found.fun)


@LAW
@given(chances)
def test_bounds_of_an_effect(chance: Random) -> None:
    """Nominal has no freedom; for two interventions the difference of bounds contains the effect."""
    small = small_world(chance)
    text = question(chance, "W@2")
    nominal = small.number(text.replace("W@", "nominal@"))
    assert bounded(small, text.replace("W@", "nominal@"), "any") == (nominal, nominal)
    low, high = bounded(small, text.replace("W@", "alt@"), "any")
    effect = bounded(small, text.replace("W@", "delta(alt,nominal)@"), "any")
    assert effect == pytest.approx((low - nominal, high - nominal))
    other_low, other_high = bounded(small, text.replace("W@", "third@"), "any")
    between = bounded(small, text.replace("W@", "delta(alt,third)@"), "any")
    assert between == pytest.approx((low - other_high, high - other_low))


@LAW
@given(chances)
def test_robust_is_the_whole_interval_on_one_side(chance: Random) -> None:
    small = small_world(chance)
    text, threshold = question(chance, "alt@2"), round(chance.uniform(-1, 1), 3) or 0.5
    threshold = abs(threshold) if ".P=?" in text else threshold
    low, high = bounded(small, text, "stable")
    verdict = small.ask(text.replace("=?", f">={threshold}"), causal_model="stable")
    assert verdict.robust == ((low >= threshold) == (high >= threshold))
    assert verdict.bounds == (low, high)
    assert verdict.quantities[0].robust == verdict.robust
    assert small.ask(text.replace("=?", f">={threshold}")).robust is None


def straddled(verdict: Verdict) -> bool:
    return verdict.robust is False


def test_a_combination_is_robust_if_no_part_can_overturn_it() -> None:
    small = next(filter(open_question, (small_world(Random(seed), length=3) for seed in range(1000))))
    low, high = bounded(small, 'alt@2.P=? [ F<=3 "a" ]', "any")
    doubtful, sure = f'alt@2.P>={(low + high) / 2} [ F<=3 "a" ]', "alt@2.P>=0 [ true ]"
    assert straddled(small.ask(doubtful, causal_model="any"))
    assert straddled(small.ask(f"{doubtful} & {sure}", causal_model="any"))
    assert small.ask(f"{doubtful} | {sure}", causal_model="any").robust is True
    assert small.ask(f"{doubtful} & !({sure})", causal_model="any").robust is True


def open_question(small: Small) -> bool:
    low, high = bounded(small, 'alt@2.P=? [ F<=3 "a" ]', "any")
    return high - low > 0.1


@scaled
@pytest.mark.parametrize("causal_model", CLASSES)
def test_nominal_has_an_interval_if_it_looks_back(causal_model: str) -> None:
    """The path is the observed one; what would have been on it depends on the causal model all the same."""
    inner = 'alt@1.P=? [ G[1,1] "a" ]'
    seen = 0
    for seed in range(examples(100, 300)):
        small = small_world(Random(seed), length=2)
        low, high = bounded(small, inner, causal_model)
        if high - low < 0.1:
            continue
        seen += 1
        nested = inner.replace("=?", f">={(low + high) / 2}")
        assert bounded(small, f"nominal@1.P=? [ X ({nested}) ]", causal_model) == (0.0, 1.0)
        assert small.ask(f"nominal@1.P>=0.5 [ X ({nested}) ]", causal_model=causal_model).robust is False
        regret = small.ask(f"regret(third@1, P>=0.5 [ X ({nested}) ])", causal_model=causal_model)
        assert regret.robust is False
        sure = inner.replace("=?", ">=0")
        assert bounded(small, f"nominal@1.P=? [ X ({sure}) ]", causal_model) == (1.0, 1.0)
    assert seen > 5


@settings(LAW, max_examples=examples(25, 40))
@given(chances)
def test_bounds_with_nested_quantities_contain_the_value(chance: Random) -> None:
    small = small_world(chance, length=3, support=2)
    path = path_formula(chance, 1, reach=2)
    nested = f"third@{chance.randint(-1, 2)}.P>=0.5 [ {path} ]"
    text = f"{chance.choice(['alt@2', 'nominal@1', 'model:icy@1'])}.P=? [ F<=2 ({nested}) ]"
    low, high = bounded(small, text, chance.choice(CLASSES))
    assert low - TOLERANCE <= small.number(text) <= high + TOLERANCE


def test_rounding_publishes_no_probability_above_one() -> None:
    """Rows may sum to 1 + 2^-52, and fifty of them to more: 1.000000000000046 was published."""
    half, more = 0.5, 0.5 + 2.0**-52
    model = MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(s, a, t, more if t else half) for s in (0, 1) for a in (0, 1) for t in (0, 1)],
        labels={"safe": [0, 1]},
    )
    path = [(n % 2, 0) for n in range(60)]
    about: dict[str, Any] = {"model": model, "path": path, "policies": {"nominal": [0, 0], "alt": [1, 1]}}
    for text in ('alt@59.P=? [ G<=80 "safe" ]', 'P=? [ G<=80 "safe" ]', 'alt@-1.P=? [ G<=80 @1.P>0 [ X "safe" ] ]'):
        for terminated in (False, True):
            verdict = check(text, causal_model="any", terminated=terminated, **about)
            assert verdict.value is not None
            assert verdict.bounds is not None
            assert max(verdict.value, *verdict.bounds) <= 1.0, text
            assert min(verdict.value, *verdict.bounds) == pytest.approx(1.0)
    regret = check('regret(alt@59, P>=0.5 [ G<=80 "safe" ])', causal_model="stable", **about)
    assert max(value for pair in regret.profile.values() for value in pair) <= 1.0
