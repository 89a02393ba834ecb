"""The judgement on one case: in what the engine, or the referee, and the oracle differ."""

from __future__ import annotations

from typing import Literal

from tests.oracle.evaluate import Evaluator
from tests.truth.compare import differences
from tests.truth.engine_side import Engine
from tests.truth.generate import Case

Fault = list[str]  # one line for each field; empty: they agree
Side = Literal["checker", "check", "referee"]
"""Who answers: a `Checker` that has answered others before, `monitor.check` from scratch, or the second evaluator."""


def judge(evaluator: Evaluator, engine: Engine, case: Case, side: Side = "checker") -> Fault:
    """Return the differences on one question; who refuses a valid question differs too."""
    ask = {"checker": engine.verdict, "check": engine.verdict_alone, "referee": engine.verdict_of_referee}[side]
    try:
        verdict = ask(case)
    except Exception as error:  # noqa: BLE001 (whatever it raises is what is reported)
        return [f"{type(error).__name__}: {error}"]
    found = differences(evaluator.answer(case.formula, case.causal_model), verdict)
    return [line.replace(", engine ", f", {side} ") for line in found]


def rejudge(case: Case) -> Fault:
    """Return the differences on a case from scratch, after the questions that stood before it."""
    engine = Engine(case.setting)
    evaluator = Evaluator(case.setting)
    for formula, kind in case.before:
        engine.verdict(Case(case.setting, formula, kind))
    return judge(evaluator, engine, case) or judge(evaluator, engine, case, "referee")


def kind_of(fault: Fault) -> str:
    """Return the error's name, or "" for plain differences: what shrinking has to keep."""
    word = fault[0].split(":")[0] if fault else ""
    return word if word.endswith("Error") else ""
