"""Guaranteed bands in verdicts on learned models, and what they make of `robust`."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

import pytest
from hypothesis import given

from monitor.errors import LimitError
from monitor.exact.checker import Checker
from monitor.exact.path_values import PathValues
from monitor.logic import parse
from monitor.model import MDP
from monitor.types import Bands, CausalModel, Verdict
from tests.exact.learned import Learned, learned_model, learned_world
from tests.exact.small import LAW, chances, path_formula

CLOSE, DELTA = 1e-9, 0.05


def ask(learned: Learned, text: str, causal_model: CausalModel = "any", **more: object) -> Verdict:
    models = more.pop("models", None)
    checker = Checker(learned.model, learned.policies, models)  # type: ignore[arg-type]
    return checker.check(parse(text), learned.setting.path, causal_model=causal_model, text=text, **more)  # type: ignore[arg-type]


def fixed(learned: Learned) -> Learned:
    """Return the same world, with its rows given."""
    return replace(learned, model=replace(learned.model, counts=None))


@LAW
@given(chances)
def test_a_guaranteed_band_holds_the_bounds_and_their_value(chance: Random) -> None:
    learned = learned_world(chance)
    verdict = ask(learned, f"alt@{chance.randrange(3)}.P=? [ {path_formula(chance)} ]")
    assert verdict.guaranteed is not None
    assert verdict.bounds is not None
    assert verdict.value is not None
    assert verdict.guaranteed[0] - CLOSE <= verdict.bounds[0] <= verdict.value + CLOSE
    assert verdict.value - CLOSE <= verdict.bounds[1] <= verdict.guaranteed[1] + CLOSE
    assert verdict.quantities[0].guaranteed == verdict.guaranteed
    assert verdict.bands == Bands(delta=DELTA)


@LAW
@given(chances)
def test_robust_is_what_no_model_in_the_guaranteed_band_changes(chance: Random) -> None:
    learned = learned_world(chance)
    offset, path = chance.randrange(3), path_formula(chance)
    verdict = ask(learned, f"regret(alt@{offset}, P>=0.5 [ {path} ])")
    nominal, alternative = verdict.quantities
    assert nominal.guaranteed is not None
    assert alternative.guaranteed is not None
    values = [(*(q.guaranteed or ()), *(q.extremes or ()), q.value) for q in (nominal, alternative)]
    sides = [{value >= 0.5 for value in each} for each in values]
    outcomes = {"safe" if n else "regret" if a else "unavoidable" for n in sides[0] for a in sides[1]}
    assert verdict.robust == (len(outcomes) == 1)
    assert verdict.guaranteed == alternative.guaranteed
    low, high = alternative.guaranteed[0] - nominal.guaranteed[1], alternative.guaranteed[1] - nominal.guaranteed[0]
    assert verdict.effect_guaranteed == (low, high)
    effect = ask(learned, f"delta(alt, nominal)@{offset}.P=? [ {path} ]")
    assert effect.guaranteed == (low, high)
    plain = ask(learned, f"alt@{offset}.P>=0.5 [ {path} ]")
    assert plain.guaranteed == alternative.guaranteed
    assert plain.robust == plain.quantities[0].robust == (len(sides[1]) == 1)


@pytest.mark.parametrize("causal_model", ["gumbel", "stable"])
def test_other_classes_of_causal_models_have_no_guaranteed_band(causal_model: CausalModel) -> None:
    learned = learned_world(Random(3))
    verdict = ask(learned, 'regret(alt@2, P>=0.5 [ G<=3 !"a" ])', causal_model)
    assert verdict == ask(fixed(learned), 'regret(alt@2, P>=0.5 [ G<=3 !"a" ])', causal_model)
    assert (verdict.guaranteed, verdict.effect_guaranteed, verdict.bands) == (None, None, None)


def test_a_given_model_has_none() -> None:
    verdict = ask(fixed(learned_world(Random(3))), 'regret(alt@2, P>=0.5 [ G<=3 !"a" ])')
    assert verdict.bands is None
    assert verdict.guaranteed is None
    assert verdict.robust is not None


def test_a_formula_without_quantities_has_none() -> None:
    verdict = ask(learned_world(Random(3)), '"a" | true')
    assert (verdict.bands, verdict.robust, verdict.holds) == (None, True, True)


def test_where_it_cannot_be_had_nothing_is_called_robust() -> None:
    verdict = ask(learned_world(Random(3)), 'alt@1.P>=0 [ F<=2 (P>0.5 [ X "a" ]) ]')
    assert verdict.holds is True
    assert verdict.robust is None
    assert verdict.quantities[0].robust is None
    assert verdict.bounds is not None
    assert verdict.bands is not None
    assert verdict.bands.delta is None
    assert "quantities are nested" in verdict.bands.reason


def test_of_a_combination_one_missing_band_is_enough() -> None:
    verdict = ask(learned_world(Random(3)), 'alt@1.P>=0 [ F<=2 "a" ] & alt@1.P>=0 [ F<=2 (P>0.5 [ X "a" ]) ]')
    assert verdict.robust is None
    assert [q.robust for q in verdict.quantities] == [True, None]
    assert verdict.bands is not None
    assert verdict.bands.delta == DELTA


def test_a_regret_without_it_is_not_called_robust() -> None:
    verdict = ask(learned_world(Random(3)), 'regret(alt@1, P>=0 [ F<=2 (P>0.5 [ X "a" ]) ])')
    assert (verdict.outcome, verdict.robust, verdict.effect_guaranteed) == ("safe", None, None)


def test_one_that_is_too_costly_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LimitError("too many numbers")

    monkeypatch.setattr(PathValues, "guaranteed", refuse)
    verdict = ask(learned_world(Random(3)), 'alt@1.P>=0 [ F<=2 "a" ]')
    assert verdict.bands == Bands(reason="no guaranteed band: too many numbers")
    assert verdict.robust is None


def other_model(learned: Learned) -> MDP:
    """Return another learned model over the same states."""
    states = learned.setting.states
    draws = [(s, a, t) for s in range(states - 1) for a in range(2) for t in range(states - 1) for _ in range(4)]
    return learned_model(states, 2, draws, dict(learned.setting.labels))[0]


def _open(learned: Learned) -> bool:
    """Return whether "b" holds somewhere, and nowhere on the path."""
    return bool(learned.setting.labels["b"]) and not any(
        s in learned.setting.labels["b"] for s, _ in learned.setting.path
    )


def test_under_given_rows_the_guaranteed_band_is_that_of_the_bounds() -> None:
    worlds = map(learned_world, map(Random, count()))
    learned = next(w for w in worlds if len(w.setting.path) == 3 and _open(w))
    main, other = fixed(learned), other_model(learned)
    verdict = ask(main, 'alt@2.P>=0.5 [ F<=3 "b" ] & model:other@2.P>=0.5 [ F<=3 "b" ]', models={"other": other})
    own, there = verdict.quantities
    assert own.guaranteed == own.bounds
    assert there.guaranteed is not None
    assert there.bounds is not None
    assert there.guaranteed[1] - there.guaranteed[0] > there.bounds[1] - there.bounds[0]
    estimated = ask(learned, 'model:other@2.P=? [ F<=3 "b" ]', models={"other": replace(other, counts=None)})
    assert estimated.guaranteed is not None
    assert estimated.bands == Bands(delta=DELTA)
