"""`cfmon model learn --abstraction kmeans:K`, from recordings to a check, a report and an alarm."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.candidates import Field
from monitor.authoring.learning.companion import companion_of
from monitor.model import encode_state, load_model
from monitor.model.npz import model_sha256
from tests.cli.stages import faults
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]

UNSAFE = ("--unsafe", "overflow: level >= 9")


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Recorded steps of a tank whose operator sometimes leaves the valve shut: its level and temperature."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    with Path("tank.csv").open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["run", "step", "level", "heat", "action"])
        for run in range(80):
            level, heat = rng.uniform(3, 7), rng.normal(300, 20)
            for step in range(30):
                valve = 0 if rng.random() < 0.35 else int(level > 4) + int(level > 6)
                log.writerow([run, step, round(level, 3), round(heat, 1), valve])
                level = min(max(level + 1 - valve + rng.normal(), 0), 10)
    return "tank.csv"


def test_clusters_are_learned_reported_checked_and_learned_further(cfmon: Run, steps: str) -> None:
    columns = ("--state", "level,heat")
    command = ("model", "learn", steps, "-o", "m.npz", *columns, "--abstraction", "kmeans:24", *UNSAFE)
    code, out, err = cfmon(*command, "--report", "r.md", "--report", "r.html")
    assert (code, err) == (0, "")
    assert "in a configuration: state_encoder: nearest" in out
    model = load_model("m.npz")
    assert model.centres is not None
    assert model.centres.points.shape == (24, 2)
    assert 1 <= model.labels["overflow"][:24].sum() < 12
    for text in (Path("r.md").read_text(), Path("r.html").read_text()):
        assert "Distances from the centres" in text
        assert "An observation gets the nearest state however far away it is" in text
    rows = [line for line in Path("r.md").read_text().splitlines() if line.startswith(("| up to", "| more"))]
    assert sum(int(row.split("|")[2].replace(",", "")) for row in rows) == 2400
    assert "nearest" in json.loads(cfmon("model", "info", "m.npz", "--json")[1])["state encoders"]

    first = encode_state(model, "nearest", (5.0, 300))
    states = [first, int(model.row(first, 0)[0][0])]
    assert len(set(states)) == 2
    points = (model.centres.points[states] + 0.01 * model.centres.scales).tolist()
    Path("path.json").write_text(json.dumps([[points[0], 0], [points[1], 0]]))
    Path("still.json").write_text(json.dumps([0] * model.states))
    assert cfmon("policy", "export", "still.json", "still.onnx", "--model", "m.npz")[0] == 0
    question = ("--formula", 'P=? [ F<=5 "overflow" ]', "--json")
    check = ("check", "--model", "m.npz", "--path", "path.json", "--policy", "nominal=still.yaml", *question)
    by_numbers = cfmon(*check)
    Path("path.json").write_text(json.dumps([[states[0], 0], [states[1], 0]]))
    assert cfmon(*check)[1] == by_numbers[1]
    assert by_numbers[0] == 0, by_numbers
    Path("path.json").write_text("[[[5.0], 0]]")
    assert "it has 1 entry, and a state has 2: level, heat" in cfmon(*check)[2]

    before = companion_of(Path("m.npz")).read_bytes()
    assert cfmon("model", "learn", steps, "--append", "m.npz")[0] == 0
    assert model_sha256(load_model("m.npz")) == model_sha256(model)
    assert companion_of(Path("m.npz")).read_bytes() == before


def test_clusters_depend_on_the_seed_alone(cfmon: Run, steps: str) -> None:
    found = {}
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        command = ("model", "learn", steps, "-o", f"{name}.npz", "--abstraction", "kmeans:12", "--seed", seed)
        assert cfmon(*command)[0] == 0
        found[name] = model_sha256(load_model(f"{name}.npz"))
    assert found["a"] == found["b"] != found["c"]


def test_a_path_of_lists_is_binned_where_the_model_has_bins(cfmon: Run, steps: str) -> None:
    assert cfmon("model", "learn", steps, "-o", "m.npz", "--bins", "level:3|6,heat:300", *UNSAFE)[0] == 0
    Path("still.json").write_text(json.dumps([0] * load_model("m.npz").states))
    assert cfmon("policy", "export", "still.json", "still.onnx", "--model", "m.npz")[0] == 0
    shown = []
    for first in ("[5.0, 310.0]", "3"):
        Path("path.json").write_text(f"[[{first}, 0]]")
        command = ("check", "--model", "m.npz", "--path", "path.json", "--policy", "nominal=still.yaml")
        shown.append(cfmon(*command, "--formula", 'P=? [ F<=5 "overflow" ]', "--json"))
    assert shown[0] == shown[1]
    assert shown[0][0] == 0


@slow
def test_init_takes_clusters(cfmon: Run, steps: str) -> None:
    code, _, err = cfmon(
        "init", "tank", "--recordings", steps, *UNSAFE, "--abstraction", "kmeans:20", "--steps", "600", "--state",
        "level,heat", "--accept-model",
    )  # fmt: skip
    assert (code, faults(err)) == (0, "")
    assert "state_encoder: nearest" in Path("tank/config.yaml").read_text()
    code, out, _ = cfmon("replay", "tank/config.yaml", "tank/sample.rec")
    found = [json.loads(line) for line in out.splitlines()]
    states = [
        each["payload"]["state"] for each in found if each["topic"].startswith("cfmon/alerts/") and each["payload"]
    ]
    assert code == 0
    assert "firing" in states


def test_auto_compares_abstractions_and_takes_what_it_says(cfmon: Run, steps: str) -> None:
    auto = ("--abstraction", "auto", "--state", "level,heat", *UNSAFE)
    code, out, err = cfmon("model", "learn", steps, "-o", "a.npz", *auto, "--report", "r.md", "--report", "r.html")
    assert (code, faults(err)) == (0, "")
    table = [line.split() for line in out.splitlines() if line.startswith("  --")]
    assert {" ".join(row[:2]) for row in table} >= {"--bins 2q", "--bins 16q", "--abstraction kmeans:64"}
    line = next(line for line in out.splitlines() if "Taken: " in line)
    taken = line.partition("Taken: ")[2].partition(",")[0].split()
    assert cfmon("model", "learn", steps, "-o", "b.npz", *taken, "--state", "level,heat", *UNSAFE)[0] == 0
    assert model_sha256(load_model("a.npz")) == model_sha256(load_model("b.npz"))
    assert all("Abstractions compared" in Path(name).read_text() for name in ("r.md", "r.html"))
    assert f"| {' '.join(taken)} |" in Path("r.md").read_text()
    shown = json.loads(cfmon("model", "learn", steps, "-o", "c.npz", *auto, "--json")[1])
    assert [each["name"] for each in shown["abstractions compared"]] == [" ".join(row[:2]) for row in table]
    assert shown["sha256"] == model_sha256(load_model("a.npz"))


def test_auto_says_plainly_when_nothing_is_good_enough(cfmon: Run, steps: str) -> None:
    few = Path(steps).read_text().splitlines()[:600]
    Path("few.csv").write_text("\n".join(few))
    code, out, _ = cfmon("model", "learn", "few.csv", "-o", "a.npz", "--abstraction", "auto", *UNSAFE)
    assert code == 0
    assert "Taken: --" in out
    assert "NONE of these is good enough; more columns" in out


def test_auto_on_what_it_cannot_compare_is_one_message(cfmon: Run, steps: str) -> None:
    auto = ("-o", "a.npz", "--abstraction", "auto")
    assert "give --unsafe or --label" in cfmon("model", "learn", steps, *auto)[2]
    rows = "\n".join(f"{i // 20},{i % 20},{i * 7 % 20 / 3},{'ab'[i % 2]},0" for i in range(400))
    Path("mixed.csv").write_text(f"episode,t,x,k,action\n{rows}\n")
    mixed = ("-o", "mixed.npz", "--abstraction", "auto")
    code, out, _ = cfmon("model", "learn", "mixed.csv", *mixed, "--state", "x,k", "--label", "high: x > 5")
    assert (code, "--bins 12q " in out) == (0, True), "text is an axis of bins"
    code, _, err = cfmon("model", "learn", "mixed.csv", *auto, "--label", "high: x > 50")
    assert (code, "none of high sometimes happens and sometimes not" in err) == (2, True)
    Path("void.csv").write_text("episode,t,x,k,action\n")
    assert "void.csv: has no rows" in cfmon("model", "learn", "void.csv", *auto, "--label", "high: x > 5")[2]


@slow
def test_auto_reads_the_first_rows_of_each_file(cfmon: Run, steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other.csv").write_text(Path(steps).read_text() + "80,0,5.0,300.0,1\n")
    counted: dict[str, int] = {}
    read = Field.read

    def counting(field: Field, batch: RowBatch) -> None:
        counted[batch.source] = counted.get(batch.source, 0) + len(batch)
        read(field, batch)

    monkeypatch.setattr(Field, "read", counting)
    monkeypatch.setattr("monitor.authoring.learning.row_files.ROWS", 500)
    monkeypatch.setattr("monitor.cli.comparing.ROWS", 2400)
    assert cfmon("model", "learn", steps, "other.csv", "-o", "a.npz", "--abstraction", "auto", *UNSAFE)[0] == 0
    assert counted == {steps: 1200, "other.csv": 1200}


@slow
def test_init_compares_abstractions(cfmon: Run, steps: str) -> None:
    code, out, err = cfmon(
        "init", "tank", "--recordings", steps, *UNSAFE, "--abstraction", "auto", "--steps", "600",
        "--state", "level,heat", "--accept-model",
    )  # fmt: skip
    assert (code, faults(err)) == (0, "")
    assert out.count("Taken: --") == 2  # below the table, and in the notes
