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
from tests.tiers import heavy

LIMIT = 6
ROLES = Roles(("x",), "a", "ep", "t", "r", "done", "cut")
Row = dict[str, Any]


def rows(rng: np.random.Generator, *, finals: bool, mixed: bool, missing: float = 0.05) -> tuple[list[Row], list[Row]]:
    """Interleaved episodes that end by themselves or after `LIMIT` steps, all marked by `done`; and marked rightly.

    `finals`: the last row is the final state, without an action. `mixed`: rows of episodes in turns.
    `missing`: fraction of the rows in the middle of episodes that are not there.
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
    keep = [rng.random() >= missing or row["done"] or row["t"] == 0 for row in ordered]
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


def unreadable(given: list[Row], bad: set[int]) -> list[Row]:
    return [{**row, "x": float("nan") if i in bad else row["x"]} for i, row in enumerate(given)]


@heavy
@pytest.mark.parametrize("timing", ["step", "final", "state"])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("size", [3, 7, 10_000])
def test_rows_that_cannot_be_read_are_steps_too(timing: str, size: int, *, ordered: bool, mixed: bool) -> None:
    """`final`: the last row is the final state. `state`: so it is, and its marker is about the state."""
    rng = np.random.default_rng(7)
    plain, right = rows(rng, finals=timing != "step", mixed=mixed, missing=0.0)
    if timing == "state":
        plain, right = (
            [{**row, "a": 1.0 if row["done"] or row["cut"] else row["a"]} for row in g] for g in (plain, right)
        )
    bad = {i for i, row in enumerate(plain) if rng.random() < 0.3 and row["t"] and not row["done"]}
    followed = [i for i in bad if i + 1 in bad and plain[i]["ep"] == plain[i + 1]["ep"]]
    assert mixed or followed, "some follow each other"
    roles = replace(ROLES, order="t" if ordered else None, timing="state" if timing == "state" else "step")
    found = model(unreadable(plain, bad), size, replace(roles, time_limit=LIMIT))
    assert canonical_bytes(found) == canonical_bytes(model(unreadable(right, bad), size, roles))
    assert canonical_bytes(found) != canonical_bytes(model(unreadable(plain, bad), size, roles))


def test_it_is_one_of_the_roles_that_are_shown() -> None:
    names = ("ep", "t", "x", "a", "r", "done", "cut")
    assert guessed(names, {"state": "x"}, "log").time_limit == 0
    found = guessed(names, {"state": "x", "time_limit": 80}, "log")
    assert "time limit  80 steps: an end after so many cuts an episode off" in found.lines()
