"""Models in the PRISM language and JANI: Storm builds them in a process of its own; values are Storm's."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import monitor
from monitor.cli.app import app
from monitor.errors import ModelError
from monitor.model import load_model
from tests.model.verification_models import TWO_ROOMS, program, storm_values, stormpy, values
from tests.processes import fork_monitor
from tests.servers import PATIENCE, wait_until
from tests.tiers import first, slow

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-12
"""Both sides sum products of the same doubles over a few steps."""


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["model", "convert", *map(str, arguments)])


def refused(*arguments: object) -> str:
    result = convert(*arguments)
    assert result.exit_code != 0
    return str(result.exception)


def test_the_package_does_not_import_stormpy() -> None:
    for file in (ROOT / "monitor").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "stormpy" in text else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "stormpy" for name in names), file


@pytest.mark.parametrize("suffix", first(1, [".npz", ".umb", ".tra"]))
@pytest.mark.filterwarnings("ignore::monitor.errors.ModelWarning")
def test_values_are_those_of_storm(suffix: str, tmp_path: Path) -> None:
    module = stormpy()
    source = program(tmp_path)
    result = convert(source, target := tmp_path / f"rooms{suffix}")
    assert result.exit_code == 0
    assert "actions 0 fast, 1 rest, 2 slow" in result.stdout
    model = load_model(target)
    options = module.BuilderOptions(build_full=True)
    built = module.build_model(module.parse_prism_program(str(source)), options=options)
    for best, word in ((np.max, "max"), (np.min, "min")):
        reach, total = values(model, "home", 5, best)
        np.testing.assert_allclose(storm_values(built, f'P{word}=? [ F<=5 "home" ]'), reach, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(storm_values(built, f"R{word}=? [ C<=5 ]"), total, rtol=0, atol=TOLERANCE)


@slow
@pytest.mark.parametrize("policy", ["fast", "slow"])
def test_values_under_a_policy_are_those_of_storm_without_the_other_action(policy: str, tmp_path: Path) -> None:
    module = stormpy()
    other = "slow" if policy == "fast" else "fast"
    text = "\n".join(line for line in TWO_ROOMS.splitlines() if f"[{other}]" not in line)
    options = module.BuilderOptions(build_full=True)
    built = module.build_model(module.parse_prism_program(str(program(tmp_path, text))), options=options)
    assert convert(program(tmp_path), tmp_path / "rooms.npz").exit_code == 0
    model = load_model(tmp_path / "rooms.npz")
    actions = [
        model.action_index[policy] if model.available(state)[model.action_index[policy]] else model.action_index["rest"]
        for state in range(model.states)
    ]
    assert model.initial is not None
    start = int(model.initial.argmax())
    asked = {
        'P=? [ F<=4 "home" ]': 'Pmax=? [ F<=4 "home" ]',
        'P=? [ F<=3 "broken" ]': 'Pmax=? [ F<=3 "broken" ]',
        "R=? [ C<=3 ]": "Rmax=? [ C<=4 ]",  # ours counts the reward at offset 3
    }
    for ours, theirs in asked.items():
        found = monitor.values(ours, model=model, policies={"nominal": actions})
        assert found[start] == pytest.approx(storm_values(built, theirs)[built.initial_states[0]], abs=TOLERANCE)


def test_constants_are_given_on_the_command_line(tmp_path: Path) -> None:
    stormpy()
    source = program(tmp_path, TWO_ROOMS.replace("const int N = 3;", "const int N;"))
    target = tmp_path / "rooms.npz"
    assert "undefined constants" in (said := refused(source, target))
    assert "(give their values: --constant NAME=VALUE)" in said
    assert convert(source, target, "--constant", "N=5").exit_code == 0
    assert load_model(target).states == 11
    assert "unknown undefined constant 'M'" in refused(source, target, "--constant", "M=5")
    assert "write NAME=VALUE, such as N=10" in refused(source, target, "--constant", "N")


def test_jani_is_read_with_names_of_states(tmp_path: Path) -> None:
    stormpy()
    files = pytest.importorskip("stormpy.examples.files")
    label = "done: value[1] == 7"
    result = convert(files.jani_dtmc_die, tmp_path / "die.npz", "--label", label)
    assert result.exit_code == 0
    model = load_model(tmp_path / "die.npz")
    assert (model.states, model.actions, int(model.labels["done"].sum())) == (13, 1, 6)
    assert model.state_names[0].endswith("s=0, d=0")


NUMBERS: dict[str, Any] = {
    "int": "int",
    "real": "real",
    "bounded": {"kind": "bounded", "base": "int", "lower-bound": -7, "upper-bound": 9},
    "bounded below": {"kind": "bounded", "base": "int", "lower-bound": -7},
    "bounded above": {"kind": "bounded", "base": "int", "upper-bound": 9},
}


def jani(folder: Path, *transient: Any, reach: Any = (), place: Any = ()) -> Path:  # noqa: ANN401 - JSON
    """A counter that goes from 0 to 3 with probability one half each step; `done` at 3.

    `reach`: assignments of a step that counts, `place`: transient values of the location.
    """
    step: dict[str, Any] = {"ref": "n", "value": {"op": "+", "left": "n", "right": 1}}
    half = {"exp": 0.5}
    edges = [
        {
            "location": "l",
            "guard": {"exp": {"op": "<", "left": "n", "right": 3}},
            "destinations": [
                {"location": "l", "probability": half, "assignments": [step, *reach]},
                {"location": "l", "probability": half},
            ],
        },
        {"location": "l", "guard": {"exp": {"op": "=", "left": "n", "right": 3}}, "destinations": [{"location": "l"}]},
    ]
    done = {"ref": "done", "value": {"op": "=", "left": "n", "right": 3}}
    automaton = {
        "name": "a",
        "locations": [{"name": "l", "transient-values": [done, *place]}],
        "initial-locations": ["l"],
        "edges": edges,
    }
    whole = {"kind": "bounded", "base": "int", "lower-bound": 0, "upper-bound": 3}
    model = {
        "jani-version": 1,
        "name": "counter",
        "type": "dtmc",
        "features": ["derived-operators"],
        "variables": [
            *transient,
            {"name": "n", "type": whole, "initial-value": 0},
            {"name": "done", "type": "bool", "transient": True, "initial-value": False},
        ],
        "automata": [automaton],
        "system": {"elements": [{"automaton": "a"}]},
        "properties": [],
    }
    file = folder / "counter.jani"
    file.write_text(json.dumps(model))
    return file


def done_within_3(model: monitor.MDP) -> float:
    assert model.initial is not None
    start = int(model.initial.argmax())
    return float(monitor.values('P=? [ F<=3 "done" ]', model=model, policies={"nominal": [0] * model.states})[start])


def by_count(model: monitor.MDP) -> list[int]:
    """The states by the value of the counter, as their names say it."""
    counts = {int(name.partition("n=")[2].partition(",")[0]): state for state, name in enumerate(model.state_names)}
    return [counts[n] for n in range(4)]


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_transient_number_of_jani_is_a_reward_structure(kind: str, tmp_path: Path) -> None:
    """Three successes of one half are .125; what is never assigned is no reward."""
    stormpy()
    cost = {"name": "cost", "type": NUMBERS[kind], "transient": True, "initial-value": 0}
    target = tmp_path / "m.npz"
    assert convert(jani(tmp_path, cost), target).exit_code == 0
    model = load_model(target)
    assert (model.states, done_within_3(model)) == (4, 0.125)
    assert not model.rewards.any()
    assert model.transition_rewards is None
    paid = jani(tmp_path, cost, reach=[{"ref": "cost", "value": 4}], place=[{"ref": "cost", "value": "n"}])
    assert convert(paid, target).exit_code == 0
    model = load_model(target)
    assert done_within_3(model) == 0.125
    # The counter's value in each state, and 4 for a step that counts, of which Storm has the mean over the edge, 2.
    assert [model.rewards[state, 0] for state in by_count(model)] == [0 + 2, 1 + 2, 2 + 2, 3]


def test_a_transient_boolean_of_jani_is_a_label_and_no_reward(tmp_path: Path) -> None:
    stormpy()
    late = {"op": ">", "left": "n", "right": 1}
    flag = {"name": "late", "type": "bool", "transient": True, "initial-value": False}
    file = jani(tmp_path, flag, reach=[{"ref": "late", "value": True}], place=[{"ref": "late", "value": late}])
    assert convert(file, tmp_path / "m.npz").exit_code == 0
    model = load_model(tmp_path / "m.npz")
    assert [bool(model.labels["late"][state]) for state in by_count(model)] == [False, False, True, True]
    assert (done_within_3(model), bool(model.rewards.any())) == (0.125, False)


def test_of_several_transient_numbers_one_is_asked_for(tmp_path: Path) -> None:
    stormpy()
    both = [
        {"name": name, "type": kind, "transient": True, "initial-value": 0}
        for name, kind in (("steps", "int"), ("hours", "real"))
    ]
    file = jani(tmp_path, *both, place=[{"ref": "hours", "value": 0.5}, {"ref": "steps", "value": 1}])
    assert r"several reward structures (hours, steps): choose one" in refused(file, tmp_path / "m.npz")
    for name, paid in (("steps", 1), ("hours", 0.5), ("none", 0)):
        assert convert(file, tmp_path / "m.npz", "--rewards", name).exit_code == 0
        assert load_model(tmp_path / "m.npz").rewards.tolist() == [[paid]] * 4


def test_what_storm_refuses_is_said_in_one_line(tmp_path: Path) -> None:
    stormpy()
    said = refused(program(tmp_path, "nonsense"), tmp_path / "x.npz")
    assert "rooms.prism: Storm cannot build it: " in said
    assert "expecting <model type>" in said
    assert "\n" not in said
    continuous = TWO_ROOMS.replace("mdp", "ma", 1)
    assert "only Markov chains and Markov decision" in refused(program(tmp_path, continuous), tmp_path / "x.npz")
    assert "there are no rewards 'cost'; there are: time" in refused(
        program(tmp_path), tmp_path / "x.npz", "--rewards", "cost"
    )


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that ends as one without stormpy does."""
    file = tmp_path / "python"
    file.write_text("#!/bin/sh\necho \"No module named 'stormpy'\" >&2\nexit ${CODE:-3}\n")
    file.chmod(0o755)
    return file


