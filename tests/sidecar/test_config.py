"""The configuration: what is accepted, what the environment overrides, and where a mistake is said to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.sidecar.config.reading import Config, config_schema, load_config

PLAIN = """\
model: model.npz
policies: {nominal: nominal.yaml, fallback: ../fallback.yaml}
formulas:
  - name: regret_fallback
    formula: 'regret(fallback@5, P>=0.8 [ G<=20 !"death" ])'
"""

FULL = """\
mqtt: {url: "mqtt://localhost:1883", steps: "agents/+/steps", alerts: "cfmon/alerts", status: "cfmon/status"}
model: icu-sepsis/model.npz
state_encoder: index
policies: {nominal: ../policies/icu-sepsis/deployed.yaml, fallback: ../policies/icu-sepsis/clinicians.yaml}
path: {window: 64, reorder: {steps: 256, wait: 500ms}}
formulas:
  - name: regret_fallback
    formula: 'regret(fallback@5, P>=0.8 [ G<=20 !"death" ])'
    every: 1
    causal_model: any
    alarm: {for: 3, keep: 5, severity: critical, runbook: "https://example.org/runbooks/regret"}
stream: {stale_after: 5s, forget_after: 1h, max_lag: 2s}
heartbeat: 10s
http: {listen: "127.0.0.1:9108"}
store: {path: var/cfmon.sqlite}
limits: {message_bytes: 65536, agents: 1000, deadline: 50ms}
logging: {format: text}
"""


def load(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_config(path, environment)


def error(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text, environment)
    return str(raised.value)


def test_the_documented_example_is_read_as_written(tmp_path: Path) -> None:
    config = load(tmp_path, FULL)
    assert config.path.reorder.wait == 0.5
    assert config.stream.forget_after == 3600
    assert config.limits.deadline == 0.05
    alarm = config.formulas[0].alarm
    assert (alarm.for_, alarm.keep, alarm.severity) == (3, 5, "critical")
    assert config.formulas[0].every == 1


def test_the_example_states_the_defaults(tmp_path: Path) -> None:
    full, plain = load(tmp_path, FULL), load(tmp_path, PLAIN)
    for section in ("mqtt", "path", "stream", "heartbeat", "http", "store", "limits", "logging", "state_encoder"):
        assert getattr(full, section) == getattr(plain, section)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, PLAIN)
    assert config.model == str(tmp_path / "model.npz")
    assert config.policies["fallback"] == tmp_path.parent / "fallback.yaml"
    assert config.store.path == tmp_path / "var/cfmon.sqlite"


def test_a_gymnasium_model_is_not_a_path(tmp_path: Path) -> None:
    source = "gymnasium:FrozenLake-v1?is_slippery=true"
    assert load(tmp_path, PLAIN.replace("model.npz", source)).model == source


def test_every_as_a_duration_is_seconds(tmp_path: Path) -> None:
    every = load(tmp_path, PLAIN + "    every: 500ms\n").formulas[0].every
    assert isinstance(every, float)
    assert every == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PLAIN + "    alarm: {fro: 3}\n",
            "config.yaml, line 6, formulas[0].alarm.fro: unknown key; did you mean 'for'?",
        ),
        (PLAIN + "modle: x\n", "config.yaml, line 6, modle: unknown key; did you mean 'model'?"),
        (PLAIN + "mqtt: {ulr: x}\n", "config.yaml, line 6, mqtt.ulr: unknown key; did you mean 'url'?"),
        (PLAIN.replace("model: model.npz\n", ""), "config.yaml, model: missing; it has no default"),
        (PLAIN + "heartbeat: 10\n", "config.yaml, line 6, heartbeat: must be a duration with its unit"),
        (PLAIN + "heartbeat: 0s\n", "config.yaml, line 6, heartbeat: must be more than 0"),
        (PLAIN + "    every: 0\n", "line 6, formulas[0].every: must be at least 1 step"),
        (PLAIN + "    every: soon\n", "line 6, formulas[0].every: must be a duration"),
        (PLAIN + "    every: true\n", "line 6, formulas[0].every: must be a number of steps"),
        (PLAIN + "    every: 1.5\n", "line 6, formulas[0].every: must be a number of steps"),
        (PLAIN + "    causal_model: gumble\n", "line 6, formulas[0].causal_model: input should be 'gumbel', 'any'"),
        (PLAIN + "    alarm: {for: 0}\n", "line 6, formulas[0].alarm.for: input should be greater than or equal to 1"),
        (PLAIN + "    alarm: {keep: true}\n", "line 6, formulas[0].alarm.keep: must be a whole number"),
        (PLAIN + "    alarm: {severity: a b}\n", "line 6, formulas[0].alarm.severity: must match"),
        (PLAIN + "    alarm: {runbook: javascript:x}\n", "line 6, formulas[0].alarm.runbook: must match"),
        (PLAIN.replace("regret_fallback", "1st"), "line 4, formulas[0].name: must match"),
        (PLAIN.replace("nominal:", "bad-name:"), "line 2, policies.bad-name"),
        (PLAIN.replace("nominal:", "deployed:"), "line 2, policies: `nominal`, the policy the agents run, is missing"),
        (
            PLAIN + "  - {name: regret_fallback, formula: x}\n",
            "line 6, formulas[1].name: the name 'regret_fallback' is used twice",
        ),
        (PLAIN.partition("formulas")[0] + "formulas: []\n", "line 3, formulas: tuple should have at least 1 item"),
        (PLAIN + "mqtt: {steps: agents/steps}\n", "line 6, mqtt.steps: must contain exactly one +"),
        (PLAIN + 'mqtt: {steps: "+/+/steps"}\n', "line 6, mqtt.steps: must contain exactly one +"),
        (PLAIN + 'mqtt: {steps: "agents/+/#"}\n', "line 6, mqtt.steps: must contain exactly one +"),
        (PLAIN + 'mqtt: {steps: "$share/a/agents/+/steps"}\n', "line 6, mqtt.steps: must not start with $"),
        (PLAIN + 'mqtt: {alerts: "a/#"}\n', "line 6, mqtt.alerts: must be a topic without wildcards"),
        (PLAIN + 'mqtt: {url: "wss://u:s3cret@h"}\n', "line 6, mqtt.url: is for MQTT over websockets"),
        (PLAIN + 'mqtt: {url: "http://h"}\n', "line 6, mqtt.url: must be mqtt://host:port"),
        (PLAIN + 'mqtt: {url: "mqtt://h:99999"}\n', "line 6, mqtt.url: is not a URL"),
        (PLAIN + 'mqtt: {url: "mqtt://a..b"}\n', "line 6, mqtt.url: is not a URL"),
        (PLAIN + "http: {listen: 9108}\n", "line 6, http.listen:"),
        (PLAIN + "http: {listen: localhost}\n", "line 6, http.listen: must be host:port"),
        (PLAIN + "path: {window: 0}\n", "line 6, path.window: input should be greater"),
        (PLAIN + "path: {window: 1e9}\n", "line 6, path.window: must be a whole number"),
        (
            PLAIN + "stream: {stale_after: 2h}\n",
            "config.yaml, line 6, stream.forget_after: must be longer than stale_after",
        ),
        (PLAIN + 'labels: {death: ""}\n', "line 6, labels.death: "),
        (PLAIN + 'actions: {10: ""}\n', "line 6, actions.10: "),
        (PLAIN + 'labels: {death: "two\\nlines"}\n', "line 6, labels.death: "),
        (PLAIN + f"labels: {{death: {'x' * 81}}}\n", "line 6, labels.death: "),
        (PLAIN + "    alarm: {step: -0.1}\n", "line 6, formulas[0].alarm.step: input should be greater"),
        (PLAIN + "    alarm: {step: .inf}\n", "line 6, formulas[0].alarm.step: "),
        (PLAIN + "    alarm: {only_if: robust}\n", "line 6, formulas[0].alarm.only_if: robust needs bounds"),
        (PLAIN + "    bands: never\n", "line 6, formulas[0].bands: input should be 'auto', 'always' or 'off'"),
        (PLAIN + "bands: {delta: 1}\n", "line 6, bands.delta: input should be less than 1"),
        (PLAIN + "bands: {draws: 20}\n", "line 6, bands: draws: 20 models do not have quantiles at level 0.95"),
        (PLAIN + "logging: {format: xml}\n", "line 6, logging.format: input should be 'text' or 'json'"),
        (PLAIN + "model: again.npz\n", "config.yaml, line 6: the key 'model' is there twice"),
        (PLAIN + "x: [\n", "not valid YAML"),
        (PLAIN + "x: &a 1\n", "config.yaml, line 6: anchors and aliases"),
        (PLAIN + "x: !!python/object:os.system 1\n", "config.yaml, line 6: the tag"),
        (PLAIN + "x: " + "[" * 30 + "]" * 30, "config.yaml, line 6: nested deeper than 20"),
        ("", "config.yaml: empty"),
        ("- a\n", "config.yaml: the top of the file must be"),
        ("? [a]\n: b\n", "config.yaml, line 1: a key must be a plain name"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    message = error(tmp_path, text)
    assert expected in message
    assert "s3cret" not in message


@pytest.mark.parametrize("written", ["1:1", "1:30:00", "-1:1", "1:1.5"])
def test_a_number_in_base_60_is_none(tmp_path: Path, written: str) -> None:
    told = error(tmp_path, PLAIN + f"path: {{window: {written}}}\n")
    assert "path.window" in told
    assert "must be a whole number" in told


def test_a_number_with_a_leading_zero_is_decimal(tmp_path: Path) -> None:
    assert load(tmp_path, PLAIN + "path: {window: 010}\n").path.window == 10


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    message = error(tmp_path, PLAIN + "    alarm: {fro: 3}\nheartbeat: soon\n")
    assert [line.split(": ")[0] for line in message.splitlines()] == [
        "config.yaml, line 6, formulas[0].alarm.fro",
        "config.yaml, line 7, heartbeat",
    ]


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"model: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "absent.yaml")
    (tmp_path / "config.yaml").write_bytes(b"#" * (1 << 20) + b"##")
    with pytest.raises(ConfigError, match="larger than"):
        load_config(tmp_path / "config.yaml")


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    environment = {
        "CFMON_MQTT__URL": "mqtt://user:s3cret@broker:1884",
        "CFMON_HEARTBEAT": "2s",
        "CFMON_LIMITS__AGENTS": "7",
        "CFMON_FORMULAS": json.dumps([{"name": "other", "formula": "true", "alarm": {"for": 2}}]),
        "PATH": "not ours",
    }
    config = load(tmp_path, PLAIN, environment)
    assert config.mqtt.url.endswith("broker:1884")
    assert config.mqtt.alerts == "cfmon/alerts"
    assert (config.heartbeat, config.limits.agents) == (2.0, 7)
    assert [(formula.name, formula.alarm.for_) for formula in config.formulas] == [("other", 2)]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CFMON_HEARTBEAT": "10"}, "environment, CFMON_HEARTBEAT: must be a duration"),
        ({"CFMON_MQTT__ULR": "x"}, "environment, CFMON_MQTT__ULR: unknown key; did you mean 'url'?"),
        ({"CFMON_MQT__URL": "x"}, "environment, CFMON_MQT__URL: there is no setting 'mqt'; did you mean 'mqtt'?"),
        ({"CFMON_FORMULAS": "[nonsense"}, "write lists and maps as JSON"),
    ],
)
def test_a_mistake_in_the_environment_is_named_as_such(
    tmp_path: Path, environment: dict[str, str], expected: str
) -> None:
    assert expected in error(tmp_path, PLAIN, environment)


def test_the_password_is_in_no_text_about_the_config(tmp_path: Path) -> None:
    config = load(tmp_path, PLAIN, {"CFMON_MQTT__URL": "mqtt://user:s3cret@broker"})
    assert "s3cret" not in repr(config)
    other = load(tmp_path, PLAIN, {"CFMON_MQTT__URL": "mqtt://user:changed@broker"})
    assert config.digest == other.digest
    assert config.digest != load(tmp_path, PLAIN).digest


def test_a_place_in_the_config_can_be_named_after_loading(tmp_path: Path) -> None:
    config = load(tmp_path, PLAIN)
    assert config.where("formulas", 0, "formula") == "config.yaml, line 5, formulas[0].formula"


def test_the_schema_knows_every_key_and_allows_no_other() -> None:
    schema: dict[str, Any] = config_schema()
    assert set(schema["required"]) == {"model", "policies", "formulas"}
    assert schema["additionalProperties"] is False
    definitions = schema["$defs"]
    assert all(definition["additionalProperties"] is False for definition in definitions.values())
    assert "for" in definitions["AlarmConfig"]["properties"]
    assert definitions["MqttConfig"]["properties"]["keepalive"]["type"] == "string"
    assert definitions["MqttConfig"]["properties"]["keepalive"]["default"] == "15s"
