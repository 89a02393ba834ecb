"""`cfmon model learn` goes on in the middle of a file after it was killed, and its counts are those of one run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from monitor.authoring.learning import row_files as reading
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.companion import companion_of, part_of
from monitor.authoring.learning.learner import Learner
from monitor.cli import recorded_inputs
from monitor.model import load_model
from monitor.model.npz import model_sha256
from monitor.sidecar.events import Message
from monitor.sidecar.recording import Header, Recorder
from monitor.types import Instant
from tests.authoring.learning.recorded import csv_of, random_rows
from tests.tiers import examples, first, scaled, slow

Run = Callable[..., tuple[int, str, str]]

SIZE, EVERY = 50, 120
"""Rows of a batch, and rows after which counts are kept: at row 150, 300, ..."""

ROLES = ("--state", "x", "--action", "a", "--episode", "ep", "--order", "t", "--reward", "r", "--terminated", "done")
OPTIONS = (*ROLES, "--label", "high: x >= 2", "--unsafe", "bad: done and r < 0", "--observation", "x,r")

KILLED = f"""
import os, signal, sys
from monitor.cli import main, recorded_inputs
from monitor.authoring.learning import row_files
from monitor.authoring.learning.learner import Learner

row_files.ROWS, recorded_inputs.KEEP, recorded_inputs.KEEP_EACH = {SIZE}, {EVERY}, 0
left, read = int(sys.argv.pop(1)), Learner.read

def dying(learner, batch):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(learner, batch)

Learner.read = dying
main()
"""


CUT = 99
"""Exit code of a run that ended before its end."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "ROWS", SIZE)
    monkeypatch.setattr(recorded_inputs, "KEEP", EVERY)
    monkeypatch.setattr(recorded_inputs, "KEEP_EACH", 0)
    monkeypatch.chdir(tmp_path)


