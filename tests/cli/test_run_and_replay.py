"""`cfmon run --record` on a broker, as processes; then `cfmon replay` of what it recorded: the same bytes again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import aiomqtt
import pytest

from monitor.cli.embedded import embedded_broker, free_port
from monitor.cli.files import data_file
from tests.servers import PATIENCE

Run = Callable[..., tuple[int, str, str]]
CONFIG = data_file("config/frozen-lake.yaml")
MODEL, POLICY = data_file("policies/frozen-lake/model.npz"), data_file("policies/frozen-lake/rash.yaml")
STEPS = 60
REACHED_AT = "https://cfmon.example"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A recording, and the alerts a subscriber heard while it was made, as replay would print them."""
    recording = tmp_path_factory.mktemp("run") / "recording"
    return recording, asyncio.run(asyncio.wait_for(live(recording), PATIENCE))


async def live(recording: Path) -> list[str]:
    port = free_port()
    url = f"mqtt://127.0.0.1:{port}"
    settings = {
        "CFMON_MQTT__URL": url,
        "CFMON_MQTT__VERSION": "3.1.1",  # the embedded broker speaks no other
        "CFMON_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
        "CFMON_HTTP__URL": REACHED_AT,
        "CFMON_STORE__PATH": str(recording.parent / "cfmon.sqlite"),
    }
    agent = ["--model", str(MODEL), "--policy", str(POLICY), "--url", url, "--topic", "agents/a/steps"]
    async with embedded_broker(port), aiomqtt.Client("127.0.0.1", port) as client:
        await client.subscribe("cfmon/#", qos=1)
        sidecar = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "monitor", "run", str(CONFIG), "--record", str(recording)),
            env={**os.environ, **settings},
        )
        heard: list[str] = []
        async for message in client.messages:
            payload = bytes(message.payload).decode()
            if str(message.topic).startswith("cfmon/alerts"):
                heard.append(f'{{"topic":"{message.topic}","payload":{payload}}}')
            elif json.loads(payload)["state"] == "offline":
                break
            elif not heard:
                acting = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "monitor.cli.agent", *agent),
                    *("--steps", str(STEPS), "--interval", "0.005", "--seed", "1"),
                )
                assert await acting.wait() == 0
                sidecar.send_signal(signal.SIGTERM)
        assert await sidecar.wait() == 0
    return heard


def test_a_replay_says_what_was_said_live(
    lived: tuple[Path, list[str]], cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFMON_HTTP__URL", REACHED_AT)  # as it was live: the link to the runbook follows from it
    recording, heard = lived
    assert any('"state":"firing"' in line for line in heard)
    outputs = [cfmon("replay", str(CONFIG), str(recording)) for _ in range(2)]
    assert outputs[0] == outputs[1]
    code, out, err = outputs[0]
    assert code == 0
    assert "recorded with a configuration other than" in err  # the broker's address, by the environment
    assert [line for line in out.splitlines() if '"topic":"cfmon/alerts' in line] == heard
    assert all(json.loads(line)["topic"] for line in out.splitlines())


def test_speed_changes_nothing_but_time(lived: tuple[Path, list[str]], cfmon: Run) -> None:
    recording, _ = lived
    assert (
        cfmon("replay", str(CONFIG), str(recording), "--speed", "1000")[1]
        == cfmon("replay", str(CONFIG), str(recording))[1]
    )


def test_a_recording_that_is_none_is_the_users_error(tmp_path: Path, cfmon: Run) -> None:
    (tmp_path / "no-recording").write_bytes(b"\xc1")
    code, out, err = cfmon("replay", str(CONFIG), str(tmp_path / "no-recording"))
    assert (code, out) == (2, "")
    assert "no-recording" in err
