"""Columns that cut rows into steps and episodes are found by their names and their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.column_facts import Head
from monitor.authoring.learning.column_roles import proposed
from tests.authoring.learning.column_tables import head, roles, table

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


def tripping(text: str, say: Callable[[str], str]) -> list[dict[str, Any]]:
    """Runs of 6 to 10 steps that end by a trip, by cold, or in time. The last row is the final state."""
    rows: list[dict[str, Any]] = []
    for n in range(60):
        steps = 6 + n % 5
        for i in range(steps):
            end = ("trip", "cold", "time")[n % 3] if i == steps - 1 else ""
            action = "" if end else i % 2
            row = {"run": n, "step": i, "x": (i * n) % 7, "trip": int(end == "trip"), text: say(end), "action": action}
            rows.append(row)
    return rows


@pytest.mark.parametrize("text", ["end_reason", "outcome", "how"])
def test_a_text_of_reasons_marks_the_ends_before_a_flag_that_marks_some(tmp_path: Path, text: str) -> None:
    """The flag comes first, and the condition names it."""
    found = proposed(head(tmp_path / "log.csv", tripping(text, str)), {}, unsafe=["trip"])
    marked = {role: name for name, role in roles(found).items() if role in ("terminated", "truncated")}
    assert marked == {"terminated": f"{text} in ['cold', 'trip']", "truncated": f"{text} in ['time']"}
    assert (roles(found)["trip"], roles(found)[text]) == ("-", "-")
    (trip,) = [each for each in found.columns if each.name == "trip"]
    assert trip.why == f"true in some last rows of episodes, and nowhere else; {text} says how each episode ended"


@pytest.mark.parametrize("said", [["trip"], ["cold", "time"]])
def test_a_text_that_does_not_mark_more_leaves_the_marker_to_the_flag(tmp_path: Path, said: list[str]) -> None:
    rows = tripping("outcome", lambda end: end if end in said else "")
    found = proposed(head(tmp_path / "log.csv", rows), {}, unsafe=["trip"])
    assert roles(found)["trip"] == "terminated"


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
