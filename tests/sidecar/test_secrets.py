"""Passwords and tokens appear nowhere: in nothing that runs, is kept or is shown, nor in what is said of mistakes."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from monitor.errors import ConfigError
from monitor.model import MDP
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.config.settings import Config
from monitor.sidecar.mqtt.broker import parse_broker
from tests.processes import fork_monitor
from tests.servers import PATIENCE, Mosquitto, Sidecar, end, mosquitto, need, sidecar, wait_until
from tests.sidecar.project import CONFIG, write_project

CANARY = "hunter2-canary"
TOKEN = f"{CANARY}-token-0123456789"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    folder = tmp_path_factory.mktemp("guarded")
    command = [need("mosquitto_passwd", "mosquitto"), "-b", "-c", str(folder / "passwords"), "cfmon", CANARY]
    subprocess.run(command, check=True, capture_output=True)
    with mosquitto(folder, "allow_anonymous false", f"password_file {folder / 'passwords'}") as server:
        yield server


def configured(
    where: str, folder: Path, corridor: MDP, server: Mosquitto, *, password: str = CANARY
) -> tuple[Path, dict[str, str]]:
    """A configuration with the password there, and the environment it needs."""
    secret = folder / "password"
    with_secret = server.url.replace("mqtt://", f"mqtt://cfmon:{password}@")
    mqtt, environment = {
        "url": (f'url: "{with_secret}"', {}),
        "environment": (
            f'url: "{server.url}"',
            {"CFMON_MQTT__USERNAME": "cfmon", "CFMON_MQTT__PASSWORD": password},
        ),
        "environment url": ("keepalive: 15s", {"CFMON_MQTT__URL": with_secret}),
        "file": (f'url: "{server.url}", username: cfmon, password_file: {secret}', {}),
    }[where]
    text = CONFIG.replace('url: "mqtt://127.0.0.1:1"', mqtt)
    text = text.replace('http: {listen: "127.0.0.1:0"}', 'http: {listen: "127.0.0.1:0", token_file: token}')
    text += "logging: {level: debug, format: json}\n"
    config = write_project(folder / "project", corridor, text)
    secret.write_text(password)
    (config.parent / "token").write_text(TOKEN)
    return config, environment


def served(running: Sidecar, path: str) -> bytes:
    asked = urllib.request.Request(running.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        content: bytes = answer.read() + str(answer.headers).encode()
        return content


def publish(server: Mosquitto, *payloads: str) -> None:
    command = [need("mosquitto_pub", "mosquitto-clients"), "-p", str(server.port), "-q", "1", "-l"]
    command += ["-u", "cfmon", "-P", CANARY, "-t", "agents/ada/steps"]
    subprocess.run(command, input="\n".join(payloads) + "\n", text=True, check=True, timeout=PATIENCE)


@pytest.mark.parametrize("where", ["environment url", "file"])
def test_nothing_that_runs_shows_or_keeps_a_secret(
    where: str, tmp_path: Path, corridor: MDP, guarded: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, environment = configured(where, tmp_path, corridor, guarded)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    recording = tmp_path / "recording"
    evidence = config.parent / "var" / "evidence"
    with sidecar(config, "--record", str(recording)) as running:
        publish(
            guarded, "nonsense", "nonsense", json.dumps({"v": 1, "episode": "one", "seq": 0, "state": 0, "action": 0})
        )
        wait_until(lambda: evidence.is_dir() and any(evidence.iterdir()), "the alarm's evidence is kept")
        paths = ["/", "/metrics", "/api/status", "/api/formulas", "/api/agents", "/api/alarms", "/healthz", "/readyz"]
        shown = {path: served(running, path) for path in paths}
        assert b"cfmon_alarms_total" in shown["/metrics"]
        assert running.stop() == 0
        shown["log"] = running.log.encode()
        assert b'"level": "debug"' in shown["log"]
    kept = {str(file): file.read_bytes() for file in (config.parent / "var").rglob("*") if file.is_file()}
    assert kept
    for name, content in {**shown, **kept, "recording": recording.read_bytes()}.items():
        assert CANARY.encode() not in content, name


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_broker_that_refuses_us_is_reported_without_the_secret(
    form: str, tmp_path: Path, corridor: MDP, guarded: Mosquitto
) -> None:
    config, _ = configured("url", tmp_path, corridor, guarded, password=f"{CANARY}-wrong")
    config.write_text(config.read_text().replace("format: json", f"format: {form}"))
    log = tmp_path / "log"
    log.touch()
    process = fork_monitor("run", str(config), log=log)
    try:
        wait_until(lambda: log.read_text().count("Not authorized") >= 2, "refused twice")
    finally:
        end(process)
    assert CANARY not in log.read_text()


@pytest.mark.parametrize(
    ("where", "flags"), [("url", []), ("environment", ["--json"]), ("environment url", []), ("file", [])]
)
def test_config_check_and_every_repr_are_without_secrets(
    where: str, flags: list[str], tmp_path: Path, corridor: MDP, guarded: Mosquitto
) -> None:
    config, environment = configured(where, tmp_path, corridor, guarded)
    log = tmp_path / "log"
    assert fork_monitor("config", "check", str(config), *flags, log=log, env=environment).wait(PATIENCE) == 0
    loaded = load_config(config, environment)
    assert loaded.mqtt.broker.credentials() == ("cfmon", CANARY), "it is there"
    shown = [repr(loaded), str(loaded), repr(loaded.mqtt), repr(loaded.mqtt.broker), loaded.mqtt.broker.address]
    shown += [repr(loaded.http), loaded.digest, log.read_text()]
    assert not [text for text in shown if CANARY in text]


def test_the_digest_does_not_depend_on_credentials(tmp_path: Path, corridor: MDP, guarded: Mosquitto) -> None:
    config, _ = configured("file", tmp_path, corridor, guarded)
    one = load_config(config, {"CFMON_MQTT__USERNAME": "a"})
    assert one.digest == load_config(config, {"CFMON_MQTT__USERNAME": "b"}).digest


SHAPES = ["{s}", "!{s}", "!{s}!x", "!!{s} 1", "&{s}", "*{s}", "%{s}", "@{s}", "`{s}", "|{s}", ">{s}", "[{s}", "{{{s}"]
SHAPES += ["'{s}", '"{s}', "{s}: x", "- {s}", "0x{s}", "? {s}", "'{s}' x", '"\\q{s}"', "\t{s}", "{s}\n  x: : y"]
PLACES = ["password: ", "username: ", "url: mqtt://u:", "url: ftp://u:", "url: ", "keepalive: "]


@given(st.sampled_from(PLACES), st.sampled_from(SHAPES), st.sampled_from(["", "bad_key: 1\n", "heartbeat: 5\n"]))
def test_a_mistake_beside_a_secret_is_reported_without_it(
    tmp_path_factory: pytest.TempPathFactory, place: str, shape: str, mistake: str
) -> None:
    assume((place, shape) != ("url: mqtt://u:", "@{s}"))  # what stands there is the host
    file = tmp_path_factory.mktemp("c") / "config.yaml"
    rest = "model: m.npz\npolicies: {nominal: n.yaml}\nformulas: [{name: a, formula: 'P>=0.5 [ true ]'}]\n"
    file.write_text(f"mqtt:\n  {place}{shape.format(s=CANARY)}\n{mistake}{rest}")
    with pytest.raises(ConfigError) as raised:
        raise_or_show(load_config(file))
    assert CANARY not in str(raised.value)


def raise_or_show(config: Config) -> None:
    """A configuration that is right is shown as an error, so that both ends are looked at in the same way."""
    raise ConfigError(repr(config.mqtt.broker) + config.digest)


@given(st.text(min_size=1, max_size=20))
def test_a_url_that_is_wrong_is_not_repeated(garbage: str) -> None:
    for url in (f"mqtt://u:{CANARY}@{garbage}", f"{garbage}://u:{CANARY}@h", f"mqtt://u:{CANARY}{garbage}@h:x"):
        try:
            shown = repr(parse_broker(url))
        except ValueError as error:
            shown = str(error)
        assert CANARY not in shown
