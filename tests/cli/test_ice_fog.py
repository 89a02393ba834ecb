"""The robot of the demo, whose position is hidden: it acts on what its sensor shows, and publishes that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from monitor.demo import agent
from monitor.demo.agent import SimulatedAgent
from monitor.demo.show import summarise
from monitor.demo.watch import Watcher
from monitor.model import MDP
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.types import Instant
from tests.cli.test_demo import started
from tests.tiers import slow

ROOT = Path(__file__).parents[2]
CONFIG, POLICIES = ROOT / "config" / "ice-fog.yaml", ROOT / "policies" / "ice-fog"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return assemble(CONFIG, {})


def robot(loaded: Loaded, seed: int, policy: str = "hasty") -> SimulatedAgent:
    return SimulatedAgent.of(loaded.model, POLICIES / f"{policy}.yaml", seed)


def test_it_publishes_what_it_sees_beside_the_true_state(loaded: Loaded) -> None:
    messages = list(robot(loaded, 0).messages(400))
    assert messages == list(robot(loaded, 0).messages(400))
    assert messages != list(robot(loaded, 1).messages(400))
    assert isinstance(loaded.model, MDP)
    assert loaded.model.emissions is not None
    for message in messages:
        assert isinstance(message["state"], int)
        assert message["observation"] in {None, *loaded.model.emissions.row(message["state"])[0].tolist()}
    lost = sum(message["observation"] is None for message in messages)
    expected, deviation = agent.LOST * len(messages), np.sqrt(len(messages) * agent.LOST * (1 - agent.LOST))
    assert abs(lost - expected) < 4.9 * deviation  # two-sided 1e-6 of a normal


def test_it_acts_on_what_the_monitor_does_not_get(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reading is lost on the way to the monitor, not to the robot."""
    monkeypatch.setattr(agent, "LOST", 1.0)
    blind = list(robot(loaded, 3).messages(50))
    assert {message["observation"] for message in blind} == {None}
    monkeypatch.setattr(agent, "LOST", 0.0)
    seeing = list(robot(loaded, 3).messages(50))
    assert [message.get("action") for message in blind] == [message.get("action") for message in seeing]


def test_a_controller_begins_each_episode_without_memory(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "LOST", 0.0)
    parts = json.loads((POLICIES / "careful.json").read_text())
    messages = list(robot(loaded, 0, "careful").messages(300))
    remembered = set()
    for _, episode in groupby(messages, key=lambda message: message["episode"]):
        memory = 0
        for message in episode:
            if "action" not in message:
                assert message["terminated"]
                continue
            memory = parts["next"][memory][message["observation"]]
            remembered.add(memory)
            assert message["action"] == parts["choice"][memory][message["observation"]]
    assert remembered == {0, 1}


def alerts(loaded: Loaded, seed: int, steps: int) -> Iterator[dict[str, Any]]:
    pipeline = loaded.pipeline("ice")
    pipeline.step(Connected(Instant(0.0, 0.0), up=True))
    for n, message in enumerate(robot(loaded, seed).messages(steps)):
        now = Instant(1000.0 + n, float(n))
        pipeline.step(Message(now, "agents/demo/steps", msgpack.packb({**message, "time": now.wall})))
        sent = [json.loads(each.payload) for each in pipeline.step(Evaluate(now)).publications]
        yield from (each for each in sent if "alternative" in each)


def test_an_alarm_fires_and_says_what_is_believed_and_another_resolves(loaded: Loaded) -> None:
    sent = list(alerts(loaded, 0, 20))
    fired = next(alert for alert in sent if alert["state"] == "firing")
    assert fired["outcome"] == "regret"
    assert fired["alternative"]["name"] == "careful"
    assert fired["value"] < 0.8 <= fired["alternative"]["value"]
    assert any(alert["state"] == "resolved" for alert in sent)
    believed = [detail for alert in sent for detail in alert["details"] if "not seen" in detail]
    assert any("thin 0." in detail for detail in believed), "it is not certain where it is"


def test_the_watcher_shows_what_was_observed(loaded: Loaded) -> None:
    assert isinstance(loaded.model, MDP)
    watcher = Watcher(loaded.model, "")
    assert watcher._where({"observation": 5}) == "observation 5"  # noqa: SLF001 - what a line shows
    assert watcher._where({"observation": None}) == "no observation"  # noqa: SLF001 - likewise


def test_it_names_commands_that_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), "")
    watcher.seen.alerts.append({"id": "a", "state": "firing", "evidence": {"id": "e1"}})
    assert asyncio.run(summarise(watcher, tmp_path, stopped=True)) == []
    out = capsys.readouterr().out
    assert ("explain" in out, "verify" in out) == (True, True)


def test_alarms_without_evidence_are_a_problem(tmp_path: Path) -> None:
    watcher = Watcher(MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)]), "")
    watcher.seen.alerts += [{"id": "a", "state": state, "evidence": None} for state in ("firing", "resolved")]
    (problem,) = asyncio.run(summarise(watcher, tmp_path, stopped=False))
    assert problem.startswith("no alarm has evidence")


@slow
def test_the_demo_shows_alarms_that_resolve(tmp_path: Path) -> None:
    run = started("demo", "--scenario", "ice-fog", "--steps", "20", "--interval", "0.1", cwd=tmp_path)
    assert run.code == 0, run.out + run.err  # the evidence of an alarm was derived again
    assert "ALARM firing" in run.out
    assert "ALARM resolved" in run.out
