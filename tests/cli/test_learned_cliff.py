"""200,000 recorded steps of CliffWalkingSlippery, learned and monitored: the true model's answers lie in the bands.

Everything begins with Gymnasium's own table of the dynamics: the recording, the stream and the true answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from monitor import MDP, check, load_model
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.sidecar.recording import Header, Recorder, Recording
from monitor.types import Instant, Judged, Verdict
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]
Ints = npt.NDArray[np.int64]

WALKERS, ROUNDS = 500, 400
"""Episodes recorded side by side, and steps of each: 200,000 in all."""
LONGEST = 100
"""Steps after which a recorded episode is cut off."""
STREAM = 150
"""Steps that are monitored."""
START, GOAL, ROW = 36, 47, 12
UP, RIGHT, DOWN = 0, 1, 2
FORMULA = 'regret(careful@2, P>=0.8 [ G[1,6] !"fell" ])'
PROMISED, ALLOWED = 0.95, 0.05
"""Level of credible bands, which is a mean over recordings; how far one recording may miss it: its errors are shared by
all answers of the stream.
"""
CLOSE = 1e-9


@dataclass(frozen=True)
class Dynamics:
    """Gymnasium's table as arrays [48, 4, 3]: the three successors, equally likely, their rewards, whether they end."""

    successors: Ints
    rewards: Ints
    ends: npt.NDArray[np.bool_]

    def step(self, states: Ints, actions: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        at = states, actions, rng.integers(3, size=len(states))
        return self.successors[at], self.rewards[at], self.ends[at]


@pytest.fixture(scope="module")
def dynamics() -> Dynamics:
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    table = gymnasium.make("CliffWalkingSlippery-v1").unwrapped.P
    entries = np.array([[table[s][a] for a in range(4)] for s in range(48)], dtype=np.float64)
    np.testing.assert_allclose(entries[..., 0], 1 / 3)
    return Dynamics(entries[..., 1].astype(np.int64), entries[..., 2].astype(np.int64), entries[..., 3] > 0)


def along(row: int) -> Ints:
    """Return the policy that goes up to a row, right to its end, and down to the goal."""
    states = np.arange(GOAL + 1)
    policy = np.where(states // ROW > row, UP, RIGHT)
    policy[states % ROW == ROW - 1] = DOWN
    return policy


NOMINAL = along(2)
CAREFUL = np.where(np.arange(GOAL + 1) % ROW == ROW - 1, DOWN, UP)


def record(dynamics: Dynamics, file: Path, rng: np.random.Generator) -> None:
    """Write what 500 walkers did, as a user's own loop would: mostly along one of the rows, else anything."""
    lines = ["episode,step,state,action,reward,next_state,terminated,truncated"]
    policies = np.stack([along(row) for row in range(3)])
    walker, states = np.arange(WALKERS), np.full(WALKERS, START)
    episode, steps = np.arange(WALKERS), np.zeros(WALKERS, np.int64)
    for _ in range(ROUNDS):
        anything = rng.random(WALKERS) < 0.4
        actions = np.where(anything, rng.integers(4, size=WALKERS), policies[walker % 3, states])
        after, rewards, ended = dynamics.step(states, actions, rng)
        cut = steps + 1 == LONGEST
        columns = (episode, steps, states, actions, rewards, after, ended.astype(np.int64), cut.astype(np.int64))
        lines += [",".join(map(str, row)) for row in np.column_stack(columns).tolist()]
        over = ended | cut
        states, steps = np.where(over, START, after), np.where(over, 0, steps + 1)
        episode = np.where(over, episode + WALKERS, episode)
    file.write_text("\n".join(lines) + "\n")


def agent(dynamics: Dynamics, rng: np.random.Generator) -> list[dict[str, object]]:
    """Return the messages of an agent under the nominal policy, until the first episode that ends after 150 steps."""
    messages: list[dict[str, object]] = []
    episode = seq = 0
    state, ended = START, False
    while len(messages) < STREAM or not ended:
        if ended:
            episode, seq, state = episode + 1, 0, START
        action = int(NOMINAL[state])
        messages.append({"v": 1, "episode": episode, "seq": seq, "state": state, "action": action})
        after, _, over = dynamics.step(np.array([state]), np.array([action]), rng)
        state, ended, seq = int(after[0]), bool(over[0]), seq + 1
        if ended:
            messages.append({"v": 1, "episode": episode, "seq": seq, "state": state, "terminated": True})
    return messages


@pytest.fixture
def _folder(cfmon: Run, dynamics: Dynamics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with what a user has after `model learn`, `policy export` and a recorded stream."""
    monkeypatch.chdir(tmp_path)
    record(dynamics, Path("steps.csv"), np.random.default_rng(0))
    code, out, _ = cfmon(
        "model", "learn", "steps.csv", "-o", "cliff.npz", "--unsafe", f"fell: state == {START}", "--json"
    )
    assert (code, json.loads(out)["transitions counted"]) == (0, WALKERS * ROUNDS)
    for name, policy in (("nominal", NOMINAL), ("careful", CAREFUL)):
        table = [*policy.tolist(), UP, UP]  # the goal's copy at the end of an episode, and `elsewhere`
        Path(f"{name}.json").write_text(json.dumps(table))
        assert cfmon("policy", "export", f"{name}.json", f"{name}.onnx", "--model", "cliff.npz")[0] == 0
    Path("cliff.yaml").write_text(
        "model: cliff.npz\nstore: {path: null}\n"
        "policies: {nominal: nominal.yaml, careful: careful.yaml}\n"
        f"formulas:\n  - {{name: fall, formula: '{FORMULA}', causal_model: any, bands: always}}\n"
    )
    assert cfmon("config", "check", "cliff.yaml")[0] == 0
    recorded(agent(dynamics, np.random.default_rng(1)), Path("stream.rec"))


def recorded(messages: list[dict[str, object]], file: Path) -> None:
    """Write a recording of a sidecar that received these messages, a second apart."""
    recorder = Recorder(file, Header("test", assemble("cliff.yaml").config.digest, "m" * 64, "0"))
    recorder.write(Connected(Instant(0.0, 0.0), up=True))
    for n, message in enumerate(messages):
        now = Instant(float(n), float(n))
        recorder.write(Message(now, "agents/ada/steps", json.dumps(message).encode()))
        recorder.write(Evaluate(now))
    recorder.close()


def judged() -> list[Judged]:
    """Return every verdict on the recorded stream."""
    found: list[Judged] = []
    with Recording(Path("stream.rec")) as events:
        pipeline = assemble("cliff.yaml").pipeline(events.header.client_id)
        for event in events:
            found += [notice for notice in pipeline.step(event).notices if isinstance(notice, Judged)]
    return found


def truth(true: MDP, notice: Judged, messages: list[dict[str, object]]) -> Verdict:
    """Return the true model's verdict at the step of another, with bounds over every causal model."""
    steps = [m for m in messages if m["episode"] == notice.episode and int(str(m["seq"])) <= notice.seq]
    path = [(int(str(m["state"])), m.get("action")) for m in steps]
    ended = "terminated" in steps[-1]
    if ended:
        path[-1] = true.ended(path[-1][0]), None
    policies = {
        name: [*policy.tolist(), *[UP] * (true.states - 48)]
        for name, policy in (("nominal", NOMINAL), ("careful", CAREFUL))
    }
    return check(FORMULA, model=true, path=path, policies=policies, causal_model="any", terminated=ended)


@slow
@pytest.mark.usefixtures("_folder")
def test_an_alarm_is_raised_and_the_true_answers_lie_in_the_bands(cfmon: Run, dynamics: Dynamics) -> None:
    code, out, err = cfmon("replay", "cliff.yaml", "stream.rec")
    assert (code, err.count("\n"), "rejected" in err) == (0, 1, False)
    published = [json.loads(line) for line in out.splitlines()]
    alerts = [each["payload"] for each in published if each["topic"] == "cfmon/alerts/ada/fall" and each["payload"]]
    assert alerts[0]["state"] == "firing"
    assert alerts[0]["outcome"] == "regret"
    assert alerts[0]["bands"]["alternative"]["guaranteed"] is not None

    messages, verdicts = agent(dynamics, np.random.default_rng(1)), judged()
    assert len(verdicts) == len(messages)
    true = load_model("gymnasium:CliffWalkingSlippery-v1")
    true = replace(true, labels={"fell": np.arange(true.states) == START})
    held: list[bool] = []
    widths: list[float] = []
    for notice in verdicts:
        found, expected = notice.verdict, truth(true, notice, messages)
        for learned, real in zip(found.quantities, expected.quantities, strict=True):
            assert learned.guaranteed is not None
            assert learned.credible is not None
            assert real.bounds is not None
            assert learned.guaranteed[0] <= real.bounds[0] + CLOSE
            assert real.bounds[1] <= learned.guaranteed[1] + CLOSE
            if learned.credible[1] - learned.credible[0] > CLOSE:  # else the data leave nothing open
                held.append(learned.credible[0] <= real.value <= learned.credible[1])
                widths.append(learned.guaranteed[1] - learned.guaranteed[0])
    assert len(held) > 50
    assert np.mean(held) >= PROMISED - ALLOWED
    assert 0.0 < np.median(widths) < 0.2
