"""Guaranteed bands of the referee: those of the oracle's linear programs, and those of the engine."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from monitor.errors import ConfigError, LimitError
from monitor.evaluation import check
from monitor.referee import derive
from monitor.referee import guaranteed as second
from monitor.referee.intervals import box_of, extreme, least_probability
from monitor.types import BandSettings, Quantity, Verdict
from tests.exact.learned import learned_model, learned_world
from tests.exact.small import path_formula
from tests.exact.test_learned_verdicts import other_model
from tests.oracle.confidence import row_box
from tests.oracle.guaranteed import guaranteed as by_programs
from tests.oracle.learned import random_case
from tests.oracle.rows import row_extreme
from tests.tiers import first

TOLERANCE = 1e-7  # of linear programs, one after another
CLOSE = 1e-9
DELTAS = (0.05, 0.5, 0.001)


@pytest.mark.parametrize("seed", first(6, range(40)))
def test_bands_are_those_of_linear_programs(seed: int) -> None:
    case, delta = random_case(7000 + seed), DELTAS[seed % 3]
    for text in case.texts:
        found = derive(text, model=case.model, path=case.path, policies=case.policies, causal_model="any", delta=delta)
        expected = by_programs(case.model, case.policies, case.path, text, delta)
        assert found.guaranteed == pytest.approx(expected, abs=TOLERANCE), text


@pytest.mark.parametrize("seed", first(15, range(150)))
def test_verdicts_are_those_of_the_engine(seed: int) -> None:
    chance, rewards = Random(seed), seed % 4 == 0
    learned = learned_world(chance, rewards=rewards)
    goal = f"R>=0.5 [ C<={chance.randrange(4)} ]" if rewards else f"P>=0.5 [ {path_formula(chance)} ]"
    asked = goal.replace(">=0.5", "=?")
    offset = chance.randrange(3)
    for text in (
        f"regret(alt@{offset}, {goal})",
        f"alt@{offset}.{goal} | !(do(1)[1]@1.{goal})",
        f"delta(alt,nominal)@{offset}.{asked}",
        f"alt@-1.{asked}",
    ):
        agree(learned.model, learned.policies, list(learned.setting.path), text, terminated=chance.random() < 0.2)


def agree(model: object, policies: object, path: object, text: str, **more: object) -> None:
    given: dict[str, Any] = {"model": model, "policies": policies, "path": path, "causal_model": "any", **more}
    one = check(text, **given, engine="exact", bands=BandSettings(draws=0, delta=0.2))
    two = derive(text, **given, delta=0.2)
    assert (two.bands, two.robust, two.holds, two.outcome) == (one.bands, one.robust, one.holds, one.outcome), text
    pairs: list[tuple[Verdict | Quantity, Verdict | Quantity]] = [(one, two)]
    pairs += zip(one.quantities, two.quantities, strict=True)
    for left, right in pairs:
        assert (left.guaranteed is None) == (right.guaranteed is None), text
        assert left.robust == right.robust, text
        if left.guaranteed is not None:
            assert right.guaranteed == pytest.approx(left.guaranteed, abs=CLOSE), text
    if one.effect_guaranteed is not None:
        assert two.effect_guaranteed == pytest.approx(one.effect_guaranteed, abs=CLOSE), text


NESTED = 'alt@1.P>=0.5 [ F<=2 (P>0.5 [ X "a" ]) ]'


@pytest.mark.parametrize("seed", first(4, range(30)))
def test_other_dynamics_are_those_of_the_engine(seed: int) -> None:
    learned = learned_world(Random(seed))
    main, other = learned.model, other_model(learned)
    goal = path_formula(Random(seed))
    texts = (f"model:other@1.P>=0.5 [ {goal} ]", f"delta(model:other,alt)@1.P=? [ {goal} ]", NESTED)
    for models in ((main, other), (replace(main, counts=None), other), (main, replace(other, counts=None))):
        for text in texts:
            agree(models[0], learned.policies, list(learned.setting.path), text, models={"other": models[1]})


def test_where_it_is_not_defined_nothing_is_called_robust() -> None:
    learned = learned_world(Random(3))
    given: dict[str, Any] = {
        "model": learned.model,
        "policies": learned.policies,
        "path": learned.setting.path,
        "causal_model": "any",
    }
    verdict = derive(f'{NESTED} & alt@1.P>=0 [ F<=2 "a" ]', **given)
    assert verdict.robust is None
    assert verdict.bands is not None
    assert verdict.bands.delta == 0.05
    assert verdict.bands.reason.startswith("no guaranteed band: quantities are nested")
    assert [quantity.guaranteed is None for quantity in verdict.quantities] == [True, False]
    varied = replace(learned.model, reward_spread=np.full(len(learned.model.successors), 0.1))
    assert derive("alt@1.R=? [ C<=2 ]", **given | {"model": varied}).guaranteed is None
    assert derive('"a" | true', **given).bands is None
    assert derive("P=? [ true ]", **given).guaranteed == (1.0, 1.0)
    assert derive("delta(alt,nominal)@1.P=? [ true ]", **given).guaranteed == (0.0, 0.0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0])
def test_an_error_rate_outside_its_range_is_refused(delta: float) -> None:
    learned = learned_world(Random(3))
    with pytest.raises(ConfigError, match=f"delta must lie strictly between 0 and 1, not {delta:g}"):
        derive("P=? [ true ]", model=learned.model, policies=learned.policies, path=learned.setting.path, delta=delta)


def test_too_many_labels_or_rows_are_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"l{n}" for n in range(9)]
    draws = [(0, 0, 0)] * 5
    model, _ = learned_model(2, 1, draws, {name: frozenset({0}) for name in names})
    certain = " & ".join(f'("{name}" | !"{name}")' for name in names)
    asked: dict[str, Any] = {"model": model, "policies": {"nominal": [0, 0]}, "path": [(1, 0)], "causal_model": "any"}
    assert derive(f"P=? [ {certain} ]", **asked).guaranteed == (0.0, 1.0)
    assert derive('P=? [ "l0" | !"l0" ]', **asked).guaranteed == (1.0, 1.0)
    monkeypatch.setattr(second, "LIMIT", 2)
    with pytest.raises(LimitError, match="guaranteed band needs more than 2 rows"):
        derive('P=? [ G<=9 "l0" ]', **asked | {"path": [(0, 0)]})


def test_boxes_are_those_of_the_oracle() -> None:
    chance = Random(0)
    for _ in range(30):
        draws = [(0, 0, chance.choice([0, 0, 0, 0, 1, 2])) for _ in range(chance.randint(1, 300))]
        model, _ = learned_model(4, 1, [(1, 0, 0), *draws], {})
        counts = model.counts
        assert counts is not None
        entries = range(int(model.indptr[0]), int(model.indptr[1]))
        seen = {int(model.successors[e]): (int(counts.visits[e]), int(counts.since[e])) for e in entries}
        found, expected = box_of(model, 0, 0, 0.05), row_box(seen, 2, 3, 0.05)
        assert found.keys() == expected.keys()
        for successor, ends in expected.items():
            assert found[successor] == pytest.approx(ends, abs=1e-12)


def test_a_row_that_its_draws_refute_may_be_any() -> None:
    drifted, _ = learned_model(4, 1, [(0, 0, 0)] * 500 + [(0, 0, 1)] * 500, {})
    assert box_of(drifted, 0, 0, 0.05) == dict.fromkeys((0, 1, 3), (0.0, 1.0))


def test_extreme_means_are_those_of_linear_programs() -> None:
    chance = Random(1)
    for _ in range(60):
        size = chance.randint(1, 4)
        weights = [chance.random() for _ in range(size)]
        row = [weight / sum(weights) for weight in weights]
        box = {
            k: (p * chance.choice([0.0, 0.5, 1.0]), min(1.0, p * chance.choice([1.0, 1.5, 4.0])))
            for k, p in enumerate(row)
        }
        values = {k: chance.choice([0.0, 1.0, chance.random()]) for k in box}
        observed = {0: (0.2, 0.5), 9: (0.5, 0.8)}
        least = least_probability(observed, 0)
        assert least == pytest.approx(0.2)
        lows, highs = [low for low, _ in box.values()], [high for _, high in box.values()]
        for largest in (False, True):
            expected = row_extreme([0.2, 0.5], [0.5, 0.8], 0, lows, highs, list(values.values()), largest=largest)
            assert extreme(box, values, largest=largest, observed=least) == pytest.approx(expected, abs=1e-7)
    assert least_probability(observed, 5) == 0.0
