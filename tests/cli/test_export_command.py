"""`cfmon policy export`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from monitor.model import load_model
from monitor.policy import session
from monitor.policy.session import load_policy
from monitor.policy_export import agreement

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.usefixtures("workdir")
def test_a_table_becomes_a_policy(cfmon: Run) -> None:
    code, shown, _ = cfmon("policy", "export", "bold.json", "bold.onnx", "--model", "model.npz")
    assert code == 0
    policy = load_policy("bold.yaml", load_model("model.npz"))
    assert policy.table.actions is not None
    assert policy.table.actions.tolist() == [1, 1, 1]
    assert policy.manifest.provenance is not None
    assert policy.manifest.provenance.endswith("policy export bold.json; equal to the original in 3 states")
    assert shown.splitlines()[:3] == [
        f"bold.onnx: index in, q_values out, sha256 {policy.sha256}",
        "bold.yaml: its manifest",
        "  equal to the original in 3 states",
    ]
    assert cfmon("policy", "info", "bold.yaml", "--model", "model.npz")[0] == 0


@pytest.mark.usefixtures("workdir")
def test_the_same_as_one_document(cfmon: Run) -> None:
    code, shown, _ = cfmon("policy", "export", "bold.json", "bold.onnx", "--model", "model.npz", "--json")
    facts = json.loads(shown)
    assert code == 0
    assert (facts["agrees"], facts["states"], facts["left out"]) == (True, 3, 0)
    assert facts["files"] == ["bold.onnx", "bold.yaml"]


@pytest.mark.usefixtures("workdir")
def test_nothing_is_overwritten_unless_forced(cfmon: Run) -> None:
    arguments = ["policy", "export", "bold.json", "bold.onnx", "--model", "model.npz"]
    assert cfmon(*arguments)[0] == 0
    code, _, problem = cfmon(*arguments)
    assert (code, problem) == (2, "cfmon: bold.onnx already exists; remove it first, or give --force\n")
    assert cfmon(*arguments, "--force")[0] == 0
    code, _, problem = cfmon("policy", "export", "bold.json", "bold.bin", "--model", "model.npz")
    assert (code, problem) == (2, "cfmon: bold.bin: the name of the file to write must end in .onnx\n")
    code, _, problem = cfmon("policy", "export", "bold.json", "none/bold.onnx", "--model", "model.npz")
    assert code == 2
    assert "cannot write none/bold.onnx" in problem


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_disagreement_writes_nothing(
    cfmon: Run, workdir: Path, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    honest = session.table_from_onnx

    def other(*arguments: object) -> object:
        table = honest(*arguments)  # type: ignore[arg-type]
        assert table.actions is not None
        return type(table)(actions=np.array([1, 0, 0]))

    monkeypatch.setattr(agreement, "table_from_onnx", other)
    code, shown, _ = cfmon("policy", "export", "bold.json", "bold.onnx", "--model", "model.npz", *form)
    assert code == 1
    assert not (workdir / "bold.onnx").exists()
    assert not (workdir / "bold.yaml").exists()
    if form:
        facts = json.loads(shown)
        assert (facts["agrees"], [state for state, _ in facts["differences"]]) == (False, [1, 2])
    else:
        assert "differs from the original in 2 of 3 states" in shown
        assert "  state 1: the original takes 1, the export 0" in shown
        assert shown.endswith("nothing was written\n")
