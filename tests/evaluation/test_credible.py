"""Bands of a learned model: posterior draws, the credible band against the oracle on each draw, support, visits."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import count, islice
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.arrays import Floats
from monitor.errors import ConfigError
from monitor.evaluation import bands as bands_module
from monitor.evaluation import check, credible
from monitor.evaluation.bands import support_of, to_visit
from monitor.evaluation.credible import LearnedTable, ObservedPath, PosteriorValues, Samples, check_band_settings
from monitor.evaluation.posterior import drawn_probabilities, opened
from monitor.exact import Checker, row_uses
from monitor.exact.row_uses import RowUses
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from monitor.types import Bands, BandSettings, Verdict
from tests.exact.learned import Learned, learned_model, learned_world
from tests.exact.small import LAW, chances, question
from tests.exact.test_row_uses import CHANGES
from tests.oracle.unknown import both_values
from tests.tiers import examples, first

DRAWS = BandSettings(draws=39, seed=7)
"""The fewest draws for a level of .95."""


def ask(learned: Learned, text: str, **more: object) -> Verdict:
    given: dict[str, object] = {"bands": DRAWS, "engine": "exact"} | more
    return check(text, model=learned.model, path=learned.setting.path, policies=learned.policies, **given)  # type: ignore[arg-type]


def one_with_support(*texts: str) -> Learned:
    """Return a world with an observed transition in which every text has support."""
    worlds = map(learned_world, map(Random, count()))
    longer = (w for w in worlds if len(w.setting.path) > 1)
    return next(w for w in longer if all(ask(w, text).support is not None for text in texts))


def samples(learned: Learned, text: str) -> Samples:
    """Return the values of a `=?` query of one world on all drawn models."""
    goal = parse(text)
    assert isinstance(goal, Goal)
    checker = Checker(learned.model, learned.policies)
    position = len(learned.setting.path) - 1 - goal.world.offset
    posterior = PosteriorValues(LearnedTable(checker.evaluators), DRAWS)
    observed = ObservedPath(learned.setting.path, terminated=False)
    return posterior.values(goal.world.change, goal.measure, observed, position)


def by_the_oracle(learned: Learned, text: str, number: int) -> tuple[float, float]:
    """Return the least and the greatest value on one drawn model, with its rows as fractions that sum to 1."""
    model = opened(learned.model)
    probabilities = next(
        islice(drawn_probabilities(learned.model, np.random.default_rng((DRAWS.seed, 0))), number, None)
    )
    drawn = replace(model, probabilities=probabilities)
    setting = replace(learned.setting, rows={key: _row(drawn, *key) for key in learned.setting.rows})
    rewards = [Fraction(0), *setting.transition_rewards.values()]
    low, high = both_values(setting, setting.states - 1, text, (min(rewards), max(rewards)))
    return float(low), float(high)


def _row(model: MDP, state: int, action: int) -> dict[int, Fraction]:
    successors, probabilities = model.row(state, action)
    exact = [Fraction(p).limit_denominator(10**12) for p in probabilities.tolist()]
    return {t: p / sum(exact) for t, p in zip(successors.tolist(), exact, strict=True) if p}


@settings(LAW, max_examples=examples(8, 25))
@given(chances)
def test_values_on_drawn_models_are_those_of_the_oracle(chance: Random) -> None:
    learned = learned_world(chance, rewards=chance.random() < 0.3)
    change, offset = chance.choice(list(CHANGES)), chance.randrange(len(learned.setting.path))
    text = question(chance, f"{change}@{offset}", reach=2)
    found = samples(learned, text)
    for number in (0, 38):
        ends = by_the_oracle(learned, text, number)
        assert (found.low[number], found.high[number]) == pytest.approx(ends, abs=1e-8)  # rows rounded to 1e-12
    verdict = ask(learned, text)
    assert verdict.credible == pytest.approx((found.low.min(), found.high.max()))  # positions 1 and M of M = 39
    assert verdict.quantities[0].credible == verdict.credible
    assert verdict.bands == Bands(39, 7, 0.95)


@pytest.mark.parametrize(
    "text",
    [
        'P=? [ F<=2 (P>=0.5 [ X "a" ]) ]',
        'alt@1.P=? [ G<=2 (P<0.7 [ F<=1 "b" ]) ]',
        'alt@1.P=? [ F<=2 !(P<=0.4 [ G<=1 ("a" => "b") ]) ]',
        "P=? [ F<=2 (R>=0.5 [ C<=1 ]) ]",
        'P=? [ (X "a") <=> (F<=2 "b") ]',
        'P=? [ "a" W<=2 "b" ]',
        'delta(alt, nominal)@1.P=? [ G<=2 !"a" ]',
    ],
)
def test_nested_quantities_and_effects_have_both_sides_too(text: str) -> None:
    learned = next(w for w in map(learned_world, map(Random, count(3))) if len(w.setting.path) == 2)
    learned = replace(learned, setting=replace(learned.setting, transition_rewards={}))
    if text.startswith("delta"):
        found = samples(learned, 'alt@1.P=? [ G<=2 !"a" ]').minus(samples(learned, 'nominal@1.P=? [ G<=2 !"a" ]'))
    else:
        found = samples(learned, text)
    for number in (0, 20):
        ends = by_the_oracle(learned, text, number)
        assert (found.low[number], found.high[number]) == pytest.approx(ends, abs=1e-8)


@pytest.mark.parametrize("seed", first(3, range(6)))
def test_the_band_of_an_effect_is_that_of_its_differences(seed: int) -> None:
    learned = learned_world(Random(seed))
    offset = len(learned.setting.path) - 1
    verdict = ask(learned, f'regret(alt@{offset}, P>=0.5 [ G<=3 !"a" ])')
    nominal, alternative = (samples(learned, f'{c}@{offset}.P=? [ G<=3 !"a" ]') for c in ("nominal", "alt"))
    ends = (alternative.low - nominal.high).min(), (alternative.high - nominal.low).max()
    assert verdict.effect_credible == pytest.approx(ends, abs=1e-9)
    assert verdict.credible == verdict.quantities[1].credible
    assert verdict.credible == pytest.approx((alternative.low.min(), alternative.high.max()))
    assert verdict.quantities[0].credible == pytest.approx((nominal.low.min(), nominal.high.max()))
    delta = ask(learned, f'delta(alt, nominal)@{offset}.P=? [ G<=3 !"a" ]')
    assert delta.credible == pytest.approx(verdict.effect_credible)


@pytest.mark.parametrize("seed", first(3, range(6)))
def test_the_values_of_handing_over_now_have_bands_of_their_own(seed: int) -> None:
    learned = learned_world(Random(seed))
    goal = 'P>=0.5 [ G<=3 !"a" ]'
    ends = [ask(learned, f"{change}@0.{goal}").credible for change in ("nominal", "alt")]
    for text in (f"regret(alt@{len(learned.setting.path) - 1}, {goal})", f"handover(alt, {goal}, 2) >= 0.5"):
        now = ask(learned, text).credible_now
        assert now is not None, text
        assert [now[:2], now[2:]] == [pytest.approx(each) for each in ends], text
    for text in (f"regret(best@0, {goal})", f"alt@0.{goal}", f"delta(alt, nominal)@0.{goal.replace('0.5', '0.1')}"):
        assert ask(learned, text).credible_now is None, text


def drawn_rows(model: MDP, number: int) -> Floats:
    return np.array([*islice(drawn_probabilities(model, np.random.default_rng(5)), number)])


def test_the_observed_part_of_a_row_is_drawn_from_the_dirichlet_posterior() -> None:
    chance = Random(11)
    model, _ = learned_model(3, 1, [(0, 0, chance.choice((0, 0, 1))) for _ in range(20)], {})
    assert model.counts is not None
    assert opened(model).successors.tolist() == [0, 1, 2, 2, 2]
    drawn = drawn_rows(model, 4000)
    assert np.allclose(drawn[:, :3].sum(axis=1), 1.0)
    assert np.all(drawn[:, 3:] == model.probabilities[2:])  # without data: given
    seen = drawn[:, :2] / drawn[:, :2].sum(axis=1, keepdims=True)
    shape = model.counts.visits[:2] + 0.5
    mean, total = shape / shape.sum(), shape.sum()
    variance = mean * (1 - mean) / (total + 1)
    assert np.allclose(seen.mean(axis=0), mean, atol=5 * np.sqrt(variance / 4000))
    assert np.allclose(seen.var(axis=0), variance, rtol=0.15)
    assert np.allclose(mean, model.probabilities[:2])


def many_rows(successors: int, rows: int, often: int) -> MDP:
    """Return a model of rows with so many successors, all alike, each drawn so often."""
    rng = np.random.default_rng(8)
    draws = [(s, 0, int(rng.integers(successors))) for s in range(rows) for _ in range(often)]
    return learned_model(rows + 1, 1, draws, {})[0]


def unseen_masses(model: MDP, number: int) -> Floats:
    """Return what the learned rows of drawn models give to `elsewhere`, whose own rows are the last."""
    return drawn_rows(model, number)[:, opened(model).successors == model.states - 1][:, : model.states - 1]


@pytest.mark.parametrize("often", [2, 3, 5, 8, 12])
def test_what_is_not_seen_gets_at_least_the_mass_that_it_has_and_at_most_that_at_half_of_the_draws(often: int) -> None:
    """Of three successors, all alike, those not seen in m draws have (2/3)**m on average."""
    mass = unseen_masses(many_rows(3, 300, often), 200).mean()
    before = max(2 ** (int(np.log2(often)) - 1), 1)
    assert 0.9 * (2 / 3) ** often < mass < 1.1 * (2 / 3) ** before


def test_a_row_of_few_draws_leaks_little_where_no_row_ever_showed_a_second_successor() -> None:
    masses = [unseen_masses(many_rows(successors, 300, 3), 200).mean() for successors in (1, 3)]
    assert masses[0] < 0.002
    assert masses[1] > 0.2


def test_a_row_of_many_draws_leaks_little() -> None:
    model, _ = learned_model(3, 1, [(0, 0, n % 2) for n in range(1000)], {})
    assert drawn_rows(model, 500)[:, 2].mean() < 0.002


def test_where_no_row_was_drawn_twice_anything_may_be_unseen() -> None:
    masses = unseen_masses(many_rows(3, 5, 1), 500)
    assert 0.4 < masses.mean() < 0.6
    assert masses.std() > 0.3


def test_an_answer_beyond_the_data_has_the_widest_band() -> None:
    """State 1 was entered ten times and never left: nothing is known of what follows."""
    model, _ = learned_model(3, 1, [(0, 0, 1)] * 10, {"goal": frozenset({2})})
    for text in ('P=? [ F<=5 "goal" ]', 'P=? [ G<=5 !"goal" ]', 'P=? [ F<=5 !"goal" & X "goal" ]'):
        verdict = check(text, model=model, path=[(0, 0), (1, 0)], policies={"nominal": [0] * 3}, bands=DRAWS)
        assert verdict.credible == (0.0, 1.0), text


def test_a_given_model_is_drawn_as_it_is() -> None:
    learned = learned_world(Random(1))
    given = replace(learned.model, counts=None)
    assert opened(given) is given
    assert next(drawn_probabilities(given, np.random.default_rng(0))) is given.probabilities


@given(st.lists(st.floats(-5, 5), min_size=39, max_size=80), st.floats(0.5, 0.95))
def test_ends_of_a_band_are_weibull_quantiles(values: list[float], level: float) -> None:
    ordered = sorted(values)
    band = Samples(np.array(values), np.array(values)).band(level)
    for p, end in zip(((1 - level) / 2, (1 + level) / 2), band, strict=True):
        position = p * (len(values) + 1) - 1
        below = int(np.floor(position))
        share = position - below
        above = ordered[min(below + 1, len(values) - 1)]
        assert end == pytest.approx(ordered[below] * (1 - share) + above * share, abs=1e-9)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (BandSettings(draws=38), "draw at least 39"),
        (BandSettings(level=1.5), "strictly between 0 and 1, not 1.5"),
        (BandSettings(draws=10_001), "at most 10,000, not 10001"),
        (BandSettings(seed=-1), "whole number from 0 to"),
    ],
)
def test_settings_that_give_no_band_are_refused(asked: BandSettings, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_band_settings(asked)
    with pytest.raises(ConfigError, match=problem):
        ask(learned_world(Random(1)), "P=? [ true ]", bands=asked)


def test_a_model_without_counts_has_no_bands() -> None:
    learned = learned_world(Random(2))
    given = replace(learned, model=replace(learned.model, counts=None))
    for text in ('regret(alt@1, P>=0.5 [ G<=3 !"a" ])', 'alt@1.P=? [ F<=2 "b" ]'):
        assert ask(given, text) == ask(given, text, bands=None)
        assert ask(given, text).bands is None


def test_bands_may_be_left_out() -> None:
    learned = learned_world(Random(2))
    verdict = ask(learned, 'alt@1.P=? [ F<=2 "b" ]', bands=None)
    assert (verdict.credible, verdict.support, verdict.to_visit, verdict.bands) == (None, None, (), None)


def test_a_formula_without_quantities_and_a_sampled_one_have_none() -> None:
    learned = learned_world(Random(2))
    assert ask(learned, '"a" | true').bands is None
    assert ask(learned, 'alt@1.P>=0.5 [ F<=2 "b" ]', engine="sampled").bands is None


def test_every_quantity_of_a_combination_has_its_own_bands() -> None:
    parts = ('alt@1.P>=0.5 [ F<=2 "b" ]', 'P<0.3 [ F<=3 "a" ]')
    learned = one_with_support(*parts)
    both = ask(learned, f"{parts[0]} & {parts[1]} & {parts[0]}")
    alone = [ask(learned, part).quantities[0] for part in parts]
    assert [(q.credible, q.support) for q in both.quantities] == [(q.credible, q.support) for q in alone]
    assert both.credible is None
    assert both.support == min(q.support for q in alone if q.support is not None)


def test_another_learned_model_is_drawn_too() -> None:
    learned = learned_world(Random(6))
    rows = {key: sorted(row) for key, row in learned.setting.rows.items()}
    draws = [(s, a, t) for (s, a), row in rows.items() for t in row for _ in range(3) if s < learned.setting.states - 1]
    other, _ = learned_model(learned.setting.states, 2, draws, dict(learned.setting.labels))
    main = replace(learned, model=replace(learned.model, counts=None))
    text = 'delta(model:other, nominal)@1.P=? [ G<=4 !"a" ]'
    verdict = ask(main, text, models={"other": other})
    assert verdict.credible is not None
    assert verdict.credible[0] < verdict.credible[1]
    assert verdict.support is not None
    assert ask(learned, text, models={"other": replace(other, counts=None)}).support is not None


def test_what_is_too_large_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'alt@1.P=? [ G<=4 !"a" ]'
    learned = one_with_support(text)
    monkeypatch.setattr(credible, "MAX_DRAWN", 1)
    few = ask(learned, text)
    assert few.credible is None
    assert few.bands is not None
    assert (few.bands.draws, few.bands.level) == (39, 0.95)  # as requested, so that it can be repeated
    assert "MAX_DRAWN" in few.bands.reason
    assert few.support is not None
    monkeypatch.undo()
    monkeypatch.setattr(credible, "MAX_TABLES", 1)
    monkeypatch.setattr(row_uses, "MAX_USES", -1)
    none = ask(learned, text)
    assert none.bands is not None
    assert "MAX_TABLES" in none.bands.reason
    assert "MAX_USES" in none.bands.reason
    assert (none.support, none.to_visit) == (None, ())


def test_a_nested_quantity_has_a_credible_band_and_no_support() -> None:
    learned = learned_world(Random(9))
    verdict = ask(learned, 'alt@1.P=? [ F<=2 (P>0.5 [ X "a" ]) ]')
    assert verdict.credible is not None
    assert verdict.bands is not None
    assert verdict.bands.reason == "no support: a quantity is nested in another"


def test_an_ended_episode_is_drawn_as_ended() -> None:
    learned = learned_world(Random(8))
    setting = learned.setting
    known = next(s for s in range(setting.states - 1) if len(setting.rows[s, 0]) > 1)
    ended = replace(learned, setting=replace(setting, path=((known, 0),)))
    verdict = ask(ended, "R=? [ C<=3 ]", terminated=True)
    assert verdict.value == 0.0
    assert verdict.credible == (0.0, 0.0)
    assert verdict.support is None


def test_a_constant_rests_on_nothing() -> None:
    verdict = ask(learned_world(Random(2)), "alt@1.P=? [ true ]")
    assert (verdict.credible, verdict.support, verdict.to_visit) == ((1.0, 1.0), None, ())


# ---- support and visits ----


def uses(model: MDP, weights: dict[int, float], moves: dict[int, float] | None = None, spread: float = 1.0) -> RowUses:
    """Return uses of the rows of a model with one action; `moves` by entry."""
    found = RowUses.none_of(model)
    for row, weight in weights.items():
        found.weights[row] = weight
        found.spread[row] = weight * spread
    for entry, moved in (moves or {}).items():
        found.moves[entry] = moved
    return found


def chain(*visits: int) -> MDP:
    """Return a model of one action whose state k was left so often, half of the time to 0 and else to 1."""
    draws = [(state, 0, n % 2) for state, visited in enumerate(visits) for n in range(visited)]
    return learned_model(len(visits) + 1, 1, draws, {})[0]


def test_support_is_that_of_the_heaviest_rows() -> None:
    model = chain(50, 4, 20, 8)
    assert support_of([uses(model, {0: 6.0, 1: 0.5, 2: 3.5})]) == 20  # .95 without state 1
    assert support_of([uses(model, {0: 5.5, 1: 1.0, 2: 3.5})]) == 20  # .9 exactly
    assert support_of([uses(model, {0: 5.0, 1: 1.5, 2: 3.5})]) == 4
    assert support_of([uses(model, {0: 1.0, 3: 1.0})]) == 8
    assert support_of([uses(model, {2: 1.0}), uses(model, {3: 0.2})]) == 8


def test_a_row_without_data_supports_nothing_and_elsewhere_is_given() -> None:
    model = chain(50, 0)
    assert support_of([uses(model, {0: 1.0, 1: 1.0})]) == 0
    assert support_of([uses(model, {0: 1.0, 2: 9.0})]) == 50  # the row of `elsewhere` is known
    assert support_of([uses(model, {2: 9.0})]) is None
    assert support_of([uses(replace(model, counts=None), {0: 1.0})]) is None


def test_of_equal_weights_the_row_with_fewer_draws_comes_first() -> None:
    model = chain(*[20 + n for n in range(10)])
    tenth = 0.1 + 1e-14
    assert support_of([uses(model, {row: tenth if row else 0.1 for row in range(10)})]) == 20


def test_pairs_to_visit_are_those_of_the_largest_variance() -> None:
    model = chain(50, 4, 20, 8)
    first = model.indptr[:-1].tolist()
    moved = {first[0]: 1.0, first[1]: 1.0, first[2]: 3.0}
    found = uses(model, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, moved)
    # half of the square less a quarter: .25 move^2 / (n + 2)
    assert to_visit([found]) == ((2, 0), (1, 0), (0, 0))
    assert to_visit([uses(model, {3: 1.0})]) == ()
    assert to_visit([uses(replace(model, counts=None), {0: 1.0}, moved)]) == ()


def test_at_most_three_are_named_and_those_without_data_count_with_the_widest_variance() -> None:
    model = chain(50, 50, 50, 50, 0)
    first = model.indptr[:-1].tolist()
    found = uses(model, dict.fromkeys(range(5), 1.0), {first[row]: 1.0 for row in range(4)})
    assert to_visit([found]) == ((4, 0), (0, 0), (1, 0))
    assert bands_module.SUGGESTIONS == 3


def test_visiting_what_is_suggested_narrows_the_band_more_than_visiting_something_else() -> None:
    """On a chain of two risky steps of which one is known well."""
    draws = [(0, 0, 1)] * 190 + [(0, 0, 2)] * 10 + [(1, 0, 1)] * 9 + [(1, 0, 2)] * 1
    labels = {"bad": frozenset({2, 3})}

    def width(more: list[tuple[int, int, int]]) -> tuple[float, tuple[tuple[int, int], ...]]:
        model, _ = learned_model(4, 1, draws + more, labels)
        verdict = check(
            'P=? [ G<=3 !"bad" ]', model=model, path=[(0, 0)], policies={"nominal": [0] * 4}, bands=BandSettings(400)
        )
        assert verdict.credible is not None
        return verdict.credible[1] - verdict.credible[0], verdict.to_visit

    before, suggested = width([])
    assert suggested[0] == (1, 0)
    there = width([(1, 0, 1)] * 90 + [(1, 0, 2)] * 10)[0]
    other = width([(0, 0, 1)] * 95 + [(0, 0, 2)] * 5)[0]
    assert there < other
    assert there < 0.6 * before
