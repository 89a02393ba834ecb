"""Every one of the 2,160 reference questions, to 1e-9, by the referee alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monitor.model import MDP
from monitor.referee import derive
from tests.tiers import first

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference" / "cases.json").read_text())
TOLERANCE = 1e-9


@pytest.mark.parametrize("number", first(8, range(len(CASES))))
def test_case(number: int) -> None:
    case = CASES[number]
    model = MDP.from_transitions(
        states=case["states"],
        actions=case["actions"],
        transitions=case["transitions"],
        rewards=case["rewards"],
        labels=case["labels"],
    )
    path = [(state, action) for state, action in case["path"]]
    wrong = []
    for query in case["queries"]:
        causal_model = query.get("causal_model", "gumbel")
        verdict = derive(query["formula"], model=model, path=path, policies=case["policies"], causal_model=causal_model)
        for kind in ("value", "holds", "bounds"):
            found = getattr(verdict, kind)
            expected = query.get(kind, found)
            if found != pytest.approx(expected, abs=TOLERANCE):
                wrong.append((query, found))
    assert not wrong


def test_each_question_names_its_answer() -> None:
    kinds = [sum(kind in query for kind in ("value", "holds", "bounds")) for case in CASES for query in case["queries"]]
    assert (len(kinds), set(kinds)) == (2160, {1})
