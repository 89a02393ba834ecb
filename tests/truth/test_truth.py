"""Twenty thousand questions over the whole language, at fixed seeds: the engine says what the oracle says.

One in ten is asked of the referee too (`soak.REFEREE`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

import monitor
from tests.tiers import first
from tests.truth.engine_side import Engine
from tests.truth.features import features
from tests.truth.generate import Case, batch
from tests.truth.judge import judge, rejudge
from tests.truth.shrink import as_test, shrink
from tests.truth.soak import ask
from tests.truth.unparse import unparse

PARTS = 25
SEEDS = 20  # in each part
# Each of these is in at least one of twenty questions.
COUNTED = 10  # questions of a seed whose features are counted
WANTED = {
    "another acted", "bounds", "clipped", "delta", "do", "ended", "look-back", "missing action", "model", "nested",
    "number", "regret", "reward", "stochastic", "takeover",
}  # fmt: skip


@pytest.mark.parametrize("part", first(3, range(PARTS)))
def test_the_engine_agrees_with_the_oracle(part: int) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        report = ask(seed, count_features=False)
        if report.faults:
            pytest.fail(f"seed {seed}\n" + as_test(*shrink(report.faults[0][1])))


def test_every_part_of_the_language_is_common() -> None:
    kinds: Counter[str] = Counter()
    seeds = 200
    for seed in range(seeds):
        evaluator, cases = batch(seed, COUNTED)
        for case in cases:
            kinds.update(features(evaluator, case))
    assert {kind for kind in WANTED if kinds[kind] >= seeds * COUNTED / 20} == WANTED


def test_a_seed_gives_the_same_questions() -> None:
    assert batch(7)[1] == batch(7)[1]


@pytest.mark.parametrize("seed", range(10))
def test_cases_survive_being_written_down(seed: int) -> None:
    for case in batch(seed)[1]:
        assert Case.from_json(case.to_json()) == case


@pytest.mark.parametrize("seed", range(10))
def test_formulas_are_written_as_they_are_read(seed: int) -> None:
    evaluator, cases = batch(seed)
    for case in cases:
        formula = evaluator.parser.parse(case.formula)
        assert evaluator.parser.parse(unparse(formula)) is formula


def test_a_wrong_engine_is_noticed_and_the_case_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that adds one to every reward is wrong about rewards, and a single reward shows it."""
    honest = Engine.verdict

    def wrong(self: Engine, case: Case) -> monitor.Verdict:
        verdict = honest(self, case)
        rewarded = "R=?" in case.formula and verdict.value is not None
        return replace(verdict, value=verdict.value + 1) if rewarded and verdict.value is not None else verdict

    monkeypatch.setattr(Engine, "verdict", wrong)
    report = next(report for report in map(ask, range(100)) if report.faults)
    small, fault = shrink(report.faults[0][1])
    assert fault == rejudge(small)
    assert small.formula == "nominal@0.R=? [ C[0,0] ]"
    assert len(small.setting.path) == 1
    assert small.setting.rewards == {}
    assert small.setting.policies.keys() == {"nominal"}
    assert all(set(row.values()) == {Fraction(1)} for row in small.setting.rows.values())


def test_agreement_is_the_empty_list() -> None:
    evaluator, cases = batch(3)
    engine = Engine(cases[0].setting)
    assert judge(evaluator, engine, cases[0], "check") == judge(evaluator, engine, cases[0], "referee") == []
