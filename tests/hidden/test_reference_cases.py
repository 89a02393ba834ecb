"""Every reference question on hidden states and memory, by both programs: 160 random models with an answer each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.referee import derive
from tests.tiers import first

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference" / "hidden_cases.json").read_text())


def policy(case: dict[str, Any], name: str) -> object:
    given = case[name]
    if isinstance(given, dict):
        return monitor.Controller(given["choice"], given["next"], memory=case["memory"])
    return monitor.Policy(given, sees="state" if case["kind"] == "B" else "observation")


@pytest.mark.parametrize("number", first(20, range(len(CASES))))
def test_the_answer_and_the_evidence(number: int) -> None:
    case = CASES[number]
    rows, emissions = np.array(case["transitions"]), np.array(case["emissions"])
    model = monitor.MDP.from_transitions(
        states=len(rows),
        actions=rows.shape[1],
        transitions=[(*index, rows[index]) for index in np.ndindex(rows.shape)],
        labels={"bad": case["bad"]},
        initial=dict(enumerate(case["initial"])),
        signals=emissions.shape[1],
        emissions=[(*index, emissions[index]) for index in np.ndindex(emissions.shape)],
    )
    for program in (monitor.check, derive):
        verdict = program(
            f'alternative@{case["offset"]}.P=? [ F<={case["horizon"]} "bad" ]',
            model=model,
            policies={name: policy(case, name) for name in ("nominal", "alternative")},
            path=list(zip(case["observations"], case["actions"], strict=True)),
        )
        assert verdict.value == pytest.approx(case["value"], abs=1e-9), program
        assert verdict.evidence == pytest.approx(case["evidence"], rel=1e-9), program
