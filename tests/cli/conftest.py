"""One small world for the command line's tests: a walk that either stays or slips, and where the bold go further."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli import main
from monitor.cli.input_files import data_file
from monitor.model import MDP, save_model


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, two policies and a path, which is also the current one."""
    model = MDP.from_transitions(
        states=3,
        actions=2,
        transitions=[(0, 0, 0, 0.9), (0, 0, 1, 0.1), (0, 1, 0, 0.5), (0, 1, 2, 0.5)]
        + [(s, a, s, 1.0) for s in (1, 2) for a in (0, 1)],
        labels={"unsafe": [1], "goal": [2]},
        initial={0: 1.0},
    )
    save_model(model, tmp_path / "model.npz")
    (tmp_path / "wait.json").write_text(json.dumps([0, 0, 0]))
    (tmp_path / "bold.json").write_text(json.dumps([1, 1, 1]))
    (tmp_path / "path.json").write_text(json.dumps([[0, 0], [0, 0], [1, 0]]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cfmon(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process; gives exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cfmon", *arguments])
        monkeypatch.setattr("monitor.cli.exit_immediately", lambda: None)  # this process is the tests'
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        assert isinstance(code, int)
        return code, out, err

    return call


@pytest.fixture(scope="session")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smaller scenario's configuration, as `patient_config` writes it."""
    return patient_config("config/frozen-lake.yaml", tmp_path_factory.mktemp("patient") / "frozen-lake.yaml")


def patient_config(shipped: str, target: Path) -> Path:
    """Write a configuration for a machine of any speed: every step is evaluated, however late."""
    text = data_file(shipped).read_text().replace("../policies", str(data_file("policies")))
    for limit in ("stale_after", "max_lag", "deadline"):
        text, count = re.subn(rf"\b{limit}: \w+", f"{limit}: 3000s", text)
        assert count == 1
    target.write_text(text)
    return target
