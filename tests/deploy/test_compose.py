"""The compose file: valid against the compose specification, and it agrees with what it mounts and builds."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema  # type: ignore[import-untyped]
import httpx
import pytest
import yaml
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from monitor.sidecar.config.reading import load_config
from monitor.sidecar.web.server import HttpServer

DEPLOY = Path(__file__).parents[2] / "deploy"
VERSION: str = runpy.run_path(str(DEPLOY.parent / "monitor" / "_version.py"))["__version__"]
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def check_schema(*arguments: str) -> None:
    """Run the command `check-jsonschema`, in this process."""
    done = CliRunner().invoke(check_jsonschema.main, arguments)
    assert done.exit_code == 0, done.output


def test_valid_against_the_compose_specification() -> None:
    check_schema("--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml"))


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_from_the_repository_exists_and_is_read_only(service: str) -> None:
    for volume in SERVICES[service].get("volumes", []):
        source, _target, *mode = volume.split(":")
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
            assert mode == ["ro"]
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("service", SERVICES)
def test_confined_and_published_on_loopback_only(service: str) -> None:
    assert SERVICES[service]["read_only"] is True
    assert SERVICES[service]["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service].get("ports", []))


def test_image_is_the_containerfile_of_this_version() -> None:
    build = SERVICES["cfmon"]["build"]
    context = DEPLOY / build["context"]
    assert (context / build["dockerfile"]).samefile(DEPLOY / "Containerfile")
    for service in ("cfmon", "agent"):
        assert SERVICES[service]["image"] == f"counterfactual-monitor:{VERSION}"


def test_prometheus_scrapes_the_service_under_its_name_and_port() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]


def listening(target: str) -> bool:
    """Whether a `host:port` is a service under its name, published on the host under the same port."""
    name, port = target.split(":")
    return bool(SERVICES[name].get("ports") == [f"127.0.0.1:{port}:{port}"])


def test_prometheus_grafana_and_alertmanager_find_each_other() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (alertmanagers,) = config["alerting"]["alertmanagers"]
    (target,) = alertmanagers["static_configs"][0]["targets"]
    assert listening(target)
    provisioning = here(f"{SERVICES['grafana']['environment']['GF_PATHS_PROVISIONING']}/datasources", "grafana")
    (source,) = yaml.safe_load((provisioning / "prometheus.yaml").read_text())["datasources"]
    assert listening(source["url"].removeprefix("http://"))


def test_alerts_are_sent_to_the_receiver() -> None:
    routes = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    urls = [hook["url"] for receiver in routes["receivers"] for hook in receiver["webhook_configs"]]
    program, address = SERVICES["receiver"]["entrypoint"][1:]
    assert here(program, "receiver").is_file()
    _, port = address.split(":")
    assert all(url.startswith(f"http://receiver:{port}/") for url in urls)


def here(path: str, service: str) -> Path:
    """The repository's file that the service finds at `path`."""
    for volume in SERVICES[service]["volumes"]:
        source, target, *_ = volume.split(":")
        if path.startswith(f"{target}/"):
            return DEPLOY.joinpath(source, path.removeprefix(f"{target}/"))
    pytest.fail(f"{service} mounts nothing that holds {path}")


@pytest.mark.parametrize("service", ["cfmon", "agent"])
def test_every_file_a_command_names_is_mounted(service: str) -> None:
    paths = re.findall(r"/etc/cfmon/\S+", " ".join(SERVICES[service]["command"]))
    assert paths
    for path in paths:
        assert here(path, service).is_file(), path


def test_the_mounted_config_is_valid_with_the_environment_it_gets() -> None:
    command, path = SERVICES["cfmon"]["command"]
    image = re.findall(r"(CFMON_\w+)=(\S+)", (DEPLOY / "Containerfile").read_text())
    config = load_config(here(path, "cfmon"), {**dict(image), **SERVICES["cfmon"]["environment"]})
    assert command == "run"
    assert config.mqtt.url == "mqtt://mosquitto:1883"
    assert config.http.listen == "0.0.0.0:9108"
    assert config.store.path is not None
    assert any(volume.endswith(f":{config.store.path.parent}") for volume in SERVICES["cfmon"]["volumes"])
    for manifest in config.policies.values():  # relative to the config: the two folders stay side by side
        assert manifest.is_file()


def test_under_a_foreign_name_the_monitor_answers_no_one_and_prometheus_and_people_find_it() -> None:
    command, path = SERVICES["cfmon"]["command"]
    config = load_config(here(path, "cfmon"), SERVICES["cfmon"]["environment"])
    assert command == "run"
    everywhere = config.http.model_copy(update={"listen": "0.0.0.0:0"})
    server = HttpServer(Starlette(routes=[Route("/metrics", lambda _request: PlainTextResponse("ok"))]), everywhere)
    assert not server.open
    server.start()
    try:
        for name, status in {"evil.com": 421, "cfmon:9108": 200, "127.0.0.1:9108": 200, "localhost:9108": 200}.items():
            answer = httpx.get(f"{server.url.replace('0.0.0.0', '127.0.0.1')}/metrics", headers={"Host": name})
            assert answer.status_code == status, name
    finally:
        server.stop()


def test_the_agent_publishes_where_the_monitor_listens() -> None:
    (script,) = SERVICES["agent"]["command"]
    options = re.findall(r"--[a-z]+", script)
    command = [sys.executable, "-m", "monitor.demo.agent", "--help"]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert all(option in known for option in options)
    assert re.search(r"--topic agents/[\w.-]+/steps ", script)
    assert SERVICES["cfmon"]["environment"]["CFMON_MQTT__URL"] in script
