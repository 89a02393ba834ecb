"""The judgement on one case: in what the engine and the oracle differ."""

from __future__ import annotations

from tests.oracle.evaluate import Evaluator
from tests.truth.compare import differences
from tests.truth.engine_side import Engine
from tests.truth.generate import Case

Fault = list[str]  # one line for each field; empty: they agree


def judge(evaluator: Evaluator, engine: Engine, case: Case, *, alone: bool = False) -> Fault:
    """Return the differences on one question; an engine that refuses a valid question differs too."""
    try:
        verdict = engine.verdict_alone(case) if alone else engine.verdict(case)
    except Exception as error:  # noqa: BLE001 (whatever it raises is what is reported)
        return [f"{type(error).__name__}: {error}"]
    return differences(evaluator.answer(case.formula, case.causal_model), verdict)


def rejudge(case: Case) -> Fault:
    """Return the differences on a case from scratch, after the questions that stood before it."""
    engine = Engine(case.setting)
    evaluator = Evaluator(case.setting)
    for formula, kind in case.before:
        engine.verdict(Case(case.setting, formula, kind))
    return judge(evaluator, engine, case)


def kind_of(fault: Fault) -> str:
    """Return the error's name, or "" for plain differences: what shrinking has to keep."""
    word = fault[0].split(":")[0] if fault else ""
    return word if word.endswith("Error") else ""
