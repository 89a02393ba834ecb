"""`cfmon run --record` on a broker, as processes; then `cfmon replay` of what it recorded: the same bytes again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import aiomqtt
import pytest

from monitor.cli.input_files import data_file
from monitor.demo import agent as agents
from tests.cli.conftest import patient_config
from tests.processes import fork_monitor
from tests.servers import PATIENCE, Mosquitto, mosquitto
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]
LAKE = ("--model", "policies/frozen-lake/model.npz", "--policy", "policies/frozen-lake/rash.yaml")
HOUSE = ("--model", "policies/heating/world.yaml", "--policy", "policies/heating/cheap.yaml",
         "--weather", "policies/heating/weather.csv")  # fmt: skip
ICE = ("--model", "policies/ice-fog/model.npz", "--policy", "policies/ice-fog/hasty.yaml")
OTHERS = {"heating": (HOUSE, '"method":"sampled"'), "ice-fog": (ICE, "Its state is not seen")}
"""Scenario -> its agent, and what an alert says there."""
STEPS = 60
REACHED_AT = "https://cfmon.example"
FIRING = '"state":"firing"'


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory, patient: Path) -> tuple[Path, list[str]]:
    """A recording, and the alerts a subscriber heard while it was made, as replay would print them."""
    folder = tmp_path_factory.mktemp("run")
    with mosquitto(folder / "broker") as broker:
        return folder / "recording", asyncio.run(asyncio.wait_for(live(patient, folder, broker, LAKE), PATIENCE))


async def live(config: Path, folder: Path, broker: Mosquitto, simulated: Sequence[str]) -> list[str]:
    """Run the monitor until it has told of an alarm of an agent that has ended."""
    settings = {
        "CFMON_MQTT__URL": broker.url,
        "CFMON_HTTP__LISTEN": "127.0.0.1:0",
        "CFMON_HTTP__URL": REACHED_AT,
        "CFMON_STORE__PATH": str(folder / "cfmon.sqlite"),
    }
    agent = [each if each.startswith("--") else str(data_file(each)) for each in simulated]
    agent += ["--url", broker.url, "--topic", "agents/a/steps"]
    heard: list[str] = []
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        await client.subscribe("cfmon/#", qos=1)
        command = ("run", str(config), "--record", str(folder / "recording"))
        sidecar = fork_monitor(*command, log=folder / "log", env={**os.environ, **settings})
        try:
            acted = told = False
            async for message in client.messages:
                payload = bytes(message.payload).decode()
                if str(message.topic).startswith("cfmon/alerts"):
                    heard.append(f'{{"topic":"{message.topic}","payload":{payload}}}')
                elif json.loads(payload)["state"] == "offline":
                    break
                if not acted:
                    lasts = ["--steps", str(STEPS), "--interval", "0.005", "--seed", "1"]
                    assert await asyncio.to_thread(agents.main, [*agent, *lasts]) == 0
                    acted = True
                if not told and any(FIRING in line for line in heard):
                    sidecar.send_signal(signal.SIGTERM)
                    told = True
            assert await asyncio.to_thread(sidecar.wait, PATIENCE) == 0
        finally:
            sidecar.kill()
    return heard


def test_a_replay_says_what_was_said_live(
    lived: tuple[Path, list[str]], cfmon: Run, patient: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFMON_HTTP__URL", REACHED_AT)  # as it was live: the link to the runbook follows from it
    recording, heard = lived
    assert any(FIRING in line for line in heard)
    outputs = [cfmon("replay", str(patient), str(recording)) for _ in range(2)]
    assert outputs[0] == outputs[1]
    code, out, err = outputs[0]
    assert code == 0
    assert "recorded with a configuration other than" in err  # the broker's address, by the environment
    assert [line for line in out.splitlines() if '"topic":"cfmon/alerts' in line] == heard
    assert all(json.loads(line)["topic"] for line in out.splitlines())


@slow
@pytest.mark.parametrize("scenario", OTHERS)
def test_a_replay_of_another_scenario_says_what_was_said_live(
    tmp_path: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    simulated, said = OTHERS[scenario]
    monkeypatch.setenv("CFMON_HTTP__URL", REACHED_AT)
    config = patient_config(f"config/{scenario}.yaml", tmp_path / f"{scenario}.yaml")
    with mosquitto(tmp_path / "broker") as broker:
        heard = asyncio.run(asyncio.wait_for(live(config, tmp_path, broker, simulated), 4 * PATIENCE))
    assert any(said in line for line in heard)
    code, out, _ = cfmon("replay", str(config), str(tmp_path / "recording"))
    assert code == 0
    assert [line for line in out.splitlines() if '"topic":"cfmon/alerts' in line] == heard


def test_a_replay_ends_with_what_was_read_and_rejected(tmp_path: Path, cfmon: Run, patient: Path) -> None:
    lines = ["state,action,t", *(f"{state},0,{t}" for t, state in enumerate([0, 1, 999, 1, 998, 1]))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert cfmon("recording", "convert", str(tmp_path / "log.csv"), "--to", str(tmp_path / "log.rec"))[0] == 0
    code, _, err = cfmon("replay", str(patient), str(tmp_path / "log.rec"))
    assert code == 0
    counted = "6 messages read: 4 accepted, 2 rejected (unknown_state 2); "
    assert err.startswith(f"cfmon: {tmp_path / 'log.rec'}: {counted}"), err
    assert "the first rejected as unknown_state: 999 is not a state of the model (a whole number in 0.." in err
    assert "configuration other than" not in err, "a converted recording has none"


def test_speed_changes_nothing_but_time(lived: tuple[Path, list[str]], cfmon: Run, patient: Path) -> None:
    recording, _ = lived
    assert (
        cfmon("replay", str(patient), str(recording), "--speed", "1000")[1]
        == cfmon("replay", str(patient), str(recording))[1]
    )


def test_a_recording_that_is_none_is_the_users_error(tmp_path: Path, cfmon: Run, patient: Path) -> None:
    (tmp_path / "no-recording").write_bytes(b"\xc1")
    code, out, err = cfmon("replay", str(patient), str(tmp_path / "no-recording"))
    assert (code, out) == (2, "")
    assert "no-recording" in err
