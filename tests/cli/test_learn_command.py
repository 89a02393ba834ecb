"""`cfmon model learn`, from files to a model, and from there to checks and an alarm."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from monitor.authoring.learning import row_files as reading
from monitor.authoring.learning.companion import companion_of
from monitor.model import load_model
from monitor.model.npz import model_sha256
from monitor.sidecar.events import Heartbeat, Message
from monitor.sidecar.recording import Header, Recorder
from monitor.types import Instant
from tests.authoring.learning.recorded import csv_of, random_rows, same_but_for_numbers

Run = Callable[..., tuple[int, str, str]]

ROLES = ("--state", "x", "--action", "a", "--episode", "ep", "--order", "t", "--reward", "r", "--terminated", "done")
LABELS = ("--label", "high: x >= 2", "--unsafe", "bad: done and r < 0")


def test_learning_more_is_learning_all_at_once(cfmon: Run, tmp_path: Path) -> None:
    paths = [str(csv_of(random_rows(np.random.default_rng(i), episodes=30 if i else 5), tmp_path / f"{i}.csv"))
             for i in range(3)]  # fmt: skip
    paths = [str(csv_of(random_rows(np.random.default_rng(9), episodes=300), tmp_path / "all.csv")), *paths]
    once, more, new = tmp_path / "once.npz", tmp_path / "more.npz", tmp_path / "new.npz"
    assert cfmon("model", "learn", *paths, "-o", str(once), *ROLES, *LABELS)[0] == 0
    assert cfmon("model", "learn", paths[0], "-o", str(more), *ROLES, *LABELS)[0] == 0
    code, out, _ = cfmon("model", "learn", *paths, "--append", str(more), "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["files counted"], facts["files skipped"]) == (3, 1)
    assert model_sha256(load_model(once)) == model_sha256(load_model(more)) == facts["sha256"]
    assert cfmon("model", "info", str(once), "--json")[0] == 0
    assert cfmon("model", "learn", paths[1], "-o", str(new), *ROLES, *LABELS)[0] == 0
    before = load_model(new).states
    assert cfmon("model", "learn", *paths, "--append", str(new))[0] == 0
    assert load_model(new).states > before  # ends of episodes that the first file does not have
    same_up_to = tmp_path / "same.npz"
    assert cfmon("model", "learn", paths[1], paths[0], *paths[2:], "-o", str(same_up_to), *ROLES, *LABELS)[0] == 0
    same_but_for_numbers(load_model(new), load_model(same_up_to))


def test_an_interrupted_run_goes_on(cfmon: Run, tmp_path: Path) -> None:
    good = [csv_of(random_rows(np.random.default_rng(i), episodes=20), tmp_path / f"{i}.csv") for i in range(2)]
    model, bad = tmp_path / "m.npz", tmp_path / "bad.csv"
    bad.write_text(good[1].read_text().replace("x", "y", 1))
    code, _, err = cfmon("model", "learn", str(good[0]), str(bad), "-o", str(model), *ROLES, *LABELS)
    assert code == 2
    assert "bad.csv: there is no column 'x'" in err
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
    assert "1 gap in t: a step is missing there" in out
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
    numbers = np.vstack([np.loadtxt(folder / f"{i}.csv", delimiter=",", skiprows=1) for i in range(2)])[:, 2:4]
    assert mdp.ranges is not None
    np.testing.assert_array_equal(mdp.ranges, np.stack([numbers.min(axis=0), numbers.max(axis=0)], axis=1))
    (folder / "2.csv").write_text("episode,t,x,y,action\n40,0,-300,0,1\n40,1,300,0,1")
    assert cfmon("model", "learn", str(folder), "--append", str(model))[0] == 0
    wider = load_model(model).ranges
    assert wider is not None
    assert wider[0].tolist() == [-300.0, 300.0]
    assert wider[1].tolist() == mdp.ranges[1].tolist()
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
        (
            ["rows.csv", "-o", "m.npz", "--abstraction", "kmeans"],
            "give auto, index, name, values, kmeans:K or FILE.py:FUNCTION",
        ),
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
        (["gaps.csv", "-o", "m.npz", "--bins", "4q"], "no row has a finite number or a text in each of x"),
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
    path.write_text("episode,x,action,done,y\n0,1,0,0,0\n0,2,0,0,1\n0,1,0,0,1\n0,1,0,0,0\n0,1,0,0,0\n")
    more = ("--state", "x", "--label", "odd: y == 1", "--unsafe", "void: x > 9")
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "p.npz"), *more)[1]
    assert "odd: 50% of the visits where its condition holds are in states that do not have the label" in out
    assert "void: its condition holds in no row, so on this model it never happens" in out
    cut = tmp_path / "cut.csv"
    rows = "".join(f"{n},{t},{t % 2},0,{int(t == 9)}\n" for n in range(9) for t in range(10))
    cut.write_text("ep,t,x,a,truncated\n" + rows)
    code, out, _ = cfmon("model", "learn", str(cut), "-o", str(tmp_path / "cut.npz"), "--unsafe", "late: truncated")
    assert code == 0
    assert "late: its condition holds in no row; an episode that is cut off goes on unrecorded" in out
    assert "name a column of what ends an episode with --terminated" in out
    assert "the abstraction is NOT good enough" in out
    report = ("--report", str(tmp_path / "q.md"))
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "q.npz"), *more, *report)[1]
    assert out.count("odd: 50% of the visits") == 1
    assert "odd: 50% of the visits" in (tmp_path / "q.md").read_text()
    assert "NOT good enough" in out
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "o.npz"), "--label", "odd: not done")[1]
    assert "odd holds in 3 states" in out


def test_episodes_of_one_row_are_counted_and_stop_nothing(cfmon: Run, tmp_path: Path) -> None:
    path, model = tmp_path / "one.csv", tmp_path / "o.npz"
    path.write_text(
        "run,step,x,action,done\n0,0,0.2,0,0\n0,1,0.7,0,0\n1,0,0.2,0,0\n1,1,0.9,,1\n2,0,1.5,,1\n3,0,0.1,0,0\n"
    )
    options = ("--timing", "state", "--bins", "x:0.5|1", "--observation", "x")
    code, out, err = cfmon("model", "learn", str(path), "-o", str(model), *options)
    assert code == 0, err
    assert "2 transitions in 4 episodes" in out
    assert "2 episodes without a transition from the first row, such as those of one row" in out
    initial = load_model(model).initial
    assert initial is not None
    assert initial[:3].tolist() == [1, 0, 0]
    path.write_text("run,step,x,speed,action\n0,0,0.2,1,0\n0,1,0.7,,0\n0,2,0.7,1,0\n")
    options = ("--state", "x", "--bins", "x:0.5|1", "--observation", "speed")
    code, _, err = cfmon("model", "learn", str(path), "-o", str(tmp_path / "p.npz"), *options)
    assert code == 2
    assert "left out: 1 of 3 rows: 'speed' is empty or not finite (2)" in err


def test_decimals_dates_and_what_is_left_out(cfmon: Run, tmp_path: Path) -> None:
    runs = [Decimal(n // 3) for n in range(12)]
    columns = {
        "run": pa.array(runs, pa.decimal128(38)),
        "floor": pa.array([Decimal(n % 3) for n in range(12)], pa.decimal128(10)),
        "action": pa.array([0] * 12),
        "day": pa.array([date(2026, 5, 4)] * 12),
        "eye": pa.array([[[1]]] * 12),
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    options = (str(tmp_path / "a.parquet"), "-o", str(tmp_path / "m.npz"))
    code, out, err = cfmon("model", "learn", *options, "--state", "floor")
    assert code == 0, err
    assert "  left out    eye: lists of lists or structs, such as pictures\n" in out
    assert "8 transitions in 4 episodes" in out
    model = load_model(tmp_path / "m.npz")
    assert model.row(2, 0)[0].tolist() == [3], "no run leads from 2 to 0"
    options = (options[0], "-o", str(tmp_path / "n.npz"))
    code, _, err = cfmon("model", "learn", *options, "--state", "eye")
    assert (code, "column 'eye' cannot be read: it holds lists of lists" in err) == (2, True)
    target = str(tmp_path / "to.rec")
    assert cfmon("recording", "convert", options[0], "--to", target, "--state", "floor")[0] == 0
    del columns["run"]
    columns["episode"] = pa.array([[("a", 1)]] * 12, pa.map_(pa.string(), pa.int8()))
    parquet.write_table(pa.table(columns), options[0])
    for command in (("model", "learn", *options), ("recording", "convert", options[0], "--to", f"{target}2")):
        code, _, err = cfmon(*command, "--state", "floor")
        assert code == 2
        assert "column 'episode' cannot be read: it holds map<string, int8" in err
        assert "; give another one by --episode NAME, or '' for none" in err


def test_late_episodes_are_reported(cfmon: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [(episode, t) for episode in range(4) for t in range(2 if episode else 5, 9)]
    path.write_text("run,step,x,action\n" + "\n".join(f"{e},{t},{t % 3},0" for e, t in [(9, 0), (9, 1), *rows]))
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "m.npz"))[1]
    assert "4 episodes of 5 began later than at step 1, so step is taken to run on over episodes, and they" in out
    more = [(episode, t) for episode in range(20, 30) for t in range(3)]
    path.write_text("run,step,x,action\n" + "\n".join(f"{e},{t},{t % 3},0" for e, t in [*rows, *more]))
    out = cfmon("model", "learn", str(path), "-o", str(tmp_path / "n.npz"))[1]
    assert "4 episodes of 14 began later than at step 1: the beginning is missing, so they do not count as st" in out


def walked(path: Path, episodes: int, *, hidden: bool) -> Path:
    """A walk on three states; `hidden`: it alternates, which the state does not say."""
    rng = np.random.default_rng(0)
    lines = ["episode,t,x,action,done"]
    for episode in range(episodes):
        x = before = 0
        for t in range(40):
            lines.append(f"{episode},{t},{x},{t % 2},{int(t == 39)}")
            x, before = (2 - before if hidden and x == 1 else int(rng.integers(3)) if x == 1 else 1), x
    path.write_text("\n".join(lines))
    return path


def test_the_report_says_first_whether_the_abstraction_is_good_enough(cfmon: Run, tmp_path: Path) -> None:
    for hidden, verdict in ((False, "Good enough. Forecasts of"), (True, "NOT good enough. Forecasts of")):
        path, out = walked(tmp_path / f"{hidden}.csv", 200, hidden=hidden), tmp_path / str(hidden)
        reports = [f"--report={out}.md", f"--report={out}.html"]
        code, shown, _ = cfmon(
            "model", "learn", str(path), "-o", f"{out}.npz", "--unsafe", "low: x == 0 and not done", *reports
        )
        assert code == 0
        text, page = Path(f"{out}.md").read_text(), Path(f"{out}.html").read_text()
        assert verdict in text.splitlines()[2]
        assert verdict in page
        assert page.count("<svg") >= 2
        assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
        for heading in ("Forecasts of the event", "Coverage", "What the past still tells", "Rows to visit"):
            assert f"## {heading}" in text
            assert f"<h2>{heading}</h2>" in page
        assert ("the states are not Markov" in shown) is hidden


def test_a_report_needs_a_name_and_new_steps(cfmon: Run, tmp_path: Path) -> None:
    path, model = walked(tmp_path / "a.csv", 20, hidden=False), str(tmp_path / "m.npz")
    command = ("model", "learn", str(path))
    assert "ends with .html or .md" in cfmon(*command, "-o", model, "--report", "r.pdf")[2]
    assert "cannot be written" in cfmon(*command, "-o", model, "--report", str(tmp_path / "no" / "r.md"))[2]
    assert "were counted before" in cfmon(*command, "--append", model, "--report", str(tmp_path / "r.md"))[2]
    other = str(walked(tmp_path / "b.csv", 30, hidden=True))
    code, out, _ = cfmon("model", "learn", other, "--append", model, "--report", str(tmp_path / "r.md"), "--json")
    assert code == 0
    assert json.loads(out)["problems"]


def recorded(path: Path, messages: list[tuple[str, dict[str, object]]]) -> Path:
    """A recording of the sidecar that received these messages."""
    recorder = Recorder(path, Header("client", "c" * 64, "m" * 64, "0"))
    for n, (topic, message) in enumerate(messages):
        recorder.write(Heartbeat(Instant(float(n), float(n))))
        recorder.write(Message(Instant(float(n), float(n)), topic, json.dumps({"v": 1, **message}).encode()))
    recorder.close()
    return path


def step(seq: int, state: object, action: int | None = 0, **more: object) -> dict[str, object]:
    return {"episode": 1, "seq": seq, "state": state, "action": action, **more}


def test_recordings_of_the_monitor_are_read(cfmon: Run, tmp_path: Path) -> None:
    ada, bob = "agents/ada/steps", "agents/bob/steps"
    messages: list[tuple[str, dict[str, object]]] = [
        (ada, step(0, 0, reward=0.0)),
        (bob, step(0, 2, reward=0.0)),  # another agent's episode of the same name
        (ada, step(1, 1, reward=1.5)),
        (ada, step(1, 1, reward=1.5)),  # delivered twice
        (bob, step(2, 1, reward=0.0)),  # a gap
        ("elsewhere", step(2, 0)),  # another topic
        (ada, {"episode": 1}),  # no step
        (ada, step(2, 2, None, reward=-1.0, terminated=True)),
    ]
    path = recorded(tmp_path / "steps.cfmon", messages)
    model = tmp_path / "m.npz"
    code, out, err = cfmon("model", "learn", str(path), "-o", str(model), "--unsafe", "fall: terminated and reward < 0")
    assert (code, err) == (0, "")
    assert "2 transitions in 2 episodes" in out
    assert "1 gap" in out
    assert "3 messages left out" in out
    (tmp_path / "own.py").write_text("def cell(columns):\n    return columns['state']\n")
    for wrapped in (["--abstraction", f"{tmp_path / 'own.py'}:cell"], ["--missing", "reward: -999"]):
        told = cfmon("model", "learn", str(path), "-o", str(tmp_path / f"{wrapped[0]}.npz"), *wrapped)[1]
        assert "3 messages left out" in told, "also where columns are computed, or values taken for missing"
    mdp = load_model(model)
    assert mdp.row(0, 0)[0].tolist() == [1]
    assert mdp.row(1, 0)[0].tolist() == [3]
    assert mdp.reward(0, 0, 1) == 1.5
    assert mdp.labels["fall"].tolist() == [False, False, False, True, True]
    assert mdp.ended_as is not None
    assert mdp.ended_as[2] == 3


def test_recordings_may_hold_lists_and_no_rewards(cfmon: Run, tmp_path: Path) -> None:
    topic = "plant/pump/steps"
    messages = [(topic, step(n, [n % 2, "on"])) for n in range(4)]
    path, model = str(recorded(tmp_path / "steps.cfmon", messages)), tmp_path / "m.npz"
    code, _, err = cfmon("model", "learn", path, "-o", str(model))
    assert (code, "steps.cfmon: is empty; no step on agents/+/steps, see --topic" in err) == (2, True)
    assert cfmon("model", "learn", path, "-o", str(model), "--topic", "plant/+/steps")[0] == 0
    assert load_model(model).valuations[:2] == ((0.0, "on"), (1.0, "on"))


def test_a_damaged_recording_is_refused(cfmon: Run, tmp_path: Path) -> None:
    path = recorded(tmp_path / "steps.cfmon", [("agents/ada/steps", step(n, n % 2)) for n in range(4)])
    path.write_bytes(path.read_bytes()[:-5])
    code, _, err = cfmon("model", "learn", str(path), "-o", str(tmp_path / "m.npz"))
    assert (code, "cut off in the middle of event" in err) == (2, True)


def test_abstractions_are_compared_only_between_episodes_or_the_parts_between_gaps(cfmon: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = np.cumsum(rng.choice([-1.0, 1.0], 1200)).clip(-9, 9)
    for name, gap in (("whole", 0), ("parts", 100)):
        rows = [f"{n + gap * (n // 60)},{x[n]:g},{n % 2}" for n in range(len(x))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["t,x,a", *rows]), "utf-8")
    asked = ("--unsafe", "bad: x > 5", "--state", "x", "--action", "a", "--order", "t", "--abstraction", "auto")
    code, _, err = cfmon("model", "learn", str(tmp_path / "whole.csv"), *asked, "-o", str(tmp_path / "whole.npz"))
    assert code == 2
    assert "too few episodes to compare abstractions" in err
    assert "(--episode), or choose the states yourself (--bins)" in err
    code, out, err = cfmon("model", "learn", str(tmp_path / "parts.csv"), *asked, "-o", str(tmp_path / "parts.npz"))
    assert code == 0, err
    assert "of forecasts on held-out episodes" in out


def test_a_world_with_numbers_has_at_most_twelve_labels_and_flags(cfmon: Run, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("t,x,a,f\n0,1.5,0,0\n1,2.5,1,1\n2,0.5,0,0\n", "utf-8")
    labels = [part for n in range(12) for part in ("--label", f"l{n}: x > {n} or f == 1")]
    asked = ("--dynamics", "--state", "x", "--action", "a", "--order", "t", *labels)
    code, _, err = cfmon("model", "learn", str(tmp_path / "log.csv"), *asked, "-o", str(tmp_path / "world.yaml"))
    assert code == 2
    assert "labels and flags in labels are more than 12" in err
