"""Roles of columns that are proposed for logs as different systems write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.column_facts import Head, head_of
from monitor.authoring.learning.column_roles import proposed
from monitor.authoring.learning.columns import ROLES, SINGLE, expanded
from monitor.authoring.learning.row_files import open_rows
from monitor.cli.init_settings import column_lines, roles_of
from monitor.yamltext import parse_yaml
from tests.authoring.learning.column_tables import head, roles, table
from tests.authoring.learning.real_looking_logs import EXPECTED, log_of
from tests.tiers import examples, scaled


@pytest.mark.parametrize("make", EXPECTED, ids=lambda make: make.__name__)
def test_the_roles_are_those_that_a_careful_person_gives(make: Callable[[Any], Iterator[Any]], tmp_path: Path) -> None:
    log = log_of(make)
    found = proposed(head(tmp_path / "log.csv", log.rows), {})
    assert roles(found) == log.roles
    assert all(each.why for each in found.columns)
    assert all(each.others for each in found.unsure)


def test_files_may_lack_columns_and_one_odd_value_hides_its_column_alone(tmp_path: Path) -> None:
    rows = [{"episode": i // 10, "x": i % 3, "mode": i % 4, "action": i % 2} for i in range(60)]
    first = head(tmp_path / "a.csv", rows)
    assert (len(first), first.whole) == (60, True)
    part: list[dict[str, Any]] = [{"episode": 9, "x": i % 3, "action": i % 2} for i in range(30)]
    head(tmp_path / "b.csv", part)
    both = head_of([open_rows(tmp_path / "a.csv"), open_rows(tmp_path / "b.csv")])
    assert both.file.tolist() == [0] * 60 + [1] * 30
    assert np.isnan(both.columns["mode"][60:]).all()
    assert roles(proposed(both, {}))["mode"] == "-?", "it is missing in a third of the rows"
    assert head_of([open_rows(tmp_path / "a.csv")] * 30).whole is False, "not all files were looked at"


RNG = np.random.default_rng(3)
LEVEL = RNG.normal(size=200).round(3)
ACTION = RNG.integers(0, 2, 200)
RUN = np.arange(200) // 20


@pytest.mark.parametrize(
    ("columns", "expected", "words"),
    [
        ({"new_level": np.roll(LEVEL, -1)}, "next_state", "level after the step"),
        ({"prev_level": np.roll(LEVEL, 1)}, "state", "a quantity"),
        ({"speed": ACTION * 2.5}, "-?", "a function of action"),
        ({"action_name": np.array(["off", "on"])[ACTION]}, "-", "about the action action"),
        ({"when": [f"2026-03-{1 + i // 100:02d}" for i in range(200)]}, "-", "does not order the rows"),
        ({"clock": np.arange(200) * 3.5 + RNG.random(200)}, "order", "rises"),
        ({"uid": RNG.permutation(200)}, "-", "identifies the row"),
        ({"remark": [f"look {i % 9}" if i % 4 else "" for i in range(200)]}, "-", "free text"),
        ({"ahead": np.roll(LEVEL, -1)}, "-?", "equals level of the next row"),
        (
            {"mode": np.array(["auto", "hand", "test"])[RNG.integers(0, 3, 200)]},
            "state",
            "a category that changes within episodes",
        ),
        (
            {"mode": np.array(["auto", "hand", "test"])[RNG.integers(0, 3, 200)], "rain": RNG.random(200)},
            "-?",
            "a world with inputs needs numbers",
        ),
        ({"result": np.array(["ok", "slip"])[RNG.integers(0, 2, 200)]}, "-?", "known only after the action"),
        ({"total": np.repeat(RNG.random(10), 20)}, "-", "what came of the whole episode"),
        ({"gain": np.repeat(RNG.random(10), 20)}, "-?", "the same within each episode"),
        ({"meter": np.cumsum(RNG.random(200))}, "-?", "a clock or a meter"),
        ({"crash": np.arange(200) % 40 == 39}, "terminated", "in some last rows"),
        ({"is_last": np.arange(200) % 20 == 19}, "terminated?", "in all last rows"),
        ({"season": RNG.integers(0, 4, 200)}, "input?", "the calendar"),
        ({"cost": RNG.random(200)}, "reward?", "what a step earns or costs"),
        ({"terminals": RNG.random(200)}, "-", "named as the terminated"),
    ],
)
def test_each_rule_has_its_reason(columns: dict[str, Any], expected: str, words: str) -> None:
    found = proposed(table(**({"run": RUN, "level": LEVEL, "action": ACTION} | columns)), {})
    name = next(iter(columns))
    assert roles(found)[name] == expected
    assert words in next(each.why for each in found.columns if each.name == name)


def test_a_function_of_the_state_is_said_only_of_columns_that_it_reads() -> None:
    head = table(run=RUN, level=LEVEL, action=ACTION, season=RNG.integers(0, 4, 200), flow=RNG.random(200))
    why = {each.name: each.why for each in proposed(head, {}, computed={"flow", "season"}).columns}
    assert why["flow"] == why["season"] == "states are computed from it"
    assert why["level"] == "not used by the function of the state"
    assert "function" not in why["action"]
    assert {*roles(proposed(head, {}, computed=())).values()} == {"episode", "action", "-"}, "it reads no column"


def test_a_closed_role_and_a_settled_column_are_not_guessed() -> None:
    rows = table(run=RUN, step=np.arange(200) % 20, level=LEVEL, season=RNG.integers(0, 4, 200), action=ACTION)
    found = proposed(rows, {"season": ("state",)}, {"order", "input"})
    assert roles(found) == {"run": "episode", "step": "-", "level": "state", "season": "state", "action": "action"}
    assert found.having("state") == ("season", "level"), "what the user settled comes first"
    assert found.guessed
    every = {each.name: each.roles for each in found.columns}
    assert not proposed(rows, every).guessed


NAMES = [
    "episode", "step", "t", "ts", "date", "hour", "patient_id", "service", "obs[0]", "obs[1]", "next_obs[0]", "action",
    "action[0]", "cmd", "reward", "return", "done", "is_last", "x", "next_x", "seq", "price", "uuid", "note",
    "prev_x", "null", "inputs.rain", "outcome", "cost", "index",
]  # fmt: skip
ODD = ["", "weird: name", "a\nb"]


def any_column(rng: np.random.Generator, rows: int) -> Any:  # noqa: ANN401 - values of any kind
    every = np.arange(rows)
    kinds: list[Any] = [
        rng.integers(0, 3, rows), rng.normal(size=rows), every, every // int(rng.integers(1, 7)), every % 5,
        np.full(rows, np.nan), np.where(rng.random(rows) < 0.5, np.nan, 1.5), rng.random(rows) < 0.3,
        np.array(["", "a b c d", "x"])[rng.integers(0, 3, rows)],
        np.array([f"2026-01-{1 + i % 28:02d}" for i in every]), np.array([f"k{i}" for i in every]), np.full(rows, 7),
    ]  # fmt: skip
    return kinds[rng.integers(len(kinds))]


@scaled
def test_any_table_gets_roles_that_a_file_repeats() -> None:
    rng = np.random.default_rng(8)
    for _ in range(examples(60, 600)):
        rows = int(rng.choice([1, 2, 30, 120]))
        names = rng.choice([*NAMES, *ODD], int(rng.integers(1, 12)), replace=False).tolist()
        closed = set(rng.choice(ROLES, 2).tolist())
        unreadable = {"odd": "lists of lists"} if rng.random() < 0.2 else {}
        values = {name: any_column(rng, rows) for name in names}
        looked_at = Head(values, np.sort(rng.integers(0, 3, rows)), unreadable)
        settled: dict[str, Any] = {n: (str(rng.choice(ROLES)),) for n in (*names, *unreadable) if rng.random() < 0.1}
        found = proposed(looked_at, settled, closed)
        assert sorted(found.ordered) == sorted([*names, *unreadable])
        for each in found.columns:
            assert each.settled or not closed & set(each.roles)
            assert each.sure or each.others
        for role in SINGLE:
            assert len(found.having(role)) <= 1 or any(role in theirs for theirs in settled.values())
        content = parse_yaml(f"columns:\n{''.join(column_lines(found))}".encode(), "init.yaml").content["columns"]
        kept = {name: roles_of(text) for key, text in content.items() for name in expanded(found.ordered, key)}
        again = proposed(looked_at, kept)
        assert not again.unsure
        assert all(again.having(role) == found.having(role) for role in ("state", "next_state", "input"))
        assert {n: set(r) for n, r in kept.items()} == {each.name: set(each.roles) for each in found.columns}
