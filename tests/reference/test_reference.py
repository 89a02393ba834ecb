"""Every one of the 2,160 reference questions, to 1e-9."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monitor.exact import Checker, tables, validate
from monitor.logic import parse
from monitor.model import MDP

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("cases.json").read_text())
TOLERANCE = 1e-9


@pytest.mark.parametrize("number", range(len(CASES)))
def test_case(number: int) -> None:
    case = CASES[number]
    model = MDP.from_transitions(
        states=case["states"],
        actions=case["actions"],
        transitions=case["transitions"],
        rewards=case["rewards"],
        labels=case["labels"],
    )
    checker = Checker(model, tables(case["policies"], model))
    path = [(state, action) for state, action in case["path"]]
    wrong = []
    for query in case["queries"]:
        text = query["formula"]
        formula = parse(text)
        validate(formula, model, case["policies"], text)
        verdict = checker.check(formula, path, causal_model=query.get("causal_model", "gumbel"), text=text)
        match query:
            case {"bounds": [low, high]}:
                found: tuple[Any, ...] = verdict.bounds or ()
                agrees = found == (pytest.approx(low, abs=TOLERANCE), pytest.approx(high, abs=TOLERANCE))
            case {"value": value}:
                found = (verdict.value,)
                agrees = verdict.value == pytest.approx(value, abs=TOLERANCE)
            case {"holds": holds}:
                found = (verdict.holds,)
                agrees = verdict.holds is holds
            case _:
                raise AssertionError(query)
        if not agrees:
            wrong.append((query, found))
    assert not wrong


def test_the_file_is_whole() -> None:
    kinds = [next(k for k in ("bounds", "value", "holds") if k in query) for case in CASES for query in case["queries"]]
    assert (len(CASES), len(kinds)) == (60, 2160)
    assert {kind: kinds.count(kind) for kind in set(kinds)}.keys() == {"bounds", "value", "holds"}
