"""Commands on worlds with numbers: what they show, and what they refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import monitor
from monitor.authoring.policy_export.original import Original
from monitor.cli.input_files import data_file
from monitor.policy.export import table_onnx
from monitor.worlds import load_world
from monitor.worlds.world_policies import as_world_policy
from tests.worlds.graphs import linear

Run = Callable[..., tuple[int, str, str]]
Steps = list[tuple[list[float], int, list[float]]]
HEATING = data_file("policies/heating")
WORLD = str(HEATING / "world.yaml")
SCORES = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 0.5], [0.0, 0.5, -9.0]])  # of three actions, by room, store, price


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_model_info_shows_what_a_world_declares(cfmon: Run) -> None:
    code, out, _ = cfmon("model", "info", WORLD, "--json")
    facts = json.loads(out)
    world = load_world(WORLD)
    assert code == 0
    assert list(facts["features"]) == [each.name for each in world.features] == ["room", "store", "price"]
    assert facts["features"]["room"].endswith(" °C")
    assert facts["actions"] == list(world.action_names)
    assert facts["features that they drive"] == [world.features[n].name for n in world.noise_features or ()]
    assert (facts["rewards"], facts["labels"]) == (False, list(world.labels))
    assert len(cfmon("model", "info", WORLD)[1].splitlines()) == len(facts)


def test_the_manifest_of_a_network_over_a_world(cfmon: Run, folder: Path) -> None:
    shutil.copy(HEATING / "careful.onnx", folder)
    code, out, _ = cfmon("policy", "init", "careful.onnx", "--model", WORLD, "--output", "q_values")
    assert code == 0
    assert "assumed: its input is room, store, price, in this order" in out
    world, states = load_world(WORLD), np.random.default_rng(1).uniform(0, 50, (20, 3))
    made, shipped = (as_world_policy("careful", place / "careful.yaml", world) for place in (folder, HEATING))
    assert np.array_equal(made.decide(states), shipped.decide(states))
    code, out, _ = cfmon("policy", "info", "careful.yaml", "--model", WORLD)
    assert code == 0
    assert "tried out in its ranges: 1024 states" in out


@pytest.mark.parametrize(
    "content",
    [linear({"state": np.ones((2, 2))}, [0, 0]), linear({"state": np.ones((1024, 2))}, [0, 0])],
)
def test_a_network_of_other_numbers_is_refused(cfmon: Run, folder: Path, content: bytes) -> None:
    (folder / "other.onnx").write_bytes(content)
    code, _, problem = cfmon("policy", "init", "other.onnx", "--model", WORLD)
    assert code == 2
    assert "in world 'heated house 2' it is floats [n, 3]: room, store, price" in " ".join(problem.split())
    assert not (folder / "other.yaml").exists()


def test_a_network_of_state_and_inputs_sees_both(cfmon: Run, folder: Path) -> None:
    world = load_world(WORLD)
    width = len(world.features) + len(world.inputs)
    weights = np.zeros((width, world.actions))
    weights[-1, 1] = 1.0  # the second action where the last input is positive, else the first
    (folder / "both.onnx").write_bytes(linear({"state": weights}, [0.0] * world.actions))
    code, out, _ = cfmon("policy", "init", "both.onnx", "--model", WORLD)
    assert code == 0
    names = ", ".join(each.name for each in (*world.features, *world.inputs))
    assert f"its input is {names}, in this order" in " ".join(out.split())
    assert cfmon("policy", "info", "both.yaml", "--model", WORLD)[0] == 0
    policy = as_world_policy("both", "both.yaml", world)
    states = np.zeros((2, len(world.features)))
    inputs = np.zeros((2, len(world.inputs)))
    inputs[:, -1] = [1.0, -1.0]
    assert policy.decide(policy.observed(states, inputs)).tolist() == [1, 0]


def test_a_network_is_exported_and_compared_and_a_function_refused(
    cfmon: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def converted(model: object, _request: object) -> Original:
        content = linear({"state": SCORES}, [0.0, 0.1, 0.0], kind=TensorProto.FLOAT)
        return Original(content, "q_values", False, None, model.observations @ SCORES + [0.0, 0.1, 0.0])  # type: ignore[attr-defined] # noqa: FBT003

    (folder / "rule.py").write_text("def rule(state):\n    return int(state[0] < 20)\n")
    code, _, problem = cfmon("policy", "export", "rule.py:rule", "rule.onnx", "--model", WORLD)
    assert code == 2
    said = " ".join(problem.split())
    assert "Write it as a torch module from numbers [n, f] to scores [n, A]" in said
    assert "In Python, monitor.check and monitor.Monitor take a function as it is" in said
    monkeypatch.setattr("monitor.authoring.policy_export.convert.convert", converted)
    code, out, _ = cfmon("policy", "export", "agent.zip", "agent.onnx", "--model", WORLD)
    assert code == 0
    assert "equal to the original in 1024 states" in out
    policy = as_world_policy("agent", "agent.yaml", load_world(WORLD))
    assert np.asarray(policy.decide(np.array([[1.0, 1.0, 5.0], [20.0, 10.0, 0.3]]))).tolist() == [1, 2]


def test_a_manifest_of_numbers_of_states_does_not_fit_a_world(cfmon: Run, folder: Path) -> None:
    content = table_onnx(np.zeros((1024, 3)), "index")
    (folder / "table.onnx").write_bytes(content)
    (folder / "table.yaml").write_text(
        f"{{file: table.onnx, sha256: {sha256(content).hexdigest()}, input: {{name: state, kind: index}}, "
        "output: {name: scores, kind: q_values}, mode: greedy}"
    )
    code, _, problem = cfmon("policy", "info", "table.yaml", "--model", WORLD)
    assert code == 2
    assert "its input is index; in a world with numbers it is observation" in problem


FORMULA = 'regret(careful@2, P>=0.99 [ G<=2 !"cold" ])'


def asked(cfmon: Run, path: str, *more: str) -> tuple[int, str, str]:
    policies = [
        f"--policy={name}={HEATING / file}.yaml" for name, file in (("nominal", "cheap"), ("careful", "careful"))
    ]
    return cfmon("check", "--model", WORLD, "--path", path, *policies, "--formula", FORMULA, *more)


@pytest.fixture
def steps(folder: Path) -> Steps:
    """Four steps of the house in its recorded weather, written as messages and as lists."""
    world, cheap = load_world(WORLD), as_world_policy("cheap", HEATING / "cheap.yaml", load_world(WORLD))
    weather = np.loadtxt(HEATING / "weather.csv", delimiter=",", skiprows=1)[370:374]
    rng, state, steps = np.random.default_rng(5), np.array([[18.4, 22.0, weather[0, 1]]]), []
    for recorded in weather.tolist():
        action = cheap.decide(state)
        steps.append((state[0].tolist(), int(action[0]), recorded))
        state = world.step(state, action, rng.uniform(size=(1, world.noise)), tuple(recorded))
    names, inputs = [each.name for each in world.features], [each.name for each in world.inputs]
    messages = [
        {"v": 1, "seq": n, "state": dict(zip(names, x, strict=True)), "action": world.action_names[a]}
        | {"inputs": dict(zip(inputs, w, strict=True))}
        for n, (x, a, w) in enumerate(steps)
    ]
    (folder / "steps.jsonl").write_text("".join(json.dumps(each) + "\n" for each in messages))
    (folder / "steps.json").write_text(json.dumps(steps))
    return steps


def test_formulas_are_evaluated_on_a_path_of_messages_or_lists(cfmon: Run, steps: Steps) -> None:
    policies = {"nominal": HEATING / "cheap.yaml", "careful": HEATING / "careful.yaml"}
    wanted = monitor.check(FORMULA, model=WORLD, path=steps, policies=policies)
    answers = [asked(cfmon, path, "--json") for path in ("steps.jsonl", "steps.json")]
    assert answers[0] == answers[1]
    verdict = json.loads(answers[0][1])["verdicts"][0]
    assert (verdict["answer"], verdict["method"], tuple(verdict["tiers"])) == (
        wanted.outcome,
        wanted.method,
        wanted.tiers,
    )
    assert [each["value"] for each in verdict["quantities"]] == [each.value for each in wanted.quantities]
    shown = " ".join(asked(cfmon, "steps.jsonl")[1].split())
    assert "begins in state room=" in shown
    assert "noise of the steps looked back on: recorded, " in shown


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (
            "[[[18, 20], 0, [1, 2]]]",
            'pair 1: "state" has 2 numbers; the world has 3: room, store, price: send a list',
        ),
        ('{"action": 0}', "line 1: expected [state, action, inputs] or a message"),
        ('[[[18, 20, 0.2], "fly", [1, 0.2]]]', "'fly' is not an action of the world; send one of"),
        ('{"state": {"room": 1e999}, "action": 0}', "line 1: "),
        ('{"state": [[1], 2, 3], "action": {}}', "line 1: "),
        ("[[[18, 20, 0.2], null, [0.2, 1]], [[18, 20, 0.2], 0, [0.2, 1]]]", "only the last pair may lack its action"),
    ],
)
def test_a_path_that_is_none_is_refused_with_its_place(cfmon: Run, folder: Path, raw: str, says: str) -> None:
    (folder / "bad.json").write_text(raw)
    code, _, problem = asked(cfmon, "bad.json")
    assert code == 2
    assert says in problem
    assert problem.startswith("cfmon: ")


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("option", ["--explain", "--visits=0.1", "--engine=referee"])
def test_what_needs_a_table_is_refused(cfmon: Run, option: str) -> None:
    code, _, problem = asked(cfmon, "steps.json", option)
    assert code == 2
    assert "world 'heated house 2' is no table; leave out --explain, --visits and --engine referee" in problem
