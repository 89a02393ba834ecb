"""Forms of models: chosen by scheme or suffix; a new one is a reader and a line of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.errors import ModelError
from monitor.model import MDP, formats, load_model, save_model
from monitor.model.formats import FORMATS, Format, file_name, has_scheme, supported_forms


def read_triples(files: Mapping[str, bytes], source: str) -> MDP:
    """Lines `state successor probability`, and beside it lines `state label`."""
    rows = [line.split() for line in files[".triples"].decode().splitlines()]
    labels: dict[str, list[int]] = {}
    for line in files.get(".marks", b"").decode().splitlines():
        state, label = line.split()
        labels.setdefault(label, []).append(int(state))
    transitions = [(int(s), 0, int(t), float(p)) for s, t, p in rows]
    states = 1 + max(s for s, *_ in transitions)
    return MDP.from_transitions(states=states, actions=1, transitions=transitions, labels=labels, source=source)


def read_ring(source: str) -> MDP:
    states = int(source.removeprefix("ring:"))
    rows = [(s, 0, (s + 1) % states, 1.0) for s in range(states)]
    return MDP.from_transitions(states=states, actions=1, transitions=rows, source=source)


TOYS = (
    Format("a .triples file", f"{__name__}:read_triples", suffix=".triples", beside=(".marks", ".absent")),
    Format("ring:STATES", f"{__name__}:read_ring", scheme="ring:"),
)


@pytest.fixture
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, *TOYS))


@pytest.mark.usefixtures("_toys")
def test_a_new_form_of_file_is_read_with_what_is_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "toy.triples"
    file.write_text("0 1 1.0\n1 0 0.5\n1 1 0.5\n")
    assert load_model(file).labels == {}
    (tmp_path / "toy.marks").write_text("1 goal\n")
    model = load_model(str(file))
    assert (model.states, model.labels["goal"].tolist(), model.source) == (2, [False, True], str(file))
    assert file_name(model.source) == "toy.triples"
    with pytest.raises(ModelError, match=r"none\.triples: cannot be read .*; give a \.npz file, .*gymnasium:ID"):
        load_model(tmp_path / "none.triples")


@pytest.mark.usefixtures("_toys")
def test_a_new_scheme_is_read(tmp_path: Path) -> None:
    assert load_model("ring:5").states == 5
    assert has_scheme("ring:5")
    assert file_name("ring:5/6") == "ring:5/6"
    with pytest.raises(ModelError, match=r"ring:5: cannot be read .* \.triples file or ring:STATES"):
        load_model(tmp_path / "ring:5")


@pytest.mark.usefixtures("_toys")
def test_messages_and_help_list_every_form() -> None:
    assert supported_forms().startswith("a .npz file, a .umb file (UMB), a .tra file (PRISM), ")
    assert supported_forms().endswith(", gymnasium:ID?argument=value, a .triples file or ring:STATES")


@pytest.mark.parametrize("command", [["model", "info"], ["model", "convert"], ["check"]])
def test_the_command_line_names_the_forms(command: list[str]) -> None:
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*command, "--help"]).stdout
    assert supported_forms() in " ".join(shown.split())


def test_a_file_of_another_name_is_read_as_npz(tmp_path: Path) -> None:
    model = read_ring("ring:3")
    save_model(model, tmp_path / "ring")
    assert load_model(tmp_path / "ring").states == 3
