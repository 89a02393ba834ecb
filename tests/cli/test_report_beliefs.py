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
from tests.hidden.files import write_network
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
HORIZON, BACK = 3, 1
FORMULAS = [
    {
        "name": "guard",
        "formula": f'@{BACK}.P>=0.6 [ G<={HORIZON} !"fallen" ]',
        "alarm": {"for": 1, "keep": 1},
    },
    {"name": "icy", "formula": 'P>=0.1 [ G<=1 !"ice" ]'},
    {"name": "reach", "formula": 'wary@2.P<=0.4 [ F<=2 "ice" ]'},
]
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
    write_robot(tmp_path, store={"path": None}, formulas=FORMULAS)
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
    assert "**The belief about the hidden state was right, as far as these recordings show. guard: Good enough." in page
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


def within(horizon: int) -> list[float]:
    """P(fallen now or within so many steps) under the nominal policy, which goes, for each state."""
    found, world = [0.0, 0.0, 1.0], robot()
    for _ in range(horizon):
        rows = [world.row(s, GO) for s in range(3)]
        found = [1.0 if s == FALLEN else sum(p * found[t] for t, p in zip(*rows[s], strict=True)) for s in range(3)]
    return found


def filtered(shown: list[int | None]) -> list[list[float]]:
    """The belief at each step, by the forward algorithm."""
    world, belief, found = robot(), [0.5, 0.5, 0.0], []
    for seq, seen in enumerate(shown):
        if seq:
            rows = [world.row(s, GO) for s in range(3)]
            moved = [0.0] * 3
            for s in range(3):
                for t, p in zip(*rows[s], strict=True):
                    moved[t] += belief[s] * p
            belief = moved
        likely = [1.0 if seen is None else SHOWS[s] if seen else 1 - SHOWS[s] for s in range(3)]
        joint = [b * e for b, e in zip(belief, likely, strict=True)]
        belief = [each / sum(joint) for each in joint]
        found.append(belief)
    return found


def episodes(sent: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[step for step in sent if step["episode"] == n] for n in range(EPISODES)]


def fallen(step: dict[str, Any]) -> bool | None:
    return None if "state" not in step else step["state"] in (FALLEN, NAMES[FALLEN])


@pytest.mark.usefixtures("folder")
def test_forecasts_are_judged_by_true_states_that_are_known_until_the_horizon(cfmon: Run) -> None:
    _, out, _ = cfmon("report", "cfmon.yaml", "may.rec", "--json")
    guard, icy, reach = json.loads(out)["formulas"]
    made = []
    for walk in episodes(SENT):
        beliefs, truths = filtered([step["observation"] for step in walk]), [fallen(step) for step in walk]
        for t in range(1, len(walk) - HORIZON):
            ahead = truths[t : t + HORIZON + 1]
            if None not in ahead:
                made.append((sum(b * f for b, f in zip(beliefs[t], within(HORIZON), strict=True)), any(ahead)))
    (skill,) = guard["forecasts"]
    assert 500 < len(made) < EPISODES * 6
    assert skill["count"] == len(made)
    assert skill["said"] == pytest.approx(np.mean([said for said, _ in made]))
    assert skill["happened"]["value"] == pytest.approx(np.mean([came for _, came in made]))
    assert skill["brier"] == pytest.approx(np.mean([(said - came) ** 2 for said, came in made]))
    assert guard["verdict"][0].startswith("Good enough. Forecasts of 'fallen' within 3 steps were right")
    unknown = sum("state" not in step for step in SENT)
    assert f"Not judged: {unknown} steps at which it is not known whether 'fallen' held" in guard["verdict"][0]
    assert icy["forecasts"][0]["count"] > len(made), "its horizon is shorter"
    assert reach["forecasts"] == []
    assert "its goal is not of the form" in reach["verdict"][0]


@pytest.mark.usefixtures("folder")
def test_alarms_are_judged_where_the_goal_is_decided(cfmon: Run) -> None:
    _, out, _ = cfmon("report", "cfmon.yaml", "may.rec", "--json")
    counts = json.loads(out)["formulas"][0]["alarms"]
    lines = cfmon("replay", "cfmon.yaml", "may.rec")[1].splitlines()
    payloads = [payload for line in lines if (payload := json.loads(line)["payload"])]
    fired = {
        each["id"]: (each["episode"], each["fired"]["seq"])
        for each in payloads
        if each.get("state") == "firing" and each["formula"]["name"] == "guard"
    }
    judged = false = events = preceded = steps = 0
    for number, walk in enumerate(episodes(SENT)):
        truths = [fallen(step) for step in walk]
        alarms = [seq for episode, seq in fired.values() if episode == number]

        def ahead(t: int, truths: list[bool | None] = truths) -> list[bool | None]:
            return truths[max(t - BACK, 0) : t + HORIZON + 1]

        steps += sum(None not in ahead(t) for t in range(len(walk) - 1))
        mine = [t for t in alarms if None not in ahead(t)]
        judged += len(mine)
        false += sum(not any(ahead(t)) for t in mine)
        entered = [t for t in range(1, len(walk)) if truths[t] is True and truths[t - 1] is False]
        events += len(entered)
        preceded += sum(any(e - HORIZON <= t < e for t in alarms) for e in entered)
    assert 0 < judged < len(fired)
    assert 0 < false < judged
    assert 0 < preceded < events
    assert [counts[name] for name in ("alarms", "false", "events", "preceded")] == [judged, false, events, preceded]
    assert counts["steps"] == steps


