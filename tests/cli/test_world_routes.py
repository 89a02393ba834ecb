"""Worlds with numbers beyond the stream: recordings in all forms, replay, audits, stores, evidence.

What differs from other models in code of its own, replay and audits, is also tried where states are hidden.
"""

from __future__ import annotations

import asyncio
import csv
import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from monitor.audit.partition import run_partition
from monitor.audit.results import findings
from monitor.evidence.document import read_evidence
from monitor.sidecar.config.load import assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Connected, Evaluate, Event, Message
from monitor.sidecar.recording import Header, Recorder
from monitor.sidecar.recording_formats import open_recording
from monitor.sidecar.web.pictures import Pictures, command_for
from monitor.stream import decode
from monitor.stream.world_adapter import WorldAdapter
from monitor.types import Instant, Observation, StreamSettings, TakenOver
from monitor.worlds import CheckedWorld
from tests.cli.test_recording_convert import write_mcap
from tests.hidden import robot
from tests.sidecar.audited import recorded, replayed
from tests.sidecar.test_audit import alerts, by_agent, plan_of, run
from tests.sidecar.test_pictures import drawn
from tests.tiers import slow
from tests.worlds.graphs import linear
from tests.worlds.plant import PLANT, agent_steps, events, write_plant, write_policy
from tests.worlds.samples import Tank

Run = Callable[..., tuple[int, str, str]]
HEADER = Header("one", "c" * 64, "m" * 64, "0")


@pytest.fixture(scope="module")
def kept(plant: tuple[Path, list[Event], list[str]]) -> Path:
    """A store with the evidence of each alarm, and the models and policies that it names."""
    config, many, _ = plant
    loaded, folder = assemble(config, {}), config.parent / "var"
    pipeline = loaded.pipeline("one")
    for event in many:
        keep(folder, pipeline.step(event), loaded.objects())
    return folder


def keep(folder: Path, effects: Effects, objects: Mapping[str, bytes]) -> None:
    """Write the evidence among the effects, and the objects, as a store does."""
    for name, files in (("evidence", {file.id: file.content for file in effects.evidence}), ("objects", objects)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / name / file).write_bytes(content)


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event], list[str]]:
    """A configuration, events, and what one process publishes for them."""
    folder = tmp_path_factory.mktemp("plant")
    config = write_plant(folder)
    many = events(folder, 26)
    return config, many, replayed(config, many)


@pytest.fixture(scope="module")
def robot_on_ice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event], list[str]]:
    """The same where states are hidden, and policies remember."""
    folder = tmp_path_factory.mktemp("robot")
    config = robot.write_robot(folder)
    many = robot.events(folder, 40)
    return config, many, replayed(config, many)


@pytest.fixture(params=["plant", "robot_on_ice"])
def route(request: pytest.FixtureRequest) -> tuple[Path, list[Event], list[str]]:
    found: tuple[Path, list[Event], list[str]] = request.getfixturevalue(request.param)
    return found


def written(path: Path, many: Sequence[Event]) -> Path:
    recorder = Recorder(path, HEADER)
    for event in many:
        recorder.write(event)
    recorder.close()
    return path


# ---- recordings, replay ----


@slow
def test_a_recording_is_the_same_in_each_form_and_replayed_to_the_byte(
    route: tuple[Path, list[Event], list[str]], tmp_path: Path, cfmon: Run
) -> None:
    config, many, _ = route
    expected = replayed(config, many, repeats=True)
    original = written(tmp_path / "one.rec", many)
    for source, target in ((original, "two.parquet"), (tmp_path / "two.parquet", "three.rec")):
        code, _, err = cfmon("recording", "convert", str(source), "--to", str(tmp_path / target))
        assert code == 0, err
    assert (tmp_path / "three.rec").read_bytes() == original.read_bytes()
    for name in ("one.rec", "two.parquet"):
        code, out, err = cfmon("replay", str(config), str(tmp_path / name))
        assert code == 0, err
        assert out == "".join(expected)
    states = {payload["state"] for line in expected if (payload := json.loads(line)["payload"])}
    assert {"firing", "resolved", "ended"} <= states


FLAT = ("agent", "episode", "seq", "level", "pump", "fish", "rain", "tide", "action", "truncated")


