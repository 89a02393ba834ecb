"""Learning from a log of (state, action, done) that does not hold the state in which an episode ended."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.evidence.document import read_evidence
from monitor.model import load_model
from monitor.policy.onnx_policy import load_policy
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.events import Evaluate, Message
from monitor.types import Instant
from tests.sidecar.alarms import Alarm

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
    values, extremes = [], []
    for model in (unknown, known):
        (tmp_path / "shut.json").write_text(json.dumps(shut[: model.states].tolist()))
        (tmp_path / "path.json").write_text("[[5, 0]]")
        about = ("--policy", "nominal=shut.json", "--path", "path.json")
        formula = ("--formula", 'P=? [ F<=20 "overflow" ]')
        model_file = "level.npz" if model is unknown else "done.npz"
        code, out, err = cfmon("check", "--model", model_file, *about, *formula, "--json")
        assert (code, err) == (0, "")
        [verdict] = json.loads(out)["verdicts"]
        values.append(verdict["value"])
        extremes.append(verdict["quantities"][0].get("extremes"))
    assert values == pytest.approx([1.0, 1.0], abs=1e-9)  # with the outlet shut every run overflows
    assert extremes[0] == pytest.approx([0.0, 1.0], abs=1e-9)  # of which nothing was recorded
    assert extremes[1] in (None, pytest.approx([1.0, 1.0], abs=1e-9))


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
    assert (code, err.count("\n"), "rejected" in err) == (0, 1, False)
    sent = [json.loads(line) for line in out.splitlines()]
    assert any(each["topic"].startswith("cfmon/alerts/") for each in sent)
    assert not any("impossible_step" in json.dumps(each) for each in sent)
    code, out, err = cfmon("init", "other", *given, "--unsafe", "overflow: level >= 9", "--json")
    assert (code, err) == (0, "")
    assert "overflow: UNKNOWN at " in out


POLICIES = """
def nominal(observation):
    return int(observation[0] > 7.5)


def careful(observation):
    return int(observation[0] > 4.5)
"""
WATCHED = """\
mqtt: {url: "mqtt://127.0.0.1:1"}
model: fine.npz
state_encoder: bins
policies: {nominal: nominal.yaml, careful: careful.yaml}
path: {window: 8}
formulas:
  - name: watch
    formula: 'regret(careful@2, P>=0.999 [ G<=4 !"overflow" ])'
    causal_model: any
    alarm: {for: 1}
store: {path: var/cfmon.sqlite}
"""


def test_evidence_of_a_policy_that_sees_finer_observations_is_verified(
    cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = str(tank(tmp_path / "tank.csv", "csv"))
    bins = ("--bins", "level:3|6", "--observation", "level")
    assert cfmon("model", "learn", log, "-o", "fine.npz", *bins, "--unsafe", "overflow: done")[0] == 0
    (tmp_path / "policies.py").write_text(POLICIES)
    for name in ("nominal", "careful"):
        export = ("policy", "export", f"policies.py:{name}", f"{name}.onnx", "--model", "fine.npz")
        assert cfmon(*export)[0] == 0
    config = tmp_path / "config.yaml"
    config.write_text(WATCHED)
    loaded = assemble(config, {})
    table = load_policy("nominal.yaml", load_model("fine.npz")).table
    assert table.probabilities is not None
    assert 0.0 < table.probabilities[2][1] < 1.0  # 6 and more: some above 7.5
    pipeline = loaded.pipeline("test")
    found: list[EvidenceFile] = []
    for seq, (level, action) in enumerate([(5, 0), (6, 0), (7, 0), (8, 0)]):
        now = Instant(1001.0 + seq, 1.0 + seq)
        step = {"v": 1, "episode": "one", "seq": seq, "state": [level], "action": action, "time": now.wall}
        for event in (Message(now, "agents/ada/steps", json.dumps(step).encode()), Evaluate(now)):
            found += pipeline.step(event).evidence
    [file] = found
    document = read_evidence(file.content)
    assert [action for _, action in document.path] == [0] * len(document.path)  # the actions that were taken
    evidence = Alarm(file.id, file.content, loaded.objects()).keep(tmp_path / "var")
    code, out, err = cfmon("verify", str(evidence))
    assert (code, err) == (0, ""), out