def test_without_stormpy_the_message_says_how_to_install_it(python: Path, tmp_path: Path) -> None:
    said = refused(program(tmp_path), tmp_path / "x.npz", "--storm-python", python)
    assert "lacks (No module named 'stormpy')" in said
    assert "pip install 'stormpy>=2.0'" in said
    assert not (tmp_path / "x.npz").exists()


def test_a_process_that_ends_badly_is_an_error(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", "9")
    said = refused(program(tmp_path), tmp_path / "x.npz", "--storm-python", python)
    assert "its process ended with code 9" in said
    monkeypatch.setenv("CODE", "5")
    assert "Storm needs more than 4 GiB of memory" in refused(
        program(tmp_path), tmp_path / "x.npz", "--storm-python", python
    )
    monkeypatch.setenv("CODE", "0")
    assert "its process ended with code 0" in refused(program(tmp_path), tmp_path / "x.npz", "--storm-python", python)
    assert "cannot be run" in refused(program(tmp_path), tmp_path / "x.npz", "--storm-python", tmp_path / "none")


STUB = """
import os, pathlib, sys, time

class io:
    export_to_umb = None

def parse_prism_program(source):
    folder = pathlib.Path(source).parent
    if (folder / "large").exists():
        bytearray(1 << 45)
    if (folder / "talks").exists():
        os.write(2, b"words\\n" * 100_000)
        raise ValueError("no model")
    (folder / "new").write_text(f"{os.getpid()} {pathlib.Path(sys.argv[2]).parent}")
    (folder / "new").rename(folder / "begun")
    time.sleep(10_000)
"""
"""In place of stormpy: builds for ever, asks for 32 TiB, or says much."""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model for the stub of stormpy; its process writes its number and its folder to the file `begun`."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "stormpy.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    return program(tmp_path)


def begun(folder: Path) -> tuple[int, Path] | None:
    """The process of the stub and its temporary folder; None if it has not come so far."""
    if not (folder / "begun").exists():
        return None
    number, _, place = (folder / "begun").read_text().partition(" ")
    return int(number), Path(place)


def ended(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for may still have its number."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def test_a_model_that_takes_too_long_is_ended_with_one_message(stub: Path, tmp_path: Path) -> None:
    said = refused(stub, tmp_path / "x.npz", "--timeout", "2")
    assert "Storm has not built it within 2 seconds; allow more with --timeout SECONDS" in said
    if (found := begun(tmp_path)) is not None:
        assert (ended(found[0]), found[1].exists()) == (True, False)


def test_a_model_that_needs_too_much_memory_is_one_message(stub: Path, tmp_path: Path) -> None:
    (tmp_path / "large").touch()
    said = refused(stub, tmp_path / "x.npz", "--memory", "0.25")
    assert "Storm needs more than 0.25 GiB of memory for it; allow more with --memory GIB" in said


def test_of_a_program_that_says_much_the_end_is_shown(stub: Path, tmp_path: Path) -> None:
    (tmp_path / "talks").touch()
    assert refused(stub, tmp_path / "x.npz").endswith("Storm cannot build it: no model")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["SIGTERM", "Ctrl-C", "SIGKILL"],
)
def test_a_signal_ends_the_command_and_storm_at_once(number: int, code: int, stub: Path, tmp_path: Path) -> None:
    command = ("model", "convert", str(stub), str(tmp_path / "x.npz"), "--storm-python", sys.executable)
    running = fork_monitor(*command, log=tmp_path / "log", env=dict(os.environ))
    found = wait_until(lambda: begun(tmp_path), "the program builds")
    assert found is not None
    pid, place = found
    running.send_signal(number)
    assert running.wait(PATIENCE) == code
    if number == signal.SIGKILL:
        wait_until(lambda: ended(pid), "the program has ended")
        shutil.rmtree(place)
    assert (ended(pid), place.exists()) == (True, False)
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("given", [("--timeout", "0"), ("--memory", "-1"), ("--memory", "nan"), ("--timeout", "inf")])
def test_limits_that_are_none(given: tuple[str, str], tmp_path: Path) -> None:
    assert f"{given[0]} {float(given[1]):g}: give a number above 0" in refused(
        program(tmp_path), tmp_path / "x.npz", *given
    )


@slow
def test_storm_is_stopped_where_a_model_has_too_many_states(tmp_path: Path) -> None:
    stormpy()
    text = "dtmc\nmodule m\n a : [0..1000000] init 0;\n b : [0..1000000] init 0;\n"
    text += " [] true -> 0.5 : (a' = mod(a + 1, 1000001)) + 0.5 : (b' = mod(b + 1, 1000001));\nendmodule\n"
    said = refused(program(tmp_path, text), tmp_path / "x.npz", "--memory", "0.2")
    assert "Storm needs more than 0.2 GiB of memory for it" in said


def test_options_and_files_that_do_not_fit(tmp_path: Path) -> None:
    assert "are for .prism" in refused("policies/frozen-lake/model.npz", tmp_path / "x.npz", "--constant", "N=1")
    assert "there is no such file" in refused(tmp_path / "none.prism", tmp_path / "x.npz")
    assert "one unnamed reward structure" in refused(
        "policies/frozen-lake/model.npz", tmp_path / "x.npz", "--rewards", "r"
    )
    with pytest.raises(ModelError, match=r"converted first: cfmon model convert .*rooms\.prism model\.npz"):
        load_model(program(tmp_path))


def test_the_converter_is_a_program_without_the_package() -> None:
    """So that it runs in an environment that has stormpy and nothing of ours."""
    tree = ast.parse((ROOT / "converters" / "storm_to_umb.py").read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name) for name in modules} - {"stormpy"} <= {*sys.stdlib_module_names}