def rows_of(folder: Path, count: int) -> list[dict[str, Any]]:
    """Messages as rows of a table whose columns have names of their own."""
    found = []
    for _, step in zip(range(count), agent_steps(folder, 7), strict=False):
        state, inputs, action = step["state"], step["inputs"], step["action"]
        if isinstance(state, list):
            state = dict(zip(("level", "pump", "fish"), state, strict=True))
        if isinstance(inputs, list):
            inputs = dict(zip(("rain", "tide"), inputs, strict=True))
        pump = state["pump"] if isinstance(state["pump"], str) else PLANT["features"][1]["values"][state["pump"]]
        action = action if isinstance(action, str) else PLANT["actions"][action]
        row = {"agent": "ada", "episode": step["episode"], "seq": step["seq"], "action": action, "truncated": False}
        found.append({name: (row | state | {"pump": pump} | inputs)[name] for name in FLAT})
    return found


def as_messages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as messages with maps, whose names are in no particular order."""
    return [
        {
            **{name: row[name] for name in ("agent", "episode", "seq", "action")},
            "v": 1,
            "state": {name: row[name] for name in ("pump", "fish", "level")},
            "inputs": {name: row[name] for name in ("tide", "rain")},
        }
        for row in rows
    ]


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    match path.suffix:
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, FLAT)
                writer.writeheader()
                writer.writerows(rows)
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        case ".parquet":
            parquet.write_table(pa.Table.from_pylist(rows), path)
        case _:
            write_mcap(path, rows)
    return path


def observed(path: Path) -> list[Observation]:
    with open_recording(path) as recording:
        return [decode("ada", event.payload) for event in recording if isinstance(event, Message)]


@pytest.mark.parametrize("name", ["steps.csv", "steps.jsonl", "steps.parquet", "steps.mcap"])
@pytest.mark.parametrize("form", ["columns", "messages"])
def test_a_table_becomes_steps_that_the_world_takes_bit_for_bit(
    plant: tuple[Path, list[Event], list[str]], tmp_path: Path, cfmon: Run, name: str, form: str
) -> None:
    if (name, form) == ("steps.csv", "messages"):
        pytest.skip("a table of text has no maps")
    config, _, _ = plant
    rows = rows_of(config.parent, 30)
    source = table(tmp_path / name, rows if form == "columns" else as_messages(rows))
    columns = ("--inputs", "rain,tide", "--state", "level,pump,fish", "--timing", "state") if form == "columns" else ()
    code, _, err = cfmon("recording", "convert", str(source), "--to", str(tmp_path / "to.rec"), *columns)
    assert code == 0, err
    loaded = assemble(config, {})
    assert isinstance(loaded.model, CheckedWorld)
    adapter = WorldAdapter(loaded.model, StreamSettings(encoder="features"), loaded.tables["nominal"])
    pumps, actions = PLANT["features"][1]["values"], PLANT["actions"]
    assert [(each.episode, each.seq, *adapter.read(each)) for each in observed(tmp_path / "to.rec")] == [
        (
            row["episode"],
            row["seq"],
            (row["level"], float(pumps.index(row["pump"])), float(row["fish"])),
            actions.index(row["action"]),
            (row["rain"], row["tide"]),
        )
        for row in rows
    ]


# ---- audits ----


def test_an_audit_gives_what_one_process_published_also_if_it_was_stopped(
    route: tuple[Path, list[Event], list[str]], tmp_path: Path
) -> None:
    config, many, expected = route
    pipeline = assemble(config, {}).pipeline("one")
    notices = [notice for event in many for notice in pipeline.step(event).notices if isinstance(notice, TakenOver)]
    recording = recorded(tmp_path / "r.parquet", many)
    plan = plan_of(config, [recording], tmp_path / "out")
    for parts in plan.values():
        run_partition(parts[0])  # then it was stopped; the state of the first day is in files
    run(plan)
    assert by_agent(alerts(plan)) == by_agent(expected)
    assert findings(plan).takeovers == Counter((each.formula, each.policy, each.outcome) for each in notices)
    assert notices
    whole = plan_of(config, [recording], tmp_path / "whole", in_order=True)
    run(whole)
    assert alerts(whole) == expected


# ---- evidence ----


@slow
def test_the_evidence_of_each_alarm_is_verified_and_drawn_elsewhere(
    kept: Path, tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read = {file: read_evidence(file.read_bytes()) for file in sorted((kept / "evidence").iterdir())}
    files = {(each.formula, each.takeover is not None): file for file, each in read.items()}
    assert files.keys() == {("watch", False), ("pumping", False), ("watch", True)}
    for file in files.values():
        assert cfmon("evidence", "export", str(file))[0] == 0
        code, out, _ = cfmon("verify", f"{file.name}.zip")
        assert (code, out.splitlines()[-1].startswith("verified: ")) == (0, True), out
    code, out, err = cfmon("explain", f"{files['watch', False].name}.zip", "-o", "alarm.svg")
    assert code == 0, err
    assert "pump: 0 idle, 1 busy, 2 down" in (tmp_path / "alarm.svg").read_text()


IN_PYTHON = f"""
from typing import Any
import numpy as np
from monitor.arrays import Bools, Floats, Ints
from monitor.worlds import Feature

