"""Learning from a log of (state, action, done) that does not hold the state in which an episode ended."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.model import load_model

Run = Callable[..., tuple[int, str, str]]


def tank(path: Path, kind: str) -> Path:
    """150 runs of a tank whose outlet is shut: level + 1 or + 2 a step, and the run ends at 9, which is not logged."""
    rng, rows = np.random.default_rng(3), []
    for run in range(150):
        level = int(rng.integers(3, 7))
        for step in range(30):
            action = int(rng.random() < 0.5)
            after = max(level + int(rng.integers(1, 3)) - 3 * action, 0)
            rows.append({"run": run, "step": step, "level": level, "action": action, "done": after >= 9})
            if after >= 9:
                break
            level = after
    match kind:
        case "csv":
            lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
            path.write_text("\n".join(lines) + "\n")
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case _:
            pa = pytest.importorskip("pyarrow")
            importlib.import_module("pyarrow.parquet").write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_an_end_that_may_be_unsafe_never_counts_as_safe(
    cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    log = str(tank(tmp_path / f"tank.{kind}", kind))
    report = ("--report", "tank.md")
    code, out, err = cfmon("model", "learn", log, "-o", "level.npz", "--unsafe", "overflow: level >= 9", *report)
    assert (code, err) == (0, "")
    assert "overflow: UNKNOWN at " in out
    assert "the abstraction is NOT good enough" in out
    assert cfmon("model", "learn", log, "-o", "done.npz", "--unsafe", "overflow: done", *report)[0] == 0
    unknown, known = load_model("level.npz"), load_model("done.npz")
    shut = np.zeros(known.states, np.int64)
    values = []
    for model in (unknown, known):
        (tmp_path / "shut.json").write_text(json.dumps(shut[: model.states].tolist()))
        (tmp_path / "path.json").write_text("[[5, 0]]")
        about = ("--policy", "nominal=shut.json", "--path", "path.json")
        formula = ("--formula", 'P=? [ F<=20 "overflow" ]')
        model_file = "level.npz" if model is unknown else "done.npz"
        code, out, err = cfmon("check", "--model", model_file, *about, *formula, "--json")
        assert (code, err) == (0, "")
        values.append(json.loads(out)["verdicts"][0]["value"])
    assert values == pytest.approx([1.0, 1.0], abs=1e-9)  # with the outlet shut every run overflows


def test_init_on_a_log_that_holds_no_final_state(cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = str(tank(tmp_path / "tank.csv", "csv"))
    given = ("--recordings", log, "--bins", "level:1|2|3|4|5|6|7|8", "--steps", "200")
    code, out, err = cfmon("init", "tank", *given, "--unsafe", "overflow: done", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["chosen"]["unsafe events"] > 0
    assert not any("UNKNOWN" in note for note in found["notes"])
    code, out, err = cfmon("replay", "tank/config.yaml", "tank/sample.rec")
    assert (code, err) == (0, "")
    sent = [json.loads(line) for line in out.splitlines()]
    assert any(each["topic"].startswith("cfmon/alerts/") for each in sent)
    assert not any("impossible_step" in json.dumps(each) for each in sent)
    code, out, err = cfmon("init", "other", *given, "--unsafe", "overflow: level >= 9", "--json")
    assert (code, err) == (0, "")
    assert any("overflow: UNKNOWN at " in note for note in json.loads(out)["notes"])
