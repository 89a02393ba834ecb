"""`cfmon report`: a configuration judged by its recordings, beside what is counted from the same steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.proposal.replayed import event_of, holds
from monitor.model import MDP, save_model
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.sidecar.recording import Header, Recorder
from monitor.types import Instant

Run = Callable[..., tuple[int, str, str]]

CONFIG = """\
mqtt: {{url: "mqtt://127.0.0.1:1883", steps: "agents/+/steps"}}
model: model.npz
policies: {{nominal: climb.yaml, careful: stay.yaml}}
formulas:
  - {{name: regret, formula: 'regret(careful@1, P>=0.8 [ G<=3 !"over" ])', alarm: {{for: 1, keep: 1}}}}
{more}
store: {{path: null}}
"""
UP = 0.5


def stairs(folder: Path, more: str = "") -> None:
    """Stairs from 0 to 4, whose top is over; the agent climbs half of its steps, and stays under `careful`."""
    rows = [(s, 0, t, UP) for s in range(4) for t in (s, s + 1)] + [(s, 1, s, 1.0) for s in range(4)]
    rows += [(4, a, 4, 1.0) for a in range(2)]
    save_model(
        MDP.from_transitions(states=5, actions=2, transitions=rows, labels={"over": [4]}, initial={0: 1.0}),
        folder / "model.npz",
    )
    (folder / "climb.json").write_text("[0, 0, 0, 0, 0]")
    (folder / "stay.json").write_text("[1, 1, 1, 1, 1]")
    (folder / "config.yaml").write_text(CONFIG.format(more=more))


def recorded(path: Path, config: Path, walks: Sequence[Sequence[int]], seconds: float = 60.0) -> None:
    """Write walks as episodes of one agent, a step each so many seconds."""
    loaded = assemble(config, {})
    recorder = Recorder(path, Header("m", loaded.config.digest, loaded.identity.model_sha256, "test"))
    recorder.write(Connected(Instant(0.0, 0.0), up=True))
    now = 0.0
    for episode, walk in enumerate(walks):
        for seq, state in enumerate(walk):
            last = seq == len(walk) - 1
            step = {"v": 1, "episode": episode, "seq": seq, "state": state,
                    **({"truncated": True} if last else {"action": 0})}  # fmt: skip
            recorder.write(Message(Instant(now, now), "agents/a/steps", json.dumps(step).encode()))
            recorder.write(Evaluate(Instant(now, now)))
            now += seconds
    recorder.close()


def walks(rng: np.random.Generator, count: int, climbing: Callable[[int], float]) -> list[list[int]]:
    """Walks of ten steps; `climbing`: the chance of a step up, by state."""
    found = []
    for _ in range(count):
        walk = [int(rng.integers(4))]
        for _ in range(9):
            walk.append(min(walk[-1] + int(rng.random() < climbing(walk[-1])), 4))
        found.append(walk)
    return found


@pytest.fixture
def folder(tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    stairs(tmp_path)
    for name in ("climb", "stay"):
        assert cfmon("policy", "export", f"{name}.json", f"{name}.onnx", "--model", "model.npz")[0] == 0
    return tmp_path


def test_forecasts_and_alarms_are_those_of_the_steps(folder: Path, cfmon: Run) -> None:
    seen = walks(np.random.default_rng(1), 60, lambda _: UP)
    recorded(folder / "may.rec", folder / "config.yaml", seen)
    code, out, err = cfmon("report", "config.yaml", "may.rec", "-o", "r.html", "-o", "r.md", "--json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)["formulas"]
    (skill,) = found["forecasts"]
    # P(over within 3 steps) is exact from each state: at least 4 - s ups of 3
    chance = [0.0, 1 / 8, 1 / 2, 7 / 8]
    made = [(chance[walk[t]], 4 in walk[t + 1 : t + 4]) for walk in seen for t in range(1, 7) if walk[t] < 4]
    # a recording that goes on is needed, or the label within it
    assert skill["count"] == len(made)
    assert skill["said"] == pytest.approx(np.mean([said for said, _ in made]))
    assert skill["happened"]["value"] == pytest.approx(np.mean([came for _, came in made]))
    assert skill["brier"] == pytest.approx(np.mean([(said - came) ** 2 for said, came in made]))
    alarms = found["alarms"]
    assert alarms["events"] == sum(walk[0] < 4 == walk[-1] for walk in seen)
    assert alarms["steps a day"] == pytest.approx(1440 * 600 / 599)
    assert 0 < alarms["preceded"] <= alarms["events"]
    text = Path("r.md").read_text("utf-8")
    assert text.splitlines()[2].startswith(
        "**Good enough. Forecasts of 'over' within 3 steps were right: on average they said "
    )
    assert "alarms a day" in text
    assert Path("r.html").read_text("utf-8").count("<svg") == 2, "reliability, and steps ahead"
    replayed = cfmon("replay", "config.yaml", "may.rec")[1].splitlines()
    payloads = [json.loads(line)["payload"] for line in replayed]
    fired = {each["id"] for each in payloads if each and each.get("state") == "firing"}
    assert alarms["alarms"] == len(fired)


def test_forecasts_of_another_world_are_no_better_than_the_base_rate(folder: Path, cfmon: Run) -> None:
    seen = walks(np.random.default_rng(2), 60, lambda state: 0.9 if state == 0 else 0.2)
    recorded(folder / "june.rec", folder / "config.yaml", seen)
    code, out, _ = cfmon("report", "config.yaml", "june.rec")
    assert code == 1
    assert "regret: No better than the base rate, as far as these recordings show. Forecasts of 'over' within" in out
    assert "3 steps were WRONG" in " ".join(out.split())


def test_what_cannot_be_judged_is_said(folder: Path, cfmon: Run) -> None:
    stairs(folder, "  - {name: reach, formula: 'P>=0.1 [ F<=3 \"over\" ]'}")
    recorded(folder / "low.rec", folder / "config.yaml", [[0, 0, 0], [0, 0, 1]])
    code, out, _ = cfmon("report", "config.yaml", "low.rec")
    assert code == 0
    assert "regret: Nothing counts against the model, but its forecasts are NOT judged." in out
    assert "'over' always or never came" in out
    assert "reach: Nothing counts against" in out
    assert "its goal is not of the form P>=p [ G<=h CONDITION ]" in out


def test_bad_input_is_one_message(folder: Path, cfmon: Run) -> None:
    code, _, err = cfmon("report", "config.yaml", "none.rec")
    assert (code, err.count("\n")) == (2, 1)
    recorded(folder / "empty.rec", folder / "config.yaml", [])
    code, _, err = cfmon("report", "config.yaml", "empty.rec")
    assert (code, "holds no step of this configuration's model on agents/+/steps" in err) == (2, True)
    code, _, err = cfmon("report", "config.yaml", "empty.rec", "-o", "r.pdf")
    assert (code, "ends with .html or .md" in err) == (2, True)


def test_events_of_formulas() -> None:
    found = event_of('regret(careful@2, P>=0.8 [ G<=7 (!"over" & (!"low" | "ok")) ])')
    assert found is not None
    assert found.horizon == 7
    marks = {name: np.array(rows) > 0 for name, rows in (("over", [1, 0, 0]), ("low", [0, 1, 1]), ("ok", [0, 0, 1]))}
    assert holds(found.condition, marks.__getitem__).tolist() == [True, True, False]
    simple = event_of('P>0.5 [ G<=4 !"over" ]')
    assert simple is not None
    assert (simple.name, simple.query) == ("over", 'nominal@0.P=? [ G<=4 !"over" ]')
    for text in ('P>=0.5 [ F<=4 "over" ]', 'P<=0.5 [ G<=4 "over" ]', 'P>=0.5 [ G[2,4] !"over" ]', "R>=1 [ C<=4 ]"):
        assert event_of(text) is None
