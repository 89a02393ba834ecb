"""Conditions in place of end markers: they read as a column with the same flags."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.learning.conditions import marker_condition
from monitor.cli.init_settings import read_settings

Run = Callable[..., tuple[int, str, str]]


def log(name: str, *, flags: bool) -> None:
    """A walk that ends in a crash, at its goal or by time; the reason as a text, or as two flags."""
    rng, rows = np.random.default_rng(8), []
    for episode in range(60):
        x = 3
        for step in range(20):
            action = int(rng.integers(2))
            after = x + (1 if action else -1) + int(rng.integers(-1, 2))
            end = "crash" if after <= 0 else "goal" if after >= 8 else "time" if step == 19 else ""
            marks = [int(end in ("crash", "goal")), int(end == "time")] if flags else [end]
            rows.append([episode, step, x, action, *marks])
            x = after
            if end:
                break
    names = ["episode", "step", "x", "action", *(["done", "cut"] if flags else ["end"])]
    Path(name).write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_reads_as_a_column_with_the_same_flags(cfmon: Run) -> None:
    log("text.csv", flags=False)
    log("flags.csv", flags=True)
    facts = []
    for name, ended, cut in (
        ("text", "end in ['crash', 'goal']", "end == 'time'"),
        ("flags", "done", "cut"),
    ):
        code, out, err = cfmon(
            "model", "learn", f"{name}.csv", "-o", f"{name}.npz", "--state", "x", "--json",
            "--terminated", ended, "--truncated", cut,
        )  # fmt: skip
        assert code == 0, err
        facts.append(json.loads(out))
    assert facts[0]["transitions counted"] == facts[1]["transitions counted"] > 0
    assert facts[0]["sha256"] == facts[1]["sha256"]
    code, out, err = cfmon("model", "learn", "text.csv", "--append", "text.npz")
    assert code == 0, err


def test_init_reads_the_reasons_and_what_is_unsafe_is_about_the_last_step(cfmon: Run) -> None:
    log("text.csv", flags=False)
    init = ("init", "walk", "--recordings", "text.csv", "--unsafe", "crash: end == 'crash'", "--steps", "200")
    code, out, err = cfmon(*init, "--accept-model")
    assert code == 0, err
    assert "crash: done and (end == 'crash') holds in" in out
    kept = read_settings(Path("walk/init.yaml"))
    assert kept.unsafe == "crash: done and (end == 'crash')"
    assert kept.columns["end in ['crash', 'goal']"] == "terminated"
    assert kept.columns["end in ['time']"] == "truncated"
    code, _, err = cfmon("init", "walk2", "--from", "walk/init.yaml", "--accept-model")
    assert code == 0, err
    assert Path("walk/model.npz").read_bytes() == Path("walk2/model.npz").read_bytes()


def test_other_texts_are_no_conditions(cfmon: Run) -> None:
    assert marker_condition(["end"], "3 < 4") is None, "it uses no column"
    assert marker_condition(["end"], "stop == 'x'") is None
    assert marker_condition(["end == 1"], "end == 1") is None, "a column has this name"
    log("text.csv", flags=False)
    for wrong in ("stop == 'x'", "end = 'x'"):
        code, _, err = cfmon("model", "learn", "text.csv", "-o", "m.npz", "--state", "x", "--terminated", wrong)
        assert (code, f"there is no column {wrong!r}" in err or f'there is no column "{wrong}"' in err) == (2, True), (
            err
        )


def test_a_marker_and_a_state_function_go_together(cfmon: Run) -> None:
    log("text.csv", flags=False)
    Path("near.py").write_text(
        "def near(columns):\n"
        "    assert list(columns) == ['episode', 'step', 'x', 'action', 'end']\n"
        "    return [f'x{x}' for x in columns['x']]\n"
    )
    init = ("init", "walk", "--recordings", "text.csv", "--unsafe", "crash: end == 'crash'", "--steps", "200")
    code, _, err = cfmon(*init, "--accept-model", "--abstraction", "near.py:near")
    assert code == 0, err
    assert read_settings(Path("walk/init.yaml")).columns["end in ['crash', 'goal']"] == "terminated"


def test_a_state_function_may_not_know_a_state(cfmon: Run) -> None:
    log("text.csv", flags=False)
    rows = Path("text.csv").read_text().splitlines()
    unknown = [n for n, row in enumerate(rows) if row.split(",")[2] == "5"]
    Path("far.py").write_text("def far(columns):\n    return ['' if x == 5 else f'x{x}' for x in columns['x']]\n")
    code, out, err = cfmon(
        "model", "learn", "text.csv", "-o", "m.npz", "--abstraction", "far.py:far",
        "--skip-bad", "50%", "--action", "action",
    )  # fmt: skip
    assert code == 0, err
    assert f"left out: {len(unknown)} of {len(rows) - 1} rows: 'far()' is empty or not finite" in out
