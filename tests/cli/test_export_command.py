"""`cfmon policy export`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from monitor.authoring.policy_export import agreement
from monitor.model import load_model
from monitor.policy import onnx_policy
from monitor.policy.onnx_policy import load_policy
from tests.cli.stages import faults
from tests.tiers import slow

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
    honest = onnx_policy.table_from_onnx

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


class Loud:
    """Says on stderr when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (eval, (r"__import__('sys').stderr.write('the code in the pickle ran\n')",))


@pytest.mark.parametrize(
    "arguments",
    [
        ["policy", "export", "loud.pkl", "loud.onnx", "--model", "model.npz"],
        ["init", "mine", "--simulator", "gymnasium:FrozenLake-v1", "--unsafe", "hole", "--nominal", "loud.pkl"],
    ],
)
def test_that_a_pickle_runs_code_is_said_once_and_before(cfmon: Run, workdir: Path, arguments: list[str]) -> None:
    pytest.importorskip("gymnasium")
    (workdir / "loud.pkl").write_bytes(pickle.dumps(Loud()))
    code, _, problem = cfmon(*arguments)
    assert code == 2
    warned, ran, refused = faults(problem).splitlines()
    assert warned.startswith(
        "cfmon: warning: loud.pkl holds pickles: opening it runs the code inside, with your rights"
    )
    assert warned.endswith(
        "No code is run by ONNX (`cfmon policy init`), tables (.json, .csv, .npy) and statistics as .npz"
    )
    assert ran == "the code in the pickle ran"
    assert refused == "cfmon: policy loud.pkl: it holds int, which has no method predict"


@pytest.mark.usefixtures("workdir")
def test_what_runs_no_code_is_not_warned_of(cfmon: Run) -> None:
    assert cfmon("policy", "export", "bold.json", "bold.onnx", "--model", "model.npz")[2] == ""


LOG = "episode,step,room,heater,cold\n" + "".join(
    f"{episode},{step},{'warm' if (episode + step) % 3 else 'cool'},{(episode * step) % 2},{int(step == 7)}\n"
    for episode in range(30)
    for step in range(8)
)


@pytest.mark.usefixtures("workdir")
def test_a_function_of_columns_of_the_recordings(cfmon: Run) -> None:
    Path("log.csv").write_text(LOG, "utf-8")
    Path("rule.py").write_text("def act(room):\n    return int(room == 'cool')\n", "utf-8")
    columns = ["--episode", "episode", "--order", "step", "--state", "room", "--action", "heater"]
    assert cfmon("model", "learn", "log.csv", "-o", "house.npz", *columns, "--label", "cold: cold == 1")[0] == 0
    export = ["policy", "export", "rule.py:act", "rule.onnx", "--model", "house.npz", "--recordings", "log.csv"]
    for options in (["--stochastic"], ["--greedy"], ["--output", "logits"], ["--sees", "name"]):
        code, _, problem = cfmon(*export, *options)
        assert (code, "and --recordings do not go together" in problem) == (2, True), problem
    assert cfmon(*export)[0] == 0
    model = load_model("house.npz")
    table = load_policy("rule.yaml", model).table
    chosen = [table.distribution(model.state_index[name], model.actions).argmax() for name in ("warm", "cool")]
    assert chosen == [0, 1]


@slow
@pytest.mark.usefixtures("workdir")
def test_a_recurrent_agent(cfmon: Run, tmp_path: Path) -> None:
    gymnasium: Any = pytest.importorskip("gymnasium")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        contrib: Any = pytest.importorskip("sb3_contrib")

    class Rooms(gymnasium.Env):  # type: ignore[misc]
        observation_space, action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(2)

    network = {"net_arch": [4], "lstm_hidden_size": 4}
    agent = contrib.RecurrentPPO("MlpLstmPolicy", Rooms(), policy_kwargs=network, n_steps=8, batch_size=8, device="cpu")
    agent.save(tmp_path / "agent.zip")
    code, shown, told = cfmon("policy", "export", str(tmp_path / "agent.zip"), "agent.onnx", "--model", "model.npz")
    assert (code, "holds pickles" in told) == (0, True)
    assert "  equal to the original in 3" in shown
    assert "steps of 20 random episodes" in shown
    assert "8 numbers" in cfmon("policy", "info", "agent.yaml", "--model", "model.npz")[1]
    code, shown, told = cfmon(
        *("check", "--model", "model.npz", "--path", "path.json", "--policy", "nominal=agent.yaml"),
        *("--formula", 'P=? [ F<=4 "goal" ]', "--json"),
    )
    assert (code, told) == (0, "")
    assert json.loads(shown)["verdicts"][0]["method"] == "exact"
