"""The engine agrees with the oracle on seeded questions: asked once, along a growing path, and of a large model.

The answers of the oracle are computed once in a process: mutants are forks of one that has them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import monitor
from monitor.causal import world
from monitor.exact import evaluators, lazy_values, value_table
from monitor.exact.forward import buffers, evaluator, row_table
from monitor.exact.inputs import tables
from tests.oracle.evaluate import Answer, Evaluator
from tests.oracle.setting import Setting
from tests.tiers import first
from tests.truth.compare import differences
from tests.truth.engine_side import Engine
from tests.truth.generate import Case, batch

QUESTIONS = 12
STREAMED = 6


@cache
def answered(seed: int, questions: int) -> list[tuple[Case, Answer]]:
    """Return the questions of a seed with their answers."""
    evaluator, cases = batch(seed, questions)
    return [(case, evaluator.answer(case.formula, case.causal_model)) for case in cases]


@cache
def streamed(seed: int) -> list[tuple[Case, list[tuple[int, int, Answer]]]]:
    """Return questions with their answers on the path from one pair to another (exclusive), as it grows and slides."""
    _, cases = batch(seed, STREAMED)
    path = cases[0].setting.path
    window = max(1, len(path) - seed % 3)
    spans = [(max(0, end - window), end) for end in range(1, len(path) + 1)]
    evaluators = [Evaluator(_part(cases[0], begin, end)) for begin, end in spans]
    return [
        (
            case,
            [
                (begin, end, evaluator.answer(case.formula, case.causal_model))
                for (begin, end), evaluator in zip(spans, evaluators, strict=True)
            ],
        )
        for case in cases
    ]


@pytest.mark.parametrize("seed", first(15, range(40)))
def test_each_question_has_the_oracles_answer(seed: int) -> None:
    questions = answered(seed, QUESTIONS)
    engine = Engine(questions[0][0].setting)
    for case, answer in questions:
        assert not differences(answer, engine.verdict(case)), case.formula


@pytest.mark.parametrize("seed", first(10, range(100, 130)))
def test_questions_on_a_large_model_have_the_oracles_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    call_every_model_large(monkeypatch)
    questions = answered(seed, QUESTIONS)
    engine = Engine(questions[0][0].setting)
    for case, answer in questions:
        assert not differences(answer, engine.verdict(case)), case.formula


@pytest.mark.parametrize("model", ["small", "large"])
@pytest.mark.parametrize("seed", first(8, range(300, 330)))
def test_no_answer_depends_on_the_room_that_there_is(seed: int, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_no_room(monkeypatch)
    if model == "large":
        call_every_model_large(monkeypatch)
    questions = answered(seed, QUESTIONS)
    engine = Engine(questions[0][0].setting)
    for case, answer in questions:
        assert not differences(answer, engine.verdict(case)), case.formula


@pytest.mark.parametrize("space", ["enough", "little"])
@pytest.mark.parametrize("model", ["small", "large"])
@pytest.mark.parametrize("seed", first(8, range(200, 220)))
def test_a_track_has_the_oracles_answer_after_each_pair(
    seed: int, model: str, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model == "large":
        call_every_model_large(monkeypatch)
    if space == "little":
        leave_no_room(monkeypatch)
    questions = streamed(seed)
    about = Engine(questions[0][0].setting).about
    checker = monitor.Checker(about["model"], tables(about["policies"], about["model"]), about["models"])
    path = questions[0][0].setting.path
    for case, answers in questions:
        window = max(end - begin for begin, end, _ in answers)
        track = checker.incremental_check(monitor.parse(case.formula), case.causal_model, window=window)
        for begin, end, answer in answers:
            ended = case.setting.terminated and end == len(path)
            assert not differences(answer, track.verdict(path[begin:end], 1, terminated=ended)), (case.formula, end)


def call_every_model_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have values computed around the states that are reached, as for models of many states."""
    monkeypatch.setattr(value_table, "SMALL", 0)
    monkeypatch.setattr(evaluator, "SMALL", 0)


def leave_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every array grow from nearly nothing, and nothing remembered that need not be."""
    monkeypatch.setattr(row_table, "INITIAL_SIZES", (1, 1, 1, 1))
    monkeypatch.setattr(row_table, "MAX_SUCCESSORS", 0)
    monkeypatch.setattr(world, "MAX_ROWS", 1)
    monkeypatch.setattr(buffers, "INITIAL_NODES", 1)
    monkeypatch.setattr(buffers, "INITIAL_FORWARD", (1, 1))
    monkeypatch.setattr(evaluators, "MAX_VALUE_TABLES", 1)
    monkeypatch.setattr(evaluators, "MAX_ENDED", 1)
    monkeypatch.setattr(lazy_values, "MAX_KEPT", 0)
    monkeypatch.setattr(value_table, "MAX_GATHERED", 0)
    monkeypatch.setattr(value_table, "MANY", 1)


def _part(case: Case, begin: int, end: int) -> Setting:
    setting = case.setting
    return replace(setting, path=setting.path[begin:end], terminated=setting.terminated and end == len(setting.path))
