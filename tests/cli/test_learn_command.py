"""`cfmon model learn`, from files to a model, and from there to checks and an alarm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.learning import files as reading
from monitor.learning.companion import companion_of
from monitor.model import load_model
from monitor.model.npz import model_sha256
from tests.learning.recorded import csv_of, random_rows

Run = Callable[..., tuple[int, str, str]]

ROLES = ("--state", "x", "--action", "a", "--episode", "ep", "--order", "t", "--reward", "r", "--terminated", "done")
LABELS = ("--label", "high: x >= 2", "--unsafe", "bad: done and r < 0")


def test_learning_more_is_learning_all_at_once(cfmon: Run, tmp_path: Path) -> None:
    paths = [str(csv_of(random_rows(np.random.default_rng(i), episodes=30), tmp_path / f"{i}.csv")) for i in range(3)]
    once, more = tmp_path / "once.npz", tmp_path / "more.npz"
    assert cfmon("model", "learn", *paths, "-o", str(once), *ROLES, *LABELS)[0] == 0
    assert cfmon("model", "learn", paths[0], "-o", str(more), *ROLES, *LABELS)[0] == 0
    code, out, _ = cfmon("model", "learn", *paths, "--append", str(more), "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["files counted"], facts["files skipped"]) == (2, 1)
    assert model_sha256(load_model(once)) == model_sha256(load_model(more)) == facts["sha256"]
    assert cfmon("model", "info", str(once), "--json")[0] == 0


def test_an_interrupted_run_goes_on(cfmon: Run, tmp_path: Path) -> None:
    good = [csv_of(random_rows(np.random.default_rng(i), episodes=20), tmp_path / f"{i}.csv") for i in range(2)]
    model, bad = tmp_path / "m.npz", tmp_path / "bad.csv"
    bad.write_text(good[1].read_text() + "9,0,abc,0,0,False,False,0\n")
    code, _, err = cfmon("model", "learn", str(good[0]), str(bad), "-o", str(model), *ROLES, *LABELS)
    assert code == 2
    assert "column 'x' holds 'abc'" in err
    assert not model.exists()
    assert companion_of(model).exists()
    code, _, err = cfmon("model", "learn", str(good[0]), "-o", str(model), *ROLES)
    assert (code, "already exists; add to it or continue it with --append" in err) == (2, True)
    assert cfmon("model", "learn", *map(str, good), "--append", str(model))[0] == 0
    once = tmp_path / "once.npz"
    assert cfmon("model", "learn", *map(str, good), "-o", str(once), *ROLES, *LABELS)[0] == 0
    assert model_sha256(load_model(once)) == model_sha256(load_model(model))


def test_what_was_guessed_is_shown(cfmon: Run, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("episode,t,x,action,reward,done\n1,0,a,go,0,0\n1,1,b,go,1,1\n2,0,a,stop,0,0\n2,2,b,go,0,0\n")
    code, out, err = cfmon("model", "learn", str(path), "-o", str(tmp_path / "m.npz"), "--label", "goal: done")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in ("state x", "episode episode", "order t", "terminated done", "truncated none"):
        assert line in lines
    assert "2 transitions in 2 episodes; 4 states, 2 actions; 2 of 4 pairs (state, action) seen" in out
    assert "goal holds in 1 state" in out
    assert "1 gap: a step is missing there" in out
    assert "state_encoder: name" in out


def test_bins_come_from_all_files_and_live_states_fit_them(cfmon: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "log"
    folder.mkdir()
    for i in range(2):
        values = rng.normal(i * 5, size=(400, 2))
        rows = [f"{n // 20},{n % 20},{x},{y},{n % 2}" for n, (x, y) in enumerate(values)]
        (folder / f"{i}.csv").write_text("\n".join(["episode,t,x,y,action", *rows]))
    model = tmp_path / "m.npz"
    code, out, _ = cfmon("model", "learn", str(folder), "-o", str(model), "--bins", "x:4q,y:0", "--observation", "x,y")
    assert code == 0
    assert "state_encoder: bins" in out
    mdp = load_model(model)
    assert mdp.states == 9
    assert mdp.observations is not None
    assert mdp.observations.shape == (9, 2)
    cuts = mdp.bin_edges[0]
    first, last = mdp.observations[0], mdp.observations[7]
    assert first[0] < cuts[1]
    assert first[1] < 0
    assert last[0] >= cuts[3]
    assert last[1] >= 0


def test_states_may_be_computed_by_a_function(cfmon: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "episode,x,action\n" + "\n".join(f"{i // 10},{i % 10 / 7},0" for i in range(100))
    )
    (tmp_path / "f.py").write_text(
        "def coarse(columns):\n    return (columns['x'] > 0.5).astype(int)\n"
        "def wrong(columns):\n    return [0.5] * len(columns['x'])\ndef short(columns):\n    return [1]\n"
        "def fails(columns):\n    return columns['z']\n"
    )
    model, log, function = tmp_path / "m.npz", str(tmp_path / "rows.csv"), f"{tmp_path / 'f.py'}:"
    assert cfmon("model", "learn", log, "-o", str(model), "--abstraction", function + "coarse")[0] == 0
    assert load_model(model).states == 3
    before = model_sha256(load_model(model))
    assert cfmon("model", "learn", log, "--append", str(model))[0] == 0
    assert model_sha256(load_model(model)) == before
    problems = {
        "wrong": "whole numbers or names",
        "short": "one state for each",
        "fails": "KeyError",
        "none": "has no 'none'",
    }
    for name, problem in problems.items():
        code, _, err = cfmon(
            "model", "learn", log, "-o", str(tmp_path / f"{name}.npz"), "--abstraction", function + name
        )
        assert (code, problem in err) == (2, True), err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["rows.csv"], "give --out MODEL.npz for a new model, or --append"),
        (["rows.csv", "-o", "m.npz", "--append", "m.npz"], "give --out MODEL.npz"),
        (["rows.csv", "-o", "m.bin"], "ends with .npz"),
        (["rows.csv", "--append", "m.npz"], "only a model that `cfmon model learn` wrote"),
        (["rows.csv", "--append", "m.npz", "--bins", "4q"], "--bins cannot be given with --append"),
        (["rows.csv", "--append", "m.npz", "--next-state", "x"], "--next-state cannot be given with --append"),
        (["nothing.csv", "-o", "m.npz"], "there is no such file"),
        (["empty", "-o", "m.npz"], "there is no file of .csv"),
        (["rows.csv", "-o", "m.npz", "--state", "zeta"], "no column 'zeta'; it has episode, x, action"),
        (["rows.csv", "-o", "m.npz"], "column 'x' of the state looks continuous"),
        (["rows.csv", "-o", "m.npz", "--abstraction", "kmeans"], "give index, name, values or FILE.py:FUNCTION"),
        (["rows.csv", "-o", "m.npz", "--abstraction", "index", "--bins", "4q"], "not both"),
        (["rows.csv", "-o", "m.npz", "--abstraction", "index", "--state", "x,episode"], "takes one column"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--label", "x > 3"], "write NAME: CONDITION"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--label", "a: z > 3"], "label 'a': there is no column 'z'"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--label", "a: done"], "label 'a': there is no column 'done'"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--label", "a: x>1", "--unsafe", "a: x>2"], "given twice"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--label", "a b: x > 3"], "a name has 1 to 64"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--label", "terminal: x > 3"], "the name is taken"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--label", "a: x == 'b'"], "cannot be evaluated"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", "--prior", "0"], "give a pseudo-count above 0"),
        (["rows.csv", "-o", "m.npz", "--bins", "4q", *[f"--label=a{i}: x > {i}" for i in range(13)]], "more than 12"),
        (["rows.csv", "other.csv", "-o", "m.npz", "--abstraction", "values"], "other.csv: there is no column 'x'"),
        (["rows.csv", "void.csv", "-o", "m.npz", "--abstraction", "values"], "void.csv: has no rows"),
        (["gaps.csv", "-o", "m.npz", "--bins", "4q"], "no row has finite numbers in x"),
    ],
)
def test_invalid_input_is_one_message(
    cfmon: Run, options: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    rng = np.random.default_rng(0)
    rows = "\n".join(f"{i // 10},{rng.normal()},{i % 2}" for i in range(100))
    Path("rows.csv").write_text(f"episode,x,action\n{rows}\n")
    Path("other.csv").write_text("episode,y,action\n0,1,2\n")
    Path("void.csv").write_text("episode,x,action\n")
    Path("gaps.csv").write_text("episode,x,action\n1,,1\n1,nan,1\n")
    code, _, err = cfmon("model", "learn", *options)
    assert code == 2
    assert problem in err
    assert err.count("\n") == 1


def test_a_damaged_companion_is_reported(cfmon: Run, tmp_path: Path) -> None:
    path, model = csv_of(random_rows(np.random.default_rng(0), episodes=20), tmp_path / "a.csv"), tmp_path / "m.npz"
    assert cfmon("model", "learn", str(path), "-o", str(model), *ROLES)[0] == 0
    content = companion_of(model).read_bytes()
    for damaged in (content[:100], b"", content[:-40], content.replace(b"about", b"abouT")):
        companion_of(model).write_bytes(damaged)
        code, _, err = cfmon("model", "learn", str(path), "--append", str(model))
        assert (code, "m.learn.npz: is damaged" in err) == (2, True), err


def test_what_is_unusual_is_noted(cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROWS", 2)
    path = tmp_path / "a.csv"
    path.write_text("episode,t,x,action,next_x,done,r\n0,0,1,0,2,0,0\n0,1,3,0,1,1,1\n1,0,1,0,1,1,-1\n")
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "m.npz"))[1]
    assert "in 1 row the next state is not the state of the row after" in out
    options = ("--next-state", "", "--label", "good: r > 0", "--label", "bad: r < 0")
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "n.npz"), *options)[1]
    assert "episodes end in different ways, but the state at the end is not recorded" in out
    path.write_text("episode,x,action,done\n0,1,0,0\n0,2,0,0\n0,1,0,0\n")
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "o.npz"), "--label", "odd: x == 3 or not done")[1]
    assert "odd holds in 2 states" in out