def test_what_observations_decide_needs_no_true_state(folder: Path, cfmon: Run) -> None:
    """The sensor shows a fall as what it is. At a step that shows it, nothing is forecast any more."""
    shown = {GROUND: (0.9, 0.1, 0.0), ICE: (0.3, 0.7, 0.0), FALLEN: (0.0, 0.0, 1.0)}
    world = robot()
    moves = [
        (s, a, int(t), float(p)) for s in range(3) for a in (GO, CREEP) for t, p in zip(*world.row(s, a), strict=True)
    ]
    emissions = [(s, o, p) for s, row in shown.items() for o, p in enumerate(row) if p]
    labels, initial = {"fallen": [FALLEN], "ice": [ICE]}, {GROUND: 0.5, ICE: 0.5}
    changed = MDP.from_transitions(
        states=3, actions=2, transitions=moves, labels=labels, initial=initial, signals=3, emissions=emissions
    )
    save_model(changed, folder / "robot.npz")
    for name, action in (("nominal", GO), ("careful", CREEP)):
        write_network(folder / f"{name}.yaml", [action] * 3)
    policies = {"nominal": "nominal.yaml", "careful": "careful.yaml"}
    config = json.loads((folder / "cfmon.yaml").read_text()) | {"policies": policies, "formulas": FORMULAS[:2]}
    (folder / "cfmon.yaml").write_text(json.dumps(config))
    rng, sent = np.random.default_rng(5), []
    for episode in range(EPISODES):
        state = int(rng.integers(2))
        for seq in range(10):
            ends = {"truncated": True} if seq == 9 else {"action": GO}
            seen = int(rng.choice(3, p=shown[state]))
            sent.append({"v": 1, "episode": episode, "seq": seq, "observation": seen, **ends})
            state = int(rng.choice(world.row(state, GO)[0], p=world.row(state, GO)[1]))
    record(folder / "june.rec", folder / "cfmon.yaml", sent)
    _, out, _ = cfmon("report", "cfmon.yaml", "june.rec", "--json", "-o", "june.md")
    guard, icy = json.loads(out)["formulas"]
    falls = [[step["observation"] == 2 for step in walk] for walk in episodes(sent)]
    made = [any(each[t : t + HORIZON + 1]) for each in falls for t in range(1, 10 - HORIZON) if not each[t]]
    (skill,) = guard["forecasts"]
    assert skill["count"] == len(made)
    assert skill["happened"]["value"] == pytest.approx(np.mean(made))
    assert guard["alarms"]["events"] == sum(any(each[1:]) for each in falls)
    assert guard["alarms"]["steps"] == EPISODES * 9
    assert (
        "The belief about the hidden state is NOT judged, as no true state was recorded." in Path("june.md").read_text()
    )
    known, steps = sum(map(sum, falls)), EPISODES * 10
    assert f"{steps - known} steps at which it is not known whether 'ice' held" in icy["verdict"][0]
    assert "forecasts, as 'ice' always or never came" in icy["verdict"][0], "after a fall there is no ice"


def test_forecasts_by_a_wrong_sensor_are_wrong(folder: Path, cfmon: Run) -> None:
    save_model(model(0.9), folder / "robot.npz")
    code, out, _ = cfmon("report", "cfmon.yaml", "may.rec")
    assert code == 1
    assert "Forecasts of 'fallen' within 3 steps were WRONG" in " ".join(out.split())


def test_steps_that_the_model_does_not_have_are_left_out(folder: Path, cfmon: Run) -> None:
    wrong: list[dict[str, Any]] = [
        {"state": 1},
        {"observation": 7, "state": 1},
        {"observation": 0, "action": 5},
        {"observation": None, "state": 9},
    ]
    sent = [{"v": 1, "episode": 900, "seq": n, "action": GO, **each} for n, each in enumerate(wrong)]
    record(folder / "june.rec", folder / "cfmon.yaml", SENT + sent)
    _, out, _ = cfmon("report", "cfmon.yaml", "june.rec")
    assert f"Replayed {len(SENT) + 1:,} steps" in " ".join(out.split()), "a true state that is none is not known"
    assert "3 steps that the model does not have left out" in " ".join(out.split())
