"""Roles of columns that are proposed for logs as different systems write them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.column_facts import Head, head_of
from monitor.authoring.learning.column_roles import ROLES, SINGLE, Proposal, proposed
from monitor.authoring.learning.columns import expanded
from monitor.authoring.learning.row_files import open_rows
from monitor.cli.init_settings import column_lines, roles_of
from monitor.yamltext import parse_yaml
from tests.authoring.learning.real_looking_logs import EXPECTED, log_of
from tests.tiers import examples, scaled


def head(path: Path, rows: Sequence[dict[str, Any]]) -> Head:
    with path.open("w", newline="") as file:
        log = csv.DictWriter(file, rows[0])
        log.writeheader()
        log.writerows(rows)
    return head_of([open_rows(path)])


def roles(proposal: Proposal) -> dict[str, str]:
    return {each.name: (",".join(each.roles) or "-") + ("" if each.sure else "?") for each in proposal.columns}


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


def table(**columns: Any) -> Head:  # noqa: ANN401 - values of any kind
    values = {name: np.asarray(each) for name, each in columns.items()}
    return Head(values, np.zeros(len(next(iter(values.values()))), np.int64))


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


LONG = [20, 20, 20, 7, 20, 20, 12, 20] * 8
"""Lengths of episodes that a limit of 20 steps cuts, 48 of 64, or that fail before."""


def failing(lengths: Iterable[int], **columns: Any) -> Head:  # noqa: ANN401 - values of any kind
    """A log with `done` in the last row of each episode, and columns computed of its length and the rows left."""
    every = [(length, length - t) for length in lengths for t in range(length)]
    rng = np.random.default_rng(5)
    fixed = {"level": rng.normal(size=len(every)).round(3), "action": rng.integers(0, 2, len(every))}
    values = {name: [make(length, left) for length, left in every] for name, make in columns.items()}
    return table(**fixed, done=[int(left == 1) for _, left in every], **values)


def test_what_came_of_an_episode_is_no_state() -> None:
    found = proposed(
        failing(
            LONG,
            overflow=lambda length, left: int(left == 1 and length < 20),
            status=lambda length, left: "moving" if left > 1 else "lost" if length < 20 else "home",
            alarm=lambda _, left: int(left < 3),
            mode=lambda length, left: ["slow", "fast"][(length + left) % 2],
        ),
        {},
    )
    expected = {"overflow": "-", "status": "-", "alarm": "state", "mode": "state", "done": "terminated"}
    assert {name: role for name, role in roles(found).items() if name in expected} == expected
    why = {each.name: each.why for each in found.columns}
    assert "what came of them, as for what is unsafe: 'done and overflow'" in why["overflow"]
    assert "'done and status == 'home''" in why["status"]


def test_what_holds_in_last_rows_only_may_mark_ends_where_nothing_else_does() -> None:
    head = failing(LONG, overflow=lambda length, left: int(left == 1 and length < 20))
    run = np.repeat(np.arange(len(LONG)), LONG)
    rest = {name: values for name, values in head.columns.items() if name != "done"}
    found = proposed(Head({"run": run, **rest}, head.file), {})
    assert roles(found)["overflow"] == "terminated?"
    assert "true in some last rows of episodes, and nowhere else" in found.unsure[0].why


def test_a_final_state_is_no_outcome() -> None:
    head = failing([9] * 30, status=lambda _, left: "moving" if left > 1 else "home")
    final = np.where(np.asarray(head.columns["done"]) == 1, np.nan, head.columns["action"])
    found = proposed(Head({**head.columns, "action": final}, head.file), {})
    assert "in last rows of episodes only" not in next(each.why for each in found.columns if each.name == "status")


def test_ends_that_all_come_at_one_length_are_cuts() -> None:
    limited = failing([20] * 40)
    [done] = [each for each in proposed(limited, {}).columns if each.name == "done"]
    assert (done.roles, done.sure) == (("truncated",), True)
    assert "40 of 40 ends come after exactly 20 steps, the longest: taken for a time limit" in done.why
    assert roles(proposed(limited, {"done": ("terminated",)}))["done"] == "terminated"
    for settled, why in ({}, "named so"), ({"done": ("terminated",)}, "you said so"):
        found = proposed(failing(LONG), settled)  # type: ignore[arg-type]
        [mixed] = [each for each in found.columns if each.name == "done"]
        assert (mixed.roles, found.time_limit) == (("terminated",), 20)
        said = f"{why}; 48 of 64 ends come after exactly 20 steps, the longest: is that a TIME LIMIT?"
        assert mixed.why == f"{said} Then give time_limit: 20"
        by_state = proposed(failing(LONG), settled, by_state=True)  # type: ignore[arg-type]
        assert by_state.time_limit == 19, "the marker is about the state of its row, whose step is none"
        known = proposed(failing(LONG), settled, time_limit=20)  # type: ignore[arg-type]
        assert (known.time_limit, {each.why for each in known.columns if each.name == "done"}) == (0, {why})
    rng = np.random.default_rng(2)
    [free] = [
        each for each in proposed(failing((rng.geometric(0.1, 60) + 1).tolist()), {}).columns if each.name == "done"
    ]
    assert (free.roles, free.why) == (("terminated",), "named so")


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


def overlapping(stations: int = 3, days: int = 30, steps: int = 8) -> list[dict[str, Any]]:
    """Days of several stations, mixed by time. The last row of a day has the final state and no mode."""
    rng, rows = np.random.default_rng(5), []
    for day in range(days):
        lengths = rng.integers(steps // 2, steps + 1, stations)
        for step in range(steps):
            for station in np.flatnonzero(step < lengths):
                last = step == lengths[station] - 1
                row = {"time": f"2026-01-{day + 1:02d}T{step:02d}:00:00Z", "day": f"S{station}-{day:03d}"}
                mode = "" if last else ["low", "high"][rng.integers(2)]
                level = round(float(rng.normal(5, 1)), 2)
                rows.append(row | {"level": level, "mode": mode, "trip": int(last and rng.random() < 0.5)})
    return rows


def test_an_episode_and_an_action_of_unknown_names_are_known_by_their_rows(tmp_path: Path) -> None:
    found = roles(proposed(head(tmp_path / "log.csv", overlapping()), {}))
    assert found == {"time": "order", "day": "episode", "level": "state", "mode": "action", "trip": "terminated"}
    rows = [row | {"mode": row["mode"] or "low"} for row in overlapping()]
    found = roles(proposed(head(tmp_path / "full.csv", rows), {}))
    assert (found["day"], found["mode"]) == ("episode?", "state"), "nothing says where a day ends"
    rows = [row | {"day": ["Mon", "Tue", "Wed"][n % 3]} for n, row in enumerate(overlapping())]
    assert roles(proposed(head(tmp_path / "week.csv", rows), {}))["day"] == "-?", "a weekday is the calendar"


def test_stretches_that_overlap_much_are_no_episodes(tmp_path: Path) -> None:
    rows = overlapping(stations=40, days=3)
    assert roles(proposed(head(tmp_path / "log.csv", rows), {}))["day"] != "episode"


@pytest.mark.parametrize(("count", "expected"), [(4, "state"), (10, "terminated?"), (30, "terminated")])
def test_a_flag_of_last_rows_marks_ends_if_that_is_no_chance(tmp_path: Path, count: int, expected: str) -> None:
    rows: list[dict[str, Any]] = [
        {"episode": n, "x": i % 7, "action": i % 2, "blown": int(i == 4 + n % 9 and n < count)}
        for n in range(40)
        for i in range(5 + n % 9)
    ]
    first = head(tmp_path / "log.csv", rows)
    assert roles(proposed(first, {}))["blown"] == expected
    if count >= 5:
        assert roles(proposed(first, {}, unsafe=["blown"]))["blown"] == "terminated"


def test_a_flag_of_time_limits_cuts_off(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"episode": i // 10, "x": i % 7, "action": i % 2, "hit_limit": int(i % 10 == 9 and i % 20 > 9)}
        for i in range(900)
    ]
    assert roles(proposed(head(tmp_path / "log.csv", rows), {}))["hit_limit"] == "truncated"


def reasons(before: str, name: str = "end") -> list[dict[str, Any]]:
    words = ["collision", "done", "time"]
    return [
        {"episode": i // 10, "x": i % 7, "action": i % 2, name: words[i // 10 % 3] if i % 10 == 9 else before}
        for i in range(900)
    ]


@pytest.mark.parametrize("before", ["", "ok"])
def test_reasons_of_ends_become_end_markers(tmp_path: Path, before: str) -> None:
    found = proposed(head(tmp_path / "log.csv", reasons(before)), {})
    assert roles(found) == {
        "episode": "episode", "x": "state", "action": "action", "end": "-",
        "end in ['collision', 'done']": "terminated", "end in ['time']": "truncated",
    }  # fmt: skip
    other = head(tmp_path / "other.csv", reasons(before, "status"))
    assert "terminated" not in roles(proposed(other, {})).values(), "nothing says that it is about ends"
    assert "terminated" in roles(proposed(other, {}, unsafe=["status"])).values()
    closed = proposed(other, {}, ["terminated"], unsafe=["status"])
    assert "terminated" not in roles(closed).values(), "the user said that there is none"


def test_a_column_that_no_condition_can_name_gives_no_marker(tmp_path: Path) -> None:
    found = roles(proposed(head(tmp_path / "log.csv", reasons("", "end of run")), {}))
    assert found["end of run"] == "-"
    assert "terminated" not in found.values()


def test_a_place_where_episodes_end_is_no_reason(tmp_path: Path) -> None:
    rows = [row | {"end": row["end"] if row["end"] != "ok" else "abc"[row["x"] % 3]} for row in reasons("ok")]
    found = roles(proposed(head(tmp_path / "log.csv", rows), {}))
    assert not any(" in " in name for name in found)


def test_the_action_is_the_column_with_the_choices_of_the_policies() -> None:
    rng = np.random.default_rng(2)
    first = table(
        episode=np.repeat(np.arange(40), 10), slots=rng.choice([1, 2, 4, 8], 400), busy=rng.integers(0, 9, 400),
        heat=rng.choice(["a", "b"], 400),
    )  # fmt: skip
    assert roles(proposed(first, {}, chosen=[4, 8]))["slots"] == "action", "of two columns that have them"
    assert roles(proposed(first, {}, chosen=["b"]))["heat"] == "action"
    assert proposed(first, {}, chosen=[0, 1]).problems, "0 and 1 may be numbers of actions"
    assert proposed(first, {}, chosen=[3, 99]).problems
