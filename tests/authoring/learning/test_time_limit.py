"""A time limit: ends after so many steps cut episodes off, as if a column had said so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.columns import Roles, guessed
from monitor.model import MDP
from monitor.model.npz import canonical_bytes
from tests.authoring.learning.recorded import learned

LIMIT = 6
ROLES = Roles(("x",), "a", "ep", "t", "r", "done", "cut")
Row = dict[str, Any]


def rows(rng: np.random.Generator, *, finals: bool, mixed: bool) -> tuple[list[Row], list[Row]]:
    """Interleaved episodes that end by themselves or after `LIMIT` steps, all marked by `done`; and marked rightly.

    `finals`: the last row is the final state, without an action. `mixed`: rows of episodes in turns.
    """
    marked: list[list[Row]] = []
    for episode in range(60):
        length = min(int(rng.geometric(0.2)), LIMIT)
        count = length + finals
        path = [
            {"ep": episode, "t": t, "x": int(rng.integers(4)), "a": float(rng.integers(2)), "r": 0.0}
            | {"done": t == count - 1, "cut": False, "limited": t == count - 1 and length == LIMIT}
            for t in range(count)
        ]
        if finals:
            path[-1]["a"] = float("nan")
        marked.append(path)
    ordered = [row for path in marked for row in path]
    if mixed:
        ordered.sort(key=lambda row: row["t"])
    keep = [rng.random() < 0.95 or row["done"] or row["t"] == 0 for row in ordered]  # some rows are missing
    ordered = [row for row, kept in zip(ordered, keep, strict=True) if kept]
    plain = [{name: value for name, value in row.items() if name != "limited"} for row in ordered]
    right = [
        {**row, "done": row["done"] and not each["limited"], "cut": bool(each["limited"])}
        for row, each in zip(plain, ordered, strict=True)
    ]
    return plain, right


def model(given: list[Row], size: int, roles: Roles) -> MDP:
    return learned([given], size, roles).model("m")


@pytest.mark.parametrize("finals", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("size", [7, 10_000])
def test_an_end_after_so_many_steps_is_a_cut(size: int, *, finals: bool, mixed: bool) -> None:
    plain, right = rows(np.random.default_rng(4), finals=finals, mixed=mixed)
    found = model(plain, size, replace(ROLES, time_limit=LIMIT))
    assert canonical_bytes(found) == canonical_bytes(model(right, size, ROLES))
    assert canonical_bytes(found) != canonical_bytes(model(plain, size, ROLES)), "without it they are ends"


def test_without_an_order_rows_are_counted() -> None:
    plain, right = rows(np.random.default_rng(1), finals=True, mixed=False)
    whole = [row for row in plain if sum(each["ep"] == row["ep"] for each in plain) == LIMIT + 1]
    marked = [row for row in right if sum(each["ep"] == row["ep"] for each in right) == LIMIT + 1]
    assert any(row["cut"] for row in marked)
    unordered = replace(ROLES, order=None)
    found = model(whole, 5, replace(unordered, time_limit=LIMIT))
    assert canonical_bytes(found) == canonical_bytes(model(marked, 5, unordered))


def test_it_is_one_of_the_roles_that_are_shown() -> None:
    names = ("ep", "t", "x", "a", "r", "done", "cut")
    assert guessed(names, {"state": "x"}, "log").time_limit == 0
    found = guessed(names, {"state": "x", "time_limit": 80}, "log")
    assert "time limit  80 steps: an end after so many cuts an episode off" in found.lines()
