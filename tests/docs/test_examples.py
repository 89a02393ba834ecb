"""The examples of the documentation are what really goes in and comes out: each is made again and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgpack
import pytest
import yaml
from typer.main import get_command

from monitor.cli.app import app
from monitor.cli.input_files import data_file
from monitor.demo.agent import SimulatedAgent
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.sidecar.webhooks.cloud_event import read_alert, write_event
from monitor.sidecar.webhooks.signature import parse_secrets, signed_headers
from monitor.stream import decode
from monitor.types import Instant

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
MESSAGES = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/messages").glob("*.md")))
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
CONFIG = data_file("config/icu-sepsis.yaml")


def example(name: str, text: str = MESSAGES) -> str:
    """The first block under the heading of this name."""
    _, section = re.split(rf"^#+ {re.escape(name)}$", text, maxsplit=1, flags=re.MULTILINE)
    found = re.search(r"^```\w+\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def told() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The demo's first steps (seed 0), and all that the monitor publishes on them."""
    loaded = assemble(CONFIG)
    steps = list(SimulatedAgent.of(loaded.model, loaded.config.policies["nominal"], 0).messages(20))
    pipeline = loaded.pipeline("sidecar-1")
    effects = [pipeline.step(Connected(Instant(0.0, 0.0), up=True))]
    for tick, step in enumerate(steps, start=1):
        now = Instant(float(tick), float(tick))
        payload = msgpack.packb({**step, "time": now.wall})
        effects += [pipeline.step(Message(now, "agents/demo/steps", payload)), pipeline.step(Evaluate(now))]
    return steps, [json.loads(publication.payload) for effect in effects for publication in effect.publications]


def test_the_check_of_a_signature_accepts_what_a_webhook_sends_and_nothing_else() -> None:
    scope: dict[str, Any] = {}
    exec(example("Check the signature", OPERATIONS), scope)
    is_genuine = scope["is_genuine"]
    secret, other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "A" * 32
    headers = signed_headers("id-1", b"{}", parse_secrets(f"{other} {secret}"), 1000.5)
    for good in (secret, other):
        assert is_genuine(headers, b"{}", good, 1299.0)
        assert not is_genuine(headers, b"{} ", good, 1299.0)
        assert not is_genuine(headers, b"{}", good, 1300.0)
        assert not is_genuine({**headers, "webhook-id": "id-2"}, b"{}", good, 1299.0)
    assert not is_genuine(headers, b"{}", "whsec_" + "B" * 32, 1299.0)


def test_the_example_of_an_event_is_what_is_posted_about_its_alert() -> None:
    shown = json.loads(example("An event of a webhook"))
    document = {
        **shown["data"],
        "severity": "critical",
        "agent": "ada",
        "formula": {"name": "watch"},
        "summary": shown["text"],
        "time": shown["time"],
        "sent_unix": 1000.0,
    }
    payload = json.dumps(document).encode()
    alert = read_alert(payload)
    assert alert is not None
    assert without(json.loads(write_event(alert, payload, "sidecar-1")), "data") == without(shown, "data")


def test_the_example_of_webhooks_is_a_configuration(tmp_path: Path) -> None:
    (found,) = re.findall(r"^```yaml\n(webhooks:.*?)^```", OPERATIONS, flags=re.MULTILINE | re.DOTALL)
    config = tmp_path / "config.yaml"
    config.write_text(
        "model: m\npolicies: {nominal: p}\n"
        f"formulas: [{{name: watch, formula: 'P>=0.5 [ true ]', alarm: {{severity: critical}}}}]\n{found}"
    )
    webhooks = load_config(config).webhooks
    assert webhooks["pager"].severities == ("critical",)
    assert webhooks["chat"].url_file == tmp_path / "chat.url"


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    """What does not depend on when or where it was run."""
    assert set(keys) <= document.keys()
    return {key: value for key, value in document.items() if key not in keys}


def test_the_step_is_one_the_agent_sends(told: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    step = json.loads(example("A step"))
    assert without(step, "time") == told[0][1]
    observation = decode("demo", json.dumps(step).encode())
    assert (observation.agent, observation.seq, observation.time) == ("demo", step["seq"], step["time"])


def test_the_alert_is_the_one_published(told: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    alert = json.loads(example("An alert"))
    published = next(message for message in told[1] if message.get("state") == "firing")
    assert list(alert) == list(published)
    numbers = (
        "value",
        "alternative",
        "effect",
        "bounds",
        "profile",
        "fired",
        "recourse",
        "worst",
    )  # the last digit may be the machine's
    times = tuple(f"{name}{unit}" for name in ("time", "since", "sent") for unit in ("", "_unix"))
    moments = (*times, "evidence")  # the evidence holds the time, so its id does too
    for message in (alert, published):
        assert message["fired"].pop("time") == message["time"]
        assert message["fired"].pop("time_unix") == message["time_unix"]
        assert message["evidence"]["path"] == f"/evidence/{message['evidence']['id']}"
    assert without(alert, *moments, *numbers) == without(published, *moments, *numbers)
    for key in numbers:
        assert figures(alert[key]) == pytest.approx(figures(published[key]), abs=1e-9)


def figures(value: object) -> list[float]:
    match value:
        case dict():
            return [number for item in value.values() for number in figures(item)]
        case list():
            return [number for item in value for number in figures(item)]
        case int() | float():
            return [float(value)]
        case str():
            return []
    raise AssertionError(value)


def test_the_status_is_the_one_published(told: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    status = json.loads(example("A status"))
    published = next(message for message in told[1] if message.get("state") == "online")
    moments = ("client_id", "sent", "sent_unix")
    assert without(status, *moments) == without(published, *moments)


def test_manifest_and_configuration_are_the_shipped_ones() -> None:
    shipped = data_file("policies/icu-sepsis/deployed.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(example("A policy's manifest")) == yaml.safe_load(shipped)
    assert yaml.safe_load(example("A configuration")) == yaml.safe_load(CONFIG.read_text(encoding="utf-8"))


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    block = example("From Python", README)
    expected = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
    exec(compile(block, "README.md", "exec"), {})  # our own text
    assert capsys.readouterr().out.splitlines() == expected


def test_every_command_is_named() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]  # a group
    assert {"demo", "run", "explain"} <= commands
    assert {name for name in commands if f"`cfmon {name}" not in COMMANDS} == set()
