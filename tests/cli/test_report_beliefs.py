"""`cfmon report` where states are hidden: the belief beside true states that were recorded with the observations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.model import MDP, save_model
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.sidecar.recording import Header, Recorder
from monitor.types import Instant
from tests.hidden.robot import CREEP, FALLEN, GO, GROUND, ICE, robot, write_robot

Run = Callable[..., tuple[int, str, str]]

NAMES = ("ground", "ice", "fallen")
SHOWS = {GROUND: 0.1, ICE: 0.7, FALLEN: 0.5}


def model(slippery: float) -> MDP:
    """The robot; the chance that its sensor shows slippery on the ground is `slippery`."""
    right = robot()
    assert right.emissions is not None
    shows = [(s, o, p if o else 1 - p) for s, p in {**SHOWS, GROUND: slippery}.items() for o in (0, 1)]
    changed = MDP.from_transitions(
        states=3,
        actions=2,
        transitions=[
            (s, a, int(t), float(p))
            for s in range(3)
            for a in (GO, CREEP)
            for t, p in zip(*right.row(s, a), strict=True)
        ],
        labels={"fallen": [FALLEN], "ice": [ICE]},
        initial={GROUND: 0.5, ICE: 0.5},
        signals=2,
        emissions=shows,
    )
    return dataclasses.replace(changed, state_names=NAMES)


def steps(rng: np.random.Generator, episodes: int) -> list[dict[str, Any]]:
    """Steps of the robot, whose sensor is right; the true state is known at most steps, by number or by name."""
    found, world = [], robot()
    for episode in range(episodes):
        state = int(rng.integers(2))
        for seq in range(10):
            shown = None if rng.random() < 0.1 else int(rng.random() < SHOWS[state])
            known = {} if rng.random() < 0.1 else {"state": NAMES[state] if seq % 2 else state}
            ends = {"truncated": True} if seq == 9 else {"action": GO}
            found.append({"v": 1, "episode": episode, "seq": seq, "observation": shown, **known, **ends})
            if seq < 9:
                successors, chances = world.row(state, GO)
                state = int(rng.choice(successors, p=chances))
    return found


EPISODES = 150
SENT = steps(np.random.default_rng(1), EPISODES)


def record(path: Path, config: Path, sent: list[dict[str, Any]]) -> None:
    loaded = assemble(config, {})
    recorder = Recorder(path, Header("m", loaded.config.digest, loaded.identity.model_sha256, "test"))
    recorder.write(Connected(Instant(0.0, 0.0), up=True))
    for n, step in enumerate(sent):
        now = Instant(float(n), float(n))
        recorder.write(Message(now, "agents/a/steps", json.dumps(step).encode()))
        recorder.write(Evaluate(now))
    recorder.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_robot(tmp_path, store={"path": None})
    save_model(model(SHOWS[GROUND]), tmp_path / "robot.npz")
    record(tmp_path / "may.rec", tmp_path / "cfmon.yaml", SENT)
    return tmp_path


def test_a_right_belief_is_right(folder: Path, cfmon: Run) -> None:
    code, out, err = cfmon("report", "cfmon.yaml", "may.rec", "--json", "-o", "may.md")
    assert (code, err) == (0, "")
    belief, known = json.loads(out)["belief"], sum("state" in step for step in SENT)
    assert (belief["calibrated"], belief["steps"], belief["episodes"]) == (True, known, EPISODES)
    assert belief["unknown"] == len(SENT) - known > 0
    true = sum(each["every"]["count"] * each["every"]["frequency"] for each in belief["tenths"])
    assert true == pytest.approx(known), "at each step, one state is the true one"
    page = (folder / "may.md").read_text("utf-8")
    assert "**The belief about the hidden state was right, as far as these recordings show.**" in page
    assert page.count("| right |") == len(belief["tenths"])
    code, out, _ = cfmon("report", "cfmon.yaml", "may.rec")
    assert code == 0
    assert f"Compared the belief with the true state at {known:,} steps of {EPISODES} episodes" in " ".join(out.split())


def test_a_wrong_sensor_makes_a_belief_that_is_wrong(folder: Path, cfmon: Run) -> None:
    save_model(model(0.5), folder / "robot.npz")
    code, out, _ = cfmon("report", "cfmon.yaml", "may.rec", "-o", "may.html")
    assert code == 1
    assert "The belief about the hidden state was WRONG: of 1" in " ".join(out.split())
    assert "<td>WRONG</td>" in (folder / "may.html").read_text("utf-8")


def test_without_true_states_there_is_nothing_to_judge(folder: Path, cfmon: Run) -> None:
    sent = [{key: value for key, value in step.items() if key != "state"} for step in SENT[:20]]
    record(folder / "june.rec", folder / "cfmon.yaml", sent)
    code, _, err = cfmon("report", "cfmon.yaml", "june.rec")
    assert (code, err.count("\n")) == (2, 1)
    assert "june.rec: holds no step on agents/+/steps whose true state is known" in err