{inspect.getsource(Tank)}
"""


@slow
def test_the_evidence_of_a_world_in_python_needs_the_verifier_s_own_copy(
    tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, (file, *_) = tank(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, err = cfmon("verify", str(file))
    assert (code, "written in Python, and code that comes with evidence is not run" in err) == (2, True), err
    assert "--world FILE.py:NAME" in err
    (tmp_path / "mine.py").write_text(IN_PYTHON.replace("tank 1", "tank of another day"))
    code, _, err = cfmon("verify", str(file), "--world", "mine.py:Tank")
    assert (code, "and the given world has" in err) == (2, True), err
    code, out, _ = cfmon("verify", str(file), "--world", "tank.py:Tank")
    assert (code, out.splitlines()[-1].startswith("verified: ")) == (0, True), out

    async def page() -> None:
        """The status page draws it in a process of its own."""
        pictures = Pictures({file.name: file.read_bytes()}.get, file.parents[1] / "objects", command_for([config]))
        picture, problem = await drawn(pictures, file.name)
        assert picture.startswith(b"<svg"), problem

    asyncio.run(page())


@slow
def test_each_of_several_worlds_in_python_is_given(tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dry.py").write_text(IN_PYTHON.replace("tank 1", "tank that leaks more").replace("0.2", "0.4"))
    formula = {"name": "near", "formula": '(model:dry@0.P>=1 [ X "overflow" ]) & !"overflow"'}
    _, (file, *_) = tank(tmp_path, formula, models={"dry": "dry.py:Tank"})
    monkeypatch.chdir(tmp_path)
    code, _, err = cfmon("verify", str(file), "--world", "tank.py:Tank")
    assert (code, "model dry is " in err) == (2, True), err
    assert "once for each world" in err
    code, out, _ = cfmon("verify", str(file), "--world", "dry.py:Tank", "--world", "tank.py:Tank")
    assert (code, out.splitlines()[-1].startswith("verified: ")) == (0, True), out


NEAR = {"name": "near", "formula": 'regret(careful@3, P>=0.9 [ G<=3 !"overflow" ])'}


def tank(folder: Path, formula: dict[str, str] = NEAR, **sections: object) -> tuple[str, list[Path]]:
    """Write a project whose world is a tank in Python; return the world's name and the evidence of its alarms."""
    (folder / "tank.py").write_text(IN_PYTHON)
    write_plant(folder, model="tank.py:Tank", formulas=[formula], **sections)
    for name, opens in (("nominal", 99.0), ("careful", 7.5)):
        write_policy(folder, name, linear({"x": [[0, 1.0]]}, [opens, 0.0]))
    loaded = assemble(folder / "cfmon.yaml", {})
    pipeline = loaded.pipeline("one")
    pipeline.step(Connected(Instant(0.0, 0.0), up=True))
    for seq, level in enumerate([6.0, 6.9, 7.8, 8.7, 9.6]):
        now = Instant(1000.0 + seq, float(seq))
        step = {"v": 1, "episode": "e", "seq": seq, "state": [level], "action": 0, "inputs": [1.0]}
        pipeline.step(Message(now, "agents/tank/steps", json.dumps(step).encode()))
        keep(folder / "var", pipeline.step(Evaluate(now)), loaded.objects())
    return str(folder / "tank.py:Tank"), sorted((folder / "var" / "evidence").iterdir())