def cut_after(batches: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the run end after so many batches; return the list of the rows at which batches are read."""
    read = Learner.read
    at: list[int] = []

    def dying(learner: Learner, batch: RowBatch) -> object:
        if len(at) == batches:
            raise SystemExit(CUT)
        at.append(batch.first)
        return read(learner, batch)

    monkeypatch.setattr(Learner, "read", dying)
    return at


def written(kind: str, seed: int = 0) -> str:
    """Some 700 rows of interleaved episodes, with the kinds of columns that a text file shows late."""
    rows = random_rows(np.random.default_rng(seed), episodes=150)
    path = Path(f"{kind}-{seed}.{kind}")
    match kind:
        case "jsonl":
            for row in rows:
                row["a"] = None if np.isnan(row["a"]) else row["a"]
            path.write_text("\n".join(json.dumps(row) for row in rows))
        case "parquet" | "arrow":
            table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
            if kind == "parquet":
                parquet.write_table(table, path, row_group_size=170)
            else:
                feather.write_feather(table, str(path), chunksize=70)
        case _:
            path = csv_of(rows, path)
            lines = path.read_text().splitlines()
            path.write_text("\n".join([*lines[:100], "", "", *lines[100:]]))  # blank lines are no rows
    return str(path)


@scaled
@pytest.mark.parametrize("kind", first(1, ["csv", "jsonl", "parquet", "arrow"]))
def test_an_interrupted_run_goes_on_within_the_file(cfmon: Run, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path, other = written(kind), written(kind, 1)
    with monkeypatch.context() as patch:
        every = cut_after(10**6, patch)
        once = json.loads(cfmon("model", "learn", path, other, "-o", "once.npz", *OPTIONS, "--json")[1])
    for batches in (9, 4, 18)[: examples(1, 3)]:
        model = Path(f"cut-{batches}.npz")
        with monkeypatch.context() as patch:
            before = cut_after(batches, patch)
            assert cfmon("model", "learn", path, other, "-o", str(model), *OPTIONS)[0] == CUT
        assert part_of(model).exists()
        assert not model.exists()
        with monkeypatch.context() as patch:
            after = cut_after(10**6, patch)
            code, out, err = cfmon("model", "learn", path, other, "--append", str(model), "--json")
        assert (code, err) == (0, "")
        facts = json.loads(out)
        assert facts["rows read"] == once["rows read"]
        assert facts["sha256"] == once["sha256"] == model_sha256(load_model("once.npz"))
        assert not part_of(model).exists()
        assert after[0] > 1  # not from the beginning of the file
        again = len(before) + len(after) - len(every)
        assert 0 <= again <= EVERY // SIZE + 1  # batches counted twice


def test_a_killed_process_leaves_counts_that_go_on(cfmon: Run) -> None:
    path, other = written("csv"), written("csv", 1)
    program = [sys.executable, "-c", KILLED, "20", "model", "learn", path, other, "-o", "m.npz", *OPTIONS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(program, capture_output=True, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert companion_of(Path("m.npz")).exists()  # the first file
    assert part_of(Path("m.npz")).exists()
    assert "m.learn.npz already exists; add to it" in cfmon("model", "learn", path, "-o", "m.npz", *OPTIONS)[2]
    assert cfmon("model", "learn", path, other, "--append", "m.npz")[0] == 0
    assert cfmon("model", "learn", path, other, "-o", "once.npz", *OPTIONS)[0] == 0
    assert model_sha256(load_model("m.npz")) == model_sha256(load_model("once.npz"))


@pytest.fixture
def cut(cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two files, and a run m.npz that ended in the second one."""
    path, other = written("csv"), written("csv", 1)
    assert cfmon("model", "learn", path, "-o", "m.npz", *OPTIONS)[0] == 0
    with monkeypatch.context() as patch:
        cut_after(9, patch)
        assert cfmon("model", "learn", path, other, "--append", "m.npz")[0] == CUT
    assert part_of(Path("m.npz")).exists()
    return path, other


def test_a_run_that_ended_between_joined_files_goes_on_there(cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{ep},{0.1 * t:.1f},{(ep + t) % 3},{t % 2},{int(t == 19)}" for ep in range(12) for t in range(20)]
    for name, part in (("1.csv", lines[:107]), ("2.csv", lines[107:]), ("whole.csv", lines)):
        Path(name).write_text("\n".join(["ep,t,x,a,done", *part]))
    options = ("--unsafe", "bad: x >= 2", "--json")
    once = json.loads(cfmon("model", "learn", "whole.csv", "-o", "once.npz", *options)[1])
    with monkeypatch.context() as patch:
        cut_after(3, patch)
        assert cfmon("model", "learn", "1.csv", "2.csv", "-o", "cut.npz", *options)[0] == CUT
    code, out, err = cfmon("model", "learn", "1.csv", "2.csv", "--append", "cut.npz", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["sha256"] == once["sha256"]
    assert json.loads(out)["notes on rows"][0].startswith("1 file joined with the next")


def test_a_file_that_changed_is_counted_from_its_beginning(cfmon: Run, cut: tuple[str, str]) -> None:
    path, other = cut
    with Path(other).open("a") as file:
        file.write("\n9999,0,1,0.0,0.0,False,False,0\n")
    assert cfmon("model", "learn", path, other, "--append", "m.npz")[0] == 0
    assert cfmon("model", "learn", path, other, "-o", "once.npz", *OPTIONS)[0] == 0
    assert model_sha256(load_model("m.npz")) == model_sha256(load_model("once.npz"))
    assert not part_of(Path("m.npz")).exists()


@slow
def test_another_file_can_be_counted_instead(cfmon: Run, cut: tuple[str, str]) -> None:
    path, third = cut[0], written("csv", 2)
    assert cfmon("model", "learn", third, "--append", "m.npz")[0] == 0
    assert cfmon("model", "learn", path, third, "-o", "once.npz", *OPTIONS)[0] == 0
    assert model_sha256(load_model("m.npz")) == model_sha256(load_model("once.npz"))


def test_the_part_comes_first_and_is_not_used_twice(cfmon: Run, cut: tuple[str, str]) -> None:
    stale = part_of(Path("m.npz")).read_bytes()
    third = written("csv", 2)
    assert cfmon("model", "learn", third, cut[1], "--append", "m.npz")[0] == 0
    assert cfmon("model", "learn", cut[0], cut[1], third, "-o", "once.npz", *OPTIONS)[0] == 0
    assert model_sha256(load_model("m.npz")) == model_sha256(load_model("once.npz"))
    part_of(Path("m.npz")).write_bytes(stale)  # of counts that have gone on since
    assert cfmon("model", "learn", third, cut[1], "--append", "m.npz")[0] == 0
    assert model_sha256(load_model("m.npz")) == model_sha256(load_model("once.npz"))


def test_a_part_without_its_file_or_damaged_is_one_message(cfmon: Run, cut: tuple[str, str]) -> None:
    part = part_of(Path("m.npz"))
    companion = companion_of(Path("m.npz")).read_bytes()
    companion_of(Path("m.npz")).unlink()
    stale = part.read_bytes()
    assert "m.learn.part.npz already exists; add to it" in cfmon("model", "learn", cut[0], "-o", "m.npz", *OPTIONS)[2]
    for content, problem in (
        (stale, "holds a part of a file that is not among these, or has changed since"),
        (stale[:100], "m.learn.part.npz: is damaged"),
        (companion, "m.learn.part.npz: is damaged (it has no part of a file); remove it"),
    ):
        part.write_bytes(content)
        code, _, err = cfmon("model", "learn", cut[0], "--append", "m.npz")
        assert (code, problem in err) == (2, True), err


def test_a_row_that_cannot_be_read_leaves_no_part(cfmon: Run) -> None:
    path = Path(written("csv"))
    whole = path.read_text()
    path.write_text(whole + "\n9,0,abc,0,0,False,False,0\n")
    code, _, err = cfmon("model", "learn", str(path), "-o", "m.npz", *OPTIONS, "--skip-bad", "0")
    assert (code, "rows: 'x' is no number (" in err) == (2, True)
    assert not companion_of(Path("m.npz")).exists()
    path.write_text(whole)
    assert cfmon("model", "learn", str(path), "-o", "m.npz", *OPTIONS)[0] == 0


@slow
def test_recordings_of_the_monitor_and_computed_states_go_on_too(cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(Path("r.cfmon"), Header("client", "c" * 64, "m" * 64, "0"))
    rng = np.random.default_rng(0)
    for n in range(600):
        step = {"v": 1, "episode": n // 20, "seq": n % 20, "state": int(rng.integers(3)), "action": 0}
        recorder.write(Message(Instant(float(n), float(n)), "agents/ada/steps", json.dumps(step).encode()))
        if n % 7 == 0:  # delivered twice
            recorder.write(Message(Instant(float(n), float(n)), "agents/ada/steps", json.dumps(step).encode()))
    recorder.close()
    Path("f.py").write_text("def odd(columns):\n    return columns['state'] % 2\n")
    for name, options in (("plain", ()), ("computed", ("--abstraction", "f.py:odd"))):
        facts = json.loads(cfmon("model", "learn", "r.cfmon", "-o", f"{name}.npz", *options, "--json")[1])
        with monkeypatch.context() as patch:
            cut_after(8, patch)
            assert cfmon("model", "learn", "r.cfmon", "-o", f"{name}-cut.npz", *options)[0] == CUT
        more = json.loads(cfmon("model", "learn", "r.cfmon", "--append", f"{name}-cut.npz", "--json")[1])
        assert {key: more[key] for key in more if key != "model"} == {
            key: facts[key] for key in facts if key != "model"
        }