BUNDLED = [
    ("prism_mdp_maze", "goal", "default"),
    ("prism_mdp_coin_2_2", "finished", "steps"),
    ("prism_mdp_slipgrid", "target", "default"),
    ("prism_dtmc_die", "done", "coin_flips"),
]


@slow
@pytest.mark.parametrize(("name", "label", "reward"), BUNDLED, ids=[name for name, _, _ in BUNDLED])
def test_models_bundled_with_storm_have_its_values(name: str, label: str, reward: str, tmp_path: Path) -> None:
    module = stormpy()
    source = getattr(pytest.importorskip("stormpy.examples.files"), name)
    assert convert(source, tmp_path / "m.npz", "--rewards", reward).exit_code == 0
    model = load_model(tmp_path / "m.npz")
    options = module.BuilderOptions(build_full=True)
    built = module.build_model(module.parse_prism_program(source), options=options)
    asked = "" if reward == "default" else f'{{"{reward}"}}'
    for best, word in ((np.max, "max"), (np.min, "min")):
        reach, total = values(model, label, 7, best)
        mine = storm_values(built, f'P{word}=? [ F<=7 "{label}" ]')
        np.testing.assert_allclose(reach, mine, rtol=0, atol=TOLERANCE)
        theirs = storm_values(built, f"R{asked}{word}=? [ C<=7 ]")
        np.testing.assert_allclose(total, theirs, rtol=0, atol=TOLERANCE)
