"""The engine and the referee against the oracle of best decisions, which imports nothing of either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from monitor.types import Verdict
from tests.oracle.recourse_cases import SETTINGS, Question, questions
from tests.tiers import first, heavy
from tests.truth.engine_side import Engine
from tests.truth.generate import Case, Kind

GROUPS = 6
EXACT = 1e-12


def words(asked: Question) -> tuple[str, ...]:
    return "best", "optimal", f"best[{asked.steps}]", f"best[<={asked.changes}]"


def asked_of(number: int, kind: Kind) -> Iterator[tuple[Question, str, Case, Engine]]:
    """Yield the questions of a group, with the engine on their setting, which is that of all questions of a seed."""
    for seed in range(number, SETTINGS, GROUPS):
        engine = Engine(questions(seed)[0].setting)
        for asked in questions(seed):
            for word in words(asked):
                yield asked, word, Case(asked.setting, f"{word}@{asked.offset}.{asked.goal}", kind), engine


def quantity(verdict: Verdict) -> float:
    return verdict.quantities[0].value


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_values_are_those_of_the_oracle(number: int) -> None:
    differing = 0
    for asked, word, case, engine in asked_of(number, "gumbel"):
        value = float(asked.recourse.value(word))
        verdict = engine.verdict(case)
        assert quantity(verdict) == pytest.approx(value, abs=EXACT), case
        assert verdict.holds == asked.recourse.meets(asked.recourse.value(word)), case
        differing += abs(value - float(asked.recourse.value("nominal"))) > EXACT
    assert differing >= 100


@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_the_referee_finds_the_values_of_the_oracle(number: int) -> None:
    for asked, word, case, engine in asked_of(number, "gumbel"):
        value = quantity(engine.verdict_of_referee(case))
        assert value == pytest.approx(float(asked.recourse.value(word)), abs=EXACT), case


@heavy
@pytest.mark.parametrize("kind", ["any", "stable"])
@pytest.mark.parametrize("number", first(1, range(GROUPS)))
def test_bounds_are_those_of_the_oracle(number: int, kind: Kind) -> None:
    wide = 0
    for asked, word, case, engine in asked_of(number, kind):
        low, high = map(float, asked.recourse.bounds(word, kind))
        for verdict in (engine.verdict(case), engine.verdict_of_referee(case)):
            assert verdict.bounds == pytest.approx((low, high), abs=EXACT), case
        wide += high - low > EXACT
    assert wide >= 10
