"""The oracle agrees with every reference question."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.evaluate import Evaluator
from tests.oracle.setting import Setting
from tests.tiers import first

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference" / "cases.json").read_text())
TOLERANCE = 1e-9


def setting_of(case: dict[str, Any]) -> Setting:
    totals: dict[tuple[int, int], Fraction] = {}
    for s, a, _, p in case["transitions"]:
        totals[s, a] = totals.get((s, a), Fraction(0)) + Fraction(p)
    rows = [[s, a, t, Fraction(p) / totals[s, a]] for s, a, t, p in case["transitions"]]
    data = {**case, "rows": rows}
    data["policies"] = {name: [{action: 1} for action in table] for name, table in case["policies"].items()}
    return Setting.from_json(data)


@pytest.mark.parametrize("number", first(10, range(len(CASES))))
def test_case(number: int) -> None:
    evaluator = Evaluator(setting_of(CASES[number]))
    for query in CASES[number]["queries"]:
        answer = evaluator.answer(query["formula"], query.get("causal_model", "gumbel"))
        match query:
            case {"bounds": [low, high]}:
                assert answer.bounds is not None
                assert tuple(map(float, answer.bounds)) == pytest.approx((low, high), abs=TOLERANCE), query
            case {"value": value}:
                assert answer.value is not None
                assert float(answer.value) == pytest.approx(value, abs=TOLERANCE), query
            case _:
                assert answer.holds is query["holds"], query
