"""What helps at the beginning: a manifest for a network, labels for a model, code made ahead, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from monitor.cli.input_files import data_file
from monitor.model import load_model
from monitor.policy.export import table_onnx
from monitor.policy.onnx_policy import load_policy

Run = Callable[..., tuple[int, str, str]]
ICU = data_file("policies/icu-sepsis")


def network(
    folder: Path,
    name: str,
    scores: list[list[float]],
    kind: Literal["index", "one_hot"] = "index",
    output: str = "logits",
) -> Path:
    file = folder / name
    file.write_bytes(table_onnx(np.array(scores, dtype=float), kind, output))
    return file


def test_a_manifest_is_written_and_checked(cfmon: Run, workdir: Path) -> None:
    network(workdir, "bold.onnx", [[0, 1], [0, 1], [0, 1]])
    code, out, _ = cfmon("policy", "init", "bold.onnx", "--model", "model.npz")
    assert (code, "bold.yaml: index in, logits out" in out) == (0, True)
    assert "assumed: output 'logits' holds logits" in out
    policy = load_policy(workdir / "bold.yaml", load_model(workdir / "model.npz"))
    assert [list(policy.table.choices(state)) for state in range(3)] == [[(1, 1.0)]] * 3
    assert cfmon("policy", "info", "bold.yaml", "--model", "model.npz")[0] == 0
    before = (workdir / "bold.yaml").read_bytes()
    code, _, err = cfmon("policy", "init", "bold.onnx", "--model", "model.npz")
    assert (code, "already exists" in err) == (2, True)
    assert (workdir / "bold.yaml").read_bytes() == before


def test_what_its_names_say_is_taken_up_and_what_is_said_counts_more(cfmon: Run, workdir: Path) -> None:
    chances = [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]
    network(workdir, "drawn.onnx", chances, "one_hot", "probs")
    code, out, _ = cfmon("policy", "init", "drawn.onnx", "--model", "model.npz", "--stochastic")
    assert (code, "one_hot in, probabilities out" in out) == (0, True)
    policy = load_policy(workdir / "drawn.yaml", load_model(workdir / "model.npz"))
    assert list(policy.table.choices(0)) == [(0, 0.25), (1, 0.75)]
    network(workdir, "scores.onnx", chances, output="probs")
    code, out, _ = cfmon("policy", "init", "scores.onnx", "--model", "model.npz", "--output", "q_values")
    assert (code, "q_values out" in out, "holds q_values" in out) == (0, True, False)


def test_a_policy_that_rules_out_actions_is_noticed(cfmon: Run, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes((ICU / "deployed.onnx").read_bytes())
    code, out, _ = cfmon("policy", "init", str(tmp_path / "net.onnx"), "--model", str(ICU / "model.npz"))
    assert (code, "observation in, logits out" in out, "mask: true" in out) == (0, True, True)
    model = load_model(ICU / "model.npz")
    made, shipped = load_policy(tmp_path / "net.yaml", model), load_policy(ICU / "deployed.yaml", model)
    assert all(list(made.table.choices(s)) == list(shipped.table.choices(s)) for s in range(model.states))


def test_a_network_that_does_not_fit_gets_no_manifest(cfmon: Run, workdir: Path) -> None:
    network(workdir, "wide.onnx", [[0, 1]] * 7, "one_hot")
    code, _, err = cfmon("policy", "init", "wide.onnx", "--model", "model.npz")
    assert (code, "takes 7 numbers, but the model has 3 states and no features" in err) == (2, True)
    (workdir / "none.onnx").write_bytes(b"no network")
    assert cfmon("policy", "init", "none.onnx", "--model", "model.npz")[0] == 2
    assert not list(workdir.glob("*.yaml"))


def test_a_network_in_the_place_of_its_manifest_is_reported_as_that(cfmon: Run, workdir: Path) -> None:
    network(workdir, "bold.onnx", [[0, 1]] * 3)
    question = ("--model", "model.npz", "--path", "path.json", "--formula", 'P>=0.5 [ F<=2 "goal" ]')
    code, _, err = cfmon("check", *question, "--policy", "nominal=bold.onnx")
    assert (code, "give its manifest" in err, "cfmon policy init bold.onnx" in err) == (2, True, True)


@pytest.mark.usefixtures("workdir")
def test_converting_can_add_labels(cfmon: Run) -> None:
    labels = ("--label", "fell: state == 1", "--label", "over: state in [1, 2]")
    code, out, _ = cfmon("model", "convert", "model.npz", "labelled.npz", *labels)
    assert (code, "fell holds in 1 states" in out) == (0, True)
    facts = json.loads(cfmon("model", "info", "labelled.npz", "--json")[1])
    assert facts["labels"] == {"fell": 1, "goal": 1, "over": 2, "unsafe": 1}
    code, _, err = cfmon("model", "convert", "model.npz", "none.npz", "--label", "fell = 1")
    assert (code, "write NAME: CONDITION" in err, Path("none.npz").exists()) == (2, True, False)


def test_a_shell_completes_commands() -> None:
    asked = {"_CFMON_COMPLETE": "complete_bash", "COMP_WORDS": "cfmon evi", "COMP_CWORD": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "monitor"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert found.stdout.split() == ["evidence"], found.stderr
