"""An agent with numbers as states: from the client's calls to the guard's takeover, with a broker and a monitor."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from functools import partial
from pathlib import Path

import cfmon_client
import numpy as np
from cfmon_client import Acting, Alert, Takeover

from monitor.worlds import load_world
from tests.servers import Mosquitto, sidecar, wait_until
from tests.worlds.plant import write_plant

FORMULA = {"name": "ahead", "formula": 'regret(careful@1, P>=0.9 [ G<=4 !"overflow" ])'}
SHUT, OPEN = 0, 1
WEATHER = np.array([0.6, 0.0], dtype=np.float32)


def careful(state: np.ndarray) -> int:
    return OPEN if state[0] > 6.5 else SHUT


async def newest(broker: Mosquitto) -> Alert:
    async with aclosing(cfmon_client.alerts(broker.url, agent="tank")) as alerts:
        return await anext(alerts)


def sha256_of(manifest: Path) -> str:
    return str(json.loads(manifest.read_text())["sha256"])


def hands_over(guard: Takeover[np.ndarray, int], state: np.ndarray, action: int) -> bool:
    return guard.action(state, SHUT) == action


def test_a_guard_hands_over_and_back_by_alarms_about_numbers(broker: Mosquitto, tmp_path: Path) -> None:
    """The agent works in 32-bit floats; the noise that comes back of its steps is none the less a point."""
    http = {"listen": "127.0.0.1:0"}
    config = write_plant(tmp_path, mqtt={"url": broker.url}, http=http, formulas=[FORMULA], heartbeat="1s")
    plant, noise = load_world(tmp_path / "world.yaml"), np.full((1, 3), 0.5)
    state, taken = np.array([6.0, 0.0, 9.0], dtype=np.float32), list[Acting]()
    rules = {"when_blind": "carry_on", "when_silent": "carry_on", "severity": "warning", "silent_after": 600.0}
    with (
        sidecar(config) as running,
        cfmon_client.publish(broker.url, "tank", policy=sha256_of(tmp_path / "nominal.yaml")) as steps,
        Takeover(broker.url, "tank", {"careful": careful}, rules=rules) as guard,
    ):
        steps.reset("one")
        guard.reset("one")
        for wanted in (SHUT, SHUT, SHUT, OPEN, SHUT):
            heard = partial(hands_over, guard, state, wanted)
            wait_until(heard, f"the guard has heard of step {len(taken)}")
            taken.append(guard.acting)
            steps.step(state, np.int64(wanted), inputs=WEATHER, policy=guard.acting.sha256)
            moved = plant.step(state[np.newaxis].astype(float), np.array([wanted]), noise, tuple(map(float, WEATHER)))
            state = moved[0].astype(np.float32)
        steps.end(state, truncated=True, inputs=WEATHER)
        assert steps.flush()
        assert (steps.status.refused, steps.status.problem) == ({}, None)
        accepted = 'cfmon_messages_total{result="accepted"}'
        wait_until(lambda: running.metric(accepted) == len(taken) + 1, "every step is one of the world")
    assert [each.policy for each in taken] == ["nominal", "nominal", "nominal", "careful", "nominal"]
    assert (taken[3].sha256, taken[3].cause) == (sha256_of(tmp_path / "careful.yaml"), "alarm")
    alert = asyncio.run(newest(broker))
    assert (alert.formula.name, alert.fired.outcome, alert.episode) == ("ahead", "regret", "one")
